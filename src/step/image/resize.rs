//! `image.resize`, and the resampling that `image.random_resized_crop` shares.

use super::convert::multiply;
use super::convolve::convolve;
use super::pixels::{Depth, Image, Shape, Window, check_bytes};
use super::rows::{Bound, Cell, Column, Kernel, Reason, Row, Selection, Takes};
use super::settings::{MAX_SIDE, Names, Size};
use crate::error::Result;
use crate::step::registry::{Build, Definition};
use crate::step::{Cardinality, Purity, Step};
use fast_image_resize::images::{TypedCroppedImage, TypedImage, TypedImageRef};
use fast_image_resize::pixels::{U8, U8x3, U16, U16x3};
use fast_image_resize::{FilterType, PixelTrait, ResizeAlg, ResizeOptions, Resizer};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::cell::RefCell;
use std::sync::Arc;

pub const DEFINITION: Definition = Definition {
    name: "image.resize",
    summary: "Resize images to a shorter side or an exact size, antialiased as Pillow does",
    purity: Purity::Deterministic,
    cardinality: Cardinality::OneToOne,
    reads: "images of 1, 3 or 4 channels in uint8 or uint16",
    writes: "images of the same type: all of one size with `size`, of any with `shorter_side`",
    fails: "a side would come out above `max_side`",
    schema: || schemars::schema_for!(Params),
    build,
};

/// Resizes images of 1, 3 or 4 channels (uint8 or uint16): `shorter_side` keeps the ratio of the sides, `size` does not.
///
/// Output: `[height, width, channels]` of the input's type; fixed where `size` is given, ragged for `shorter_side`.
/// Integer arithmetic, the same on every processor; within 1 level of Pillow's `resize` (bicubic, lanczos and RGBA
/// equal Pillow 13 bit for bit). Four channels are taken for RGBA and blended by alpha, as Pillow does. A row fails where a side would come out above `max_side`.
#[derive(Debug, Clone, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Params {
    /// The column, or several; may be left out where only one fits.
    pub column: Option<Names>,
    /// The output column for each; default: in place.
    pub to: Option<Names>,
    /// Those of the columns that hold classes: resized to the nearest pixel, whatever the filter.
    pub masks: Vec<String>,
    /// Pixels of the shorter side; the longer one is `shorter_side * long / short`, rounded down as in torchvision.
    pub shorter_side: Option<u32>,
    /// `[height, width]` in pixels, or one number for a square.
    pub size: Option<Size>,
    /// How pixels become others.
    pub filter: Filter,
    /// The longest side of an output, in pixels.
    pub max_side: u32,
}

impl Default for Params {
    fn default() -> Self {
        Params {
            column: None,
            to: None,
            masks: Vec::new(),
            shorter_side: None,
            size: None,
            filter: Filter::Bilinear,
            max_side: 16_384,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Filter {
    /// The pixel whose centre is nearest.
    Nearest,
    /// A triangle, as wide as the scale when shrinking.
    Bilinear,
    /// Cubic convolution with a = -0.5.
    Bicubic,
    /// Lanczos with three lobes.
    Lanczos,
}

#[derive(Debug)]
struct Resize {
    to: To,
    filter: Filter,
    max_side: usize,
}

#[derive(Debug, Clone, Copy)]
enum To {
    Shorter(usize),
    Exactly(Size),
}

fn build(build: &Build) -> Result<Arc<dyn Step>> {
    let mut params: Params = build.params.parse()?;
    let to = match (params.shorter_side, params.size) {
        (Some(side), None) if (1..=MAX_SIDE).contains(&side) => To::Shorter(side as usize),
        (Some(_), None) => {
            let message = format!("expected a side from 1 to {MAX_SIDE} pixels");
            return Err(build.params.span_of("shorter_side").error(message));
        }
        (None, Some(size)) => To::Exactly(size),
        _ => return Err(build.span.error("expected either shorter_side: PIXELS or size: [HEIGHT, WIDTH]")),
    };
    let kernel = Resize { to, filter: params.filter, max_side: params.max_side as usize };
    let selection =
        Selection { takes: Takes::Images, column: &mut params.column, to: &mut params.to, masks: &params.masks };
    let bound = Bound::new(build, (&DEFINITION, 1), selection, |input| {
        let images = input.images()?;
        Ok(match (to, images.dims) {
            (To::Exactly(size), _) => images.sized(Some(size.height), Some(size.width)),
            (To::Shorter(side), [Some(height), Some(width), _]) => {
                let (height, width) = shorter_side(height, width, side);
                images.sized(Some(height), Some(width))
            }
            _ => images.sized(None, None),
        })
    })?;
    bound.step(&params, kernel)
}

impl Kernel for Resize {
    type Plan = ();
    fn plan(&self, _: &Row) -> Result<(), Reason> {
        Ok(())
    }
    fn write(&self, _: &(), cell: Cell, column: &Column, out: &mut Vec<u8>) -> Result<[usize; 3], Reason> {
        let image = cell.image()?;
        let (height, width) = match self.to {
            To::Shorter(side) => shorter_side(image.shape.height, image.shape.width, side),
            To::Exactly(size) => (size.height, size.width),
        };
        if height.max(width) > self.max_side {
            let (h, w) = (image.shape.height, image.shape.width);
            return Err(format!("[{h}, {w}] would become [{height}, {width}], above max_side: {}", self.max_side));
        }
        let filter = if column.mask { Filter::Nearest } else { self.filter };
        resample(image, image.window(), [height, width], filter, out).map(Shape::dims)
    }
}

/// The size of an image whose shorter side becomes `side`, the longer one rounded down, as torchvision's `Resize(side)`.
pub fn shorter_side(height: usize, width: usize, side: usize) -> (usize, usize) {
    let (short, long) = (height.min(width), height.max(width));
    let long = (side as u128 * long as u128 / short.max(1) as u128) as usize;
    if height <= width { (side, long) } else { (long, side) }
}

thread_local! {
    static WORKSPACE: RefCell<Workspace> = RefCell::new(Workspace::default());
}

/// Appends `window` of the image (which must lie inside it, and beyond which nothing is seen) at another
/// `[height, width]`.
pub fn resample(
    image: Image,
    window: Window,
    size: [usize; 2],
    filter: Filter,
    out: &mut Vec<u8>,
) -> Result<Shape, Reason> {
    WORKSPACE.with_borrow_mut(|workspace| workspace.resample(image, window, size, filter, out))
}

/// A thread's resizer and the buffers between its passes.
#[derive(Default)]
struct Workspace {
    resizer: Resizer,
    premultiplied: Vec<u8>,
    between: Vec<u8>,
}

impl Workspace {
    fn resample(
        &mut self,
        image: Image,
        window: Window,
        [height, width]: [usize; 2],
        filter: Filter,
        out: &mut Vec<u8>,
    ) -> Result<Shape, Reason> {
        if [height, width] == [window.height, window.width] {
            return Ok(image.crop(window, out));
        }
        check_bytes(height, width, image.pixel_bytes())?;
        if filter == Filter::Nearest {
            return Ok(nearest(image, window, [height, width], out));
        }
        let start = out.len();
        out.resize(start + height * width * image.pixel_bytes(), 0);
        let Workspace { resizer, premultiplied, between } = self;
        if image.shape.channels == 4 {
            premultiplied.clear();
            let shape = image.crop(window, premultiplied);
            premultiply(premultiplied, image.depth);
            let image = Image::new(shape, image.depth, premultiplied).ok_or("a window of another size")?;
            passes(resizer, between, image, image.window(), [height, width], filter, &mut out[start..])?;
            divide(&mut out[start..], image.depth);
        } else {
            passes(resizer, between, image, window, [height, width], filter, &mut out[start..])?;
        }
        self.trim();
        Ok(Shape { height, width, channels: image.shape.channels })
    }

    /// One huge image must not hold its memory for good.
    fn trim(&mut self) {
        const KEEP: usize = 64 << 20;
        if self.resizer.size_of_internal_buffers() > KEEP {
            self.resizer.reset_internal_buffers();
        }
        for buffer in [&mut self.premultiplied, &mut self.between] {
            if buffer.capacity() > KEEP {
                *buffer = Vec::new();
            }
        }
    }
}

/// The triangle over 1 or 3 channels takes the fast resizer, which stays within a level of Pillow there.
fn passes(
    resizer: &mut Resizer,
    between: &mut Vec<u8>,
    image: Image,
    window: Window,
    size: [usize; 2],
    filter: Filter,
    to: &mut [u8],
) -> Result<(), Reason> {
    match (filter, image.depth, image.shape.channels) {
        (Filter::Bilinear, Depth::Eight, 1) => triangle::<U8>(resizer, image, window, size, to),
        (Filter::Bilinear, Depth::Eight, 3) => triangle::<U8x3>(resizer, image, window, size, to),
        (Filter::Bilinear, Depth::Sixteen, 1) => triangle::<U16>(resizer, image, window, size, to),
        (Filter::Bilinear, Depth::Sixteen, 3) => triangle::<U16x3>(resizer, image, window, size, to),
        (_, _, 1 | 3 | 4) => {
            convolve(image, window, size, filter, between, to);
            Ok(())
        }
        (_, _, channels) => Err(format!("expected 1, 3 or 4 channels, found {channels}")),
    }
}

fn triangle<P: PixelTrait>(
    resizer: &mut Resizer,
    image: Image,
    window: Window,
    [to_height, to_width]: [usize; 2],
    to: &mut [u8],
) -> Result<(), Reason> {
    let side = |pixels: usize| u32::try_from(pixels).map_err(|_| "a side of more than 2^32 pixels".to_owned());
    // This resizer's first pass is along rows, however long and thin the image is; `convolve` takes the smaller way.
    check_bytes(window.height, to_width, image.pixel_bytes()).map_err(|reason| {
        let (h, w) = (window.height, window.width);
        format!(
            "on the way from [{h}, {w}] to [{to_height}, {to_width}]: {reason}; crop the image, or use another filter"
        )
    })?;
    let Shape { height, width, .. } = image.shape;
    let from = TypedImageRef::<P>::from_buffer(side(width)?, side(height)?, image.bytes()).map_err(text)?;
    let Window { top, left, height, width } = window;
    let from =
        TypedCroppedImage::from_ref(&from, side(left)?, side(top)?, side(width)?, side(height)?).map_err(text)?;
    let mut to = TypedImage::<P>::from_buffer(side(to_width)?, side(to_height)?, to).map_err(text)?;
    let options = ResizeOptions::new().resize_alg(ResizeAlg::Convolution(FilterType::Bilinear)).use_alpha(false);
    resizer.resize_typed(&from, &mut to, &options).map_err(text)
}

fn text(error: impl std::fmt::Display) -> Reason {
    error.to_string()
}

/// Colours times alpha, rounded.
fn premultiply(pixels: &mut [u8], depth: Depth) {
    match depth {
        Depth::Eight => {
            for [colours @ .., alpha] in pixels.as_chunks_mut::<4>().0 {
                colours.iter_mut().for_each(|c| *c = multiply((*c).into(), (*alpha).into()) as u8);
            }
        }
        Depth::Sixteen => {
            for pixel in pixels.as_chunks_mut::<8>().0 {
                let [r, g, b, a] = channels(*pixel);
                *pixel = bytes([r, g, b].map(|c| (c * a + 32767) / 65535), a);
            }
        }
    }
}

/// Colours divided by alpha, rounded down and cut off at the full value; as they are where alpha is 0.
fn divide(pixels: &mut [u8], depth: Depth) {
    let by = |c: u32, a: u32, full: u32| {
        if a == 0 { c } else { (u64::from(c) * u64::from(full) / u64::from(a)).min(full.into()) as u32 }
    };
    match depth {
        Depth::Eight => {
            for [colours @ .., alpha] in pixels.as_chunks_mut::<4>().0 {
                colours.iter_mut().for_each(|c| *c = by((*c).into(), (*alpha).into(), 255) as u8);
            }
        }
        Depth::Sixteen => {
            for pixel in pixels.as_chunks_mut::<8>().0 {
                let [r, g, b, a] = channels(*pixel);
                *pixel = bytes([r, g, b].map(|c| by(c, a, 65535)), a);
            }
        }
    }
}

fn channels([r0, r1, g0, g1, b0, b1, a0, a1]: [u8; 8]) -> [u32; 4] {
    [[r0, r1], [g0, g1], [b0, b1], [a0, a1]].map(|c| u16::from_le_bytes(c).into())
}

fn bytes([r, g, b]: [u32; 3], a: u32) -> [u8; 8] {
    let [[r0, r1], [g0, g1], [b0, b1], [a0, a1]] = [r, g, b, a].map(|c| (c as u16).to_le_bytes());
    [r0, r1, g0, g1, b0, b1, a0, a1]
}

/// Pillow's nearest: positions are summed in double precision, from the first pixel's centre on.
fn nearest(image: Image, window: Window, [height, width]: [usize; 2], out: &mut Vec<u8>) -> Shape {
    let positions = |from: usize, to: usize| -> Vec<usize> {
        let step = from as f64 / to as f64;
        let mut at = step * 0.5;
        (0..to)
            .map(|_| {
                let here = (at as usize).min(from - 1);
                at += step;
                here
            })
            .collect()
    };
    let pixel = image.pixel_bytes();
    let columns: Vec<usize> = positions(window.width, width).into_iter().map(|x| x * pixel).collect();
    let rows: Vec<&[u8]> = image.rows(window).collect();
    out.reserve(height * width * pixel);
    for y in positions(window.height, height) {
        for x in &columns {
            out.extend_from_slice(&rows[y][*x..*x + pixel]);
        }
    }
    Shape { height, width, channels: image.shape.channels }
}

#[cfg(test)]
#[expect(unsafe_code, reason = "processor extensions are set by an unsafe call")]
mod tests {
    use super::*;
    use fast_image_resize::CpuExtensions;

    #[test]
    fn the_shorter_side_is_rounded_as_in_torchvision() {
        assert_eq!(shorter_side(375, 500, 256), (256, 341));
        assert_eq!(shorter_side(500, 375, 256), (341, 256));
        assert_eq!(shorter_side(7, 7, 3), (3, 3));
        assert_eq!(shorter_side(1, 65_535, 65_535), (65_535, 65_535 * 65_535));
    }

    #[test]
    fn pixels_are_the_same_with_and_without_simd() {
        let mut state = 9u64;
        let noise: Vec<u8> = (0..97 * 131 * 8)
            .map(|_| {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                (state >> 56) as u8
            })
            .collect();
        let mut kinds = vec![CpuExtensions::None];
        #[cfg(target_arch = "x86_64")]
        kinds.push(CpuExtensions::Sse4_1);
        for kind in kinds.into_iter().filter(CpuExtensions::is_supported) {
            let mut plain = Workspace::default();
            // SAFETY: the extension is supported.
            unsafe { plain.resizer.set_cpu_extensions(kind) };
            let mut fastest = Workspace::default();
            for depth in [Depth::Eight, Depth::Sixteen] {
                for channels in [1, 3, 4] {
                    let shape = Shape { height: 97, width: 131, channels };
                    let image = Image::new(shape, depth, &noise[..97 * 131 * channels * depth.bytes()]).unwrap();
                    let window = Window { top: 3, left: 5, height: 90, width: 101 };
                    for filter in [Filter::Bilinear, Filter::Bicubic, Filter::Lanczos] {
                        for size in [[1, 1], [31, 33], [64, 200], [200, 17], [90, 50], [211, 305]] {
                            let (mut a, mut b) = (Vec::new(), Vec::new());
                            plain.resample(image, window, size, filter, &mut a).unwrap();
                            fastest.resample(image, window, size, filter, &mut b).unwrap();
                            assert!(a == b, "{kind:?} {depth:?} {channels} {filter:?} {size:?}");
                        }
                    }
                }
            }
        }
    }
}
