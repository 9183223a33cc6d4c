//! `forebay gc`: removes what nothing needs any more.

use crate::cli::Context;
use crate::cli::output::{count, say};
use crate::cli::place::Place;
use crate::error::Result;
use crate::format::name::PipelineName;
use crate::spec::{duration, size};
use crate::store::Pace;
use crate::store::gc::{Collected, Event, Options, collect};
use clap::Args;
use serde_json::{Map, Value, json};
use std::fmt::Write;
use std::time::Duration;

/// Remove from a store what is neither current, pinned, in use nor recent
///
/// Safe beside running writers and readers: each says in the store what it uses. One that can't write to the store is
/// protected by --keep-within alone. Where `gc` itself is killed, the same command goes on; writers that need what it was about to
/// remove wait for it, at most ten minutes.
#[derive(Args)]
#[command(after_help = "Examples:
  forebay gc photos.yaml --dry-run            say what would be removed
  forebay gc photos.yaml                      remove what hasn't been current for a day
  forebay gc --keep-within 2w --max-size 500gb
  forebay gc --forget photos --keep-within 0  remove a pipeline with all its data")]
pub struct Arguments {
    #[command(flatten)]
    place: Place,
    /// Keep what was current, and stages that were finished, within this time: 45s, 30min, 12h, 1d, 2w
    #[arg(long, value_name = "TIME", default_value = "1d", value_parser = duration::parse)]
    keep_within: Duration,
    /// Also remove, of what --keep-within keeps, stages that cost least to compute for their bytes, until the store has this
    /// size
    #[arg(long, value_name = "SIZE", value_parser = size::parse)]
    max_size: Option<u64>,
    /// Treat a pipeline as needed by nobody; may be repeated
    #[arg(long, value_name = "NAME")]
    forget: Vec<PipelineName>,
    /// Say what would be removed; remove nothing
    #[arg(long)]
    dry_run: bool,
}

pub fn run(arguments: Arguments, context: &Context) -> Result<()> {
    let (store, _) = arguments.place.open(context)?;
    context.stop_on_signals();
    let options = Options {
        keep_within: arguments.keep_within,
        forget: arguments.forget,
        max_bytes: arguments.max_size,
        dry_run: arguments.dry_run,
        pace: Pace::usual(store.storage().local_path().is_some()),
        stop: &context.stop,
        progress: &|event| match event {
            Event::Waiting { others, wait } => {
                let others = count(others as u64, "process");
                context.out.note(&format!(
                    "{others} at work on this store: waiting {} s for them to see what is to go",
                    wait.as_secs()
                ));
            }
            Event::Removed { objects, of } if context.common.verbose => {
                say(&format!("removed {objects} of {of} objects"))
            }
            Event::Removed { .. } => {}
        },
    };
    let collected = collect(&store, &options)?;
    collected.notes.iter().for_each(|note| context.out.warn(note));
    let removed: Map<String, Value> = collected
        .removed
        .iter()
        .map(|(kind, (objects, bytes))| ((*kind).to_owned(), json!({ "objects": objects, "bytes": bytes })))
        .collect();
    let document = json!({
        "dry_run": arguments.dry_run, "removed": removed, "removed_objects": sum(&collected).0,
        "removed_bytes": sum(&collected).1, "swept": collected.swept, "kept_objects": collected.kept_objects,
        "kept_bytes": collected.kept_bytes, "recent_bytes": collected.recent_bytes, "in_use": collected.in_use,
        "notes": collected.notes,
    });
    context.out.result(document, || text(&collected, arguments.dry_run))
}

fn text(collected: &Collected, dry_run: bool) -> String {
    let (objects, bytes) = sum(collected);
    let mut text = String::new();
    for (kind, (objects, bytes)) in &collected.removed {
        let _ = writeln!(text, "  {kind}: {objects}, {}", size::print(*bytes));
    }
    let did = if dry_run { "would remove" } else { "removed" };
    let _ = write!(text, "{did} {}, {}", count(objects, "object"), size::print(bytes));
    if collected.swept > 0 {
        let _ = write!(text, "; {} of killed processes", count(collected.swept, "temporary file"));
    }
    let _ = write!(text, "; kept {}, {}", count(collected.kept_objects, "object"), size::print(collected.kept_bytes));
    if collected.recent_bytes > 0 {
        let _ = write!(text, ", of which {} only as they were needed lately", size::print(collected.recent_bytes));
    }
    text
}

/// Objects and bytes of all kinds.
fn sum(collected: &Collected) -> (u64, u64) {
    collected.removed.values().fold((0, 0), |sum, (objects, bytes)| (sum.0 + objects, sum.1 + bytes))
}
