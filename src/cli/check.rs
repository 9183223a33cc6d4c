//! `forebay check`: what a pipeline would do, before anything is stored.

use crate::app::check::{Checked, check};
use crate::app::project::Project;
use crate::cli::Context;
use crate::cli::output::{count, shown};
use crate::error::Result;
use crate::spec::size;
use clap::Args;
use serde_json::{Value, json};
use std::fmt::Write;
use std::path::PathBuf;
use std::sync::Arc;

/// Check a pipeline: schema of each stage, what can be stored, partitions, memory; stores nothing
#[derive(Args)]
#[command(after_help = "Examples:\n  forebay check photos.yaml")]
pub struct Arguments {
    /// The pipeline file
    pipeline: PathBuf,
}

pub fn run(arguments: Arguments, context: &Context) -> Result<()> {
    let (project, snapshot) = context.surrounded(|surroundings| {
        let project = Project::open(&arguments.pipeline, surroundings)?;
        let snapshot = Arc::new(project.list(surroundings.progress)?);
        Ok((project, snapshot))
    })?;
    project.notes().iter().for_each(|note| context.out.note(note));
    let checked = check(&project, &snapshot)?;
    context.out.result(document(&checked), || text(&checked))?;
    Ok(())
}

fn document(checked: &Checked) -> Value {
    let stages: Vec<Value> = checked
        .stages
        .iter()
        .map(|s| {
            let columns: Vec<Value> = s.columns.iter().map(|(n, t)| json!({ "name": n, "type": t })).collect();
            json!({
                "stage": s.name, "split": s.split, "purity": format!("{:?}", s.purity).to_lowercase(),
                "storable": s.unstorable.is_none(), "reason": s.unstorable, "encoding": s.encoding,
                "estimated_bytes": s.bytes, "columns": columns,
            })
        })
        .collect();
    let failed: Vec<Value> =
        checked.failed.iter().map(|(key, reason)| json!({ "key": key, "reason": reason })).collect();
    json!({
        "stages": stages, "entries": checked.entries, "rows": checked.rows, "bytes": checked.bytes,
        "partitions": checked.partitions, "lanes": checked.lanes, "block": checked.block,
        "open_bytes": checked.open_bytes, "failed": failed, "advice": checked.advice,
    })
}

fn text(checked: &Checked) -> String {
    let mut text = String::new();
    let _ = writeln!(
        text,
        "{}, {}, {} in {}",
        count(checked.entries as u64, "entry"),
        count(checked.rows, "sample"),
        size::print(checked.bytes),
        count(checked.partitions as u64, "partition"),
    );
    for stage in &checked.stages {
        let split = stage.split.as_deref().map_or(String::new(), |s| format!(" [{s}]"));
        let fate = match (&stage.unstorable, stage.bytes) {
            (Some(reason), _) => format!("not storable: {reason}"),
            (None, Some(bytes)) => format!("storable, about {} as {}", size::print(bytes), stage.encoding),
            (None, None) => "storable".to_owned(),
        };
        let _ = writeln!(text, "{}{split}: {fate}", stage.name);
        for (name, kind) in stage.columns.iter().filter(|(n, _)| !n.starts_with('_')) {
            let _ = writeln!(text, "  {name:<20} {kind}");
        }
    }
    let _ = writeln!(
        text,
        "order: {} lanes, blocks of {}; at most {} of source bytes open at a time",
        checked.lanes,
        checked.block,
        size::print(checked.open_bytes)
    );
    for (key, reason) in &checked.failed {
        let _ = writeln!(text, "fails: {}: {}", shown(key), shown(reason));
    }
    for advice in &checked.advice {
        let _ = writeln!(text, "note: {advice}");
    }
    text
}
