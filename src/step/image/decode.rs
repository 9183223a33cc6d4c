//! `image.decode`: encoded images to tensors.

use super::container::{Format, orientation};
use super::convert::{Layout, convert};
use super::pixels::{Depth, Image, Orientation, Shape};
use super::rows::{Bound, Cell, Column, Kernel, Reason, Row, Selection, Takes, Target};
use super::settings::Names;
use super::{jpeg, raster};
use crate::error::Result;
use crate::format::shard::tensor::DType;
use crate::step::registry::{Build, Definition};
use crate::step::{Cardinality, Purity, Step};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::cell::RefCell;
use std::sync::Arc;

pub const DEFINITION: Definition = Definition {
    name: "image.decode",
    summary: "Decode JPEG, PNG, WebP, GIF, BMP and TIFF files to uint8 pixels, upright as EXIF says",
    purity: Purity::Deterministic,
    cardinality: Cardinality::OneToOne,
    reads: "a column of encoded images, as bytes",
    writes: "images of `[height, width, channels]` in uint8 (uint16 with `bits: 16`), of any height and width",
    fails: "the format isn't known, the file is damaged or cut short, or it has more than `max_pixels`",
    schema: || schemars::schema_for!(Params),
    build,
};

/// Decodes a `large_binary` column to images: tensors of `[height, width, channels]`, height and width ragged.
///
/// The format goes by the first bytes, never by a name. JPEG and WebP pixels equal Pillow's and torchvision's bit for
/// bit (libjpeg-turbo with the accurate integer DCT and smooth upsampling; libwebp); of GIF, WebP and APNG animations
/// the first frame is taken. Colours are converted as Pillow's `convert` does; embedded colour profiles and gamma are
/// ignored, as there. A row fails on a format that isn't known, damage that Pillow refuses as well, a file that is cut
/// short, and more than `max_pixels`; bytes after the image are no matter.
#[derive(Debug, Clone, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Params {
    /// The column of encoded images; may be left out where only one fits.
    pub column: Option<Names>,
    /// The output column; default: in place.
    pub to: Option<Names>,
    /// The channels of the output.
    pub mode: Mode,
    /// 8 for uint8 or 16 for uint16. 16-bit files yield their high bytes at 8; 8-bit files are multiplied by 257 at 16.
    pub bits: Bits,
    /// Turn images upright as their EXIF orientation says.
    pub exif: bool,
    /// Images of more pixels (by their header, before anything is allocated) fail. Default: Pillow's limit.
    pub max_pixels: u64,
}

impl Default for Params {
    fn default() -> Self {
        Params { column: None, to: None, mode: Mode::Rgb, bits: Bits::Eight, exif: true, max_pixels: 178_956_970 }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// 3 channels; alpha is dropped.
    Rgb,
    /// 1 channel; from colours `(19595 R + 38470 G + 7471 B + 32768) >> 16`.
    Gray,
    /// 4 channels; alpha is 255 where the file has none.
    Rgba,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(try_from = "u8", into = "u8")]
pub enum Bits {
    Eight,
    Sixteen,
}

impl TryFrom<u8> for Bits {
    type Error = String;
    fn try_from(bits: u8) -> Result<Self, String> {
        match bits {
            8 => Ok(Bits::Eight),
            16 => Ok(Bits::Sixteen),
            _ => Err(format!("expected 8 or 16, found {bits}")),
        }
    }
}

impl From<Bits> for u8 {
    fn from(bits: Bits) -> u8 {
        match bits {
            Bits::Eight => 8,
            Bits::Sixteen => 16,
        }
    }
}

fn build(build: &Build) -> Result<Arc<dyn Step>> {
    let mut params: Params = build.params.parse()?;
    let options = params.options();
    let selection = Selection { takes: Takes::Encoded, column: &mut params.column, to: &mut params.to, masks: &[] };
    let bound = Bound::new(build, (&DEFINITION, 1), selection, |_| {
        let dtype = match options.depth {
            Depth::Eight => DType::U8,
            Depth::Sixteen => DType::U16,
        };
        Ok(Target::Tensor(dtype, [None, None, Some(options.layout.channels())]))
    })?;
    bound.step(&params, options)
}

/// How to decode.
#[derive(Debug, Clone, Copy)]
pub struct Options {
    /// `Gray`, `Rgb` or `Rgba`.
    layout: Layout,
    depth: Depth,
    exif: bool,
    max_pixels: u64,
}

impl Params {
    pub fn options(&self) -> Options {
        let layout = match self.mode {
            Mode::Rgb => Layout::Rgb,
            Mode::Gray => Layout::Gray,
            Mode::Rgba => Layout::Rgba,
        };
        let depth = match self.bits {
            Bits::Eight => Depth::Eight,
            Bits::Sixteen => Depth::Sixteen,
        };
        Options { layout, depth, exif: self.exif, max_pixels: self.max_pixels }
    }
}

impl Kernel for Options {
    type Plan = ();
    fn plan(&self, _: &Row) -> Result<(), Reason> {
        Ok(())
    }
    fn write(&self, _: &(), cell: Cell, _: &Column, out: &mut Vec<u8>) -> Result<[usize; 3], Reason> {
        decode(cell.bytes()?, self, out).map(Shape::dims)
    }
}

/// Appends the pixels of an encoded image; after an error, `out` may hold part of them.
pub fn decode(bytes: &[u8], options: &Options, out: &mut Vec<u8>) -> Result<Shape, Reason> {
    if bytes.is_empty() {
        return Err("the file is empty".into());
    }
    let format = Format::of(bytes).ok_or_else(|| {
        let head = &bytes[..bytes.len().min(8)];
        format!(
            "no image: expected JPEG, PNG, WebP, GIF, BMP or TIFF, found bytes that begin with {:?}",
            head.escape_ascii().to_string()
        )
    })?;
    decode_as(bytes, format, options, out).map_err(|reason| format!("{}: {reason}", format.name()))
}

fn decode_as(bytes: &[u8], format: Format, options: &Options, out: &mut Vec<u8>) -> Result<Shape, Reason> {
    let start = out.len();
    let raster = match format {
        Format::Jpeg => decode_jpeg(bytes, options, out)?,
        _ => {
            // Deflate expands at most 1032 times, to pixels of at least a bit.
            let densest = if format == Format::Png { 8 * 1032 } else { u64::MAX };
            let check = |height, width| check_pixels(height, width, bytes.len(), densest, options);
            raster::decode(bytes, format, check, options.max_pixels, out)?
        }
    };
    let mut shape = Shape { height: raster.height, width: raster.width, channels: options.layout.channels() };
    if (raster.layout, raster.depth) != (options.layout, options.depth) {
        rework(out, start, |from, out| {
            convert(from, raster.layout, raster.depth, options.layout, options.depth, out);
        });
    }
    let up = if options.exif { orientation(bytes, format) } else { Orientation::Upright };
    if up != Orientation::Upright {
        rework(out, start, |from, out| {
            if let Some(image) = Image::new(shape, options.depth, from) {
                shape = up.apply(image, out);
            }
        });
    }
    Ok(shape)
}

fn decode_jpeg(bytes: &[u8], options: &Options, out: &mut Vec<u8>) -> Result<raster::Raster, Reason> {
    let mut decoder = jpeg::Decoder::new()?;
    let header = decoder.header(bytes)?;
    // Huffman codes spend at least a bit on a block of 64 pixels.
    let densest = if header.arithmetic { u64::MAX } else { 8 * 64 };
    check_pixels(header.height, header.width, bytes.len(), densest, options)?;
    let layout = match (header.layout, options.layout) {
        (Layout::InvertedCmyk, _) => Layout::InvertedCmyk,
        (Layout::Gray, Layout::Gray) => Layout::Gray,
        (_, Layout::Rgba) => Layout::Rgba,
        _ => Layout::Rgb,
    };
    decoder.decode(bytes, header, layout, out)?;
    Ok(raster::Raster { height: header.height, width: header.width, layout, depth: Depth::Eight })
}

/// Refuses a header before anything is allocated for it: `densest` is the most pixels that a byte of the file can hold.
fn check_pixels(height: usize, width: usize, bytes: usize, densest: u64, options: &Options) -> Result<(), Reason> {
    let pixels = (height as u64).saturating_mul(width as u64);
    if pixels == 0 {
        return Err(format!("an image without pixels, [{height}, {width}]"));
    }
    if pixels > options.max_pixels {
        return Err(format!(
            "the header says [{height}, {width}], {pixels} pixels, more than max_pixels: {}",
            options.max_pixels
        ));
    }
    super::pixels::check_bytes(height, width, options.layout.channels() * options.depth.bytes())?;
    if pixels > densest.saturating_mul(bytes as u64) {
        return Err(format!(
            "the header says [{height}, {width}], which {bytes} bytes can't hold; the file is cut short"
        ));
    }
    Ok(())
}

thread_local! {
    static SCRATCH: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// Replaces what follows `start` by what `work` makes of it.
fn rework(out: &mut Vec<u8>, start: usize, work: impl FnOnce(&[u8], &mut Vec<u8>)) {
    const KEEP: usize = 64 << 20;
    SCRATCH.with_borrow_mut(|scratch| {
        scratch.clear();
        scratch.extend_from_slice(&out[start..]);
        out.truncate(start);
        work(scratch, out);
        if scratch.capacity() > KEEP {
            *scratch = Vec::new();
        }
    });
}
