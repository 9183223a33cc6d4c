//! Files that people write and that should be small: read within a limit, whatever stands in their place.

use crate::error::{Error, Result};
use std::io::{ErrorKind, Read};
use std::path::Path;

/// A regular file, opened; pipes and devices, which may never end, are refused before that.
pub fn open_regular(path: &Path) -> Result<std::fs::File> {
    let shown = path.display();
    let metadata = std::fs::metadata(path).map_err(|e| unreadable(path, e))?;
    if metadata.is_dir() {
        return Err(Error::invalid(format!("{shown} is a directory; expected a file")));
    }
    if !metadata.is_file() {
        return Err(Error::invalid(format!("{shown} is a pipe, socket or device; expected a file")));
    }
    std::fs::File::open(path).map_err(|e| unreadable(path, e))
}

/// The bytes of a file of at most `most`.
pub fn read_small(path: &Path, most: u64) -> Result<Vec<u8>> {
    let file = open_regular(path)?;
    let mut bytes = Vec::new();
    file.take(most + 1).read_to_end(&mut bytes).map_err(|e| unreadable(path, e))?;
    if bytes.len() as u64 > most {
        return Err(Error::invalid(format!("{} has more than {most} bytes; is it another file?", path.display())));
    }
    Ok(bytes)
}

/// The same as text.
pub fn read_small_text(path: &Path, most: u64) -> Result<String> {
    let bytes = read_small(path, most)?;
    utf8(&bytes).map(str::to_owned).map_err(|reason| Error::invalid(format!("{}: {reason}", path.display())))
}

/// Bytes as text without a byte order mark, or why they are none.
pub fn utf8(bytes: &[u8]) -> Result<&str, String> {
    let body = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
    std::str::from_utf8(body).map_err(|e| {
        let hint = match bytes {
            [0xff, 0xfe, ..] | [0xfe, 0xff, ..] => "it looks like UTF-16; convert it to UTF-8",
            _ => "convert it to UTF-8",
        };
        format!("the text is not UTF-8 at byte {}; {hint}", e.valid_up_to() + bytes.len() - body.len())
    })
}

fn unreadable(path: &Path, error: std::io::Error) -> Error {
    match error.kind() {
        // What no second try mends.
        ErrorKind::PermissionDenied | ErrorKind::NotADirectory | ErrorKind::InvalidFilename => {
            Error::invalid(format!("cannot read {}", path.display())).caused_by(error)
        }
        _ => Error::io(format!("cannot read {}", path.display()), error),
    }
}
