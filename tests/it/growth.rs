//! A source that lives: entries come, change and go, files grow at their end, a mount is empty for a moment. Work is in
//! proportion to the change, what was stored stays, and `explain` says what became of it.

use crate::fixture::{Dataset, PHOTOS, forebay, photo, store_at, succeed};
use crate::store::data::{assert_sound, open};
use arrow::array::RecordBatch;
use forebay::app::open::{Opened, Reading, Which, from_file, from_store};
use forebay::engine::pool::Pool;
use forebay::id::SnapshotId;
use forebay::plan::order::batch::{Batching, Tail};
use serde_json::Value;
use std::fs;
use std::io::Write;
use std::path::Path;

const FILE: &str = "pipeline.yaml";

fn json(at: &Path, arguments: &[&str]) -> Value {
    serde_json::from_str(&succeed(at, &[arguments, &["--json"]].concat())).unwrap()
}

/// Exit code, standard output and standard error.
fn run(at: &Path, arguments: &[&str]) -> (i32, String, String) {
    let output = forebay(at, arguments);
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (output.status.code().unwrap(), text(output.stdout), text(output.stderr))
}

/// Stores and compares with before: shards computed; entries added, changed, removed; partitions that stay, are new, are gone.
fn advance(at: &Path) -> (u64, [u64; 3], [u64; 3]) {
    let stored = json(at, &["materialize", FILE, "--stage", "concatenated"]);
    assert_eq!(stored["stages"][0]["complete"], true);
    let found = json(at, &["explain", FILE, "--from", "previous"]);
    let number = |value: &Value| value.as_u64().unwrap();
    let entries = ["added", "changed", "removed"].map(|kind| number(&found[kind]["entries"]));
    let partitions = ["stay", "new", "gone"].map(|kind| number(&found["partitions"][kind]));
    let stage = &found["stages"][0];
    for (kind, partitions) in ["stay", "new", "gone"].into_iter().zip(partitions) {
        assert_eq!(
            (number(&stage[kind]["shards"]), number(&stage[kind]["stored"])),
            (partitions, partitions),
            "{kind}"
        );
    }
    let rows = [&found["from"]["entries"], &found["to"]["entries"]].map(number);
    assert_eq!(rows[0] + entries[0], rows[1] + entries[2]);
    assert_eq!(number(&found["same"]), rows[1] - entries[0] - entries[1]);
    (number(&stored["computed_shards"]), entries, partitions)
}

#[test]
fn of_a_hundred_thousand_files_only_what_changed_is_computed() {
    let dataset = Dataset::new("name: texts\nsource: { files: texts }\npartition: { entries: 512, bytes: 1gb }\n");
    let at = dataset.path();
    let name = |number: usize| at.join(format!("texts/{:02}/{number:06}.txt", number % 100));
    for folder in 0..100 {
        fs::create_dir_all(at.join(format!("texts/{folder:02}"))).unwrap();
    }
    for number in 0..100_000 {
        fs::write(name(number), format!("sample {number}")).unwrap();
    }
    let first = json(at, &["materialize", FILE, "--stage", "concatenated"]);
    let partitions = first["computed_shards"].as_u64().unwrap();
    assert!(partitions >= 100_000 / 512 && first["stages"][0]["rows"] == 100_000, "{first}");

    let add = |range: std::ops::Range<usize>| range.for_each(|n| fs::write(name(n), format!("sample {n}")).unwrap());
    let change = |range: std::ops::Range<usize>| range.for_each(|n| fs::write(name(n), "changed").unwrap());
    let remove = |range: std::ops::Range<usize>| range.for_each(|n| fs::remove_file(name(n)).unwrap());
    let mut before = partitions;
    let mut check = |changed: [usize; 3]| {
        let (computed, entries, [stay, new, gone]) = advance(at);
        assert_eq!(entries, changed.map(|count| count as u64));
        // One partition each, two at a split or merge.
        let most = 2 * changed.iter().sum::<usize>() as u64;
        assert!(computed <= most && computed == new && gone <= most, "{computed} {new} {gone} of {changed:?}");
        assert_eq!(stay + gone, before);
        before = stay + new;
    };
    add(100_000..100_010);
    check([10, 0, 0]);
    change(500..503);
    remove(2000..2010);
    check([0, 3, 10]);
    // And back: what was stored before is there.
    remove(100_000..100_010);
    add(500..503);
    add(2000..2010);
    let again = json(at, &["materialize", FILE, "--stage", "concatenated"]);
    assert_eq!((&again["computed_shards"], &again["stages"][0]["shards"]), (&0.into(), &partitions.into()));
}

/// The bytes of a file of `rows` rows, of which those of fewer rows are the beginning, but for an archive's end.
type Content = fn(usize) -> Vec<u8>;

fn archive(samples: usize) -> Vec<u8> {
    let mut tar = tar::Builder::new(Vec::new());
    for number in 0..samples {
        let bytes = format!("sample {number}");
        let mut header = tar::Header::new_ustar();
        header.set_size(bytes.len() as u64);
        header.set_mode(0o644);
        header.set_cksum();
        tar.append_data(&mut header, format!("{number:06}.txt"), bytes.as_bytes()).unwrap();
    }
    tar.into_inner().unwrap()
}

#[test]
fn of_a_file_that_grows_only_what_is_new_is_keyed_and_computed() {
    // What is appended, entries of the file and their partitions: for blocks of 1,000 rows, two a partition, and for samples.
    let lines: Content =
        |rows| (0..rows).flat_map(|i| format!("{{\"id\": {i}, \"text\": \"t{i}\"}}\n").into_bytes()).collect();
    let sheet: Content = |rows| {
        let rows = (0..rows).flat_map(|i| format!("{i},t{i}\n").into_bytes());
        b"id,text\n".iter().copied().chain(rows).collect()
    };
    let blocks = [
        // 3 blocks; a longer third and a fourth; three more behind; nothing.
        (2500, [3, 0, 0], [0, 2, 0], 2),
        (3100, [1, 1, 0], [1, 1, 1], 1),
        (7000, [3, 1, 0], [1, 3, 1], 3),
    ];
    let samples =
        [(2500, [2500, 0, 0], [0, 3, 0], 3), (3100, [600, 0, 0], [2, 2, 1], 2), (7000, [3900, 0, 0], [3, 4, 1], 4)];
    for (source, name, content, entries, growth) in [
        ("jsonl: data.jsonl", "data.jsonl", lines, 2, blocks),
        ("csv: data.csv", "data.csv", sheet, 2, blocks),
        ("tar: data.tar", "data.tar", archive as Content, 1000, samples),
    ] {
        let dataset = Dataset::new(&format!(
            "name: grows\nsource: {{ {source} }}\npartition: {{ entries: {entries}, bytes: 1gb }}\n"
        ));
        let at = dataset.path();
        for (step, (rows, changed, partitions, computed)) in growth.into_iter().enumerate() {
            fs::write(at.join(name), content(rows)).unwrap();
            if step == 0 {
                let stored = json(at, &["materialize", FILE, "--stage", "concatenated"]);
                assert_eq!(
                    (&stored["computed_shards"], &stored["stages"][0]["rows"]),
                    (&computed.into(), &rows.into())
                );
                continue;
            }
            assert_eq!(advance(at), (computed, changed, partitions), "{name}, {rows} rows");
            assert_eq!(json(at, &["read", FILE, "--count"])["rows"], rows);
        }
        assert_sound(&open(&dataset.store()));
    }
}

#[test]
fn rows_with_keys_may_come_and_go_anywhere() {
    let dataset =
        Dataset::new("name: keyed\nsource: { jsonl: data.jsonl, key: id }\npartition: { entries: 64, bytes: 1gb }\n");
    let at = dataset.path();
    let write = |keys: &mut dyn Iterator<Item = usize>| {
        let mut file = fs::File::create(at.join("data.jsonl")).unwrap();
        keys.for_each(|key| writeln!(file, "{{\"id\": \"k{key:05}\", \"text\": \"t{key}\"}}").unwrap());
    };
    write(&mut (0..5000).map(|key| key * 2));
    let first = json(at, &["materialize", FILE, "--stage", "concatenated"])["computed_shards"].as_u64().unwrap();
    assert!(first >= 5000 / 64, "{first}");
    // One row inserted in the middle, one taken out at the front.
    write(&mut (1..5000).map(|key| key * 2).chain([5001]).collect::<std::collections::BTreeSet<_>>().into_iter());
    let (computed, entries, [_, new, _]) = advance(at);
    assert_eq!(entries, [1, 0, 1]);
    assert!(computed == new && computed <= 4, "{computed}");
}

#[test]
fn a_mount_that_is_empty_for_a_moment_loses_nothing() {
    let dataset = Dataset::with_photos(PHOTOS, 24);
    let at = dataset.path();
    succeed(at, &["materialize", FILE, "--stage", "index"]);
    let before = dataset.files();
    let read = ["read", FILE, "--split", "train", "--limit", "100", "--json"];
    let sound = succeed(at, &read);
    let [mounted, away] = ["photos", "away"].map(|name| at.join(name));
    let each_is_refused = |what: &str| {
        for command in [&["materialize", FILE][..], &["snapshot", FILE], &["materialize", FILE, "--stage", "all"]] {
            let (code, _, err) = run(at, command);
            assert_eq!(code, 1, "{what}: {command:?}: {err}");
            assert_eq!(dataset.files(), before, "{what}: {command:?}");
        }
        // What is stored is read and stored further by what goes by the last listing.
        assert_eq!(succeed(at, &read), sound, "{what}");
        let worker = json(at, &["materialize", FILE, "--stage", "index", "--worker", "0/1"]);
        assert_eq!(worker["computed_shards"], 0);
    };
    fs::rename(&mounted, &away).unwrap();
    each_is_refused("not there");
    fs::create_dir(&mounted).unwrap();
    each_is_refused("empty");
    fs::create_dir(mounted.join("cat")).unwrap();
    fs::write(mounted.join("cat/other.jpg"), photo(900, 48, 64)).unwrap();
    each_is_refused("another");
    fs::remove_dir_all(&mounted).unwrap();
    fs::rename(&away, &mounted).unwrap();
    let again = json(at, &["materialize", FILE, "--stage", "index"]);
    assert_eq!((&again["computed_shards"], &again["stages"][0]["rows"]), (&0.into(), &24.into()));
    assert_eq!(dataset.files(), before);
}

#[test]
fn a_file_that_is_empty_for_a_moment_loses_nothing() {
    let dataset = Dataset::new("name: lines\nsource: { jsonl: data.jsonl }\npartition: { entries: 2, bytes: 1gb }\n");
    let at = dataset.path();
    let lines: String = (0..2500).map(|i| format!("{{\"id\": {i}}}\n")).collect();
    fs::write(at.join("data.jsonl"), &lines).unwrap();
    succeed(at, &["materialize", FILE, "--stage", "concatenated"]);
    let before = dataset.files();
    for content in ["", "{\"id\": 0}\n"] {
        fs::write(at.join("data.jsonl"), content).unwrap();
        for command in [&["materialize", FILE, "--stage", "concatenated"][..], &["snapshot", FILE]] {
            let (code, _, err) = run(at, command);
            assert!(code == 1 && dataset.files() == before, "{content:?}: {command:?}: {code} {err}");
            assert!(err.contains("--replace"), "{content:?}: {command:?}: {err}");
        }
    }
    fs::write(at.join("data.jsonl"), &lines).unwrap();
    assert_eq!(json(at, &["materialize", FILE, "--stage", "concatenated"])["computed_shards"], 0);
    assert_eq!(dataset.files(), before);
}

/// Every sample of a split in order, served from what is stored.
fn samples(opened: &Opened) -> Vec<RecordBatch> {
    let batching = Batching::new(7, 0, 1, Tail::Short).unwrap();
    let reading = Reading { split: Some("val"), stage: None, batching, shuffle: Some(false), seed: 7, prefetch: 0 };
    let reader = opened.reader(&reading, Pool::new(2).unwrap()).unwrap();
    let batches = reader.epoch(1, 0).unwrap().map(|batch| batch.unwrap().rows).collect();
    assert!(reader.origins().unwrap().iter().all(|origin| origin.stage.as_deref() == Some("index")));
    assert_eq!(reader.take_warnings(), [""; 0]);
    batches
}

#[test]
fn old_snapshots_are_read_after_newer_ones() {
    let dataset = Dataset::with_photos(&PHOTOS.replace("hash(key) % 5 == 0", "hash(key) % 5 != 9"), 24);
    let at = dataset.path();
    let from_file = |id| dataset.surrounded(|s| from_file(&dataset.file, Which::Id(id), 1, s)).unwrap();
    let from_store = |id| from_store(store_at(dataset.store().to_str().unwrap()), "photos", Which::Id(id)).unwrap();
    let mut kept: Vec<(SnapshotId, Vec<RecordBatch>)> = Vec::new();
    for round in 0..4 {
        match round {
            1 => fs::write(at.join("photos/cat/new.jpg"), photo(700, 48, 64)).unwrap(),
            2 => fs::write(at.join("photos/dog/0001.jpg"), photo(701, 48, 64)).unwrap(),
            3 => fs::remove_file(at.join("photos/owl/0002.jpg")).unwrap(),
            _ => {}
        }
        succeed(at, &["materialize", FILE, "--stage", "index"]);
        let opened = dataset.open();
        let rows = samples(&opened);
        assert!(kept.iter().all(|(id, before)| *id != opened.snapshot.id && *before != rows), "round {round}");
        kept.push((opened.snapshot.id, rows));
        for (id, rows) in &kept {
            assert_eq!(&samples(&from_file(*id)), rows, "round {round}");
        }
    }
    assert_eq!(
        kept.iter().map(|(_, rows)| rows.iter().map(RecordBatch::num_rows).sum()).collect::<Vec<usize>>(),
        [24, 25, 25, 24]
    );
    // Also where the files are gone, and from the store alone.
    fs::rename(at.join("photos"), at.join("away")).unwrap();
    for (id, rows) in &kept {
        assert_eq!((&samples(&from_file(*id)), &samples(&from_store(*id))), (rows, rows));
    }
}
