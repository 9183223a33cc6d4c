//! `forebay files`: the files of a stored stage, for other tools.

use crate::app::catalog;
use crate::cli::Context;
use crate::cli::place::Place;
use crate::error::{Error, Result};
use crate::format::encoding::Container;
use clap::{Args, ValueEnum};
use serde_json::json;
use std::path::PathBuf;

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Form {
    /// A path a line
    Txt,
    /// A JSON list of paths
    Json,
    /// A DuckDB query over the files
    Duckdb,
    /// A Polars expression over the files
    Polars,
}

/// List the files of a stored stage, for other tools
#[derive(Args)]
#[command(after_help = "Examples:
  forebay files photos.yaml --stage resize
  duckdb -c \"$(forebay files photos.yaml --stage resize --as duckdb)\"")]
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
    /// How to print them
    #[arg(long = "as", value_name = "FORM", default_value = "txt")]
    form: Form,
}

pub fn run(arguments: Arguments, context: &Context) -> Result<()> {
    let (store, name) = arguments.place.open(context)?;
    let pipeline = catalog::pipeline(&store, name.as_deref())?;
    let (stage, split) = (arguments.stage.as_deref(), arguments.split.as_deref());
    let wanted = match (arguments.form, arguments.format) {
        (Form::Duckdb, Some(Container::Arrow)) => {
            return Err(Error::invalid(
                "DuckDB reads parquet only; materialize with --format parquet, or use --as polars",
            ));
        }
        (Form::Duckdb, None) => Some(Container::Parquet),
        (_, format) => format,
    };
    let stored = catalog::stored_stage(&store, &pipeline, stage, split, wanted)?;
    let paths: Vec<PathBuf> = stored.paths(&store)?.into_iter().map(|p| std::path::absolute(&p).unwrap_or(p)).collect();
    let texts: Vec<String> = paths.iter().map(|p| p.to_string_lossy().into_owned()).collect();
    if context.out.json || arguments.form == Form::Json {
        context.out.text(&serde_json::to_string_pretty(&json!(texts)).unwrap_or_default());
        return Ok(());
    }
    context.out.text(&match arguments.form {
        Form::Txt | Form::Json => texts.join("\n"),
        Form::Duckdb => {
            let list: Vec<String> = texts.iter().map(|t| format!("'{}'", t.replace('\'', "''"))).collect();
            format!("SELECT * FROM read_parquet([{}])", list.join(", "))
        }
        Form::Polars => {
            let scan = match stored.manifest.encoding.container {
                Container::Parquet => "scan_parquet",
                Container::Arrow => "scan_ipc",
            };
            format!("pl.{scan}({})", json!(texts))
        }
    });
    Ok(())
}
