//! `forebay cp`: copies pipelines with their snapshots and stored stages to another store.

use crate::cli::Context;
use crate::cli::output::{count, say};
use crate::cli::place::Place;
use crate::error::{Error, Result};
use crate::id::SnapshotId;
use crate::spec::size;
use crate::store::Store;
use crate::store::copy::{Options, copy};
use clap::Args;
use serde_json::json;
use std::fmt::Write;

/// Copy pipelines, their snapshots and stored stages to another store; what is there already is not copied again
///
/// Every byte is checked against its digest on the way. Killed at any point, the same command goes on where it stopped. Both
/// stores are reached with the same --storage-option.
#[derive(Args)]
#[command(after_help = "Examples:
  forebay cp photos.yaml ./copy
  forebay cp ./.forebay s3://bucket/photos --pipeline photos --stage resize
  forebay cp s3://bucket/photos /mnt/disk/photos")]
pub struct Arguments {
    /// A store, or a pipeline file, which means its store and pipeline
    #[arg(value_name = "FROM")]
    from: String,
    /// The store to copy into; it is made where there is none
    #[arg(value_name = "TO")]
    to: String,
    /// Only this pipeline; may be repeated
    #[arg(long, value_name = "NAME")]
    pipeline: Vec<String>,
    /// Only this snapshot
    #[arg(long, value_name = "ID")]
    snapshot: Option<SnapshotId>,
    /// Only this stage; may be repeated
    #[arg(long, value_name = "NAME")]
    stage: Vec<String>,
}

pub fn run(arguments: Arguments, context: &Context) -> Result<()> {
    let (from, named) = Place::at(arguments.from).open(context)?;
    let to = Store::open(&arguments.to, &context.access)?;
    if from.storage().location() == to.storage().location() {
        return Err(Error::invalid(format!("{} is the store to copy from and the one to copy into", arguments.to)));
    }
    context.stop_on_signals();
    let pipelines = if arguments.pipeline.is_empty() { named.into_iter().collect() } else { arguments.pipeline };
    let options = Options {
        pipelines,
        snapshot: arguments.snapshot,
        stages: arguments.stage,
        stop: &context.stop,
        progress: &|shards, bytes| {
            if context.common.verbose {
                say(&format!("copied {}, {}", count(shards, "shard"), size::print(bytes)));
            }
        },
    };
    let copied = copy(&from, &to, &options)?;
    copied.notes.iter().for_each(|note| context.out.warn(note));
    let document = json!({
        "snapshots": copied.snapshots, "shards": copied.shards, "bytes": copied.bytes,
        "reused_shards": copied.reused_shards, "notes": copied.notes,
    });
    context.out.result(document, || {
        let mut text = format!("copied {}, {}", count(copied.shards, "shard"), size::print(copied.bytes));
        let _ = write!(
            text,
            " of {}; {} there already",
            count(copied.snapshots, "snapshot"),
            count(copied.reused_shards, "shard")
        );
        text
    })
}
