//! pyarrow, Polars and DuckDB read the shards, with the one-line decodes that Forebay prints: `tests/python/shards.py`
//! compares values, dtypes and shapes.

use super::*;
use forebay::format::encoding::Container;
use forebay::format::shard::tensor::{Consumer, View, decode_hint};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::Command;

/// The interpreter that `scripts/test` sets up.
fn python() -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let python = std::env::var_os("FOREBAY_TEST_PYTHON").map(PathBuf::from);
    let python = python.unwrap_or_else(|| root.join(".venv/bin/python"));
    assert!(
        python.exists(),
        "no Python at {}: run scripts/test, which makes .venv, or set FOREBAY_TEST_PYTHON",
        python.display()
    );
    python
}

/// Rows that every tool has a type for: keys, tensors, labels, text, lists.
fn common() -> RecordBatch {
    let kinds = kinds();
    let named =
        ["_key", "_error", "image", "feature", "narrow", "ragged", "count", "small", "title", "label", "blob", "pairs"];
    let schema = kinds.schema();
    let named: Vec<usize> = named.iter().map(|name| schema.index_of(name).unwrap()).collect();
    kinds.project(&named).unwrap()
}

fn expected(batch: &RecordBatch) -> Value {
    let mut columns = serde_json::Map::new();
    for (field, array) in batch.schema().fields().iter().zip(batch.columns()) {
        let Ok(view) = View::new(field, array) else { continue };
        let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        let rows = (0..view.rows())
            .map(|row| view.row(row).unwrap().map(|row| json!({ "shape": row.shape, "bytes": hex(row.bytes) })));
        let rows: Vec<_> = rows.collect();
        columns.insert(field.name().clone(), json!({ "dtype": view.dtype().name(), "rows": rows }));
    }
    columns.into()
}

#[test]
fn peers_read_every_encoding() {
    let python = python();
    let dir = tempfile::tempdir().unwrap();
    let (common, kinds) = (common(), kinds());
    let mut files = Vec::new();
    for text in ENCODINGS {
        let encoding = encoding(text);
        let write = |name: &str, batch: &RecordBatch| {
            // Two chunks and an empty one, as one table.
            let chunks = [batch.slice(0, 3), batch.slice(0, 0), batch.slice(3, 4)];
            let path = dir.path().join(format!("{name}-{text}.{}", encoding.extension()));
            std::fs::write(&path, write(&batch.schema(), &chunks, encoding).0).unwrap();
            path
        };
        let consumers: &[Consumer] = match encoding.container {
            Container::Arrow => &[Consumer::PyArrow, Consumer::Polars],
            Container::Parquet => &[Consumer::PyArrow, Consumer::Polars, Consumer::DuckDb],
        };
        let mut hints = Vec::new();
        for consumer in consumers {
            for field in common.schema().fields() {
                let hint = decode_hint(field, encoding.container, *consumer).unwrap().unwrap();
                hints.push(json!({ "consumer": format!("{consumer:?}"), "column": field.name(), "hint": hint }));
            }
        }
        files.push(json!({
            "encoding": text,
            "container": encoding.container.to_string(),
            "common": write("common", &common),
            "kinds": write("kinds", &kinds),
            "hints": hints,
        }));
    }
    let cases = json!({ "files": files, "tensors": expected(&common) });
    let cases_path = dir.path().join("cases.json");
    std::fs::write(&cases_path, cases.to_string()).unwrap();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/python/shards.py");
    let output = Command::new(&python).arg(script).arg(&cases_path).output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(output.status.success(), "{}\n{}", text(&output.stdout), text(&output.stderr));
    assert!(text(&output.stdout).contains("ok: "), "{}", text(&output.stdout));
}

#[test]
fn the_specification_has_the_lines_that_are_printed() {
    let specification = include_str!("../../../formats/shard.md");
    let image = tensor::fixed_field("image", DType::U8, &[256, 256, 3]).unwrap();
    let crop = tensor::variable_field("crop", DType::U8, &[None, None, Some(3)]).unwrap();
    for container in [Container::Arrow, Container::Parquet] {
        for consumer in [Consumer::PyArrow, Consumer::Polars, Consumer::DuckDb] {
            for field in [&image, &crop] {
                if let Some(hint) = decode_hint(field, container, consumer).unwrap() {
                    assert!(specification.contains(&format!("`{hint}`")), "formats/shard.md lacks {hint}");
                }
            }
        }
    }
}

#[test]
fn duckdb_reads_no_arrow_files() {
    let field = tensor::fixed_field("x", DType::U8, &[2]).unwrap();
    assert_eq!(decode_hint(&field, Container::Arrow, Consumer::DuckDb).unwrap(), None);
}

#[test]
fn names_are_quoted() {
    let field = tensor::variable_field("a \"b\" 'c'", DType::U8, &[None]).unwrap();
    let hint = decode_hint(&field, Container::Parquet, Consumer::DuckDb).unwrap().unwrap();
    assert!(hint.contains(r#"SELECT \"a \"\"b\"\" 'c'\", \"a \"\"b\"\" 'c'_shape\" FROM"#), "{hint}");
}
