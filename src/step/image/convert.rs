//! Colour layouts to what was asked for: gray, RGB or RGBA of 8 or 16 bits a channel, by Pillow's formulas.

use super::pixels::Depth;

/// The channels that a decoder yields.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Layout {
    Gray,
    GrayAlpha,
    Rgb,
    Rgba,
    /// 8-bit, 255 for no ink, as JPEG files have it.
    InvertedCmyk,
}

impl Layout {
    pub const fn channels(self) -> usize {
        match self {
            Layout::Gray => 1,
            Layout::GrayAlpha => 2,
            Layout::Rgb => 3,
            Layout::Rgba | Layout::InvertedCmyk => 4,
        }
    }
}

/// Appends the pixels of `from` in another layout and depth.
///
/// * Colour to gray: `(19595 R + 38470 G + 7471 B + 32768) >> 16`, ITU-R 601-2 as Pillow's `convert("L")` has it.
/// * CMYK to RGB: each of C, M, Y times K, rounded as Pillow's `convert("RGB")` does.
/// * Alpha is dropped, or 255 where there is none. 16 bits to 8: the high byte. 8 bits to 16: times 257.
pub fn convert(from: &[u8], layout: Layout, depth: Depth, to: Layout, to_depth: Depth, out: &mut Vec<u8>) {
    let pixels = from.len() / (layout.channels() * depth.bytes());
    out.reserve(pixels * to.channels() * to_depth.bytes());
    match (depth, to_depth) {
        (Depth::Eight, Depth::Eight) => each(from, layout, to, |c: [u8; 1]| c[0].into(), 255, |v| [v as u8], out),
        (Depth::Eight, Depth::Sixteen) => {
            each(from, layout, to, |c: [u8; 1]| c[0].into(), 255, |v| (v as u16 * 257).to_le_bytes(), out)
        }
        (Depth::Sixteen, Depth::Eight) => each(from, layout, to, |c: [u8; 2]| c[1].into(), 255, |v| [v as u8], out),
        (Depth::Sixteen, Depth::Sixteen) => {
            let read = |c: [u8; 2]| u16::from_le_bytes(c).into();
            each(from, layout, to, read, 65535, |v| (v as u16).to_le_bytes(), out)
        }
    }
}

fn each<const N: usize, const M: usize>(
    from: &[u8],
    layout: Layout,
    to: Layout,
    read: impl Fn([u8; N]) -> u32 + Copy,
    opaque: u32,
    write: impl Fn(u32) -> [u8; M] + Copy,
    out: &mut Vec<u8>,
) {
    let (channels, _) = from.as_chunks::<N>();
    for pixel in channels.chunks_exact(layout.channels()) {
        let [r, g, b, a] = match (layout, pixel) {
            (Layout::Gray, [v]) => [read(*v), read(*v), read(*v), opaque],
            (Layout::GrayAlpha, [v, a]) => [read(*v), read(*v), read(*v), read(*a)],
            (Layout::Rgb, [r, g, b]) => [read(*r), read(*g), read(*b), opaque],
            (Layout::Rgba, [r, g, b, a]) => [read(*r), read(*g), read(*b), read(*a)],
            (Layout::InvertedCmyk, [c, m, y, k]) => {
                let ink = |v: &[u8; N]| read(*k).saturating_sub(multiply(255 - read(*v), read(*k)));
                [ink(c), ink(m), ink(y), opaque]
            }
            _ => return,
        };
        match to {
            Layout::Gray if matches!(layout, Layout::Gray | Layout::GrayAlpha) => out.extend(write(r)),
            Layout::Gray => out.extend(write(luma(r, g, b))),
            Layout::Rgba => [r, g, b, a].map(write).iter().for_each(|v| out.extend(v)),
            _ => [r, g, b].map(write).iter().for_each(|v| out.extend(v)),
        }
    }
}

/// Luma of channels of up to 16 bits.
pub const fn luma(r: u32, g: u32, b: u32) -> u32 {
    (r * 19595 + g * 38470 + b * 7471 + 0x8000) >> 16
}

/// `a * b / 255`, rounded.
pub const fn multiply(a: u32, b: u32) -> u32 {
    let t = a * b + 128;
    ((t >> 8) + t) >> 8
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(from: &[u8], layout: Layout, depth: Depth, to: Layout, to_depth: Depth, expect: &[u8]) {
        let mut out = vec![7];
        convert(from, layout, depth, to, to_depth, &mut out);
        assert_eq!(&out[1..], expect, "{layout:?} {depth:?} to {to:?} {to_depth:?}");
    }

    #[test]
    fn layouts() {
        use Depth::*;
        use Layout::*;
        check(&[1, 2], Gray, Eight, Rgb, Eight, &[1, 1, 1, 2, 2, 2]);
        check(&[1, 9], GrayAlpha, Eight, Gray, Eight, &[1]);
        check(&[1, 9], GrayAlpha, Eight, Rgba, Eight, &[1, 1, 1, 9]);
        check(&[255, 0, 0, 0, 255, 0], Rgb, Eight, Gray, Eight, &[76, 150]);
        check(&[1, 2, 3, 0], Rgba, Eight, Rgb, Eight, &[1, 2, 3]);
        check(&[0x34, 0x12], Gray, Sixteen, Rgb, Eight, &[0x12; 3]);
        check(&[0x12], Gray, Eight, Gray, Sixteen, &[0x12, 0x12]);
        check(&[0xff; 6], Rgb, Sixteen, Gray, Sixteen, &[0xff; 2]);
        check(&[0xff; 4], InvertedCmyk, Eight, Rgb, Eight, &[255; 3]);
        check(&[0, 128, 255, 100], InvertedCmyk, Eight, Rgb, Eight, &[0, 50, 100]);
    }
}
