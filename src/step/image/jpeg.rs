//! JPEG files by libjpeg-turbo, with the settings of Pillow and torchvision (accurate integer DCT, smooth chroma
//! upsampling), which make pixels equal to theirs bit for bit. The one place where its C interface is called for
//! decoding: the crate's own wrapper gives up where the library only warns, and wants its output filled with zeros first.
#![expect(unsafe_code, reason = "calls libjpeg-turbo, which writes pixels to memory that is not initialised yet")]

use super::container::jpeg_is_whole;
use super::convert::Layout;
use std::ffi::CStr;
use turbojpeg::raw;

/// What a file's header says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    pub height: usize,
    pub width: usize,
    /// `Gray`, `Rgb` or `InvertedCmyk`.
    pub layout: Layout,
    /// Arithmetic coding may spend less than a bit on a block.
    pub arithmetic: bool,
}

/// No picture needs more scans; a hostile file would cost a pass over all pixels for each.
const SCANS: i32 = 500;

/// Decodes one file. The library keeps tables, sizes and a header that broke off for whatever comes next, so that another
/// file's pixels, or whether they fit the memory given, would depend on it; a new decoder costs microseconds.
pub struct Decoder {
    handle: raw::tjhandle,
}

impl Decoder {
    pub fn new() -> Result<Self, String> {
        // SAFETY: takes and returns plain values; the handle is owned by `Decoder` from here on.
        let handle = unsafe { raw::tj3Init(raw::TJINIT_TJINIT_DECOMPRESS as i32) };
        if handle.is_null() {
            return Err("libjpeg-turbo could not be started".into());
        }
        // SAFETY: the handle is valid; an unknown parameter is answered by an error code.
        unsafe { raw::tj3Set(handle, raw::TJPARAM_TJPARAM_SCANLIMIT as i32, SCANS) };
        Ok(Decoder { handle })
    }

    pub fn header(&mut self, bytes: &[u8]) -> Result<Header, String> {
        // SAFETY: the handle is valid and the library reads only within the slice.
        let code = unsafe { raw::tj3DecompressHeader(self.handle, bytes.as_ptr(), bytes.len() as raw::size_t) };
        if code != 0 {
            let message = self.message();
            if !is_warning(&message) {
                return Err(message);
            }
        }
        let side = |value: i32| usize::try_from(value).ok().filter(|side| *side > 0);
        let height = side(self.get(raw::TJPARAM_TJPARAM_JPEGHEIGHT)).ok_or("no height in the header")?;
        let width = side(self.get(raw::TJPARAM_TJPARAM_JPEGWIDTH)).ok_or("no width in the header")?;
        let layout = match self.get(raw::TJPARAM_TJPARAM_COLORSPACE) as u32 {
            raw::TJCS_TJCS_GRAY => Layout::Gray,
            raw::TJCS_TJCS_CMYK | raw::TJCS_TJCS_YCCK => Layout::InvertedCmyk,
            _ => Layout::Rgb,
        };
        Ok(Header { height, width, layout, arithmetic: self.get(raw::TJPARAM_TJPARAM_ARITHMETIC) != 0 })
    }

    /// Appends the pixels of the file whose header is `header`, in `layout`: for `InvertedCmyk` the same, else `Gray`
    /// (only from gray), `Rgb` or `Rgba`. A file that is cut short is an error; damage that the library steps over is not.
    pub fn decode(&mut self, bytes: &[u8], header: Header, layout: Layout, out: &mut Vec<u8>) -> Result<(), String> {
        let format = match (header.layout, layout) {
            (Layout::InvertedCmyk, Layout::InvertedCmyk) => raw::TJPF_TJPF_CMYK,
            (Layout::Gray, Layout::Gray) => raw::TJPF_TJPF_GRAY,
            (Layout::Gray | Layout::Rgb, Layout::Rgb) => raw::TJPF_TJPF_RGB,
            (Layout::Gray | Layout::Rgb, Layout::Rgba) => raw::TJPF_TJPF_RGBA,
            (from, to) => return Err(format!("can't be decoded from {from:?} to {to:?}")),
        };
        let row_bytes = header.width * layout.channels();
        let pitch = i32::try_from(row_bytes).map_err(|_| "rows of more than 2 GiB")?;
        let length = row_bytes.checked_mul(header.height).ok_or("more pixels than memory can hold")?;
        let start = out.len();
        out.reserve(length);
        let to = out.spare_capacity_mut();
        // SAFETY: `to` holds `length` bytes, which are the rows of the size that `header` read from these same bytes.
        let code = unsafe { self.decompress(bytes, to.as_mut_ptr().cast(), pitch, format) };
        if code == 0 {
            // SAFETY: without an error or warning the library has written every row.
            unsafe { out.set_len(start + length) };
            return Ok(());
        }
        let message = self.message();
        if !is_warning(&message) {
            return Err(message);
        }
        if message == PREMATURE_END || !jpeg_is_whole(bytes) {
            return Err("the file is cut short".into());
        }
        // Warned: decode again over zeros, so that no byte depends on what memory held.
        out.resize(start + length, 0);
        // SAFETY: as above, over initialised memory.
        unsafe { self.decompress(bytes, out[start..].as_mut_ptr(), pitch, format) };
        Ok(())
    }

    /// Callers hold `pitch` times the header's height bytes at `to`.
    unsafe fn decompress(&mut self, bytes: &[u8], to: *mut u8, pitch: i32, format: raw::TJPF) -> i32 {
        let length = bytes.len() as raw::size_t;
        // SAFETY: the handle is valid, the library reads only within the slice; the caller answers for `to`.
        unsafe { raw::tj3Decompress8(self.handle, bytes.as_ptr(), length, to, pitch, format) }
    }

    fn get(&mut self, parameter: raw::TJPARAM) -> i32 {
        // SAFETY: the handle is valid; an unknown parameter is answered by -1.
        unsafe { raw::tj3Get(self.handle, parameter as i32) }
    }

    fn message(&mut self) -> String {
        // SAFETY: the library returns a zero-terminated string that lives until its next call on this thread.
        unsafe { CStr::from_ptr(raw::tj3GetErrorStr(self.handle)) }.to_string_lossy().into_owned()
    }
}

impl Drop for Decoder {
    fn drop(&mut self) {
        // SAFETY: the handle is valid and not used again.
        unsafe { raw::tj3Destroy(self.handle) }
    }
}

const PREMATURE_END: &str = "Premature end of JPEG file";

/// The beginnings of the library's warnings. It keeps the text of the first warning or of the error that ended the
/// work, while its error code says "warning" for an error that follows a warning; so the text decides.
const WARNINGS: [&str; 7] = [
    PREMATURE_END,
    "Corrupt JPEG data: ",
    "Unknown Adobe color transform code ",
    "Inconsistent progression sequence ",
    "Warning: unknown JFIF revision number ",
    "Invalid SOS parameters for sequential JPEG",
    "Application transferred too many scanlines",
];

fn is_warning(message: &str) -> bool {
    WARNINGS.iter().any(|warning| message.starts_with(warning))
}
