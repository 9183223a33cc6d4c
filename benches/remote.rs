//! How near stores in buckets come to their limits, with a server on one processor of this machine and this process on
//! another: reading to plain requests for the same objects, the cache tier to a local store, requests that take 50 ms
//! longer to those that don't, and storing to the slower of computing and plain requests. `scripts/bench` makes the
//! photographs and runs this; `benches/README.md` has the results.

mod measure;

use async_trait::async_trait;
use bytes::Bytes;
use forebay::app::open::{Reading, Which, from_store};
use forebay::app::project::{Project, Surroundings};
use forebay::app::store_stages::{Prepared, Request};
use forebay::engine::pool::Pool;
use forebay::format::encoding::{Codec, Container};
use forebay::io::{Access, Storage, TierOptions};
use forebay::materialize::run::Options;
use forebay::plan::order::batch::{Batching, Tail};
use forebay::reader::Reader;
use forebay::store::Store;
use futures_util::stream::{self, BoxStream, StreamExt, TryStreamExt};
use measure::{ROUNDS, median, pin, rate, report};
use object_store::aws::AmazonS3Builder;
use object_store::path::Path as Name;
use object_store::{
    CopyOptions, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStore, ObjectStoreExt,
    PutMultipartOptions, PutOptions, PutPayload, PutResult, Result,
};
use std::fmt;
use std::hint::black_box;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

const BATCH: usize = 128;
const AT_ONCE: usize = 16;
const LATENCY: Duration = Duration::from_millis(50);

const PIPELINE: &str = "
name: bench
source: { files: ./photos/**/*.jpg }
partition: { entries: 128 }
steps:
  - image.decode
  - image.resize: { shorter_side: 256 }
";

fn main() {
    // `cargo test` runs benches too; there is nothing to measure without photographs.
    let Ok(photos) = std::env::var("FOREBAY_BENCH_PHOTOS") else {
        println!("set FOREBAY_BENCH_PHOTOS to a folder of JPEG files (scripts/bench does)");
        return;
    };
    let directory = tempfile::tempdir_in(Path::new(&photos).parent().unwrap()).unwrap();
    std::os::unix::fs::symlink(std::fs::canonicalize(&photos).unwrap(), directory.path().join("photos")).unwrap();
    std::fs::write(directory.path().join("bench.yaml"), PIPELINE).unwrap();
    let server = Server::start();
    pin("1");
    let bench = Bench::new(directory.path(), &server);
    println!("{}, {} images, medians of {ROUNDS} alternating rounds\n", server.name, bench.images);
    // `cargo bench --bench remote -- warm` measures that part alone.
    let parts: Vec<String> = std::env::args().skip(1).filter(|a| !a.starts_with('-')).collect();
    let wanted = |part: &str| parts.is_empty() || parts.iter().any(|p| p == part);
    for (part, measure) in [
        ("cold", Bench::cold as fn(&Bench)),
        ("warm", Bench::warm),
        ("latency", Bench::latency),
        ("materialize", Bench::materialize),
    ] {
        if wanted(part) {
            measure(&bench);
        }
    }
}

/// A server on the first processor.
struct Server {
    name: String,
    objects: Arc<dyn ObjectStore>,
    run: Child,
}

impl Server {
    fn start() -> Server {
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/scripts/s3-server");
        let mut command = Command::new("taskset");
        command.args(["-c", "0", script, "run", "auto"]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut run = command.spawn().unwrap();
        let mut line = String::new();
        BufReader::new(run.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let said: serde_json::Value = serde_json::from_str(&line).unwrap();
        let text = |name: &str| said[name].as_str().unwrap().to_owned();
        let objects = AmazonS3Builder::new()
            .with_endpoint(text("endpoint"))
            .with_allow_http(true)
            .with_region(text("region"))
            .with_bucket_name(text("bucket"))
            .with_access_key_id(text("access_key"))
            .with_secret_access_key(text("secret_key"))
            .build();
        Server { name: text("server"), objects: Arc::new(objects.unwrap()), run }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It ends with its standard input.
        drop(self.run.stdin.take());
        let _ = self.run.wait();
    }
}

struct Bench {
    directory: PathBuf,
    objects: Arc<dyn ObjectStore>,
    /// The stage's blobs, by name.
    blobs: Vec<(Name, Bytes)>,
    images: usize,
    runtime: tokio::runtime::Runtime,
    fresh: AtomicUsize,
}

impl Bench {
    fn new(directory: &Path, server: &Server) -> Bench {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let (directory, objects) = (directory.to_owned(), server.objects.clone());
        let mut bench = Bench { directory, objects, blobs: Vec::new(), images: 0, runtime, fresh: AtomicUsize::new(0) };
        let local = bench.directory.join("local");
        bench.images = bench.store(bench.local());
        bench.store(bench.remote("bucket", bench.objects.clone(), &bench.fresh(), None));
        for entry in std::fs::read_dir(local.join("v1/blobs")).unwrap() {
            for blob in std::fs::read_dir(entry.unwrap().path()).unwrap() {
                let path = blob.unwrap().path();
                if path.extension().is_some_and(|extension| extension == "arrow") {
                    let name = format!("bucket/{}", path.strip_prefix(&local).unwrap().to_str().unwrap());
                    bench.blobs.push((Name::parse(name).unwrap(), std::fs::read(&path).unwrap().into()));
                }
            }
        }
        bench
    }

    /// A directory that isn't there yet.
    fn fresh(&self) -> PathBuf {
        self.directory.join(format!("fresh-{}", self.fresh.fetch_add(1, Ordering::Relaxed)))
    }

    fn local(&self) -> Store {
        Store::open(self.directory.join("local").to_str().unwrap(), &Access::default()).unwrap()
    }

    fn remote(&self, prefix: &str, objects: Arc<dyn ObjectStore>, tier: &Path, bytes: Option<u64>) -> Store {
        let objects = Arc::new(object_store::prefix::PrefixStore::new(objects, prefix));
        let tier = Some(TierOptions { directory: tier.to_owned(), bytes });
        let access = Access { scratch: self.directory.join("scratch"), tier, ..Access::default() };
        Store::over(Storage::over(objects, "s3://bench", &access)).unwrap()
    }

    /// Stores the resize stage; how many images it has.
    fn store(&self, store: Store) -> usize {
        let access = Access::default();
        let surroundings = Surroundings {
            store: None,
            access: &access,
            variables: &|_| None,
            cache: Some(self.directory.join("cache")),
            threads: 1,
            progress: &|_, _| {},
        };
        let mut project = Project::open(&self.directory.join("bench.yaml"), &surroundings).unwrap();
        project.dataset.store = store;
        let snapshot = Arc::new(project.list(&|_, _| {}).unwrap());
        project.publish(&snapshot, 1, true).unwrap();
        let images = snapshot.entries.entries.len();
        let request =
            Request { stages: vec!["resize".into()], container: Some(Container::Arrow), codec: Some(Codec::None) };
        let (stop, pool) = (AtomicBool::new(false), Pool::new(1).unwrap());
        let on_error = project.pipeline.on_error;
        let options = Options { pool, on_error, stop: &stop, retry_after: &[], progress: &|_| {} };
        let done = Prepared::new(&project, snapshot, &request).unwrap().run(&project, &options).unwrap();
        assert!(done.manifests[0].is_some());
        images
    }

    /// Reading with nothing kept, against plain requests for whole objects.
    fn cold(&self) {
        let ours = || self.read(self.remote("bucket", self.objects.clone(), &self.fresh(), None));
        let limit = || {
            rate(|| {
                let get = |(name, bytes): &(Name, Bytes)| {
                    let (objects, name, expected) = (self.objects.clone(), name.clone(), bytes.len());
                    async move {
                        let found = objects.get(&name).await?.bytes().await?;
                        assert_eq!(found.len(), expected);
                        Ok::<_, object_store::Error>(black_box(found))
                    }
                };
                let gets = stream::iter(self.blobs.iter().map(get)).buffer_unordered(AT_ONCE);
                self.runtime.block_on(gets.try_for_each(|_| async { Ok(()) })).unwrap();
                self.images
            })
        };
        report("reading with an empty cache tier / 16 plain GETs at a time", 0.8, ours, limit);
    }

    /// Reading what the tier holds, against a local store; each by a reader that knows nothing yet.
    fn warm(&self) {
        let tier = self.fresh();
        let store = || self.remote("bucket", self.objects.clone(), &tier, None);
        self.read(store());
        report(
            "reading from the cache tier / from a local store",
            0.9,
            || self.read(store()),
            || self.read(self.local()),
        );
    }

    fn latency(&self) {
        let slow: Arc<dyn ObjectStore> = Arc::new(Slow(self.objects.clone()));
        let read =
            |objects: &Arc<dyn ObjectStore>| self.read(self.remote("bucket", objects.clone(), &self.fresh(), None));
        let name = "reading with 50 ms added to each request / without";
        report(name, 0.9, || read(&slow), || read(&self.objects));
    }

    fn materialize(&self) {
        let mut runs = Vec::new();
        for round in 0..ROUNDS {
            let prefix = format!("round-{round}");
            let bucket = self.remote(&prefix, self.objects.clone(), &self.fresh(), None);
            let ours = rate(|| self.store(bucket));
            let local = Store::open(self.fresh().to_str().unwrap(), &Access::default()).unwrap();
            let local = rate(|| self.store(local));
            let puts = rate(|| {
                let put = |(name, bytes): &(Name, Bytes)| {
                    let (objects, name) = (self.objects.clone(), Name::parse(format!("raw-{round}/{name}")).unwrap());
                    let payload = PutPayload::from_bytes(bytes.clone());
                    async move { objects.put(&name, payload).await }
                };
                let puts = stream::iter(self.blobs.iter().map(put)).buffer_unordered(AT_ONCE);
                self.runtime.block_on(puts.try_for_each(|_| async { Ok(()) })).unwrap();
                self.images
            });
            runs.push((ours, local, puts));
        }
        let ratio = median(runs.iter().map(|(ours, local, puts)| ours / local.min(*puts)));
        let of = |part: fn(&(f64, f64, f64)) -> f64| median(runs.iter().map(part));
        println!(
            "materialize to a bucket / the slower of materialize to disk and plain PUTs: {ratio:.2} (goal 0.9); \
             {:.0}, {:.0} and {:.0} images a second",
            of(|run| run.0),
            of(|run| run.1),
            of(|run| run.2)
        );
    }

    /// Images a second of an epoch.
    fn read(&self, store: Store) -> f64 {
        let reader = reader(store);
        rate(|| {
            let read = reader.epoch(0, 0).unwrap().map(|batch| black_box(batch.unwrap().rows).num_rows()).sum();
            assert_eq!(read, self.images);
            read
        })
    }
}

fn reader(store: Store) -> Reader {
    let opened = from_store(store, "bench", Which::Current).unwrap();
    let batching = Batching::new(BATCH as u64, 0, 1, Tail::Short).unwrap();
    let reading = Reading { split: None, stage: Some("resize"), batching, shuffle: Some(true), seed: 1, prefetch: 0 };
    opened.reader(&reading, Pool::new(1).unwrap()).unwrap()
}

/// A service that is far away.
#[derive(Debug)]
struct Slow(Arc<dyn ObjectStore>);

impl fmt::Display for Slow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, far away", self.0)
    }
}

#[async_trait]
impl ObjectStore for Slow {
    async fn put_opts(&self, location: &Name, payload: PutPayload, options: PutOptions) -> Result<PutResult> {
        tokio::time::sleep(LATENCY).await;
        self.0.put_opts(location, payload, options).await
    }
    async fn put_multipart_opts(&self, _: &Name, _: PutMultipartOptions) -> Result<Box<dyn MultipartUpload>> {
        unreachable!("nothing is uploaded in pieces")
    }
    async fn get_opts(&self, location: &Name, options: GetOptions) -> Result<GetResult> {
        tokio::time::sleep(LATENCY).await;
        self.0.get_opts(location, options).await
    }
    fn delete_stream(&self, locations: BoxStream<'static, Result<Name>>) -> BoxStream<'static, Result<Name>> {
        self.0.delete_stream(locations)
    }
    fn list(&self, prefix: Option<&Name>) -> BoxStream<'static, Result<ObjectMeta>> {
        let listed = self.0.list(prefix);
        stream::once(tokio::time::sleep(LATENCY)).flat_map(move |()| stream::empty()).chain(listed).boxed()
    }
    async fn list_with_delimiter(&self, prefix: Option<&Name>) -> Result<ListResult> {
        tokio::time::sleep(LATENCY).await;
        self.0.list_with_delimiter(prefix).await
    }
    async fn copy_opts(&self, from: &Name, to: &Name, options: CopyOptions) -> Result<()> {
        self.0.copy_opts(from, to, options).await
    }
}
