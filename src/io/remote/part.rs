//! A shard's part of which some spans are there: a sparse local file, mapped while any of it is in use. It is the cache tier's,
//! which keeps it; else one without a name; and where the disk refuses to be written, memory. Spans are fetched when they
//! are asked for, those near each other by one request, and verified before they are written.

use super::{Remote, joined, wait};
use crate::error::{Error, Result};
use crate::format::record::Span;
use crate::format::shard::Fetch;
use crate::id::Digest;
use crate::io::tier::Incarnation;
use crate::io::{failure::failure, map};
use arrow::buffer::Buffer;
use bytes::Bytes;
use std::collections::HashMap;
use std::fmt;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::sync::{Arc, Condvar, Mutex, Weak};

pub struct RemotePart {
    remote: Arc<Remote>,
    name: String,
    bytes: u64,
    local: Mutex<Local>,
}

#[derive(Default)]
struct Local {
    /// Held by the buffers that point into it.
    opened: Weak<Opened>,
    /// What was verified in a file that may be opened again.
    known: Option<(Incarnation, Arc<Spans>)>,
}

struct Opened {
    file: File,
    buffer: Buffer,
    spans: Arc<Spans>,
}

impl RemotePart {
    pub(super) fn new(remote: Arc<Remote>, name: String, bytes: u64) -> RemotePart {
        RemotePart { remote, name, bytes, local: Mutex::default() }
    }

    fn opened(&self) -> Result<Arc<Opened>> {
        let mut local = self.local.lock().expect("no panics while locked");
        if let Some(opened) = local.opened.upgrade() {
            return Ok(opened);
        }
        let (file, incarnation) = match self.remote.disk_refuses() {
            true => (in_memory()?, None),
            false => match self.remote.tier.as_ref().and_then(|tier| tier.open(&self.name, self.bytes)) {
                Some(found) => found,
                None => (unnamed(&self.remote, self.bytes).or_else(|_| in_memory())?, None),
            },
        };
        let known = local.known.take().filter(|(known, _)| Some(*known) == incarnation);
        let spans = known.map(|(_, spans)| spans).unwrap_or_default();
        local.known = incarnation.map(|incarnation| (incarnation, spans.clone()));
        self.hold(&mut local, file, spans)
    }

    fn hold(&self, local: &mut Local, file: File, spans: Arc<Spans>) -> Result<Arc<Opened>> {
        let failed = |e| failure("make space for an object in", &self.remote.scratch, e);
        file.set_len(self.bytes).map_err(failed)?;
        let length = usize::try_from(self.bytes).map_err(|_| failed(io::ErrorKind::FileTooLarge.into()))?;
        let buffer = map::map(&file, length).map_err(failed)?;
        let opened = Arc::new(Opened { file, buffer, spans });
        local.opened = Arc::downgrade(&opened);
        Ok(opened)
    }

    /// The inner result is the disk's.
    fn bring(&self, opened: &Opened, spans: &[Span]) -> Result<io::Result<()>> {
        while let Some(claim) = opened.spans.claim(spans) {
            let missing: Vec<Span> = claim.spans.iter().filter(|span| !opened.holds(**span)).copied().collect();
            let wanted = joined(missing.iter().map(Span::range).collect());
            let mut pieces = wait(self.remote.ranges(&self.name, self.bytes, None, &wanted))?;
            pieces.sort_unstable_by_key(|(offset, _)| *offset);
            for span in missing {
                let within = within(&pieces, span);
                let mut hasher = blake3::Hasher::new();
                for (_, bytes) in &within {
                    hasher.update(bytes);
                }
                let found = Digest::from_bytes(*hasher.finalize().as_bytes());
                if found != span.digest {
                    return Err(Error::corrupt(format!(
                        "bytes {} to {} have another digest than the record says: expected {}, found {}",
                        span.offset,
                        span.range().end,
                        span.digest.short(),
                        found.short()
                    )));
                }
                for (offset, bytes) in within {
                    if let Err(error) = opened.file.write_all_at(bytes, offset) {
                        return Ok(Err(error));
                    }
                }
            }
            claim.done();
        }
        Ok(Ok(()))
    }
}

impl Fetch for RemotePart {
    fn fetch(&self, spans: &[Span]) -> Result<Buffer> {
        let mut opened = self.opened()?;
        if self.bring(&opened, spans)?.is_err() {
            self.remote.disk_refused();
            opened =
                self.hold(&mut self.local.lock().expect("no panics while locked"), in_memory()?, Arc::default())?;
            let failed = |e| failure("hold in memory what was fetched instead of in", &self.remote.scratch, e);
            self.bring(&opened, spans)?.map_err(failed)?;
        }
        Ok(map::owned(&opened.buffer, opened.clone()))
    }
}

impl Opened {
    /// Whether a span's bytes are there from before; what the file system has no bytes for isn't looked at.
    fn holds(&self, span: Span) -> bool {
        let bytes = self.buffer.get(span.offset as usize..span.range().end as usize);
        written(&self.file, span.range()) && bytes.is_some_and(|bytes| Digest::of(bytes) == span.digest)
    }
}

/// Which spans are there and verified, or coming.
#[derive(Default)]
struct Spans {
    states: Mutex<HashMap<(u64, u64), State>>,
    changed: Condvar,
}

#[derive(Clone, Copy, PartialEq)]
enum State {
    Coming,
    There,
}

/// Spans that this thread brings, and others wait for. When it is dropped before they are there, others may try.
struct Claim<'a> {
    of: &'a Spans,
    spans: Vec<Span>,
}

impl Spans {
    /// Those nobody has begun to bring; waits while there are only such that others bring. `None`: all are there.
    fn claim(&self, wanted: &[Span]) -> Option<Claim<'_>> {
        let mut states = self.states.lock().expect("no panics while locked");
        loop {
            let state = |span: &Span| states.get(&key(span)).copied();
            let spans: Vec<Span> = wanted.iter().filter(|span| state(span).is_none()).copied().collect();
            if !spans.is_empty() {
                states.extend(spans.iter().map(|span| (key(span), State::Coming)));
                return Some(Claim { of: self, spans });
            }
            if wanted.iter().all(|span| state(span) == Some(State::There)) {
                return None;
            }
            states = self.changed.wait(states).expect("no panics while locked");
        }
    }
}

impl Claim<'_> {
    fn done(mut self) {
        let mut states = self.of.states.lock().expect("no panics while locked");
        states.extend(self.spans.drain(..).map(|span| (key(&span), State::There)));
    }
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        let mut states = self.of.states.lock().expect("no panics while locked");
        for span in &self.spans {
            states.remove(&key(span));
        }
        drop(states);
        self.of.changed.notify_all();
    }
}

fn key(span: &Span) -> (u64, u64) {
    (span.offset, span.bytes)
}

/// The bytes of a span, with their offsets, in pieces that are sorted.
fn within(pieces: &[(u64, Bytes)], span: Span) -> Vec<(u64, &[u8])> {
    let Range { start, end } = span.range();
    let first = pieces.partition_point(|(offset, bytes)| offset + bytes.len() as u64 <= start);
    let cut = pieces[first..].iter().take_while(|(offset, _)| *offset < end).filter_map(|(offset, bytes)| {
        let from = start.max(*offset);
        let to = end.min(offset + bytes.len() as u64);
        (from < to).then(|| (from, &bytes[(from - offset) as usize..(to - offset) as usize]))
    });
    cut.collect()
}

fn unnamed(remote: &Remote, bytes: u64) -> Result<File> {
    let temporary = remote.temporary()?;
    let file = temporary.file().try_clone().and_then(|file| file.set_len(bytes).map(|()| file));
    file.map_err(|e| failure("make space for an object in", temporary.path(), e))
}

#[cfg(target_os = "linux")]
fn in_memory() -> Result<File> {
    let file = rustix::fs::memfd_create("forebay", rustix::fs::MemfdFlags::CLOEXEC);
    file.map(File::from).map_err(|e| Error::io("cannot hold an object in memory", e.into()))
}

#[cfg(not(target_os = "linux"))]
fn in_memory() -> Result<File> {
    Err(Error::unavailable("what is fetched from a store can't be written to the cache directory: free some space"))
}

/// Whether the file system has bytes for a range; at its ends they may be a neighbour's.
#[cfg(target_os = "linux")]
fn written(file: &File, range: Range<u64>) -> bool {
    use rustix::fs::{SeekFrom, seek};
    seek(file, SeekFrom::Data(range.start)) == Ok(range.start)
        && seek(file, SeekFrom::Hole(range.start)).is_ok_and(|hole| hole >= range.end)
}

#[cfg(not(target_os = "linux"))]
fn written(_file: &File, _range: Range<u64>) -> bool {
    true
}

impl fmt::Debug for RemotePart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RemotePart").field("name", &self.name).field("bytes", &self.bytes).finish()
    }
}
