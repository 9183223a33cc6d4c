//! PNG, GIF, BMP, TIFF and WebP files to pixels in the file's own layout. WebP goes through libwebp, as in Pillow and
//! torchvision: lossy WebP is then equal to theirs. Of animations the first frame is taken.

use super::container::{Format, riff_chunks, tiff_holds_jpeg};
use super::convert::Layout;
use super::pixels::Depth;
use image::codecs::{bmp::BmpDecoder, gif::GifDecoder, png::PngDecoder, tiff::TiffDecoder};
use image::{ColorType, ExtendedColorType, ImageDecoder, Limits};
use std::io::Cursor;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// What a decoder appended to the output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Raster {
    pub height: usize,
    pub width: usize,
    pub layout: Layout,
    pub depth: Depth,
}

/// Appends the file's pixels; `check` is asked about the header's height and width before anything is allocated.
pub fn decode(
    bytes: &[u8],
    format: Format,
    check: impl Fn(usize, usize) -> Result<(), String>,
    max_pixels: u64,
    out: &mut Vec<u8>,
) -> Result<Raster, String> {
    if format == Format::WebP {
        return webp(bytes, check, out);
    }
    if format == Format::Tiff && tiff_holds_jpeg(bytes) {
        return Err(
            "JPEG data inside TIFF is not read, as its pixels would depend on another decoder; convert it".into()
        );
    }
    // What decoders keep beside the output: a few rows, or a frame of their own.
    let mut limits = Limits::no_limits();
    limits.max_alloc = Some(max_pixels.saturating_mul(8).saturating_add(64 << 20));
    let file = || Cursor::new(bytes);
    let work = || match format {
        Format::Png => read(PngDecoder::with_limits(file(), limits.clone()), limits, check, out),
        Format::Gif => read(GifDecoder::new(file()), limits, check, out),
        Format::Bmp => read(BmpDecoder::new(file()), limits, check, out),
        _ => read(TiffDecoder::new(file()), limits, check, out),
    };
    // These decoders are free of unsafe code, but not of bugs; one bad file must cost one row.
    catch_unwind(AssertUnwindSafe(work))
        .unwrap_or_else(|_| Err("the decoder gave up on a file that breaks its rules".into()))
}

fn read<D: ImageDecoder>(
    decoder: image::ImageResult<D>,
    limits: Limits,
    check: impl Fn(usize, usize) -> Result<(), String>,
    out: &mut Vec<u8>,
) -> Result<Raster, String> {
    let mut decoder = decoder.map_err(|e| e.to_string())?;
    let (width, height) = decoder.dimensions();
    let (height, width) = (height as usize, width as usize);
    check(height, width)?;
    decoder.set_limits(limits).map_err(|e| e.to_string())?;
    if matches!(decoder.original_color_type(), ExtendedColorType::Cmyk8 | ExtendedColorType::Cmyk16) {
        return Err("CMYK is read from JPEG files only; convert the file to RGB".into());
    }
    let (layout, depth) = match decoder.color_type() {
        ColorType::L8 => (Layout::Gray, Depth::Eight),
        ColorType::La8 => (Layout::GrayAlpha, Depth::Eight),
        ColorType::Rgb8 => (Layout::Rgb, Depth::Eight),
        ColorType::Rgba8 => (Layout::Rgba, Depth::Eight),
        ColorType::L16 => (Layout::Gray, Depth::Sixteen),
        ColorType::La16 => (Layout::GrayAlpha, Depth::Sixteen),
        ColorType::Rgb16 => (Layout::Rgb, Depth::Sixteen),
        ColorType::Rgba16 => (Layout::Rgba, Depth::Sixteen),
        other => return Err(format!("pixels of type {other:?} can't be read; expected 8 or 16 bits a channel")),
    };
    let start = out.len();
    // At most 8 bytes a pixel, of pixels that `check` has bounded.
    out.resize(start + height * width * layout.channels() * depth.bytes(), 0);
    decoder.read_image(&mut out[start..]).map_err(|e| e.to_string())?;
    if cfg!(target_endian = "big") && depth == Depth::Sixteen {
        out[start..].as_chunks_mut::<2>().0.iter_mut().for_each(|channel| channel.reverse());
    }
    Ok(Raster { height, width, layout, depth })
}

fn webp(bytes: &[u8], check: impl Fn(usize, usize) -> Result<(), String>, out: &mut Vec<u8>) -> Result<Raster, String> {
    let features = webp::BitstreamFeatures::new(bytes).ok_or("the header can't be read")?;
    let (height, width) = (features.height() as usize, features.width() as usize);
    check(height, width)?;
    let cut = || "the pixels can't be read; the file is damaged or cut short".to_owned();
    if !features.has_animation() {
        let image = webp::Decoder::new(bytes).decode().ok_or_else(cut)?;
        out.extend_from_slice(&image);
        let layout = if image.is_alpha() { Layout::Rgba } else { Layout::Rgb };
        return Ok(Raster { height, width, layout, depth: Depth::Eight });
    }
    let frame = first_frame(bytes).ok_or_else(cut)?;
    let inner = webp::BitstreamFeatures::new(&frame.file).ok_or_else(cut)?;
    let (frame_height, frame_width) = (inner.height() as usize, inner.width() as usize);
    if frame.top + frame_height > height || frame.left + frame_width > width {
        return Err("the first frame lies outside the canvas".into());
    }
    let image = webp::Decoder::new(&frame.file).decode().ok_or_else(cut)?;
    let start = out.len();
    out.resize(start + height * width * 4, 0);
    let canvas = out[start..].chunks_exact_mut(width * 4).skip(frame.top);
    let channels = if image.is_alpha() { 4 } else { 3 };
    for (to, from) in canvas.zip(image.chunks_exact(frame_width * channels)) {
        for (to, from) in to[frame.left * 4..].chunks_exact_mut(4).zip(from.chunks_exact(channels)) {
            to[3] = 255;
            to[..channels].copy_from_slice(from);
        }
    }
    Ok(Raster { height, width, layout: Layout::Rgba, depth: Depth::Eight })
}

/// The first frame of an animation as a file of its own, and where it lies on the canvas.
struct Frame {
    top: usize,
    left: usize,
    file: Vec<u8>,
}

fn first_frame(bytes: &[u8]) -> Option<Frame> {
    let (_, body) = riff_chunks(bytes.get(12..)?).find(|(name, _)| *name == b"ANMF")?;
    let u24 = |at: usize| {
        Some(usize::from(*body.get(at)?) | usize::from(*body.get(at + 1)?) << 8 | usize::from(*body.get(at + 2)?) << 16)
    };
    let (left, top) = (2 * u24(0)?, 2 * u24(3)?);
    let mut chunks = Vec::new();
    let mut alpha = false;
    for (name, data) in riff_chunks(body.get(16..)?) {
        match name {
            b"ALPH" => alpha = true,
            b"VP8 " | b"VP8L" => {}
            _ => continue,
        }
        chunk(&mut chunks, name, data)?;
    }
    let mut list = b"WEBP".to_vec();
    if alpha {
        // Only the extended header announces a separate alpha chunk; it repeats the frame's width and height.
        let mut header = vec![0x10, 0, 0, 0];
        header.extend(body.get(6..12)?);
        chunk(&mut list, b"VP8X", &header)?;
    }
    list.extend(chunks);
    let mut file = Vec::with_capacity(list.len() + 8);
    chunk(&mut file, b"RIFF", &list)?;
    Some(Frame { top, left, file })
}

fn chunk(to: &mut Vec<u8>, name: &[u8; 4], data: &[u8]) -> Option<()> {
    to.extend(name);
    to.extend(u32::try_from(data.len()).ok()?.to_le_bytes());
    to.extend(data);
    to.resize(to.len() + data.len() % 2, 0);
    Some(())
}
