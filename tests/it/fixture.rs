//! What several tests share: small photographs, pipelines over them, and the library driven as the command line does.

use crate::store::data;
use arrow::array::RecordBatch;
use forebay::app::open::{Opened, Reading, Which, from_file};
use forebay::app::project::{Project, Surroundings};
use forebay::app::store_stages::{Done, Prepared, Request};
use forebay::engine::pool::Pool;
use forebay::error::Result;
use forebay::format::encoding::{Codec, Container};
use forebay::format::name::Name;
use forebay::io::Access;
use forebay::materialize::run::Options;
use forebay::plan::order::batch::{Batching, Tail};
use forebay::reader::Reader;
use forebay::store::Store;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// A JPEG of gradients and texture, another for each `number`.
pub fn photo(number: usize, height: usize, width: usize) -> Vec<u8> {
    let mut pixels = Vec::with_capacity(height * width * 3);
    for y in 0..height {
        for x in 0..width {
            let texture = (x * 7 + y * 13 + number * 31) % 23;
            let wave =
                ((x + number * 5) as f32 / 9.0).sin() * 60.0 + ((y * (1 + number % 3)) as f32 / 7.0).cos() * 50.0;
            for channel in 0..3 {
                pixels.push((110.0 + wave + texture as f32 * (channel as f32 - 1.0)).clamp(0.0, 255.0) as u8);
            }
        }
    }
    let image = turbojpeg::Image {
        pixels: pixels.as_slice(),
        width,
        pitch: width * 3,
        height,
        format: turbojpeg::PixelFormat::RGB,
    };
    turbojpeg::compress(image, 85, turbojpeg::Subsamp::Sub2x2).unwrap().to_vec()
}

/// `count` photographs of several sizes in the folders cat, dog and owl of `directory/photos`.
pub fn photos(directory: &Path, count: usize) {
    for number in 0..count {
        let folder = directory.join("photos").join(["cat", "dog", "owl"][number % 3]);
        std::fs::create_dir_all(&folder).unwrap();
        let bytes = photo(number, 48 + number % 5 * 8, 64 + number % 7 * 6);
        std::fs::write(folder.join(format!("{number:04}.jpg")), bytes).unwrap();
    }
}

/// Several small partitions, a random step, two splits.
pub const PHOTOS: &str = r#"
name: photos
source:
  files: ./photos/**/*.jpg
  fields: { label: "{parent}" }
steps:
  - image.decode
  - image.resize: { shorter_side: 40 }
  - label.index: { column: label, classes: [cat, dog, owl] }
splits:
  train: { where: "hash(key) % 5 != 0", steps: [ image.random_crop: { size: [32, 32] } ], shuffle: true }
  val: { where: "hash(key) % 5 == 0", steps: [ image.center_crop: { size: [32, 32] } ] }
partition: { entries: 8, bytes: 1gb }
"#;

/// A store in a local directory.
pub fn store_at(directory: &str) -> Store {
    Store::open(directory, &Access::default()).unwrap()
}

/// Of two entries at most each.
pub fn many_partitions() -> String {
    PHOTOS.replace("entries: 8", "entries: 2")
}

pub struct Dataset {
    pub directory: tempfile::TempDir,
    pub file: PathBuf,
}

impl Dataset {
    pub fn new(pipeline: &str) -> Dataset {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("pipeline.yaml");
        std::fs::write(&file, pipeline).unwrap();
        Dataset { directory, file }
    }

    pub fn with_photos(pipeline: &str, count: usize) -> Dataset {
        let dataset = Dataset::new(pipeline);
        photos(dataset.directory.path(), count);
        dataset
    }

    pub fn path(&self) -> &Path {
        self.directory.path()
    }

    pub fn store(&self) -> PathBuf {
        self.path().join(".forebay")
    }

    pub fn surrounded<T>(&self, body: impl FnOnce(&Surroundings) -> T) -> T {
        body(&Surroundings {
            store: None,
            access: &Access::default(),
            variables: &|_| None,
            cache: Some(self.path().join("cache")),
            threads: 2,
            progress: &|_, _| {},
        })
    }

    /// With the store at a place of its own.
    pub fn surrounded_at<T>(&self, store: &Path, body: impl FnOnce(&Surroundings) -> T) -> T {
        self.surrounded(|s| {
            body(&Surroundings { store: Some(store.to_str().unwrap().to_owned()), cache: s.cache.clone(), ..*s })
        })
    }

    pub fn project_at(&self, store: &Path) -> Project {
        self.surrounded_at(store, |s| Project::open(&self.file, s)).unwrap()
    }

    pub fn project(&self) -> Project {
        self.surrounded(|s| Project::open(&self.file, s)).unwrap()
    }

    /// Lists, publishes and stores.
    pub fn materialize(&self, stages: &[&str], encoding: Option<(Container, Codec)>) -> Result<Done> {
        let project = self.surrounded(|s| Project::open(&self.file, s))?;
        let snapshot = Arc::new(project.list(&|_, _| {})?);
        project.publish(&snapshot, 1, true)?;
        let request = Request {
            stages: stages.iter().map(|s| (*s).to_owned()).collect(),
            container: encoding.map(|e| e.0),
            codec: encoding.map(|e| e.1),
        };
        let stop = AtomicBool::new(false);
        let options = Options {
            pool: Pool::new(2)?,
            on_error: project.pipeline.on_error,
            stop: &stop,
            retry_after: &[],
            progress: &|_| {},
        };
        Prepared::new(&project, snapshot, &request)?.run(&project, &options)
    }

    pub fn open(&self) -> Opened {
        self.surrounded(|s| from_file(&self.file, Which::Current, 1, s)).unwrap()
    }

    pub fn reader(&self, split: Option<&str>, batching: Batching, shuffle: Option<bool>) -> Reader {
        let reading = Reading { split, stage: None, batching, shuffle, seed: 7, prefetch: 0 };
        self.open().reader(&reading, Pool::new(2).unwrap()).unwrap()
    }

    /// Every batch of an epoch on one rank.
    pub fn read(&self, split: Option<&str>, batch_size: u64, epoch: u64) -> Vec<RecordBatch> {
        let reader = self.reader(split, Batching::new(batch_size, 0, 1, Tail::Short).unwrap(), None);
        reader.epoch(epoch, 0).unwrap().map(|b| b.unwrap().rows).collect()
    }

    /// Blobs, records, heads: every file of the store by name, with its bytes.
    pub fn files(&self) -> BTreeMap<String, Vec<u8>> {
        let mut found = BTreeMap::new();
        walk(&self.store(), &self.store(), &mut found);
        found
    }
}

fn walk(root: &Path, directory: &Path, found: &mut BTreeMap<String, Vec<u8>>) {
    let Ok(entries) = std::fs::read_dir(directory) else { return };
    for entry in entries {
        let path = entry.unwrap().path();
        if path.is_dir() {
            walk(root, &path, found);
        } else {
            let name = path.strip_prefix(root).unwrap().to_string_lossy().into_owned();
            found.insert(name, std::fs::read(&path).unwrap());
        }
    }
}

/// What a finished store holds, but for what measures and dates: seconds of records, times of listings.
pub fn lasting(store: &Path) -> BTreeMap<String, String> {
    let mut lasting = BTreeMap::new();
    for (name, bytes) in data::files(store) {
        let kept = match name.parse() {
            Ok(Name::Shard { .. }) => without(&bytes, "seconds"),
            Ok(Name::Snapshot { .. }) => without(&bytes, "listed_ms"),
            // Killed processes leave theirs behind; they count no more after a while.
            Ok(Name::Intent { .. }) => continue,
            _ => blake3::hash(&bytes).to_string(),
        };
        lasting.insert(name, kept);
    }
    lasting
}

fn without(json: &[u8], field: &str) -> String {
    let mut document: serde_json::Value = serde_json::from_slice(json).unwrap();
    assert!(document.as_object_mut().unwrap().remove(field).is_some());
    document.to_string()
}

/// Runs the binary in a directory.
pub fn forebay(directory: &Path, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_forebay"))
        .args(arguments)
        .current_dir(directory)
        .env("FOREBAY_CACHE", directory.join("cache"))
        .env_remove("FOREBAY_STORE")
        .output()
        .unwrap()
}

/// Standard output of a run that must succeed.
pub fn succeed(directory: &Path, arguments: &[&str]) -> String {
    let output = forebay(directory, arguments);
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(output.status.success(), "forebay {arguments:?}: {}\n{}", output.status, text(&output.stderr));
    text(&output.stdout)
}
