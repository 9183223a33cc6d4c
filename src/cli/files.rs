//! `forebay files`: the files of a stored stage, for other tools.

use crate::cli::Context;
use crate::cli::place::{Found, StoredStage};
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
    which: StoredStage,
    /// How to print them
    #[arg(long = "as", value_name = "FORM", default_value = "txt")]
    form: Form,
}

pub fn run(arguments: Arguments, context: &Context) -> Result<()> {
    let mut which = arguments.which;
    if arguments.form == Form::Duckdb {
        if which.format == Some(Container::Arrow) {
            return Err(Error::invalid(
                "DuckDB reads parquet only; run `forebay materialize` with --format parquet, or use --as polars",
            ));
        }
        which.format = Some(Container::Parquet);
    }
    let Found { store, stored, .. } = which.open(context)?;
    let paths: Vec<PathBuf> = stored.paths(&store)?.into_iter().map(|p| std::path::absolute(&p).unwrap_or(p)).collect();
    let texts: Vec<String> = paths.iter().map(|p| p.to_string_lossy().into_owned()).collect();
    if context.out.json || arguments.form == Form::Json {
        context.out.text(&serde_json::to_string_pretty(&json!(texts)).unwrap_or_default())?;
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
    })?;
    Ok(())
}
