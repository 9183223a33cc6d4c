//! Damage of every kind is found by name, and repairing leaves what the next writer needs to heal the store.

use super::data::*;
use forebay::error::Kind;
use forebay::format::document::Document;
use forebay::format::head::{ManifestHead, OrderHead, SnapshotHead};
use forebay::format::name::Name;
use forebay::format::record::Record;
use forebay::id::Digest;
use forebay::store::Store;
use forebay::store::verify::{Finding, Options, verify};
use std::fs;
use std::path::PathBuf;
use std::sync::Mutex;

const COUNT: u64 = 3;
const LENGTH: usize = 3000;

struct Dataset {
    _keep: tempfile::TempDir,
    store: Store,
    root: PathBuf,
}

fn dataset() -> Dataset {
    let (keep, store) = fresh();
    put_dataset(&store, COUNT, LENGTH).unwrap();
    assert_sound(&store);
    Dataset { root: keep.path().join("store"), _keep: keep, store }
}

impl Dataset {
    fn path(&self, name: &str) -> PathBuf {
        self.root.join(name)
    }
    /// Object, expected and found of each finding.
    fn findings(&self) -> Vec<Finding> {
        check(&self.store, false).findings
    }
    fn only_finding(&self) -> Finding {
        let mut findings = self.findings();
        assert_eq!(findings.len(), 1, "{findings:#?}");
        findings.remove(0)
    }
    /// Repairs, does again what a materialize does, and expects the store to be as new.
    fn heal(&self) {
        assert!(check(&self.store, true).findings.iter().all(|f| f.repaired.is_some()));
        put_dataset(&self.store, COUNT, LENGTH).unwrap();
        let (keep, other) = fresh();
        put_dataset(&other, COUNT, LENGTH).unwrap();
        assert_eq!(files(&self.root), files(&keep.path().join("store")));
        assert_sound(&self.store);
    }
}

#[test]
fn a_flipped_byte_anywhere_in_a_blob_is_found_with_its_chunk() {
    let data = dataset();
    let bytes = &blobs(1, LENGTH)[0];
    let (name, n) = (blob_name(bytes), bytes.len());
    for (at, where_) in [
        (0, "only bytes between the chunks"),
        (2, "chunk 0 head"),
        (10, "chunk 0 column 0"),
        (n / 2 - 1, "chunk 0 column 0"),
        (n / 2 + 2, "chunk 1 head"),
        (n - 21, "chunk 1 column 0"),
        (n - 20, "footer"),
        (n - 1, "footer"),
    ] {
        let mut flipped = bytes.clone();
        flipped[at] ^= 0x40;
        fs::write(data.path(&name), &flipped).unwrap();
        let finding = data.only_finding();
        assert_eq!(finding.object, name);
        assert_eq!(finding.expected, format!("bytes whose digest is {}", Digest::of(bytes)));
        assert_eq!(finding.found, format!("{}; not as recorded: {where_}", Digest::of(&flipped)), "byte {at}");
        data.heal();
    }
}

#[test]
fn a_blob_of_many_blocks_is_read_span_by_span() {
    let (keep, store) = fresh();
    let length = (3 << 20) + 12_345;
    put_shard(&store, 0, length).unwrap();
    let verified = check(&store, false);
    assert_eq!((verified.findings, verified.parts_read, verified.bytes_read), (vec![], 2, 2 * length as u64 + 1));
    let mut bytes = blobs(0, length).remove(0);
    let path = keep.path().join("store").join(blob_name(&bytes));
    let last = bytes.len() - 21;
    bytes[last] ^= 1;
    fs::write(path, &bytes).unwrap();
    let found = check(&store, false).findings.remove(0).found;
    assert!(found.ends_with("not as recorded: chunk 1 column 0"), "{found}");
}

#[test]
fn a_blob_that_is_missing_shorter_longer_or_another_is_found() {
    let data = dataset();
    let bytes = &blobs(2, LENGTH)[1];
    let name = blob_name(bytes);
    fs::remove_file(data.path(&name)).unwrap();
    let finding = data.only_finding();
    assert_eq!((finding.object, finding.found), (record_name(2), "no such blob".into()));
    assert_eq!(finding.expected, format!("its part {name}"));
    data.heal();

    for found in [bytes[..LENGTH - 7].to_vec(), [bytes.as_slice(), b"more"].concat(), Vec::new()] {
        fs::write(data.path(&name), &found).unwrap();
        let finding = data.only_finding();
        assert_eq!((finding.object, finding.found), (name.clone(), format!("{} bytes", found.len())));
        assert_eq!(finding.expected, format!("{} bytes", bytes.len()));
        data.heal();
    }

    // Another valid blob, of the same length.
    let other = &blobs(1, LENGTH)[1];
    fs::copy(data.path(&blob_name(other)), data.path(&name)).unwrap();
    let finding = data.only_finding();
    assert_eq!(
        (finding.object, finding.expected),
        (name.clone(), format!("bytes whose digest is {}", Digest::of(bytes)))
    );
    let all = "chunk 0 head, chunk 0 column 0, chunk 1 head and 2 more of 7 spans";
    assert_eq!(finding.found, format!("{}; not as recorded: {all}", Digest::of(other)));
    data.heal();

    fs::remove_file(data.path(&name)).unwrap();
    fs::create_dir(data.path(&name)).unwrap();
    let finding = data.only_finding();
    assert_eq!(finding.object, name);
    assert!(finding.found.contains("is not a file"), "{finding:?}");
    data.heal();
}

#[test]
fn a_record_truncated_at_any_byte_is_corrupt_and_replaced() {
    let data = dataset();
    let path = data.path(&record_name(1));
    let sound = fs::read(&path).unwrap();
    // Without the newline at the end it is still whole.
    for length in 0..sound.len() - 1 {
        fs::write(&path, &sound[..length]).unwrap();
        let error = data.store.record(recipe(), encoding(), shard(1)).unwrap_err();
        assert_eq!(error.kind(), Kind::Corrupt, "{length} bytes");
        assert!(error.message().contains(&record_name(1)), "{error}");
    }
    let findings = data.findings();
    assert_eq!(findings.len(), 2, "{findings:#?}");
    assert_eq!(findings[1].object, record_name(1));
    assert!(
        findings[0].found.contains(&record_name(1)),
        "the manifest says which of its shards: {}",
        findings[0].found
    );
    data.heal();
}

#[test]
fn a_flipped_byte_in_a_record_is_never_believed_wrongly() {
    let data = dataset();
    let path = data.path(&record_name(1));
    let sound = without_what_nobody_relies_on(record(1, &blobs(1, LENGTH)));
    let bytes = fs::read(&path).unwrap();
    let mut found = 0;
    for at in (0..bytes.len()).step_by(3) {
        let mut flipped = bytes.clone();
        flipped[at] ^= 1;
        fs::write(&path, &flipped).unwrap();
        let believed = data.store.record(recipe(), encoding(), shard(1));
        let harmless = believed.is_ok_and(|record| without_what_nobody_relies_on(record.unwrap()) == sound);
        if !harmless {
            found += 1;
            assert!(data.findings().iter().any(|f| f.object.starts_with("v1/")), "byte {at} of {}", bytes.len());
        }
    }
    assert!(found > bytes.len() / 6, "{found} of {}", bytes.len());
    fs::write(&path, bytes).unwrap();
    assert_sound(&data.store);
}

/// The measured seconds, and where the spans of no bytes lie.
fn without_what_nobody_relies_on(mut record: Record) -> Record {
    record.seconds = 0.0;
    for chunk in record.parts.iter_mut().flat_map(|part| &mut part.chunks) {
        chunk.columns.iter_mut().filter(|span| span.bytes == 0).for_each(|span| span.offset = 0);
    }
    record
}

#[test]
fn a_record_that_contradicts_a_good_blob_is_the_bad_one() {
    let data = dataset();
    let mut record = record(1, &blobs(1, LENGTH));
    record.parts[0].chunks[1].columns[0].digest = Digest::of(b"x");
    fs::write(data.path(&record_name(1)), record.to_json()).unwrap();
    let finding = data.only_finding();
    assert_eq!(finding.object, record_name(1));
    assert_eq!(finding.found, "others: chunk 1 column 0");
    data.heal();

    fs::copy(data.path(&record_name(0)), data.path(&record_name(1))).unwrap();
    let findings = data.findings();
    assert_eq!(findings[1].object, record_name(1));
    assert!(findings[1].found.contains("belongs elsewhere"), "{findings:#?}");
    data.heal();
}

#[test]
fn heads_and_tables_are_verified() {
    let data = dataset();
    let objects: Vec<String> = data.store.storage().list("v1").unwrap().into_iter().map(|o| o.name).collect();
    let heads = objects.iter().filter(|o| o.ends_with(".json") && !o.contains("/shards/"));
    assert_eq!(heads.clone().count(), 5);
    for head in heads {
        fs::write(data.path(head), b"{\"version\": 1").unwrap();
        assert_eq!(&data.only_finding().object, head);
        data.heal();
    }
    let tables: Vec<&String> = objects.iter().filter(|o| o.ends_with(".parquet")).collect();
    assert_eq!(tables.len(), 3);
    for table in tables {
        let mut bytes = fs::read(data.path(table)).unwrap();
        let middle = bytes.len() / 2;
        bytes[middle] ^= 1;
        fs::write(data.path(table), &bytes).unwrap();
        let finding = data.only_finding();
        assert_eq!(&finding.object, table);
        assert!(finding.expected.contains("named by v1/"), "{finding:?}");
        fs::remove_file(data.path(table)).unwrap();
        let finding = data.only_finding();
        assert!(finding.object.ends_with(".json") && finding.expected.starts_with("a table of"), "{finding:?}");
        check(&data.store, true);
        put_dataset(&data.store, COUNT, LENGTH).unwrap();
        assert_sound(&data.store);
    }
}

#[test]
fn a_manifest_must_add_up_and_agree_with_the_records() {
    let data = dataset();
    let name = Name::Manifest { recipe: recipe(), encoding: encoding(), snapshot: snapshot(COUNT) }.to_string();
    let (head, _) = data.store.manifest(recipe(), encoding(), snapshot(COUNT)).unwrap().unwrap();
    let untrue = ManifestHead { bytes: head.bytes + 1, ..head };
    fs::write(data.path(&name), untrue.to_json()).unwrap();
    let finding = data.only_finding();
    assert_eq!(finding.object, name);
    assert_eq!(finding.found, format!("60 rows, {} bytes, 3 failed rows", head.bytes + 1));
    data.heal();

    fs::remove_file(data.path(&record_name(0))).unwrap();
    let finding = data.only_finding();
    assert_eq!(finding.object, name);
    assert_eq!(finding.found, format!("1 of them without, the first partition 0, {}", record_name(0)));
    data.heal();
}

#[test]
fn where_record_and_manifest_contradict_each_other_neither_is_kept() {
    let data = dataset();
    let untrue = Record { failed_rows: 7, ..record(1, &blobs(1, LENGTH)) };
    fs::write(data.path(&record_name(1)), untrue.to_json()).unwrap();
    let findings = data.findings();
    let objects: Vec<&str> = findings.iter().map(|finding| finding.object.as_str()).collect();
    let manifest = Name::Manifest { recipe: recipe(), encoding: encoding(), snapshot: snapshot(COUNT) }.to_string();
    assert_eq!(objects, [manifest, record_name(1)]);
    let said = |failed: u64| format!("20 rows, {} bytes, {failed} failed rows", untrue.bytes);
    assert_eq!(findings[1].expected, format!("what a manifest says of the same blobs: {}", said(1)));
    assert_eq!(findings[1].found, said(7));
    data.heal();
}

#[test]
fn what_a_snapshot_or_order_says_follows_from_its_rows() {
    let data = dataset();
    let found = |name: &Name, bytes: Vec<u8>| {
        fs::write(data.path(&name.to_string()), bytes).unwrap();
        let finding = data.only_finding();
        assert_eq!(finding.object, name.to_string());
        data.heal();
        finding.found
    };
    let head = data.store.current_snapshot("photos").unwrap().unwrap();
    let name = Name::Snapshot { pipeline: "photos".parse().unwrap(), seq: 1, snapshot: head.snapshot };
    let changed = |change: fn(&mut SnapshotHead)| {
        let mut head = head.clone();
        change(&mut head);
        found(&name, head.to_json())
    };
    assert_eq!(changed(|head| head.partitions -= 1), "2 partitions, 3 rows, 300 bytes");
    assert_eq!(changed(|head| head.rows += 1), "3 partitions, 4 rows, 300 bytes");
    assert_eq!(changed(|head| head.bytes += 1), "3 partitions, 3 rows, 301 bytes");
    assert_eq!(changed(|head| head.listed_ms = i64::MAX), format!("listed_ms: {}", i64::MAX));
    assert!(changed(|head| head.table.bytes += 1).contains("bytes; expected"));

    let (head, _) = data.store.order(recipe(), snapshot(COUNT)).unwrap().unwrap();
    let name = Name::Order { recipe: recipe(), snapshot: snapshot(COUNT) };
    let changed = |change: fn(&mut OrderHead)| {
        let mut head = head.clone();
        change(&mut head);
        found(&name, head.to_json())
    };
    assert_eq!(changed(|head| head.rows += 1), "61 rows");
    assert_eq!(changed(|head| head.order = order_id(9)), format!("the order {}", order_id(9)));
    assert_eq!(changed(|head| head.table.rows += 1), "the table has 3 rows; its head expects 4");
}

#[test]
fn a_snapshot_must_be_of_its_entries() {
    let data = dataset();
    let mut head = snapshot_head(COUNT, 1000);
    let mut others = entries(COUNT);
    others.entries[1].key = "other.jpg".into();
    head.table = data.store.put_table(others.encode().unwrap(), COUNT).unwrap();
    let name = Name::Snapshot { pipeline: "photos".parse().unwrap(), seq: 2, snapshot: head.snapshot }.to_string();
    data.store.storage().put(&head.to_json(), &name, false).unwrap();
    let finding = data.only_finding();
    assert_eq!((finding.object, finding.expected), (name, format!("a table of entries whose id is {}", head.snapshot)));
    assert!(check(&data.store, true).findings[0].repaired.is_some());
    assert_eq!(data.findings(), []);
}

#[test]
fn reports_are_removed_once_their_blob_is_good_or_gone() {
    let data = dataset();
    let (good, gone) = (&blobs(1, LENGTH)[0], random(99, 100));
    for bytes in [good, &gone] {
        data.store.report(&report(bytes, 1)).unwrap();
    }
    let findings = data.findings();
    let mut found: Vec<&str> = findings.iter().map(|f| f.found.as_str()).collect();
    found.sort();
    assert_eq!(found, ["the blob is good", "there is no such blob"]);
    // Reported blobs are read even when a sample is asked for that has none.
    let options = |share| Options { share, seed: 1, threads: 1, repair: false, progress: &|_, _| {} };
    let verified = verify(&data.store, &options(0.0)).unwrap();
    assert_eq!((verified.parts_read, verified.findings), (1, findings));
    data.heal();
    assert_eq!(data.store.reports().unwrap(), []);

    // A report of a blob that is bad stays until that is replaced.
    fs::write(data.path(&blob_name(good)), random(5, LENGTH)).unwrap();
    for _ in 0..2 {
        let findings = check(&data.store, true).findings;
        assert_eq!(findings.len(), 1);
        assert_eq!(findings[0].repaired, Some("reported: the next materialize replaces it"));
        assert_eq!(data.store.reports().unwrap().len(), 1);
    }
    data.heal();
}

#[test]
fn what_nothing_refers_to_is_counted_and_left_alone() {
    let data = dataset();
    put_blob(&data.store, &random(50, 700)).unwrap();
    fs::write(data.path("v1/notes.txt"), b"mine").unwrap();
    let before = files(&data.root);
    let verified = check(&data.store, true);
    assert_eq!(verified.findings, []);
    assert_eq!((verified.orphans, verified.orphan_bytes, verified.strangers), (1, 700, 1));
    assert_eq!((verified.heads, verified.records, verified.parts_read), (5, 3, 6));
    assert_eq!(files(&data.root), before);
}

#[test]
fn a_sample_reads_its_share_and_progress_counts_records() {
    let (_keep, store) = fresh();
    (0..40).for_each(|i| drop(put_shard(&store, i, 100).unwrap()));
    let seen = Mutex::new(Vec::new());
    let progress = |done, total| seen.lock().unwrap().push((done, total));
    let read = |share, seed| {
        let options = Options { share, seed, threads: 2, repair: false, progress: &progress };
        verify(&store, &options).unwrap().parts_read
    };
    assert_eq!((read(0.0, 1), read(1.0, 1)), (0, 80));
    let half = [read(0.5, 1), read(0.5, 1), read(0.5, 2)];
    assert!(half.iter().all(|n| (20..60).contains(n)) && half[0] == half[1], "{half:?}");
    let mut seen = seen.into_inner().unwrap();
    seen.truncate(40);
    seen.sort();
    assert_eq!(seen, (1..=40).map(|i| (i, 40)).collect::<Vec<_>>());
}

#[test]
fn what_a_newer_version_wrote_is_named_and_kept() {
    let data = dataset();
    let path = data.path(&record_name(1));
    let newer = fs::read_to_string(&path).unwrap().replace("\"version\": 1", "\"version\": 2");
    fs::write(&path, &newer).unwrap();
    let findings = check(&data.store, true).findings;
    let finding = findings.iter().find(|f| f.object == record_name(1)).unwrap();
    assert!(finding.found.contains("newer Forebay") && finding.repaired.is_none(), "{finding:?}");
    assert_eq!(fs::read_to_string(&path).unwrap(), newer);
}
