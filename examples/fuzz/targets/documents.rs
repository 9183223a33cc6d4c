//! What a store holds besides shards: heads, records and reports, the three tables, schemas, and the cursor of a reader.

use super::{Target, files};
use arrow::buffer::Buffer;
use arrow::datatypes::{DataType, Field, Schema, TimeUnit};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use forebay::format::canonical::{self, Domain, Value};
use forebay::format::document::Document;
use forebay::format::encoding::Container;
use forebay::format::entry::{Entry, Identity, Range};
use forebay::format::head::{ManifestHead, OrderHead, PipelineHead, RecipeHead, Report, SnapshotHead};
use forebay::format::record::Record;
use forebay::format::schema;
use forebay::format::shard::{Encoder, tensor};
use forebay::format::table::{self, Entries, OrderRow, ShardRow};
use forebay::id::{Digest, ShardKey};
use forebay::plan::order::cursor::Cursor;
use parquet::arrow::ArrowWriter;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use parquet::basic::Compression;
use parquet::file::properties::WriterProperties;
use std::fmt::Debug;
use std::sync::Arc;

pub const TARGETS: &[Target] = &[
    Target {
        name: "documents",
        corpus: || files("formats/examples", &[".json"]),
        tokens: &["null", "true", "-1", "1e400", "0.1", "\"\"", "[", "]", "{", "}", ":", ",", "\"\\u0000\"", "\\ud800"],
        open: || Box::new(documents),
    },
    Target {
        name: "canonical",
        corpus: canonical_corpus,
        tokens: &["null", "-0.0", "1e308", "9007199254740993", "18446744073709551615", "[", "]", "{\"\":", "}", ","],
        open: || Box::new(canonical_value),
    },
    Target {
        name: "tables",
        corpus: tables_corpus,
        tokens: &["PAR1", "forebay", "\"version\":"],
        open: || Box::new(tables),
    },
    Target {
        name: "schemas",
        corpus: schemas_corpus,
        tokens: &["arrow.fixed_shape_tensor", "[-1]"],
        open: || Box::new(schemas),
    },
    Target { name: "cursors", corpus: cursors_corpus, tokens: &["null", "-1", "1.0", "2"], open: || Box::new(cursor) },
];

fn documents(bytes: &[u8]) {
    fn one<T: Document + PartialEq + Debug>(bytes: &[u8]) {
        if let Ok(document) = T::from_json(bytes) {
            assert_eq!(T::from_json(&document.to_json()).unwrap(), document);
        }
    }
    one::<PipelineHead>(bytes);
    one::<SnapshotHead>(bytes);
    one::<RecipeHead>(bytes);
    one::<OrderHead>(bytes);
    one::<ManifestHead>(bytes);
    one::<Report>(bytes);
    one::<Record>(bytes);
}

fn canonical_corpus() -> Vec<Vec<u8>> {
    files("formats/vectors", &["canonical.json"])
        .into_iter()
        .chain(files("formats/examples", &["recipe.json"]))
        .collect()
}

fn canonical_value(bytes: &[u8]) {
    let Ok(json) = serde_json::from_slice::<serde_json::Value>(bytes) else { return };
    let Ok(value) = Value::try_from(&json) else { return };
    let digest = canonical::hash(Domain::Recipe, &value).unwrap();
    let text = value.to_json().to_string();
    let again = Value::try_from(&serde_json::from_str::<serde_json::Value>(&text).unwrap()).unwrap();
    assert_eq!(canonical::hash(Domain::Recipe, &again).unwrap(), digest, "{text}");
    assert_eq!(Value::of(&json).unwrap(), value);
}

fn tables_corpus() -> Vec<Vec<u8>> {
    let entry = |n: u32| Entry {
        key: format!("k{n}.jpg"),
        file: n.is_multiple_of(2).then(|| "a.tar".into()),
        identity: match n % 3 {
            0 => Identity::Content(Digest::of(&n.to_le_bytes())),
            1 => Identity::Etag { etag: "\"e\"".into(), bytes: 3 },
            _ => Identity::Absent,
        },
        range: n.is_multiple_of(2).then_some(Range::Bytes { start: 1, end: 9 }),
        bytes: 8,
        rows: 1,
        partition: n / 3,
    };
    let names = arrow::array::LargeStringArray::from_iter((0..6).map(|n| (n % 2 > 0).then_some("cat")));
    let carried = arrow::array::RecordBatch::try_from_iter_with_nullable([(
        "label",
        Arc::new(names) as arrow::array::ArrayRef,
        true,
    )]);
    let shard = |partition| ShardRow {
        partition,
        shard: ShardKey::from_bytes([partition as u8; 32]),
        rows: 9,
        bytes: 1 << 20,
        failed_rows: 1,
        blobs: vec![Digest::of(b"blob"); partition as usize],
    };
    let order = |partition| OrderRow { partition, rows: 3, row_map: (partition > 0).then(|| vec![0, 0, 2]) };
    let written = [
        Entries { entries: (0..6).map(entry).collect(), carried: None }.encode().unwrap(),
        Entries { entries: (0..6).map(entry).collect(), carried: Some(carried.unwrap()) }.encode().unwrap(),
        table::encode_shards(&(0..3).map(shard).collect::<Vec<_>>()).unwrap(),
        table::encode_order(&(0..3).map(order).collect::<Vec<_>>()).unwrap(),
    ];
    // Uncompressed too, so that mutations reach what lies in the pages.
    written.iter().flat_map(|bytes| [bytes.clone(), uncompressed(bytes)]).collect()
}

fn uncompressed(bytes: &[u8]) -> Vec<u8> {
    let reader = ParquetRecordBatchReaderBuilder::try_new(bytes::Bytes::copy_from_slice(bytes)).unwrap();
    let metadata = reader.metadata().file_metadata().key_value_metadata().cloned();
    let properties =
        WriterProperties::builder().set_compression(Compression::UNCOMPRESSED).set_key_value_metadata(metadata).build();
    let mut out = Vec::new();
    let mut writer = ArrowWriter::try_new(&mut out, reader.schema().clone(), Some(properties)).unwrap();
    for batch in reader.build().unwrap() {
        writer.write(&batch.unwrap()).unwrap();
    }
    writer.close().unwrap();
    out
}

fn tables(bytes: &[u8]) {
    let buffer = Buffer::from(bytes);
    if let Ok(entries) = Entries::decode(&buffer) {
        let again = Entries::decode(&Buffer::from_vec(entries.encode().unwrap())).unwrap();
        assert_eq!(again.entries, entries.entries);
    }
    if let Ok(rows) = table::decode_shards(&buffer) {
        assert_eq!(table::decode_shards(&Buffer::from_vec(table::encode_shards(&rows).unwrap())).unwrap(), rows);
    }
    if let Ok(rows) = table::decode_order(&buffer) {
        assert_eq!(table::decode_order(&Buffer::from_vec(table::encode_order(&rows).unwrap())).unwrap(), rows);
    }
}

fn schemas_corpus() -> Vec<Vec<u8>> {
    let item = Arc::new(Field::new("item", DataType::Int32, true));
    let schemas = [
        vec![Field::new("_key", DataType::LargeUtf8, false), Field::new("_error", DataType::LargeUtf8, true)],
        vec![
            Field::new("when", DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into())), true),
            Field::new("s", DataType::Struct(vec![item.clone()].into()), true),
            Field::new("l", DataType::LargeList(item.clone()), true),
            Field::new("f", DataType::FixedSizeList(item, 2), true),
            Field::new("d", DataType::Dictionary(Box::new(DataType::Int8), Box::new(DataType::Utf8)), true),
        ],
        vec![
            tensor::fixed_field("image", tensor::DType::U8, &[4, 5, 3]).unwrap(),
            tensor::variable_field("ragged", tensor::DType::F16, &[None, Some(3)]).unwrap(),
        ],
    ];
    schemas.into_iter().map(|fields| STANDARD.decode(schema::encode(&Schema::new(fields))).unwrap()).collect()
}

/// As the base64 text that heads hold, which has no digest of its own.
fn schemas(bytes: &[u8]) {
    let Ok(decoded) = schema::decode(&STANDARD.encode(bytes)) else { return };
    canonical::hash(Domain::Recipe, &schema::canonical(&decoded)).unwrap();
    // An empty time zone becomes none, and stays none.
    let written = schema::encode(&schema::decode(&schema::encode(&decoded)).unwrap());
    assert_eq!(schema::encode(&schema::decode(&written).unwrap()), written);
    for field in decoded.fields() {
        let _ = tensor::kind(field);
    }
    for container in [Container::Arrow, Container::Parquet] {
        let encoding = format!("{container}-none").parse().unwrap();
        let _ = Encoder::new(Arc::new(decoded.clone()), encoding);
    }
}

fn cursors_corpus() -> Vec<Vec<u8>> {
    let id = "ab".repeat(32);
    let place = format!(r#"{{"recipe":"{id}","snapshot":"{id}","order":"{id}","weight":1.0,"epoch":3,"position":77}}"#);
    vec![format!(r#"{{"version":1,"seed":7,"shuffle":true,"lanes":16,"block":64,"datasets":[{place}]}}"#).into_bytes()]
}

fn cursor(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    if let Ok(cursor) = Cursor::parse(text) {
        assert_eq!(Cursor::parse(&cursor.to_json().unwrap()).unwrap(), cursor);
        let _ = cursor.params();
        let _ = cursor.check(&cursor, 50);
    }
}
