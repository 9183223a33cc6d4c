//! Level 2: bytes by name. The only module that touches storage: publish atomically, map, list, spool.

use crate::error::Result;
use arrow::buffer::Buffer;
use std::path::{Path, PathBuf};

/// A place that holds objects by name (`v1/blobs/ab/…`): today a local directory.
#[derive(Debug, Clone)]
pub struct Storage {
    _root: PathBuf,
}

/// What became of a conditional put.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Put {
    Created,
    /// An object of that name was there and was left as it is; its length in bytes.
    Exists {
        bytes: u64,
    },
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Object {
    pub name: String,
    pub bytes: u64,
    /// Milliseconds since 1970, by the store's clock.
    pub modified_ms: i64,
}

/// Bounded local space for bytes whose digest is not known yet; unnamed where the file system can (`O_TMPFILE`), gone
/// with its handle.
#[derive(Debug)]
pub struct Spool {
    _todo: (),
}

impl std::io::Write for Spool {
    fn write(&mut self, _bytes: &[u8]) -> std::io::Result<usize> {
        unimplemented!()
    }
    fn flush(&mut self) -> std::io::Result<()> {
        unimplemented!()
    }
}

impl Storage {
    /// A path or `file://` URL; other schemes are refused by name. Creates nothing.
    pub fn open(_url: &str) -> Result<Self> {
        unimplemented!()
    }
    pub fn spool(&self) -> Result<Spool> {
        unimplemented!()
    }
    /// Publishes a spool under `name`: synced, then visible at once and whole. `replace`: over what is there.
    pub fn publish(&self, _spool: Spool, _name: &str, _replace: bool) -> Result<Put> {
        unimplemented!()
    }
    pub fn put(&self, _bytes: &[u8], _name: &str, _replace: bool) -> Result<Put> {
        unimplemented!()
    }
    /// A small object whole, refused above `limit` bytes; `None` where there is none.
    pub fn get(&self, _name: &str, _limit: u64) -> Result<Option<Vec<u8>>> {
        unimplemented!()
    }
    /// The whole object mapped read-only; `Corrupt` unless its length is `bytes`; `NotFound` where there is none.
    pub fn map(&self, _name: &str, _bytes: u64) -> Result<Buffer> {
        unimplemented!()
    }
    /// Objects whose names begin with the directory `prefix`, recursively, sorted by name.
    pub fn list(&self, _prefix: &str) -> Result<Vec<Object>> {
        unimplemented!()
    }
    /// Names of the directories directly below `prefix`, sorted.
    pub fn list_directories(&self, _prefix: &str) -> Result<Vec<String>> {
        unimplemented!()
    }
    pub fn delete(&self, _name: &str) -> Result<()> {
        unimplemented!()
    }
    /// Free bytes, where that can be known.
    pub fn free_bytes(&self) -> Option<u64> {
        unimplemented!()
    }
    /// The directory, where objects are local files.
    pub fn local_path(&self) -> Option<&Path> {
        unimplemented!()
    }
}
