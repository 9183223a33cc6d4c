//! What people write, and names: object names, sizes, encodings, templates, class lists, pipeline files, expressions.

use super::{CONTEXT, Run, Target, step};
use arrow::array::{ArrayRef, BooleanArray, Float64Array, Int64Array, LargeStringArray, RecordBatch};
use forebay::format::encoding::Encoding;
use forebay::format::entry::Identity;
use forebay::format::name::Name;
use forebay::spec::pipeline::Pipeline;
use forebay::spec::size;
use forebay::spec::template::Template;
use forebay::step::registry;
use forebay::step::table::parse_classes;
use std::fmt::{Debug, Display};
use std::path::Path;
use std::str::FromStr;
use std::sync::Arc;

pub const TARGETS: &[Target] = &[
    Target {
        name: "names",
        corpus: names_corpus,
        tokens: &["/", "-", ".", ":", "v1", "0", "+1", "..", "parquet-zstd-", "gzip-9", "{", "}", "[0]", "kb", "1e3"],
        open: || Box::new(names),
    },
    Target {
        name: "pipelines",
        corpus: || PIPELINES.iter().map(|text| text.as_bytes().to_vec()).collect(),
        tokens: &[
            "source:",
            "steps:",
            "splits:",
            "where:",
            "as:",
            "classes:",
            "auto",
            "label.index:",
            "image.",
            "table.cast:",
            "columns:",
            "[",
            "]",
            "{",
            "}",
            "&a ",
            "*a",
            "!!str ",
            "|\n  ",
            "- ",
            ": ",
            "\n",
            "\"",
            "'",
            "#",
            "${",
            "}",
            ".nan",
            ".inf",
            "-1",
            "0x7f",
            "1e400",
            "null",
            "~",
            "<<:",
            "\t",
            "\u{85}",
            "\u{feff}",
            "---\n",
            "...\n",
            "? ",
            "{parent[9]}",
        ],
        open: || Box::new(pipelines),
    },
    Target {
        name: "expressions",
        corpus: || EXPRESSIONS.iter().map(|text| text.as_bytes().to_vec()).collect(),
        tokens: &[
            "(",
            ")",
            " and ",
            " or ",
            "not ",
            " is null",
            " in (",
            "hash(",
            "key",
            "text",
            "number",
            "ratio",
            "flag",
            "-",
            "%",
            "/",
            "*",
            "+",
            "<",
            ">=",
            "=",
            "!=",
            "'",
            "''",
            "9223372036854775807",
            "-9223372036854775808",
            "1e308",
            "0",
            "true",
            "null",
            ",",
            " like ",
            "len(",
            "\u{00e9}",
        ],
        open: expressions,
    },
];

fn names_corpus() -> Vec<Vec<u8>> {
    let id = "0123456789abcdef".repeat(4);
    [
        format!("v1/blobs/01/{id}.parquet"),
        format!("v1/pipelines/photos/0000000001-{id}.json"),
        format!("v1/pipelines/photos/snapshots/4294967295-{id}.json"),
        format!("v1/stages/{id}/recipe.json"),
        format!("v1/stages/{id}/orders/{id}.json"),
        format!("v1/stages/{id}/parquet-zstd-3/shards/01/{id}.json"),
        format!("v1/stages/{id}/arrow-none/manifests/{id}.json"),
        format!("v1/reports/{id}.json"),
        format!("content:{id}"),
        format!("etag:7:\"{id}\""),
        "stat:7:-3:file:///a:b".into(),
        "absent".into(),
        "parquet-gzip-9".into(),
        "1.5 gb".into(),
        "{parent[2]}/{stem}.{ext}".into(),
        "cat\ndog\nowl\n".into(),
    ]
    .map(String::into_bytes)
    .to_vec()
}

fn names(bytes: &[u8]) {
    fn one<T: FromStr + Display + PartialEq + Debug>(text: &str)
    where
        T::Err: Debug,
    {
        if let Ok(value) = text.parse::<T>() {
            assert_eq!(value.to_string().parse::<T>().unwrap(), value);
        }
    }
    let _ = parse_classes(bytes);
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    if let Ok(name) = text.parse::<Name>() {
        assert_eq!(name.to_string(), text, "one spelling");
    }
    one::<Encoding>(text);
    one::<Identity>(text);
    if let Ok(bytes) = size::parse(text) {
        let _ = size::print(bytes);
    }
    let _ = Template::of_key(text).map(|template| template.places().count());
}

const PIPELINES: &[&str] = &[
    r#"
name: photos
source:
  files: ./photos/**/*.{jpg,png}
  fields: { label: "{parent}", id: { regex: "(\\d+)" } }
  missing: skip
steps:
  - image.decode: { mode: rgb, max_pixels: 1000000 }
  - image.resize: { shorter_side: 256 }
  - label.index: { column: label, classes: [cat, dog, owl] }
splits:
  train: { where: "hash(key) % 20 != 0", steps: [ image.random_crop: { size: [224, 224] } ], shuffle: true }
  val: { where: "hash(key) % 20 == 0", steps: [ image.center_crop: { size: [224, 224] } ], shuffle: false }
order: { lanes: 16, block: 64 }
partition: { entries: 100, bytes: 1gb }
materialize: { stages: [resize], format: parquet, compression: "zstd:3" }
on_error: keep
max_errors: 0.1%
store: ${HOME}/.forebay
"#,
    r#"
source:
  table: labels.csv
  load: { image: "imgs/{file}" }
  key: id
  columns: [id, label]
  where: label is not null
steps:
  - image.decode
  - image.normalize: { mean: [0.485, 0.456, 0.406], std: [0.229, 0.224, 0.225], layout: chw, as: normal }
  - image.pad: { size: 300, value: 0.5 }
  - table.cast: { columns: { label: int32 } }
  - table.rename: { columns: { a: b } }
  - table.select: { columns: [image, label] }
"#,
    "source: {jsonl: [a.jsonl, 'b*.jsonl'], columns: [text]}\nsteps: [table.filter: {where: \"text != ''\"}]\n",
    "source:\n  tar: ./{000..019}.tar\n  columns: [\"jpg;jpeg;png\", json.label, cls]\n  identity: stat\nsteps:\n- image.decode: &x {column: jpg}\n- image.resize: {size: 3}\n",
];

/// Read, then each step built on the columns that a source of photographs would give.
fn pipelines(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let variables = |name: &str| (name == "HOME").then(|| "/home/me".to_owned());
    let Ok(pipeline) = Pipeline::read(text, Path::new("fuzz.yaml"), &variables) else { return };
    let input = photos();
    let own = pipeline.splits.iter().flat_map(|split| &split.steps);
    for one in pipeline.steps.iter().chain(own) {
        let build =
            registry::Build { params: &one.params, span: &one.span, input: &input, base: Path::new("/nonexistent") };
        let _ = registry::build(&one.name, &build);
    }
}

fn photos() -> arrow::datatypes::SchemaRef {
    use arrow::datatypes::{DataType, Field, Schema};
    use forebay::format::shard::tensor::{DType, variable_field};
    Arc::new(Schema::new(vec![
        Field::new("_key", DataType::LargeUtf8, false),
        Field::new("_error", DataType::LargeUtf8, true),
        variable_field("image", DType::U8, &[None, None, Some(3)]).unwrap(),
        Field::new("label", DataType::LargeUtf8, true),
    ]))
}

const EXPRESSIONS: &[&str] = &[
    "hash(key) % 20 != 0 and number is not null",
    "not (text = 'it''s' or text in ('a', 'b', \"c\")) and flag",
    "number * -2 + 3 <= 7 / (ratio - 1.5e3) or text < 'm'",
    "number in (1, 2, 3) and key != '' and ratio >= .5",
];

fn expressions() -> Run {
    let columns: [(&str, ArrayRef, bool); 6] = [
        ("_key", Arc::new(LargeStringArray::from(vec!["a/1.jpg", "b/2.jpg", ""])), false),
        ("_error", Arc::new(LargeStringArray::from(vec![None, Some("bad"), None])), true),
        ("text", Arc::new(LargeStringArray::from(vec![Some("é"), None, Some("")])), true),
        ("number", Arc::new(Int64Array::from(vec![Some(i64::MIN), None, Some(i64::MAX)])), true),
        ("ratio", Arc::new(Float64Array::from(vec![Some(f64::NAN), None, Some(-0.0)])), true),
        ("flag", Arc::new(BooleanArray::from(vec![Some(true), None, Some(false)])), true),
    ];
    let batch = RecordBatch::try_from_iter_with_nullable(columns).unwrap();
    let schema = batch.schema();
    Box::new(move |bytes| {
        let Ok(text) = std::str::from_utf8(bytes) else { return };
        let params = serde_json::json!({ "where": text }).to_string();
        if let Some(filter) = step("table.filter", &params, &schema) {
            filter.apply(&batch, CONTEXT).unwrap();
        }
    })
}
