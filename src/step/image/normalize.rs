//! `image.normalize`: integers to floats, scaled to 0..1, less a mean, divided by a deviation.

use super::pixels::{Depth, Image, check_bytes};
use super::rows::{Bound, Cell, Column, Kernel, Reason, Row, Selection, Takes, Target};
use super::settings::{Names, PerChannel};
use crate::error::Result;
use crate::format::shard::tensor::DType;
use crate::step::registry::{Build, Definition};
use crate::step::{Cardinality, Purity, Step};
use half::f16;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::sync::Arc;

pub const DEFINITION: Definition = Definition {
    name: "image.normalize",
    summary: "Scale pixels to 0..1, subtract a mean, divide by a deviation: float32 or float16, HWC or CHW",
    purity: Purity::Deterministic,
    cardinality: Cardinality::OneToOne,
    reads: "images in uint8 or uint16",
    writes: "float32 or float16 of `[height, width, channels]`, or with `layout: chw` of `[channels, height, width]`",
    fails: "`mean` or `std` has a number of values other than 1 and the image's channels",
    schema: || schemars::schema_for!(Params),
    build,
};

/// `(x / 255 - mean) / std`, for uint16 `x / 65535`, each operation rounded to float32 in this order, as torchvision's
/// `to_tensor` and `normalize` do; then, where asked, rounded to float16 (to nearest, ties to even).
///
/// Output: floats of `[height, width, channels]`, or with `layout: chw` of `[channels, height, width]`; fixed where the
/// input is.
#[derive(Debug, Clone, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Params {
    /// The column, or several; may be left out where only one fits.
    pub column: Option<Names>,
    /// The output column for each; default: in place.
    pub to: Option<Names>,
    /// Of pixels scaled to 0..1: one number, or one for each channel.
    pub mean: PerChannel,
    /// Of pixels scaled to 0..1: one number, or one for each channel; not 0.
    pub std: PerChannel,
    /// The type of the output.
    pub dtype: FloatType,
    /// The order of the output's dimensions.
    pub layout: Axes,
}

impl Default for Params {
    fn default() -> Self {
        Params {
            column: None,
            to: None,
            mean: PerChannel::all(0.0),
            std: PerChannel::all(1.0),
            dtype: FloatType::Float32,
            layout: Axes::Hwc,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum FloatType {
    Float32,
    Float16,
}

/// The order of an output's dimensions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Axes {
    Hwc,
    Chw,
}

#[derive(Debug)]
struct Normalize {
    mean: PerChannel,
    std: PerChannel,
    dtype: FloatType,
    layout: Axes,
}

fn build(build: &Build) -> Result<Arc<dyn Step>> {
    let mut params: Params = build.params.parse()?;
    let finite = |values: &PerChannel| values.values().iter().all(|value| (*value as f32).is_finite());
    if !finite(&params.mean) {
        return Err(build.params.span_of("mean").error("expected finite numbers"));
    }
    if !finite(&params.std) || params.std.values().iter().any(|value| *value as f32 == 0.0) {
        return Err(build.params.span_of("std").error("expected finite numbers other than 0"));
    }
    let Params { mean, std, dtype, layout, .. } = params.clone();
    let kernel = Normalize { mean, std, dtype, layout };
    let selection = Selection { takes: Takes::Images, column: &mut params.column, to: &mut params.to, masks: &[] };
    let bound = Bound::new(build, (&DEFINITION, 1), selection, |input| {
        let [height, width, channels] = input.images()?.dims;
        for (name, values) in [("mean", &kernel.mean), ("std", &kernel.std)] {
            if let Some(channels) = channels {
                values.of(channels).map_err(|message| build.params.span_of(name).error(message))?;
            }
        }
        let dtype = match dtype {
            FloatType::Float32 => DType::F32,
            FloatType::Float16 => DType::F16,
        };
        Ok(match layout {
            Axes::Hwc => Target::Tensor(dtype, [height, width, channels]),
            Axes::Chw => Target::Tensor(dtype, [channels, height, width]),
        })
    })?;
    bound.step(&params, kernel)
}

impl Kernel for Normalize {
    type Plan = ();
    fn plan(&self, _: &Row) -> Result<(), Reason> {
        Ok(())
    }
    fn write(&self, _: &(), cell: Cell, _: &Column, out: &mut Vec<u8>) -> Result<[usize; 3], Reason> {
        let image = cell.image()?;
        let [height, width, channels] = image.shape.dims();
        let value = match self.dtype {
            FloatType::Float32 => 4,
            FloatType::Float16 => 2,
        };
        check_bytes(height, width, channels * value)?;
        let (mean, std) = (self.mean.of(channels)?, self.std.of(channels)?);
        let scales: Vec<Scale> =
            mean.iter().zip(&std).map(|(mean, std)| Scale { mean: *mean as f32, std: *std as f32 }).collect();
        match self.dtype {
            FloatType::Float32 => normalize(image, &scales, self.layout, f32::to_le_bytes, out),
            FloatType::Float16 => normalize(image, &scales, self.layout, |v| f16::from_f32(v).to_le_bytes(), out),
        }
        Ok(match self.layout {
            Axes::Hwc => [height, width, channels],
            Axes::Chw => [channels, height, width],
        })
    }
}

/// What one channel's values, scaled to 0..1, are shifted and divided by.
#[derive(Debug, Clone, Copy)]
pub struct Scale {
    pub mean: f32,
    pub std: f32,
}

impl Scale {
    fn of(self, value: f32, full: f32) -> f32 {
        (value / full - self.mean) / self.std
    }
}

/// Appends the image's values, `N` bytes each by `write`; `scales` has one for each channel.
pub fn normalize<const N: usize>(
    image: Image,
    scales: &[Scale],
    layout: Axes,
    write: impl Fn(f32) -> [u8; N] + Copy,
    out: &mut Vec<u8>,
) {
    match image.depth {
        Depth::Eight => {
            // 256 values a channel: computed once, then looked up.
            let table =
                |scale: &Scale| -> [[u8; N]; 256] { std::array::from_fn(|value| write(scale.of(value as f32, 255.0))) };
            let tables: Vec<[[u8; N]; 256]> = scales.iter().map(table).collect();
            let (values, _) = image.bytes().as_chunks::<1>();
            fill(values, &tables, layout, |table, [value]| table[usize::from(value)], out);
        }
        Depth::Sixteen => {
            let (values, _) = image.bytes().as_chunks::<2>();
            let of = |scale: &Scale, value| write(scale.of(f32::from(u16::from_le_bytes(value)), 65535.0));
            fill(values, scales, layout, of, out);
        }
    }
}

fn fill<const M: usize, const N: usize, T>(
    values: &[[u8; M]],
    channels: &[T],
    layout: Axes,
    of: impl Fn(&T, [u8; M]) -> [u8; N],
    out: &mut Vec<u8>,
) {
    let start = out.len();
    out.resize(start + values.len() * N, 0);
    let (to, _) = out[start..].as_chunks_mut::<N>();
    match layout {
        Axes::Hwc => {
            for (to, from) in to.chunks_exact_mut(channels.len()).zip(values.chunks_exact(channels.len())) {
                for ((to, from), channel) in to.iter_mut().zip(from).zip(channels) {
                    *to = of(channel, *from);
                }
            }
        }
        Axes::Chw => {
            let plane = values.len() / channels.len();
            for ((c, channel), to) in channels.iter().enumerate().zip(to.chunks_exact_mut(plane)) {
                for (to, from) in to.iter_mut().zip(values.iter().skip(c).step_by(channels.len())) {
                    *to = of(channel, *from);
                }
            }
        }
    }
}
