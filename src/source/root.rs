//! Files below a source's root, and the rule that what is read is what was listed: whole files and ranges by their digest,
//! partial reads by a validator that is known to stand for the keyed digest.

use crate::error::{Error, Kind, Result};
use crate::format::entry::{self, Entry, Identity};
use crate::id::Digest;
use crate::io::{Listed, Objects, Version, Wanted};
use crate::source::opened::Opened;
use crate::source::pattern::Patterns;
use crate::source::place::{Place, name};
use crate::source::validator::{Cache, Part, State, Validator, now_ns};
use crate::source::walk::{Found, paths, walk};
use crate::source::{ListOptions, MOST_SAMPLE_BYTES, bucket};
use crate::spec::node::Span;
use crate::spec::pipeline::IdentityMode;
use rayon::prelude::*;
use std::collections::BTreeSet;
use std::fs::File;
use std::ops::Range;
use std::path::{Component, Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

/// How often a file that changes while it is hashed is tried.
const TRIES: usize = 3;
/// What is fetched of an object before it is asked for.
const MOST_AHEAD: u64 = 64 << 20;
/// Bytes hashed between two reports of progress.
const TICK: u64 = 32 << 20;

#[derive(Debug)]
pub(super) struct Root {
    place: Place,
    path: PathBuf,
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

/// What helps, whichever command met it.
pub(super) const LIST_AGAIN: &str = "`forebay snapshot` and `forebay materialize`, run anew, list it as it is now";

pub(super) fn changed(key: &str) -> Error {
    Error::conflict(format!("{key} changed since it was listed: {LIST_AGAIN}"))
}

pub(super) fn gone(key: &str) -> Error {
    Error::conflict(format!("{key} is gone since it was listed: {LIST_AGAIN}"))
}

impl Root {
    pub fn new(patterns: Patterns, mode: IdentityMode, span: Span, cache: Option<PathBuf>) -> Self {
        Root {
            place: patterns.place.clone(),
            path: patterns.root.clone(),
            mode,
            patterns,
            span,
            cache,
            whole: Mutex::default(),
            notes: Mutex::default(),
        }
    }

    /// Whether requests are what reading takes, so that many are better made at a time.
    pub fn is_remote(&self) -> bool {
        matches!(self.place, Place::Bucket(_))
    }
    /// A path as people write it.
    pub fn shown(&self) -> String {
        self.place.shown(&self.path)
    }

    /// The files that the source's patterns match, sorted by key.
    pub fn walk(&self) -> Result<Vec<Found>> {
        let note = |note| self.note(note);
        let found = match &self.place {
            Place::Disk => walk(&self.patterns, &note),
            Place::Bucket(objects) => bucket::walk(objects, &self.patterns, &note),
        };
        found.and_then(|found| self.checked(found)).map_err(|e| self.unlisted(e))
    }
    /// Their paths alone, which is cheaper where many are looked at.
    pub fn paths(&self) -> Result<Vec<PathBuf>> {
        match self.place {
            Place::Disk => paths(&self.patterns, &|note| self.note(note)).map_err(|e| self.unlisted(e)),
            Place::Bucket(_) => Ok(self.walk()?.into_iter().map(|found| self.path.join(found.key)).collect()),
        }
    }
    /// Refuses objects that their service doesn't tell enough of.
    fn checked(&self, found: Vec<Found>) -> Result<Vec<Found>> {
        let told = |found: &Found| !matches!(found.validator.state, State::Object(Version::Modified(_)));
        match found.iter().find(|found| self.mode == IdentityMode::Etag && !told(found)) {
            Some(found) => Err(Error::invalid(format!(
                "the service gives {} no strong etag, by which objects are known; set identity: content, which reads each \
                 object once to know it by its bytes",
                found.key
            ))),
            None => Ok(found),
        }
    }
    /// Which of these files are there.
    pub fn look(&self, keys: Vec<&String>) -> Result<Vec<Found>> {
        let found = match &self.place {
            Place::Disk => {
                let look = |key: &&String| {
                    let metadata = metadata(&self.path.join(key))?;
                    Ok(metadata.map(|metadata| Found { key: (*key).clone(), validator: Validator::of(&metadata) }))
                };
                keys.par_iter().map(look).filter_map(Result::transpose).collect::<Result<Vec<_>>>()?
            }
            Place::Bucket(objects) => {
                let names = keys.iter().map(|key| self.name(key)).collect::<Result<Vec<_>>>()?;
                let found = objects.look(&names.iter().map(String::as_str).collect::<Vec<_>>())?;
                let of = |(key, object): (&String, Listed)| Found {
                    key: key.clone(),
                    validator: Validator::of_object(&object),
                };
                keys.into_iter().zip(found).filter_map(|(key, object)| Some(of((key, object?)))).collect()
            }
        };
        self.checked(found)
    }
    /// Whether entries are known by the bytes that they hold, which have to be read then.
    pub fn hashes(&self) -> bool {
        self.mode == IdentityMode::Content
    }
    /// The same place and settings, elsewhere: for objects that a source's rows refer to.
    pub fn at(&self, place: Place, written: &str) -> Self {
        let patterns =
            Patterns { place, root: PathBuf::from("/"), written: vec![written.to_owned()], searches: Vec::new() };
        Root::new(patterns, self.mode, self.span.clone(), self.cache.clone())
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

    /// The name of a key's object.
    fn name(&self, key: &str) -> Result<String> {
        Ok(name(&self.path(key)?)?.to_owned())
    }

    /// Opens a listed file; one that is gone is a `Conflict`.
    pub fn open(&self, key: &str) -> Result<Opened> {
        self.open_if_there(key)?.ok_or_else(|| gone(key))
    }

    /// Opens the file of an entry. Of an object that is known by its etag nothing is asked.
    pub fn open_as(&self, key: &str, identity: &Identity) -> Result<Opened> {
        match (&self.place, identity) {
            (Place::Bucket(objects), Identity::Etag { etag, bytes }) => {
                let version = Version::Etag(etag.clone());
                self.pin(objects, key, &Validator { bytes: *bytes, state: State::Object(version) })
            }
            _ => self.open(key),
        }
    }

    fn pin(&self, objects: &Objects, key: &str, validator: &Validator) -> Result<Opened> {
        let State::Object(version) = &validator.state else {
            return Err(Error::internal(format!("{key} is no object")));
        };
        let listed = Listed { name: self.name(key)?, bytes: validator.bytes, version: version.clone() };
        Ok(Opened::object(objects.pin(listed.clone()), &listed, key))
    }

    /// A directory or pipe in its place is no file, as for the listing.
    pub fn open_if_there(&self, key: &str) -> Result<Option<Opened>> {
        let path = self.path(key)?;
        match &self.place {
            // Looked at before, as to open a pipe waits for its writer.
            Place::Disk => match metadata(&path)? {
                None => Ok(None),
                Some(_) => match File::open(&path) {
                    Ok(file) => Opened::file(file, &path, key).map(Some),
                    Err(e) if is_none(&e) => Ok(None),
                    Err(e) => Err(Error::io(format!("cannot open {}", path.display()), e)),
                },
            },
            Place::Bucket(objects) => {
                let found = objects.look(&[name(&path)?])?.pop().flatten();
                Ok(found.map(|object| Opened::object(objects.pin(object.clone()), &object, key)))
            }
        }
    }

    /// Opens files to be read whole, one after the other; objects are fetched side by side before, as they were listed where
    /// their identity tells. `None` where there is none. No one asks for more than memory may hold.
    pub fn each<'a>(
        &'a self,
        wanted: Vec<(&'a str, Option<&'a Identity>)>,
    ) -> Result<Box<dyn Iterator<Item = Result<Option<Opened>>> + 'a>> {
        let Place::Bucket(objects) = &self.place else {
            return Ok(Box::new(wanted.into_iter().map(|(key, _)| self.open_if_there(key))));
        };
        let names = wanted.iter().map(|(key, _)| self.name(key)).collect::<Result<Vec<_>>>()?;
        let requests: Vec<Wanted> = names
            .iter()
            .zip(&wanted)
            .map(|(name, (_, identity))| match identity {
                Some(Identity::Etag { etag, .. }) => {
                    Wanted { name, version: Some(Version::Etag(etag.clone())), most: MOST_SAMPLE_BYTES }
                }
                _ => Wanted { name, version: None, most: MOST_SAMPLE_BYTES },
            })
            .collect();
        let read = objects.read(&requests)?.into_iter().zip(wanted).map(|(found, (key, _))| {
            Ok(found.map(|(object, bytes)| match bytes {
                Some(bytes) => Opened::held(bytes, &object, key),
                None => Opened::object(objects.pin(object.clone()), &object, key),
            }))
        });
        Ok(Box::new(read))
    }

    /// Small texts that may lie beside the data; `None` where there is none.
    pub fn small_texts(&self, keys: &[String]) -> Result<Vec<Option<String>>> {
        const MOST: u64 = 64 << 20;
        let text = |opened: Option<Opened>| {
            let opened = opened.filter(|opened| opened.validator.bytes <= MOST)?;
            let mut bytes = Vec::new();
            opened.read_all(&mut bytes).ok()?;
            String::from_utf8(bytes).ok()
        };
        let opened = self.each(keys.iter().map(|key| (key.as_str(), None)).collect())?;
        opened.map(|opened| Ok(text(opened?))).collect()
    }

    /// What an entry is known by under the source's mode.
    pub fn identity(&self, validator: &Validator, digest: Digest) -> Identity {
        match (self.mode, &validator.state) {
            (IdentityMode::Stat, State::File { modified_ns, .. }) => Identity::Stat {
                root: format!("file://{}", self.path.display()),
                bytes: validator.bytes,
                modified_ns: *modified_ns,
            },
            (IdentityMode::Etag, State::Object(Version::Etag(etag))) => {
                Identity::Etag { etag: etag.clone(), bytes: validator.bytes }
            }
            // What the mode can't tell was refused when it was listed.
            _ => Identity::Content(digest),
        }
    }

    /// Whether the bytes just read from `opened` are what `identity` stands for. `digest` is asked for only where it counts.
    pub fn check(&self, opened: &Opened, identity: &Identity, digest: impl FnOnce() -> Digest) -> Result<()> {
        let same = match identity {
            Identity::Content(keyed) => *keyed == digest(),
            Identity::Stat { bytes, modified_ns: keyed, .. } => {
                opened.unchanged()?;
                let Validator { bytes: found, state } = &opened.validator;
                bytes == found && matches!(state, State::File { modified_ns, .. } if modified_ns == keyed)
            }
            Identity::Etag { etag: keyed, bytes } => {
                let Validator { bytes: found, state } = &opened.validator;
                bytes == found && matches!(state, State::Object(Version::Etag(etag)) if etag == keyed)
            }
            Identity::Row(_) | Identity::Absent => false,
        };
        if same { Ok(()) } else { Err(changed(opened.key())) }
    }

    /// Allows partial reads of a file: its validator stands for the keyed digest, or the file is hashed now. The caller
    /// brackets each read with `Opened::unchanged`.
    pub fn trust(&self, opened: &Opened, identity: &Identity) -> Result<()> {
        let keyed = match identity {
            Identity::Content(digest) => digest,
            other => return self.check(opened, other, || Digest::of(b"")),
        };
        let known = self.whole(|cache| Some(cache.get(opened.key(), &opened.validator)?.first()?.digest));
        let digest = match known {
            Some(digest) => digest,
            None => {
                let began = now_ns();
                let digest = opened.digest(|_| ())?;
                opened.unchanged()?;
                if opened.validator.settled(began) {
                    let part = whole(&opened.validator, digest);
                    self.whole(|cache| cache.add(opened.key(), opened.validator.clone(), vec![part]));
                }
                digest
            }
        };
        if digest == *keyed { Ok(()) } else { Err(changed(opened.key())) }
    }

    /// Keeps the digests of listed files that will be read in part, so that no reader has to hash them.
    pub fn know<'a>(&self, files: impl Iterator<Item = (&'a Found, &'a Scanned)>) {
        if !self.hashes() {
            return;
        }
        let digest = |(file, scanned): (&Found, &Scanned)| {
            let part = whole(&scanned.validator, scanned.parts.first().filter(|_| scanned.settled)?.digest);
            Some((file.key.clone(), (scanned.validator.clone(), vec![part])))
        };
        self.whole(|cache| cache.replace(files.filter_map(digest).collect()));
    }

    fn whole<T>(&self, body: impl FnOnce(&mut Cache) -> T) -> T {
        let mut cache = self.whole.lock().unwrap_or_else(PoisonError::into_inner);
        body(cache.get_or_insert_with(|| self.open_cache("digests")))
    }

    fn open_cache(&self, reader: &str) -> Cache {
        let source = format!("{}\0{:?}\0{:?}\0{reader}", self.shown(), self.patterns.written, self.mode);
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
                    return Ok(Scanned { validator: file.validator.clone(), parts: parts.to_vec(), settled: true });
                }
                for attempt in 0..TRIES {
                    let began = now_ns();
                    let opened = match &self.place {
                        Place::Bucket(objects) if attempt == 0 => self.pin(objects, &file.key, &file.validator)?,
                        _ => self.open(&file.key)?,
                    };
                    let parts = index(&opened, &meter);
                    let moved = parts.as_ref().is_err_and(|e| e.kind() == Kind::Conflict);
                    if moved || opened.unchanged().is_err() {
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
            cache.save(settled.map(|(f, s)| (f.key.as_str(), &s.validator, s.parts.as_slice())));
        }
        let hashed = if self.hashes() { hashed } else { 0 };
        Ok((scanned, hashed))
    }

    /// `scan` for files that are each one part. Only under `content` any is opened.
    pub fn scan_whole(&self, found: &[Found], options: &ListOptions) -> Result<(Vec<Scanned>, u64)> {
        if !self.hashes() {
            let scanned = found.iter().map(|f| Scanned {
                validator: f.validator.clone(),
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

/// Of a file; directories and pipes are none, and a name that no file can have is none's.
fn metadata(path: &Path) -> Result<Option<std::fs::Metadata>> {
    match std::fs::metadata(path) {
        Ok(metadata) => Ok(Some(metadata).filter(std::fs::Metadata::is_file)),
        Err(e) if is_none(&e) => Ok(None),
        Err(e) => Err(Error::io(format!("cannot look at {}", path.display()), e)),
    }
}

fn is_none(error: &std::io::Error) -> bool {
    use std::io::ErrorKind::{InvalidFilename, NotADirectory, NotFound};
    matches!(error.kind(), NotFound | NotADirectory | InvalidFilename)
}

/// The file that holds an entry.
pub(super) fn file_of(entry: &Entry) -> &str {
    entry.file.as_deref().unwrap_or(&entry.key)
}

/// The ranges of the entries that come next, as far as they lie in a file, and up to `MOST_AHEAD` bytes.
pub(super) fn ranges_of<'a>(next: impl Iterator<Item = &'a Entry>, file: &str) -> Vec<Range<u64>> {
    let mut bytes = 0;
    next.take_while(|entry| file_of(entry) == file)
        .map_while(|entry| match entry.range {
            Some(entry::Range::Bytes { start, end }) => Some(start..end),
            _ => None,
        })
        .take_while(|range| {
            let first = bytes == 0;
            bytes += range.end.saturating_sub(range.start);
            first || bytes <= MOST_AHEAD
        })
        .collect()
}
