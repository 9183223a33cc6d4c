//! The main promise: batches are the same whatever is stored, lost, damaged, or computed.

use crate::fixture::{Dataset, PHOTOS, photo};
use arrow::array::{Array, AsArray, RecordBatch};
use forebay::format::encoding::{Codec, Container};
use forebay::io::Access;
use forebay::plan::order::batch::{Batching, Tail};
use std::path::{Path, PathBuf};

fn keys(batches: &[RecordBatch]) -> Vec<String> {
    let texts = batches
        .iter()
        .flat_map(|b| b.column(0).as_string::<i64>().iter().map(|k| k.unwrap().to_owned()).collect::<Vec<_>>());
    texts.collect()
}

/// Blobs of a stage's shards, in partition order.
fn blobs(dataset: &Dataset, stage: &str, container: Container) -> Vec<PathBuf> {
    let store = forebay::store::Store::open(dataset.store().to_str().unwrap(), &Access::default()).unwrap();
    let pipeline = forebay::app::catalog::pipeline(&store, None).unwrap();
    let stored = forebay::app::catalog::stored_stage(&store, &pipeline, Some(stage), None, Some(container)).unwrap();
    stored.paths(&store).unwrap()
}

fn record_of(dataset: &Dataset, blob: &Path) -> PathBuf {
    let digest = blob.file_stem().unwrap().to_str().unwrap().to_owned();
    let found = dataset
        .files()
        .into_iter()
        .find(|(name, bytes)| name.contains("/shards/") && String::from_utf8_lossy(bytes).contains(&digest));
    dataset.store().join(found.unwrap().0)
}

#[test]
fn any_mix_of_stored_lost_and_corrupt_shards_gives_the_same_batches() {
    let dataset = Dataset::with_photos(PHOTOS, 60);
    let expected: Vec<_> = ["train", "val"].iter().map(|s| dataset.read(Some(s), 7, 1)).collect();
    assert_eq!(
        expected[0].iter().map(RecordBatch::num_rows).sum::<usize>()
            + expected[1].iter().map(RecordBatch::num_rows).sum::<usize>(),
        60
    );

    dataset.materialize(&["decode"], Some((Container::Arrow, Codec::None))).unwrap();
    dataset.materialize(&["resize"], Some((Container::Arrow, Codec::None))).unwrap();
    dataset.materialize(&["resize"], Some((Container::Parquet, Codec::Zstd(3)))).unwrap();
    let arrow = blobs(&dataset, "resize", Container::Arrow);
    let parquet = blobs(&dataset, "resize", Container::Parquet);
    assert!(arrow.len() >= 6, "{} partitions", arrow.len());

    // 0: stored as both. 1: one of the two is corrupt. 2: only at decode. 3: both encodings lost their blobs.
    // 4: corrupt in both. 5: nothing stored at any stage.
    let flip = |path: &PathBuf| {
        let mut bytes = std::fs::read(path).unwrap();
        let middle = bytes.len() / 2;
        bytes[middle] ^= 1;
        std::fs::remove_file(path).unwrap();
        std::fs::write(path, bytes).unwrap();
    };
    flip(&arrow[1]);
    for blob in [&arrow[2], &parquet[2]] {
        std::fs::remove_file(record_of(&dataset, blob)).unwrap();
    }
    for blob in [&arrow[3], &parquet[3]] {
        std::fs::remove_file(blob).unwrap();
    }
    flip(&arrow[4]);
    flip(&parquet[4]);
    let decoded = blobs(&dataset, "decode", Container::Arrow);
    for blob in [&arrow[5], &parquet[5], &decoded[5]] {
        std::fs::remove_file(record_of(&dataset, blob)).unwrap();
    }

    for (split, expected) in ["train", "val"].iter().zip(&expected) {
        assert_eq!(&dataset.read(Some(split), 7, 1), expected, "{split}");
    }
    let reports = dataset.files().keys().filter(|n| n.starts_with("v1/reports/")).count();
    assert!(reports >= 2, "the corrupt blobs are reported, found {reports}");

    // The next run heals what was reported and fills what is missing; afterwards nothing is computed any more.
    for encoding in [(Container::Arrow, Codec::None), (Container::Parquet, Codec::Zstd(3))] {
        let done = dataset.materialize(&["resize"], Some(encoding)).unwrap();
        assert!(done.outcome.computed_shards >= 3, "{}", done.outcome.computed_shards);
        assert!(done.manifests[0].is_some());
    }
    let done = dataset.materialize(&["resize"], Some((Container::Arrow, Codec::None))).unwrap();
    assert_eq!(done.outcome.computed_shards, 0);
    assert_eq!(dataset.files().keys().filter(|n| n.starts_with("v1/reports/")).count(), 0);
    for (split, expected) in ["train", "val"].iter().zip(&expected) {
        assert_eq!(&dataset.read(Some(split), 7, 1), expected, "{split} after healing");
    }
}

/// By its name: whoever reads and whoever writes agree on which shards are bad.
#[test]
fn a_damaged_report_counts_for_reading_and_healing() {
    let dataset = Dataset::with_photos(PHOTOS, 24);
    let encoding = Some((Container::Arrow, Codec::None));
    dataset.materialize(&["resize"], encoding).unwrap();
    let expected = dataset.read(Some("val"), 7, 1);
    let blob = blobs(&dataset, "resize", Container::Arrow).remove(0);
    let report = format!("v1/reports/{}.json", blob.file_stem().unwrap().to_str().unwrap());
    let report = dataset.store().join(report);
    std::fs::create_dir_all(report.parent().unwrap()).unwrap();
    std::fs::write(&report, b"{").unwrap();
    assert_eq!(dataset.read(Some("val"), 7, 1), expected);
    assert_eq!(dataset.materialize(&["resize"], encoding).unwrap().outcome.computed_shards, 1);
    assert!(!report.exists());
}

#[test]
fn every_stage_in_every_encoding_reads_back_equal() {
    let dataset = Dataset::with_photos(PHOTOS, 24);
    let expected: Vec<_> = ["train", "val"].iter().map(|s| dataset.read(Some(s), 5, 2)).collect();
    let codecs = [Codec::None, Codec::Lz4, Codec::Zstd(1), Codec::Snappy, Codec::Gzip(1)];
    for stage in ["concatenated", "decode", "resize", "index", "all"] {
        for container in [Container::Arrow, Container::Parquet] {
            for codec in codecs {
                if forebay::format::encoding::Encoding::new(container, codec).is_err() {
                    continue;
                }
                let _ = std::fs::remove_dir_all(dataset.store());
                let done = dataset.materialize(&[stage], Some((container, codec))).unwrap();
                assert!(done.outcome.failures.is_empty());
                assert!(done.manifests.iter().all(Option::is_some), "{stage} {container} {codec}");
                for (split, expected) in ["train", "val"].iter().zip(&expected) {
                    assert_eq!(&dataset.read(Some(split), 5, 2), expected, "{split} from {stage} {container} {codec}");
                }
            }
        }
    }
}

#[test]
fn ranks_and_batch_sizes_share_one_order_and_resume_anywhere() {
    let dataset = Dataset::with_photos(PHOTOS, 60);
    let whole = keys(&dataset.read(Some("train"), 7, 3));
    let mut sorted = whole.clone();
    sorted.sort();
    sorted.dedup();
    assert_eq!(sorted.len(), whole.len(), "each sample once");
    assert_ne!(whole, keys(&dataset.read(Some("train"), 7, 4)), "the next epoch has another order");

    // Two batches of 10 on 2 ranks, then on 3 ranks with batches of 8 from the cursor.
    let mut seen = Vec::new();
    let mut cursor = None;
    for rank in 0..2 {
        let reader = dataset.reader(Some("train"), Batching::new(10, rank, 2, Tail::Pad).unwrap(), None);
        for batch in reader.epoch(3, 0).unwrap().take(2) {
            let batch = batch.unwrap();
            assert_eq!(batch.padding, 0);
            seen.extend(keys(&[batch.rows]));
            cursor = Some(reader.cursor(3, batch.next));
        }
    }
    let saved = cursor.unwrap().to_json().unwrap();
    assert!(saved.len() < 1024);
    let mut rest = Vec::new();
    for rank in 0..3 {
        let reader = dataset.reader(Some("train"), Batching::new(8, rank, 3, Tail::Pad).unwrap(), None);
        let cursor = forebay::plan::order::cursor::Cursor::parse(&saved).unwrap();
        let (epoch, position, _) = reader.resume(&cursor).unwrap();
        assert_eq!((epoch, position), (3, 20));
        for batch in reader.epoch(epoch, position).unwrap() {
            let batch = batch.unwrap();
            let keep = batch.rows.num_rows() - batch.padding;
            rest.extend(keys(&[batch.rows.slice(0, keep)]));
        }
    }
    let mut all: Vec<String> = seen.into_iter().chain(rest).collect();
    all.sort();
    assert_eq!(all, sorted);
}

#[test]
fn a_sample_that_fails_at_a_later_stage_keeps_no_earlier_one_from_being_stored() {
    let pipeline = PHOTOS.replace("shorter_side: 40", "shorter_side: 16").replace("entries: 8", "entries: 100");
    let dataset = Dataset::new(&pipeline);
    let folder = dataset.path().join("photos/cat");
    std::fs::create_dir_all(&folder).unwrap();
    // Large enough to be computed in several groups, most of them after one with a failure.
    for number in 0..16 {
        std::fs::write(folder.join(format!("{number}.jpg")), photo(number, 400, 500)).unwrap();
    }
    for number in 0..4 {
        std::fs::write(folder.join(format!("thin{number}.jpg")), photo(number, 5000, 1)).unwrap();
    }
    let done = dataset.materialize(&["decode", "resize"], None).unwrap();
    let failed: Vec<&str> = done.outcome.failures.iter().map(|f| f.key.as_str()).collect();
    assert_eq!(failed, ["cat/thin0.jpg", "cat/thin1.jpg", "cat/thin2.jpg", "cat/thin3.jpg"]);
    assert!(done.outcome.errors.is_empty(), "{:?}", done.outcome.errors);
    let stored: u64 = done.outcome.records[0].values().map(|record| record.rows).sum();
    assert_eq!((stored, done.manifests[0].is_some(), done.manifests[1].is_some()), (20, true, false));
}

#[test]
fn a_failed_sample_is_named_and_keeps_its_place_where_failures_are_kept() {
    let dataset = Dataset::with_photos(PHOTOS, 16);
    std::fs::write(dataset.path().join("photos/cat/bad.jpg"), b"no image").unwrap();
    let done = dataset.materialize(&["resize"], None).unwrap();
    assert_eq!(done.outcome.failed_rows, 1);
    assert_eq!(done.outcome.failures[0].key, "cat/bad.jpg");
    assert!(done.outcome.failures[0].reason.starts_with("image.decode: "), "{}", done.outcome.failures[0].reason);
    assert!(done.manifests[0].is_none(), "a stage with failures is not whole");
    assert!(done.outcome.computed_shards > 0, "the other shards are stored");

    let kept = PHOTOS.to_owned() + "on_error: keep\nmax_errors: 10%\n";
    std::fs::write(&dataset.file, kept).unwrap();
    let done = dataset.materialize(&["resize"], None).unwrap();
    assert!(done.manifests[0].is_some());
    // One pass from the source and one from what is stored: the sample fails in both.
    let both = dataset.materialize(&["decode", "index"], None).unwrap();
    assert_eq!((both.outcome.failed_rows, both.outcome.failures.len()), (1, 1));
    let rows: usize = ["train", "val"].iter().flat_map(|s| dataset.read(Some(s), 4, 0)).map(|b| b.num_rows()).sum();
    assert_eq!(rows, 17);
    let batches: Vec<_> = ["train", "val"].iter().flat_map(|s| dataset.read(Some(s), 100, 0)).collect();
    let failed: Vec<_> = batches
        .iter()
        .flat_map(|b| {
            (0..b.num_rows()).filter(|i| b.column(1).is_valid(*i)).map(|i| (b.clone(), i)).collect::<Vec<_>>()
        })
        .collect();
    assert_eq!(failed.len(), 1);
    let (batch, row) = &failed[0];
    assert_eq!(batch.column(0).as_string::<i64>().value(*row), "cat/bad.jpg");
    assert!(batch.column_by_name("image").unwrap().is_null(*row));
}
