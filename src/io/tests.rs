//! Publishing by every means that a file system may leave, and what stands in the way of it.

use super::*;
use crate::error::Kind;
use std::collections::BTreeSet;
use std::fs;
use std::io::Write;
use std::os::unix::fs::{MetadataExt, symlink};
use tempfile::TempDir;
use temporary::Means;

/// From all that a good file system can do down to nothing but a rename.
const MEANS: [Means; 5] = [
    Means::ALL,
    Means { unnamed: true, exclusive_rename: true, hard_link: false },
    Means { unnamed: false, exclusive_rename: true, hard_link: true },
    Means { unnamed: false, exclusive_rename: false, hard_link: true },
    Means { unnamed: false, exclusive_rename: false, hard_link: false },
];

fn with(means: Means) -> (TempDir, Storage) {
    let directory = tempfile::tempdir().unwrap();
    // Not there yet: the first write makes it.
    let root = directory.path().join("a/store");
    (directory, Storage { place: Place::Local(Arc::new(Local::with_means(root, means))) })
}

fn spool(storage: &Storage, bytes: &[u8]) -> Spool {
    let mut spool = storage.spool().unwrap();
    for piece in bytes.chunks(1000) {
        spool.write_all(piece).unwrap();
    }
    assert_eq!(spool.bytes(), bytes.len() as u64);
    spool
}

fn names(storage: &Storage, prefix: &str) -> Vec<String> {
    storage.list(prefix).unwrap().into_iter().map(|o| o.name).collect()
}

/// Every file below, temporary ones too.
fn files(directory: &Path) -> BTreeSet<PathBuf> {
    let mut found = BTreeSet::new();
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() { found.extend(files(&path)) } else { assert!(found.insert(path)) }
    }
    found
}

#[test]
fn objects_are_published_whole_by_every_means() {
    for means in MEANS {
        let (_keep, storage) = with(means);
        assert_eq!((names(&storage, ""), storage.get("x", 9).unwrap()), (vec![], None), "an empty store");
        let bytes: Vec<u8> = (0..3_000_000u32).map(|i| (i % 251) as u8).collect();
        for (name, bytes) in [("v1/blobs/ab/large", bytes.as_slice()), ("v1/empty", b"")] {
            assert_eq!(storage.publish(spool(&storage, bytes), name, false).unwrap(), Put::Created, "{means:?}");
            assert_eq!(storage.map(name, bytes.len() as u64).unwrap().as_slice(), bytes);
            assert_eq!(storage.bytes(name).unwrap(), Some(bytes.len() as u64));
            let other = spool(&storage, b"other");
            assert_eq!(
                storage.publish(other, name, false).unwrap(),
                Put::Exists { bytes: bytes.len() as u64 },
                "{means:?}"
            );
            assert_eq!(storage.get(name, 3_000_000).unwrap().unwrap(), bytes, "left as it was");
        }
        assert_eq!(storage.put(b"one", "v1/one", false).unwrap(), Put::Created);
        assert_eq!(storage.put(b"another", "v1/one", false).unwrap(), Put::Exists { bytes: 3 });
        assert_eq!(storage.put(b"another", "v1/one", true).unwrap(), Put::Created);
        assert_eq!(storage.get("v1/one", 7).unwrap().unwrap(), b"another");
        assert_eq!(storage.publish(spool(&storage, b"new"), "v1/two", true).unwrap(), Put::Created);
        assert_eq!(names(&storage, ""), ["v1/blobs/ab/large", "v1/empty", "v1/one", "v1/two"]);
        assert_eq!(names(&storage, "v1/blobs"), ["v1/blobs/ab/large"]);
        assert_eq!(storage.list_directories("v1").unwrap(), ["blobs"]);
        drop(spool(&storage, b"given up"));
        assert_eq!(files(storage.local_path().unwrap()).len(), 4, "{means:?}: nothing is left behind");
        for name in ["v1/one", "v1/one", "v1/never"] {
            storage.delete(name).unwrap();
        }
        assert_eq!(storage.get("v1/one", 7).unwrap(), None);
    }
}

#[test]
fn one_of_many_racing_writers_wins() {
    for means in &MEANS[..4] {
        let (_keep, storage) = with(*means);
        for round in 0..10 {
            let name = format!("v1/race/{round}");
            let won: Vec<u8> = std::thread::scope(|scope| {
                let racers: Vec<_> = (0..8u8)
                    .map(|id| {
                        let (storage, name) = (&storage, &name);
                        scope.spawn(move || (storage.publish(spool(storage, &[id; 5000]), name, false).unwrap(), id))
                    })
                    .collect();
                let puts: Vec<_> = racers.into_iter().map(|r| r.join().unwrap()).collect();
                assert!(puts.iter().all(|(put, _)| matches!(put, Put::Created | Put::Exists { bytes: 5000 })));
                puts.into_iter().filter(|(put, _)| *put == Put::Created).map(|(_, id)| id).collect()
            });
            assert_eq!(won.len(), 1, "{means:?}");
            assert_eq!(storage.get(&name, 5000).unwrap().unwrap(), vec![won[0]; 5000]);
        }
    }
}

#[test]
fn racing_replacements_are_never_seen_half() {
    for means in MEANS {
        let (_keep, storage) = with(means);
        storage.put(&[0; 9000], "v1/x", false).unwrap();
        std::thread::scope(|scope| {
            for id in 1..5u8 {
                let storage = &storage;
                scope.spawn(move || (0..20).for_each(|_| assert!(storage.put(&[id; 9000], "v1/x", true).is_ok())));
            }
            for _ in 0..200 {
                let seen = storage.get("v1/x", 9000).unwrap().unwrap();
                assert!(seen.len() == 9000 && seen.iter().all(|b| *b == seen[0]));
            }
        });
        assert_eq!(files(storage.local_path().unwrap()).len(), 1);
    }
}

#[test]
fn a_mapping_outlives_its_name() {
    let (_keep, storage) = with(Means::ALL);
    storage.put(&[7; 10_000], "v1/x", false).unwrap();
    let mapped = storage.map("v1/x", 10_000).unwrap();
    assert_eq!(mapped.as_ptr().align_offset(64), 0);
    storage.put(b"short", "v1/x", true).unwrap();
    storage.delete("v1/x").unwrap();
    drop(storage);
    assert_eq!(mapped.as_slice(), [7; 10_000]);
}

#[test]
fn lengths_are_checked_before_anything_is_read() {
    let (_keep, storage) = with(Means::ALL);
    storage.put(&[7; 100], "v1/x", false).unwrap();
    for bytes in [0, 99, 101, u64::MAX] {
        let error = storage.map("v1/x", bytes).unwrap_err();
        assert_eq!(error.kind(), Kind::Corrupt);
        assert!(error.message().contains(&format!("has 100 bytes; expected {bytes}")), "{error}");
    }
    assert_eq!(storage.map("v1/y", 1).unwrap_err().kind(), Kind::NotFound);
    assert_eq!(storage.get("v1/x", 100).unwrap().unwrap().len(), 100);
    let error = storage.get("v1/x", 99).unwrap_err();
    assert!(error.message().contains("has 100 bytes; expected at most 99"), "{error}");
}

#[test]
fn what_is_no_file_is_named_and_never_waited_for() {
    let (_keep, storage) = with(Means::ALL);
    storage.put(b"", "v1/file", false).unwrap();
    let root = storage.local_path().unwrap();
    fs::create_dir(root.join("v1/directory")).unwrap();
    let pipe = std::process::Command::new("mkfifo").arg(root.join("v1/pipe")).status();
    let mut odd = vec!["v1/directory"];
    odd.extend(pipe.is_ok_and(|s| s.success()).then_some("v1/pipe"));
    for name in odd {
        for error in [storage.get(name, 9).unwrap_err(), storage.map(name, 9).unwrap_err()] {
            assert_eq!(error.kind(), Kind::Corrupt);
            assert!(error.message().contains(&format!("{name} is not a file")), "{error}");
        }
    }
    for error in [
        storage.get("v1/file/x", 9).unwrap_err(),
        storage.put(b"x", "v1/file/x", false).unwrap_err(),
        storage.list("v1/file").unwrap_err(),
    ] {
        assert_eq!(error.kind(), Kind::Invalid);
        assert!(error.message().contains("a file is in the place of a directory"), "{error}");
    }
    assert_eq!(names(&storage, "v1"), ["v1/file"]);
}

#[test]
fn what_is_no_object_makes_way_for_one_and_is_kept_where_it_holds_something() {
    for means in MEANS {
        let (_keep, storage) = with(means);
        let root = storage.local_path().unwrap().to_owned();
        fs::create_dir_all(root.join("v1/full")).unwrap();
        fs::write(root.join("v1/full/mine"), b"mine").unwrap();
        fs::create_dir(root.join("v1/empty")).unwrap();
        symlink("nowhere", root.join("v1/nowhere")).unwrap();
        symlink("circle", root.join("v1/circle")).unwrap();
        rustix::fs::mkfifoat(rustix::fs::CWD, root.join("v1/pipe"), 0o644.into()).unwrap();
        let odd = ["v1/circle", "v1/empty", "v1/full", "v1/nowhere", "v1/pipe"];
        assert_eq!(storage.list_no_files("v1").unwrap(), odd);
        assert_eq!(names(&storage, ""), ["v1/full/mine"]);
        for name in odd {
            assert_eq!(storage.put(b"object", name, false).unwrap(), Put::Created, "{means:?} {name}");
            assert_eq!(storage.get(name, 100).unwrap().unwrap(), b"object");
            assert_eq!(storage.put(b"object", name, false).unwrap(), Put::Exists { bytes: 6 });
        }
        let aside = storage.list_no_files("v1").unwrap();
        assert!(aside.len() == 1 && aside[0].starts_with("v1/full.aside-"), "{aside:?}");
        assert_eq!(storage.get(&format!("{}/mine", aside[0]), 100).unwrap().unwrap(), b"mine");
        storage.delete(&aside[0]).unwrap();
        assert_eq!(fs::read(root.join(&storage.list_no_files("v1").unwrap()[0]).join("mine")).unwrap(), b"mine");
    }
}

#[test]
fn names_never_leave_the_directory() {
    let (_keep, storage) = with(Means::ALL);
    for name in ["", "/etc/passwd", "..", "v1/../../x", "v1//x", "v1/", "./x", "v1/x\0y", "v1/.tmp-1", ".tmp-1/x"] {
        for error in [
            storage.put(b"x", name, true).unwrap_err(),
            storage.get(name, 9).unwrap_err(),
            storage.map(name, 9).unwrap_err(),
            storage.delete(name).unwrap_err(),
            storage.publish(spool(&storage, b"x"), name, false).unwrap_err(),
        ] {
            assert_eq!(error.kind(), Kind::Invalid, "{name:?}");
            assert!(error.message().contains("can't name an object"), "{error}");
        }
        assert!(name.is_empty() || storage.list(name).is_err());
    }
    assert_eq!(storage.put(b"x", "v1/a b%+#é/..x..", false).unwrap(), Put::Created);
    assert_eq!(names(&storage, ""), ["v1/a b%+#é/..x.."]);
}

#[test]
fn urls_and_paths_name_a_directory() {
    for (url, path) in [
        ("/srv/store", "/srv/store"),
        ("file:///srv/my%20store", "/srv/my store"),
        ("file://localhost/srv", "/srv"),
        ("/srv/100%", "/srv/100%"),
        ("/srv/a://b", "/srv/a://b"),
    ] {
        assert_eq!(Storage::open(url, &Access::default()).unwrap().local_path().unwrap(), Path::new(path));
    }
    assert!(Storage::open("store", &Access::default()).unwrap().local_path().unwrap().is_absolute());
    for (url, part) in [
        ("s3://", "no bucket"),
        ("s3:///prefix", "no bucket"),
        ("s3://key:secret@bucket/prefix", "holds credentials"),
        ("s3://bucket/a//b", "can't name a store"),
        ("s3://bucket/a/../b", "can't name a store"),
        ("gs://bucket", "gs:// "),
        ("file://host/srv", "no file URL"),
        ("file:///srv/%zz", "no file URL"),
        ("file:///srv/%ff", "no file URL"),
        ("file:///srv/%00", "can't name a store"),
        ("", "can't name a store"),
    ] {
        let error = Storage::open(url, &Access::default()).unwrap_err();
        assert_eq!(error.kind(), Kind::Invalid);
        assert!(error.message().contains(part), "{error}");
    }
}

#[test]
fn left_over_temporary_files_are_in_no_list_and_swept() {
    let (_keep, storage) = with(Means::ALL);
    storage.put(b"x", "v1/x", false).unwrap();
    let root = storage.local_path().unwrap();
    fs::write(root.join(".tmp-1-0"), b"left").unwrap();
    fs::write(root.join("v1/.tmp-2-0"), b"left").unwrap();
    assert_eq!(names(&storage, ""), ["v1/x"]);
    assert_eq!(storage.sweep(Duration::from_secs(3600)).unwrap(), 0);
    assert_eq!(storage.sweep(Duration::ZERO).unwrap(), 2);
    assert_eq!(files(root).len(), 1);
}

#[test]
fn files_are_as_open_to_others_as_the_umask_allows() {
    for means in MEANS {
        let (keep, storage) = with(means);
        storage.put(b"x", "v1/put", false).unwrap();
        storage.publish(spool(&storage, b"x"), "v1/published", false).unwrap();
        fs::write(keep.path().join("plain"), b"").unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().mode() & 0o7777;
        let root = storage.local_path().unwrap();
        assert_eq!(mode(&root.join("v1/put")), mode(&keep.path().join("plain")), "{means:?}");
        assert_eq!(mode(&root.join("v1/published")), mode(&keep.path().join("plain")), "{means:?}");
    }
}

#[test]
fn parts_of_a_store_may_lie_on_another_disk() {
    let shared = Path::new("/dev/shm");
    let (_keep, storage) = with(Means::ALL);
    storage.put(b"", "v1/x", false).unwrap();
    let root = storage.local_path().unwrap();
    if !shared.is_dir() || fs::metadata(shared).unwrap().dev() == fs::metadata(root).unwrap().dev() {
        println!("SKIPPED: /dev/shm is no second file system here");
        return;
    }
    for means in MEANS {
        let other = tempfile::tempdir_in(shared).unwrap();
        let (_keep, storage) = with(means);
        storage.put(b"", "v1/x", false).unwrap();
        symlink(other.path(), storage.local_path().unwrap().join("v1/blobs")).unwrap();
        let (first, second) = (spool(&storage, &[1; 9000]), spool(&storage, &[2; 8000]));
        assert_eq!(storage.publish(first, "v1/blobs/a", false).unwrap(), Put::Created);
        assert_eq!(storage.publish(spool(&storage, b""), "v1/blobs/a", false).unwrap(), Put::Exists { bytes: 9000 });
        assert_eq!(storage.publish(second, "v1/blobs/a", true).unwrap(), Put::Created);
        assert_eq!(storage.get("v1/blobs/a", 8000).unwrap().unwrap(), [2; 8000]);
        assert_eq!(names(&storage, ""), ["v1/blobs/a", "v1/x"]);
        assert_eq!((files(other.path()).len(), files(storage.local_path().unwrap()).len()), (1, 2), "{means:?}");
    }
}

#[test]
fn a_link_that_leads_in_circles_is_an_error_and_no_endless_list() {
    let (_keep, storage) = with(Means::ALL);
    storage.put(b"", "v1/x", false).unwrap();
    symlink("..", storage.local_path().unwrap().join("v1/up")).unwrap();
    let error = storage.list("").unwrap_err();
    assert!(error.message().contains("symbolic link"), "{error}");
}

#[test]
fn the_clock_and_the_free_space_are_those_of_the_disk() {
    let (keep, storage) = with(Means::ALL);
    assert!(storage.free_bytes().unwrap() > 0, "before the directory is made");
    let before = storage.now_ms().unwrap();
    storage.put(b"x", "v1/x", false).unwrap();
    let modified = storage.list("").unwrap()[0].modified_ms;
    let after = storage.now_ms().unwrap();
    assert!(before <= modified && modified <= after, "{before} {modified} {after}");
    assert!(keep.path().join("a/store").is_dir());
}
