//! What must not hurt: a run killed at any point, files that change under it, a disk that fills up, a store that can't be
//! written.

use crate::fixture::{Dataset, PHOTOS, forebay, lasting, many_partitions, photo, succeed};
use crate::store::data::{assert_sound, check, files, open};
use crate::store::full::Mount;
use forebay::app::open::{Opened, Reading, Which, from_file};
use forebay::app::project::Project;
use forebay::app::store_stages::{Done, Prepared, Request};
use forebay::engine::pool::Pool;
use forebay::error::{Kind, Result};
use forebay::format::encoding::{Codec, Container};
use forebay::materialize::Event;
use forebay::materialize::run::Options;
use forebay::plan::order::batch::{Batching, Tail};
use forebay::plan::snapshot::Snapshot;
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

fn start(directory: &Path, store: &Path) -> Child {
    Command::new(env!("CARGO_BIN_EXE_forebay"))
        .args(["materialize", "pipeline.yaml", "--stage", "all", "--quiet", "--yes", "--store"])
        .arg(store)
        .current_dir(directory)
        .env("FOREBAY_CACHE", directory.join("cache"))
        .stdout(Stdio::null())
        .spawn()
        .unwrap()
}

#[test]
fn killed_a_hundred_times_the_finished_store_is_that_of_an_uninterrupted_run() {
    // In memory where that can be: what a kill leaves is the same, and no kill waits for a disk.
    let keep = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
    let directory = keep.path();
    fs::write(directory.join("pipeline.yaml"), many_partitions()).unwrap();
    crate::fixture::photos(directory, 40);
    let [alone, killed] = ["alone", "killed"].map(|name| directory.join(name));
    let begun = Instant::now();
    assert!(start(directory, &alone).wait().unwrap().success());
    let whole_run = begun.elapsed();
    let expected = lasting(&alone);
    assert_sound(&open(&alone));

    let seed = std::env::var("FOREBAY_TEST_SEED").ok().and_then(|s| s.parse().ok()).unwrap_or(std::process::id());
    println!("FOREBAY_TEST_SEED={seed}");
    let share = |round: u32| {
        let digest = blake3::hash(&[seed.to_le_bytes(), round.to_le_bytes()].concat());
        f64::from(u16::from_le_bytes([digest.as_bytes()[0], digest.as_bytes()[1]])) / 65536.0
    };
    let (mut kills, mut finished, mut halfway, mut littered) = (0, 0, 0, 0);
    for round in 0.. {
        let mut run = start(directory, &killed);
        std::thread::sleep(whole_run.mul_f64(share(round) * 0.5));
        run.kill().unwrap();
        if run.wait().unwrap().signal().is_some() {
            kills += 1;
            // The first kills may come before the store was made.
            let found = if killed.exists() { files(&killed) } else { BTreeMap::new() };
            halfway += u32::from(found.keys().any(|n| n.contains("/shards/")) && found.len() < expected.len());
            // On Linux what is new leaves nothing to sweep; what is replaced has a temporary name for a moment.
            littered += u32::from(found.keys().any(|name| name.contains(".tmp-")));
            open(&killed).storage().sweep(Duration::ZERO).unwrap();
            let verified = check(&open(&killed), false);
            assert_eq!((verified.findings, verified.strangers), (vec![], 0), "after {kills} kills");
            if kills < 100 {
                continue;
            }
            assert!(start(directory, &killed).wait().unwrap().success());
        }
        finished += 1;
        assert_eq!(lasting(&killed), expected, "after {kills} kills");
        assert_sound(&open(&killed));
        if kills == 100 {
            break;
        }
        let _ = fs::remove_dir_all(&killed);
    }
    println!("{finished} stores finished; {halfway} of {kills} kills hit a store that was partly written");
    assert!(halfway >= 20, "{halfway}");
    assert!(littered <= 10 || !cfg!(target_os = "linux"), "{littered} of {kills} kills left temporary files");
}

/// Lists, and hands over what to do before the files are read.
fn listed(dataset: &Dataset) -> (Project, Arc<Snapshot>) {
    let project = dataset.project();
    let snapshot = Arc::new(project.list(&|_, _| {}).unwrap());
    project.publish(&snapshot, 1, true).unwrap();
    (project, snapshot)
}

fn store_resize(project: &Project, snapshot: &Arc<Snapshot>) -> Result<Done> {
    let request =
        Request { stages: vec!["resize".into()], container: Some(Container::Arrow), codec: Some(Codec::None) };
    let stop = AtomicBool::new(false);
    let options = Options {
        pool: Pool::new(2).unwrap(),
        on_error: project.pipeline.on_error,
        stop: &stop,
        retry_after: &[Duration::ZERO],
        // Neither a full disk nor what needs a new listing is tried again.
        progress: &|event| assert!(!matches!(event, Event::Retry { .. }), "{event:?}"),
    };
    Prepared::new(project, snapshot.clone(), &request)?.run(project, &options)
}

#[test]
fn a_file_swapped_between_listing_and_reading_publishes_nothing_of_its_partition() {
    type Change = fn(&Path);
    let changes: [(&str, Change); 3] = [
        ("changed", |path| fs::write(path, photo(777, 48, 64)).unwrap()),
        // The same length and times, so that only the bytes tell.
        ("changed", |path| {
            let metadata = fs::metadata(path).unwrap();
            let mut bytes = fs::read(path).unwrap();
            let middle = bytes.len() / 2;
            bytes[middle] ^= 1;
            fs::write(path, bytes).unwrap();
            fs::File::options().write(true).open(path).unwrap().set_modified(metadata.modified().unwrap()).unwrap();
        }),
        ("gone", |path| fs::remove_file(path).unwrap()),
    ];
    for (word, change) in changes {
        let dataset = Dataset::with_photos(PHOTOS, 40);
        let (project, snapshot) = listed(&dataset);
        let key = "dog/0010.jpg";
        let hit = snapshot.entries.entries.iter().find(|e| e.key == key).unwrap().partition as usize;
        change(&dataset.path().join("photos").join(key));
        let done = store_resize(&project, &snapshot).unwrap();
        let [(partition, error)] = done.outcome.errors.as_slice() else { panic!("{:?}", done.outcome.errors) };
        assert_eq!((*partition, error.kind()), (hit, Kind::Conflict));
        let text = error.chain();
        assert!(
            text.contains(key) && text.contains(word) && text.contains("`forebay materialize`, run anew"),
            "{text}"
        );
        assert!(done.manifests[0].is_none());
        let store = &project.dataset.store;
        let recipe = project.dataset.splits[0].chain.stages[2].recipe;
        for partition in 0..snapshot.partitions() {
            let record = store.record(recipe, "arrow-none".parse().unwrap(), snapshot.shard_key(recipe, partition));
            assert_eq!(record.unwrap().is_some(), partition != hit, "partition {partition}");
        }
        assert_sound(store);
        // A new listing takes the file as it is now, and computes what it touches.
        let (project, snapshot) = listed(&dataset);
        let done = store_resize(&project, &snapshot).unwrap();
        assert!(done.manifests[0].is_some());
        assert!((1..=2).contains(&done.outcome.computed_shards), "{}", done.outcome.computed_shards);
    }
}

#[test]
fn partitions_that_fail_for_now_are_tried_again_after_the_others() {
    let dataset = Dataset::with_photos(PHOTOS, 40);
    let own = dataset.path().join("photos/own");
    fs::create_dir(&own).unwrap();
    fs::write(own.join("one.jpg"), photo(779, 48, 64)).unwrap();
    let (project, snapshot) = listed(&dataset);
    let hit = snapshot.entries.entries.iter().find(|e| e.key == "own/one.jpg").unwrap().partition as usize;
    let away = dataset.path().join("away");
    // The file can't be looked at for a while.
    let hide = || {
        fs::rename(&own, &away).unwrap();
        std::os::unix::fs::symlink(&own, &own).unwrap();
    };
    let show = || {
        fs::remove_file(&own).unwrap();
        fs::rename(&away, &own).unwrap();
    };
    let stop = AtomicBool::new(false);
    let run = |waits: &[Duration], event: &(dyn Fn(Event) + Sync)| {
        let request = Request { stages: vec!["resize".into()], container: None, codec: None };
        let on_error = project.pipeline.on_error;
        let pool = Pool::new(2).unwrap();
        let options = Options { pool, on_error, stop: &stop, retry_after: waits, progress: event };
        Prepared::new(&project, snapshot.clone(), &request).unwrap().run(&project, &options).unwrap()
    };
    let moment = Duration::from_millis(1);
    let tries = AtomicUsize::new(0);
    let note = |event: &Event| {
        let Event::Retry { partitions, reason, .. } = event else { return false };
        assert!(*partitions == 1 && reason.contains("one.jpg"), "{event:?}");
        tries.fetch_add(1, Ordering::Relaxed);
        true
    };

    // For good: all others are stored.
    hide();
    let done = run(&[moment; 3], &|event| _ = note(&event));
    let [(partition, error)] = done.outcome.errors.as_slice() else { panic!("{:?}", done.outcome.errors) };
    assert_eq!((*partition, error.kind()), (hit, Kind::Unavailable));
    assert_eq!(tries.swap(0, Ordering::Relaxed), 3);
    assert_eq!(done.outcome.computed_shards, snapshot.partitions() as u64 - 1);
    assert!(done.manifests[0].is_none());

    // The wait ends when the run is to stop.
    let begun = Instant::now();
    let done = run(&[Duration::from_secs(1000)], &|event| {
        if note(&event) {
            stop.store(true, Ordering::Relaxed);
        }
    });
    assert!(done.outcome.stopped && begun.elapsed() < Duration::from_secs(100));
    stop.store(false, Ordering::Relaxed);

    // For now.
    tries.store(0, Ordering::Relaxed);
    let done = run(&[moment; 3], &|event| {
        if note(&event) && tries.load(Ordering::Relaxed) == 2 {
            show();
        }
    });
    assert_eq!((tries.into_inner(), done.outcome.computed_shards), (2, 1));
    assert!(done.outcome.errors.is_empty() && done.manifests[0].is_some(), "{:?}", done.outcome.errors);
    assert_sound(&project.dataset.store);
}

#[test]
fn a_reader_names_the_file_that_changed_under_it() {
    let dataset = Dataset::with_photos(PHOTOS, 40);
    let (project, snapshot) = listed(&dataset);
    fs::write(dataset.path().join("photos/cat/0000.jpg"), photo(778, 48, 64)).unwrap();
    let opened = Opened {
        pipeline: project.pipeline.clone(),
        dataset: project.dataset.clone(),
        snapshot,
        fresh: false,
        notes: Vec::new(),
    };
    let reading = Reading {
        split: Some("train"),
        stage: Some("resize"),
        batching: Batching::new(7, 0, 1, Tail::Short).unwrap(),
        shuffle: Some(false),
        seed: 0,
        prefetch: 0,
    };
    let reader = opened.reader(&reading, Pool::new(2).unwrap()).unwrap();
    let error = reader.epoch(0, 0).unwrap().find_map(Result::err).unwrap();
    assert_eq!(error.kind(), Kind::Conflict);
    assert!(error.chain().contains("cat/0000.jpg changed since it was listed"), "{}", error.chain());
}

#[test]
fn a_disk_that_fills_up_fails_cleanly_and_a_larger_one_goes_on() {
    let Some(mount) = Mount::new("size=256k") else { return };
    let dataset = Dataset::with_photos(&many_partitions(), 60);
    let at = mount.path().join("store");
    let project = dataset.project_at(&at);
    let snapshot = Arc::new(project.list(&|_, _| {}).unwrap());
    project.publish(&snapshot, 1, false).unwrap();
    let error = store_resize(&project, &snapshot).err().unwrap();
    assert_eq!(error.kind(), Kind::Unavailable);
    assert!(error.chain().contains("the disk is full: free some space"), "{}", error.chain());
    let verified = check(&project.dataset.store, false);
    assert_eq!((verified.findings, verified.strangers), (vec![], 0));
    assert!(verified.records > 0, "what was finished before stays");
    assert!(!files(&at).keys().any(|n| n.contains("/manifests/") || n.contains(".tmp-")));
    let (used, needed) = mount.space();
    assert_eq!(used, needed, "space is returned");

    // The command foresees it.
    let output = forebay(
        dataset.path(),
        &["materialize", "pipeline.yaml", "--stage", "decode", "--yes", "--store", at.to_str().unwrap()],
    );
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(3), "{text}");
    assert!(text.contains("would be written") || text.contains("the disk is full"), "{text}");

    mount.remount("size=64m");
    let done = store_resize(&project, &snapshot).unwrap();
    assert_eq!(done.outcome.computed_shards, snapshot.partitions() as u64 - verified.records);
    assert!(done.manifests[0].is_some());
    assert_sound(&project.dataset.store);
    let elsewhere = dataset.path().join("elsewhere");
    store_resize(&dataset.project_at(&elsewhere), &snapshot).unwrap();
    let stage = |root: &PathBuf| -> BTreeMap<String, String> {
        lasting(root).into_iter().filter(|(name, _)| name.contains("/blobs/") || name.contains("/stages/")).collect()
    };
    let (here, there) = (stage(&at), stage(&elsewhere));
    for (name, bytes) in &there {
        assert_eq!(here.get(name), Some(bytes), "{name}");
    }
}

#[test]
fn a_read_only_store_is_read_and_refuses_to_be_written_in_a_sentence() {
    let Some(mount) = Mount::new("size=64m") else { return };
    let dataset = Dataset::with_photos(PHOTOS, 24);
    let expected = dataset.read(Some("train"), 7, 2);
    let at = mount.path().join("store");
    let path = at.to_str().unwrap();
    succeed(dataset.path(), &["materialize", "pipeline.yaml", "--stage", "resize", "--store", path]);
    // Orders that were never stored are counted and held in memory.
    for (name, _) in files(&at) {
        if name.contains("/orders/") {
            fs::remove_file(at.join(name)).unwrap();
        }
    }
    let read = |store: &Path| {
        let opened = dataset.surrounded_at(store, |s| from_file(&dataset.file, Which::Current, 1, s)).unwrap();
        let reading = Reading {
            split: Some("train"),
            stage: None,
            batching: Batching::new(7, 0, 1, Tail::Short).unwrap(),
            shuffle: None,
            seed: 7,
            prefetch: 0,
        };
        let reader = opened.reader(&reading, Pool::new(2).unwrap()).unwrap();
        let batches: Vec<_> = reader.epoch(2, 0).unwrap().map(|b| b.unwrap().rows).collect();
        assert_eq!(reader.take_warnings(), [""; 0]);
        (opened, reader.origins().unwrap(), batches)
    };
    mount.remount("ro");
    let before = files(mount.path());
    let (opened, origins, batches) = read(&at);
    assert!(!opened.fresh);
    assert!(origins.iter().all(|o| o.stage.as_deref() == Some("resize")), "{origins:?}");
    assert_eq!(batches, expected);

    // One without a snapshot: it is taken and held in memory.
    let (opened, _, batches) = read(&mount.path().join("nothing"));
    assert!(opened.fresh);
    assert!(opened.notes[0].contains("held in memory"), "{:?}", opened.notes);
    assert_eq!(batches, expected);

    let output = forebay(dataset.path(), &["materialize", "pipeline.yaml", "--stage", "decode", "-q", "--store", path]);
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{text}");
    let sentences: Vec<&str> = text.lines().filter(|line| line.starts_with("error: ")).collect();
    assert!(matches!(sentences.as_slice(), [one] if one.contains("use another store")), "{text}");
    assert!(text.lines().count() <= 3, "with its cause, whatever the number of partitions: {text}");
    assert_eq!(files(mount.path()), before);
}
