//! How fast shards are read, as ratios to the limits: Parquet zstd to decompressing the same bytes, Arrow without a codec
//! to hashing them. Interleaved medians on photograph-like tensors of 256 x 256 x 3.

use arrow::array::{ArrayRef, LargeStringArray, RecordBatch};
use arrow::buffer::Buffer;
use arrow::datatypes::{DataType, Field, Schema};
use forebay::format::record::Part;
use forebay::format::shard::tensor::{DType, FixedBuilder, fixed_field};
use forebay::format::shard::{Encoder, PartReader};
use std::hint::black_box;
use std::sync::Arc;
use std::time::Instant;

const SHAPE: [usize; 3] = [256, 256, 3];
const ROWS: usize = 42;
const CHUNKS: usize = 8;
const ROUNDS: usize = 9;

/// Smooth gradients with noise in the low bits: compresses about as little as photographs do.
fn photograph(seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let [height, width, channels] = SHAPE;
    let mut pixels = Vec::with_capacity(height * width * channels);
    for y in 0..height {
        for x in 0..width {
            for channel in 0..channels {
                state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                let noise = (state >> 60) as usize;
                pixels.push(((y * (seed as usize % 3 + 1) + x * (channel + 1)) / 4 + noise) as u8);
            }
        }
    }
    pixels
}

fn chunk(first: usize) -> RecordBatch {
    let mut images = FixedBuilder::new(DType::U8, &SHAPE, ROWS).unwrap();
    for row in 0..ROWS {
        images.append(&photograph((first + row) as u64)).unwrap();
    }
    let keys = LargeStringArray::from_iter_values((0..ROWS).map(|row| format!("{:08}.jpg", first + row)));
    let errors = LargeStringArray::new_null(ROWS);
    let fields = vec![
        Field::new("_key", DataType::LargeUtf8, false),
        Field::new("_error", DataType::LargeUtf8, true),
        fixed_field("image", DType::U8, &SHAPE).unwrap(),
    ];
    let arrays: Vec<ArrayRef> = vec![Arc::new(keys), Arc::new(errors), images.finish().unwrap()];
    RecordBatch::try_new(Arc::new(Schema::new(fields)), arrays).unwrap()
}

fn write(chunks: &[RecordBatch], encoding: &str) -> (Buffer, Part) {
    let encoder = Encoder::new(chunks[0].schema(), encoding.parse().unwrap()).unwrap();
    let mut part = encoder.part(Vec::new()).unwrap();
    for chunk in chunks {
        part.append(encoder.encode(chunk).unwrap()).unwrap();
    }
    let (bytes, part) = part.finish().unwrap();
    (Buffer::from_vec(bytes), part)
}

fn seconds(work: impl FnOnce()) -> f64 {
    let start = Instant::now();
    work();
    start.elapsed().as_secs_f64()
}

/// Medians of the two, measured in turn.
fn compare(mut limit: impl FnMut(), mut ours: impl FnMut()) -> (f64, f64) {
    let (mut a, mut b) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        a.push(seconds(&mut limit));
        b.push(seconds(&mut ours));
    }
    let median = |mut times: Vec<f64>| {
        times.sort_by(f64::total_cmp);
        times[times.len() / 2]
    };
    (median(a), median(b))
}

fn main() {
    let chunks: Vec<RecordBatch> = (0..CHUNKS).map(|index| chunk(index * ROWS)).collect();
    let schema = chunks[0].schema();
    let decoded = (ROWS * CHUNKS * SHAPE.iter().product::<usize>()) as f64 / 1e9;
    let open = |bytes: &Buffer, part: &Part, encoding: &str| {
        PartReader::open(bytes.clone(), part, schema.clone(), encoding.parse().unwrap()).unwrap()
    };
    let read = |reader: &PartReader| (0..reader.chunks()).for_each(|index| drop(black_box(reader.chunk(index, None))));

    for encoding in ["parquet-zstd-3", "parquet-lz4", "arrow-zstd-3"] {
        let (bytes, part) = write(&chunks, encoding);
        // The same pixels in frames of a page's size.
        let pixels: Vec<u8> = (0..ROWS * CHUNKS).flat_map(|seed| photograph(seed as u64)).collect();
        let frames: Vec<Vec<u8>> = pixels.chunks(1 << 20).map(|page| zstd::bulk::compress(page, 3).unwrap()).collect();
        let mut unzip = zstd::bulk::Decompressor::new().unwrap();
        let mut page = vec![0u8; 1 << 20];
        let limit = || frames.iter().for_each(|frame| drop(black_box(unzip.decompress_to_buffer(frame, &mut page))));
        let reader = open(&bytes, &part, encoding);
        read(&reader);
        let (limit, ours) = compare(limit, || read(&reader));
        println!(
            "{encoding}: {:.2} GB/s, verified before; raw zstd:3 {:.2} GB/s; ratio {:.2}",
            decoded / ours,
            decoded / limit,
            limit / ours
        );
    }

    let (bytes, part) = write(&chunks, "arrow-none");
    let hash = || {
        black_box(blake3::hash(&bytes));
    };
    let (limit, ours) = compare(hash, || read(&open(&bytes, &part, "arrow-none")));
    println!("arrow-none, first use: {:.2} GB/s; ratio to hashing {:.2}", decoded / ours, limit / ours);
    let reader = open(&bytes, &part, "arrow-none");
    read(&reader);
    let again = seconds(|| read(&reader));
    println!("arrow-none, again: {:.1} microseconds a chunk", again * 1e6 / CHUNKS as f64);

    for encoding in ["arrow-none", "parquet-zstd-3"] {
        let encoder = Encoder::new(schema.clone(), encoding.parse().unwrap()).unwrap();
        let zip = || chunks.iter().for_each(|chunk| drop(black_box(encoder.encode(chunk))));
        let raw = || {
            for chunk in &chunks {
                let values = chunk.column(2).to_data().child_data()[0].buffers()[0].clone();
                match encoding {
                    "arrow-none" => {
                        black_box(blake3::hash(&values));
                    }
                    _ => values.chunks(1 << 20).for_each(|page| drop(black_box(zstd::bulk::compress(page, 3)))),
                }
            }
        };
        let (limit, ours) = compare(raw, zip);
        println!("encode {encoding}: {:.2} GB/s; ratio to hashing or zstd:3 alone {:.2}", decoded / ours, limit / ours);
    }
}
