//! `forebay du`: what takes how much of a store.

use crate::cli::Context;
use crate::cli::output::count;
use crate::cli::place::Place;
use crate::error::Result;
use crate::spec::size;
use crate::store::holdings::{HeldStage, Holdings};
use clap::Args;
use serde_json::{Value, json};
use std::fmt::Write;

/// Say what takes how much of a store: by stage, encoding and snapshot
///
/// Snapshots share the shards of what didn't change: «alone» is what would go with a snapshot.
#[derive(Args)]
#[command(after_help = "Examples:\n  forebay du photos.yaml\n  forebay du --store s3://bucket/photos --json")]
pub struct Arguments {
    #[command(flatten)]
    place: Place,
}

pub fn run(arguments: Arguments, context: &Context) -> Result<()> {
    let (store, pipeline) = arguments.place.open(context)?;
    let mut holdings = store.holdings()?;
    if let Some(pipeline) = &pipeline {
        holdings.snapshots.retain(|snapshot| snapshot.pipeline == *pipeline);
        holdings.stages.retain(|stage| stage.pipeline == *pipeline);
    }
    let stage = |s: &HeldStage| {
        json!({
            "pipeline": s.pipeline, "stage": s.stage, "split": s.split, "recipe": s.recipe, "encoding": s.encoding,
            "former": s.former, "shards": s.shards, "bytes": s.bytes,
        })
    };
    let snapshots: Vec<Value> = holdings
        .snapshots
        .iter()
        .map(|s| {
            json!({
                "pipeline": s.pipeline, "snapshot": s.snapshot, "current": s.current, "bytes": s.bytes,
                "own_bytes": s.own_bytes, "stages": s.stages.iter().map(stage).collect::<Vec<_>>(),
            })
        })
        .collect();
    let document = json!({
        "stages": holdings.stages.iter().map(stage).collect::<Vec<_>>(), "snapshots": snapshots,
        "unreferenced_objects": holdings.unreferenced.0, "unreferenced_bytes": holdings.unreferenced.1,
        "objects": holdings.objects, "bytes": holdings.bytes,
    });
    context.out.result(document, || text(&holdings))
}

fn text(holdings: &Holdings) -> String {
    let mut text = String::new();
    let mut pipelines: Vec<&str> = holdings.snapshots.iter().map(|s| s.pipeline.as_str()).collect();
    pipelines.extend(holdings.stages.iter().map(|s| s.pipeline.as_str()));
    pipelines.sort_unstable();
    pipelines.dedup();
    for pipeline in pipelines {
        let _ = writeln!(text, "{pipeline}");
        for stage in holdings.stages.iter().filter(|s| s.pipeline == pipeline) {
            let _ = writeln!(text, "  {}", line(stage));
        }
        for snapshot in holdings.snapshots.iter().filter(|s| s.pipeline == pipeline) {
            let _ = writeln!(
                text,
                "  snapshot {}{}  {}, {} alone",
                snapshot.snapshot.short(),
                if snapshot.current { " (current)" } else { "" },
                size::print(snapshot.bytes),
                size::print(snapshot.own_bytes),
            );
            for stage in &snapshot.stages {
                let _ = writeln!(text, "    {}", line(stage));
            }
        }
    }
    let (objects, bytes) = holdings.unreferenced;
    if objects > 0 {
        let _ = writeln!(
            text,
            "{} that no snapshot leads to: {} (`forebay gc` removes what is not in use)",
            count(objects, "object"),
            size::print(bytes)
        );
    }
    let _ = write!(text, "{} in {}", size::print(holdings.bytes), count(holdings.objects, "object"));
    text
}

fn line(stage: &HeldStage) -> String {
    let split = stage.split.as_deref().map_or(String::new(), |s| format!(" [{s}]"));
    let former = if stage.former { "  (of the pipeline as it was)" } else { "" };
    let shards = count(stage.shards, "shard");
    format!("{}{split} ({})  {shards}, {}{former}", stage.stage, stage.encoding, size::print(stage.bytes))
}
