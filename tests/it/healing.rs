//! Every kind of object, damaged in every way: a reader yields the right batches or says what helps, and a store is whole
//! and right again after `materialize`, or `verify --repair` and `materialize`.

use crate::fixture::{Dataset, PHOTOS};
use arrow::array::RecordBatch;
use forebay::app::open::{Reading, Which, from_file};
use forebay::app::project::{Project, Surroundings};
use forebay::app::store_stages::{Prepared, Request};
use forebay::engine::pool::Pool;
use forebay::error::{Kind, Result};
use forebay::format::document::Document;
use forebay::format::head::{ManifestHead, OrderHead, RecipeHead, SnapshotHead};
use forebay::format::name::Name;
use forebay::format::record::Record;
use forebay::io::Access;
use forebay::materialize::run::Options;
use forebay::plan::order::batch::{Batching, Tail};
use forebay::store::Store;
use forebay::store::verify::{Finding, Options as Verifying, verify};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{SystemTime, UNIX_EPOCH};

/// How a store is damaged at one path.
type Damage = Box<dyn Fn(&Path)>;

/// A dataset, its store as it should be, and what is read from that.
struct Sound {
    dataset: Dataset,
    store: PathBuf,
    batches: Vec<RecordBatch>,
}

impl Sound {
    fn new() -> Sound {
        let dataset = Dataset::with_photos(&PHOTOS.replace("entries: 8", "entries: 4"), 12);
        let store = dataset.path().join("sound");
        let at = At { sound: &dataset, store: store.clone() };
        at.materialize().unwrap();
        assert_eq!(at.verify(false), []);
        let batches = at.read().unwrap();
        assert!(batches.iter().map(RecordBatch::num_rows).sum::<usize>() > 5);
        Sound { dataset, store, batches }
    }

    /// A copy to be damaged.
    fn copy(&self) -> At<'_> {
        let store = self.dataset.path().join("damaged");
        let _ = fs::remove_dir_all(&store);
        copy(&self.store, &store);
        At { sound: &self.dataset, store }
    }

    fn document<T: Document>(&self, name: &str) -> T {
        T::from_json(&fs::read(self.store.join(name)).unwrap()).unwrap()
    }

    /// Damages the object, and heals the store in each way.
    fn check(&self, what: &str, object: &str, damage: &Damage) -> Outcome {
        let damaged = || {
            let at = self.copy();
            damage(&at.store.join(object));
            at
        };
        let right = |at: &At| match at.read() {
            Ok(batches) => assert!(batches == self.batches, "{what}: other batches"),
            Err(error) => {
                let text = error.chain();
                assert!(matches!(error.kind(), Kind::Corrupt | Kind::NotFound), "{what}: {error:?}");
                assert!(text.contains("run `forebay ") && text.contains("materialize`"), "{what}: {text}");
            }
        };
        let whole = |at: &At| {
            assert_eq!(at.verify(false), [], "{what}");
            assert!(at.read().unwrap() == self.batches, "{what}: other batches once healed");
        };
        let at = damaged();
        right(&at);
        let by_itself = at.materialize().is_ok() && at.verify(false).is_empty();
        if by_itself {
            whole(&at);
        }

        let at = damaged();
        let repaired = at.verify(true);
        assert!(repaired.iter().all(|finding| finding.repaired.is_some()), "{what}: {repaired:#?}");
        at.materialize().unwrap_or_else(|error| panic!("{what}: {}", error.chain()));
        whole(&at);
        Outcome { found: !repaired.is_empty(), by_itself }
    }
}

struct Outcome {
    /// `verify` finds the damage.
    found: bool,
    /// `materialize` alone, after a read, heals it.
    by_itself: bool,
}

/// A dataset with a store at a path.
struct At<'a> {
    sound: &'a Dataset,
    store: PathBuf,
}

impl At<'_> {
    fn surrounded<T>(&self, body: impl FnOnce(&Surroundings) -> T) -> T {
        let store = Some(self.store.to_str().unwrap().to_owned());
        self.sound.surrounded(|s| body(&Surroundings { store, cache: s.cache.clone(), ..*s }))
    }

    fn materialize(&self) -> Result<()> {
        let project = self.surrounded(|s| Project::open(&self.sound.file, s))?;
        let snapshot = Arc::new(project.list(&|_, _| {})?);
        project.publish(&snapshot, now_ms(), false)?;
        let request = Request { stages: vec!["resize".into()], ..Request::default() };
        let (stop, on_error) = (AtomicBool::new(false), project.pipeline.on_error);
        let options = Options { pool: Pool::new(2)?, on_error, stop: &stop, retry_after: &[], progress: &|_| {} };
        let done = Prepared::new(&project, snapshot, &request)?.run(&project, &options)?;
        match done.outcome.errors.into_iter().next() {
            Some((_, error)) => Err(error),
            None => {
                assert!(done.manifests.iter().all(Option::is_some), "not whole");
                Ok(())
            }
        }
    }

    fn read(&self) -> Result<Vec<RecordBatch>> {
        let opened = self.surrounded(|s| from_file(&self.sound.file, Which::Current, now_ms(), s))?;
        let batching = Batching::new(5, 0, 1, Tail::Short)?;
        let reading = Reading { split: Some("train"), stage: None, batching, shuffle: None, seed: 3, prefetch: 0 };
        let reader = opened.reader(&reading, Pool::new(2)?)?;
        opened.missing(&reading, &reader.origins()?, None)?;
        reader.epoch(1, 0)?.map(|batch| Ok(batch?.rows)).collect()
    }

    fn verify(&self, repair: bool) -> Vec<Finding> {
        let store = Store::open(self.store.to_str().unwrap(), &Access::default()).unwrap();
        verify(&store, &Verifying { share: 1.0, seed: 0, threads: 1, repair, progress: &|_, _| {} }).unwrap().findings
    }
}

fn now_ms() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis() as i64
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let (entry, target) = entry.map(|e| (e.path(), to.join(e.file_name()))).unwrap();
        match entry.is_dir() {
            true => copy(&entry, &target),
            false => _ = fs::copy(&entry, &target).unwrap(),
        }
    }
}

/// One object of each kind, by its kind.
fn objects(sound: &Sound) -> Vec<(&'static str, String)> {
    let store = Store::open(sound.store.to_str().unwrap(), &Access::default()).unwrap();
    let names = store.storage().list("v1").unwrap().into_iter().map(|object| object.name.parse().unwrap());
    let mut objects = Vec::new();
    let mut recipes = BTreeMap::new();
    for name in names {
        let object = Name::to_string(&name);
        match name {
            Name::Pipeline { .. } => objects.push(("pipeline head", object)),
            Name::Snapshot { .. } => {
                objects.push((
                    "snapshot table",
                    Name::table(sound.document::<SnapshotHead>(&object).table.blob).to_string(),
                ));
                objects.push(("snapshot head", object));
            }
            Name::Recipe { .. } => {
                recipes.insert(sound.document::<RecipeHead>(&object).stage, object);
            }
            Name::Order { .. } => {
                objects.push(("order table", Name::table(sound.document::<OrderHead>(&object).table.blob).to_string()));
                objects.push(("order head", object));
            }
            Name::Manifest { .. } => {
                objects
                    .push(("shard table", Name::table(sound.document::<ManifestHead>(&object).table.blob).to_string()));
                objects.push(("manifest", object));
            }
            Name::Shard { encoding, .. } => {
                let part = &sound.document::<Record>(&object).parts[0];
                let blob = Name::Blob { digest: part.blob, container: encoding.container };
                objects.push(("part", blob.to_string()));
                objects.push(("record", object));
            }
            Name::Blob { .. }
            | Name::Report { .. }
            | Name::Pin { .. }
            | Name::Intent { .. }
            | Name::Candidates { .. } => {}
        }
    }
    objects.push(("recipe", recipes["resize"].clone()));
    objects.push(("recipe of another stage", recipes["decode"].clone()));
    let mut seen = std::collections::BTreeSet::new();
    objects.retain(|(kind, _)| seen.insert(*kind));
    assert_eq!(objects.len(), 11);
    objects
}

#[test]
fn every_object_damaged_in_every_way_is_healed() {
    let sound = Sound::new();
    let damages: [(&str, Damage); 7] = [
        ("truncated", Box::new(|path| truncate(path, |bytes| bytes * 2 / 3))),
        ("emptied", Box::new(|path| truncate(path, |_| 0))),
        ("one bit flipped", Box::new(flip)),
        (
            "a directory",
            Box::new(|path| {
                fs::remove_file(path).unwrap();
                fs::create_dir(path).unwrap();
            }),
        ),
        (
            "a pipe",
            Box::new(|path| {
                fs::remove_file(path).unwrap();
                rustix::fs::mkfifoat(rustix::fs::CWD, path, 0o644.into()).unwrap();
            }),
        ),
        (
            "a dangling link",
            Box::new(|path| {
                fs::remove_file(path).unwrap();
                std::os::unix::fs::symlink("nowhere", path).unwrap();
            }),
        ),
        ("removed", Box::new(|path| fs::remove_file(path).unwrap())),
    ];
    for (kind, object) in objects(&sound) {
        for (damage, apply) in &damages {
            let what = format!("{kind}, {damage}");
            assert!(sound.check(&what, &object, apply).by_itself, "{what}: no `verify --repair` should be needed");
        }
    }
}

fn truncate(path: &Path, length: fn(u64) -> u64) {
    let file = fs::OpenOptions::new().write(true).open(path).unwrap();
    file.set_len(length(file.metadata().unwrap().len())).unwrap();
}

/// In the middle, where every kind has something that matters.
fn flip(path: &Path) {
    let mut bytes = fs::read(path).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 4;
    fs::write(path, bytes).unwrap();
}

#[test]
fn every_number_changed_is_healed() {
    let sound = Sound::new();
    let mut unnoticed = Vec::new();
    for (kind, object) in objects(&sound).into_iter().filter(|(_, object)| object.ends_with(".json")) {
        let document: Value = serde_json::from_slice(&fs::read(sound.store.join(&object)).unwrap()).unwrap();
        let mut pointers = Vec::new();
        numbers(&document, String::new(), &mut pointers);
        for pointer in pointers.into_iter().filter(|pointer| pointer != "/version") {
            let (value, at) = (document.clone(), pointer.clone());
            let damage: Damage = Box::new(move |path| {
                let mut changed = value.clone();
                let number = changed.pointer_mut(&at).unwrap();
                *number = match number.as_u64() {
                    Some(n) => (n + 1).into(),
                    None => (number.as_f64().unwrap() + 1.0).into(),
                };
                fs::write(path, serde_json::to_vec_pretty(&changed).unwrap()).unwrap();
            });
            let what = format!("{kind}, {pointer}");
            if !sound.check(&what, &object, &damage).found {
                unnoticed.push(what);
            }
        }
    }
    // When something was listed, and by which reader, is what the head says; nothing relies on where no bytes lie, and on seconds.
    let expected = [
        "snapshot head, /listed_ms",
        "snapshot head, /reader/version",
        "record, /parts/0/chunks/0/columns/1/offset",
        "record, /seconds",
    ];
    assert_eq!(unnoticed, expected);
}

fn numbers(value: &Value, at: String, found: &mut Vec<String>) {
    match value {
        Value::Number(_) => found.push(at),
        Value::Array(items) => items.iter().enumerate().for_each(|(i, item)| numbers(item, format!("{at}/{i}"), found)),
        Value::Object(fields) => fields.iter().for_each(|(name, item)| numbers(item, format!("{at}/{name}"), found)),
        _ => {}
    }
}

/// Whether rows failed decides if a stage is whole, and nothing but the shard itself proves it.
#[test]
fn untrue_numbers_of_failed_rows_are_put_right() {
    let dataset = Dataset::with_photos(&format!("{PHOTOS}on_error: keep\nmax_errors: 20%\n"), 12);
    fs::write(dataset.path().join("photos/cat/bad.jpg"), b"no image").unwrap();
    let at = At { sound: &dataset, store: dataset.store() };
    at.materialize().unwrap();
    assert_eq!(at.verify(false), []);
    let store = Store::open(at.store.to_str().unwrap(), &Access::default()).unwrap();
    let objects: Vec<String> = store.storage().list("v1").unwrap().into_iter().map(|object| object.name).collect();
    let manifest = objects.iter().find(|name| name.contains("/manifests/")).unwrap();
    let records = objects.iter().filter(|name| name.contains("/shards/"));
    let read = |name: &str| Record::from_json(&fs::read(at.store.join(name)).unwrap()).unwrap();
    let mut checked = 0;
    for name in records {
        let truth = read(name);
        let failed = if truth.failed_rows == 0 { truth.rows } else { truth.failed_rows - 1 };
        let untrue = Record { failed_rows: failed, ..truth.clone() };
        fs::write(at.store.join(name), untrue.to_json()).unwrap();
        at.materialize().unwrap();
        assert_eq!((read(name).failed_rows, at.verify(false)), (truth.failed_rows, vec![]), "by itself");

        fs::write(at.store.join(name), untrue.to_json()).unwrap();
        assert_eq!(at.verify(true).len(), 2);
        at.materialize().unwrap();
        assert_eq!((read(name).failed_rows, at.verify(false)), (truth.failed_rows, vec![]), "after a repair");

        if untrue.failed_rows > 0 {
            fs::write(at.store.join(name), untrue.to_json()).unwrap();
            fs::remove_file(at.store.join(manifest)).unwrap();
            at.materialize().unwrap();
            assert_eq!((read(name).failed_rows, at.verify(false)), (truth.failed_rows, vec![]), "without a manifest");
        }
        checked += u64::from(truth.failed_rows > 0);
    }
    assert_eq!(checked, 1, "one shard has a failed row");
}
