//! `forebay export`: a stored stage as a plain directory.

use crate::app::{catalog, export};
use crate::cli::Context;
use crate::cli::output::count;
use crate::cli::place::Place;
use crate::error::Result;
use crate::format::encoding::Container;
use clap::Args;
use serde_json::json;
use std::path::PathBuf;

/// Write a stored stage as a plain directory of files, for globs, Spark and the like
///
/// Files are hard links where the directory is on the store's file system, copies elsewhere.
#[derive(Args)]
#[command(after_help = "Examples:\n  forebay export photos.yaml --stage resize --to ./resized")]
pub struct Arguments {
    #[command(flatten)]
    place: Place,
    /// A stage's name [default: the latest that is stored whole]
    #[arg(long)]
    stage: Option<String>,
    /// Which split's stage, where splits differ
    #[arg(long)]
    split: Option<String>,
    /// `arrow` or `parquet`, where the stage is stored as both
    #[arg(long, value_name = "FORMAT")]
    format: Option<Container>,
    /// The directory to make
    #[arg(long, value_name = "DIR")]
    to: PathBuf,
}

pub fn run(arguments: Arguments, context: &Context) -> Result<()> {
    let (store, name) = arguments.place.open(context)?;
    let pipeline = catalog::pipeline(&store, name.as_deref())?;
    let (stage, split) = (arguments.stage.as_deref(), arguments.split.as_deref());
    let stored = catalog::stored_stage(&store, &pipeline, stage, split, arguments.format)?;
    let done = export::export(&store, &stored, &arguments.to)?;
    let document = json!({
        "stage": stored.stage.name, "encoding": stored.manifest.encoding, "rows": stored.manifest.rows,
        "directory": arguments.to, "files": done.files, "linked": done.linked, "copied": done.copied,
    });
    context.out.result(document, || {
        format!(
            "{} of stage {} ({}) in {}: {} linked, {} copied",
            count(done.files.len() as u64, "file"),
            stored.stage.name,
            stored.manifest.encoding,
            arguments.to.display(),
            done.linked,
            done.copied,
        )
    });
    Ok(())
}
