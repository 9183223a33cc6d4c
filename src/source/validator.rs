//! What tells cheaply whether a file may have changed, and the cache that leads from it to digests already known. The cache
//! is a file or two of this machine for each source, never part of a store or an id; one that can't be read is rewritten.
//!
//! A file whose times lie within `GRANULARITY_NS` of the moment when it was hashed could change again without a trace, so
//! its digest isn't remembered until it has settled. An etag leaves a trace of every change.

use crate::id::Digest;
use crate::io::{Listed, Version};
use std::collections::HashMap;
use std::fs::Metadata;
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

/// The coarsest clock of a file system in use (FAT's two seconds).
const GRANULARITY_NS: i64 = 2_000_000_000;
/// How far a service's clock may be from ours: S3 refuses requests beyond that.
const SKEW_SECONDS: i64 = 15 * 60;
const MAGIC: &[u8] = b"forebay validators 2\n";

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Validator {
    pub bytes: u64,
    pub state: State,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum State {
    File { modified_ns: i64, changed_ns: i64, inode: u64 },
    Object(Version),
}

impl Validator {
    pub fn of(metadata: &Metadata) -> Self {
        let ns = |seconds: i64, nanoseconds: i64| seconds.saturating_mul(1_000_000_000).saturating_add(nanoseconds);
        let state = State::File {
            modified_ns: ns(metadata.mtime(), metadata.mtime_nsec()),
            changed_ns: ns(metadata.ctime(), metadata.ctime_nsec()),
            inode: metadata.ino(),
        };
        Validator { bytes: metadata.len(), state }
    }
    pub fn of_object(object: &Listed) -> Self {
        Validator { bytes: object.bytes, state: State::Object(object.version.clone()) }
    }
    /// Whether a digest taken from `now_ns` on may be remembered under this validator.
    pub fn settled(&self, now_ns: i64) -> bool {
        match &self.state {
            State::File { modified_ns, changed_ns, .. } => {
                (*modified_ns).max(*changed_ns).saturating_add(GRANULARITY_NS) < now_ns
            }
            State::Object(Version::Etag(_)) => true,
            State::Object(Version::Modified(seconds)) => seconds.saturating_add(SKEW_SECONDS) < now_ns / 1_000_000_000,
        }
    }
}

pub(super) fn now_ns() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_nanos()).unwrap_or(i64::MAX)
}

/// What one file holds: itself, or its blocks, groups or samples in order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Part {
    /// What a sample calls itself; empty where its number says it.
    pub name: String,
    /// Bytes of the file, of a compressed archive once decompressed; for a row group its number and the number after it.
    pub start: u64,
    pub end: u64,
    /// Bytes as stored.
    pub bytes: u64,
    pub rows: u64,
    /// Of the part's bytes or, for groups, of the file.
    pub digest: Digest,
}

/// Parts of files by key and validator, as the last listing of the same source left them.
#[derive(Debug, Default)]
pub(super) struct Cache {
    file: Option<PathBuf>,
    known: HashMap<String, (Validator, Vec<Part>)>,
}

impl Cache {
    /// `source` says all that the parts depend on besides the files: root, patterns, reader.
    pub fn open(directory: Option<&Path>, source: &str) -> Cache {
        let file = directory.map(|d| d.join(format!("{}.validators", Digest::of(source.as_bytes()))));
        let bytes = file.as_ref().and_then(|f| std::fs::read(f).ok());
        Cache { known: bytes.and_then(|b| decode(&b)).unwrap_or_default(), file }
    }
    pub fn get(&self, key: &str, validator: &Validator) -> Option<&[Part]> {
        self.known.get(key).filter(|(known, _)| known == validator).map(|(_, parts)| parts.as_slice())
    }
    pub fn len(&self) -> usize {
        self.known.len()
    }
    /// Adds what one more file holds.
    pub fn add(&mut self, key: &str, validator: Validator, parts: Vec<Part>) {
        self.known.insert(key.to_owned(), (validator, parts));
        self.save(self.known.iter().map(|(key, (validator, parts))| (key.as_str(), validator, parts.as_slice())));
    }
    /// Knows these files and no others from now on.
    pub fn replace(&mut self, known: HashMap<String, (Validator, Vec<Part>)>) {
        if known != self.known {
            self.save(known.iter().map(|(key, (validator, parts))| (key.as_str(), validator, parts.as_slice())));
            self.known = known;
        }
    }
    /// Replaces the file's contents. Failing to (a read-only or full disk) only costs the next listing time, so it is no error.
    pub fn save<'a>(&self, entries: impl Iterator<Item = (&'a str, &'a Validator, &'a [Part])>) {
        let Some(file) = &self.file else { return };
        let bytes = encode(entries);
        let _ = publish(file, &bytes);
    }
}

fn publish(file: &Path, bytes: &[u8]) -> std::io::Result<()> {
    let directory = file.parent().unwrap_or(Path::new("."));
    std::fs::create_dir_all(directory)?;
    let temporary = file.with_extension(format!("{}-{}.tmp", std::process::id(), now_ns()));
    let written = std::fs::File::create_new(&temporary)
        .and_then(|mut out| out.write_all(bytes))
        .and_then(|()| std::fs::rename(&temporary, file));
    if written.is_err() {
        let _ = std::fs::remove_file(&temporary);
    }
    written
}

fn encode<'a>(entries: impl Iterator<Item = (&'a str, &'a Validator, &'a [Part])>) -> Vec<u8> {
    fn text(out: &mut Vec<u8>, text: &str) {
        out.extend((text.len() as u64).to_le_bytes());
        out.extend(text.as_bytes());
    }
    let mut out = MAGIC.to_vec();
    for (key, validator, parts) in entries {
        text(&mut out, key);
        out.extend(validator.bytes.to_le_bytes());
        match &validator.state {
            State::File { modified_ns, changed_ns, inode } => {
                out.extend(0u64.to_le_bytes());
                out.extend(modified_ns.to_le_bytes());
                out.extend(changed_ns.to_le_bytes());
                out.extend(inode.to_le_bytes());
            }
            State::Object(Version::Etag(etag)) => {
                out.extend(1u64.to_le_bytes());
                text(&mut out, etag);
            }
            State::Object(Version::Modified(seconds)) => {
                out.extend(2u64.to_le_bytes());
                out.extend(seconds.to_le_bytes());
            }
        }
        out.extend((parts.len() as u64).to_le_bytes());
        for part in parts {
            text(&mut out, &part.name);
            for number in [part.start, part.end, part.bytes, part.rows] {
                out.extend(number.to_le_bytes());
            }
            out.extend(part.digest.as_bytes());
        }
    }
    let digest = Digest::of(&out);
    out.extend(digest.as_bytes());
    out
}

/// `None` for anything but what `encode` wrote.
fn decode(bytes: &[u8]) -> Option<HashMap<String, (Validator, Vec<Part>)>> {
    let (body, digest) = bytes.split_last_chunk::<32>()?;
    if Digest::of(body).as_bytes() != digest {
        return None;
    }
    let mut rest = body.strip_prefix(MAGIC)?;
    let mut known = HashMap::new();
    while !rest.is_empty() {
        let key = take_text(&mut rest)?;
        let bytes = take(&mut rest)?;
        let state = match take(&mut rest)? {
            0 => State::File {
                modified_ns: take(&mut rest)? as i64,
                changed_ns: take(&mut rest)? as i64,
                inode: take(&mut rest)?,
            },
            1 => State::Object(Version::Etag(take_text(&mut rest)?)),
            2 => State::Object(Version::Modified(take(&mut rest)? as i64)),
            _ => return None,
        };
        let validator = Validator { bytes, state };
        let parts = (0..take(&mut rest)?)
            .map(|_| {
                let name = take_text(&mut rest)?;
                let (start, end) = (take(&mut rest)?, take(&mut rest)?);
                let (bytes, rows) = (take(&mut rest)?, take(&mut rest)?);
                let (digest, after) = rest.split_first_chunk::<32>()?;
                rest = after;
                Some(Part { name, start, end, bytes, rows, digest: Digest::from_bytes(*digest) })
            })
            .collect::<Option<Vec<_>>>()?;
        known.insert(key, (validator, parts));
    }
    Some(known)
}

fn take(rest: &mut &[u8]) -> Option<u64> {
    let (number, after) = rest.split_first_chunk::<8>()?;
    *rest = after;
    Some(u64::from_le_bytes(*number))
}

fn take_text(rest: &mut &[u8]) -> Option<String> {
    let length = usize::try_from(take(rest)?).ok()?;
    let (text, after) = rest.split_at_checked(length)?;
    *rest = after;
    Some(std::str::from_utf8(text).ok()?.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(bytes: u64, modified_ns: i64, changed_ns: i64, inode: u64) -> Validator {
        Validator { bytes, state: State::File { modified_ns, changed_ns, inode } }
    }

    fn object(bytes: u64, version: Version) -> Validator {
        Validator { bytes, state: State::Object(version) }
    }

    fn parts() -> Vec<Part> {
        let digest = Digest::of(b"x");
        let part = |name: &str, start| Part { name: name.to_owned(), start, end: start + 4, bytes: 4, rows: 2, digest };
        vec![part("", 0), part("ü/b", 4)]
    }

    #[test]
    fn known_only_while_nothing_moved() {
        let directory = tempfile::tempdir().unwrap();
        let open = |source: &str| Cache::open(Some(directory.path()), source);
        let parts = parts();
        let etag = |etag: &str| object(7, Version::Etag(etag.to_owned()));
        let others = [
            file(7, -5, 9, 3),
            file(8, -5, 9, 3),
            file(7, 0, 9, 3),
            file(7, -5, 8, 3),
            file(7, -5, 9, 4),
            etag("\"a\""),
            etag("\"b\""),
            object(8, Version::Etag("\"a\"".to_owned())),
            object(7, Version::Modified(5)),
            object(7, Version::Modified(6)),
        ];
        for validator in &others {
            open("a").save([("k", validator, parts.as_slice())].into_iter());
            let known: Vec<_> = others.iter().filter(|other| open("a").get("k", other).is_some()).collect();
            assert_eq!(known, [validator]);
            assert_eq!(open("a").get("k", validator), Some(parts.as_slice()));
            assert_eq!(open("b").get("k", validator), None, "another source");
            assert_eq!(open("a").get("j", validator), None);
        }
        assert_eq!(Cache::open(None, "a").len(), 0);
    }

    #[test]
    fn damage_at_any_byte_is_an_empty_cache() {
        let parts = parts();
        let known = [file(7, -5, 9, 3), object(1, Version::Etag("\"ü\"".to_owned())), object(2, Version::Modified(-1))];
        let bytes = encode(known.iter().map(|validator| ("k", validator, parts.as_slice())));
        assert!(decode(&bytes).is_some());
        for at in 0..bytes.len() {
            let mut bad = bytes.clone();
            bad[at] ^= 1;
            assert!(decode(&bad).is_none(), "flipped byte {at}");
            assert!(decode(&bytes[..at]).is_none(), "cut at {at}");
        }
    }

    #[test]
    fn what_is_fresh_is_distrusted() {
        let validator = file(7, -5, 9, 3);
        assert!(!validator.settled(9), "hashed within the granularity of a change");
        assert!(!validator.settled(9 + GRANULARITY_NS));
        assert!(validator.settled(10 + GRANULARITY_NS));
        assert!(object(1, Version::Etag("\"a\"".to_owned())).settled(0));
        let modified = object(1, Version::Modified(10));
        assert!(!modified.settled((10 + SKEW_SECONDS) * 1_000_000_000));
        assert!(modified.settled((11 + SKEW_SECONDS) * 1_000_000_000));
    }
}
