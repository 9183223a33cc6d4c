//! `forebay explain`: what each stage's key is made of, and why stored shards do or don't match; or what two snapshots differ
//! in, and what that means for the shards.

use crate::app::catalog;
use crate::app::compare::{Comparison, Shards, Which, compare};
use crate::app::explain::{explain, sentence};
use crate::app::project::Project;
use crate::app::targets::unknown;
use crate::cli::Context;
use crate::cli::output::{count, shown, thousands};
use crate::cli::place::Place;
use crate::error::{Error, Result};
use crate::format::head::SnapshotHead;
use crate::plan::chain::Chain;
use crate::plan::changes::Changed;
use crate::plan::cut;
use crate::spec::size;
use clap::Args;
use serde_json::{Value, json};
use std::fmt::Write;
use std::path::Path;

/// Say what each stage's key is made of and why stored shards match or don't; or what two snapshots differ in
#[derive(Args)]
#[command(after_help = "Examples:
  forebay explain photos.yaml
  forebay explain photos.yaml --stage resize --json     the whole recipe
  forebay explain photos.yaml --from previous           what the last listing changed
  forebay explain .forebay                              the same, from the store alone")]
pub struct Arguments {
    #[command(flatten)]
    place: Place,
    /// Only this stage
    #[arg(long, conflicts_with_all = ["from", "to"])]
    stage: Option<String>,
    /// Compare the snapshot of this id, `current` or `previous` (`--json` names up to 1,000 keys of each kind) [default, with
    /// --to or of a store: the one before --to]
    #[arg(long, value_name = "ID")]
    from: Option<Which>,
    /// Compare with the snapshot of this id, `current` or `previous` [default: current]
    #[arg(long, value_name = "ID")]
    to: Option<Which>,
}

pub fn run(arguments: Arguments, context: &Context) -> Result<()> {
    match arguments.place.file() {
        Some(file) if arguments.from.is_none() && arguments.to.is_none() => {
            keys(file, arguments.stage.as_deref(), context)
        }
        None if arguments.stage.is_some() => Err(Error::invalid(
            "--stage explains a stage of a pipeline file; name the file (a store alone has snapshots to compare)",
        )),
        _ => snapshots(&arguments, context),
    }
}

/// What each stage's key is made of.
fn keys(file: &Path, stage: Option<&str>, context: &Context) -> Result<()> {
    let project = context.surrounded(|s| Project::open(file, s))?;
    let mut explained = explain(&project.dataset)?;
    if let Some(name) = stage {
        explained.retain(|e| e.stage == *name);
        if explained.is_empty() {
            return Err(no_key(&project.dataset.chains(), name));
        }
    }
    let documents: Vec<Value> = explained
        .iter()
        .map(|e| {
            let others: Vec<Value> = e
                .others
                .iter()
                .map(|(recipe, d)| {
                    json!({ "recipe": recipe, "term": d.term, "before": d.before.as_ref().map(|v| v.to_json()), "after": d.after.as_ref().map(|v| v.to_json()) })
                })
                .collect();
            json!({ "stage": e.stage, "split": e.split, "recipe": e.recipe, "document": e.document.to_json(), "stored": e.stored, "others": others })
        })
        .collect();
    context.out.result(Value::Array(documents), || {
        let mut text = String::new();
        for stage in &explained {
            let split = stage.split.as_deref().map_or(String::new(), |s| format!(" [{s}]"));
            let stored: Vec<String> = stage.stored.iter().map(|e| e.to_string()).collect();
            let stored =
                if stored.is_empty() { "not stored".to_owned() } else { format!("stored as {}", stored.join(", ")) };
            let _ = writeln!(text, "{}{split}  {}  {stored}", stage.stage, stage.recipe);
            for (recipe, difference) in &stage.others {
                let _ = writeln!(text, "  also stored as {}: {}", recipe.short(), sentence(difference));
            }
        }
        text
    })
}

/// Why a stage has no key: it can't be stored, or isn't there.
fn no_key(chains: &[Chain], name: &str) -> Error {
    for chain in chains {
        if let Some(reason) = chain.stage(name).ok().and_then(|index| cut::unstorable(chain, index)) {
            return Error::invalid(format!("stage {name} is never stored, so it has no key: it {reason}"));
        }
    }
    unknown(name, chains)
}

/// What two snapshots differ in.
fn snapshots(arguments: &Arguments, context: &Context) -> Result<()> {
    let (store, name) = arguments.place.open(context)?;
    let pipeline = catalog::pipeline(&store, name.as_deref())?;
    let (from, to) = (arguments.from.unwrap_or(Which::Previous), arguments.to.unwrap_or(Which::Current));
    let found = compare(&store, &pipeline, from, to)?;
    context.out.result(document(&found), || text(&found))
}

fn document(found: &Comparison) -> Value {
    let snapshot = |head: &SnapshotHead| {
        json!({
            "snapshot": head.snapshot, "entries": head.entries, "rows": head.rows, "bytes": head.bytes,
            "partitions": head.partitions,
        })
    };
    let changed = |c: &Changed| json!({ "entries": c.entries, "bytes": c.bytes, "keys": c.keys });
    let shards = |s: &Shards| json!({ "shards": s.shards, "stored": s.stored, "bytes": s.bytes });
    let stages: Vec<Value> = found
        .stages
        .iter()
        .map(|s| {
            json!({
                "stage": s.stage.name, "split": s.stage.split, "recipe": s.stage.recipe, "encoding": s.encoding,
                "stay": shards(&s.stay), "new": shards(&s.new), "gone": shards(&s.gone),
            })
        })
        .collect();
    let partitions = &found.partitions;
    json!({
        "pipeline": found.to.pipeline,
        "from": snapshot(&found.from),
        "to": snapshot(&found.to),
        "same": found.entries.same,
        "added": changed(&found.entries.added),
        "changed": changed(&found.entries.changed),
        "removed": changed(&found.entries.removed),
        "partitions": { "stay": partitions.stay(), "new": partitions.new_ones(), "gone": partitions.gone.len() },
        "stages": stages,
    })
}

fn text(found: &Comparison) -> String {
    let mut text = String::new();
    let Comparison { from, to, entries, partitions, .. } = found;
    for (what, head) in [("from", from), ("to  ", to)] {
        let (number, bytes) = (count(head.entries, "entry"), size::print(head.bytes));
        let _ = writeln!(text, "{what}  snapshot {}  {number}, {bytes}", head.snapshot);
    }
    for (what, changed) in [("added", &entries.added), ("changed", &entries.changed), ("removed", &entries.removed)] {
        show_keys(&mut text, what, changed);
    }
    let _ = writeln!(
        text,
        "{} the same; {} stay, {} new, {} gone",
        count(entries.same, "entry"),
        count(partitions.stay() as u64, "partition"),
        thousands(partitions.new_ones() as u64),
        thousands(partitions.gone.len() as u64),
    );
    for stage in &found.stages {
        let split = stage.stage.split.as_deref().map_or(String::new(), |split| format!(" [{split}]"));
        let kinds = [("stay", &stage.stay), ("new", &stage.new), ("gone", &stage.gone)];
        let kinds = kinds.map(|(what, shards)| format!("{} {what}{}", thousands(shards.shards), stored(shards)));
        let _ = writeln!(text, "{}{split} ({}): {}", stage.stage.name, stage.encoding, kinds.join(", "));
    }
    text
}

fn show_keys(text: &mut String, what: &str, changed: &Changed) {
    const SHOWN: usize = 5;
    if changed.entries == 0 {
        return;
    }
    let _ = writeln!(text, "{} {what}, {}", count(changed.entries, "entry"), size::print(changed.bytes));
    for key in changed.keys.iter().take(SHOWN) {
        let _ = writeln!(text, "  {}", shown(key));
    }
    if changed.entries > SHOWN as u64 {
        let _ = writeln!(text, "  … and {} more", thousands(changed.entries - SHOWN as u64));
    }
}

/// ` (1.2 mb)`, or of shards that aren't all there ` (2 of 3 stored, 1.2 mb)`.
fn stored(shards: &Shards) -> String {
    let bytes = size::print(shards.bytes);
    match shards.stored {
        _ if shards.shards == 0 => String::new(),
        stored if stored == shards.shards => format!(" ({bytes})"),
        stored => format!(" ({} of {} stored, {bytes})", thousands(stored), thousands(shards.shards)),
    }
}
