//! `image.random_resized_crop`: a random part of the image at a fixed size.

use super::pixels::{Shape, Window};
use super::resize::{Filter, resample};
use super::rows::{Bound, Cell, Column, Kernel, Reason, Row, Selection, Takes};
use super::settings::{Names, Size};
use crate::error::Result;
use crate::step::random::Stream;
use crate::step::registry::{Build, Definition};
use crate::step::{Cardinality, Purity, Step};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::sync::Arc;

pub const DEFINITION: Definition = Definition {
    name: "image.random_resized_crop",
    summary: "Cut a part of random area and ratio and resize it, as torchvision's RandomResizedCrop does",
    purity: Purity::Random,
    cardinality: Cardinality::OneToOne,
    reads: "images of 1, 3 or 4 channels in uint8 or uint16",
    writes: "images of the same type, all of `size`",
    fails: "its columns differ in size",
    schema: || schemars::schema_for!(Params),
    build,
};

/// Cuts a part of random area and ratio and resizes it to `size`; the same part for all columns. Output:
/// `[height, width, channels]` of the input's type, fixed. Pixels outside the part are not seen by the filter.
///
/// The algorithm is torchvision's: up to ten times an area (uniform in `scale`, as a share of the image's) and a ratio
/// of width to height (log-uniform in `ratio`) are drawn; the first that fits is placed uniformly; if none does, the
/// largest part in the middle whose ratio lies in `ratio`.
///
/// Draws, each time: area, ratio; then top below `height - h + 1`, left below `width - w + 1`.
#[derive(Debug, Clone, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Params {
    /// The column, or several of one size; may be left out where only one fits.
    #[serde(default)]
    pub column: Option<Names>,
    /// The output column for each; default: in place.
    #[serde(default)]
    pub to: Option<Names>,
    /// Those of the columns that hold classes: resized to the nearest pixel, whatever the filter.
    #[serde(default)]
    pub masks: Vec<String>,
    /// `[height, width]` in pixels, or one number for a square.
    pub size: Size,
    /// Smallest and largest share of the image's area.
    #[serde(default = "default_scale")]
    pub scale: [f64; 2],
    /// Smallest and largest ratio of width to height.
    #[serde(default = "default_ratio")]
    pub ratio: [f64; 2],
    /// How pixels become others.
    #[serde(default = "default_filter")]
    pub filter: Filter,
}

fn default_scale() -> [f64; 2] {
    [0.08, 1.0]
}
fn default_ratio() -> [f64; 2] {
    [3.0 / 4.0, 4.0 / 3.0]
}
fn default_filter() -> Filter {
    Filter::Bilinear
}

#[derive(Debug)]
struct RandomResizedCrop {
    size: Size,
    scale: [f64; 2],
    ratio: [f64; 2],
    filter: Filter,
}

fn build(build: &Build) -> Result<Arc<dyn Step>> {
    let mut params: Params = build.params.parse()?;
    for (name, [low, high]) in [("scale", params.scale), ("ratio", params.ratio)] {
        if !(low > 0.0 && low <= high && high.is_finite()) {
            let message = format!("expected [low, high] with 0 < low <= high, found [{low}, {high}]");
            return Err(build.params.span_of(name).error(message));
        }
    }
    let Params { size, scale, ratio, filter, .. } = params;
    let selection =
        Selection { takes: Takes::Images, column: &mut params.column, to: &mut params.to, masks: &params.masks };
    let bound = Bound::new(build, (&DEFINITION, 1), selection, |input| {
        Ok(input.images()?.sized(Some(size.height), Some(size.width)))
    })?;
    bound.step(&params, RandomResizedCrop { size, scale, ratio, filter })
}

impl Kernel for RandomResizedCrop {
    type Plan = Window;
    fn plan(&self, row: &Row) -> Result<Window, Reason> {
        let (height, width) = row.size()?;
        Ok(draw(&mut row.stream(), height, width, self.scale, self.ratio))
    }
    fn write(&self, window: &Window, cell: Cell, column: &Column, out: &mut Vec<u8>) -> Result<[usize; 3], Reason> {
        let filter = if column.mask { Filter::Nearest } else { self.filter };
        resample(cell.image()?, *window, [self.size.height, self.size.width], filter, out).map(Shape::dims)
    }
}

/// The part of an image of `height` by `width` pixels, see `Params`.
pub fn draw(stream: &mut Stream, height: usize, width: usize, scale: [f64; 2], ratio: [f64; 2]) -> Window {
    let area = height as f64 * width as f64;
    for _ in 0..10 {
        let target = area * stream.between(scale[0], scale[1]);
        let aspect = ratio[0] * power(ratio[1] / ratio[0], stream.next_u64());
        let w = (target * aspect).sqrt().round_ties_even() as usize;
        let h = (target / aspect).sqrt().round_ties_even() as usize;
        if (1..=width).contains(&w) && (1..=height).contains(&h) {
            let top = stream.below((height - h + 1) as u64) as usize;
            let left = stream.below((width - w + 1) as u64) as usize;
            return Window { top, left, height: h, width: w };
        }
    }
    let own = width as f64 / height as f64;
    let (h, w) = if own < ratio[0] {
        (((width as f64 / ratio[0]).round_ties_even() as usize).clamp(1, height), width)
    } else if own > ratio[1] {
        (height, ((height as f64 * ratio[1]).round_ties_even() as usize).clamp(1, width))
    } else {
        (height, width)
    };
    Window { top: (height - h) / 2, left: (width - w) / 2, height: h, width: w }
}

/// `base` to the power of `fraction / 2^64`, as a product of square roots: these and multiplication are exact to the
/// last bit on every platform, which `exp` and `ln` are not.
fn power(base: f64, fraction: u64) -> f64 {
    let (mut root, mut product) = (base, 1.0);
    for bit in (32..64).rev() {
        root = root.sqrt();
        if fraction >> bit & 1 == 1 {
            product *= root;
        }
    }
    product
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::step::Context;

    fn stream(key: u64) -> Stream {
        Stream::new(Context { seed: 1, epoch: 2, occurrence: 0 }, DEFINITION.name, &key.to_string())
    }

    #[test]
    fn powers_are_those_of_the_library() {
        for (base, fraction) in
            [(16.0 / 9.0, 0x8000_0000_0000_0000u64), (1.0, 77), (9.0, u64::MAX / 3), (0.5, u64::MAX)]
        {
            let expected = f64::powf(base, fraction as f64 / 2f64.powi(64));
            assert!((power(base, fraction) - expected).abs() < 1e-8, "{base} {fraction}");
        }
    }

    #[test]
    fn parts_lie_inside_and_have_the_share_and_ratio_asked_for() {
        let (mut area, mut ratio) = (0.0, 0.0);
        for key in 0..2000 {
            let part = draw(&mut stream(key), 300, 400, [0.08, 1.0], [3.0 / 4.0, 4.0 / 3.0]);
            assert!(part.top + part.height <= 300 && part.left + part.width <= 400);
            let share = (part.height * part.width) as f64 / (300.0 * 400.0);
            assert!((0.07..=1.0).contains(&share), "{share}");
            area += share / 2000.0;
            ratio += (part.width as f64 / part.height as f64).ln() / 2000.0;
        }
        // Below the mean of 0.54 that is drawn: large parts fit less often.
        assert!((0.40..0.47).contains(&area), "{area}");
        assert!(ratio.abs() < 0.03, "{ratio}");
    }

    #[test]
    fn an_image_that_nothing_fits_yields_its_middle() {
        let part = draw(&mut stream(0), 10, 1000, [1.0, 1.0], [3.0 / 4.0, 4.0 / 3.0]);
        assert_eq!(part, Window { top: 0, left: 493, height: 10, width: 13 });
        let part = draw(&mut stream(0), 1000, 10, [1.0, 1.0], [3.0 / 4.0, 4.0 / 3.0]);
        assert_eq!(part, Window { top: 493, left: 0, height: 13, width: 10 });
        let part = draw(&mut stream(0), 1, 1, [0.08, 0.1], [1.0, 1.0]);
        assert_eq!(part, Window { top: 0, left: 0, height: 1, width: 1 });
    }
}
