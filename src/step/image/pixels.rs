//! What the kernels work on: an image's shape and bytes, windows of it, and moving its pixels about without changing
//! them. Kernels append their output to a `Vec<u8>`, so that rows are written where they stay.

/// Most bytes of an image, between two passes over it too: arrays pass no more.
pub const MOST_BYTES: usize = 1 << 30;

/// Why `[height, width]` pixels of so many bytes can't be made; asked before memory is.
pub fn check_bytes(height: usize, width: usize, pixel_bytes: usize) -> Result<(), String> {
    let sides = [height, width, pixel_bytes];
    match sides.into_iter().try_fold(1usize, usize::checked_mul) {
        Some(bytes) if bytes <= MOST_BYTES => Ok(()),
        _ => {
            Err(format!("[{height}, {width}] pixels of {pixel_bytes} bytes are more than 1 GiB, the most of an image"))
        }
    }
}

/// Height, width and channels of an image in HWC order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    pub height: usize,
    pub width: usize,
    pub channels: usize,
}

/// Bits of a channel; 16-bit channels are little-endian.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Depth {
    Eight,
    Sixteen,
}

impl Depth {
    pub const fn bytes(self) -> usize {
        match self {
            Depth::Eight => 1,
            Depth::Sixteen => 2,
        }
    }
}

/// An image of `shape.height * shape.width * shape.channels` channels one after another.
#[derive(Debug, Clone, Copy)]
pub struct Image<'a> {
    pub shape: Shape,
    pub depth: Depth,
    bytes: &'a [u8],
}

/// A rectangle of an image, in pixels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Window {
    pub top: usize,
    pub left: usize,
    pub height: usize,
    pub width: usize,
}

impl Shape {
    /// As a tensor's dimensions.
    pub const fn dims(self) -> [usize; 3] {
        [self.height, self.width, self.channels]
    }
}

impl<'a> Image<'a> {
    /// `None` where the bytes are not those of the shape.
    pub fn new(shape: Shape, depth: Depth, bytes: &'a [u8]) -> Option<Self> {
        let sides = [shape.height, shape.width, shape.channels, depth.bytes()];
        let expected = sides.into_iter().try_fold(1usize, usize::checked_mul);
        (expected == Some(bytes.len())).then_some(Image { shape, depth, bytes })
    }

    pub const fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    pub const fn pixel_bytes(&self) -> usize {
        self.shape.channels * self.depth.bytes()
    }

    /// The whole of it.
    pub const fn window(&self) -> Window {
        Window { top: 0, left: 0, height: self.shape.height, width: self.shape.width }
    }

    /// The bytes of `window`'s rows, which must lie inside the image.
    pub fn rows(&self, window: Window) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        let (pixel, bytes) = (self.pixel_bytes(), self.bytes);
        let stride = self.shape.width * pixel;
        (window.top..window.top + window.height).map(move |y| {
            let start = y * stride + window.left * pixel;
            &bytes[start..start + window.width * pixel]
        })
    }

    /// Appends `window`, which must lie inside the image.
    pub fn crop(&self, window: Window, out: &mut Vec<u8>) -> Shape {
        out.reserve(window.height * window.width * self.pixel_bytes());
        if window.width == self.shape.width {
            let stride = self.shape.width * self.pixel_bytes();
            out.extend_from_slice(&self.bytes[window.top * stride..(window.top + window.height) * stride]);
        } else {
            for row in self.rows(window) {
                out.extend_from_slice(row);
            }
        }
        Shape { height: window.height, width: window.width, channels: self.shape.channels }
    }
}

/// One of the eight ways to lay an image's pixels out, numbered as EXIF's orientations are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Orientation {
    Upright = 1,
    Mirrored = 2,
    Rotated180 = 3,
    Flipped = 4,
    Transposed = 5,
    Clockwise90 = 6,
    Transversed = 7,
    Anticlockwise90 = 8,
}

impl Orientation {
    pub fn from_exif(value: u32) -> Option<Self> {
        use Orientation::*;
        let all = [Upright, Mirrored, Rotated180, Flipped, Transposed, Clockwise90, Transversed, Anticlockwise90];
        all.into_iter().find(|orientation| *orientation as u32 == value)
    }

    /// Appends the image laid out anew.
    pub fn apply(self, image: Image, out: &mut Vec<u8>) -> Shape {
        use Orientation::*;
        let Shape { height, width, channels } = image.shape;
        let (h, w) = (height as isize, width as isize);
        // The source pixel of output pixel (0, 0), and the way to its neighbours below and to the right.
        let (first, down, right) = match self {
            Upright => (0, w, 1),
            Mirrored => (w - 1, w, -1),
            Rotated180 => (h * w - 1, -w, -1),
            Flipped => ((h - 1) * w, -w, 1),
            Transposed => (0, 1, w),
            Clockwise90 => ((h - 1) * w, 1, -w),
            Transversed => (h * w - 1, -1, -w),
            Anticlockwise90 => (w - 1, -1, w),
        };
        let (out_height, out_width) = match self {
            Upright | Mirrored | Rotated180 | Flipped => (height, width),
            Transposed | Clockwise90 | Transversed | Anticlockwise90 => (width, height),
        };
        let start = out.len();
        out.resize(start + image.bytes.len(), 0);
        let to = &mut out[start..];
        let steps = Steps { first, down, right, width: out_width };
        match image.pixel_bytes() {
            1 => steps.copy::<1>(image.bytes, to),
            2 => steps.copy::<2>(image.bytes, to),
            3 => steps.copy::<3>(image.bytes, to),
            4 => steps.copy::<4>(image.bytes, to),
            6 => steps.copy::<6>(image.bytes, to),
            8 => steps.copy::<8>(image.bytes, to),
            n => steps.copy_any(n, image.bytes, to),
        }
        Shape { height: out_height, width: out_width, channels }
    }
}

struct Steps {
    first: isize,
    down: isize,
    right: isize,
    width: usize,
}

impl Steps {
    fn copy<const N: usize>(&self, from: &[u8], to: &mut [u8]) {
        let (pixels, _) = from.as_chunks::<N>();
        let (out, _) = to.as_chunks_mut::<N>();
        for (row, y) in out.chunks_exact_mut(self.width.max(1)).zip(0isize..) {
            let mut at = self.first + y * self.down;
            for pixel in row {
                *pixel = pixels[at as usize];
                at += self.right;
            }
        }
    }

    fn copy_any(&self, n: usize, from: &[u8], to: &mut [u8]) {
        for (row, y) in to.chunks_exact_mut((self.width * n).max(1)).zip(0isize..) {
            let mut at = self.first + y * self.down;
            for pixel in row.chunks_exact_mut(n) {
                pixel.copy_from_slice(&from[at as usize * n..][..n]);
                at += self.right;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn image(bytes: &[u8]) -> Image<'_> {
        Image::new(Shape { height: 2, width: 3, channels: 1 }, Depth::Eight, bytes).unwrap()
    }

    #[test]
    fn orientations_are_those_of_exif() {
        // 1 2 3
        // 4 5 6
        let expected: [(u32, [usize; 2], [u8; 6]); 8] = [
            (1, [2, 3], [1, 2, 3, 4, 5, 6]),
            (2, [2, 3], [3, 2, 1, 6, 5, 4]),
            (3, [2, 3], [6, 5, 4, 3, 2, 1]),
            (4, [2, 3], [4, 5, 6, 1, 2, 3]),
            (5, [3, 2], [1, 4, 2, 5, 3, 6]),
            (6, [3, 2], [4, 1, 5, 2, 6, 3]),
            (7, [3, 2], [6, 3, 5, 2, 4, 1]),
            (8, [3, 2], [3, 6, 2, 5, 1, 4]),
        ];
        for (value, [height, width], bytes) in expected {
            let mut out = vec![9];
            let shape = Orientation::from_exif(value).unwrap().apply(image(&[1, 2, 3, 4, 5, 6]), &mut out);
            assert_eq!((shape.height, shape.width), (height, width), "{value}");
            assert_eq!(out[1..], bytes, "{value}");
        }
        assert_eq!(Orientation::from_exif(0), None);
        assert_eq!(Orientation::from_exif(9), None);
    }

    #[test]
    fn a_crop_is_the_window() {
        let mut out = Vec::new();
        let window = Window { top: 0, left: 1, height: 2, width: 2 };
        let shape = image(&[1, 2, 3, 4, 5, 6]).crop(window, &mut out);
        assert_eq!(shape, Shape { height: 2, width: 2, channels: 1 });
        assert_eq!(out, [2, 3, 5, 6]);
        assert!(Image::new(Shape { height: 2, width: 3, channels: 2 }, Depth::Eight, &[0; 6]).is_none());
    }
}
