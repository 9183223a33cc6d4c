//! `forebay steps`: the steps that pipelines can name, and their parameters.

use crate::app::steps::{document, named, section};
use crate::cli::Context;
use crate::error::Result;
use clap::Args;
use serde_json::Value;

/// List the steps, or show one: parameters, what it reads and writes, when a row fails
#[derive(Args)]
#[command(after_help = "Examples:\n  forebay steps\n  forebay steps image.resize")]
pub struct Arguments {
    /// A step's name [default: list all]
    name: Option<String>,
}

pub fn run(arguments: Arguments, context: &Context) -> Result<()> {
    let steps = named(arguments.name.as_deref())?;
    let documents = Value::Array(steps.iter().map(|step| document(step)).collect());
    context.out.result(documents, || match arguments.name {
        Some(_) => steps.iter().map(|step| section(step)).collect(),
        None => steps.iter().map(|step| format!("{:<28}{}\n", step.name, step.summary)).collect(),
    })
}
