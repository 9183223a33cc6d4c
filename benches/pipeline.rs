//! How near the whole comes to its parts: the online pipeline to its own kernels in a tight loop, materialize to the
//! kernels and the codec, reading stored shards to copying and hashing memory. Each figure is the median of ratios of runs
//! that alternate. `scripts/bench` makes the photographs and runs this; `benches/README.md` has the results.

mod measure;

use forebay::app::open::{Reading, Which, from_file};
use forebay::app::project::{Project, Surroundings};
use forebay::app::store_stages::{Prepared, Request};
use forebay::engine::pool::Pool;
use forebay::format::encoding::{Codec, Container};
use forebay::materialize::run::Options;
use forebay::plan::order::batch::{Batching, Tail};
use forebay::reader::Reader;
use forebay::spec::size::print as size;
use forebay::step::Context;
use forebay::step::image::decode;
use forebay::step::image::pixels::{Depth, Image, Shape, Window};
use forebay::step::image::resize::{Filter, resample, shorter_side};
use forebay::step::random::Stream;
use measure::{ROUNDS, pin, rate, report};
use std::hint::black_box;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

const BATCH: usize = 128;
const THREADS: usize = 2;
const SIDE: usize = 256;
const CROP: usize = 224;

const PIPELINE: &str = "
name: bench
source: { files: ./photos/**/*.jpg }
steps:
  - image.decode
  - image.resize: { shorter_side: 256 }
splits:
  train: { steps: [ image.random_crop: { size: [224, 224] } ], shuffle: true }
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
    let bench = Bench::new(directory.path());
    println!(
        "{} photographs, {} of JPEG, {THREADS} threads, medians of {ROUNDS} alternating rounds\n",
        bench.files.len(),
        size(bench.bytes())
    );
    // `cargo bench --bench pipeline -- stored` measures that part alone.
    let parts: Vec<String> = std::env::args().skip(1).filter(|a| !a.starts_with('-')).collect();
    let wanted = |part: &str| parts.is_empty() || parts.iter().any(|p| p == part);
    for (part, measure) in [
        ("online", Bench::online as fn(&Bench)),
        ("materialize", Bench::materialize),
        ("compressed", Bench::compressed),
        ("cores", Bench::cores),
        ("stored", Bench::stored),
        ("parquet", Bench::parquet),
    ] {
        if wanted(part) {
            measure(&bench);
        }
    }
}

struct Bench {
    file: PathBuf,
    files: Vec<Vec<u8>>,
}

/// An image resized, and where it begins in one large buffer.
struct Resized {
    buffer: Vec<u8>,
    images: Vec<(usize, Shape)>,
}

impl Bench {
    fn new(directory: &Path) -> Bench {
        let mut files = Vec::new();
        let mut folders = vec![directory.join("photos")];
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    folders.push(path);
                } else {
                    files.push(std::fs::read(path).unwrap());
                }
            }
        }
        Bench { file: directory.join("bench.yaml"), files }
    }

    fn bytes(&self) -> u64 {
        self.files.iter().map(|f| f.len() as u64).sum()
    }

    /// decode + resize + crop online, against the same kernels in a loop over files in memory.
    fn online(&self) {
        let count = self.files.len().min(1500);
        let reader = self.reader();
        let mut epoch = 0;
        let ours = || {
            epoch += 1;
            rate(|| {
                reader.epoch(epoch, 0).unwrap().take(count / BATCH).map(|b| black_box(b.unwrap().rows).num_rows()).sum()
            })
        };
        let kernels = || rate(|| self.kernels(count, true, None));
        report("online decode + resize + crop / its kernels", 0.85, ours, kernels);
    }

    /// Storing the resized stage, against decoding and resizing alone.
    fn materialize(&self) {
        let ours = || self.stored_rate(Codec::None, THREADS);
        let limit = || rate(|| self.kernels(self.files.len(), false, None));
        report("materialize resize, arrow none / decode + resize", 0.75, ours, limit);
    }

    fn compressed(&self) {
        let ours = || self.stored_rate(Codec::Zstd(3), THREADS);
        let limit = || rate(|| self.kernels(self.files.len(), false, Some(3)));
        report("materialize resize, arrow zstd:3 / decode + resize + zstd", 0.75, ours, limit);
    }

    fn cores(&self) {
        report(
            "materialize, two cores / one",
            1.8,
            || self.stored_rate(Codec::None, THREADS),
            || {
                pin("0");
                let rate = self.stored_rate(Codec::None, 1);
                pin(&format!("0-{}", THREADS - 1));
                rate
            },
        );
    }

    /// Images a second that are stored, into an empty store.
    fn stored_rate(&self, codec: Codec, threads: usize) -> f64 {
        self.clear();
        rate(|| {
            self.store(Container::Arrow, codec, threads);
            self.files.len()
        })
    }

    fn stored(&self) {
        let count = self.files.len();
        self.clear();
        self.store(Container::Arrow, Codec::None, THREADS);
        let resized = self.resized();
        println!("  (the memory buffer holds {})", size(resized.buffer.len() as u64));
        let reader = self.reader();
        read(&reader, 1);
        let mut epoch = 1;
        report(
            "stored resize (arrow none) + crop, later epochs / copying",
            0.5,
            || {
                epoch += 1;
                read(&reader, epoch)
            },
            || rate(|| resized.copy(count)),
        );
        report(
            "stored resize (arrow none) + crop, first epoch / hashing + copying",
            0.7,
            || read(&self.reader(), 1),
            || rate(|| resized.hash_and_copy(count)),
        );
    }

    /// Reading compressed shards, against decompressing the same bytes; in the first epoch also hashing them.
    fn parquet(&self) {
        let count = self.files.len();
        let compressed = self.resized().compressed(3);
        self.clear();
        self.store(Container::Parquet, Codec::Zstd(3), THREADS);
        let reader = self.reader();
        read(&reader, 1);
        let mut epoch = 1;
        report(
            "stored resize (parquet zstd:3) + crop, later epochs / zstd",
            0.7,
            || {
                epoch += 1;
                read(&reader, epoch)
            },
            || rate(|| decompress(&compressed, count, false)),
        );
        report(
            "stored resize (parquet zstd:3) + crop, first epoch / hashing + zstd",
            0.7,
            || read(&self.reader(), 1),
            || rate(|| decompress(&compressed, count, true)),
        );
    }

    /// Decodes, resizes and crops (or compresses) in a tight loop on all threads; returns the images done.
    fn kernels(&self, count: usize, crop: bool, zstd: Option<i32>) -> usize {
        let options = decode::Params::default().options();
        parallel(count, |index, scratch| {
            let [decoded, resized, out] = scratch;
            decoded.clear();
            resized.clear();
            let shape = decode::decode(&self.files[index], &options, decoded).unwrap();
            let image = Image::new(shape, Depth::Eight, decoded).unwrap();
            let (height, width) = shorter_side(shape.height, shape.width, SIDE);
            let shape = resample(image, image.window(), [height, width], Filter::Bilinear, resized).unwrap();
            if out.len() > BATCH * CROP * CROP * 3 {
                out.clear();
            }
            if crop {
                Image::new(shape, Depth::Eight, resized).unwrap().crop(window(index, shape), out);
            } else if let Some(level) = zstd {
                out.clear();
                out.resize(zstd::zstd_safe::compress_bound(resized.len()), 0);
                zstd::bulk::compress_to_buffer(resized, out, level).unwrap();
            }
            black_box(out);
        })
    }

    fn resized(&self) -> Resized {
        let options = decode::Params::default().options();
        let (mut buffer, mut images, mut decoded) = (Vec::new(), Vec::new(), Vec::new());
        for file in &self.files {
            decoded.clear();
            let shape = decode::decode(file, &options, &mut decoded).unwrap();
            let image = Image::new(shape, Depth::Eight, &decoded).unwrap();
            let (height, width) = shorter_side(shape.height, shape.width, SIDE);
            let start = buffer.len();
            images.push((
                start,
                resample(image, image.window(), [height, width], Filter::Bilinear, &mut buffer).unwrap(),
            ));
        }
        Resized { buffer, images }
    }

    fn surrounded<T>(&self, body: impl FnOnce(&Surroundings) -> T) -> T {
        let cache = self.file.with_file_name("cache");
        body(&Surroundings {
            store: None,
            access: &forebay::io::Access::default(),
            variables: &|_| None,
            cache: Some(cache),
            threads: THREADS,
            progress: &|_, _| {},
        })
    }

    fn clear(&self) {
        let _ = std::fs::remove_dir_all(self.file.with_file_name(".forebay"));
    }

    /// Stores the resize stage.
    fn store(&self, container: Container, codec: Codec, threads: usize) {
        let project = self.surrounded(|s| Project::open(&self.file, s)).unwrap();
        let snapshot = Arc::new(project.list(&|_, _| {}).unwrap());
        project.publish(&snapshot, 1, true).unwrap();
        let request = Request { stages: vec!["resize".into()], container: Some(container), codec: Some(codec) };
        let stop = AtomicBool::new(false);
        let pool = Pool::new(threads).unwrap();
        let options =
            Options { pool, on_error: project.pipeline.on_error, stop: &stop, retry_after: &[], progress: &|_| {} };
        let done = Prepared::new(&project, snapshot, &request).unwrap().run(&project, &options).unwrap();
        assert!(done.manifests[0].is_some());
    }

    fn reader(&self) -> Reader {
        let opened = self.surrounded(|s| from_file(&self.file, Which::Current, 1, s)).unwrap();
        let batching = Batching::new(BATCH as u64, 0, 1, Tail::Short).unwrap();
        let reading =
            Reading { split: Some("train"), stage: None, batching, shuffle: Some(true), seed: 1, prefetch: 0 };
        opened.reader(&reading, Pool::new(THREADS).unwrap()).unwrap()
    }
}

impl Resized {
    fn image(&self, index: usize) -> Image<'_> {
        let (start, shape) = self.images[index];
        let bytes = &self.buffer[start..start + shape.height * shape.width * shape.channels];
        Image::new(shape, Depth::Eight, bytes).unwrap()
    }

    /// Copies a crop of every image, in an order as far apart as shuffled rows are, into batches.
    fn copy(&self, count: usize) -> usize {
        parallel(count, |index, [_, _, out]| {
            if out.len() >= BATCH * CROP * CROP * 3 {
                out.clear();
            }
            let image = self.image(spread(index, self.images.len()));
            image.crop(window(index, image.shape), out);
            black_box(out);
        })
    }

    fn hash_and_copy(&self, count: usize) -> usize {
        parallel(count, |index, [_, _, out]| {
            let (start, shape) = self.images[index];
            black_box(blake3::hash(&self.buffer[start..start + shape.height * shape.width * 3]));
            if out.len() >= BATCH * CROP * CROP * 3 {
                out.clear();
            }
            let image = self.image(spread(index, self.images.len()));
            image.crop(window(index, image.shape), out);
            black_box(out);
        })
    }

    /// Chunks as large as a row group's.
    fn compressed(&self, level: i32) -> Vec<(Vec<u8>, usize)> {
        self.buffer.chunks(8 << 20).map(|c| (zstd::bulk::compress(c, level).unwrap(), c.len())).collect()
    }
}

fn decompress(chunks: &[(Vec<u8>, usize)], images: usize, hash: bool) -> usize {
    parallel(chunks.len(), |index, [_, _, out]| {
        let (bytes, length) = &chunks[index];
        if hash {
            black_box(blake3::hash(bytes));
        }
        out.resize(*length, 0);
        zstd::bulk::decompress_to_buffer(bytes, out).unwrap();
        black_box(out);
    });
    images
}

/// Images a second of a whole epoch.
fn read(reader: &Reader, epoch: u64) -> f64 {
    rate(|| reader.epoch(epoch, 0).unwrap().map(|b| black_box(b.unwrap().rows).num_rows()).sum())
}

fn spread(index: usize, count: usize) -> usize {
    index.wrapping_mul(7919) % count
}

fn window(index: usize, shape: Shape) -> Window {
    let mut stream = Stream::new(Context { seed: 1, epoch: 0, occurrence: 0 }, "bench", &index.to_string());
    let mut place = |length: usize| stream.below((length - CROP + 1) as u64) as usize;
    Window { top: place(shape.height), left: place(shape.width), height: CROP, width: CROP }
}

/// Runs `work` for 0..count on all threads, each with buffers of its own that it reuses.
fn parallel(count: usize, work: impl Fn(usize, &mut [Vec<u8>; 3]) + Sync) -> usize {
    let next = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                let mut scratch = [Vec::new(), Vec::new(), Vec::new()];
                loop {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    if index >= count {
                        break;
                    }
                    work(index, &mut scratch);
                }
            });
        }
    });
    count
}
