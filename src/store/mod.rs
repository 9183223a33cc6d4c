//! Level 5: the catalog over `io`: publish, fetch and verify blobs, records, heads and manifests. What each object is
//! called stands in `format::name`, what it holds in `format::head`, `record` and `table`; `formats/store.md` specifies both.
//!
//! Nothing here locks; what a process says of itself (`lease`) dies with it. A document is published by a conditional put; who comes second reads what is there and
//! adopts it if it is sound. Only what is proved bad is overwritten.

mod blobs;
pub mod copy;
pub mod gc;
mod heads;
pub mod holdings;
mod kept;
mod lease;
mod pins;
mod reach;
mod records;
mod usage;
pub mod verify;

use crate::error::{Error, Kind, Result};
use crate::format::VERSION;
use crate::format::document::Document;
use crate::format::name::{self, Name};
use crate::io::{Access, Put, Spool, Storage};
use std::sync::Arc;

pub use kept::Pace;
pub use lease::Uses;
pub use records::shard_row;
pub use usage::{StageUsage, Usage};

/// A store: see `formats/store.md`. Cheap to clone; shared between threads.
#[derive(Debug, Clone)]
pub struct Store {
    storage: Storage,
    /// What this process said that it uses, if it did.
    lease: Option<Arc<lease::Lease>>,
}

/// A document that can tell whether a name is its own.
trait Placed: Document + Clone + PartialEq {
    /// `bytes` are those that were read under the name.
    fn is_at(&self, name: &Name, bytes: &[u8]) -> bool;
}

/// How often a document that comes and goes while it is being published is tried again.
const ATTEMPTS: u32 = 8;

impl Store {
    /// Opens a store; a directory that isn't there is an empty store, made at the first write. A newer `vN/` is refused by name.
    pub fn open(url: &str, access: &Access) -> Result<Self> {
        Self::over(Storage::open(url, access)?)
    }

    /// A store in any storage.
    pub fn over(storage: Storage) -> Result<Self> {
        let store = Store { storage, lease: None };
        let url = store.storage.location();
        let directories = store.storage.list_directories("")?;
        let version = |name: &String| name.strip_prefix('v').and_then(|digits| digits.parse::<u32>().ok());
        if let Some(newer) = directories.iter().find(|d| version(d).is_some_and(|v| v > VERSION)) {
            return Err(Error::invalid(format!(
                "the store {url} was written by a newer Forebay: it holds {newer}/, this one reads up to {}/; use the newer one",
                name::ROOT
            )));
        }
        if !directories.iter().any(|d| d == name::ROOT) {
            // Hidden files are of no one's data; lost+found is the file system's.
            let mut others = directories.into_iter().chain(store.storage.list_files("")?);
            if let Some(other) = others.find(|o| !o.starts_with('.') && o != "lost+found") {
                return Err(Error::invalid(format!(
                    "{url} is no store: it holds {other:?}, expected a directory that is empty, not there yet, or holds {}/; \
                     give another, such as one named .forebay",
                    name::ROOT
                )));
            }
        }
        Ok(store)
    }

    /// Whether there is a store to be looked at: a directory, or anything under a bucket's prefix.
    pub fn is_there(&self) -> Result<bool> {
        match self.storage.local_path() {
            Some(path) => Ok(path.is_dir()),
            None => Ok(self.storage.list_directories("")?.iter().any(|directory| directory == name::ROOT)),
        }
    }

    pub fn storage(&self) -> &Storage {
        &self.storage
    }

    pub fn spool(&self) -> Result<Spool> {
        self.storage.spool()
    }

    /// The document of this name, checked and proved to belong there; `None` where there is none.
    fn read<T: Placed>(&self, name: &Name) -> Result<Option<T>> {
        self.document(name).map_err(|e| unusable(e, name))
    }

    /// As `read`, with the bare reason for an error.
    fn document<T: Placed>(&self, name: &Name) -> Result<Option<T>> {
        let object = name.to_string();
        if self.is_doomed(&object)? {
            return Ok(None);
        }
        let Some(bytes) = self.storage.get(&object, T::MAX_BYTES)? else { return Ok(None) };
        let document = T::from_json(&bytes)?;
        if !document.is_at(name, &bytes) {
            return Err(Error::corrupt(format!("this {} belongs elsewhere", T::WHAT)));
        }
        Ok(Some(document))
    }

    /// Publishes a document and returns the one in force. One that is there stays if it is equal or `keep` says so; else,
    /// or if it is corrupt, it is replaced.
    fn put<T: Placed>(&self, name: &Name, document: &T, keep: impl Fn(&T) -> Result<bool>) -> Result<T> {
        let object = name.to_string();
        document.check().map_err(|e| e.during(format!("cannot publish {object}")))?;
        let bytes = document.to_json();
        if bytes.len() as u64 > T::MAX_BYTES {
            return Err(Error::invalid(format!(
                "cannot publish {object}: the {} has {} bytes, at most {} can be read back",
                T::WHAT,
                bytes.len(),
                T::MAX_BYTES
            )));
        }
        self.await_clear(&object)?;
        for _ in 0..ATTEMPTS {
            if self.storage.put(&bytes, &object, false)? == Put::Created {
                return Ok(document.clone());
            }
            match self.read::<T>(name) {
                Ok(Some(found)) if found == *document || keep(&found)? => return Ok(found),
                Ok(Some(_)) => {}
                // Removed since.
                Ok(None) => continue,
                Err(error) if error.kind() == Kind::Corrupt => {}
                Err(error) => return Err(error),
            }
            self.storage.put(&bytes, &object, true)?;
            return Ok(document.clone());
        }
        Err(Error::unavailable(format!("{object} comes and goes while it is being published: try again")))
    }
}

/// Which object is to blame, and for one that is damaged or gone the way out.
fn unusable(error: Error, name: &Name) -> Error {
    match error.kind() {
        Kind::Corrupt | Kind::NotFound => error.during(format!(
            "cannot use {name}, which is damaged or gone (run `forebay verify --repair`, then `forebay materialize`)"
        )),
        Kind::Invalid if !error.is_refused() => error.during(format!("cannot use {name}")),
        _ => error,
    }
}
