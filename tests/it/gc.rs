//! What a store may lose and what it never does: `gc`, `pin`, `du` and `cp`, alone, beside running writers and readers, and killed.

use crate::fixture::{Dataset, PHOTOS, forebay, lasting, many_partitions, photo, store_at, succeed};
use crate::store::data::{self, assert_sound, check, files, open};
use forebay::error::Kind;
use forebay::id::SnapshotId;
use forebay::store::gc::{Collected, Options, collect};
use forebay::store::{Pace, Store, Uses};
use serde_json::Value;
use std::collections::BTreeSet;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

const FILE: &str = "pipeline.yaml";

fn json(at: &Path, arguments: &[&str]) -> Value {
    serde_json::from_str(&succeed(at, &[arguments, &["--json", "--quiet"]].concat())).unwrap()
}

fn refused(at: &Path, arguments: &[&str]) -> String {
    let output = forebay(at, arguments);
    assert!(!output.status.success(), "{arguments:?}");
    String::from_utf8(output.stderr).unwrap()
}

fn names(store: &Path) -> BTreeSet<String> {
    files(store).into_keys().collect()
}

/// A store with two snapshots at all stages: six photographs are gone from the second.
fn grown() -> (Dataset, String) {
    let dataset = Dataset::with_photos(PHOTOS, 40);
    let at = dataset.path();
    succeed(at, &["materialize", FILE, "--stage", "all", "--quiet"]);
    let first = json(at, &["ls", FILE])["pipelines"][0]["snapshots"][0]["snapshot"].as_str().unwrap().to_owned();
    for number in 0..6 {
        std::fs::remove_file(at.join(format!("photos/{}/{number:04}.jpg", ["cat", "dog", "owl"][number % 3]))).unwrap();
    }
    succeed(at, &["materialize", FILE, "--stage", "all", "--quiet"]);
    (dataset, first)
}

#[test]
fn what_is_neither_current_nor_pinned_nor_recent_goes() {
    let (dataset, first) = grown();
    let (at, store) = (dataset.path(), dataset.store());
    let all = names(&store);
    let kept = json(at, &["gc", FILE]);
    assert_eq!((&kept["removed_objects"], names(&store)), (&0.into(), all.clone()), "it was current lately");
    assert!(kept["recent_bytes"].as_u64().unwrap() > 0, "{kept}");

    succeed(at, &["pin", "paper", FILE, "--snapshot", &first]);
    let kept = json(at, &["gc", FILE, "--keep-within", "0"]);
    assert_eq!(kept["removed_objects"], 0, "it is pinned");
    assert!(refused(at, &["pin", "paper", FILE]).contains("the name \"paper\" pins snapshot"));
    assert!(refused(at, &["pin", "a/b", FILE]).contains("a/b"));
    assert!(refused(at, &["unpin", "papers", FILE]).contains("no pin \"papers\"; it has: paper"));
    succeed(at, &["unpin", "paper", FILE]);

    let planned = json(at, &["gc", FILE, "--keep-within", "0", "--dry-run"]);
    assert_eq!(names(&store), all, "a dry run removes nothing");
    let done = json(at, &["gc", FILE, "--keep-within", "0"]);
    for field in ["removed", "removed_objects", "removed_bytes", "kept_objects", "kept_bytes"] {
        assert_eq!(planned[field], done[field], "{field}");
    }
    let left = names(&store);
    assert!(left.is_subset(&all) && left.len() as u64 == done["kept_objects"].as_u64().unwrap());
    assert_sound(&open(&store));

    // What is left is what a store holds that never knew the first snapshot.
    let alone = Dataset::with_photos(PHOTOS, 0);
    std::fs::rename(at.join("photos"), alone.path().join("photos")).unwrap();
    succeed(alone.path(), &["materialize", FILE, "--stage", "all", "--quiet"]);
    let numbered = |store: &Path| lasting(store).into_iter().filter(|(name, _)| !name.contains("/snapshots/"));
    assert!(numbered(&store).eq(numbered(&alone.store())));
    let error = refused(at, &["read", FILE, "--snapshot", &first]);
    assert!(error.contains("has no snapshot"), "{error}");
}

#[test]
fn a_forgotten_pipeline_goes_and_others_stay() {
    let (dataset, _) = grown();
    let at = dataset.path();
    std::fs::write(at.join("other.yaml"), PHOTOS.replace("name: photos", "name: other")).unwrap();
    succeed(at, &["materialize", "other.yaml", "--stage", "resize", "--quiet"]);
    assert!(refused(at, &["gc", "--forget", "photo"]).contains("no pipeline photo"));
    succeed(at, &["gc", "--forget", "photos", "--keep-within", "0", "--quiet"]);
    assert_sound(&open(&dataset.store()));
    let listed = json(at, &["ls"]);
    let pipelines: Vec<&Value> = listed["pipelines"].as_array().unwrap().iter().map(|p| &p["pipeline"]).collect();
    assert_eq!(pipelines, ["other"]);
    let planned = json(at, &["materialize", "other.yaml", "--stage", "resize", "--dry-run"]);
    assert_eq!(planned["stages"][0]["shards_to_compute"], 0, "they share its shards");
    succeed(at, &["gc", "--forget", "other", "--keep-within", "0", "--quiet"]);
    assert_eq!(names(&dataset.store()), BTreeSet::new(), "nothing at all is left");
}

#[test]
fn above_the_size_what_is_cheapest_to_compute_for_its_bytes_goes_first() {
    let (dataset, _) = grown();
    let at = dataset.path();
    let whole = json(at, &["gc", FILE, "--dry-run"]);
    let (kept, recent) = (whole["kept_bytes"].as_u64().unwrap(), whole["recent_bytes"].as_u64().unwrap());
    let most = (kept - recent / 2).to_string();
    let done = json(at, &["gc", FILE, "--max-size", &most]);
    let left = done["recent_bytes"].as_u64().unwrap();
    assert!(left > 0 && left <= recent / 2, "{done}");
    assert_sound(&open(&dataset.store()));
    let done = json(at, &["gc", FILE, "--max-size", "1kb"]);
    assert!(done["notes"][0].as_str().unwrap().contains("more than the 1000 allowed"), "{done}");
    let planned = json(at, &["materialize", FILE, "--stage", "all", "--dry-run"]);
    planned["stages"].as_array().unwrap().iter().for_each(|s| assert_eq!(s["shards_to_compute"], 0, "current: {s}"));
}

#[test]
fn a_head_that_is_damaged_keeps_everything() {
    let (dataset, _) = grown();
    let store = dataset.store();
    let current = names(&store).into_iter().filter(|name| name.contains("/snapshots/")).max().unwrap();
    let before = names(&store);
    std::fs::write(store.join(&current), "{").unwrap();
    let error = refused(dataset.path(), &["gc", FILE, "--keep-within", "0"]);
    assert!(error.contains("cannot tell what pipeline photos needs, so nothing is removed"), "{error}");
    assert_eq!(names(&store), before);
}

#[test]
fn du_says_what_each_snapshot_takes_and_would_free() {
    let (dataset, first) = grown();
    let at = dataset.path();
    let held = json(at, &["du", FILE]);
    let of = |snapshot: &str| {
        let found = held["snapshots"].as_array().unwrap().iter().find(|s| s["snapshot"] == snapshot);
        found.unwrap_or_else(|| panic!("{held}")).clone()
    };
    let total: u64 = files(&dataset.store()).values().map(|bytes| bytes.len() as u64).sum();
    assert_eq!((&held["bytes"], &held["unreferenced_bytes"]), (&total.into(), &0.into()));
    let old = of(&first);
    let (bytes, own) = (old["bytes"].as_u64().unwrap(), old["own_bytes"].as_u64().unwrap());
    assert!(0 < own && own < bytes && bytes < total, "{own} of {bytes} of {total}");
    let removed = json(at, &["gc", FILE, "--keep-within", "0"]);
    assert_eq!(removed["removed_bytes"], own, "what is its own is what goes with it");
    let held = json(at, &["du", FILE]);
    assert_eq!(held["snapshots"].as_array().unwrap().len(), 1);
    assert_eq!(held["stages"].as_array().unwrap().len(), held["snapshots"][0]["stages"].as_array().unwrap().len());
}

fn start(at: &Path, arguments: &[&str]) -> Child {
    let mut command = Command::new(env!("CARGO_BIN_EXE_forebay"));
    command.args(arguments).current_dir(at).env("FOREBAY_CACHE", at.join("cache")).env_remove("FOREBAY_STORE");
    command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap()
}

fn finished(child: Child, what: &str) {
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{what}: {}", String::from_utf8_lossy(&output.stderr));
}

/// Two writers that make each other's stages obsolete and needed again, readers of what is current, and collections that keep
/// nothing but what is current and in use.
#[test]
fn beside_running_writers_and_readers_nothing_goes_that_they_use() {
    let dataset = Dataset::with_photos(&many_partitions(), 24);
    let at = dataset.path();
    std::fs::write(at.join("small.yaml"), many_partitions().replace("shorter_side: 40", "shorter_side: 36")).unwrap();
    succeed(at, &["materialize", FILE, "--stage", "all", "--quiet"]);
    let (done, read) = (AtomicBool::new(false), AtomicUsize::new(0));
    let removed = std::thread::scope(|scope| {
        let writers = ["pipeline.yaml", "small.yaml"].map(|file| {
            let done = &done;
            scope.spawn(move || {
                while !done.load(Ordering::Relaxed) {
                    finished(start(at, &["materialize", file, "--stage", "all", "--quiet"]), file);
                }
            })
        });
        let reader = scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                finished(start(at, &["read", FILE, "--split", "train", "--limit", "100", "--quiet"]), "read");
                read.fetch_add(1, Ordering::Relaxed);
            }
        });
        let removed: u64 =
            (0..3).map(|_| json(at, &["gc", "--keep-within", "0"])["removed_objects"].as_u64().unwrap()).sum();
        done.store(true, Ordering::Relaxed);
        writers.into_iter().for_each(|writer| writer.join().unwrap());
        reader.join().unwrap();
        removed
    });
    println!("{removed} objects removed beside writers; {} times read", read.into_inner());
    assert_sound(&open(&dataset.store()));
    succeed(at, &["materialize", FILE, "--stage", "all", "--quiet"]);
    succeed(at, &["gc", "--keep-within", "0", "--quiet"]);
    assert_sound(&open(&dataset.store()));
    let planned = json(at, &["materialize", FILE, "--stage", "all", "--dry-run"]);
    planned["stages"].as_array().unwrap().iter().for_each(|s| assert_eq!(s["shards_to_compute"], 0, "{s}"));
}

const QUICK: Pace = Pace {
    lifetime: Duration::from_millis(6_000),
    renew: Duration::from_millis(200),
    look: Duration::from_millis(20),
    poll: Duration::from_millis(5),
};

fn collected(store: &Store) -> forebay::error::Result<Collected> {
    let stop = AtomicBool::new(false);
    collect(
        store,
        &Options {
            keep_within: Duration::ZERO,
            forget: Vec::new(),
            max_bytes: None,
            dry_run: false,
            pace: QUICK,
            stop: &stop,
            progress: &|_| {},
        },
    )
}

/// The library itself, at a pace at which collections and writers meet all the time: each writer publishes shards that share
/// blobs with what was just removed, and while it says that it uses them all of them are there.
#[test]
fn writers_find_what_they_published_while_collections_come_and_go() {
    let (directory, _) = data::fresh();
    let begun = Instant::now();
    let (rounds, removed) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let ends = || begun.elapsed() > Duration::from_secs(8);
    std::thread::scope(|scope| {
        for writer in 0..3u64 {
            let (rounds, directory) = (&rounds, directory.path());
            scope.spawn(move || {
                let store = open(directory);
                for round in 0.. {
                    if ends() {
                        break;
                    }
                    // Of another pipeline, so that nothing of it is current once its turn is over.
                    let recipes = [data::recipe()];
                    let uses = Uses { purpose: "test", pipeline: "none", snapshots: &[], recipes: &recipes };
                    let held = store.hold_at(&uses, QUICK).unwrap();
                    let mut published = Vec::new();
                    for number in 0..4 {
                        match data::put_shard(&held, (writer + round + number) % 6, 2_000) {
                            Ok(record) => published.push(record),
                            // Said in time, and nothing wrong was published.
                            Err(error) => assert_eq!(error.kind(), Kind::Unavailable, "{}", error.chain()),
                        }
                    }
                    for record in &published {
                        let found = store.record(record.recipe, record.encoding, record.shard).unwrap();
                        let found = found.unwrap_or_else(|| panic!("a record is gone that is in use"));
                        assert!(store.sound(&found).unwrap(), "a blob is gone that is in use");
                    }
                    rounds.fetch_add(1, Ordering::Relaxed);
                    drop(held);
                    if round % 3 == 0 {
                        std::thread::sleep(Duration::from_millis(150 * (writer + 1)));
                    }
                }
            });
        }
        scope.spawn(|| {
            let store = open(directory.path());
            while !ends() {
                match collected(&store) {
                    Ok(collected) => {
                        let objects: u64 = collected.removed.values().map(|(objects, _)| objects).sum();
                        removed.fetch_add(usize::try_from(objects).unwrap(), Ordering::Relaxed);
                    }
                    // On a machine that stood still for seconds.
                    Err(error) => assert_eq!(error.kind(), Kind::Unavailable, "{}", error.chain()),
                }
            }
        });
    });
    let (rounds, removed) = (rounds.into_inner(), removed.into_inner());
    println!("{rounds} rounds of writers, {removed} objects removed");
    assert!(rounds > 5 && removed > 0, "{rounds} {removed}");
    assert_sound(&open(directory.path()));
}

#[test]
fn a_snapshot_that_is_about_to_go_is_refused_and_one_in_use_is_kept() {
    let (_directory, store) = data::fresh();
    let publish = |count: u64| store.put_snapshot(data::snapshot_head(count, 1000), &data::entries(count)).unwrap();
    store.put_pipeline(&data::pipeline_head("name: photos\n")).unwrap();
    publish(3);
    let recipes = [data::recipe()];
    let snapshots = [data::snapshot(3)];
    let uses = |snapshots| Uses { purpose: "test", pipeline: "none", snapshots, recipes: &recipes };
    let held = store.hold_at(&uses(&snapshots), QUICK).unwrap();
    publish(2);
    let kept = collected(&store).unwrap();
    assert_eq!(kept.in_use, 1);
    let there = |id: SnapshotId| store.snapshots("photos").unwrap().any(|(found, _)| found == id);
    assert!(there(snapshots[0]), "it is in use");
    drop(held);
    collected(&store).unwrap();
    assert!(!there(snapshots[0]) && there(data::snapshot(2)));
    assert_sound(&store);
}

#[test]
fn killed_at_any_point_a_collection_leaves_a_sound_store() {
    let (dataset, _) = grown();
    let at = dataset.path();
    let before = at.join("before");
    copy(&dataset.store(), &before);
    finished(start(at, &["gc", "--keep-within", "0", "--quiet"]), "gc");
    let expected = names(&dataset.store());
    // The first that goes.
    let head = names(&before).into_iter().find(|name| name.contains("/snapshots/")).unwrap();
    let (mut kills, mut halfway) = (0u32, 0);
    for round in 0..20u32 {
        std::fs::remove_dir_all(dataset.store()).unwrap();
        copy(&before, &dataset.store());
        let mut run = start(at, &["gc", "--keep-within", "0", "--quiet"]);
        while dataset.store().join(&head).exists() && run.try_wait().unwrap().is_none() {}
        std::thread::sleep(Duration::from_micros(u64::from(round % 5) * 200));
        run.kill().unwrap();
        if run.wait().unwrap().signal().is_some() {
            kills += 1;
            let left = names(&dataset.store()).len();
            halfway += u32::from(left < names(&before).len() && left > expected.len() + 2);
        }
        let verified = check(&open(&dataset.store()), false);
        assert_eq!(verified.findings, vec![], "after {kills} kills");
        let current = json(at, &["materialize", FILE, "--stage", "all", "--dry-run"]);
        current["stages"].as_array().unwrap().iter().for_each(|s| assert_eq!(s["shards_to_compute"], 0, "{s}"));
        finished(start(at, &["gc", "--keep-within", "0", "--quiet"]), "gc");
        let own = |name: &String| name.starts_with("v1/gc/") || name.ends_with(".parquet");
        let left: BTreeSet<String> = names(&dataset.store()).into_iter().filter(|name| !own(name)).collect();
        assert_eq!(left, expected.iter().filter(|name| !own(name)).cloned().collect(), "the next one goes on");
    }
    println!("{halfway} of {kills} kills came while objects were removed");
}

fn copy(from: &Path, to: &Path) {
    assert!(Command::new("cp").arg("-a").args([from, to]).status().unwrap().success());
}

#[test]
fn a_copy_holds_the_same_takes_only_what_is_missing_and_goes_on_when_killed() {
    let (dataset, _) = grown();
    let (at, copied) = (dataset.path(), dataset.path().join("copy"));
    let begun = Instant::now();
    let first = json(at, &["cp", FILE, "copy"]);
    let whole = begun.elapsed();
    assert_eq!((&first["snapshots"], &first["notes"]), (&2.into(), &Value::Array(vec![])));
    let [new, shared] = ["shards", "reused_shards"].map(|field| first[field].as_u64().unwrap());
    assert!(new > shared && shared > 0, "the second snapshot shares shards with the first: {first}");
    let of_data = |store: &Path| {
        let kept = |name: &str| !name.contains("/pipelines/");
        lasting(store).into_iter().filter(|(name, _)| kept(name)).collect::<Vec<_>>()
    };
    assert_eq!(of_data(&copied), of_data(&dataset.store()));
    assert_sound(&open(&copied));
    let again = json(at, &["cp", FILE, "copy"]);
    assert_eq!((&again["shards"], &again["bytes"]), (&0.into(), &0.into()));
    assert_eq!(again["reused_shards"], new + shared);
    // The copy is read without source and pipeline file; its current snapshot is the source's.
    let current =
        |store: &Path| store_at(store.to_str().unwrap()).current_snapshot("photos").unwrap().unwrap().snapshot;
    assert_eq!(current(&copied), current(&dataset.store()));

    std::fs::remove_dir_all(&copied).unwrap();
    for round in 1..8 {
        let mut run = start(at, &["cp", FILE, "copy", "--quiet"]);
        std::thread::sleep(whole.mul_f64(f64::from(round) / 8.0));
        run.kill().unwrap();
        run.wait().unwrap();
        if copied.exists() {
            assert_eq!(check(&open(&copied), false).findings, vec![]);
        }
    }
    json(at, &["cp", FILE, "copy"]);
    assert_eq!(of_data(&copied), of_data(&dataset.store()));

    assert!(refused(at, &["cp", FILE, "copy", "--stage", "resizes"]).contains("no stage \"resizes\""));
    assert!(refused(at, &["cp", FILE, ".forebay"]).contains("is the store to copy from"));
    let one = json(at, &["cp", FILE, "one", "--stage", "resize", "--snapshot", &current(&copied).to_string()]);
    assert_eq!(one["snapshots"], 1);
    assert_sound(&open(&at.join("one")));
}

#[test]
fn a_damaged_blob_is_not_copied() {
    let dataset = Dataset::with_photos(PHOTOS, 16);
    let at = dataset.path();
    succeed(at, &["materialize", FILE, "--stage", "resize", "--quiet"]);
    let blob = names(&dataset.store()).into_iter().find(|name| name.ends_with(".arrow")).unwrap();
    let mut bytes = std::fs::read(dataset.store().join(&blob)).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(dataset.store().join(&blob), bytes).unwrap();
    let copied = json(at, &["cp", FILE, "copy"]);
    let note = copied["notes"][0].as_str().unwrap();
    assert!(note.contains(&blob) && note.contains("doesn't hold what its name says"), "{note}");
    assert!(!at.join("copy").join(&blob).exists());
    assert_sound(&open(&at.join("copy")));
    // What was left out comes once it is mended.
    succeed(at, &["verify", FILE, "--repair", "--quiet"]);
    succeed(at, &["materialize", FILE, "--stage", "resize", "--quiet"]);
    assert_eq!(json(at, &["cp", FILE, "copy"])["shards"], 1);
    assert!(at.join("copy").join(&blob).exists());
}

#[test]
fn a_reader_that_cannot_write_says_what_protects_it() {
    let dataset = Dataset::with_photos(PHOTOS, 8);
    let at = dataset.path();
    std::fs::write(at.join("photos/cat/extra.jpg"), photo(99, 48, 64)).unwrap();
    succeed(at, &["materialize", FILE, "--stage", "resize", "--quiet"]);
    // A file where intents go: nobody can write there, whoever it is.
    let intents = dataset.store().join("v1/intents");
    let _ = std::fs::remove_dir_all(&intents);
    std::fs::write(&intents, "").unwrap();
    let output = forebay(at, &["read", FILE, "--split", "train", "--limit", "1"]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success() && said.contains("only `--keep-within` keeps a `forebay gc`"), "{said}");
}
