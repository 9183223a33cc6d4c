//! `image.encode`: tensors to JPEG, PNG or WebP files.

use super::pixels::{Depth, Image};
use super::rows::{Bound, Cell, Column, Kernel, Reason, Row, Selection, Takes, Target};
use super::settings::Names;
use crate::error::Result;
use crate::step::registry::{Build, Definition};
use crate::step::{Cardinality, Purity, Step};
use image::codecs::png::{CompressionType, FilterType, PngEncoder};
use image::{ExtendedColorType, ImageEncoder};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::cell::RefCell;
use std::sync::Arc;

pub const DEFINITION: Definition = Definition {
    name: "image.encode",
    summary: "Encode images as JPEG (which changes values), PNG or WebP",
    purity: Purity::Deterministic,
    cardinality: Cardinality::OneToOne,
    reads: "images: of 1 or 3 channels for JPEG, of 1, 3 or 4 else; uint16 for PNG alone",
    writes: "files, as bytes",
    fails: "a side is beyond the format's limit, or the format has no such number of channels",
    schema: || schemars::schema_for!(Params),
    build,
};

/// Encodes images to a `large_binary` column.
///
/// * `jpeg`: libjpeg-turbo, uint8 of 1 or 3 channels; values change. Quality 1 to 100, default 90.
/// * `png`: lossless, uint8 or uint16 of 1, 3 or 4 channels.
/// * `webp`: libwebp, uint8 of 1, 3 or 4 channels (1 becomes RGB). Quality 0 to 100, default 80; `lossless: true`
///   keeps every pixel that is not wholly transparent.
///
/// A row fails where a side is beyond the format's limit (65,500 pixels for JPEG, 16,383 for WebP).
#[derive(Debug, Clone, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Params {
    /// The column, or several; may be left out where only one fits.
    #[serde(default)]
    pub column: Option<Names>,
    /// The output column for each; default: in place.
    #[serde(default)]
    pub to: Option<Names>,
    /// The format of the files.
    pub format: Format,
    /// 1 to 100 for JPEG (default 90), 0 to 100 for WebP (default 80); JPEG and lossy WebP only.
    #[serde(default)]
    pub quality: Option<u8>,
    /// WebP only; default: lossy.
    #[serde(default)]
    pub lossless: Option<bool>,
    /// JPEG only; default `4:2:0`.
    #[serde(default)]
    pub subsampling: Option<Subsampling>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Format {
    Jpeg,
    Png,
    Webp,
}

/// How much of the colours' resolution JPEG keeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
pub enum Subsampling {
    #[serde(rename = "4:4:4")]
    Full,
    #[serde(rename = "4:2:2")]
    HalfWidth,
    #[serde(rename = "4:2:0")]
    HalfBoth,
}

/// An encoder's settings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Settings {
    Jpeg { quality: u8, subsampling: Subsampling },
    Png,
    WebP { quality: u8, lossless: bool },
}

fn build(build: &Build) -> Result<Arc<dyn Step>> {
    let mut params: Params = build.params.parse()?;
    let unused = |name: &str| {
        let format = build.params.span_of(name);
        Err(format.error(format!("{name}: means nothing for this format")))
    };
    let lossless = params.lossless.unwrap_or(false);
    let (least, default) = if params.format == Format::Jpeg { (1, 90) } else { (0, 80) };
    let quality = params.quality.unwrap_or(default);
    if !(least..=100).contains(&quality) {
        return Err(build.params.span_of("quality").error(format!("expected {least} to 100, found {quality}")));
    }
    let settings = match params.format {
        _ if params.format != Format::Jpeg && params.subsampling.is_some() => return unused("subsampling"),
        _ if params.format != Format::Webp && params.lossless.is_some() => return unused("lossless"),
        _ if (params.format == Format::Png || lossless) && params.quality.is_some() => return unused("quality"),
        Format::Jpeg => {
            let subsampling = params.subsampling.unwrap_or(Subsampling::HalfBoth);
            (params.quality, params.subsampling) = (Some(quality), Some(subsampling));
            Settings::Jpeg { quality, subsampling }
        }
        Format::Png => Settings::Png,
        Format::Webp => {
            params.lossless = Some(lossless);
            params.quality = (!lossless).then_some(quality);
            Settings::WebP { quality, lossless }
        }
    };
    let selection = Selection { takes: Takes::Images, column: &mut params.column, to: &mut params.to, masks: &[] };
    let bound = Bound::new(build, (&DEFINITION, 1), selection, |input| {
        let images = input.images()?;
        settings.accept(images.depth, images.dims[2]).map_err(|reason| build.params.span_of("format").error(reason))?;
        Ok(Target::Binary)
    })?;
    bound.step(&params, settings)
}

impl Settings {
    fn accept(self, depth: Depth, channels: Option<usize>) -> Result<(), Reason> {
        let (name, most, depths): (_, &[usize], _) = match self {
            Settings::Jpeg { .. } => ("JPEG", &[1, 3], &[Depth::Eight][..]),
            Settings::Png => ("PNG", &[1, 3, 4], &[Depth::Eight, Depth::Sixteen][..]),
            Settings::WebP { .. } => ("WebP", &[1, 3, 4], &[Depth::Eight][..]),
        };
        if !depths.contains(&depth) {
            return Err(format!("{name} holds 8 bits a channel, found uint16; decode with bits: 8 or encode as png"));
        }
        match channels {
            Some(channels) if !most.contains(&channels) => {
                let most: Vec<String> = most.iter().map(ToString::to_string).collect();
                Err(format!("{name} holds images of {} channels, found {channels}", most.join(" or ")))
            }
            _ => Ok(()),
        }
    }
}

impl Kernel for Settings {
    type Plan = ();
    fn plan(&self, _: &Row) -> Result<(), Reason> {
        Ok(())
    }
    fn write(&self, _: &(), cell: Cell, _: &Column, out: &mut Vec<u8>) -> Result<[usize; 3], Reason> {
        let image = cell.image()?;
        encode(image, *self, out)?;
        Ok(image.shape.dims())
    }
}

/// Appends the encoded image.
pub fn encode(image: Image, settings: Settings, out: &mut Vec<u8>) -> Result<(), Reason> {
    settings.accept(image.depth, Some(image.shape.channels))?;
    match settings {
        Settings::Jpeg { quality, subsampling } => jpeg(image, quality, subsampling, out),
        Settings::Png => png(image, out),
        Settings::WebP { quality, lossless } => webp(image, quality, lossless, out),
    }
}

thread_local! {
    static COMPRESSOR: RefCell<Option<turbojpeg::Compressor>> = const { RefCell::new(None) };
}

fn jpeg(image: Image, quality: u8, subsampling: Subsampling, out: &mut Vec<u8>) -> Result<(), Reason> {
    let text = |e: turbojpeg::Error| e.to_string();
    let (format, subsampling) = match (image.shape.channels, subsampling) {
        (1, _) => (turbojpeg::PixelFormat::GRAY, turbojpeg::Subsamp::Gray),
        (_, Subsampling::Full) => (turbojpeg::PixelFormat::RGB, turbojpeg::Subsamp::None),
        (_, Subsampling::HalfWidth) => (turbojpeg::PixelFormat::RGB, turbojpeg::Subsamp::Sub2x1),
        (_, Subsampling::HalfBoth) => (turbojpeg::PixelFormat::RGB, turbojpeg::Subsamp::Sub2x2),
    };
    COMPRESSOR.with_borrow_mut(|slot| {
        let compressor = match slot.take() {
            Some(compressor) => compressor,
            None => turbojpeg::Compressor::new().map_err(text)?,
        };
        let compressor = slot.insert(compressor);
        compressor.set_quality(quality.into()).map_err(text)?;
        compressor.set_subsamp(subsampling).map_err(text)?;
        let picture = turbojpeg::Image {
            pixels: image.bytes(),
            width: image.shape.width,
            pitch: image.shape.width * image.pixel_bytes(),
            height: image.shape.height,
            format,
        };
        out.extend_from_slice(&compressor.compress_to_owned(picture).map_err(text)?);
        Ok(())
    })
}

fn png(image: Image, out: &mut Vec<u8>) -> Result<(), Reason> {
    let side = |pixels: usize| u32::try_from(pixels).map_err(|_| "a side beyond PNG's limit".to_owned());
    let (width, height) = (side(image.shape.width)?, side(image.shape.height)?);
    let colour = match (image.depth, image.shape.channels) {
        (Depth::Eight, 1) => ExtendedColorType::L8,
        (Depth::Eight, 3) => ExtendedColorType::Rgb8,
        (Depth::Eight, _) => ExtendedColorType::Rgba8,
        (Depth::Sixteen, 1) => ExtendedColorType::L16,
        (Depth::Sixteen, 3) => ExtendedColorType::Rgb16,
        (Depth::Sixteen, _) => ExtendedColorType::Rgba16,
    };
    PngEncoder::new_with_quality(out, CompressionType::Fast, FilterType::Adaptive)
        .write_image(image.bytes(), width, height, colour)
        .map_err(|e| e.to_string())
}

fn webp(image: Image, quality: u8, lossless: bool, out: &mut Vec<u8>) -> Result<(), Reason> {
    const LIMIT: usize = 16_383;
    let (width, height) = (image.shape.width, image.shape.height);
    if width.max(height) > LIMIT {
        return Err(format!("[{height}, {width}] is beyond WebP's limit of {LIMIT} pixels a side"));
    }
    let (layout, pixels) = match image.shape.channels {
        1 => (webp::PixelLayout::Rgb, image.bytes().iter().flat_map(|value| [*value; 3]).collect::<Vec<u8>>().into()),
        3 => (webp::PixelLayout::Rgb, Cow::Borrowed(image.bytes())),
        _ => (webp::PixelLayout::Rgba, Cow::Borrowed(image.bytes())),
    };
    let encoder = webp::Encoder::new(&pixels, layout, width as u32, height as u32);
    let file = encoder.encode_simple(lossless, f32::from(quality)).map_err(|e| format!("WebP: {e:?}"))?;
    out.extend_from_slice(&file);
    Ok(())
}
