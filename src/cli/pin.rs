//! `forebay pin` and `forebay unpin`: keep a snapshot, with what is stored of it, until it isn't needed any more.

use crate::app::pin::pin;
use crate::cli::Context;
use crate::cli::place::Place;
use crate::error::{Error, Result};
use crate::id::SnapshotId;
use clap::Args;
use serde_json::json;

/// Keep a snapshot and what is stored of it, under a name, whatever becomes current
#[derive(Args)]
#[command(after_help = "Examples:
  forebay pin paper-v1 photos.yaml            the current snapshot and its stored stages
  forebay pin paper-v1 --store s3://bucket/photos --pipeline photos")]
pub struct Arguments {
    /// What to call the pin
    #[arg(value_name = "NAME")]
    name: String,
    #[command(flatten)]
    place: Place,
    /// The snapshot [default: the current one]
    #[arg(long, value_name = "ID")]
    snapshot: Option<SnapshotId>,
}

/// Take a pin away; nothing is removed before the next `forebay gc`
#[derive(Args)]
#[command(after_help = "Examples:\n  forebay unpin paper-v1 photos.yaml")]
pub struct UnpinArguments {
    /// The pin's name
    #[arg(value_name = "NAME")]
    name: String,
    #[command(flatten)]
    place: Place,
}

pub fn run(arguments: Arguments, context: &Context) -> Result<()> {
    let (store, pipeline) = arguments.place.open(context)?;
    let pin = pin(&store, &arguments.name, pipeline.as_deref(), arguments.snapshot)?;
    let document = json!({ "pin": pin.name, "pipeline": pin.pipeline, "snapshot": pin.snapshot });
    context.out.result(document, || format!("pin {}: snapshot {} of {}", pin.name, pin.snapshot, pin.pipeline))
}

pub fn run_unpin(arguments: UnpinArguments, context: &Context) -> Result<()> {
    let (store, _) = arguments.place.open(context)?;
    let name = &arguments.name;
    if !store.unpin(name)? {
        let names: Vec<String> = store.pins()?.into_iter().map(|pin| pin.name).collect();
        let there = if names.is_empty() { "it has none".to_owned() } else { format!("it has: {}", names.join(", ")) };
        return Err(Error::not_found(format!("the store has no pin {name:?}; {there}")));
    }
    context.out.result(json!({ "unpinned": name }), || format!("{name} is no pin any more"))
}
