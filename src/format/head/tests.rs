//! Heads: round trips, what is refused, and damage.

use super::*;
use crate::format::document::tests::damage;
use arrow::datatypes::{DataType, Field, Schema};
use serde_json::json;

fn table() -> TableRef {
    TableRef { blob: Digest::of(b"table"), bytes: 1000, rows: 3 }
}

fn pipeline() -> PipelineHead {
    let schema = schema::encode(&Schema::new(vec![Field::new("_key", DataType::LargeUtf8, false)]));
    let stage = |name: &str, split: Option<&str>| StageHead {
        name: name.into(),
        split: split.map(Into::into),
        recipe: RecipeKey::from_bytes([7; 32]),
        schema: schema.clone(),
    };
    PipelineHead {
        version: 1,
        name: "photos".into(),
        text: "name: photos\n".into(),
        stages: vec![stage("decode", None), stage("crop", Some("train")), stage("crop", Some("val"))],
        classes: BTreeMap::from([("label".into(), vec!["cat".into(), "dog".into()])]),
    }
}

fn snapshot() -> SnapshotHead {
    SnapshotHead {
        version: 1,
        pipeline: "photos".into(),
        snapshot: SnapshotId::from_bytes([3; 32]),
        listed_ms: 1_700_000_000_000,
        table: table(),
        entries: 3,
        partitions: 2,
        rows: 3,
        bytes: 100,
        identity: "content".into(),
        reader: json!({"z": 1, "a": {"y": 0.5, "b": [true, null]}}),
        input_schema: pipeline().stages[0].schema.clone(),
    }
}

fn recipe() -> RecipeHead {
    let document = json!({"format": 1, "steps": [{"name": "image.resize", "params": {"scale": 0.125}}]});
    let key = canonical::hash(Domain::Recipe, &Value::try_from(&document).unwrap()).unwrap();
    RecipeHead { version: 1, recipe: RecipeKey::from_bytes(key), stage: "resize".into(), document }
}

fn order() -> OrderHead {
    OrderHead {
        version: 1,
        recipe: RecipeKey::from_bytes([2; 32]),
        snapshot: SnapshotId::from_bytes([3; 32]),
        order: OrderId::from_bytes([4; 32]),
        table: table(),
        rows: 3,
    }
}

fn manifest() -> ManifestHead {
    ManifestHead {
        version: 1,
        recipe: RecipeKey::from_bytes([2; 32]),
        encoding: "parquet-zstd-3".parse().unwrap(),
        snapshot: SnapshotId::from_bytes([3; 32]),
        table: table(),
        rows: 3,
        bytes: 100,
        failed_rows: 0,
    }
}

fn report() -> Report {
    Report {
        version: 1,
        blob: Digest::of(b"blob"),
        record: format!("v1/stages/{0}/arrow-none/shards/ab/{0}.json", "ab".repeat(32)),
        found: "column 1 of chunk 0 has another digest".into(),
    }
}

#[test]
fn damaged_heads_never_panic() {
    damage(&pipeline());
    damage(&snapshot());
    damage(&recipe());
    damage(&order());
    damage(&manifest());
    damage(&report());
}

/// Parameters of type f32 are written with 17 digits, which must be read back to the last bit for the key to be the same.
#[test]
fn recipes_with_long_floats_are_read_back_with_their_keys() {
    let mut bits = 0x3f5e_0419u32;
    for _ in 0..2000 {
        bits = bits.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let drawn = f32::from_bits(bits);
        let value =
            Value::of(&[0.485f32, 0.456, 0.406, 1.0 / 3.0, if drawn.is_finite() { drawn } else { 0.1 }]).unwrap();
        let document = Value::map([("format", Value::from(1u64)), ("mean", value)]);
        let recipe = RecipeKey::from_bytes(canonical::hash(Domain::Recipe, &document).unwrap());
        let head = RecipeHead { version: 1, recipe, stage: "normalize".into(), document: document.to_json() };
        assert_eq!(RecipeHead::from_json(&head.to_json()).unwrap(), head);
    }
}

#[test]
fn maps_come_out_sorted() {
    let text = String::from_utf8(snapshot().to_json()).unwrap();
    let at = |word: &str| text.find(word).unwrap();
    assert!(at("\"a\"") < at("\"b\"") && at("\"b\"") < at("\"y\"") && at("\"y\"") < at("\"z\""));
}

#[test]
fn unsound_heads_say_what_is_wrong() {
    fn error<T: Document + std::fmt::Debug>(document: &T) -> String {
        T::from_json(&document.to_json()).unwrap_err().chain()
    }
    assert!(error(&PipelineHead { name: "../x".into(), ..pipeline() }).contains("begins with a dot"));
    let mut twice = pipeline();
    twice.stages[2].split = twice.stages[1].split.clone();
    assert!(error(&twice).contains("stages of different names, found \"crop\" twice"));
    let mut shared = pipeline();
    shared.stages[1].name = "decode".into();
    assert!(error(&shared).contains("found \"decode\" twice"));
    let mut schema = pipeline();
    schema.stages[0].schema.truncate(8);
    assert!(error(&schema).contains("in stage \"decode\": expected a schema"));
    assert!(
        error(&SnapshotHead { entries: 4, ..snapshot() }).contains("the table's rows to be the entries, 4, found 3")
    );
    assert!(error(&SnapshotHead { partitions: 4, ..snapshot() }).contains("partitions of at most 3, found 4"));
    assert!(error(&SnapshotHead { identity: "guess".into(), ..snapshot() }).contains("found \"guess\""));
    assert!(error(&RecipeHead { document: json!({}), ..recipe() }).contains("expected a document whose hash is"));
    assert!(error(&ManifestHead { failed_rows: 4, ..manifest() }).contains("failed rows of at most 3, found 4"));
    assert!(error(&Report { record: "/etc/passwd".into(), ..report() }).contains("the name of a record"));
}
