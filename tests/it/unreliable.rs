//! A service that fails in every way, on purpose and by a seed: the finished store and the batches are those of a sound one.

use crate::fixture::{Dataset, PHOTOS};
use arrow::array::RecordBatch;
use async_trait::async_trait;
use bytes::Bytes;
use forebay::app::open::{Reading, Which, from_store};
use forebay::app::store_stages::{Prepared, Request};
use forebay::engine::pool::Pool;
use forebay::error::Kind;
use forebay::io::{Access, Storage};
use forebay::materialize::run::Options;
use forebay::plan::order::batch::{Batching, Tail};
use forebay::store::{Pace, Store, gc};
use futures_util::stream::{self, BoxStream, StreamExt};
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{
    CopyOptions, Error, GetOptions, GetResult, GetResultPayload, ListResult, MultipartUpload, ObjectMeta, ObjectStore,
    PutMultipartOptions, PutOptions, PutPayload, PutResult, Result,
};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// A memory that fails by a seed.
#[derive(Debug)]
struct Faulty {
    objects: InMemory,
    /// The random stream's state.
    state: Mutex<u64>,
    /// Of a thousand requests, so many fail.
    rate: u64,
    failed: AtomicU64,
}

const REFUSALS: [&str; 5] = [
    "Server returned non-2xx status code: 503 Service Unavailable: <Error><Code>SlowDown</Code></Error>",
    "Server returned non-2xx status code: 500 Internal Server Error: <Error><Code>InternalError</Code></Error>",
    "operation timed out",
    "connection reset by peer",
    "Server returned error response: <Error><Code>SlowDown</Code></Error>",
];

fn refusal(draw: u64) -> Error {
    Error::Generic { store: "S3", source: REFUSALS[draw as usize % REFUSALS.len()].into() }
}

impl Faulty {
    fn new(seed: u64, rate: u64) -> Arc<Faulty> {
        let state = Mutex::new(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
        Arc::new(Faulty { objects: InMemory::new(), state, rate, failed: AtomicU64::new(0) })
    }

    fn draw(&self) -> u64 {
        let mut state = self.state.lock().unwrap();
        *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        *state >> 33
    }

    /// Which of `kinds` faults befalls a request, if any.
    fn fault(&self, kinds: u64) -> Option<u64> {
        let struck = self.draw() % 1000 < self.rate;
        struck.then(|| {
            self.failed.fetch_add(1, Ordering::Relaxed);
            self.draw() % kinds
        })
    }
}

impl fmt::Display for Faulty {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a service that fails on purpose")
    }
}

#[async_trait]
impl ObjectStore for Faulty {
    async fn put_opts(&self, location: &Path, payload: PutPayload, options: PutOptions) -> Result<PutResult> {
        match self.fault(4) {
            None => self.objects.put_opts(location, payload, options).await,
            Some(0) => Err(refusal(self.draw())),
            // It took effect, and nobody was told.
            Some(1) => {
                self.objects.put_opts(location, payload, options).await?;
                Err(refusal(self.draw()))
            }
            // Delivered twice.
            Some(2) => {
                let first = self.objects.put_opts(location, payload.clone(), options.clone()).await;
                let _ = self.objects.put_opts(location, payload, options).await;
                first
            }
            Some(_) => {
                tokio::time::sleep(Duration::from_millis(2)).await;
                self.objects.put_opts(location, payload, options).await
            }
        }
    }

    async fn put_multipart_opts(&self, _: &Path, _: PutMultipartOptions) -> Result<Box<dyn MultipartUpload>> {
        unreachable!("nothing is uploaded in pieces, so that none are left behind")
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        let head = options.head;
        let fault = self.fault(5);
        if fault == Some(0) {
            return Err(refusal(self.draw()));
        }
        let mut found = self.objects.get_opts(location, options).await?;
        let Some(fault) = fault.filter(|_| !head) else { return Ok(found) };
        let GetResultPayload::Stream(stream) = found.payload;
        let pieces: Vec<Bytes> = stream.map(|piece| piece.unwrap()).collect().await;
        let body = pieces.concat();
        let half = Bytes::copy_from_slice(&body[..body.len() / 2]);
        let pieces: Vec<Result<Bytes>> = match fault {
            // The connection breaks in mid-body; it ends early; there is more than was said.
            1 => vec![Ok(half), Err(refusal(3))],
            2 => vec![Ok(half)],
            3 => vec![Ok(body.into()), Ok(Bytes::from_static(b"more"))],
            _ => {
                tokio::time::sleep(Duration::from_millis(2)).await;
                vec![Ok(body.into())]
            }
        };
        found.payload = GetResultPayload::Stream(stream::iter(pieces).boxed());
        Ok(found)
    }

    fn delete_stream(&self, locations: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
        match self.fault(2) {
            None => self.objects.delete_stream(locations),
            Some(0) => stream::once(async { Err(refusal(1)) }).boxed(),
            Some(_) => {
                let done = self.objects.delete_stream(locations);
                done.map(|_| Err(refusal(2))).boxed()
            }
        }
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        let listed = self.objects.list(prefix);
        match self.fault(2) {
            None => listed,
            Some(0) => stream::once(async { Err(refusal(0)) }).boxed(),
            // The second page fails.
            Some(_) => listed.take(2).chain(stream::once(async { Err(refusal(1)) })).boxed(),
        }
    }

    fn list_with_offset(&self, prefix: Option<&Path>, offset: &Path) -> BoxStream<'static, Result<ObjectMeta>> {
        match self.fault(1) {
            None => self.objects.list_with_offset(prefix, offset),
            Some(_) => stream::once(async { Err(refusal(1)) }).boxed(),
        }
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        match self.fault(1) {
            None => self.objects.list_with_delimiter(prefix).await,
            Some(_) => Err(refusal(self.draw())),
        }
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.objects.copy_opts(from, to, options).await
    }
}

fn access(dataset: &Dataset, patience: Duration) -> Access {
    let scratch = dataset.path().join("scratch");
    Access { scratch, patience, first_pause: Duration::from_micros(50), ..Access::default() }
}

/// Stores the default stage in a service, and reads an epoch of it back from the store alone.
fn run(dataset: &Dataset, objects: &Arc<Faulty>) -> forebay::error::Result<Vec<RecordBatch>> {
    let open = || Store::over(Storage::over(objects.clone(), "s3://faulty", &access(dataset, Duration::from_secs(60))));
    let mut project = dataset.project();
    project.dataset.store = open()?;
    let snapshot = Arc::new(project.list(&|_, _| {})?);
    project.publish(&snapshot, 1, true)?;
    let stop = AtomicBool::new(false);
    let options = Options {
        pool: Pool::new(2)?,
        on_error: project.pipeline.on_error,
        stop: &stop,
        retry_after: &[],
        progress: &|_| {},
    };
    let request = Request { stages: vec!["resize".to_owned()], container: None, codec: None };
    Prepared::new(&project, snapshot, &request)?.run(&project, &options)?;
    let opened = from_store(open()?, "photos", Which::Current)?;
    let batching = Batching::new(7, 0, 1, Tail::Short)?;
    let reading = Reading { split: Some("train"), stage: None, batching, shuffle: None, seed: 3, prefetch: 0 };
    let reader = opened.reader(&reading, Pool::new(2)?)?;
    reader.epoch(0, 0)?.map(|batch| batch.map(|b| b.rows)).collect()
}

/// Every object; of records the measured seconds are left out, which no two runs share.
fn contents(objects: &Faulty) -> BTreeMap<String, Vec<u8>> {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(async {
        let names: Vec<Path> = objects.objects.list(None).map(|meta| meta.unwrap().location).collect().await;
        let mut found = BTreeMap::new();
        for name in names {
            let got = objects.objects.get_opts(&name, GetOptions::default()).await.unwrap();
            let mut bytes = got.bytes().await.unwrap().to_vec();
            if name.as_ref().contains("/shards/") {
                let mut record: serde_json::Value = serde_json::from_slice(&bytes).unwrap();
                assert!(record.as_object_mut().unwrap().remove("seconds").is_some());
                bytes = record.to_string().into_bytes();
            }
            found.insert(name.to_string(), bytes);
        }
        found
    })
}

/// Names of objects that only one of the two has, or that differ.
fn differing<'a>(one: &'a BTreeMap<String, Vec<u8>>, other: &'a BTreeMap<String, Vec<u8>>) -> Vec<&'a str> {
    let names: BTreeSet<&String> = one.keys().chain(other.keys()).collect();
    names.into_iter().filter(|name| one.get(*name) != other.get(*name)).map(String::as_str).collect()
}

#[test]
fn a_thousand_faulty_services_end_with_the_store_and_batches_of_a_sound_one() {
    let dataset = Dataset::with_photos(&PHOTOS.replace("entries: 8", "entries: 4"), 9);
    let sound = Faulty::new(0, 0);
    let batches = run(&dataset, &sound).unwrap();
    assert!(batches.iter().map(RecordBatch::num_rows).sum::<usize>() > 4);
    let expected = contents(&sound);
    assert!(expected.keys().any(|name| name.contains("/shards/")) && expected.keys().any(|n| n.contains("/blobs/")));
    let mut failed = 0;
    for seed in 1..=1000 {
        let faulty = Faulty::new(seed, 20 + seed % 130);
        let found = run(&dataset, &faulty).unwrap_or_else(|e| panic!("seed {seed}: {}", e.chain()));
        assert_eq!(found, batches, "seed {seed}");
        let there = contents(&faulty);
        assert_eq!(differing(&there, &expected), [""; 0], "seed {seed}");
        failed += faulty.failed.load(Ordering::Relaxed);
    }
    assert!(failed > 3000, "{failed} faults");
}

#[test]
fn a_collection_on_faulty_services_leaves_what_it_leaves_on_a_sound_one() {
    let [many, few] = [9, 6].map(|count| Dataset::with_photos(&PHOTOS.replace("entries: 8", "entries: 4"), count));
    let collected = |objects: &Arc<Faulty>| -> forebay::error::Result<BTreeMap<String, Vec<u8>>> {
        run(&many, objects)?;
        run(&few, objects)?;
        let before = contents(objects).len();
        let storage = Storage::over(objects.clone(), "s3://faulty", &access(&many, Duration::from_secs(60)));
        let stop = AtomicBool::new(false);
        let options = gc::Options {
            keep_within: Duration::ZERO,
            forget: Vec::new(),
            max_bytes: None,
            dry_run: false,
            pace: Pace::usual(false),
            stop: &stop,
            progress: &|_| {},
        };
        gc::collect(&Store::over(storage)?, &options)?;
        let left = contents(objects);
        assert!(left.len() < before);
        Ok(left)
    };
    let expected = collected(&Faulty::new(0, 0)).unwrap();
    for seed in 1..=100 {
        let found = collected(&Faulty::new(seed, 20 + seed)).unwrap_or_else(|e| panic!("seed {seed}: {}", e.chain()));
        assert_eq!(differing(&found, &expected), [""; 0], "seed {seed}");
    }
}

#[test]
fn a_service_that_never_recovers_is_given_up_with_the_object_and_the_last_cause() {
    let dataset = Dataset::with_photos(PHOTOS, 3);
    let faulty = Faulty::new(1, 1000);
    let storage = Storage::over(faulty, "s3://faulty", &access(&dataset, Duration::from_millis(20)));
    let error = storage.list_directories("v1").unwrap_err();
    assert_eq!(error.kind(), Kind::Unavailable);
    assert!(error.chain().starts_with("cannot list s3://faulty/v1 ("), "{}", error.chain());
    let causes = ["SlowDown", "InternalError", "timed out", "reset by peer"];
    assert!(causes.iter().any(|cause| error.chain().contains(cause)), "{}", error.chain());
}
