//! `forebay export`: a stored stage as a plain directory.

use crate::app::export;
use crate::cli::Context;
use crate::cli::output::count;
use crate::cli::place::{Found, StoredStage};
use crate::error::Result;
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
    which: StoredStage,
    /// The directory to make
    #[arg(long, value_name = "DIR")]
    to: PathBuf,
}

pub fn run(arguments: Arguments, context: &Context) -> Result<()> {
    let Found { store, stored, .. } = arguments.which.open(context)?;
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
    })?;
    Ok(())
}
