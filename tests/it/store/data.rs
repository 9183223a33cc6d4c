//! A small made-up dataset: random bytes as blobs, with records, heads and tables that fit. Everything is a function of
//! its number.

use arrow::datatypes::{DataType, Field, Schema};
use forebay::error::Result;
use forebay::format::canonical::{self, Domain, Value};
use forebay::format::encoding::Encoding;
use forebay::format::entry::{Entry, Identity};
use forebay::format::head::{PipelineHead, RecipeHead, Report, SnapshotHead, StageHead, TableRef};
use forebay::format::name::Name;
use forebay::format::record::{Chunk, Part, Record, Span};
use forebay::format::schema;
use forebay::format::table::{Entries, OrderRow, ShardRow};
use forebay::id::{Digest, OrderId, RecipeKey, ShardKey, SnapshotId};
use forebay::io::Access;
use forebay::plan::key::{self, snapshot_id};
use forebay::store::verify::{Options, Verified, verify};
use forebay::store::{Store, shard_row};
use serde_json::json;
use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;

pub fn open(directory: &Path) -> Store {
    Store::open(directory.to_str().unwrap(), &Access::default()).unwrap()
}

/// A new store in a directory of its own.
pub fn fresh() -> (tempfile::TempDir, Store) {
    let directory = tempfile::tempdir().unwrap();
    let store = open(&directory.path().join("store"));
    (directory, store)
}

pub fn random(number: u64, length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    blake3::Hasher::new().update(&number.to_le_bytes()).finalize_xof().fill(&mut bytes);
    bytes
}

fn id(number: u64) -> [u8; 32] {
    *blake3::hash(&number.to_be_bytes()).as_bytes()
}

pub fn encoding() -> Encoding {
    "arrow-none".parse().unwrap()
}

pub fn recipe_head() -> RecipeHead {
    let document = json!({"steps": [{"name": "image.resize"}]});
    let key = canonical::hash(Domain::Recipe, &Value::try_from(&document).unwrap()).unwrap();
    RecipeHead { version: 1, recipe: RecipeKey::from_bytes(key), stage: "resize".into(), document }
}

pub fn recipe() -> RecipeKey {
    recipe_head().recipe
}

pub fn shard(number: u64) -> ShardKey {
    ShardKey::from_bytes(id(number))
}

/// The id of the snapshot of `count` entries.
pub fn snapshot(count: u64) -> SnapshotId {
    snapshot_id(&entries(count))
}

/// Two chunks, each of a head and two columns, and a footer, with a gap before each head and a column of no bytes.
pub fn part(bytes: &[u8]) -> Part {
    let span = |start: usize, end: usize| Span {
        offset: start as u64,
        bytes: (end - start) as u64,
        digest: Digest::of(&bytes[start..end]),
    };
    let n = bytes.len();
    let chunk = |start: usize, end: usize| Chunk {
        rows: 5,
        head: Some(span(start + 2, start + 10)),
        columns: vec![span(start + 10, end), span(end, end)],
    };
    Part {
        blob: Digest::of(bytes),
        bytes: n as u64,
        rows: 10,
        chunks: vec![chunk(0, n / 2), chunk(n / 2, n - 20)],
        footer: span(n - 20, n),
    }
}

/// The bytes of a shard's blobs.
pub fn blobs(number: u64, length: usize) -> Vec<Vec<u8>> {
    (0..2).map(|i| random(2 * number + i, length + i as usize)).collect()
}

pub fn record(number: u64, blobs: &[Vec<u8>]) -> Record {
    let parts: Vec<Part> = blobs.iter().map(|bytes| part(bytes)).collect();
    Record {
        version: 1,
        shard: shard(number),
        recipe: recipe(),
        encoding: encoding(),
        rows: 10 * parts.len() as u64,
        bytes: parts.iter().map(|part| part.bytes).sum(),
        failed_rows: 1,
        parts,
        seconds: 0.5,
    }
}

pub fn put_blob(store: &Store, bytes: &[u8]) -> Result<()> {
    let mut spool = store.spool()?;
    spool.write_all(bytes).map_err(|e| forebay::error::Error::io("cannot spool", e))?;
    store.put_part(spool, &part(bytes), encoding().container)
}

pub fn put_shard(store: &Store, number: u64, length: usize) -> Result<Record> {
    let blobs = blobs(number, length);
    for bytes in &blobs {
        put_blob(store, bytes)?;
    }
    store.put_record(&record(number, &blobs))
}

pub fn entries(count: u64) -> Entries {
    let entry = |i: u64| Entry {
        key: format!("{i:05}.jpg"),
        file: None,
        identity: Identity::Content(Digest::from_bytes(id(i))),
        range: None,
        bytes: 100,
        rows: 1,
        partition: i as u32,
    };
    Entries { entries: (0..count).map(entry).collect(), carried: None }
}

/// The head of the snapshot of `count` entries, each a partition.
pub fn snapshot_head(count: u64, listed_ms: i64) -> SnapshotHead {
    SnapshotHead {
        version: 1,
        pipeline: "photos".into(),
        snapshot: snapshot(count),
        listed_ms,
        table: TableRef { blob: Digest::of(b""), bytes: 0, rows: count },
        entries: count,
        partitions: count,
        rows: count,
        bytes: 100 * count,
        identity: "content".into(),
        reader: json!({"kind": "files"}),
        input_schema: schema_text(),
    }
}

fn schema_text() -> String {
    schema::encode(&Schema::new(vec![Field::new("_key", DataType::LargeUtf8, false)]))
}

pub fn pipeline_head(text: &str) -> PipelineHead {
    let stage = StageHead { name: "resize".into(), split: None, recipe: recipe(), schema: schema_text() };
    PipelineHead { version: 1, name: "photos".into(), text: text.into(), stages: vec![stage], classes: BTreeMap::new() }
}

/// The id of the order of `count` entries.
pub fn order_id(count: u64) -> OrderId {
    key::order_id(&entries(count).entries, &order_rows(count))
}

pub fn order_rows(count: u64) -> Vec<OrderRow> {
    (0..count).map(|i| OrderRow { partition: i as u32, rows: 20, row_map: None }).collect()
}

pub fn shard_rows(records: &[Record]) -> Vec<ShardRow> {
    records.iter().enumerate().map(|(i, record)| shard_row(i as u32, record)).collect()
}

pub fn report(bytes: &[u8], number: u64) -> Report {
    let record = Name::Shard { recipe: recipe(), encoding: encoding(), shard: shard(number) };
    Report { version: 1, blob: Digest::of(bytes), record: record.to_string(), found: "other bytes".into() }
}

/// A whole dataset of `count` shards, every kind of object but reports.
pub fn put_dataset(store: &Store, count: u64, length: usize) -> Result<Vec<Record>> {
    store.put_recipe(&recipe_head())?;
    store.put_pipeline(&pipeline_head("name: photos\n"))?;
    store.put_snapshot(snapshot_head(count, 1000), &entries(count))?;
    let records = (0..count).map(|i| put_shard(store, i, length)).collect::<Result<Vec<_>>>()?;
    store.put_order(recipe(), snapshot(count), order_id(count), &order_rows(count))?;
    store.put_manifest(recipe(), encoding(), snapshot(count), &shard_rows(&records))?;
    Ok(records)
}

pub fn check(store: &Store, repair: bool) -> Verified {
    verify(store, &Options { share: 1.0, seed: 0, threads: 2, repair, progress: &|_, _| {} }).unwrap()
}

/// No findings, no orphans, nothing strange.
pub fn assert_sound(store: &Store) {
    let verified = check(store, false);
    assert_eq!(verified.findings, []);
    assert_eq!((verified.orphans, verified.strangers), (0, 0));
}

/// Every file below, by its path relative to the directory, temporary ones too.
pub fn files(directory: &Path) -> BTreeMap<String, Vec<u8>> {
    fn walk(directory: &Path, prefix: &str, found: &mut BTreeMap<String, Vec<u8>>) {
        for entry in std::fs::read_dir(directory).unwrap() {
            let entry = entry.unwrap();
            let name = format!("{prefix}{}", entry.file_name().to_str().unwrap());
            match entry.path().is_dir() {
                true => walk(&entry.path(), &format!("{name}/"), found),
                false => drop(found.insert(name, std::fs::read(entry.path()).unwrap())),
            }
        }
    }
    let mut found = BTreeMap::new();
    walk(directory, "", &mut found);
    found
}

pub fn blob_name(bytes: &[u8]) -> String {
    Name::Blob { digest: Digest::of(bytes), container: encoding().container }.to_string()
}

pub fn record_name(number: u64) -> String {
    Name::Shard { recipe: recipe(), encoding: encoding(), shard: shard(number) }.to_string()
}
