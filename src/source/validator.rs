//! What tells cheaply whether a file may have changed, and the cache that leads from it to digests already known. The cache
//! is a file or two of this machine for each source, never part of a store or an id; one that can't be read is rewritten.
//!
//! A file whose times lie within `GRANULARITY_NS` of the moment when it was hashed could change again without a trace, so
//! its digest isn't remembered until it has settled.

use crate::id::Digest;
use std::collections::HashMap;
use std::fs::Metadata;
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

/// The coarsest clock of a file system in use (FAT's two seconds).
const GRANULARITY_NS: i64 = 2_000_000_000;
const MAGIC: &[u8] = b"forebay validators 1\n";

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Validator {
    pub bytes: u64,
    pub modified_ns: i64,
    pub changed_ns: i64,
    pub inode: u64,
}

impl Validator {
    pub fn of(metadata: &Metadata) -> Self {
        let ns = |seconds: i64, nanoseconds: i64| seconds.saturating_mul(1_000_000_000).saturating_add(nanoseconds);
        Validator {
            bytes: metadata.len(),
            modified_ns: ns(metadata.mtime(), metadata.mtime_nsec()),
            changed_ns: ns(metadata.ctime(), metadata.ctime_nsec()),
            inode: metadata.ino(),
        }
    }
    /// Whether a digest taken from `now_ns` on may be remembered under this validator.
    pub fn settled(&self, now_ns: i64) -> bool {
        self.modified_ns.max(self.changed_ns).saturating_add(GRANULARITY_NS) < now_ns
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
        self.save(self.known.iter().map(|(key, (validator, parts))| (key.as_str(), *validator, parts.as_slice())));
    }
    /// Knows these files and no others from now on.
    pub fn replace(&mut self, known: HashMap<String, (Validator, Vec<Part>)>) {
        if known != self.known {
            self.save(known.iter().map(|(key, (validator, parts))| (key.as_str(), *validator, parts.as_slice())));
            self.known = known;
        }
    }
    /// Replaces the file's contents. Failing to (a read-only or full disk) only costs the next listing time, so it is no error.
    pub fn save<'a>(&self, entries: impl Iterator<Item = (&'a str, Validator, &'a [Part])>) {
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

fn encode<'a>(entries: impl Iterator<Item = (&'a str, Validator, &'a [Part])>) -> Vec<u8> {
    fn text(out: &mut Vec<u8>, text: &str) {
        out.extend((text.len() as u64).to_le_bytes());
        out.extend(text.as_bytes());
    }
    let mut out = MAGIC.to_vec();
    for (key, validator, parts) in entries {
        text(&mut out, key);
        out.extend(validator.bytes.to_le_bytes());
        out.extend(validator.modified_ns.to_le_bytes());
        out.extend(validator.changed_ns.to_le_bytes());
        out.extend(validator.inode.to_le_bytes());
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
        let validator = Validator {
            bytes: take(&mut rest)?,
            modified_ns: take(&mut rest)? as i64,
            changed_ns: take(&mut rest)? as i64,
            inode: take(&mut rest)?,
        };
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

    fn sample() -> (Validator, Vec<Part>) {
        let validator = Validator { bytes: 7, modified_ns: -5, changed_ns: 9, inode: 3 };
        let digest = Digest::of(b"x");
        let part = |name: &str, start| Part { name: name.to_owned(), start, end: start + 4, bytes: 4, rows: 2, digest };
        (validator, vec![part("", 0), part("ü/b", 4)])
    }

    #[test]
    fn known_only_while_nothing_moved() {
        let directory = tempfile::tempdir().unwrap();
        let open = |source: &str| Cache::open(Some(directory.path()), source);
        let (validator, parts) = sample();
        open("a").save([("k", validator, parts.as_slice())].into_iter());
        assert_eq!(open("a").get("k", &validator), Some(parts.as_slice()));
        assert_eq!(open("b").get("k", &validator), None, "another source");
        assert_eq!(open("a").get("j", &validator), None);
        for other in [
            Validator { bytes: 8, ..validator },
            Validator { modified_ns: 0, ..validator },
            Validator { changed_ns: 8, ..validator },
            Validator { inode: 4, ..validator },
        ] {
            assert_eq!(open("a").get("k", &other), None, "{other:?}");
        }
        assert_eq!(Cache::open(None, "a").len(), 0);
    }

    #[test]
    fn damage_at_any_byte_is_an_empty_cache() {
        let (validator, parts) = sample();
        let bytes = encode([("k", validator, parts.as_slice())].into_iter());
        assert!(decode(&bytes).is_some());
        for at in 0..bytes.len() {
            let mut bad = bytes.clone();
            bad[at] ^= 1;
            assert!(decode(&bad).is_none(), "flipped byte {at}");
            assert!(decode(&bytes[..at]).is_none(), "cut at {at}");
        }
    }

    #[test]
    fn fresh_files_are_distrusted() {
        let (validator, _) = sample();
        assert!(!validator.settled(9), "hashed within the granularity of a change");
        assert!(!validator.settled(9 + GRANULARITY_NS));
        assert!(validator.settled(10 + GRANULARITY_NS));
    }
}
