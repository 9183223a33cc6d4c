//! `image.center_crop` and `image.random_crop`: windows of a fixed size.

use super::pad::extend;
use super::pixels::{Image, Shape, Window};
use super::rows::{Bound, Cell, Column, Kernel, Reason, Row, Selection, Takes};
use super::settings::{Names, Size};
use crate::error::Result;
use crate::step::registry::{Build, Definition};
use crate::step::{Cardinality, Purity, Step};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::sync::Arc;

pub const CENTER: Definition = Definition {
    name: "image.center_crop",
    summary: "Cut a window of a fixed size out of the middle, as torchvision's CenterCrop does",
    purity: Purity::Deterministic,
    cardinality: Cardinality::OneToOne,
    reads: "images in uint8 or uint16",
    writes: "images of the same type, all of `size`",
    fails: "the image is smaller than `size`, unless `pad: true`; or its columns differ in size",
    schema: || schemars::schema_for!(CenterParams),
    build: build_center,
};

pub const RANDOM: Definition = Definition {
    name: "image.random_crop",
    summary: "Cut a window of a fixed size out of a random place",
    purity: Purity::Random,
    cardinality: Cardinality::OneToOne,
    reads: "images in uint8 or uint16",
    writes: "images of the same type, all of `size`",
    fails: "the image is smaller than `size`, or its columns differ in size",
    schema: || schemars::schema_for!(RandomParams),
    build: build_random,
};

/// Cuts `size` out of the middle. Output: `[height, width, channels]` of the input's type, fixed.
///
/// The window begins at half the difference of the sides, halves rounded to the even number (torchvision's rule). An
/// image smaller than `size` fails, or with `pad: true` is first extended by zeros on both sides, the odd pixel at the
/// right and bottom (torchvision's rule too).
#[derive(Debug, Clone, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CenterParams {
    /// The column, or several of one size; may be left out where only one fits.
    #[serde(default)]
    pub column: Option<Names>,
    /// The output column for each; default: in place.
    #[serde(default)]
    pub to: Option<Names>,
    /// `[height, width]` in pixels, or one number for a square.
    pub size: Size,
    /// Extend images that are smaller than `size` with zeros.
    #[serde(default)]
    pub pad: bool,
}

/// Cuts `size` out of a random place, every place equally likely; the same for all columns. Output:
/// `[height, width, channels]` of the input's type, fixed. An image smaller than `size` fails.
///
/// Draws: top below `height - size.height + 1`, then left below `width - size.width + 1`.
#[derive(Debug, Clone, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RandomParams {
    /// The column, or several of one size; may be left out where only one fits.
    #[serde(default)]
    pub column: Option<Names>,
    /// The output column for each; default: in place.
    #[serde(default)]
    pub to: Option<Names>,
    /// `[height, width]` in pixels, or one number for a square.
    pub size: Size,
}

#[derive(Debug)]
struct Center {
    size: Size,
    pad: bool,
}

#[derive(Debug)]
struct Random(Size);

fn build_center(build: &Build) -> Result<Arc<dyn Step>> {
    let mut params: CenterParams = build.params.parse()?;
    let kernel = Center { size: params.size, pad: params.pad };
    let (column, to) = (&mut params.column, &mut params.to);
    let bound = bind(build, (&CENTER, 1), params.size, column, to)?;
    bound.step(&params, kernel)
}

fn build_random(build: &Build) -> Result<Arc<dyn Step>> {
    let mut params: RandomParams = build.params.parse()?;
    let (column, to) = (&mut params.column, &mut params.to);
    let bound = bind(build, (&RANDOM, 1), params.size, column, to)?;
    let kernel = Random(params.size);
    bound.step(&params, kernel)
}

fn bind(
    build: &Build,
    step: (&Definition, u32),
    size: Size,
    column: &mut Option<Names>,
    to: &mut Option<Names>,
) -> Result<Bound> {
    let selection = Selection { takes: Takes::Images, column, to, masks: &[] };
    Bound::new(build, step, selection, |input| Ok(input.images()?.sized(Some(size.height), Some(size.width))))
}

impl Kernel for Center {
    type Plan = ();
    fn plan(&self, row: &Row) -> Result<(), Reason> {
        row.size().map(|_| ())
    }
    fn write(&self, _: &(), cell: Cell, _: &Column, out: &mut Vec<u8>) -> Result<[usize; 3], Reason> {
        center_crop(cell.image()?, self.size, self.pad, out).map(Shape::dims)
    }
}

/// Appends the middle of the image, see `CenterParams`.
pub fn center_crop(image: Image, size: Size, pad: bool, out: &mut Vec<u8>) -> Result<Shape, Reason> {
    let Shape { height, width, .. } = image.shape;
    if height >= size.height && width >= size.width {
        let (top, left) = (half_to_even(height - size.height), half_to_even(width - size.width));
        return Ok(image.crop(Window { top, left, height: size.height, width: size.width }, out));
    }
    if !pad {
        return Err(too_small(height, width, size, "pad: true extends it with zeros"));
    }
    let before = |have: usize, want: usize| want.saturating_sub(have) / 2;
    let (above, beside) = (before(height, size.height), before(width, size.width));
    let mut extended = Vec::new();
    let tall = height.max(size.height);
    let wide = width.max(size.width);
    let window = Window { top: above, left: beside, height, width };
    let zeros = vec![0; image.pixel_bytes()];
    extend(image, [tall, wide], window, &zeros, &mut extended)?;
    let shape = Shape { height: tall, width: wide, ..image.shape };
    let image = Image::new(shape, image.depth, &extended).ok_or("an extended image of another size")?;
    let (top, left) = (half_to_even(tall - size.height), half_to_even(wide - size.width));
    Ok(image.crop(Window { top, left, height: size.height, width: size.width }, out))
}

/// Python's `round(difference / 2)`.
const fn half_to_even(difference: usize) -> usize {
    let half = difference / 2;
    if difference % 2 == 1 && half % 2 == 1 { half + 1 } else { half }
}

fn too_small(height: usize, width: usize, size: Size, hint: &str) -> Reason {
    format!("the image is [{height}, {width}], smaller than the crop of [{}, {}]; {hint}", size.height, size.width)
}

impl Kernel for Random {
    type Plan = Window;
    fn plan(&self, row: &Row) -> Result<Window, Reason> {
        let (height, width) = row.size()?;
        let size = self.0;
        if height < size.height || width < size.width {
            return Err(too_small(height, width, size, "image.resize or image.pad before it makes it larger"));
        }
        let mut stream = row.stream();
        let top = stream.below((height - size.height + 1) as u64) as usize;
        let left = stream.below((width - size.width + 1) as u64) as usize;
        Ok(Window { top, left, height: size.height, width: size.width })
    }
    fn write(&self, window: &Window, cell: Cell, _: &Column, out: &mut Vec<u8>) -> Result<[usize; 3], Reason> {
        Ok(cell.image()?.crop(*window, out).dims())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn halves_go_to_the_even_number() {
        let halves: Vec<usize> = (0..10).map(half_to_even).collect();
        assert_eq!(halves, [0, 0, 1, 2, 2, 2, 3, 4, 4, 4]);
    }
}
