//! The vectors of `formats/` for order, partitions and random draws, which an independent Python script computes.

use forebay::format::entry::{Entry, Identity};
use forebay::id::Digest;
use forebay::plan::order::batch::{Batching, Tail};
use forebay::plan::order::{Epoch, Params, Row};
use forebay::plan::partition::{Layout, partition};
use forebay::spec::pipeline::Partition;
use forebay::step::Context;
use forebay::step::random::Stream;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use std::path::PathBuf;

fn formats() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("formats")
}

fn vectors<T: DeserializeOwned>(name: &str) -> Vec<T> {
    let text = std::fs::read_to_string(formats().join("vectors").join(name)).unwrap();
    let cases: Vec<T> = serde_json::from_str(&text).unwrap();
    assert!(!cases.is_empty());
    cases
}

#[test]
fn the_reference_reproduces_its_vectors() {
    let run = std::process::Command::new("python3").arg(formats().join("order_reference.py")).output().unwrap();
    assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));
}

#[derive(Deserialize)]
struct OrderCase {
    rows: Vec<u64>,
    seed: u64,
    epoch: u64,
    lanes: u32,
    block: u32,
    shuffle: bool,
    order: Vec<(u32, u64)>,
    batches: Vec<BatchCase>,
}

#[derive(Deserialize)]
struct BatchCase {
    position: u64,
    batch: u64,
    world_size: u32,
    tail: String,
    result: Option<BatchResult>,
}

#[derive(Deserialize)]
struct BatchResult {
    ranks: Vec<RankResult>,
    next: u64,
}

#[derive(Deserialize)]
struct RankResult {
    rows: Vec<(u32, u64)>,
    padding: usize,
}

fn pairs(rows: &[Row]) -> Vec<(u32, u64)> {
    rows.iter().map(|row| (row.partition, row.row)).collect()
}

#[test]
fn order() {
    for case in vectors::<OrderCase>("order.json") {
        let OrderCase { seed, epoch, lanes, block, shuffle, .. } = case;
        let epoch = Epoch::new(&case.rows, Params { seed, epoch, lanes, block, shuffle }).unwrap();
        assert_eq!(pairs(&epoch.rows_at(0..epoch.rows())), case.order);
        for batch in case.batches {
            let tail = match batch.tail.as_str() {
                "pad" => Tail::Pad,
                "drop" => Tail::Drop,
                _ => Tail::Short,
            };
            for rank in 0..batch.world_size {
                let batching = Batching::new(batch.batch, rank, batch.world_size, tail).unwrap();
                let share = epoch.share(batch.position, &batching).map(|s| (pairs(&s.rows), s.padding, s.next));
                let expect = batch.result.as_ref().map(|result| {
                    let own = &result.ranks[rank as usize];
                    (own.rows.clone(), own.padding, result.next)
                });
                assert_eq!(share, expect);
            }
        }
    }
}

#[derive(Deserialize)]
struct PartitionCase {
    layout: String,
    max_entries: u64,
    max_bytes: u64,
    entries: Vec<ListedEntry>,
    partitions: Vec<Vec<String>>,
}

#[derive(Deserialize)]
struct ListedEntry {
    key: String,
    file: Option<String>,
    bytes: u64,
}

#[test]
fn partitions() {
    for case in vectors::<PartitionCase>("partition.json") {
        let layout = match case.layout.as_str() {
            "hash" => Layout::Hash,
            "key" => Layout::Key,
            "front" => Layout::Front,
            _ => Layout::Keyed,
        };
        let entries: Vec<Entry> = case
            .entries
            .into_iter()
            .map(|ListedEntry { key, file, bytes }| Entry {
                key,
                file,
                identity: Identity::Content(Digest::of(b"")),
                range: None,
                bytes,
                rows: 1,
                partition: 0,
            })
            .collect();
        let limits = Partition { entries: case.max_entries, bytes: case.max_bytes };
        let table = partition(&entries, layout, limits).arrange(entries, None).unwrap();
        let found: Vec<Vec<&str>> = table
            .entries
            .chunk_by(|a, b| a.partition == b.partition)
            .map(|part| part.iter().map(|entry| entry.key.as_str()).collect())
            .collect();
        assert_eq!(found, case.partitions, "{}", case.layout);
    }
}

#[derive(Deserialize)]
struct RandomCase {
    seed: u64,
    epoch: u64,
    key: String,
    step: String,
    occurrence: u32,
    words: Vec<u64>,
    below: Vec<(u64, u64)>,
    /// Bits of doubles.
    unit: Vec<u64>,
    between: [u64; 2],
}

#[test]
fn random_draws() {
    for case in vectors::<RandomCase>("random.json") {
        let context = Context { seed: case.seed, epoch: case.epoch, occurrence: case.occurrence };
        let stream = || Stream::new(context, &case.step, &case.key);
        let mut draws = stream();
        case.words.iter().for_each(|word| assert_eq!(draws.next_u64(), *word));
        let mut draws = stream();
        case.below.iter().for_each(|(n, value)| assert_eq!(draws.below(*n), *value));
        let mut draws = stream();
        case.unit.iter().for_each(|bits| assert_eq!(draws.unit().to_bits(), *bits));
        let mut draws = stream();
        let between = [(-1.5, 2.25), (0.08, 1.0)].map(|(low, high)| draws.between(low, high).to_bits());
        assert_eq!(between, case.between);
    }
}
