//! `forebay explain`: what each stage's key is made of, and why stored shards do or don't match.

use crate::app::explain::{explain, sentence};
use crate::app::project::Project;
use crate::app::targets::unknown;
use crate::cli::Context;
use crate::error::{Error, Result};
use crate::plan::chain::Chain;
use crate::plan::cut;
use clap::Args;
use serde_json::{Value, json};
use std::fmt::Write;
use std::path::PathBuf;

/// Say what each stage's key is made of, and why stored shards match or don't
#[derive(Args)]
#[command(
    after_help = "Examples:\n  forebay explain photos.yaml\n  forebay explain photos.yaml --stage resize --json    the whole recipe"
)]
pub struct Arguments {
    /// The pipeline file
    pipeline: PathBuf,
    /// Only this stage
    #[arg(long)]
    stage: Option<String>,
}

pub fn run(arguments: Arguments, context: &Context) -> Result<()> {
    let project = context.surrounded(|s| Project::open(&arguments.pipeline, s))?;
    let mut explained = explain(&project.dataset)?;
    if let Some(name) = &arguments.stage {
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
    })?;
    Ok(())
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
