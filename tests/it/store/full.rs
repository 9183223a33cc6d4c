//! A disk that is full, or read-only: clean errors, nothing published, space returned. Needs a small file system of its
//! own, which only root can mount; without, what can be done by permissions is tested, and the rest says that it is not.

use super::data::*;
use forebay::error::{Error, Kind, Result};
use forebay::format::document::Document;
use forebay::store::Store;
use std::any::Any;
use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::Command;

/// A small file system, unmounted when dropped.
pub struct Mount(tempfile::TempDir);

impl Mount {
    pub fn new(options: &str) -> Option<Mount> {
        let directory = tempfile::tempdir().unwrap();
        let mounted = mount(&["-t", "tmpfs", "-o", options, "tmpfs"], directory.path());
        if !mounted {
            println!("NOT TESTED: no tmpfs can be mounted here (not root?)");
        }
        mounted.then_some(Mount(directory))
    }
    pub fn path(&self) -> &Path {
        self.0.path()
    }
    /// Bytes in use, and those that the files there need.
    pub fn space(&self) -> (u64, u64) {
        let space = rustix::fs::statvfs(self.path()).unwrap();
        let block = space.f_frsize;
        let needed = files(self.path()).values().map(|bytes| (bytes.len() as u64).div_ceil(block) * block).sum();
        ((space.f_blocks - space.f_bfree) * block, needed)
    }
    /// An empty file system that can't be written, over a directory that is there.
    pub fn read_only_over(directory: &Path) -> Option<impl Drop + use<>> {
        struct Over(std::path::PathBuf);
        impl Drop for Over {
            fn drop(&mut self) {
                let _ = Command::new("umount").arg("-l").arg(&self.0).status();
            }
        }
        mount(&["-t", "tmpfs", "-o", "ro", "tmpfs"], directory).then(|| Over(directory.to_owned()))
    }
    /// Changes options, such as `ro` or `size=8m`.
    pub fn remount(&self, options: &str) {
        assert!(mount(&["-o", &format!("remount,{options}")], self.path()));
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.path()).status();
    }
}

fn mount(arguments: &[&str], directory: &Path) -> bool {
    let output = Command::new("mount").args(arguments).arg(directory).output();
    output.is_ok_and(|output| output.status.success())
}

type Step = fn(&Store) -> Result<()>;

/// Each kind of write, in the order in which they build on each other.
const WRITES: [(&str, Step); 9] = [
    ("recipe", |store| store.put_recipe(&recipe_head())),
    ("pipeline", |store| store.put_pipeline(&pipeline_head("name: photos\n"))),
    ("snapshot", |store| store.put_snapshot(snapshot_head(1, 1000), &entries(1)).map(drop)),
    ("blob", |store| put_blob(store, &blobs(0, LENGTH)[0])),
    ("large blob", |store| put_blob(store, &blobs(0, LENGTH)[1])),
    ("record", |store| store.put_record(&record(0, &blobs(0, LENGTH))).map(drop)),
    ("order", |store| store.put_order(recipe(), snapshot(1), order_id(1), &order_rows(1)).map(drop)),
    ("manifest", |store| {
        let rows = shard_rows(&[record(0, &blobs(0, LENGTH))]);
        store.put_manifest(recipe(), encoding(), snapshot(1), &rows).map(drop)
    }),
    ("report", |store| store.report(&report(&random(0, 10), 0))),
];
const LENGTH: usize = 50_000;

fn names(store: &Store) -> Vec<String> {
    store.storage().list("").unwrap().into_iter().map(|o| o.name).collect()
}

/// Tries each write again and again while `fill(n)` leaves room for n more blocks (or files), until it succeeds.
fn each_write_fails_cleanly(mount: &Mount, advice: &str, fill: impl Fn(u64), empty: impl Fn()) {
    let store = open(&mount.path().join("store"));
    for (what, write) in WRITES {
        let mut failures = 0;
        for room in 0.. {
            assert!(room < 100, "{what} never fits");
            let (before, free) = (names(&store), store.storage().free_bytes());
            fill(room);
            let outcome = write(&open(&mount.path().join("store")));
            empty();
            let Err(error) = outcome else { break };
            failures += 1;
            assert_eq!(error.kind(), Kind::Unavailable, "{what}: {error:?}");
            assert!(error.chain().contains(advice), "{what}: {error:?}");
            // Of a head with a table, the table may be there already: an object that is whole, and of use to the next try.
            let added: Vec<String> = names(&store).into_iter().filter(|n| !before.contains(n)).collect();
            assert!(added.iter().all(|name| name.ends_with(".parquet")), "{what}: {added:?}");
            if added.is_empty() {
                assert_eq!(store.storage().free_bytes(), free, "{what}: the space is returned");
            }
            assert_eq!(check(&store, false).findings, []);
            assert!(files(mount.path()).keys().all(|name| !name.contains(".tmp-")));
        }
        assert!(failures > 0, "{what} always fits");
    }
    assert_eq!(check(&store, true).findings.len(), 1, "the report of a blob that never was");
    assert_sound(&store);
}

#[test]
fn a_full_disk_fails_each_kind_of_write_cleanly() {
    let Some(mount) = Mount::new("size=2m") else { return };
    let filler = mount.path().join("filler");
    let fill = |blocks: u64| {
        let space = rustix::fs::statvfs(mount.path()).unwrap();
        let bytes = space.f_bavail.saturating_sub(blocks) * space.f_frsize;
        fs::write(&filler, vec![1; bytes as usize]).unwrap();
    };
    each_write_fails_cleanly(&mount, "the disk is full", fill, || fs::remove_file(&filler).unwrap());
}

#[test]
fn a_disk_without_room_for_more_files_fails_each_kind_of_write_cleanly() {
    let Some(mount) = Mount::new("size=8m,nr_inodes=64") else { return };
    let fillers = mount.path().join("fillers");
    let fill = |files: u64| {
        fs::create_dir(&fillers).unwrap();
        let free = rustix::fs::statvfs(mount.path()).unwrap().f_favail;
        (files..free).for_each(|i| drop(fs::File::create(fillers.join(i.to_string())).unwrap()));
    };
    // The first directories stay, once made; whatever fails after them leaves no file.
    each_write_fails_cleanly(&mount, "the disk is full", fill, || fs::remove_dir_all(&fillers).unwrap());
}

#[test]
fn a_disk_that_fills_up_while_spooling_says_so_and_is_empty_again() {
    let Some(mount) = Mount::new("size=2m") else { return };
    let store = open(&mount.path().join("store"));
    let free = store.storage().free_bytes();
    let mut spool = store.spool().unwrap();
    let error = (0..100).find_map(|_| spool.write_all(&random(1, 1 << 16)).err()).unwrap();
    assert_eq!(error.kind(), std::io::ErrorKind::StorageFull);
    let error = Error::io("cannot encode a shard", error);
    assert_eq!(error.kind(), Kind::Unavailable);
    assert!(error.chain().contains("the disk is full: free some space"), "{error:?}");
    drop(spool);
    assert_eq!((names(&store), store.storage().free_bytes()), (vec![], free));
}

#[test]
fn a_read_only_store_is_read_and_says_why_it_is_not_written() {
    let Some((_keep, store)) = read_only() else { return };
    assert_sound(&store);
    let record = record(0, &blobs(0, LENGTH));
    assert_eq!(store.record(recipe(), encoding(), shard(0)).unwrap().unwrap(), record);
    assert_eq!(store.entries(&store.current_snapshot("photos").unwrap().unwrap()).unwrap(), entries(2));
    // What is there already needs no writing.
    assert_eq!(store.put_record(&record).unwrap(), record);
    store.put_recipe(&recipe_head()).unwrap();
    let objects = names(&store);
    for error in [
        store.spool().unwrap_err(),
        store.report(&report(&random(0, 10), 0)).unwrap_err(),
        store.put_pipeline(&pipeline_head("changed")).unwrap_err(),
        store.put_snapshot(snapshot_head(3, 9000), &entries(3)).unwrap_err(),
        store
            .clear_report(record.parts[0].blob)
            .err()
            .unwrap_or_else(|| Error::invalid("read-only; use another store")),
    ] {
        assert_eq!(error.kind(), Kind::Invalid, "{error:?}");
        assert!(error.message().contains("use another store"), "{error:?}");
    }
    assert_eq!(names(&store), objects);
}

/// Lets the directory be removed again.
struct Writable(tempfile::TempDir);

impl Drop for Writable {
    fn drop(&mut self) {
        let _ = Command::new("chmod").args(["-R", "u+w"]).arg(self.0.path()).status();
    }
}

/// A store and what keeps it: a read-only mount for root, whom permissions don't stop; permissions for all others.
fn read_only() -> Option<(Box<dyn Any>, Store)> {
    if !rustix::process::geteuid().is_root() {
        let (keep, store) = fresh();
        put_dataset(&store, 2, LENGTH).unwrap();
        assert!(Command::new("chmod").args(["-R", "a-w"]).arg(keep.path()).status().unwrap().success());
        return Some((Box::new(Writable(keep)), store));
    }
    let mounted = Mount::new("size=8m")?;
    put_dataset(&open(&mounted.path().join("store")), 2, LENGTH).unwrap();
    mounted.remount("ro");
    let store = open(&mounted.path().join("store"));
    Some((Box::new(mounted), store))
}

/// Also: a document that no one could read back is not published.
#[test]
fn a_document_past_its_limit_is_refused() {
    let (_keep, store) = fresh();
    let head = pipeline_head(&"x".repeat(forebay::format::head::PipelineHead::MAX_BYTES as usize));
    let error = store.put_pipeline(&head).unwrap_err();
    assert_eq!(error.kind(), Kind::Invalid);
    assert!(error.message().contains("can be read back"), "{error}");
    assert_eq!(names(&store), [""; 0]);
}
