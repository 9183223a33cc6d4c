//! Several processes on one store, and processes that are killed: this test binary runs itself again as the writer.

use super::data::*;
use forebay::error::Kind;
use std::fs::File;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// Set for the writer: the store's directory.
const DIRECTORY: &str = "FOREBAY_TEST_STORE";
const SHARDS: u64 = 40;
const LENGTH: usize = 10_000;

/// Not a test but the writer, when it is told where: a dataset that grows snapshot by snapshot, going on where another
/// stopped.
#[test]
fn writer() {
    let Some(directory) = std::env::var_os(DIRECTORY) else { return };
    let store = open(Path::new(&directory));
    for count in (10..=SHARDS).step_by(10) {
        put_dataset(&store, count, LENGTH).unwrap();
    }
}

/// As `writer`: one that may open few files, and has opened them all.
#[test]
fn writer_with_too_many_files() {
    let Some(directory) = std::env::var_os(DIRECTORY) else { return };
    let store = open(Path::new(&directory));
    put_dataset(&store, 2, LENGTH).unwrap();
    let before = files(Path::new(&directory));
    let mut limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    limit.current = Some(40);
    rustix::process::setrlimit(rustix::process::Resource::Nofile, limit).unwrap();
    let mut held: Vec<File> = std::iter::from_fn(|| File::open("/dev/null").ok()).collect();
    for error in [
        store.spool().map(drop).unwrap_err(),
        put_shard(&store, 5, LENGTH).unwrap_err(),
        store.record(recipe(), encoding(), shard(0)).unwrap_err(),
        store.snapshots("photos").map(drop).unwrap_err(),
    ] {
        assert_eq!(error.kind(), Kind::Unavailable, "{error:?}");
        assert!(error.chain().contains("raise its limit (ulimit -n)"), "{error:?}");
    }
    held.clear();
    assert_eq!(files(Path::new(&directory)), before);
    put_shard(&store, 5, LENGTH).unwrap();
}

#[test]
fn too_many_open_files_is_an_error_that_says_what_to_raise() {
    let keep = tempfile::tempdir().unwrap();
    assert!(run("writer_with_too_many_files", &keep.path().join("store")).wait().unwrap().success());
}

fn start(directory: &Path) -> Child {
    run("writer", directory)
}

fn run(test: &str, directory: &Path) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args([&format!("store::processes::{test}"), "--exact", "--quiet"])
        .env(DIRECTORY, directory)
        .stdout(Stdio::null())
        .spawn()
        .unwrap()
}

/// But for the numbers of snapshot heads: a writer that starts again publishes the older snapshots once more.
fn without_snapshot_heads(directory: &Path) -> std::collections::BTreeMap<String, Vec<u8>> {
    files(directory).into_iter().filter(|(name, _)| !name.contains("/snapshots/")).collect()
}

#[test]
fn racing_processes_publish_each_object_once() {
    let keep = tempfile::tempdir().unwrap();
    let [alone, shared] = ["alone", "shared"].map(|name| keep.path().join(name));
    assert!(start(&alone).wait().unwrap().success());
    let racers: Vec<Child> = (0..4).map(|_| start(&shared)).collect();
    for mut racer in racers {
        assert!(racer.wait().unwrap().success());
    }
    assert_eq!(without_snapshot_heads(&shared), without_snapshot_heads(&alone));
    assert_sound(&open(&shared));
}

#[test]
fn a_writer_killed_a_hundred_times_leaves_whole_objects_only() {
    // In memory where that can be: what a kill leaves is the same, and no kill waits for a disk.
    let keep = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
    let [alone, killed] = ["alone", "killed"].map(|name| keep.path().join(name));
    let begun = std::time::Instant::now();
    assert!(start(&alone).wait().unwrap().success());
    let whole_run = begun.elapsed();
    let finished = without_snapshot_heads(&alone);

    let (mut kills, mut round) = (0, 0u64);
    while kills < 100 {
        // Spread evenly, in an order that jumps about.
        let share = (round * 37 % 100) as f64 / 100.0;
        round += 1;
        let mut writer = start(&killed);
        std::thread::sleep(Duration::from_secs_f64(whole_run.as_secs_f64() * share * 0.5));
        writer.kill().unwrap();
        if writer.wait().unwrap().signal().is_some() {
            kills += 1;
        } else {
            assert_eq!(without_snapshot_heads(&killed), finished);
            std::fs::remove_dir_all(&killed).unwrap();
            continue;
        }
        let verified = check(&open(&killed), false);
        assert_eq!((verified.findings, verified.strangers), (vec![], 0), "after {kills} kills");
        if cfg!(target_os = "linux") && killed.exists() {
            let left = files(&killed).into_keys().find(|name| name.contains(".tmp-"));
            assert_eq!(left, None, "nothing to clean up where files need no name");
        }
    }
    assert!(start(&killed).wait().unwrap().success());
    assert_eq!(without_snapshot_heads(&killed), finished);
    assert_sound(&open(&killed));
}
