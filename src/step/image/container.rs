//! Image files seen from outside: which format the first bytes say, where EXIF says up is, and whether a JPEG file is
//! whole. Only structure is read here, within the bytes that are there; pixels belong to `jpeg` and `raster`.

use super::pixels::Orientation;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    Jpeg,
    Png,
    WebP,
    Gif,
    Bmp,
    Tiff,
}

impl Format {
    /// By the first bytes; a file's name says nothing.
    pub fn of(bytes: &[u8]) -> Option<Self> {
        match bytes {
            [0xff, 0xd8, 0xff, ..] => Some(Format::Jpeg),
            [0x89, b'P', b'N', b'G', 0x0d, 0x0a, 0x1a, 0x0a, ..] => Some(Format::Png),
            [b'R', b'I', b'F', b'F', _, _, _, _, b'W', b'E', b'B', b'P', ..] => Some(Format::WebP),
            [b'G', b'I', b'F', b'8', b'7' | b'9', b'a', ..] => Some(Format::Gif),
            [b'B', b'M', ..] => Some(Format::Bmp),
            [b'I', b'I', 42 | 43, 0, ..] | [b'M', b'M', 0, 42 | 43, ..] => Some(Format::Tiff),
            _ => None,
        }
    }

    pub const fn name(self) -> &'static str {
        match self {
            Format::Jpeg => "JPEG",
            Format::Png => "PNG",
            Format::WebP => "WebP",
            Format::Gif => "GIF",
            Format::Bmp => "BMP",
            Format::Tiff => "TIFF",
        }
    }
}

/// The orientation that the file's EXIF data gives; upright where there is none or it can't be read.
pub fn orientation(bytes: &[u8], format: Format) -> Orientation {
    let exif = match format {
        Format::Jpeg => jpeg_segments(bytes)
            .take_while(|(marker, _)| *marker != SOS)
            .find_map(|(marker, body)| if marker == APP1 { body.strip_prefix(b"Exif\0\0") } else { None }),
        Format::Png => png_chunks(bytes).find(|(name, _)| *name == b"eXIf").map(|(_, body)| body),
        Format::WebP => riff_chunks(bytes.get(12..).unwrap_or_default())
            .find(|(name, _)| *name == b"EXIF")
            .map(|(_, body)| body.strip_prefix(b"Exif\0\0").unwrap_or(body)),
        Format::Tiff => Some(bytes),
        Format::Gif | Format::Bmp => None,
    };
    exif.and_then(|tiff| tiff_tag(tiff, 0x0112)).and_then(Orientation::from_exif).unwrap_or(Orientation::Upright)
}

/// Whether a TIFF file holds JPEG data, old style or new.
pub fn tiff_holds_jpeg(tiff: &[u8]) -> bool {
    matches!(tiff_tag(tiff, 0x0103), Some(6 | 7))
}

/// A whole number of the first directory of a TIFF (or BigTIFF) structure.
fn tiff_tag(tiff: &[u8], tag: u16) -> Option<u32> {
    let (little, big) = match tiff.get(..4)? {
        [b'I', b'I', 42, 0] => (true, false),
        [b'M', b'M', 0, 42] => (false, false),
        [b'I', b'I', 43, 0] => (true, true),
        [b'M', b'M', 0, 43] => (false, true),
        _ => return None,
    };
    let number = |at: usize, len: usize| {
        let bytes = tiff.get(at..at.checked_add(len)?)?;
        let push = |n: u64, byte: &u8| n << 8 | u64::from(*byte);
        Some(if little { bytes.iter().rev().fold(0, push) } else { bytes.iter().fold(0, push) })
    };
    const SHORT: u64 = 3;
    const LONG: u64 = 4;
    let (word, count_len, entry) = if big { (8, 8, 20) } else { (4, 2, 12) };
    let directory = usize::try_from(number(word, word)?).ok()?;
    let entries = directory.checked_add(count_len)?..tiff.len();
    let count = usize::try_from(number(directory, count_len)?).ok()?;
    for at in entries.step_by(entry).take(count) {
        if number(at, 2)? == u64::from(tag) {
            let value = at + 4 + word;
            return match number(at + 2, 2)? {
                SHORT => number(value, 2),
                LONG => number(value, 4),
                _ => None,
            }
            .and_then(|value| u32::try_from(value).ok());
        }
    }
    None
}

const APP1: u8 = 0xe1;
const SOS: u8 = 0xda;
const EOI: u8 = 0xd9;

/// Markers with a length, and their bodies, up to the end marker; the entropy-coded data between them is skipped. The
/// end marker itself is yielded with an empty body.
fn jpeg_segments(bytes: &[u8]) -> impl Iterator<Item = (u8, &[u8])> {
    let mut rest = bytes.get(2..).unwrap_or_default();
    std::iter::from_fn(move || {
        loop {
            let at = rest.iter().position(|byte| *byte == 0xff)?;
            rest = rest.get(at..)?;
            match rest.get(1)? {
                // A stuffed byte, TEM, a restart marker or a second start: no length follows.
                0x00 | 0x01 | 0xd0..=0xd8 => rest = rest.get(2..)?,
                // Fill bytes.
                0xff => rest = rest.get(1..)?,
                &EOI => {
                    rest = &[];
                    return Some((EOI, rest));
                }
                marker => {
                    let length = usize::from(u16::from_be_bytes([*rest.get(2)?, *rest.get(3)?]));
                    let body = rest.get(4..2 + length.max(2))?;
                    rest = rest.get(2 + length.max(2)..)?;
                    return Some((*marker, body));
                }
            }
        }
    })
}

/// Whether a JPEG file has its end marker.
pub fn jpeg_is_whole(bytes: &[u8]) -> bool {
    jpeg_segments(bytes).any(|(marker, _)| marker == EOI)
}

fn png_chunks(bytes: &[u8]) -> impl Iterator<Item = (&[u8; 4], &[u8])> {
    let mut rest = bytes.get(8..).unwrap_or_default();
    std::iter::from_fn(move || {
        let (length, after) = rest.split_first_chunk::<4>()?;
        let (name, after) = after.split_first_chunk::<4>()?;
        let (body, after) = after.split_at_checked(u32::from_be_bytes(*length) as usize)?;
        rest = after.get(4..).unwrap_or_default();
        Some((name, body))
    })
}

/// The chunks of a RIFF list; a last one that is cut short is yielded as far as it goes.
pub fn riff_chunks(list: &[u8]) -> impl Iterator<Item = (&[u8; 4], &[u8])> {
    let mut rest = list;
    std::iter::from_fn(move || {
        let (name, after) = rest.split_first_chunk::<4>()?;
        let (length, after) = after.split_first_chunk::<4>()?;
        let length = u32::from_le_bytes(*length) as usize;
        let (body, after) = after.split_at(length.min(after.len()));
        rest = after.get(length % 2..).unwrap_or_default();
        Some((name, body))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn exif(value: u16) -> Vec<u8> {
        let mut tiff = b"MM\0*\0\0\0\x08\0\x02".to_vec();
        tiff.extend([0x01, 0x00, 0, 3, 0, 0, 0, 1, 0, 9, 0, 0]);
        tiff.extend([0x01, 0x12, 0, 3, 0, 0, 0, 1]);
        tiff.extend(value.to_be_bytes());
        tiff.extend([0; 6]);
        tiff
    }

    fn jpeg(exif: &[u8]) -> Vec<u8> {
        let mut file = vec![0xff, 0xd8, 0xff, 0xe0, 0, 4, 1, 2, 0xff, 0xff, 0xe1];
        file.extend(((exif.len() + 8) as u16).to_be_bytes());
        file.extend(b"Exif\0\0");
        file.extend(exif);
        file.extend([0xff, 0xda, 0, 2, 5, 0xff, 0, 6, 0xff, 0xd0, 7, 0xff, 0xd9]);
        file
    }

    #[test]
    fn orientation_is_found_and_bounded() {
        let whole = jpeg(&exif(6));
        assert_eq!(orientation(&whole, Format::Jpeg), Orientation::Clockwise90);
        assert_eq!(orientation(&jpeg(&exif(9)), Format::Jpeg), Orientation::Upright);
        assert_eq!(orientation(&exif(8), Format::Tiff), Orientation::Anticlockwise90);
        for end in 0..whole.len() {
            orientation(&whole[..end], Format::Jpeg);
            assert!(!jpeg_is_whole(&whole[..end]), "{end}");
        }
        assert!(jpeg_is_whole(&whole));
        let mut far = exif(6);
        far[4..8].copy_from_slice(&u32::MAX.to_be_bytes());
        assert_eq!(orientation(&far, Format::Tiff), Orientation::Upright);
    }

    #[test]
    fn chunks_end_with_the_bytes() {
        let mut png = vec![0; 8];
        png.extend([0, 0, 0, 1, b'a', b'b', b'c', b'd', 9, 0, 0, 0, 0]);
        png.extend([0xff, 0xff, 0xff, 0xff, b'e', b'X', b'I', b'f']);
        assert_eq!(png_chunks(&png).collect::<Vec<_>>(), [(b"abcd", &[9u8][..])]);
        let riff = b"ABCD\x01\0\0\0x\0EFGH\xff\xff\xff\xffyz";
        assert_eq!(riff_chunks(riff).collect::<Vec<_>>(), [(b"ABCD", &b"x"[..]), (b"EFGH", &b"yz"[..])]);
    }

    #[test]
    fn formats_go_by_the_first_bytes() {
        assert_eq!(Format::of(b"GIF89a"), Some(Format::Gif));
        assert_eq!(Format::of(b"RIFF\0\0\0\0WEBPVP8 "), Some(Format::WebP));
        assert_eq!(Format::of(b"\xff\xd8"), None);
        assert_eq!(Format::of(b""), None);
    }
}
