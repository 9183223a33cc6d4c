//! Many at once: writers and readers on one store, and ranks that share a dataset, however uneven.

use crate::fixture::{Dataset, PHOTOS};
use crate::store::data::assert_sound;
use arrow::array::{AsArray, RecordBatch};
use forebay::app::open::{Opened, Reading};
use forebay::engine::pool::Pool;
use forebay::plan::order::batch::{Batching, Tail};
use forebay::reader::Reader;
use std::fs;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::channel;
use std::time::Duration;

/// Runs `body` on a thread of its own and fails where it takes longer.
fn within<T: Send + 'static>(limit: Duration, body: impl FnOnce() -> T + Send + 'static) -> T {
    let (sender, receiver) = channel();
    let thread = std::thread::spawn(move || sender.send(body()));
    match receiver.recv_timeout(limit) {
        Ok(value) => value,
        Err(std::sync::mpsc::RecvTimeoutError::Timeout) => panic!("still not done after {limit:?}"),
        Err(std::sync::mpsc::RecvTimeoutError::Disconnected) => {
            std::panic::resume_unwind(thread.join().expect_err("it ended without a value"))
        }
    }
}

#[test]
fn two_writers_and_twenty_readers_share_a_store() {
    let pipeline = PHOTOS.replace("entries: 8", "entries: 2");
    let dataset = Dataset::with_photos(&pipeline, 36);
    let expected: Vec<_> = ["train", "val"].iter().map(|split| dataset.read(Some(split), 7, 1)).collect();
    fs::remove_dir_all(dataset.store()).unwrap();

    let write = || {
        Command::new(env!("CARGO_BIN_EXE_forebay"))
            .args(["materialize", "pipeline.yaml", "--stage", "all", "--quiet", "--jobs", "2"])
            .current_dir(dataset.path())
            .env("FOREBAY_CACHE", dataset.path().join("cache"))
            .env_remove("FOREBAY_STORE")
            .stdout(Stdio::null())
            .spawn()
            .unwrap()
    };
    let (written, epochs, partly) = (AtomicBool::new(false), AtomicU64::new(0), AtomicU64::new(0));
    std::thread::scope(|scope| {
        let mut writers = [write(), write()];
        for number in 0..20 {
            let (dataset, expected, written, epochs, partly) = (&dataset, &expected, &written, &epochs, &partly);
            scope.spawn(move || {
                loop {
                    let last = written.load(Ordering::Relaxed);
                    let (split, expected) = [("train", &expected[0]), ("val", &expected[1])][number % 2];
                    let reader = dataset.reader(Some(split), Batching::new(7, 0, 1, Tail::Short).unwrap(), None);
                    let origins = reader.origins().unwrap();
                    partly.fetch_add(u64::from(origins.len() > 1), Ordering::Relaxed);
                    let batches: Vec<_> = reader.epoch(1, 0).unwrap().map(|b| b.unwrap().rows).collect();
                    assert_eq!(&batches, expected, "{split} from {origins:?}");
                    // A shard that was seen half would have been found bad.
                    assert_eq!(reader.take_warnings(), [""; 0]);
                    epochs.fetch_add(1, Ordering::Relaxed);
                    if last {
                        break;
                    }
                }
            });
        }
        let ended = writers.each_mut().map(|writer| writer.wait().unwrap());
        written.store(true, Ordering::Relaxed);
        assert!(ended.iter().all(|status| status.success()), "{ended:?}");
    });
    println!("{epochs:?} epochs were read, {partly:?} of them began while a part was stored");
    let files = dataset.files();
    assert!(!files.keys().any(|name| name.contains("/reports/") || name.contains(".tmp-")));
    assert_eq!(files.keys().filter(|name| name.contains("/snapshots/")).count(), 1);
    assert_sound(&crate::store::data::open(&dataset.store()));
    let done = dataset.materialize(&["all"], None).unwrap();
    assert_eq!(done.outcome.computed_shards, 0);
}

/// `rows` rows of text in three files' worth of blocks, or fewer.
fn lines(rows: usize) -> Dataset {
    let dataset = Dataset::new(
        "name: lines\nsource: { jsonl: lines.jsonl, key: id }\npartition: { entries: 4, bytes: 1gb }\norder: { lanes: 3, block: 16 }\n\
         splits: { all: {}, none: { where: \"text == 'nothing'\" } }\n",
    );
    let text: String = (0..rows).map(|i| format!("{{\"id\": \"k{i:03}\", \"text\": \"{}\"}}\n", i * i)).collect();
    fs::write(dataset.path().join("lines.jsonl"), text).unwrap();
    dataset
}

fn keys(batch: &RecordBatch) -> Vec<String> {
    batch.column(0).as_string::<i64>().iter().map(|key| key.unwrap().to_owned()).collect()
}

fn reader(opened: &Opened, pool: &Pool, split: &str, batching: Batching) -> Reader {
    let reading = Reading { split: Some(split), stage: None, batching, shuffle: Some(true), seed: 3, prefetch: 0 };
    opened.reader(&reading, pool.clone()).unwrap()
}

/// For each batch of an epoch: the keys of its samples, and how many rows repeat them.
fn epoch(reader: &Reader, epoch: u64) -> Vec<(Vec<String>, usize)> {
    let share = |batch: forebay::reader::Batch| {
        let mut keys = keys(&batch.rows);
        keys.truncate(keys.len() - batch.padding);
        (keys, batch.padding)
    };
    reader.epoch(epoch, 0).unwrap().map(|batch| share(batch.unwrap())).collect()
}

#[test]
fn three_rows_read_by_eight_ranks_two_hundred_times() {
    within(Duration::from_secs(60), || {
        let dataset = lines(3);
        let (opened, pool) = (dataset.open(), Pool::new(2).unwrap());
        for tail in [Tail::Pad, Tail::Drop, Tail::Short] {
            let ranks: Vec<Reader> =
                (0..8).map(|rank| reader(&opened, &pool, "all", Batching::new(8, rank, 8, tail).unwrap())).collect();
            for number in 0..200 {
                let shares: Vec<_> = ranks.iter().map(|rank| epoch(rank, number)).collect();
                let steps = if tail == Tail::Drop { 0 } else { 1 };
                assert!(shares.iter().all(|share| share.len() == steps), "{tail:?}");
                assert!(ranks.iter().all(|rank| rank.batches(0) == steps as u64));
                let mut seen: Vec<String> = shares.iter().flatten().flat_map(|(keys, _)| keys.clone()).collect();
                seen.sort();
                assert_eq!(seen.len(), 3 * steps);
                seen.dedup();
                assert_eq!(seen.len(), 3 * steps, "each sample once");
                if tail == Tail::Pad {
                    assert!(shares.iter().flatten().all(|(keys, padding)| keys.len() + padding == 1));
                }
            }
        }
    });
}

#[test]
fn an_empty_dataset_ends_at_once() {
    within(Duration::from_secs(20), || {
        let dataset = lines(5);
        let (opened, pool) = (dataset.open(), Pool::new(2).unwrap());
        for tail in [Tail::Pad, Tail::Drop, Tail::Short] {
            for rank in 0..3 {
                let reader = reader(&opened, &pool, "none", Batching::new(4, rank, 3, tail).unwrap());
                assert_eq!((reader.rows(), reader.batches(0), epoch(&reader, 0).len()), (0, 0, 0));
            }
        }
        // Stored, it is the same.
        let done = dataset.materialize(&["where"], None).unwrap();
        assert!(done.manifests[0].is_some());
        let opened = dataset.open();
        let reader = reader(&opened, &pool, "none", Batching::new(4, 0, 1, Tail::Pad).unwrap());
        assert_eq!((reader.rows(), epoch(&reader, 1).len()), (0, 0));
    });
}

#[test]
fn every_world_and_batch_size_reads_one_order() {
    const ROWS: usize = 11;
    within(Duration::from_secs(60), || {
        let dataset = lines(ROWS);
        dataset.materialize(&["concatenated"], None).unwrap();
        let (opened, pool) = (dataset.open(), Pool::new(2).unwrap());
        let alone = |batch| epoch(&reader(&opened, &pool, "all", Batching::new(batch, 0, 1, Tail::Short).unwrap()), 5);
        let mut every: Vec<String> = alone(1).into_iter().flat_map(|(keys, _)| keys).collect();
        every.sort();
        every.dedup();
        assert_eq!(every.len(), ROWS);
        for batch in (1..=9).chain([11, 12, 13, 40]) {
            let expected: Vec<Vec<String>> = alone(batch).into_iter().map(|(keys, _)| keys).collect();
            assert_eq!(expected.iter().map(Vec::len).sum::<usize>(), ROWS);
            for world in 1..=7 {
                for tail in [Tail::Pad, Tail::Drop, Tail::Short] {
                    let batching = |rank| Batching::new(batch, rank, world, tail).unwrap();
                    let ranks: Vec<_> =
                        (0..world).map(|rank| epoch(&reader(&opened, &pool, "all", batching(rank)), 5)).collect();
                    let whole = ROWS / batch as usize;
                    let steps = if tail == Tail::Drop { whole } else { expected.len() };
                    for (step, expected) in expected[..steps].iter().enumerate() {
                        let joined: Vec<String> = ranks.iter().flat_map(|rank| rank[step].0.clone()).collect();
                        assert_eq!(&joined, expected, "W={world} B={batch} {tail:?} step {step}");
                        if tail == Tail::Pad {
                            let rows: usize = ranks.iter().map(|rank| rank[step].0.len() + rank[step].1).sum();
                            assert_eq!(rows as u64, batch);
                        }
                    }
                    assert!(ranks.iter().all(|rank| rank.len() == steps), "W={world} B={batch} {tail:?}");
                }
            }
        }
    });
}
