//! Separable resampling in integers, equal to Pillow 13's bit for bit at 8 bits a channel: coefficients of 22 bits, one
//! rounding and cut-off after each pass, and Pillow's choice of which side comes first. `resize` uses it where the faster
//! resizer's 16-bit coefficients or order of passes would differ from Pillow by more than a level.

use super::pixels::{Depth, Image, Window};
use super::resize::Filter;

const PRECISION: u32 = 22;

/// A channel's value and the sums it is weighed in.
trait Sample: Copy + Default {
    type Sum: Copy;
    const HALF: Self::Sum;
    fn of(bytes: &[u8]) -> &[Self];
    fn of_mut(bytes: &mut [u8]) -> &mut [Self];
    fn add(self, weight: i32, sum: &mut Self::Sum);
    fn from_sum(sum: Self::Sum) -> Self;
}

impl Sample for [u8; 1] {
    type Sum = i32;
    const HALF: i32 = 1 << (PRECISION - 1);
    fn of(bytes: &[u8]) -> &[Self] {
        bytes.as_chunks().0
    }
    fn of_mut(bytes: &mut [u8]) -> &mut [Self] {
        bytes.as_chunks_mut().0
    }
    fn add(self, weight: i32, sum: &mut i32) {
        *sum += i32::from(self[0]) * weight;
    }
    fn from_sum(sum: i32) -> Self {
        [(sum >> PRECISION).clamp(0, 255) as u8]
    }
}

impl Sample for [u8; 2] {
    type Sum = i64;
    const HALF: i64 = 1 << (PRECISION - 1);
    fn of(bytes: &[u8]) -> &[Self] {
        bytes.as_chunks().0
    }
    fn of_mut(bytes: &mut [u8]) -> &mut [Self] {
        bytes.as_chunks_mut().0
    }
    fn add(self, weight: i32, sum: &mut i64) {
        *sum += i64::from(u16::from_le_bytes(self)) * i64::from(weight);
    }
    fn from_sum(sum: i64) -> Self {
        ((sum >> PRECISION).clamp(0, 65535) as u16).to_le_bytes()
    }
}

/// Writes `window` of the image at another height and width to `to`; `between` holds what lies between the passes.
pub fn convolve(image: Image, window: Window, size: [usize; 2], filter: Filter, between: &mut Vec<u8>, to: &mut [u8]) {
    match image.depth {
        Depth::Eight => both::<[u8; 1]>(image, window, size, filter, between, to),
        Depth::Sixteen => both::<[u8; 2]>(image, window, size, filter, between, to),
    }
}

fn both<S: Sample>(
    image: Image,
    window: Window,
    [height, width]: [usize; 2],
    filter: Filter,
    between: &mut Vec<u8>,
    to: &mut [u8],
) {
    let rows: Vec<&[u8]> = image.rows(window).collect();
    let pixel = image.pixel_bytes();
    let (across, down) = (taps(window.width, width, filter), taps(window.height, height, filter));
    let channels = image.shape.channels;
    between.clear();
    // Pillow's rule, found by trying some 3,000 sizes.
    if height < window.height && window.height - height > 2 * window.width.saturating_sub(width) {
        between.resize(height * window.width * pixel, 0);
        along_columns::<S>(&rows, &down, between);
        let rows: Vec<&[u8]> = between.chunks_exact(window.width * pixel).collect();
        along_rows::<S>(&rows, &across, channels, to);
    } else {
        between.resize(window.height * width * pixel, 0);
        along_rows::<S>(&rows, &across, channels, between);
        let rows: Vec<&[u8]> = between.chunks_exact(width * pixel).collect();
        along_columns::<S>(&rows, &down, to);
    }
}

fn along_rows<S: Sample>(rows: &[&[u8]], taps: &[Taps], channels: usize, to: &mut [u8]) {
    let out = S::of_mut(to).chunks_exact_mut(taps.len() * channels);
    for (row, out) in rows.iter().zip(out) {
        match channels {
            1 => row_of::<S, 1>(S::of(row), taps, out),
            3 => row_of::<S, 3>(S::of(row), taps, out),
            _ => row_of::<S, 4>(S::of(row), taps, out),
        }
    }
}

fn row_of<S: Sample, const C: usize>(row: &[S], taps: &[Taps], out: &mut [S]) {
    let (pixels, (out, _)) = (row.as_chunks::<C>().0, out.as_chunks_mut::<C>());
    for (out, taps) in out.iter_mut().zip(taps) {
        let mut sums = [S::HALF; C];
        for (pixel, weight) in pixels[taps.first..].iter().zip(&taps.weights) {
            for (sample, sum) in pixel.iter().zip(&mut sums) {
                sample.add(*weight, sum);
            }
        }
        *out = sums.map(S::from_sum);
    }
}

fn along_columns<S: Sample>(rows: &[&[u8]], taps: &[Taps], to: &mut [u8]) {
    let samples = rows.first().map_or(0, |row| S::of(row).len()).max(1);
    let mut sums = vec![S::HALF; samples];
    for (out, taps) in S::of_mut(to).chunks_exact_mut(samples).zip(taps) {
        sums.fill(S::HALF);
        for (row, weight) in rows[taps.first..].iter().zip(&taps.weights) {
            for (sample, sum) in S::of(row).iter().zip(&mut sums) {
                sample.add(*weight, sum);
            }
        }
        for (out, sum) in out.iter_mut().zip(&sums) {
            *out = S::from_sum(*sum);
        }
    }
}

/// What one output position is made of: inputs from `first` on, by weights of `PRECISION` bits.
struct Taps {
    first: usize,
    weights: Vec<i32>,
}

fn taps(from: usize, to: usize, filter: Filter) -> Vec<Taps> {
    if from == to {
        return (0..to).map(|first| Taps { first, weights: vec![1 << PRECISION] }).collect();
    }
    let scale = from as f64 / to as f64;
    let stretch = scale.max(1.0);
    let (weigh, reach): (fn(f64) -> f64, f64) = match filter {
        Filter::Nearest | Filter::Bilinear => (triangle, 1.0),
        Filter::Bicubic => (cubic, 2.0),
        Filter::Lanczos => (lanczos, 3.0),
    };
    let support = reach * stretch;
    (0..to)
        .map(|at| {
            let center = (at as f64 + 0.5) * scale;
            // A cast cuts off below at 0.
            let first = (center - support + 0.5) as usize;
            let end = ((center + support + 0.5) as usize).min(from);
            let weights: Vec<f64> = (first..end).map(|x| weigh((x as f64 - center + 0.5) * (1.0 / stretch))).collect();
            let total: f64 = weights.iter().sum();
            let whole = |weight: f64| {
                let weight = if total == 0.0 { weight } else { weight / total };
                (weight * f64::from(1u32 << PRECISION) + 0.5f64.copysign(weight)) as i32
            };
            Taps { first, weights: weights.into_iter().map(whole).collect() }
        })
        .collect()
}

fn triangle(x: f64) -> f64 {
    (1.0 - x.abs()).max(0.0)
}

fn cubic(x: f64) -> f64 {
    const A: f64 = -0.5;
    let x = x.abs();
    if x < 1.0 {
        ((A + 2.0) * x - (A + 3.0)) * x * x + 1.0
    } else if x < 2.0 {
        (((x - 5.0) * x + 8.0) * x - 4.0) * A
    } else {
        0.0
    }
}

fn lanczos(x: f64) -> f64 {
    let sinc = |x: f64| if x == 0.0 { 1.0 } else { (x * std::f64::consts::PI).sin() / (x * std::f64::consts::PI) };
    if (-3.0..3.0).contains(&x) { sinc(x) * sinc(x / 3.0) } else { 0.0 }
}
