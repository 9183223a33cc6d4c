//! The bytes of one part, read once from beginning to end against the digest that is its name and those of its chunks.

use crate::error::{Error, Kind, Result};
use crate::format::record::{Part, Span};
use crate::id::Digest;
use crate::store::Store;
use std::io::{self, Read};

pub(super) enum State {
    /// As far as it was looked at.
    Good,
    Missing,
    /// Another length, in bytes.
    Length(u64),
    /// Another digest; `spans` says in which chunks.
    Digest {
        found: Digest,
        spans: String,
    },
    /// The blob is good, but the record has other digests for these spans.
    Spans(String),
    /// No file, or the disk fails.
    Unreadable(Error),
}

const BLOCK_BYTES: usize = 1 << 20;

impl State {
    /// `read`: the bytes too, not only how many there are.
    pub fn of(store: &Store, object: &str, part: &Part, read: bool) -> Result<State> {
        match store.storage().bytes(object) {
            Ok(None) => return Ok(State::Missing),
            Ok(Some(bytes)) if bytes != part.bytes => return Ok(State::Length(bytes)),
            Ok(Some(_)) if !read => return Ok(State::Good),
            Ok(Some(_)) => {}
            Err(error) if error.kind() == Kind::Corrupt => return Ok(State::Unreadable(error)),
            Err(error) => return Err(error),
        }
        let Some(reader) = store.storage().reader(object)? else { return Ok(State::Missing) };
        let (found, bad) = match digests(reader, part) {
            Ok(digests) => digests,
            Err(error) => {
                return match error.downcast::<Error>() {
                    // A service that can't be reached or refuses says nothing of the object.
                    Ok(ours) if matches!(ours.kind(), Kind::Unavailable | Kind::Invalid) => Err(ours),
                    Ok(ours) => Ok(State::Unreadable(ours)),
                    Err(error) => Ok(State::Unreadable(Error::io(format!("cannot read {object}"), error))),
                };
            }
        };
        if found != part.blob {
            return Ok(State::Digest { found, spans: names(&bad, part) });
        }
        Ok(if bad.is_empty() { State::Good } else { State::Spans(names(&bad, part)) })
    }
}

/// The digest of all bytes, and the spans (by number) whose bytes differ from what is recorded.
fn digests(mut reader: impl Read, part: &Part) -> io::Result<(Digest, Vec<usize>)> {
    let spans: Vec<Span> = spans(part).map(|(_, span)| span).collect();
    let mut by_offset: Vec<usize> = (0..spans.len()).collect();
    by_offset.sort_by_key(|i| spans[*i].offset);
    let mut waiting = by_offset.into_iter().peekable();
    let mut open: Vec<(usize, blake3::Hasher)> = Vec::new();
    let mut bad = Vec::new();
    let mut whole = blake3::Hasher::new();
    let mut block = vec![0; BLOCK_BYTES];
    let mut start = 0;
    loop {
        let read = match reader.read(&mut block) {
            Ok(read) => read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        let bytes = block.get(..read).unwrap_or_default();
        let end = start + read as u64;
        whole.update(bytes);
        // The last, empty block opens spans of no bytes at the end.
        while let Some(i) = waiting.next_if(|i| spans[*i].offset < end || read == 0) {
            open.push((i, blake3::Hasher::new()));
        }
        open.retain_mut(|(i, hasher)| {
            let span = spans[*i];
            let span_end = span.offset.saturating_add(span.bytes);
            let within = |at: u64| at.clamp(start, end).saturating_sub(start) as usize;
            hasher.update(bytes.get(within(span.offset)..within(span_end)).unwrap_or_default());
            let finished = span_end <= end || read == 0;
            if finished && hasher.finalize().as_bytes() != span.digest.as_bytes() {
                bad.push(*i);
            }
            !finished
        });
        start = end;
        if read == 0 {
            bad.sort_unstable();
            return Ok((Digest::from_bytes(*whole.finalize().as_bytes()), bad));
        }
    }
}

/// Every span of a part with what it is called: chunks and columns count from 0.
fn spans(part: &Part) -> impl Iterator<Item = (String, Span)> {
    let chunks = part.chunks.iter().enumerate().flat_map(|(chunk, spans)| {
        let head = spans.head.iter().map(move |span| (format!("chunk {chunk} head"), *span));
        let columns = spans.columns.iter().enumerate();
        head.chain(columns.map(move |(column, span)| (format!("chunk {chunk} column {column}"), *span)))
    });
    chunks.chain([("footer".to_owned(), part.footer)])
}

/// The first few by name, and how many in all.
fn names(bad: &[usize], part: &Part) -> String {
    const SHOWN: usize = 3;
    let all: Vec<String> = spans(part).map(|(name, _)| name).collect();
    let shown: Vec<&str> = bad.iter().take(SHOWN).filter_map(|i| all.get(*i)).map(String::as_str).collect();
    match bad.len() {
        0 => "only bytes between the chunks".to_owned(),
        n if n > SHOWN => format!("{} and {} more of {} spans", shown.join(", "), n - SHOWN, all.len()),
        _ => shown.join(", "),
    }
}
