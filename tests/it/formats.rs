//! What `formats/` says is what the code does: vectors and examples are compared byte for byte with what the code
//! computes, an independent script recomputes them, and numbers in the text are those of the code.

use arrow::datatypes::{DataType, Field, Schema, TimeUnit};
use forebay::format::canonical::{self, Domain, Value};
use forebay::format::document::Document;
use forebay::format::entry::{Entry, Identity, Range};
use forebay::format::head::{
    ManifestHead, OrderHead, PipelineHead, RecipeHead, Report, SnapshotHead, StageHead, TableRef,
};
use forebay::format::name::Name;
use forebay::format::record::{Chunk, Part, Record, Span};
use forebay::format::root::{Candidates, Intent, Pin};
use forebay::format::table::{Entries, OrderRow};
use forebay::format::{VERSION, schema};
use forebay::id::{Digest, OrderId, RecipeKey, ShardKey};
use forebay::plan::key;
use forebay::step::{Cardinality, Info, Purity};
use serde_json::json;
use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::sync::Arc;

fn formats() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("formats")
}

/// The file in `formats/` is the truth. Where the code disagrees, what it computed is left beside the build.
fn pinned(file: &str, computed: &[u8]) {
    let path = formats().join(file);
    if std::fs::read(&path).unwrap_or_default() == computed {
        return;
    }
    let other = Path::new(env!("CARGO_TARGET_TMPDIR")).join(file.replace('/', "-"));
    std::fs::write(&other, computed).unwrap();
    panic!(
        "{} isn't what the code computes, which is in {}: keys and formats must not change",
        path.display(),
        other.display()
    );
}

fn lines(cases: Vec<serde_json::Value>) -> Vec<u8> {
    let cases: Vec<String> = cases.iter().map(|case| case.to_string()).collect();
    format!("[\n{}\n]\n", cases.join(",\n")).into_bytes()
}

#[test]
fn canonical_vectors() {
    let map = json!({"b": [1, "two", null], "a": {"é": true, "z": false}, "": -1, "ab": 0.5});
    let values = [
        json!(null),
        json!(false),
        json!(true),
        json!(0),
        json!(-1),
        json!(256),
        json!(256.0),
        json!(-0.0),
        json!(0.1),
        json!(-1.5e300),
        json!(5e-324),
        json!(9007199254740992.0),
        json!(9007199254740994.0),
        json!(1e20),
        json!(i64::MIN),
        json!(i64::MAX),
        json!(i64::MAX as u64 + 1),
        json!(u64::MAX),
        json!(""),
        json!("a"),
        json!("ä\u{0}\u{10ffff}"),
        json!([]),
        json!([[], [null]]),
        json!([["ab"], ["c"]]),
        json!([["a"], ["bc"]]),
        json!({}),
        map.clone(),
        json!("x".repeat(1025)),
        json!((0..2000).collect::<Vec<u32>>()),
    ];
    let case = |domain: Domain, value: &serde_json::Value| {
        let digest = canonical::hash(domain, &Value::try_from(value).unwrap()).unwrap();
        json!({"domain": domain.name(), "value": value, "digest": Digest::from_bytes(digest)})
    };
    let mut cases: Vec<_> = values.iter().map(|value| case(Domain::Recipe, value)).collect();
    cases.extend(Domain::ALL.iter().map(|domain| case(*domain, &map)));
    pinned("vectors/canonical.json", &lines(cases));
}

fn entry(key: &str, identity: Identity, range: Option<Range>, partition: u32) -> Entry {
    Entry { key: key.into(), file: range.map(|_| "data/part 1".into()), identity, range, bytes: 9, rows: 1, partition }
}

/// Every mode of identity and every kind of range.
fn entries() -> Vec<Entry> {
    let digest = |text: &str| Digest::of(text.as_bytes());
    let stat = Identity::Stat { root: "file:///data:x".into(), bytes: 7, modified_ns: -1 };
    vec![
        entry("a.jpg", Identity::Content(digest("a")), None, 0),
        entry("ä b/c.jpg", Identity::Content(digest("b")), Some(Range::Bytes { start: 5, end: 9 }), 0),
        entry("g", Identity::Content(digest("c")), Some(Range::Group(3)), 0),
        entry(
            "e",
            Identity::Etag { etag: "\"x:y\"".into(), bytes: u64::MAX },
            Some(Range::Bytes { start: 0, end: u64::MAX }),
            1,
        ),
        entry("s", stat, Some(Range::Rows { start: 10, end: 20 }), 1),
        entry("r", Identity::Row(digest("d")), None, 2),
        entry("", Identity::Absent, None, 2),
    ]
}

fn range(range: Option<Range>) -> serde_json::Value {
    match range {
        None => json!(null),
        Some(Range::Bytes { start, end }) => json!(["bytes", start, end]),
        Some(Range::Group(number)) => json!(["group", number]),
        Some(Range::Rows { start, end }) => json!(["rows", start, end]),
    }
}

fn recipe() -> Value {
    let extension = HashMap::from([
        ("ARROW:extension:name".to_owned(), "arrow.fixed_shape_tensor".to_owned()),
        ("ARROW:extension:metadata".to_owned(), r#"{"shape":[2,3]}"#.to_owned()),
        ("note".to_owned(), "not in the key".to_owned()),
    ]);
    let item = Arc::new(Field::new("item", DataType::UInt8, false));
    let input = Schema::new(vec![
        Field::new("_key", DataType::LargeUtf8, false),
        Field::new("_error", DataType::LargeUtf8, true),
        Field::new("image", DataType::LargeBinary, true),
        Field::new("taken", DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into())), true),
        Field::new("box", DataType::FixedSizeList(item, 6), true).with_metadata(extension),
    ]);
    let source =
        Value::try_from(&json!({"reader": "files", "version": 1, "columns": null, "fields": {"label": "{parent}"}}));
    let step = |name: &'static str, version: u32, params: serde_json::Value| Info {
        name,
        version,
        purity: Purity::Deterministic,
        cardinality: Cardinality::OneToOne,
        reads: vec!["image".into()],
        writes: vec!["image".into()],
        params: Value::try_from(&params).unwrap(),
    };
    let steps = [
        step("image.decode", 1, json!({"column": "image", "mode": "rgb"})),
        step("image.resize", 2, json!({"column": "image", "shorter_side": 256, "scale": [0.08, 1.0]})),
    ];
    key::recipe_document(&source.unwrap(), &input, &steps.iter().collect::<Vec<_>>())
}

#[test]
fn key_vectors() {
    let entries = entries();
    let document = recipe();
    let recipe = key::recipe_key(&document).unwrap();
    let rows = |rows: &[Entry]| -> Vec<_> {
        let row = |e: &Entry| json!({"key": e.key, "file": e.file, "identity": e.identity.to_string(), "range": range(e.range), "partition": e.partition});
        rows.iter().map(row).collect()
    };
    let shards = [&entries[..3], &entries[3..5], &entries[5..], &[]];
    let shards = shards.map(|e| json!({"recipe": recipe, "entries": rows(e), "key": key::shard_key(recipe, e)}));
    let snapshots = [&entries[..], &entries[..1], &[]].map(|e| {
        let id = key::snapshot_id(&Entries { entries: e.to_vec(), carried: None });
        json!({"entries": rows(e), "id": id})
    });
    let order = |entries: &[Entry], counts: &[(u64, Option<Vec<u32>>)]| {
        let counts: Vec<OrderRow> = (0..)
            .zip(counts)
            .map(|(partition, (rows, row_map))| OrderRow { partition, rows: *rows, row_map: row_map.clone() })
            .collect();
        let id = key::order_id(entries, &counts);
        let counts: Vec<_> =
            counts.iter().map(|c| json!({"partition": c.partition, "rows": c.rows, "row_map": c.row_map})).collect();
        json!({"entries": rows(entries), "rows": counts, "id": id})
    };
    let orders = [
        order(&entries, &[(3, None), (2, None), (2, None)]),
        order(&entries, &[(4, Some(vec![0, 0, 1, 2])), (0, Some(vec![])), (1, Some(vec![1]))]),
        order(&[], &[]),
    ];
    let vectors = json!({
        "recipes": [{"document": document.to_json(), "key": recipe}],
        "shards": shards,
        "snapshots": snapshots,
        "orders": orders,
    });
    pinned("vectors/keys.json", format!("{vectors:#}\n").as_bytes());
}

/// Writes what a store would hold; the schemas in `formats/schemas/` are checked against these files.
fn example<T: Document + PartialEq + std::fmt::Debug>(file: &str, document: &T) {
    let bytes = document.to_json();
    assert_eq!(&T::from_json(&bytes).unwrap(), document);
    pinned(&format!("examples/{file}.json"), &bytes);
}

#[test]
fn examples_are_what_the_code_writes() {
    let document = recipe();
    let recipe = key::recipe_key(&document).unwrap();
    let snapshot = key::snapshot_id(&Entries { entries: entries(), carried: None });
    let digest = |text: &str| Digest::of(text.as_bytes());
    let table = |name: &str, rows| TableRef { blob: digest(name), bytes: 4096, rows };
    let key = schema::encode(&Schema::new(vec![Field::new("_key", DataType::LargeUtf8, false)]));
    let stage = |name: &str, split: Option<&str>, recipe| StageHead {
        name: name.into(),
        split: split.map(Into::into),
        recipe,
        schema: key.clone(),
    };
    example(
        "pipeline",
        &PipelineHead {
            version: VERSION,
            name: "photos".into(),
            text: "name: photos\nsource:\n  files: ./photos/**/*.jpg\n".into(),
            stages: vec![
                stage("resize", None, recipe),
                stage("random_crop", Some("train"), RecipeKey::from_bytes([9; 32])),
            ],
            classes: BTreeMap::from([("label".into(), vec!["cat".into(), "dog".into()])]),
        },
    );
    example(
        "snapshot",
        &SnapshotHead {
            version: VERSION,
            pipeline: "photos".into(),
            snapshot,
            listed_ms: 1_780_000_000_000,
            table: table("entries", 7),
            entries: 7,
            partitions: 3,
            rows: 7,
            bytes: 63,
            identity: "content".into(),
            reader: json!({"reader": "files", "version": 1}),
            input_schema: key.clone(),
        },
    );
    example("recipe", &RecipeHead { version: VERSION, recipe, stage: "resize".into(), document: document.to_json() });
    let order = OrderId::from_bytes([4; 32]);
    example("order", &OrderHead { version: VERSION, recipe, snapshot, order, table: table("order", 3), rows: 7 });
    let encoding = "parquet-zstd-3".parse().unwrap();
    let manifest = ManifestHead {
        version: VERSION,
        recipe,
        encoding,
        snapshot,
        table: table("shards", 3),
        rows: 7,
        bytes: 1 << 20,
        failed_rows: 1,
    };
    example("manifest", &manifest);
    let shard = ShardKey::from_bytes([5; 32]);
    let span = |offset, bytes| Span { offset, bytes, digest: digest(&format!("{offset}")) };
    let record = |encoding: &str, head| {
        let chunk = Chunk { rows: 3, head, columns: vec![span(200, 100), span(300, 50)] };
        let part = Part { blob: digest(encoding), bytes: 400, rows: 3, chunks: vec![chunk], footer: span(350, 50) };
        let encoding = encoding.parse().unwrap();
        Record {
            version: VERSION,
            shard,
            recipe,
            encoding,
            rows: 3,
            bytes: 400,
            failed_rows: 0,
            parts: vec![part],
            seconds: 0.25,
        }
    };
    example("record-arrow", &record("arrow-none", Some(span(104, 96))));
    example("record-parquet", &record("parquet-zstd-3", None));
    let record = Name::Shard { recipe, encoding, shard }.to_string();
    let found = "column 1 of chunk 0: expected another digest".to_owned();
    example("report", &Report { version: VERSION, blob: digest("parquet-zstd-3"), record, found });
    let (name, pipeline, recipes) = ("paper-v1".to_owned(), "photos".to_owned(), vec![recipe]);
    example("pin", &Pin { version: VERSION, name, pipeline: pipeline.clone(), snapshot, recipes: recipes.clone() });
    let intent = Intent {
        version: VERSION,
        id: digest("intent"),
        purpose: "materialize".to_owned(),
        pipeline,
        snapshots: vec![snapshot],
        recipes,
        began_ms: 1_700_000_000_000,
        grace_ms: 5_000,
    };
    example("intent", &intent);
    example("candidates", &Candidates { version: VERSION, id: digest("list"), table: table("names", 5) });
}

#[test]
fn an_independent_script_agrees() {
    let output = std::process::Command::new("python3").arg(formats().join("reference.py")).output().unwrap();
    assert!(
        output.status.success(),
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
}

#[test]
fn the_text_names_the_numbers_of_the_code() {
    let text = |file: &str| std::fs::read_to_string(formats().join(file)).unwrap();
    let contains = |file: &str, line: String| assert!(text(file).contains(&line), "{file} must contain {line:?}");
    assert_eq!(VERSION, 1);
    for domain in Domain::ALL {
        contains("canonical.md", format!("\n| `{}` |", domain.name()));
    }
    fn limit<T: Document>() -> String {
        format!("| {} | {} |", T::WHAT, T::MAX_BYTES)
    }
    for line in [
        limit::<PipelineHead>(),
        limit::<SnapshotHead>(),
        limit::<RecipeHead>(),
        limit::<OrderHead>(),
        limit::<ManifestHead>(),
        limit::<Record>(),
        limit::<Report>(),
        limit::<Pin>(),
        limit::<Intent>(),
        limit::<Candidates>(),
    ] {
        contains("heads.md", line);
    }
    let digest = "5".repeat(64);
    for name in [
        format!("v1/blobs/55/{digest}.parquet"),
        format!("v1/pipelines/photos/0000000001-{digest}.json"),
        format!("v1/pipelines/photos/snapshots/0000000001-{digest}.json"),
        format!("v1/stages/{digest}/recipe.json"),
        format!("v1/stages/{digest}/orders/{digest}.json"),
        format!("v1/stages/{digest}/parquet-zstd-3/shards/55/{digest}.json"),
        format!("v1/stages/{digest}/parquet-zstd-3/manifests/{digest}.json"),
        format!("v1/reports/{digest}.json"),
        "v1/pins/paper-v1.json".to_owned(),
        format!("v1/intents/{digest}.json"),
        format!("v1/gc/{digest}.json"),
    ] {
        assert!(name.parse::<Name>().is_ok(), "{name}");
        contains("store.md", format!("`{}`", name.replace(&digest, "5…5")));
    }
}
