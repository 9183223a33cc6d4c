//! Files below a source's root, and the rule that what is read is what was listed: whole files and ranges by their digest,
//! partial reads by a validator that is known to stand for the keyed digest.

use crate::error::{Error, Result};
use crate::format::entry::{Entry, Identity};
use crate::id::Digest;
use crate::io::open_regular;
use crate::source::ListOptions;
use crate::source::compression;
use crate::source::pattern::Patterns;
use crate::source::validator::{Cache, Part, Validator, now_ns};
use crate::source::walk::{Found, paths, walk};
use crate::spec::node::Span;
use crate::spec::pipeline::IdentityMode;
use rayon::prelude::*;
use std::collections::BTreeSet;
use std::fs::File;
use std::io::Read;
use std::os::unix::fs::FileExt;
use std::path::{Component, Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

/// How often a file that changes while it is hashed is tried.
const TRIES: usize = 3;
/// Files are hashed in pieces of this size.
const PIECE: usize = 1 << 20;
/// Bytes hashed between two reports of progress.
const TICK: u64 = 32 << 20;

#[derive(Debug)]
pub(super) struct Root {
    pub path: PathBuf,
    pub mode: IdentityMode,
    pub patterns: Patterns,
    span: Span,
    /// Where this machine keeps what it knows of files; `None`: nowhere.
    cache: Option<PathBuf>,
    /// Digests of whole files, for those that are read in part. Loaded when one is first asked for.
    whole: Mutex<Option<Cache>>,
    /// What the last listing passed over or met that deserves a word.
    notes: Mutex<BTreeSet<String>>,
}

/// A file that is being read, and what told its state when it was opened.
#[derive(Debug)]
pub(super) struct Opened {
    pub file: File,
    pub validator: Validator,
    key: String,
}

/// What `Root::scan` knows of one file.
#[derive(Debug)]
pub(super) struct Scanned {
    pub validator: Validator,
    pub parts: Vec<Part>,
    /// Whether the validator stands for these parts from now on.
    pub settled: bool,
}

/// Counts hashed bytes and reports them now and then.
pub(super) struct Meter<'a> {
    entries: AtomicU64,
    bytes: AtomicU64,
    options: &'a ListOptions<'a>,
}

impl<'a> Meter<'a> {
    fn new(options: &'a ListOptions<'a>) -> Self {
        Meter { entries: AtomicU64::new(0), bytes: AtomicU64::new(0), options }
    }
    pub fn bytes(&self, bytes: u64) {
        let before = self.bytes.fetch_add(bytes, Ordering::Relaxed);
        if before / TICK != (before + bytes) / TICK {
            self.report();
        }
    }
    fn entries(&self, entries: u64) {
        let before = self.entries.fetch_add(entries, Ordering::Relaxed);
        if before / 1000 != (before + entries) / 1000 {
            self.report();
        }
    }
    fn report(&self) {
        (self.options.progress)(self.entries.load(Ordering::Relaxed), self.bytes.load(Ordering::Relaxed));
    }
}

impl Opened {
    pub fn key(&self) -> &str {
        &self.key
    }
    /// What the file is compressed with, by its first bytes.
    pub fn compression(&self) -> Result<Option<&'static str>> {
        let mut magic = [0; 10];
        let known = self.file.read_at(&mut magic, 0).map_err(|e| Error::io(format!("cannot read {}", self.key), e))?;
        Ok(compression::by_bytes(magic.get(..known).unwrap_or_default()))
    }
    /// Errors with a `Conflict` where the file was touched since it was opened.
    pub fn unchanged(&self) -> Result<()> {
        let metadata = self.file.metadata().map_err(|e| Error::io(format!("cannot look at {}", self.key), e))?;
        if Validator::of(&metadata) == self.validator { Ok(()) } else { Err(changed(&self.key)) }
    }
    /// Of the whole file, read in pieces; `progress` hears of each.
    pub fn digest(&self, progress: impl FnMut(u64)) -> Result<Digest> {
        digest_file(&self.file, self.validator.bytes, progress)
            .map_err(|e| Error::io(format!("cannot read {}", self.key), e))
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
        self.file.read_exact_at(&mut out[from..], start).map_err(|e| match e.kind() {
            std::io::ErrorKind::UnexpectedEof => changed(&self.key),
            _ => Error::io(format!("cannot read {}", self.key), e),
        })
    }
    /// Appends the whole file to `out`.
    pub fn read_all(&self, out: &mut Vec<u8>) -> Result<()> {
        let from = out.len();
        let bytes = self.validator.bytes;
        out.reserve(usize::try_from(bytes).map_err(|_| Error::invalid(format!("{} is too large", self.key)))?);
        (&self.file).take(bytes).read_to_end(out).map_err(|e| Error::io(format!("cannot read {}", self.key), e))?;
        if (out.len() - from) as u64 == bytes { Ok(()) } else { Err(changed(&self.key)) }
    }
}

/// Opens a file that is no part of the source, such as a table to join.
pub(super) fn open_plain(path: &Path, key: &str) -> Result<Opened> {
    let file = open_regular(path)?;
    let metadata = file.metadata().map_err(|e| Error::io(format!("cannot look at {}", path.display()), e))?;
    Ok(Opened { file, validator: Validator::of(&metadata), key: key.to_owned() })
}

/// What helps, whichever command met it.
pub(super) const LIST_AGAIN: &str = "`forebay snapshot` and `forebay materialize`, run anew, list it as it is now";

pub(super) fn changed(key: &str) -> Error {
    Error::conflict(format!("{key} changed since it was listed: {LIST_AGAIN}"))
}

impl Root {
    pub fn new(patterns: Patterns, mode: IdentityMode, span: Span, cache: Option<PathBuf>) -> Self {
        Root {
            path: patterns.root.clone(),
            mode,
            patterns,
            span,
            cache,
            whole: Mutex::default(),
            notes: Mutex::default(),
        }
    }

    /// The files that the source's patterns match, sorted by key.
    pub fn walk(&self) -> Result<Vec<Found>> {
        walk(&self.patterns, &|note| self.note(note)).map_err(|e| self.unlisted(e))
    }
    /// Their paths alone, which is cheaper where many are looked at.
    pub fn paths(&self) -> Result<Vec<PathBuf>> {
        paths(&self.patterns, &|note| self.note(note)).map_err(|e| self.unlisted(e))
    }
    pub fn note(&self, note: String) {
        self.notes.lock().unwrap_or_else(PoisonError::into_inner).insert(note);
    }
    pub fn notes(&self) -> Vec<String> {
        self.notes.lock().unwrap_or_else(PoisonError::into_inner).iter().cloned().collect()
    }
    fn unlisted(&self, e: Error) -> Error {
        self.span.wrap("the source can't be listed", e)
    }
    /// An error about the source as a whole.
    pub fn error(&self, message: impl std::fmt::Display) -> Error {
        self.span.error(message)
    }

    /// The path of a key; one that would leave the root is refused.
    pub fn path(&self, key: &str) -> Result<PathBuf> {
        let plain = |part: &Component| matches!(part, Component::Normal(_));
        if key.is_empty() || key.contains('\0') || !Path::new(key).components().all(|c| plain(&c)) {
            return Err(Error::invalid(format!("{key:?} is not a path below the source's root")));
        }
        Ok(self.path.join(key))
    }

    /// Opens a listed file; one that is gone is a `Conflict`.
    pub fn open(&self, key: &str) -> Result<Opened> {
        self.open_if_there(key)?
            .ok_or_else(|| Error::conflict(format!("{key} is gone since it was listed: {LIST_AGAIN}")))
    }

    /// A directory or pipe in its place is no file, as for the listing.
    pub fn open_if_there(&self, key: &str) -> Result<Option<Opened>> {
        use std::io::ErrorKind::{InvalidFilename, NotADirectory, NotFound};
        let path = self.path(key)?;
        // Looked at before, as to open a pipe waits for its writer.
        let opened = std::fs::metadata(&path).and_then(|found| match found.is_file() {
            true => File::open(&path).map(Some),
            false => Ok(None),
        });
        let file = match opened {
            Ok(Some(file)) => file,
            Ok(None) => return Ok(None),
            Err(e) if matches!(e.kind(), NotFound | NotADirectory | InvalidFilename) => return Ok(None),
            Err(e) => return Err(Error::io(format!("cannot open {}", path.display()), e)),
        };
        let metadata = file.metadata().map_err(|e| Error::io(format!("cannot look at {}", path.display()), e))?;
        Ok(Some(Opened { file, validator: Validator::of(&metadata), key: key.to_owned() }))
    }

    /// What an entry is known by under the source's mode.
    pub fn identity(&self, validator: &Validator, digest: Digest) -> Identity {
        match self.mode {
            IdentityMode::Stat => Identity::Stat {
                root: format!("file://{}", self.path.display()),
                bytes: validator.bytes,
                modified_ns: validator.modified_ns,
            },
            IdentityMode::Content | IdentityMode::Etag => Identity::Content(digest),
        }
    }

    /// Whether the bytes just read from `opened` are what `identity` stands for. `digest` is asked for only where it counts.
    pub fn check(&self, opened: &Opened, identity: &Identity, digest: impl FnOnce() -> Digest) -> Result<()> {
        let same = match identity {
            Identity::Content(keyed) => *keyed == digest(),
            Identity::Stat { bytes, modified_ns, .. } => {
                opened.unchanged()?;
                *bytes == opened.validator.bytes && *modified_ns == opened.validator.modified_ns
            }
            Identity::Etag { .. } | Identity::Row(_) | Identity::Absent => false,
        };
        if same { Ok(()) } else { Err(changed(&opened.key)) }
    }

    /// Allows partial reads of a file: its validator stands for the keyed digest, or the file is hashed now. The caller
    /// brackets each read with `Opened::unchanged`.
    pub fn trust(&self, opened: &Opened, identity: &Identity) -> Result<()> {
        let keyed = match identity {
            Identity::Content(digest) => digest,
            other => return self.check(opened, other, || Digest::of(b"")),
        };
        let known = self.whole(|cache| Some(cache.get(&opened.key, &opened.validator)?.first()?.digest));
        let digest = match known {
            Some(digest) => digest,
            None => {
                let began = now_ns();
                let digest = digest_file(&opened.file, opened.validator.bytes, |_| ())
                    .map_err(|e| Error::io(format!("cannot read {}", opened.key), e))?;
                opened.unchanged()?;
                if opened.validator.settled(began) {
                    let part = whole(&opened.validator, digest);
                    self.whole(|cache| cache.add(&opened.key, opened.validator, vec![part]));
                }
                digest
            }
        };
        if digest == *keyed { Ok(()) } else { Err(changed(&opened.key)) }
    }

    /// Keeps the digests of listed files that will be read in part, so that no reader has to hash them.
    pub fn know<'a>(&self, files: impl Iterator<Item = (&'a Found, &'a Scanned)>) {
        if self.mode == IdentityMode::Stat {
            return;
        }
        let digest = |(file, scanned): (&Found, &Scanned)| {
            let part = whole(&scanned.validator, scanned.parts.first().filter(|_| scanned.settled)?.digest);
            Some((file.key.clone(), (scanned.validator, vec![part])))
        };
        self.whole(|cache| cache.replace(files.filter_map(digest).collect()));
    }

    fn whole<T>(&self, body: impl FnOnce(&mut Cache) -> T) -> T {
        let mut cache = self.whole.lock().unwrap_or_else(PoisonError::into_inner);
        body(cache.get_or_insert_with(|| self.open_cache("digests")))
    }

    fn open_cache(&self, reader: &str) -> Cache {
        let source = format!("{}\0{:?}\0{:?}\0{reader}", self.path.display(), self.patterns.written, self.mode);
        Cache::open(self.cache.as_deref(), &source)
    }

    /// The parts of each file: from the cache where its validator is known, else by `index`, which is run again where the
    /// file changed meanwhile. Also counts the parts of files that were hashed. `reader` says all that the parts depend on
    /// besides the files.
    pub fn scan(
        &self,
        found: &[Found],
        reader: &str,
        options: &ListOptions,
        index: impl Fn(&Opened, &Meter) -> Result<Vec<Part>> + Sync,
    ) -> Result<(Vec<Scanned>, u64)> {
        let cache = self.open_cache(reader);
        let meter = Meter::new(options);
        let hashed = AtomicU64::new(0);
        let scanned: Vec<Scanned> = found
            .par_iter()
            .map(|file| {
                if let Some(parts) = cache.get(&file.key, &file.validator) {
                    meter.entries(parts.len() as u64);
                    return Ok(Scanned { validator: file.validator, parts: parts.to_vec(), settled: true });
                }
                for _ in 0..TRIES {
                    let began = now_ns();
                    let opened = self.open(&file.key)?;
                    let parts = index(&opened, &meter);
                    if opened.unchanged().is_err() {
                        continue;
                    }
                    let parts = parts?;
                    meter.entries(parts.len() as u64);
                    hashed.fetch_add(parts.len() as u64, Ordering::Relaxed);
                    let settled = opened.validator.settled(began);
                    return Ok(Scanned { validator: opened.validator, parts, settled });
                }
                Err(Error::conflict(format!(
                    "{} keeps changing while it is read; list again when it is at rest",
                    file.key
                )))
            })
            .collect::<Result<_>>()?;
        meter.report();
        let hashed = hashed.into_inner();
        if hashed > 0 || cache.len() != found.len() {
            let settled = found.iter().zip(&scanned).filter(|(_, s)| s.settled);
            cache.save(settled.map(|(f, s)| (f.key.as_str(), s.validator, s.parts.as_slice())));
        }
        let hashed = if self.mode == IdentityMode::Stat { 0 } else { hashed };
        Ok((scanned, hashed))
    }

    /// `scan` for files that are each one part. Under `stat` nothing is opened.
    pub fn scan_whole(&self, found: &[Found], options: &ListOptions) -> Result<(Vec<Scanned>, u64)> {
        if self.mode == IdentityMode::Stat {
            let scanned = found.iter().map(|f| Scanned {
                validator: f.validator,
                parts: vec![whole(&f.validator, Digest::from_bytes([0; 32]))],
                settled: true,
            });
            return Ok((scanned.collect(), 0));
        }
        self.scan(found, "whole", options, |opened, meter| {
            Ok(vec![whole(&opened.validator, opened.digest(|n| meter.bytes(n))?)])
        })
    }
}

fn whole(validator: &Validator, digest: Digest) -> Part {
    Part { name: String::new(), start: 0, end: validator.bytes, bytes: validator.bytes, rows: 1, digest }
}

/// The digest of a file from its beginning.
/// `bytes`: its expected length, so that small files need small buffers.
fn digest_file(file: &File, bytes: u64, mut progress: impl FnMut(u64)) -> std::io::Result<Digest> {
    let mut hasher = blake3::Hasher::new();
    let mut piece = vec![0; usize::try_from(bytes).map_or(PIECE, |n| n.saturating_add(1).min(PIECE))];
    let mut at = 0;
    loop {
        let n = match file.read_at(&mut piece, at) {
            Ok(0) => return Ok(Digest::from_bytes(*hasher.finalize().as_bytes())),
            Ok(n) => n,
            Err(e) if e.kind() == std::io::ErrorKind::Interrupted => continue,
            Err(e) => return Err(e),
        };
        hasher.update(&piece[..n]);
        at += n as u64;
        progress(n as u64);
    }
}

/// The file that holds an entry.
pub(super) fn file_of(entry: &Entry) -> &str {
    entry.file.as_deref().unwrap_or(&entry.key)
}
