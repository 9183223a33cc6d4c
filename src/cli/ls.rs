//! `forebay ls`: the pipelines of a store, their snapshots and what is stored of each stage.

use crate::app::catalog;
use crate::cli::Context;
use crate::cli::output::count;
use crate::cli::place::Place;
use crate::error::Result;
use crate::format::head::SnapshotHead;
use crate::format::root::Pin;
use crate::spec::size;
use clap::Args;
use serde_json::{Value, json};
use std::fmt::Write;

/// List the pipelines of a store, their snapshots and stored stages
#[derive(Args)]
#[command(after_help = "Examples:\n  forebay ls\n  forebay ls photos.yaml\n  forebay ls --store ./.forebay --json")]
pub struct Arguments {
    #[command(flatten)]
    place: Place,
}

pub fn run(arguments: Arguments, context: &Context) -> Result<()> {
    let (store, name) = arguments.place.open(context)?;
    let names = match name {
        Some(name) => vec![name],
        None => store.pipelines()?,
    };
    let (usage, pins) = (store.usage()?, store.pins()?);
    let mut documents = Vec::new();
    let mut text = String::new();
    for name in &names {
        let pipeline = catalog::pipeline(&store, Some(name))?;
        let snapshots = store.snapshots(name)?.map(|(_, head)| head).collect::<Result<Vec<_>>>()?;
        let _ = writeln!(text, "{name}");
        let pinned = |head: &SnapshotHead| -> Vec<&str> {
            let of = |pin: &&Pin| pin.pipeline == *name && pin.snapshot == head.snapshot;
            pins.iter().filter(of).map(|pin| pin.name.as_str()).collect()
        };
        for (index, head) in snapshots.iter().enumerate() {
            let pinned: String = pinned(head).iter().map(|pin| format!("  (pinned: {pin})")).collect();
            let _ = writeln!(
                text,
                "  snapshot {}  {}, {}, {}{}{pinned}",
                head.snapshot,
                count(head.entries, "entry"),
                count(head.rows, "sample"),
                size::print(head.bytes),
                if index == 0 { "  (current)" } else { "" },
            );
        }
        let mut stages = Vec::new();
        for stage in &pipeline.stages {
            let split = stage.split.as_deref().map_or(String::new(), |s| format!(" [{s}]"));
            for stored in usage.stages.iter().filter(|u| u.recipe == stage.recipe) {
                let whole = match snapshots.first() {
                    Some(head) => store.manifest(stage.recipe, stored.encoding, head.snapshot)?.is_some(),
                    None => false,
                };
                let _ = writeln!(
                    text,
                    "  {}{split} ({})  {}, {}, {}{}",
                    stage.name,
                    stored.encoding,
                    count(stored.shards, "shard"),
                    count(stored.rows, "row"),
                    size::print(stored.bytes),
                    if whole { "" } else { "  (not whole for the current snapshot)" },
                );
                stages.push(json!({
                    "stage": stage.name, "split": stage.split, "recipe": stage.recipe, "encoding": stored.encoding,
                    "shards": stored.shards, "rows": stored.rows, "bytes": stored.bytes,
                    "failed_rows": stored.failed_rows, "complete": whole,
                }));
            }
        }
        if stages.is_empty() {
            text.push_str("  nothing stored yet\n");
        }
        let snapshots: Vec<Value> = snapshots
            .iter()
            .map(|h| json!({ "snapshot": h.snapshot, "entries": h.entries, "rows": h.rows, "bytes": h.bytes, "partitions": h.partitions, "pins": pinned(h) }))
            .collect();
        documents.push(json!({ "pipeline": name, "snapshots": snapshots, "stages": stages }));
    }
    let _ = write!(text, "{} in {}", size::print(usage.blob_bytes), count(usage.blobs, "blob"));
    context
        .out
        .result(json!({ "pipelines": documents, "blobs": usage.blobs, "blob_bytes": usage.blob_bytes }), || text)?;
    Ok(())
}
