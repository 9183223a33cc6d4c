//! The cache tier of remote stores: what it keeps isn't asked for again, it stays within its size, it is shared, and
//! nothing that happens to its files changes a batch.

use crate::fixture::{Dataset, PHOTOS};
use arrow::array::RecordBatch;
use async_trait::async_trait;
use forebay::app::open::{Reading, Which, from_store};
use forebay::app::store_stages::{Prepared, Request};
use forebay::engine::pool::Pool;
use forebay::format::encoding::{Codec, Container};
use forebay::io::{Access, Storage, TierOptions};
use forebay::materialize::run::Options;
use forebay::plan::order::batch::{Batching, Tail};
use forebay::reader::Reader;
use forebay::store::Store;
use futures_util::stream::BoxStream;
use object_store::memory::InMemory;
use object_store::path::Path as Name;
use object_store::{
    CopyOptions, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStore, PutMultipartOptions,
    PutOptions, PutPayload, PutResult, Result,
};
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// A memory that counts what it is asked.
#[derive(Debug, Default)]
struct Counting {
    objects: InMemory,
    requests: AtomicUsize,
    /// Those for bytes of shards.
    parts: AtomicUsize,
}

impl Counting {
    /// Requests since last asked: all, and those for bytes of shards.
    fn take(&self) -> (usize, usize) {
        (self.requests.swap(0, Ordering::Relaxed), self.parts.swap(0, Ordering::Relaxed))
    }

    fn count(&self) {
        self.requests.fetch_add(1, Ordering::Relaxed);
    }
}

impl fmt::Display for Counting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a memory that counts")
    }
}

#[async_trait]
impl ObjectStore for Counting {
    async fn put_opts(&self, location: &Name, payload: PutPayload, options: PutOptions) -> Result<PutResult> {
        self.count();
        self.objects.put_opts(location, payload, options).await
    }

    async fn put_multipart_opts(&self, _: &Name, _: PutMultipartOptions) -> Result<Box<dyn MultipartUpload>> {
        unreachable!("nothing is uploaded in pieces")
    }

    async fn get_opts(&self, location: &Name, options: GetOptions) -> Result<GetResult> {
        self.count();
        if location.as_ref().ends_with(".arrow") && !options.head {
            self.parts.fetch_add(1, Ordering::Relaxed);
        }
        self.objects.get_opts(location, options).await
    }

    fn delete_stream(&self, locations: BoxStream<'static, Result<Name>>) -> BoxStream<'static, Result<Name>> {
        self.count();
        self.objects.delete_stream(locations)
    }

    fn list(&self, prefix: Option<&Name>) -> BoxStream<'static, Result<ObjectMeta>> {
        self.count();
        self.objects.list(prefix)
    }

    async fn list_with_delimiter(&self, prefix: Option<&Name>) -> Result<ListResult> {
        self.count();
        self.objects.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, from: &Name, to: &Name, options: CopyOptions) -> Result<()> {
        self.objects.copy_opts(from, to, options).await
    }
}

/// A stage stored in a service, and the batches that reading it gives.
struct Stored {
    dataset: Dataset,
    objects: Arc<Counting>,
    expected: Vec<RecordBatch>,
}

impl Stored {
    fn new() -> Stored {
        let dataset = Dataset::with_photos(PHOTOS, 40);
        let objects = Arc::new(Counting::default());
        let mut stored = Stored { dataset, objects, expected: Vec::new() };
        let mut project = stored.dataset.project();
        project.dataset.store = stored.store(&stored.directory("writer"), Some(0));
        let snapshot = Arc::new(project.list(&|_, _| {}).unwrap());
        project.publish(&snapshot, 1, true).unwrap();
        let stop = AtomicBool::new(false);
        let (pool, on_error) = (Pool::new(2).unwrap(), project.pipeline.on_error);
        let options = Options { pool, on_error, stop: &stop, retry_after: &[], progress: &|_| {} };
        let (container, codec) = (Some(Container::Arrow), Some(Codec::None));
        let request = Request { stages: vec!["resize".to_owned()], container, codec };
        Prepared::new(&project, snapshot, &request).unwrap().run(&project, &options).unwrap();
        stored.expected = epoch(&stored.reader(&stored.directory("writer"), Some(0)), 0);
        assert!(stored.expected.len() > 3);
        stored.objects.take();
        stored
    }

    fn directory(&self, name: &str) -> PathBuf {
        self.dataset.path().join(name)
    }

    fn store(&self, directory: &Path, bytes: Option<u64>) -> Store {
        let tier = Some(TierOptions { directory: directory.to_owned(), bytes });
        let access = Access { scratch: self.directory("scratch"), tier, ..Access::default() };
        Store::over(Storage::over(self.objects.clone(), "s3://counting", &access)).unwrap()
    }

    /// A reader of its own, as a new process has one.
    fn reader(&self, directory: &Path, bytes: Option<u64>) -> Reader {
        reader(self.store(directory, bytes))
    }

    /// Reads as a new process would; the requests for bytes of shards that it took.
    fn read(&self, directory: &Path, bytes: Option<u64>) -> usize {
        self.objects.take();
        let reader = self.reader(directory, bytes);
        assert!(epoch(&reader, 0) == self.expected);
        assert_eq!(reader.take_warnings(), Vec::<String>::new());
        self.objects.take().1
    }
}

fn reader(store: Store) -> Reader {
    let opened = from_store(store, "photos", Which::Current).unwrap();
    let batching = Batching::new(7, 0, 1, Tail::Short).unwrap();
    let reading = Reading { split: Some("train"), stage: None, batching, shuffle: None, seed: 3, prefetch: 0 };
    opened.reader(&reading, Pool::new(2).unwrap()).unwrap()
}

fn epoch(reader: &Reader, number: u64) -> Vec<RecordBatch> {
    reader.epoch(number, 0).unwrap().map(|batch| batch.unwrap().rows).collect()
}

/// Files of a tier with their lengths.
fn files(directory: &Path) -> Vec<(PathBuf, u64)> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory).into_iter().flatten() {
        let entry = entry.unwrap();
        match entry.metadata().unwrap() {
            metadata if metadata.is_dir() => found.extend(files(&entry.path())),
            metadata => found.push((entry.path(), metadata.len())),
        }
    }
    found
}

fn size(directory: &Path) -> u64 {
    files(directory).iter().map(|(_, bytes)| bytes).sum()
}

#[test]
fn later_epochs_ask_for_nothing_and_later_processes_for_no_bytes() {
    let stored = Stored::new();
    let tier = stored.directory("tier");
    let reader = stored.reader(&tier, None);
    assert!(epoch(&reader, 0) == stored.expected);
    assert!(stored.objects.take().1 > 0);
    for number in [1, 2, 0] {
        epoch(&reader, number);
        assert_eq!(stored.objects.take(), (0, 0), "epoch {number}");
    }
    assert_eq!(stored.read(&tier, None), 0);
    assert!(fs::read_dir(stored.directory("scratch")).into_iter().flatten().next().is_none(), "nothing else is left");
    // Without a tier every process fetches.
    let reader = stored.reader(&stored.directory("none"), Some(0));
    assert!(epoch(&reader, 0) == stored.expected);
    assert!(stored.objects.take().1 > 0);
    assert_eq!(files(&stored.directory("none")), []);
}

#[test]
fn the_tier_stays_within_its_size_and_what_was_not_used_for_longest_goes() {
    let stored = Stored::new();
    let tier = stored.directory("tier");
    let all = stored.read(&tier, None);
    let whole = files(&tier);
    assert!(whole.len() >= 3);
    let largest = whole.iter().map(|(_, bytes)| *bytes).max().unwrap();
    fs::remove_dir_all(&tier).unwrap();
    let limit = 2 * largest;
    let store = stored.store(&tier, Some(limit));
    assert!(epoch(&reader(store.clone()), 0) == stored.expected);
    stored.objects.take();
    // What was read last is worth no more than what is there: within a process the same files serve each epoch.
    let kept = files(&tier);
    assert!(!kept.is_empty() && size(&tier) <= limit);
    for _ in 0..2 {
        assert!(epoch(&reader(store.clone()), 0) == stored.expected);
        let parts = stored.objects.take().1;
        assert!(parts > 0 && parts < all, "{parts} of {all}");
        assert_eq!(files(&tier), kept);
    }
    drop(store);
    // Another dataset's, unused for a year and a day: the older one goes first.
    let old = |name: &str, days: u64| {
        let path = tier.join("v1/blobs/00").join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, vec![0; largest as usize]).unwrap();
        let age = std::time::Duration::from_secs(days * 86_400);
        fs::File::open(&path).unwrap().set_modified(std::time::SystemTime::now() - age).unwrap();
        path
    };
    let (year, day, used) = (old("year", 365), old("day", 1), old("used", 400));
    let in_use = fs::File::open(&used).unwrap();
    rustix::fs::flock(&in_use, rustix::fs::FlockOperation::LockShared).unwrap();
    let absent = whole.iter().filter(|(path, _)| !kept.iter().any(|(there, _)| there == path));
    let limit = size(&tier) + absent.map(|(_, bytes)| bytes).sum::<u64>() - 1;
    assert!(stored.read(&tier, Some(limit)) > 0);
    assert_eq!((year.exists(), day.exists(), used.exists()), (false, true, true));
    assert!(size(&tier) <= limit);
    assert_eq!(stored.read(&tier, Some(limit)), 0, "all is there by now");
    assert_eq!(stored.read(&stored.directory("small"), Some(1)), all, "nothing fits");
    assert_eq!(files(&stored.directory("small")), []);
}

#[test]
fn damaged_and_partial_files_are_fetched_anew() {
    let stored = Stored::new();
    let tier = stored.directory("tier");
    stored.read(&tier, None);
    let damages: [fn(&Path, u64); 5] = [
        |path, bytes| {
            let mut all = fs::read(path).unwrap();
            all[bytes as usize / 2] ^= 1;
            fs::write(path, all).unwrap();
        },
        // As after a power cut: the length is there, the bytes aren't; or half of them; or the length isn't.
        |path, bytes| fs::write(path, vec![0; bytes as usize]).unwrap(),
        |path, bytes| fs::OpenOptions::new().write(true).open(path).unwrap().set_len(bytes / 2).unwrap(),
        |path, _| fs::write(path, b"").unwrap(),
        |path, bytes| fs::write(path, vec![7; bytes as usize + 100]).unwrap(),
    ];
    for damage in damages {
        for (path, bytes) in files(&tier) {
            damage(&path, bytes);
        }
        assert!(stored.read(&tier, None) > 0);
        assert_eq!(stored.read(&tier, None), 0, "it is healed");
    }
    for (path, _) in files(&tier) {
        fs::remove_file(&path).unwrap();
        fs::create_dir(&path).unwrap();
    }
    assert!(stored.read(&tier, None) > 0, "a directory in a file's place");
}

#[test]
fn readers_share_a_tier_while_files_vanish() {
    let stored = Stored::new();
    let tier = stored.directory("tier");
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let epochs = [(); 4].map(|()| {
            scope.spawn(|| {
                for _ in 0..5 {
                    assert!(epoch(&stored.reader(&tier, None), 0) == stored.expected);
                }
            })
        });
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                files(&tier).iter().for_each(|(path, _)| drop(fs::remove_file(path)));
                std::thread::sleep(std::time::Duration::from_millis(3));
            }
        });
        let ended: Vec<_> = epochs.into_iter().map(|epoch| epoch.join()).collect();
        done.store(true, Ordering::Relaxed);
        assert!(ended.iter().all(|epoch| epoch.is_ok()));
    });
    assert!(stored.read(&tier, None) > 0);
}

#[test]
fn a_cache_directory_that_cannot_be_written_is_no_failure() {
    let stored = Stored::new();
    let file = stored.directory("file");
    fs::write(&file, "no directory").unwrap();
    assert!(stored.read(&file, None) > 0);
}
