//! `forebay snapshot`: lists the source afresh and publishes what is there.

use crate::app::project::Project;
use crate::cli::output::count;
use crate::cli::{Context, now_ms};
use crate::error::Result;
use crate::spec::size;
use clap::Args;
use serde_json::json;
use std::path::PathBuf;

/// List the source afresh and publish the list, so that readers and workers agree on what there is
#[derive(Args)]
#[command(after_help = "Examples:\n  forebay snapshot photos.yaml")]
pub struct Arguments {
    /// The pipeline file
    pipeline: PathBuf,
    /// Accept a listing that loses or changes more than half of the entries
    #[arg(long)]
    replace: bool,
}

pub fn run(arguments: Arguments, context: &Context) -> Result<()> {
    let begun_ms = now_ms();
    let (mut project, snapshot) = context.surrounded(|surroundings| {
        let project = Project::open(&arguments.pipeline, surroundings)?;
        let snapshot = project.list(surroundings.progress)?;
        Ok((project, snapshot))
    })?;
    project.notes().iter().for_each(|note| context.out.note(note));
    project.dataset.hold("snapshot", snapshot.id)?;
    let head = project.publish(&snapshot, begun_ms, arguments.replace)?;
    context.out.result(
        json!({
            "pipeline": head.pipeline,
            "snapshot": head.snapshot,
            "entries": head.entries,
            "partitions": head.partitions,
            "rows": head.rows,
            "bytes": head.bytes,
        }),
        || {
            format!(
                "snapshot {} of {}: {}, {}, {}, {}",
                head.snapshot,
                head.pipeline,
                count(head.entries, "entry"),
                count(head.rows, "sample"),
                size::print(head.bytes),
                count(head.partitions, "partition"),
            )
        },
    )?;
    Ok(())
}
