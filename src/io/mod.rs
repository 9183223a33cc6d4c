//! Level 2: bytes by name. The only module that touches storage: publish atomically, map, list, spool. `address` says what
//! a URL means and `access` what reaching it takes. `local` is a directory as storage, `remote` a bucket, `temporary` how
//! bytes come to a local name whole, `spool` where they wait for their digest, `tier` where those of remote stores are kept, `failure` what to say when the system refuses,
//! `map` the one place with `unsafe`, and `small` reads files that people write. What the names mean is `store`'s business.

mod access;
mod address;
mod failure;
mod local;
mod map;
mod remote;
mod small;
mod spool;
mod temporary;
mod tier;

use crate::error::{Error, Result};
use crate::format::shard::PartBytes;
pub use access::Access;
use address::Address;
pub use address::bucket_and_rest;
use arrow::buffer::Buffer;
use bytes::Bytes;
use local::Local;
use object_store::ObjectStore;
use remote::Remote;
pub use remote::{Listed, Objects, Pinned, Stream, Version, Wanted};
pub use small::{open_regular, read_small, read_small_text, utf8};
pub use spool::Spool;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
pub use tier::TierOptions;

/// A place that holds objects by name (`v1/blobs/ab/…`): a local directory, or a bucket below a prefix. Cheap to clone.
///
/// A name consists of components separated by `/`; none is empty, `.`, `..` or begins with `.tmp-`. Symbolic links that
/// the owner of the directory put there are followed, so that parts of a store may lie on other disks.
#[derive(Debug, Clone)]
pub struct Storage {
    place: Place,
}

#[derive(Debug, Clone)]
enum Place {
    Local(Arc<Local>),
    Remote(Arc<Remote>),
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
    /// A path, a `file://` URL, or `s3://bucket/prefix` and, where they are built, `gs://` and `az://`; other schemes are refused by
    /// name. Creates nothing and asks no service.
    pub fn open(url: &str, access: &Access) -> Result<Self> {
        let place = match Address::parse(url)? {
            Address::Directory(root) => {
                let root = std::path::absolute(&root).map_err(|e| failure::failure("find", &root, e))?;
                Place::Local(Arc::new(Local::new(root)))
            }
            Address::Bucket { url, service, bucket, prefix } => {
                Place::Remote(Arc::new(Remote::connect(url, service, &bucket, prefix, access)?))
            }
        };
        Ok(Storage { place })
    }

    /// Over any service, such as a memory or one that fails on purpose; `url` is for messages.
    pub fn over(objects: Arc<dyn ObjectStore>, url: &str, access: &Access) -> Self {
        Storage { place: Place::Remote(Arc::new(Remote::over(objects, url.to_owned(), String::new(), access))) }
    }

    /// Local space for an object whose name isn't known yet.
    pub fn spool(&self) -> Result<Spool> {
        Ok(match &self.place {
            Place::Local(local) => Spool::new(local.temporary()?, true),
            Place::Remote(remote) => Spool::new(remote.temporary()?, false),
        })
    }

    /// Publishes a spool under `name`: synced, then visible at once and whole. `replace`: over what is there.
    pub fn publish(&self, spool: Spool, name: &str, replace: bool) -> Result<Put> {
        let bytes = spool.bytes();
        let temporary = spool.finish()?;
        match &self.place {
            Place::Local(local) => local.publish(temporary, &path(local, name)?, replace),
            Place::Remote(remote) => remote.publish(&temporary, bytes, checked(name)?, replace),
        }
    }

    pub fn put(&self, bytes: &[u8], name: &str, replace: bool) -> Result<Put> {
        match &self.place {
            Place::Local(local) => local.put(bytes, &path(local, name)?, replace),
            Place::Remote(remote) => remote.put(Bytes::copy_from_slice(bytes), checked(name)?, replace),
        }
    }

    /// A small object whole, refused above `limit` bytes; `None` where there is none.
    pub fn get(&self, name: &str, limit: u64) -> Result<Option<Vec<u8>>> {
        match &self.place {
            Place::Local(local) => local.get(&path(local, name)?, limit),
            Place::Remote(remote) => remote.get(checked(name)?, limit),
        }
    }

    /// The length of an object in bytes; `None` where there is none.
    pub fn bytes(&self, name: &str) -> Result<Option<u64>> {
        Ok(self.stat(name)?.map(|object| object.bytes))
    }

    /// What a list says of an object; `None` where there is none.
    pub fn stat(&self, name: &str) -> Result<Option<Object>> {
        match &self.place {
            Place::Local(local) => local.stat(name, &path(local, name)?),
            Place::Remote(remote) => remote.stat(checked(name)?),
        }
    }

    /// An object to be read from its beginning; `None` where there is none. Unlike a mapping, it survives a disk that fails:
    /// that is an error which says so.
    pub fn reader(&self, name: &str) -> Result<Option<Box<dyn Read + Send>>> {
        Ok(match &self.place {
            Place::Local(local) => local.reader(&path(local, name)?)?.map(|reader| Box::new(reader) as _),
            Place::Remote(remote) => remote.reader(checked(name)?)?.map(|reader| Box::new(reader) as _),
        })
    }

    /// The whole object mapped read-only; `Corrupt` unless its length is `bytes`; `NotFound` where there is none.
    pub fn map(&self, name: &str, bytes: u64) -> Result<Buffer> {
        match &self.place {
            Place::Local(local) => local.map(&path(local, name)?, bytes),
            Place::Remote(remote) => remote.map(checked(name)?, bytes),
        }
    }

    /// As `map`, but what a service holds is fetched range by range, when it is asked for, and may be kept on local disk.
    /// Such a name holds the bytes' digest: what has the same name in other stores has the same bytes.
    pub fn part(&self, name: &str, bytes: u64) -> Result<PartBytes> {
        match &self.place {
            Place::Local(local) => Ok(local.map(&path(local, name)?, bytes)?.into()),
            Place::Remote(remote) => Ok(PartBytes::Fetched(Arc::new(remote.part(checked(name)?, bytes)))),
        }
    }

    /// Objects whose names begin with the directory `prefix` (empty: all), recursively, sorted by name. A prefix that
    /// isn't there has none; whatever else prevents a complete list is an error.
    pub fn list(&self, prefix: &str) -> Result<Vec<Object>> {
        let local = match &self.place {
            Place::Local(local) => local,
            Place::Remote(remote) => return remote.list(checked_directory(prefix)?),
        };
        let mut found = Vec::new();
        local.walk(&directory(local, prefix)?, prefix, &mut |object, _| {
            found.push(object);
            Ok(())
        })?;
        found.sort_unstable_by(|a, b| a.name.cmp(&b.name));
        Ok(found)
    }

    /// Names of the directories directly below `prefix` (empty: the root), sorted.
    pub fn list_directories(&self, prefix: &str) -> Result<Vec<String>> {
        match &self.place {
            Place::Local(local) => children(local, prefix, |metadata| metadata.is_dir()),
            Place::Remote(remote) => remote.children(checked_directory(prefix)?, true),
        }
    }

    /// Names of the files directly below `prefix` (empty: the root), sorted.
    pub fn list_files(&self, prefix: &str) -> Result<Vec<String>> {
        match &self.place {
            Place::Local(local) => children(local, prefix, |metadata| metadata.is_file()),
            Place::Remote(remote) => remote.children(checked_directory(prefix)?, false),
        }
    }

    /// Names below `prefix` at which something other than a file stands, recursively, sorted: directories, pipes, links
    /// that lead nowhere. None of them is an object; whatever is published there takes their place. A bucket has none.
    pub fn list_no_files(&self, prefix: &str) -> Result<Vec<String>> {
        let Place::Local(local) = &self.place else { return Ok(Vec::new()) };
        let mut names = local.no_files(&directory(local, prefix)?, prefix)?;
        names.sort_unstable();
        Ok(names)
    }

    /// Removes an object, or what stands in its place; one that isn't there is no error. A directory that holds something
    /// is moved aside. Not synced: what a power cut brings back is found again.
    pub fn delete(&self, name: &str) -> Result<()> {
        match &self.place {
            Place::Local(local) => local.delete(&path(local, name)?),
            Place::Remote(remote) => remote.delete(checked(name)?),
        }
    }

    /// Removes temporary files that a killed process left, where the file system has no unnamed files, once nothing was
    /// written to them for `age`. They are in nobody's way and in no list. Returns how many.
    pub fn sweep(&self, age: Duration) -> Result<u64> {
        match &self.place {
            Place::Local(local) => local.sweep(age),
            Place::Remote(remote) => remote.sweep(age),
        }
    }

    /// The store's clock, in milliseconds since 1970: that of the machine which stamps the files.
    pub fn now_ms(&self) -> Result<i64> {
        match &self.place {
            Place::Local(local) => local.now_ms(),
            Place::Remote(remote) => remote.now_ms(),
        }
    }

    /// How long a request may take, with all that it is tried again, before it fails.
    pub fn longest_request(&self) -> Duration {
        match &self.place {
            Place::Local(_) => Duration::from_secs(3),
            Place::Remote(remote) => remote.longest_request(),
        }
    }

    /// Removes the directories below `prefix` that hold nothing. A bucket has none.
    pub fn prune(&self, prefix: &str) -> Result<()> {
        match &self.place {
            Place::Local(local) => local.prune(&directory(local, prefix)?),
            Place::Remote(_) => Ok(()),
        }
    }

    /// Free bytes, where that can be known.
    pub fn free_bytes(&self) -> Option<u64> {
        match &self.place {
            Place::Local(local) => local.free_bytes(),
            Place::Remote(_) => None,
        }
    }

    /// The directory, where objects are local files.
    pub fn local_path(&self) -> Option<&Path> {
        match &self.place {
            Place::Local(local) => Some(local.root()),
            Place::Remote(_) => None,
        }
    }

    /// Where objects are for other programs: a path or URL that an object's name is appended to behind a `/`.
    pub fn location(&self) -> String {
        match &self.place {
            Place::Local(local) => local.root().to_string_lossy().into_owned(),
            Place::Remote(remote) => remote.url().to_owned(),
        }
    }
}

fn children(local: &Local, prefix: &str, keep: fn(&std::fs::Metadata) -> bool) -> Result<Vec<String>> {
    let children = local.children(&directory(local, prefix)?)?;
    let kept = children
        .into_iter()
        .filter(|(name, metadata)| metadata.as_ref().is_some_and(keep) && !name.starts_with(temporary::PREFIX));
    let mut names: Vec<String> = kept.map(|(name, _)| name).collect();
    names.sort_unstable();
    Ok(names)
}

fn path(local: &Local, name: &str) -> Result<PathBuf> {
    Ok(local.root().join(checked(name)?))
}

fn directory(local: &Local, prefix: &str) -> Result<PathBuf> {
    if prefix.is_empty() { Ok(local.root().to_owned()) } else { path(local, prefix) }
}

fn checked_directory(prefix: &str) -> Result<&str> {
    if prefix.is_empty() { Ok(prefix) } else { checked(prefix) }
}

/// A name that stays below the root and is no temporary file's.
fn checked(name: &str) -> Result<&str> {
    let problem = name.split('/').find_map(|part| match part {
        "" => Some("an empty component"),
        "." | ".." => Some("a component that leads elsewhere"),
        _ if part.starts_with(temporary::PREFIX) => Some("a component that is kept for temporary files"),
        _ if part.contains('\0') => Some("a NUL byte"),
        _ => None,
    });
    match problem {
        None => Ok(name),
        Some(problem) => Err(Error::invalid(format!("{name:?} can't name an object: it has {problem}"))),
    }
}

#[cfg(test)]
mod tests;
