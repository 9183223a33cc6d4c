//! pyarrow, DuckDB and Polars read what `files` lists and what `export` writes, in every encoding, with the lines that `show`
//! prints: `tests/python/consumers.py` compares values, dtypes and shapes with what is computed from the source without
//! any store, and decoded pictures with Pillow's.

use crate::fixture::{Dataset, photos, succeed};
use arrow::array::AsArray;
use arrow::datatypes::Int64Type;
use forebay::app::open::Reading;
use forebay::engine::pool::Pool;
use forebay::format::encoding::Container;
use forebay::format::shard::tensor::View;
use forebay::plan::order::batch::{Batching, Tail};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Pictures of several sizes, of one size, and floats; a failed row; several partitions.
const PIPELINE: &str = r#"
name: mixed
source:
  files: ./photos/**/*.jpg
  fields: { label: "{parent}" }
steps:
  - image.decode
  - image.resize: { size: [24, 32] }
  - label.index: { column: label, classes: [cat, dog, owl] }
  - image.normalize: { mean: [0.5, 0.4, 0.3], std: [0.25, 0.25, 0.5], to: scaled }
partition: { entries: 8, bytes: 1gb }
on_error: keep
max_errors: 20%
"#;
const STAGES: [&str; 3] = ["decode", "index", "normalize"];
const ENCODINGS: [(&str, &str); 9] = [
    ("arrow", "none"),
    ("arrow", "lz4"),
    ("arrow", "zstd:3"),
    ("parquet", "none"),
    ("parquet", "lz4"),
    ("parquet", "zstd:1"),
    ("parquet", "zstd:9"),
    ("parquet", "snappy"),
    ("parquet", "gzip:6"),
];

/// The interpreter that `scripts/test` sets up.
pub fn python() -> PathBuf {
    let python = match std::env::var_os("FOREBAY_TEST_PYTHON") {
        Some(python) => PathBuf::from(python),
        None => Path::new(env!("CARGO_MANIFEST_DIR")).join(".venv/bin/python"),
    };
    assert!(
        python.exists(),
        "no Python at {}: run scripts/test, which makes .venv, or set FOREBAY_TEST_PYTHON",
        python.display()
    );
    python
}

fn dataset() -> Dataset {
    let dataset = Dataset::new(PIPELINE);
    photos(dataset.path(), 20);
    std::fs::write(dataset.path().join("photos/owl/bad.jpg"), b"no image").unwrap();
    dataset
}

/// A stage computed from the source, in order: by column, a value a row.
fn expected(dataset: &Dataset, stage: &str) -> Value {
    let batching = Batching::new(100, 0, 1, Tail::Short).unwrap();
    let reading = Reading { split: None, stage: Some(stage), batching, shuffle: Some(false), seed: 0, prefetch: 0 };
    let reader = dataset.open().reader(&reading, Pool::new(2).unwrap()).unwrap();
    let batches: Vec<_> = reader.epoch(0, 0).unwrap().map(|b| b.unwrap().rows).collect();
    let [batch] = batches.as_slice() else { panic!("{} batches", batches.len()) };
    let mut columns = serde_json::Map::new();
    for (field, array) in batch.schema().fields().iter().zip(batch.columns()) {
        let values = if let Ok(view) = View::new(field, array) {
            let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
            let row = |row| view.row(row).unwrap().map(|r| json!({ "shape": r.shape, "bytes": hex(r.bytes) }));
            let rows: Vec<Option<Value>> = (0..view.rows()).map(row).collect();
            json!({ "dtype": view.dtype().name(), "rows": rows })
        } else if let Some(numbers) = array.as_primitive_opt::<Int64Type>() {
            json!(numbers.iter().collect::<Vec<_>>())
        } else {
            json!(array.as_string::<i64>().iter().collect::<Vec<_>>())
        };
        columns.insert(field.name().clone(), values);
    }
    columns.into()
}

#[test]
fn other_tools_read_what_files_lists_and_export_writes() {
    let dataset = dataset();
    let at = dataset.path();
    let expected: serde_json::Map<String, Value> =
        STAGES.iter().map(|s| ((*s).to_owned(), expected(&dataset, s))).collect();
    let mut cases = Vec::new();
    for (number, (container, codec)) in ENCODINGS.into_iter().enumerate() {
        let store = format!("store-{number}");
        let stages: Vec<&str> = STAGES.iter().flat_map(|s| ["--stage", s]).collect();
        let encoding = ["pipeline.yaml", "--store", &store, "--format", container, "--compression", codec];
        succeed(at, &[&["materialize"], &encoding[..], &stages].concat());
        for stage in STAGES {
            let of = |command: &str, more: &[&str]| {
                succeed(at, &[&[command, "pipeline.yaml", "--store", &store, "--stage", stage], more].concat())
            };
            let parse = |text: String| serde_json::from_str::<Value>(&text).unwrap();
            let shown = parse(of("show", &["--json"]));
            assert_eq!(shown["encoding"], encoding_name(container, codec));
            let directory = format!("out/{store}-{stage}");
            of("export", &["--to", &directory]);
            let duckdb = (container == "parquet").then(|| of("files", &["--as", "duckdb"]));
            cases.push(json!({
                "stage": stage,
                "container": container,
                "columns": shown["columns"],
                "imports": shown["imports"],
                "files": parse(of("files", &["--json"])),
                "directory": at.join(directory),
                "duckdb": duckdb,
                "polars": of("files", &["--as", "polars"]),
            }));
        }
    }
    let input = at.join("cases.json");
    let photos = at.join("photos");
    std::fs::write(&input, json!({ "expected": expected, "cases": cases, "photos": photos }).to_string()).unwrap();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/python/consumers.py");
    let output = Command::new(python()).arg(script).arg(&input).output().unwrap();
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{out}\n{err}");
    assert!(out.starts_with("ok: "), "{out}");
}

fn encoding_name(container: &str, codec: &str) -> String {
    format!("{container}-{}", codec.replace(':', "-"))
}

/// Both containers side by side: each tool gets the files that it can read, and asking for what isn't there says so.
#[test]
fn tools_get_files_that_they_can_read() {
    let dataset = dataset();
    let at = dataset.path();
    let materialize =
        |format: &str| succeed(at, &["materialize", "pipeline.yaml", "--stage", "index", "--format", format]);
    materialize("arrow");
    let refused = |arguments: &[&str]| {
        let output = crate::fixture::forebay(at, arguments);
        assert_eq!(output.status.code(), Some(1));
        String::from_utf8(output.stderr).unwrap()
    };
    let files = ["files", "pipeline.yaml", "--stage", "index"];
    let missing = refused(&[&files[..], &["--as", "duckdb"]].concat());
    assert!(missing.contains("stage \"index\" is not stored whole as parquet"), "{missing}");
    assert!(missing.contains("run `forebay materialize` with --stage index --format parquet"), "{missing}");
    let never = refused(&[&files[..], &["--as", "duckdb", "--format", "arrow"]].concat());
    assert!(never.contains("DuckDB reads parquet only"), "{never}");
    materialize("parquet");
    let list = |more: &[&str]| succeed(at, &[&files[..], more].concat());
    let all = |text: &str, container: Container| {
        let extension = format!(".{container}");
        text.lines().all(|l| l.ends_with(&extension) && Path::new(l).is_absolute() && Path::new(l).is_file())
    };
    assert!(all(&list(&[]), Container::Arrow) && list(&[]).lines().count() >= 3);
    assert!(all(&list(&["--format", "parquet"]), Container::Parquet));
    assert!(list(&["--as", "duckdb"]).starts_with("SELECT * FROM read_parquet(['/"));
    assert!(list(&["--as", "polars"]).starts_with("pl.scan_ipc([\"/"));

    // An export is whole or not there, and never mixed into what is.
    succeed(at, &["export", "pipeline.yaml", "--stage", "index", "--to", "out"]);
    let again = refused(&["export", "pipeline.yaml", "--stage", "index", "--to", "out"]);
    assert!(again.contains("is there and not empty; export into a new directory"), "{again}");
}
