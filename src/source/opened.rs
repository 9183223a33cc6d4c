//! A file that is being read, on disk or in a bucket: its bytes, and what told its state when it was opened. Of an object only
//! what is asked for is fetched, always of the version that was opened.

use crate::error::{Error, Result};
use crate::id::Digest;
use crate::io::{Listed, Pinned, Stream, open_regular};
use crate::source::compression;
use crate::source::place::{Place, name};
use crate::source::root::changed;
use crate::source::tar::Input;
use crate::source::validator::Validator;
use bytes::Bytes;
use std::fs::File;
use std::io::{BufReader, Read, Seek, SeekFrom};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

/// Files are hashed in pieces of this size.
const PIECE: usize = 1 << 20;

/// Bytes at places. Cheap to clone; each clone is read on its own.
#[derive(Debug, Clone)]
pub(super) enum Body {
    File(Arc<File>),
    Object(Pinned),
    /// A whole object that was fetched.
    Held(Bytes),
}

impl Body {
    /// Some bytes from `at` on; none behind the end.
    pub fn read_at(&self, out: &mut [u8], at: u64) -> std::io::Result<usize> {
        match self {
            Body::File(file) => file.read_at(out, at),
            Body::Object(object) => object.read_at(out, at).map_err(std::io::Error::other),
            Body::Held(bytes) => {
                let rest = usize::try_from(at).ok().and_then(|at| bytes.get(at..)).unwrap_or_default();
                let count = rest.len().min(out.len());
                out[..count].copy_from_slice(&rest[..count]);
                Ok(count)
            }
        }
    }

    pub fn read_exact_at(&self, out: &mut [u8], at: u64) -> std::io::Result<()> {
        self.clone().from(at).read_exact(out)
    }

    /// A reader that begins at a place.
    pub fn from(self, at: u64) -> Positional {
        Positional { body: self, at }
    }

    /// Brings ranges that are read soon, side by side, so that reading them asks nothing.
    pub fn fetch(&self, ranges: &[Range<u64>]) -> Result<()> {
        match self {
            Body::Object(object) => object.fetch(ranges),
            Body::File(_) | Body::Held(_) => Ok(()),
        }
    }
}

/// A body from some place on.
#[derive(Debug)]
pub(super) struct Positional {
    body: Body,
    at: u64,
}

impl Read for Positional {
    fn read(&mut self, out: &mut [u8]) -> std::io::Result<usize> {
        let count = self.body.read_at(out, self.at)?;
        self.at += count as u64;
        Ok(count)
    }
}

impl Seek for Positional {
    /// Not from the end, which isn't known here.
    fn seek(&mut self, to: SeekFrom) -> std::io::Result<u64> {
        let to = match to {
            SeekFrom::Start(at) => Some(at),
            SeekFrom::Current(by) => self.at.checked_add_signed(by),
            SeekFrom::End(_) => None,
        };
        self.at = to.ok_or(std::io::ErrorKind::InvalidInput)?;
        Ok(self.at)
    }
}

/// A file in order, with passages that may be passed over.
pub(super) enum Sequence {
    Buffered(BufReader<Positional>),
    Object(Stream),
}

impl Read for Sequence {
    fn read(&mut self, out: &mut [u8]) -> std::io::Result<usize> {
        match self {
            Sequence::Buffered(reader) => reader.read(out),
            Sequence::Object(stream) => stream.read(out),
        }
    }
}

impl Input for Sequence {
    fn skip(&mut self, bytes: u64) -> std::io::Result<()> {
        match self {
            Sequence::Buffered(reader) => reader.seek_relative(i64::try_from(bytes).unwrap_or(i64::MAX)),
            Sequence::Object(stream) => {
                stream.skip(bytes);
                Ok(())
            }
        }
    }
}

#[derive(Debug)]
pub(super) struct Opened {
    pub body: Body,
    pub validator: Validator,
    key: String,
}

impl Opened {
    pub fn file(file: File, path: &Path, key: &str) -> Result<Opened> {
        let metadata = file.metadata().map_err(|e| Error::io(format!("cannot look at {}", path.display()), e))?;
        Ok(Opened { body: Body::File(Arc::new(file)), validator: Validator::of(&metadata), key: key.to_owned() })
    }
    /// A file that is no part of the source, such as a table to join.
    pub fn alone(place: &Place, path: &Path) -> Result<Opened> {
        let shown = place.shown(path);
        match place {
            Place::Disk => Opened::file(open_regular(path)?, path, &shown),
            Place::Bucket(objects) => {
                let found = objects.look(&[name(path)?])?.pop().flatten();
                let object = found.ok_or_else(|| Error::not_found(format!("{shown} is not there")))?;
                Ok(Opened::object(objects.pin(object.clone()), &object, &shown))
            }
        }
    }
    pub fn object(object: Pinned, listed: &Listed, key: &str) -> Opened {
        Opened { body: Body::Object(object), validator: Validator::of_object(listed), key: key.to_owned() }
    }
    pub fn held(bytes: Bytes, listed: &Listed, key: &str) -> Opened {
        Opened { body: Body::Held(bytes), validator: Validator::of_object(listed), key: key.to_owned() }
    }

    pub fn key(&self) -> &str {
        &self.key
    }
    /// What the file is compressed with, by its first bytes.
    pub fn compression(&self) -> Result<Option<&'static str>> {
        let mut magic = [0; 10];
        let known = self.body.read_at(&mut magic, 0).map_err(|e| self.unreadable(e))?;
        Ok(compression::by_bytes(magic.get(..known).unwrap_or_default()))
    }
    /// Errors with a `Conflict` where the file was touched since it was opened. What is read of an object is of the version
    /// that was opened.
    pub fn unchanged(&self) -> Result<()> {
        let Body::File(file) = &self.body else { return Ok(()) };
        let metadata = file.metadata().map_err(|e| Error::io(format!("cannot look at {}", self.key), e))?;
        if Validator::of(&metadata) == self.validator { Ok(()) } else { Err(changed(&self.key)) }
    }
    /// Of the whole file, read in pieces; `progress` hears of each.
    pub fn digest(&self, mut progress: impl FnMut(u64)) -> Result<Digest> {
        let mut hasher = blake3::Hasher::new();
        // Small files need small buffers.
        let length = usize::try_from(self.validator.bytes).map_or(PIECE, |n| n.saturating_add(1).min(PIECE));
        let mut piece = vec![0; length];
        let mut sequence = self.sequence(0);
        loop {
            match sequence.read(&mut piece) {
                Ok(0) => return Ok(Digest::from_bytes(*hasher.finalize().as_bytes())),
                Ok(n) => {
                    hasher.update(&piece[..n]);
                    progress(n as u64);
                }
                Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
                Err(e) => return Err(self.unreadable(e)),
            }
        }
    }
    /// The file in order from a place on.
    pub fn sequence(&self, at: u64) -> Sequence {
        match &self.body {
            Body::Object(object) => Sequence::Object(object.stream(at)),
            body => Sequence::Buffered(BufReader::with_capacity(1 << 18, body.clone().from(at))),
        }
    }
    /// Appends the bytes `start..end` to `out`; fewer are a `Conflict`.
    pub fn read(&self, start: u64, end: u64, out: &mut Vec<u8>) -> Result<()> {
        // Checked before memory is asked for: the range comes from a table.
        if start > end || end > self.validator.bytes {
            return Err(changed(&self.key));
        }
        let from = out.len();
        let bytes = usize::try_from(end - start).map_err(|_| Error::invalid(format!("{} is too large", self.key)))?;
        out.resize(from + bytes, 0);
        self.body.read_exact_at(&mut out[from..], start).map_err(|e| match e.kind() {
            std::io::ErrorKind::UnexpectedEof => changed(&self.key),
            _ => self.unreadable(e),
        })
    }
    /// Appends the whole file to `out`.
    pub fn read_all(&self, out: &mut Vec<u8>) -> Result<()> {
        let from = out.len();
        let bytes = self.validator.bytes;
        out.reserve(usize::try_from(bytes).map_err(|_| Error::invalid(format!("{} is too large", self.key)))?);
        match &self.body {
            Body::Held(held) => out.extend_from_slice(held),
            Body::File(file) => {
                (&**file).take(bytes).read_to_end(out).map_err(|e| self.unreadable(e))?;
            }
            Body::Object(_) => {
                self.sequence(0).read_to_end(out).map_err(|e| self.unreadable(e))?;
            }
        }
        if (out.len() - from) as u64 == bytes { Ok(()) } else { Err(changed(&self.key)) }
    }
    /// With an object's bytes in local space, for those that are read through more than once.
    pub fn whole(self) -> Result<Opened> {
        Ok(match self.body {
            Body::Object(object) => Opened { body: Body::Held(object.whole()?), ..self },
            _ => self,
        })
    }
    fn unreadable(&self, error: std::io::Error) -> Error {
        Error::io(format!("cannot read {}", self.key), error)
    }
}
