//! Stores written by earlier versions, good and damaged: what each proves stands in `formats/golden/README.md`. They are
//! opened by the store alone, in copies, and give the batches that they gave when they were written. `FOREBAY_BLESS=1`
//! writes those that are not there yet; none is ever changed.

use crate::fixture::store_at;
use crate::fixture::{Dataset, PHOTOS, photo};
use crate::store::data::{check, files, open};
use arrow::array::{Array, AsArray, RecordBatch};
use arrow::datatypes::{DataType, Int32Type, Int64Type, UInt8Type};
use forebay::app::open::{Opened, Reading, Which, from_file, from_store};
use forebay::app::project::Surroundings;
use forebay::engine::pool::Pool;
use forebay::error::{Kind, Result};
use forebay::format::document::Document;
use forebay::format::head::PipelineHead;
use forebay::id::Digest;
use forebay::io::Access;
use forebay::plan::order::batch::{Batching, Tail};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

const SPLITS: [&str; 2] = ["train", "val"];
const PIPELINE: &str = r#"
name: golden
source: { files: ./photos/**/*.jpg, fields: { label: "{parent}" } }
steps:
  - image.decode
  - image.resize: { shorter_side: 8 }
  - label.index: { column: label, classes: [cat, dog] }
splits:
  train: { where: "hash(key) % 3 != 0", steps: [ image.random_crop: { size: [6, 6] } ] }
  val: { where: "hash(key) % 3 == 0", steps: [ image.center_crop: { size: [6, 6] } ] }
partition: { entries: 4, bytes: 1gb }
on_error: keep
max_errors: 50%
"#;

/// Stages and their encoding, and whether a file among them is no image.
const GOOD: [(&str, &[&str], &str, bool); 5] = [
    ("arrow-none", &["decode", "resize"], "arrow-none", false),
    ("arrow-zstd", &["index"], "arrow-zstd-3", false),
    ("parquet-zstd", &["index"], "parquet-zstd-3", false),
    ("filtered", &["where", "center_crop"], "arrow-none", false),
    ("failed-rows", &["index"], "parquet-zstd-3", true),
];
/// Made of `arrow-none`, in which every shard of `resize` can be computed from `decode`.
const DAMAGED: [&str; 6] =
    ["truncated-record", "flipped-byte", "missing-blob", "exchanged-blob", "newer-head", "truncated-manifest"];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("formats/golden")
}

/// A copy, as reading may leave reports and order tables.
fn copy(from: &Path) -> tempfile::TempDir {
    let to = tempfile::tempdir().unwrap();
    for (name, bytes) in files(from) {
        put(&to.path().join(name), &bytes);
    }
    to
}

fn put(path: &Path, bytes: &[u8]) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, bytes).unwrap();
}

/// The batches of a shuffled epoch, and what was wrong with stored shards.
fn batches(opened: &Opened, split: &str) -> Result<(Vec<RecordBatch>, Vec<String>)> {
    let batching = Batching::new(3, 0, 1, Tail::Short)?;
    let reading = Reading { split: Some(split), stage: None, batching, shuffle: Some(true), seed: 7, prefetch: 0 };
    let reader = opened.reader(&reading, Pool::new(2)?)?;
    let batches = reader.epoch(1, 0)?.map(|batch| Ok(batch?.rows)).collect::<Result<_>>()?;
    Ok((batches, reader.take_warnings()))
}

fn alone(store: &Path) -> Result<Opened> {
    from_store(store_at(store.to_str().unwrap()), "golden", Which::Current)
}

/// Of rows by value: null or not, then lengths and bytes, whatever holds them.
fn digest(batches: &[RecordBatch]) -> String {
    fn value(array: &dyn Array, row: usize, hasher: &mut blake3::Hasher) {
        hasher.update(&[u8::from(array.is_valid(row))]);
        if array.is_null(row) {
            return;
        }
        let mut bytes = |bytes: &[u8]| {
            hasher.update(&(bytes.len() as u64).to_le_bytes()).update(bytes);
        };
        match array.data_type() {
            DataType::LargeUtf8 => bytes(array.as_string::<i64>().value(row).as_bytes()),
            DataType::LargeBinary => bytes(array.as_binary::<i64>().value(row)),
            DataType::UInt8 => bytes(&[array.as_primitive::<UInt8Type>().value(row)]),
            DataType::Int32 => bytes(&array.as_primitive::<Int32Type>().value(row).to_le_bytes()),
            DataType::Int64 => bytes(&array.as_primitive::<Int64Type>().value(row).to_le_bytes()),
            DataType::List(_) => list(&array.as_list::<i32>().value(row), hasher),
            DataType::LargeList(_) => list(&array.as_list::<i64>().value(row), hasher),
            DataType::FixedSizeList(..) => list(&array.as_fixed_size_list().value(row), hasher),
            DataType::Struct(_) => array.as_struct().columns().iter().for_each(|c| value(c, row, hasher)),
            other => panic!("no golden store holds {other}"),
        }
    }
    fn list(values: &dyn Array, hasher: &mut blake3::Hasher) {
        hasher.update(&(values.len() as u64).to_le_bytes());
        (0..values.len()).for_each(|row| value(values, row, hasher));
    }
    let mut hasher = blake3::Hasher::new();
    for batch in batches {
        for (field, column) in batch.schema_ref().fields().iter().zip(batch.columns()) {
            hasher.update(field.name().as_bytes());
            (0..batch.num_rows()).for_each(|row| value(column, row, &mut hasher));
        }
    }
    hasher.finalize().to_string()
}

fn expected() -> BTreeMap<String, BTreeMap<String, String>> {
    serde_json::from_slice(&fs::read(root().join("v1/expected.json")).unwrap()).unwrap()
}

#[test]
fn bless() {
    if std::env::var_os("FOREBAY_BLESS").is_none() {
        return;
    }
    let v1 = root().join("v1");
    let mut expected = if v1.join("expected.json").exists() { expected() } else { BTreeMap::new() };
    for (name, stages, encoding, with_failures) in GOOD {
        if v1.join(name).exists() {
            continue;
        }
        let dataset = Dataset::new(PIPELINE);
        for number in 0..6 {
            let folder = ["cat", "dog"][number % 2];
            put(&dataset.path().join(format!("photos/{folder}/{number}.jpg")), &photo(number, 12 + number % 3, 16));
        }
        if with_failures {
            put(&dataset.path().join("photos/dog/no-image.jpg"), b"no image");
        }
        let encoding: forebay::format::encoding::Encoding = encoding.parse().unwrap();
        for stage in stages {
            let done = dataset.materialize(&[stage], Some((encoding.container, encoding.codec))).unwrap();
            assert!(done.manifests.iter().all(Option::is_some));
        }
        let read = |split| batches(&dataset.open(), split).unwrap().0;
        assert!(SPLITS.iter().all(|split| !read(split).is_empty()), "each split has samples");
        let digests = SPLITS.map(|split| (split.to_owned(), digest(&read(split))));
        expected.insert(name.to_owned(), BTreeMap::from(digests));
        for (object, bytes) in files(&dataset.store()) {
            put(&v1.join(name).join(object), &bytes);
        }
    }
    for name in DAMAGED.iter().filter(|name| !v1.join(name).exists()) {
        let copy = copy(&v1.join("arrow-none"));
        damage(name, copy.path());
        for (object, bytes) in files(copy.path()) {
            put(&v1.join(name).join(object), &bytes);
        }
    }
    put(&v1.join("expected.json"), &(serde_json::to_string_pretty(&expected).unwrap() + "\n").into_bytes());
}

/// Blobs of the stage `resize` in partition order.
fn resize_blobs(store: &Path) -> Vec<PathBuf> {
    let store = open(store);
    let pipeline = store.pipeline("golden").unwrap().unwrap();
    let stored = forebay::app::catalog::stored_stage(&store, &pipeline, Some("resize"), None, None).unwrap();
    stored.paths(&store).unwrap()
}

fn damage(name: &str, store: &Path) {
    let object = |part: &str| {
        let resize = open(store).pipeline("golden").unwrap().unwrap().stages;
        let resize = resize.iter().find(|s| s.name == "resize").unwrap().recipe.to_string();
        let names: Vec<String> = files(store).into_keys().filter(|n| n.contains(&resize) && n.contains(part)).collect();
        store.join(&names[0])
    };
    let halve = |path: PathBuf| {
        let bytes = fs::read(&path).unwrap();
        fs::write(path, &bytes[..bytes.len() / 2]).unwrap();
    };
    let blobs = resize_blobs(store);
    match name {
        "truncated-record" => halve(object("/shards/")),
        "truncated-manifest" => halve(object("/manifests/")),
        "missing-blob" => fs::remove_file(&blobs[0]).unwrap(),
        "flipped-byte" => {
            let mut bytes = fs::read(&blobs[0]).unwrap();
            let middle = bytes.len() / 2;
            bytes[middle] ^= 1;
            fs::write(&blobs[0], bytes).unwrap();
        }
        "exchanged-blob" => {
            let length = |path: &&PathBuf| fs::metadata(path).unwrap().len();
            let other = blobs[1..].iter().find(|path| length(path) == length(&&blobs[0]));
            fs::copy(other.unwrap_or(&blobs[1]), &blobs[0]).unwrap();
        }
        "newer-head" => {
            let head = open(store).pipeline("golden").unwrap().unwrap();
            let mut head: serde_json::Value = serde_json::from_slice(&head.to_json()).unwrap();
            head["version"] = 2.into();
            let bytes = head.to_string().into_bytes();
            put(&store.join(format!("v1/pipelines/golden/0000000002-{}.json", Digest::of(&bytes))), &bytes);
        }
        other => panic!("no damage is called {other}"),
    }
}

#[test]
fn good_stores_give_the_batches_of_when_they_were_written() {
    let expected = expected();
    for (name, ..) in GOOD {
        let store = copy(&root().join("v1").join(name));
        let before = files(store.path());
        for split in SPLITS {
            let (batches, warnings) = batches(&alone(store.path()).unwrap(), split).unwrap();
            assert_eq!(digest(&batches), expected[name][split], "{name} {split}");
            assert_eq!(warnings, [""; 0]);
        }
        let verified = check(&open(store.path()), false);
        assert_eq!((verified.findings, verified.orphans, verified.strangers), (vec![], 0, 0), "{name}");
        assert_eq!(files(store.path()), before, "{name}: reading changes nothing");
    }
}

#[test]
fn damage_is_named_and_gives_the_same_batches_or_a_refusal() {
    let expected = &expected()["arrow-none"];
    let good = files(&root().join("v1/arrow-none"));
    for name in DAMAGED {
        let store = copy(&root().join("v1").join(name));
        let found = files(store.path());
        let differs = |object: &&String| good.get(*object) != found.get(*object);
        let damaged: Vec<&String> =
            good.keys().chain(found.keys().filter(|n| !good.contains_key(*n))).filter(differs).collect();
        let [damaged] = damaged.as_slice() else { panic!("{name} differs in {damaged:?}") };

        let findings = check(&open(store.path()), false).findings;
        // A blob that is gone is named as what its record expects.
        let named = |text: &str| text.contains(damaged.as_str());
        assert!(findings.iter().any(|f| named(&f.object) || named(&f.expected)), "{name}: {damaged} in {findings:?}");
        let opened = alone(store.path());
        if name == "newer-head" {
            let error = opened.err().unwrap();
            assert_eq!(error.kind(), Kind::Invalid);
            assert!(error.chain().contains("was written by a newer Forebay: version 2"), "{}", error.chain());
            continue;
        }
        let opened = opened.unwrap();
        let mut warnings = Vec::new();
        for split in SPLITS {
            let (batches, said) = batches(&opened, split).unwrap();
            assert_eq!(digest(&batches), expected[split], "{name} {split}");
            warnings.extend(said);
        }
        // Lengths are seen when a shard is looked up, digests when its bytes are first used.
        if ["flipped-byte", "exchanged-blob"].contains(&name) {
            let blob = Path::new(damaged).file_stem().unwrap().to_str().unwrap();
            assert!(warnings.iter().any(|w| w.contains(blob)), "{name}: {warnings:?}");
            assert!(store.path().join(format!("v1/reports/{blob}.json")).exists(), "{name} is reported");
        }
    }
}

#[test]
fn every_golden_store_says_what_it_proves_and_all_are_small() {
    let text = fs::read_to_string(root().join("README.md")).unwrap();
    for name in GOOD.iter().map(|good| good.0).chain(DAMAGED) {
        assert!(text.contains(&format!("| `{name}` |")), "{name}");
    }
    let bytes: usize = files(&root()).values().map(Vec::len).sum();
    assert!(bytes < 600_000, "{bytes} bytes");
}

/// Classes found and written to a file, a variable, and a split's own deterministic steps.
fn with_outside_files() -> String {
    PHOTOS
        .replace("name: photos", "name: golden")
        .replace("files: ./photos/**/*.jpg", "files: \"${PHOTOS}/**/*.jpg\"\n  root: ${PHOTOS}")
        .replace("classes: [cat, dog, owl]", "classes: auto")
}

#[test]
fn a_store_alone_gives_the_batches_of_the_pipeline_file() {
    for (stage, encoding) in [("resize", "arrow-none"), ("all", "parquet-zstd-1"), ("concatenated", "arrow-lz4")] {
        let dataset = Dataset::with_photos(&with_outside_files(), 30);
        let surroundings = Surroundings {
            store: None,
            access: &Access::default(),
            variables: &|name| (name == "PHOTOS").then(|| "./photos".to_owned()),
            cache: None,
            threads: 2,
            progress: &|_, _| {},
        };
        let file = || from_file(&dataset.file, Which::Current, 1, &surroundings).unwrap();
        let expected = SPLITS.map(|split| batches(&file(), split).unwrap().0);
        let encoding: forebay::format::encoding::Encoding = encoding.parse().unwrap();
        let status = std::process::Command::new(env!("CARGO_BIN_EXE_forebay"))
            .args(["materialize", "pipeline.yaml", "--quiet", "--stage", stage])
            .args(["--format", &encoding.container.to_string(), "--compression", &encoding.codec.to_string()])
            .current_dir(dataset.path())
            .env("PHOTOS", "./photos")
            .env("FOREBAY_CACHE", dataset.path().join("cache"))
            .env_remove("FOREBAY_STORE")
            .stdout(std::process::Stdio::null())
            .status();
        assert!(status.unwrap().success());
        assert_eq!(SPLITS.map(|split| batches(&file(), split).unwrap().0), expected, "{stage} with the file");

        // Nothing is left but the store, at another place.
        let store = copy(&dataset.store());
        drop(dataset);
        let opened = alone(store.path()).unwrap();
        assert_eq!(SPLITS.map(|split| batches(&opened, split).unwrap().0), expected, "{stage} from the store alone");
        let id = opened.snapshot.id;
        let by_id = from_store(store_at(store.path().to_str().unwrap()), "golden", Which::Id(id)).unwrap();
        assert_eq!(batches(&by_id, "val").unwrap().0, expected[1]);
    }
}

#[test]
fn a_store_alone_says_what_it_cannot_serve() {
    let dataset = Dataset::with_photos(&PHOTOS.replace("name: photos", "name: golden"), 20);
    let store = dataset.store();
    let of = |result: Result<Opened>| result.err().unwrap();
    let error = of(from_store(store_at(store.to_str().unwrap()), "golden", Which::Current));
    assert_eq!(error.kind(), Kind::NotFound);
    dataset.open();
    let error = of(alone(&store));
    assert!(error.message().contains("no stage of pipeline \"golden\" is stored whole"), "{error}");
    let error = of(from_store(store_at(store.to_str().unwrap()), "gold", Which::Current));
    assert!(error.message().contains("no pipeline \"gold\"; it has: golden"), "{error}");

    // A shard that is gone from the only stage stored can't be had without the source.
    dataset.materialize(&["resize"], None).unwrap();
    fs::remove_file(&resize_blobs(&store)[0]).unwrap();
    let error = batches(&alone(&store).unwrap(), "train").unwrap_err();
    assert_eq!(error.kind(), Kind::NotFound);
    assert!(error.chain().contains("there is no source to compute them from"), "{}", error.chain());

    // Steps that mean something else to this build than to the one that wrote the store.
    let opened = open(&store);
    let head = opened.pipeline("golden").unwrap().unwrap();
    let text = head.text.replace("shorter_side: 40", "shorter_side: 41");
    opened.put_pipeline(&PipelineHead { text, ..head }).unwrap();
    let error = of(alone(&store));
    assert_eq!(error.kind(), Kind::Invalid);
    assert!(error.message().contains("stage resize") && error.message().contains("shorter_side"), "{error}");
}
