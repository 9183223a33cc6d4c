//! A disk that refuses a write, at each write of a run in turn: it ends with a clean error, what is there is whole and what
//! isn't needed is gone, and the next run with room ends with the bytes of one that nothing happened to.

use crate::fixture::{Dataset, forebay, lasting};
use crate::store::data::{assert_sound, check, files, open};
use crate::store::full::Mount;
use forebay::app::store_stages::{Done, Prepared, Request};
use forebay::engine::pool::Pool;
use forebay::error::{Kind, Result};
use forebay::materialize::run::Options;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// One partition, so that writes come one after the other; two splits with order tables of their own.
fn dataset() -> Dataset {
    let dataset = Dataset::new(
        "name: texts\nsource: { files: texts }\n\
         splits: { some: { where: \"hash(key) % 2 == 0\" }, others: { where: \"hash(key) % 2 == 1\" } }\n",
    );
    fs::create_dir(dataset.path().join("texts")).unwrap();
    for number in 0..12 {
        let text = format!("sample {number}, ").repeat(150);
        fs::write(dataset.path().join(format!("texts/{number}.txt")), text).unwrap();
    }
    dataset
}

/// Lists, publishes and stores.
fn materialize(dataset: &Dataset, store: &Path) -> Result<Done> {
    let project = dataset.project_at(store);
    let snapshot = Arc::new(project.list(&|_, _| {})?);
    project.publish(&snapshot, 1, false)?;
    let stages = vec!["concatenated".to_owned()];
    let request = Request { stages, container: None, codec: None };
    let stop = AtomicBool::new(false);
    let (pool, on_error) = (Pool::new(1)?, project.pipeline.on_error);
    let options = Options { pool, on_error, stop: &stop, retry_after: &[], progress: &|_| {} };
    Prepared::new(&project, snapshot, &request)?.run(&project, &options)
}

fn store_of(directory: &Path) -> BTreeMap<String, String> {
    if directory.exists() { lasting(directory) } else { BTreeMap::new() }
}

/// What stands at `at` after a run that failed: part of what a whole run leaves, each object whole, and nothing else.
fn assert_clean(at: &Path, expected: &BTreeMap<String, String>, what: &str) {
    for (name, bytes) in store_of(at) {
        assert_eq!(Some(&bytes), expected.get(&name), "{what}: {name}");
    }
    let verified = check(&open(at), false);
    assert_eq!((verified.findings, verified.strangers), (vec![], 0), "{what}");
}

/// The directories of each kind of object, the inner ones first; `/stages` holds recipes.
const KINDS: [&str; 7] = ["/orders", "/manifests", "/shards", "/snapshots", "/pipelines", "/blobs", "/stages"];

/// What kind of object an error is about; the store itself where bytes still wait for their name.
fn kind(error: &str) -> &'static str {
    KINDS.into_iter().find(|kind| error.contains(kind)).unwrap_or("spool")
}

/// Runs on file systems that are larger by one block, or one file, each time, until all fits. Returns which kinds failed.
fn each_write_fails(options: impl Fn(u64) -> String, roomy: &str) -> Option<BTreeSet<&'static str>> {
    let dataset = dataset();
    let alone = dataset.path().join("alone");
    materialize(&dataset, &alone).unwrap();
    let expected = lasting(&alone);
    let mut failed = BTreeSet::new();
    for room in 2.. {
        assert!(room < 200, "it never fits");
        let mount = Mount::new(&options(room))?;
        let at = mount.path().join("store");
        let what = options(room);
        match materialize(&dataset, &at) {
            Ok(done) => {
                assert!(done.manifests[0].is_some());
                assert_eq!(lasting(&at), expected);
                break;
            }
            Err(error) => {
                assert_eq!(error.kind(), Kind::Unavailable, "{what}: {error:?}");
                let text = error.chain();
                assert!(text.contains("the disk is full: free some space"), "{what}: {text}");
                failed.insert(kind(&text));
            }
        }
        assert_clean(&at, &expected, &what);
        let (used, needed) = mount.space();
        assert_eq!(used, needed, "{what}: space is returned");
        mount.remount(roomy);
        assert!(materialize(&dataset, &at).unwrap().manifests[0].is_some(), "{what}");
        assert_eq!(lasting(&at), expected, "{what}");
        assert_sound(&open(&at));
    }
    Some(failed)
}

#[test]
fn a_disk_that_is_full_at_any_write() {
    let Some(failed) = each_write_fails(|blocks| format!("size={}k", blocks * 4), "size=8m") else { return };
    assert_eq!(failed, KINDS.into_iter().chain(["spool"]).collect());
}

#[test]
fn a_disk_without_room_for_another_file_at_any_write() {
    let Some(failed) = each_write_fails(|files| format!("size=8m,nr_inodes={files}"), "nr_inodes=1000") else { return };
    assert_eq!(failed, KINDS.into_iter().chain(["spool"]).collect());
}

#[test]
fn a_directory_that_is_read_only_whichever_it_is() {
    let dataset = dataset();
    let command = |store: &Path| {
        let store = store.to_str().unwrap();
        let output =
            forebay(dataset.path(), &["materialize", "pipeline.yaml", "--stage", "concatenated", "--store", store]);
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    };
    let alone = dataset.path().join("alone");
    assert_eq!(command(&alone).0, Some(0));
    let expected = lasting(&alone);
    let directories: BTreeSet<&str> =
        expected.keys().flat_map(|name| name.match_indices('/').map(|(end, _)| &name[..end])).collect();
    assert!(directories.len() > 15, "{directories:?}");
    for (number, directory) in directories.into_iter().enumerate() {
        let at = dataset.path().join(format!("store-{number}"));
        fs::create_dir_all(at.join(directory)).unwrap();
        let Some(over) = Mount::read_only_over(&at.join(directory)) else {
            println!("NOT TESTED: no tmpfs can be mounted here (not root?)");
            return;
        };
        let (code, err) = command(&at);
        assert_eq!(code, Some(1), "{directory}: {err}");
        assert!(err.contains("mounted read-only: mount it writable or use another store"), "{directory}: {err}");
        assert!(!files(&at).keys().any(|name| name.contains(".tmp-")), "{directory}");
        drop(over);
        assert_clean(&at, &expected, directory);
        assert_eq!(command(&at).0, Some(0), "{directory}");
        assert_eq!(lasting(&at), expected, "{directory}");
    }
}
