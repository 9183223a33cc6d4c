//! Publishing, reading back, adopting what others published.

use super::data::*;
use forebay::error::Kind;
use forebay::format::document::Document;
use forebay::format::head::{PipelineHead, Report, SnapshotHead};
use forebay::format::name::Name;
use forebay::format::record::Record;
use forebay::format::shard::PartBytes;
use forebay::id::{Digest, SnapshotId};
use forebay::io::Access;
use forebay::store::Store;
use std::fs;
use std::io::Write;

#[test]
fn what_is_published_is_read_back_and_published_again_writes_nothing() {
    let (_keep, store) = fresh();
    let records = put_dataset(&store, 3, 5000).unwrap();
    let objects = store.storage().list("").unwrap();
    assert_eq!(put_dataset(&store, 3, 5000).unwrap(), records);
    assert_eq!(store.storage().list("").unwrap(), objects, "names, lengths and times are as before");

    let store = store.clone();
    assert_eq!(store.recipes().unwrap(), [recipe()]);
    assert_eq!(store.recipe(recipe()).unwrap(), Some(recipe_head()));
    assert_eq!(store.pipelines().unwrap(), ["photos"]);
    assert_eq!(store.pipeline("photos").unwrap(), Some(pipeline_head("name: photos\n")));
    let head = store.current_snapshot("photos").unwrap().unwrap();
    assert_eq!((head.snapshot, head.entries), (snapshot(3), 3));
    let all: Vec<SnapshotHead> = store.snapshots("photos").unwrap().map(|(_, head)| head.unwrap()).collect();
    assert_eq!(all, std::slice::from_ref(&head));
    assert_eq!(store.entries(&head).unwrap(), entries(3));
    assert_eq!(store.encodings(recipe()).unwrap(), [encoding()]);
    let mut shards: Vec<_> = records.iter().map(|r| r.shard).collect();
    shards.sort();
    assert_eq!(store.records(recipe(), encoding()).unwrap(), shards);
    for (number, record) in records.iter().enumerate() {
        assert_eq!(store.record(recipe(), encoding(), record.shard).unwrap().as_ref(), Some(record));
        assert!(store.sound(record).unwrap());
        for (part, bytes) in record.parts.iter().zip(blobs(number as u64, 5000)) {
            let PartBytes::Whole(found) = store.part(part, encoding().container).unwrap() else {
                panic!("it is local")
            };
            assert_eq!(found.as_slice(), bytes);
        }
    }
    let (order, rows) = store.order(recipe(), snapshot(3)).unwrap().unwrap();
    assert_eq!((order.order, order.rows, rows), (order_id(3), 60, order_rows(3)));
    let (manifest, rows) = store.manifest(recipe(), encoding(), snapshot(3)).unwrap().unwrap();
    assert_eq!((manifest.rows, manifest.bytes, manifest.failed_rows), (60, 30_003, 3));
    assert_eq!(rows, shard_rows(&records));
    assert_eq!(store.whole_snapshots(recipe(), encoding()).unwrap(), [manifest.snapshot]);

    let usage = store.usage().unwrap();
    let stage = &usage.stages[0];
    assert_eq!((usage.stages.len(), stage.recipe, stage.encoding), (1, recipe(), encoding()));
    assert_eq!((stage.shards, stage.parts, stage.bytes, stage.rows, stage.failed_rows), (3, 6, 30_003, 60, 3));
    assert_eq!((usage.blobs, usage.documents), (6 + 3, 3 + 5));
    assert_sound(&store);
}

#[test]
fn an_empty_store_is_one_that_holds_nothing_yet() {
    let (keep, store) = fresh();
    assert_eq!(store.recipes().unwrap(), []);
    assert_eq!(store.recipe(recipe()).unwrap(), None);
    assert_eq!(store.pipelines().unwrap(), [""; 0]);
    assert_eq!(store.pipeline("photos").unwrap(), None);
    assert_eq!(store.current_snapshot("photos").unwrap(), None);
    assert_eq!(store.record(recipe(), encoding(), shard(0)).unwrap(), None);
    assert_eq!(store.order(recipe(), snapshot(1)).unwrap(), None);
    assert_eq!(store.manifest(recipe(), encoding(), snapshot(1)).unwrap(), None);
    assert_eq!(store.reports().unwrap(), []);
    assert_eq!(store.part(&part(&random(0, 100)), encoding().container).unwrap_err().kind(), Kind::NotFound);
    assert_eq!(check(&store, true).findings, []);
    assert!(!keep.path().join("store").exists(), "reading makes nothing");
    assert_eq!(store.pipeline("../x").unwrap_err().kind(), Kind::Invalid);
}

#[test]
fn what_is_no_store_is_refused_with_a_reason() {
    let directory = tempfile::tempdir().unwrap();
    let refused = |name: &str| {
        let error = Store::open(directory.path().join(name).to_str().unwrap(), &Access::default()).unwrap_err();
        assert_eq!(error.kind(), Kind::Invalid);
        error.message().to_owned()
    };
    fs::write(directory.path().join("file"), b"x").unwrap();
    assert!(refused("file").contains("a file is in the place of a directory"));
    fs::create_dir_all(directory.path().join("photos/cats")).unwrap();
    assert!(refused("photos").contains("is no store: it holds \"cats\""));
    fs::remove_dir(directory.path().join("photos/cats")).unwrap();
    fs::write(directory.path().join("photos/a.jpg"), b"x").unwrap();
    assert!(refused("photos").contains("it holds \"a.jpg\""));
    fs::create_dir_all(directory.path().join("newer/v1")).unwrap();
    fs::create_dir_all(directory.path().join("newer/v2")).unwrap();
    assert!(refused("newer").contains("written by a newer Forebay: it holds v2/"));
    fs::create_dir_all(directory.path().join("disk/lost+found")).unwrap();
    fs::write(directory.path().join("disk/.gitignore"), b"*").unwrap();
    assert_eq!(open(&directory.path().join("disk")).recipes().unwrap(), []);
}

#[test]
fn snapshots_are_numbered_and_the_current_one_is_the_same_for_all() {
    let (keep, store) = fresh();
    let put = |count, listed| store.put_snapshot(snapshot_head(count, listed), &entries(count));
    let current = || store.current_snapshot("photos").unwrap().unwrap().snapshot;
    let names = || -> Vec<String> {
        store.storage().list("v1/pipelines/photos/snapshots").unwrap().into_iter().map(|o| o.name).collect()
    };
    let first = put(1, 1000).unwrap();
    assert_eq!(put(1, 1500).unwrap(), first, "the same snapshot: nothing written");
    assert_eq!(put(1, 500).unwrap(), first, "whenever it was listed");
    put(2, 2000).unwrap();
    put(1, 3000).unwrap();
    let seen: Vec<SnapshotId> = store.snapshots("photos").unwrap().map(|(id, _)| id).collect();
    assert_eq!(seen, [snapshot(1), snapshot(2), snapshot(1)]);
    assert_eq!(names().len(), 3);

    let error = put(3, 2999).unwrap_err();
    assert_eq!(error.kind(), Kind::Conflict);
    assert!(error.message().contains("whose listing began later is there"), "{error}");
    assert_eq!(names().len(), 3);

    // Another reader found the same entries: that is news.
    let mut other = snapshot_head(1, 3500);
    other.reader = serde_json::json!({"kind": "tar"});
    assert_eq!(store.put_snapshot(other.clone(), &entries(1)).unwrap().reader, other.reader);
    assert_eq!(store.current_snapshot("photos").unwrap().unwrap().reader, other.reader);

    // Two writers took number 4 at the same time.
    let [low, high] = if snapshot(5) < snapshot(6) { [5, 6] } else { [6, 5] };
    let race = |count: u64, listed| {
        let mut head = snapshot_head(count, listed);
        head.table = store.put_table(entries(count).encode().unwrap(), count).unwrap();
        let name = Name::Snapshot { pipeline: "photos".parse().unwrap(), seq: 5, snapshot: head.snapshot };
        store.storage().put(&head.to_json(), &name.to_string(), false).unwrap();
    };
    race(high, 9000);
    assert_eq!(current(), snapshot(high));
    race(low, 8000);
    assert_eq!(current(), snapshot(low), "highest number, then lowest id");
    assert_eq!(put(7, 8500).unwrap_err().kind(), Kind::Conflict, "neither may be older than what is listed");
    put(7, 9500).unwrap();
    assert_eq!(current(), snapshot(7));

    // A damaged newest head is an error that names it; the next one takes its place.
    let newest = names().pop().unwrap();
    fs::write(keep.path().join("store").join(&newest), b"{").unwrap();
    let error = store.current_snapshot("photos").unwrap_err();
    assert_eq!(error.kind(), Kind::Corrupt);
    assert!(error.message().contains(&newest), "{error}");
    put(8, 9600).unwrap();
    assert_eq!(current(), snapshot(8));
}

#[test]
fn a_listing_from_the_future_is_in_nobodys_way() {
    let (_keep, store) = fresh();
    let put = |count, listed| store.put_snapshot(snapshot_head(count, listed), &entries(count));
    let current = || store.current_snapshot("photos").unwrap().unwrap();
    let now = store.storage().now_ms().unwrap();
    let (minute, hour) = (60_000, 3_600_000);
    put(1, now + minute).unwrap();
    assert_eq!(put(2, now).unwrap_err().kind(), Kind::Conflict, "clocks that differ a little");
    put(1, now + hour).unwrap();
    assert_eq!(current().listed_ms, now + minute, "what is there says the same");

    put(3, now + hour).unwrap();
    put(2, now).unwrap();
    assert_eq!((current().snapshot, current().listed_ms), (snapshot(2), now));
    put(3, now + hour).unwrap();
    put(3, now + 1).unwrap();
    assert_eq!((current().snapshot, current().listed_ms), (snapshot(3), now + 1), "replaced");
    let objects = store.storage().list("v1/pipelines/photos/snapshots").unwrap();
    assert_eq!(objects.len(), 4);
}

#[test]
fn a_record_that_contradicts_what_was_just_computed_is_replaced() {
    let (keep, store) = fresh();
    let computed = put_shard(&store, 0, 3000).unwrap();
    let path = keep.path().join("store").join(record_name(0));
    let changes: [fn(&mut Record); 3] = [
        |record| record.failed_rows = 9,
        |record| record.parts[0].chunks[0].columns[0].digest = Digest::of(b"others"),
        |record| record.parts[1].footer.offset -= 1,
    ];
    for change in changes {
        let mut untrue = computed.clone();
        change(&mut untrue);
        untrue.parts.iter_mut().for_each(|part| part.footer.bytes = part.bytes - part.footer.offset);
        fs::write(&path, untrue.to_json()).unwrap();
        assert_eq!(store.record(recipe(), encoding(), shard(0)).unwrap().unwrap(), untrue, "sound by itself");
        assert_eq!(store.put_record(&computed).unwrap(), computed);
        assert_eq!(store.record(recipe(), encoding(), shard(0)).unwrap().unwrap(), computed);
    }
}

#[test]
fn a_lost_or_damaged_table_is_published_again() {
    let (keep, store) = fresh();
    let head = store.put_snapshot(snapshot_head(4, 1000), &entries(4)).unwrap();
    let path = keep.path().join("store").join(Name::table(head.table.blob).to_string());
    let bytes = fs::read(&path).unwrap();
    let mut flipped = bytes.clone();
    flipped[bytes.len() / 2] ^= 1;
    for damage in [Some(flipped), Some(b"short".to_vec()), None] {
        match damage {
            Some(bytes) => fs::write(&path, bytes).unwrap(),
            None => fs::remove_file(&path).unwrap(),
        }
        assert!(store.entries(&head).is_err());
        store.put_snapshot(snapshot_head(4, 2000), &entries(4)).unwrap();
        assert_eq!(store.entries(&head).unwrap(), entries(4));
        assert_eq!(fs::read(&path).unwrap(), bytes);
    }
}

#[test]
fn pipelines_are_appended_when_they_change() {
    let (_keep, store) = fresh();
    for text in ["one", "one", "two", "two", "one"] {
        store.put_pipeline(&pipeline_head(text)).unwrap();
        assert_eq!(store.pipeline("photos").unwrap().unwrap().text, text);
    }
    assert_eq!(store.storage().list("v1/pipelines/photos").unwrap().len(), 3);
}

#[test]
fn a_head_under_anothers_name_is_not_believed() {
    let (_keep, store) = fresh();
    let head = pipeline_head("one");
    let place = |seq, id| Name::Pipeline { pipeline: "photos".parse().unwrap(), seq, id }.to_string();
    store.storage().put(&head.to_json(), &place(1, Digest::of(b"another")), false).unwrap();
    assert_eq!(store.pipeline("photos").unwrap_err().kind(), Kind::Corrupt);
    let other = PipelineHead { name: "other".into(), ..head };
    store.storage().put(&other.to_json(), &place(2, Digest::of(&other.to_json())), false).unwrap();
    let error = store.pipeline("photos").unwrap_err();
    assert!(error.chain().contains("belongs elsewhere"), "{error}");
}

#[test]
fn the_second_writer_adopts_a_sound_record_and_replaces_any_other() {
    let (keep, store) = fresh();
    let first = put_shard(&store, 0, 3000).unwrap();
    let [path, blob] = [record_name(0), blob_name(&blobs(0, 3000)[1])].map(|n| keep.path().join("store").join(n));
    let mut slower = first.clone();
    slower.seconds = 9.0;
    assert_eq!(store.put_record(&slower).unwrap(), first, "adopted");
    assert_eq!(store.record(recipe(), encoding(), shard(0)).unwrap().unwrap(), first);

    let other = blobs(7, 3000);
    other.iter().for_each(|bytes| put_blob(&store, bytes).unwrap());
    let other = record(0, &other);
    let sound = fs::read(&path).unwrap();
    for (what, damage) in [
        ("truncated", sound[..sound.len() - 9].to_vec()),
        ("empty", Vec::new()),
        ("of another shard", record(1, &blobs(1, 3000)).to_json()),
    ] {
        fs::write(&path, damage).unwrap();
        assert_eq!(store.record(recipe(), encoding(), shard(0)).unwrap_err().kind(), Kind::Corrupt, "{what}");
        assert_eq!(store.put_record(&other).unwrap(), other, "{what}");
        assert_eq!(store.record(recipe(), encoding(), shard(0)).unwrap().unwrap(), other);
    }
    for damage in ["length", "missing", "reported"] {
        fs::write(&path, &sound).unwrap();
        match damage {
            "length" => fs::write(&blob, b"short").unwrap(),
            "missing" => fs::remove_file(&blob).unwrap(),
            _ => {
                fs::write(&blob, &blobs(0, 3000)[1]).unwrap();
                store.report(&report(&blobs(0, 3000)[1], 0)).unwrap();
            }
        }
        assert!(!store.sound(&first).unwrap());
        assert_eq!(store.put_record(&first).unwrap_err().kind(), Kind::Unavailable, "a record without its blobs");
        assert_eq!(store.put_record(&other).unwrap(), other, "{damage}");
    }

    // What a newer version wrote is refused, and left alone.
    let newer = String::from_utf8(sound).unwrap().replace("\"version\": 1", "\"version\": 2");
    fs::write(&path, &newer).unwrap();
    for error in [store.record(recipe(), encoding(), shard(0)).unwrap_err(), store.put_record(&other).unwrap_err()] {
        assert_eq!(error.kind(), Kind::Invalid);
        assert!(error.chain().contains("newer Forebay"), "{error}");
    }
    assert_eq!(fs::read_to_string(&path).unwrap(), newer);
}

#[test]
fn a_reported_blob_or_one_of_another_length_is_replaced() {
    let (keep, store) = fresh();
    let bytes = random(0, 3000);
    put_blob(&store, &bytes).unwrap();
    let path = keep.path().join("store").join(blob_name(&bytes));
    let flipped = random(1, 3000);

    fs::write(&path, &flipped).unwrap();
    put_blob(&store, &bytes).unwrap();
    assert_eq!(fs::read(&path).unwrap(), flipped, "nobody knows yet");
    store.report(&report(&bytes, 0)).unwrap();
    store.report(&Report { found: "once more".into(), ..report(&bytes, 0) }).unwrap();
    assert_eq!(store.reports().unwrap(), [report(&bytes, 0)]);
    put_blob(&store, &bytes).unwrap();
    assert_eq!(fs::read(&path).unwrap(), bytes);
    assert_eq!(store.reports().unwrap(), [], "healed");

    fs::write(&path, b"short").unwrap();
    assert_eq!(store.part(&part(&bytes), encoding().container).unwrap_err().kind(), Kind::Corrupt);
    put_blob(&store, &bytes).unwrap();
    assert_eq!(fs::read(&path).unwrap(), bytes);

    // A damaged report still says by its name which blob is bad.
    store.report(&report(&bytes, 0)).unwrap();
    let report = keep.path().join("store").join(Name::Report { blob: Digest::of(&bytes) }.to_string());
    fs::write(&report, b"{").unwrap();
    fs::write(&path, &flipped).unwrap();
    assert_eq!(store.reports().unwrap(), []);
    put_blob(&store, &bytes).unwrap();
    assert_eq!((fs::read(&path).unwrap(), report.exists()), (bytes.clone(), false));

    // A report stays where what was written isn't what is read back.
    store.report(&self::report(&bytes, 0)).unwrap();
    let mut spool = store.spool().unwrap();
    spool.write_all(&flipped).unwrap();
    let lost = store.put_part(spool, &part(&bytes), encoding().container).unwrap_err();
    assert_eq!(lost.kind(), Kind::Corrupt);
    assert!(lost.chain().contains("the disk doesn't keep what is written"), "{lost}");
    assert!(report.exists());
    put_blob(&store, &bytes).unwrap();

    let wrong = store.put_part(store.spool().unwrap(), &part(&bytes), encoding().container).unwrap_err();
    assert_eq!(wrong.kind(), Kind::Internal);
}

#[test]
fn another_order_for_the_same_input_is_a_conflict() {
    let (keep, store) = fresh();
    let put = |count| store.put_order(recipe(), snapshot(1), order_id(count), &order_rows(count));
    let head = put(3).unwrap();
    assert_eq!(put(3).unwrap(), head);
    let error = put(2).unwrap_err();
    assert_eq!(error.kind(), Kind::Conflict);
    assert!(error.message().contains("can't be deterministic"), "{error}");
    // Unless nothing is left of the first.
    fs::remove_file(keep.path().join("store").join(Name::table(head.table.blob).to_string())).unwrap();
    assert_eq!(put(2).unwrap().order, order_id(2));
}

#[test]
fn a_manifest_is_replaced_once_records_say_otherwise() {
    let (_keep, store) = fresh();
    let mut records = put_dataset(&store, 3, 2000).unwrap();
    let put = |records: &[_]| store.put_manifest(recipe(), encoding(), snapshot(3), &shard_rows(records)).unwrap();
    let in_force = || store.manifest(recipe(), encoding(), snapshot(3)).unwrap().unwrap().1;
    let sound = in_force();

    // Rows that the records contradict don't get in.
    let mut stale = records.clone();
    stale[1] = record(1, &blobs(9, 2000));
    put(&stale);
    assert_eq!(in_force(), sound);

    // Now the shard was computed anew with other bytes.
    store.report(&report(&blobs(1, 2000)[0], 1)).unwrap();
    blobs(9, 2000).iter().for_each(|bytes| put_blob(&store, bytes).unwrap());
    records[1] = store.put_record(&stale[1]).unwrap();
    put(&records);
    assert_eq!(in_force(), shard_rows(&records));
}

#[test]
fn racing_threads_with_stores_of_their_own_publish_each_object_once() {
    let (keep, reference) = fresh();
    put_dataset(&reference, 6, 4000).unwrap();
    let shared = keep.path().join("shared");
    std::thread::scope(|scope| {
        for _ in 0..6 {
            scope.spawn(|| put_dataset(&open(&shared), 6, 4000).unwrap());
        }
    });
    assert_eq!(files(&shared), files(&keep.path().join("store")));
    assert_sound(&open(&shared));
}
