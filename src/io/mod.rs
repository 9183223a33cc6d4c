//! Level 2: bytes by name. The only module that touches storage: publish atomically, map, list, spool. `local` is a
//! directory as storage, `temporary` how bytes come to a name whole, `spool` where they wait for it, `failure` what to
//! say when the system refuses, `map` the one place with `unsafe`, and `small` reads files that people write. What the names mean is `store`'s business.

mod failure;
mod local;
mod map;
mod small;
mod spool;
mod temporary;

use crate::error::{Error, Result};
use arrow::buffer::Buffer;
use local::Local;
pub use small::{open_regular, read_small, read_small_text, utf8};
pub use spool::Spool;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// A place that holds objects by name (`v1/blobs/ab/…`): today a local directory. Cheap to clone.
///
/// A name consists of components separated by `/`; none is empty, `.`, `..` or begins with `.tmp-`. Symbolic links that
/// the owner of the directory put there are followed, so that parts of a store may lie on other disks.
#[derive(Debug, Clone)]
pub struct Storage {
    local: Arc<Local>,
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

impl Storage {
    /// A path or `file://` URL; other schemes are refused by name. Creates nothing.
    pub fn open(url: &str) -> Result<Self> {
        let root = root(url)?;
        let root = std::path::absolute(&root).map_err(|e| failure::failure("find", &root, e))?;
        Ok(Storage { local: Arc::new(Local::new(root)) })
    }

    pub fn spool(&self) -> Result<Spool> {
        Ok(Spool::new(self.local.temporary()?))
    }

    /// Publishes a spool under `name`: synced, then visible at once and whole. `replace`: over what is there.
    pub fn publish(&self, spool: Spool, name: &str, replace: bool) -> Result<Put> {
        let temporary = spool.finish()?;
        self.local.publish(temporary, &self.path(name)?, replace)
    }

    pub fn put(&self, bytes: &[u8], name: &str, replace: bool) -> Result<Put> {
        self.local.put(bytes, &self.path(name)?, replace)
    }

    /// A small object whole, refused above `limit` bytes; `None` where there is none.
    pub fn get(&self, name: &str, limit: u64) -> Result<Option<Vec<u8>>> {
        self.local.get(&self.path(name)?, limit)
    }

    /// The length of an object in bytes; `None` where there is none.
    pub fn bytes(&self, name: &str) -> Result<Option<u64>> {
        self.local.bytes(&self.path(name)?)
    }

    /// An object to be read from its beginning; `None` where there is none. Unlike a mapping, it survives a disk that fails:
    /// that is an error which says so.
    pub fn reader(&self, name: &str) -> Result<Option<impl io::Read + use<>>> {
        self.local.reader(&self.path(name)?)
    }

    /// The whole object mapped read-only; `Corrupt` unless its length is `bytes`; `NotFound` where there is none.
    pub fn map(&self, name: &str, bytes: u64) -> Result<Buffer> {
        self.local.map(&self.path(name)?, bytes)
    }

    /// Objects whose names begin with the directory `prefix` (empty: all), recursively, sorted by name. A prefix that
    /// isn't there has none; whatever else prevents a complete list is an error.
    pub fn list(&self, prefix: &str) -> Result<Vec<Object>> {
        let mut found = Vec::new();
        self.local.walk(&self.directory(prefix)?, prefix, &mut |object, _| {
            found.push(object);
            Ok(())
        })?;
        found.sort_unstable_by(|a, b| a.name.cmp(&b.name));
        Ok(found)
    }

    /// Names of the directories directly below `prefix` (empty: the root), sorted.
    pub fn list_directories(&self, prefix: &str) -> Result<Vec<String>> {
        self.children(prefix, |metadata| metadata.is_dir())
    }

    /// Names of the files directly below `prefix` (empty: the root), sorted.
    pub fn list_files(&self, prefix: &str) -> Result<Vec<String>> {
        self.children(prefix, |metadata| metadata.is_file())
    }

    /// Names below `prefix` at which something other than a file stands, recursively, sorted: directories, pipes, links
    /// that lead nowhere. None of them is an object; whatever is published there takes their place.
    pub fn list_no_files(&self, prefix: &str) -> Result<Vec<String>> {
        let mut names = self.local.no_files(&self.directory(prefix)?, prefix)?;
        names.sort_unstable();
        Ok(names)
    }

    fn children(&self, prefix: &str, keep: fn(&std::fs::Metadata) -> bool) -> Result<Vec<String>> {
        let children = self.local.children(&self.directory(prefix)?)?;
        let kept = children
            .into_iter()
            .filter(|(name, metadata)| metadata.as_ref().is_some_and(keep) && !name.starts_with(temporary::PREFIX));
        let mut names: Vec<String> = kept.map(|(name, _)| name).collect();
        names.sort_unstable();
        Ok(names)
    }

    /// Removes an object, or what stands in its place; one that isn't there is no error. A directory that holds something
    /// is moved aside. Not synced: what a power cut brings back is found again.
    pub fn delete(&self, name: &str) -> Result<()> {
        self.local.delete(&self.path(name)?)
    }

    /// Removes temporary files that a killed process left, where the file system has no unnamed files, once nothing was
    /// written to them for `age`. They are in nobody's way and in no list. Returns how many.
    pub fn sweep(&self, age: Duration) -> Result<u64> {
        self.local.sweep(age)
    }

    /// The store's clock, in milliseconds since 1970: that of the machine which stamps the files.
    pub fn now_ms(&self) -> Result<i64> {
        self.local.now_ms()
    }

    /// Free bytes, where that can be known.
    pub fn free_bytes(&self) -> Option<u64> {
        self.local.free_bytes()
    }

    /// The directory, where objects are local files.
    pub fn local_path(&self) -> Option<&Path> {
        Some(self.local.root())
    }

    fn path(&self, name: &str) -> Result<PathBuf> {
        let problem = name.split('/').find_map(|part| match part {
            "" => Some("an empty component"),
            "." | ".." => Some("a component that leads elsewhere"),
            _ if part.starts_with(temporary::PREFIX) => Some("a component that is kept for temporary files"),
            _ if part.contains('\0') => Some("a NUL byte"),
            _ => None,
        });
        match problem {
            None => Ok(self.local.root().join(name)),
            Some(problem) => Err(Error::invalid(format!("{name:?} can't name an object: it has {problem}"))),
        }
    }

    fn directory(&self, prefix: &str) -> Result<PathBuf> {
        if prefix.is_empty() { Ok(self.local.root().to_owned()) } else { self.path(prefix) }
    }
}

/// The directory that a URL or path means.
fn root(url: &str) -> Result<PathBuf> {
    let scheme = url.split_once("://").filter(|(scheme, _)| {
        scheme.starts_with(|c: char| c.is_ascii_alphabetic())
            && scheme.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'+' | b'-' | b'.'))
    });
    let path = match scheme {
        None => url.to_owned(),
        Some(("file", rest)) => {
            let path = rest.strip_prefix("localhost").unwrap_or(rest);
            path.starts_with('/').then(|| percent_decoded(path)).flatten().ok_or_else(|| {
                Error::invalid(format!("{url:?} is no file URL; expected file:///absolute/path, or the path alone"))
            })?
        }
        Some((scheme, _)) => {
            return Err(Error::invalid(format!(
                "a store under {scheme}:// ({url:?}) is not built yet; expected a local directory or file:///path"
            )));
        }
    };
    if path.is_empty() || path.contains('\0') {
        return Err(Error::invalid(format!("{url:?} can't name a store; expected a directory")));
    }
    Ok(PathBuf::from(path))
}

fn percent_decoded(text: &str) -> Option<String> {
    let mut parts = text.split('%');
    let mut bytes = parts.next()?.as_bytes().to_vec();
    for part in parts {
        let hex = part.get(..2).filter(|hex| hex.bytes().all(|b| b.is_ascii_hexdigit()))?;
        bytes.push(u8::from_str_radix(hex, 16).ok()?);
        bytes.extend_from_slice(part.get(2..)?.as_bytes());
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests;
