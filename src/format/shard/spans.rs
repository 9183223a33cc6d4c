//! The spans of a part: their digests, whether they lie where they must, and which of them a reader has verified.

use crate::error::{Error, Result};
use crate::format::encoding::Container;
use crate::format::record::{Chunk, Part, Span};
use crate::id::Digest;
use arrow::datatypes::Schema;
use std::io::{self, Write};
use std::sync::atomic::{AtomicBool, Ordering};

/// Bytes written at once: what the system has copied is still in the processor's cache when it is digested.
const WRITE_BYTES: usize = 256 << 10;
/// A chunk may not hold more rows than this.
pub const MAX_CHUNK_ROWS: u64 = 1 << 28;

/// Digests every byte on its way out, and on request a span of them.
pub struct Hashing<W> {
    out: W,
    whole: blake3::Hasher,
    span: Option<(blake3::Hasher, u64)>,
}

impl<W: Write> Hashing<W> {
    pub fn new(out: W) -> Self {
        Hashing { out, whole: blake3::Hasher::new(), span: None }
    }

    /// Length and digest of all bytes.
    pub fn whole(&self) -> (u64, Digest) {
        (self.whole.count(), digest(&self.whole))
    }

    /// What is written from here on belongs to a span.
    pub fn begin_span(&mut self) {
        self.span = Some((blake3::Hasher::new(), 0));
    }

    /// The writer, the digest of all bytes, and length and digest of the span begun last.
    pub fn finish(self) -> (W, Digest, u64, Digest) {
        let (span, bytes) = self.span.unwrap_or_default();
        (self.out, digest(&self.whole), bytes, digest(&span))
    }
}

fn digest(hasher: &blake3::Hasher) -> Digest {
    Digest::from_bytes(*hasher.finalize().as_bytes())
}

impl<W: Write> Write for Hashing<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.out.write(&bytes[..bytes.len().min(WRITE_BYTES)])?;
        self.whole.update(&bytes[..written]);
        if let Some((hasher, length)) = &mut self.span {
            hasher.update(&bytes[..written]);
            *length += written as u64;
        }
        Ok(written)
    }
    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

/// The bytes of `span`, which `check_layout` found to lie inside the part.
pub fn slice(bytes: &[u8], span: Span) -> Option<&[u8]> {
    let start = usize::try_from(span.offset).ok()?;
    bytes.get(start..start.checked_add(usize::try_from(span.bytes).ok()?)?)
}

pub fn verify(bytes: &[u8], span: Span, what: impl Fn() -> String) -> Result<()> {
    match slice(bytes, span) {
        Some(found) if Digest::of(found) == span.digest => Ok(()),
        Some(found) => Err(Error::corrupt(format!(
            "{} (bytes {} to {}) has another digest than its record says: expected {}, found {}",
            what(),
            span.offset,
            span.offset + span.bytes,
            span.digest.short(),
            Digest::of(found).short()
        ))),
        None => Err(Error::corrupt(format!("{} lies outside the part's {} bytes", what(), bytes.len()))),
    }
}

/// The spans lie end to end up to the part's end and the rows add up. Nothing was read yet, nothing is believed.
pub fn check_layout(part: &Part, container: Container, columns: usize) -> Result<()> {
    let wrong = |what: String| Error::corrupt(format!("the record of part {} is wrong: {what}", part.blob.short()));
    let first = part.chunks.first().and_then(first_span).unwrap_or(part.footer);
    let mut end = first.offset;
    let mut rows = 0u64;
    let mut next = |span: &Span, what: String| {
        if span.offset != end {
            return Err(wrong(format!("{what} begins at byte {}, expected {end}", span.offset)));
        }
        end = end.checked_add(span.bytes).ok_or_else(|| wrong(format!("{what} has no end")))?;
        Ok(())
    };
    for (index, chunk) in part.chunks.iter().enumerate() {
        if chunk.columns.len() != columns || chunk.head.is_some() != (container == Container::Arrow) {
            return Err(wrong(format!("chunk {index} doesn't have a span for each of {columns} columns")));
        }
        if chunk.rows > MAX_CHUNK_ROWS {
            return Err(wrong(format!("chunk {index} has {} rows, at most {MAX_CHUNK_ROWS} are stored", chunk.rows)));
        }
        rows = rows.saturating_add(chunk.rows);
        for span in chunk.head.iter().chain(&chunk.columns) {
            next(span, format!("a span of chunk {index}"))?;
        }
    }
    next(&part.footer, "the footer".to_owned())?;
    if end != part.bytes || rows != part.rows {
        return Err(wrong(format!(
            "its chunks have {end} bytes and {rows} rows, the part {} and {}",
            part.bytes, part.rows
        )));
    }
    Ok(())
}

fn first_span(chunk: &Chunk) -> Option<Span> {
    chunk.head.or_else(|| chunk.columns.first().copied())
}

/// Where the first chunk, or else the footer, begins.
pub fn prefix_bytes(part: &Part) -> u64 {
    part.chunks.first().and_then(first_span).unwrap_or(part.footer).offset
}

/// Which spans were found right: each is hashed once (twice where threads race).
pub struct Verified {
    flags: Vec<AtomicBool>,
    columns: usize,
}

impl Verified {
    pub fn new(chunks: usize, columns: usize) -> Self {
        let flags = (0..chunks * (columns + 1)).map(|_| AtomicBool::new(false)).collect();
        Verified { flags, columns }
    }

    /// Verifies the head and the columns `wanted` of chunk `index`.
    pub fn check(&self, bytes: &[u8], chunk: &Chunk, index: usize, wanted: &[usize], schema: &Schema) -> Result<()> {
        if let Some(head) = chunk.head {
            self.once(index, 0, || verify(bytes, head, || format!("the head of chunk {index}")))?;
        }
        for &column in wanted {
            let span = chunk.columns.get(column).copied();
            let span = span.ok_or_else(|| Error::internal(format!("there is no column {column}")))?;
            self.once(index, column + 1, || verify(bytes, span, || column_name(index, column, schema)))?;
        }
        Ok(())
    }

    fn once(&self, chunk: usize, which: usize, check: impl FnOnce() -> Result<()>) -> Result<()> {
        let flag = self.flags.get(chunk * (self.columns + 1) + which);
        if flag.is_some_and(|flag| flag.load(Ordering::Relaxed)) {
            return Ok(());
        }
        check()?;
        if let Some(flag) = flag {
            flag.store(true, Ordering::Relaxed);
        }
        Ok(())
    }
}

fn column_name(chunk: usize, column: usize, schema: &Schema) -> String {
    match schema.fields().get(column) {
        Some(field) => format!("column {:?} of chunk {chunk}", field.name()),
        None => format!("column {column} of chunk {chunk}"),
    }
}

/// Everything that is wrong with a part's bytes, by name: its length, each span, and its whole digest. Empty: it is sound.
pub fn verify_part(bytes: &[u8], part: &Part, schema: &Schema) -> Vec<Error> {
    let mut wrong = Vec::new();
    if bytes.len() as u64 != part.bytes {
        wrong.push(Error::corrupt(format!(
            "part {} has {} bytes, its record says {}",
            part.blob.short(),
            bytes.len(),
            part.bytes
        )));
    }
    let mut check = |span: Span, what: &dyn Fn() -> String| wrong.extend(verify(bytes, span, what).err());
    for (index, chunk) in part.chunks.iter().enumerate() {
        if let Some(head) = chunk.head {
            check(head, &|| format!("the head of chunk {index}"));
        }
        for (column, span) in chunk.columns.iter().enumerate() {
            check(*span, &|| column_name(index, column, schema));
        }
    }
    check(part.footer, &|| "the footer".to_owned());
    let found = Digest::of(bytes);
    if found != part.blob {
        wrong.push(Error::corrupt(format!("the part's digest is {found}, its name says {}", part.blob)));
    }
    wrong
}
