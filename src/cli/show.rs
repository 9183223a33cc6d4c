//! `forebay show`: a stored stage: its columns, sizes, and how other tools read it.

use crate::app::values;
use crate::cli::Context;
use crate::cli::output::count;
use crate::cli::place::{Found, StoredStage};
use crate::error::Result;
use crate::format::schema;
use crate::format::shard::tensor::{Consumer, decode_hint, imports};
use crate::spec::size;
use arrow::datatypes::DataType;
use clap::Args;
use serde_json::{Value, json};
use std::fmt::Write;

/// Show a stored stage: columns, sizes, classes, and the one line in which other tools read each column
#[derive(Args)]
#[command(after_help = "Examples:\n  forebay show photos.yaml\n  forebay show photos.yaml --stage resize --json")]
pub struct Arguments {
    #[command(flatten)]
    which: StoredStage,
}

const CONSUMERS: [(Consumer, &str); 3] =
    [(Consumer::PyArrow, "pyarrow"), (Consumer::Polars, "polars"), (Consumer::DuckDb, "duckdb")];

pub fn run(arguments: Arguments, context: &Context) -> Result<()> {
    let Found { pipeline, stored, .. } = arguments.which.open(context)?;
    let (manifest, fields) = (&stored.manifest, schema::decode(&stored.stage.schema)?);
    // Polars refuses a whole file for one column of these.
    let wide = fields.flattened_fields().iter().any(|field| matches!(field.data_type(), DataType::Decimal256(..)));
    let consumers = CONSUMERS.iter().filter(|(consumer, _)| !wide || *consumer != Consumer::Polars);
    let mut columns = Vec::new();
    for field in fields.fields() {
        let mut hints = serde_json::Map::new();
        for (consumer, name) in consumers.clone() {
            if let Some(hint) = decode_hint(field, manifest.encoding.container, *consumer)? {
                hints.insert((*name).to_owned(), hint.into());
            }
        }
        columns.push(json!({ "name": field.name(), "type": values::type_name(field), "decode": hints }));
    }
    let imported: serde_json::Map<String, Value> = consumers
        .filter_map(|(consumer, tool)| {
            Some(((*tool).to_owned(), imports(manifest.encoding.container, *consumer)?.into()))
        })
        .collect();
    let document = json!({
        "pipeline": pipeline.name, "stage": stored.stage.name, "split": stored.stage.split, "recipe": stored.stage.recipe,
        "encoding": manifest.encoding, "snapshot": manifest.snapshot, "shards": stored.shards.len(), "rows": manifest.rows,
        "bytes": manifest.bytes, "failed_rows": manifest.failed_rows, "columns": columns, "imports": imported, "classes": pipeline.classes,
    });
    context.out.result(document, || {
        let mut text = String::new();
        let _ = writeln!(
            text,
            "{} / {} ({}): {}, {}, {}",
            pipeline.name,
            stored.stage.name,
            manifest.encoding,
            count(stored.shards.len() as u64, "shard"),
            count(manifest.rows, "row"),
            size::print(manifest.bytes),
        );
        let _ = writeln!(text, "recipe   {}\nsnapshot {}", stored.stage.recipe, manifest.snapshot);
        for column in &columns {
            let _ = writeln!(text, "  {:<20} {}", text_of(&column["name"]), text_of(&column["type"]));
        }
        for (name, classes) in &pipeline.classes {
            let _ = writeln!(text, "{} of {name}: {}", count(classes.len() as u64, "class"), classes.join(", "));
        }
        let _ = writeln!(text, "in Python, with `path` a file of `forebay files`:");
        for (tool, line) in &imported {
            let _ = writeln!(text, "  {}", text_of(line));
            for column in columns.iter().filter(|c| !text_of(&c["name"]).starts_with('_')) {
                let _ = writeln!(text, "    {}", text_of(&column["decode"][tool]));
            }
        }
        text
    })?;
    Ok(())
}

fn text_of(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}
