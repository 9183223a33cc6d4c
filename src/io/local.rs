//! A local directory as storage. Names were checked by `io`; here they are paths below the root.

use super::failure::failure;
use super::temporary::{Means, PREFIX, Temporary, aside};
use super::{Object, Put, map};
use crate::error::{Error, Result};
use arrow::buffer::Buffer;
use rustix::fs::OFlags;
use rustix::io::Errno;
use std::collections::HashSet;
use std::fs::{self, File, Metadata, OpenOptions};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime};

#[derive(Debug)]
pub(super) struct Local {
    root: PathBuf,
    means: Means,
    /// Directories whose own entry this process has seen on disk.
    durable: Mutex<HashSet<PathBuf>>,
}

/// Called with a name, its path, and what is there, if it isn't a link that leads nowhere.
type Each<'a> = dyn FnMut(&str, &Path, Option<&Metadata>) -> Result<()> + 'a;

/// Deeper than any object lies: a link that leads round in circles.
const MAX_DEPTH: usize = 32;

impl Local {
    pub fn new(root: PathBuf) -> Self {
        Self::with_means(root, Means::ALL)
    }

    pub fn with_means(root: PathBuf, means: Means) -> Self {
        Local { root, means, durable: Mutex::default() }
    }

    pub fn root(&self) -> &Path {
        &self.root
    }

    /// A temporary file in the root, so that it can be linked or renamed to any name below.
    pub fn temporary(&self) -> Result<Temporary> {
        self.temporary_in(&self.root)
    }

    fn temporary_in(&self, directory: &Path) -> Result<Temporary> {
        self.make_directory(directory).map_err(|e| failure("make the directory", directory, e))?;
        Temporary::new(directory, self.means).map_err(|e| failure("make a file in", directory, e))
    }

    pub fn put(&self, bytes: &[u8], path: &Path, replace: bool) -> Result<Put> {
        let replace = replace || is_no_object(path);
        if !replace && let Some(found) = self.bytes(path)? {
            return self.exists(found, parent(path)?);
        }
        let mut temporary = self.temporary_in(parent(path)?)?;
        temporary.write_all(bytes).map_err(|e| failure("write", path, e))?;
        self.publish(temporary, path, replace)
    }

    /// The file reaches the disk before its name does, and the name before the caller hears of it: what is published
    /// later, on the strength of this, can't survive a power cut without it. What stands there and is no object makes way.
    pub fn publish(&self, mut temporary: Temporary, path: &Path, replace: bool) -> Result<Put> {
        let directory = parent(path)?;
        let replace = replace || is_no_object(path);
        if !replace && let Some(found) = self.bytes(path)? {
            return self.exists(found, directory);
        }
        temporary.file().sync_all().map_err(|e| failure("write", path, e))?;
        self.make_directory(directory).map_err(|e| failure("make the directory", directory, e))?;
        if replace {
            clear_directory(path).map_err(|e| failure("move aside the directory", path, e))?;
        }
        let mut place = || match temporary.place(path, replace, self.means) {
            // It was empty, and was pruned just now.
            Err(error) if error.kind() == ErrorKind::NotFound => {
                self.make_directory(directory)?;
                temporary.place(path, replace, self.means)
            }
            result => result,
        };
        if place().map_err(|e| failure("publish", path, e))? {
            sync_directory(directory).map_err(|e| failure("write the directory", directory, e))?;
            return Ok(Put::Created);
        }
        match self.bytes(path)? {
            Some(bytes) => self.exists(bytes, directory),
            None => Err(Error::unavailable(format!(
                "{} was removed while it was being published: try again",
                path.display()
            ))),
        }
    }

    /// Whoever published it may not have synced its name yet.
    fn exists(&self, bytes: u64, directory: &Path) -> Result<Put> {
        sync_directory(directory).map_err(|e| failure("write the directory", directory, e))?;
        Ok(Put::Exists { bytes })
    }

    /// Makes a directory and what is missing above it. Within the root the entries of all of them are synced, whoever made
    /// them, once per process.
    fn make_directory(&self, directory: &Path) -> io::Result<()> {
        const ATTEMPTS: usize = 100;
        for _ in 1..ATTEMPTS {
            match self.try_directory(directory) {
                // One above it was empty, and was pruned just now.
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                result => return result,
            }
        }
        self.try_directory(directory)
    }

    fn try_directory(&self, directory: &Path) -> io::Result<()> {
        if self.durable().contains(directory) && directory.is_dir() {
            return Ok(());
        }
        let parent = parent_of(directory)?;
        let below_root = directory != self.root && directory.starts_with(&self.root);
        if below_root {
            self.try_directory(parent)?;
        }
        let made = match fs::create_dir(directory) {
            Ok(()) => true,
            Err(error) if error.kind() == ErrorKind::NotFound && !below_root => {
                self.try_directory(parent)?;
                fs::create_dir(directory).or_else(|e| if directory.is_dir() { Ok(()) } else { Err(e) })?;
                true
            }
            Err(error) if error.kind() == ErrorKind::AlreadyExists && !directory.is_dir() => {
                return Err(Errno::NOTDIR.into());
            }
            Err(_) if directory.is_dir() => false,
            Err(error) => return Err(error),
        };
        if made || below_root {
            sync_directory(parent)?;
        }
        self.durable().insert(directory.to_owned());
        Ok(())
    }

    fn durable(&self) -> std::sync::MutexGuard<'_, HashSet<PathBuf>> {
        // A set of paths is whole even if a thread died while it held the lock.
        self.durable.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn get(&self, path: &Path, limit: u64) -> Result<Option<Vec<u8>>> {
        let Some((file, found)) = open(path)? else { return Ok(None) };
        let too_long =
            |found: u64| Error::corrupt(format!("{} has {found} bytes; expected at most {limit}", path.display()));
        if found > limit {
            return Err(too_long(found));
        }
        let mut bytes = Vec::with_capacity(usize::try_from(found).unwrap_or(0));
        file.take(limit.saturating_add(1)).read_to_end(&mut bytes).map_err(|e| failure("read", path, e))?;
        if bytes.len() as u64 > limit {
            return Err(too_long(bytes.len() as u64));
        }
        Ok(Some(bytes))
    }

    pub fn reader(&self, path: &Path) -> Result<Option<impl Read + use<>>> {
        Ok(open(path)?.map(|(file, _)| file))
    }

    pub fn stat(&self, name: &str, path: &Path) -> Result<Option<Object>> {
        look_at(path)?.map(|metadata| object(name, path, &metadata)).transpose()
    }

    fn bytes(&self, path: &Path) -> Result<Option<u64>> {
        Ok(look_at(path)?.map(|metadata| metadata.len()))
    }

    pub fn map(&self, path: &Path, bytes: u64) -> Result<Buffer> {
        let (file, found) = open(path)?.ok_or_else(|| Error::not_found(format!("{} is not there", path.display())))?;
        if found != bytes {
            return Err(Error::corrupt(format!("{} has {found} bytes; expected {bytes}", path.display())));
        }
        let length = usize::try_from(bytes).map_err(|e| {
            Error::invalid(format!("{} has {bytes} bytes, more than this machine can map", path.display())).caused_by(e)
        })?;
        map::map(&file, length).map_err(|e| failure("map", path, e))
    }

    /// Calls `each` with every file below `directory` in no order; temporary files are left out.
    pub fn walk(
        &self,
        directory: &Path,
        prefix: &str,
        each: &mut dyn FnMut(Object, &Path) -> Result<()>,
    ) -> Result<()> {
        self.walk_all(directory, prefix, MAX_DEPTH, &mut |name, path, metadata| match metadata {
            Some(metadata) if metadata.is_file() && !is_temporary(path) => each(object(name, path, metadata)?, path),
            _ => Ok(()),
        })
    }

    /// The names of all that is no file below `directory`, in no order: directories, pipes, links that lead nowhere.
    pub fn no_files(&self, directory: &Path, prefix: &str) -> Result<Vec<String>> {
        let mut found = Vec::new();
        self.walk_all(directory, prefix, MAX_DEPTH, &mut |name, _, metadata| {
            if !metadata.is_some_and(Metadata::is_file) {
                found.push(name.to_owned());
            }
            Ok(())
        })?;
        Ok(found)
    }

    /// Calls `each` with whatever stands below `directory`.
    fn walk_all(&self, directory: &Path, prefix: &str, depth: usize, each: &mut Each) -> Result<()> {
        if depth == 0 {
            return Err(Error::invalid(format!(
                "{} lies deeper than any object of a store: does a symbolic link lead back to where it stands?",
                directory.display()
            )));
        }
        for (child, metadata) in self.children(directory)? {
            let path = directory.join(&child);
            let name = if prefix.is_empty() { child } else { format!("{prefix}/{child}") };
            each(&name, &path, metadata.as_ref())?;
            if metadata.is_some_and(|metadata| metadata.is_dir()) {
                self.walk_all(&path, &name, depth - 1, each)?;
            }
        }
        Ok(())
    }

    /// What a directory holds, in no order; without metadata where a link leads nowhere. What vanishes meanwhile, and names
    /// that no object has, are left out.
    pub fn children(&self, directory: &Path) -> Result<Vec<(String, Option<Metadata>)>> {
        let failed = |error| failure("list the directory", directory, error);
        let entries = match fs::read_dir(directory) {
            Ok(entries) => entries,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(failed(error)),
        };
        let mut found = Vec::new();
        for entry in entries {
            let entry = entry.map_err(failed)?;
            let Ok(name) = entry.file_name().into_string() else { continue };
            // As in `is_no_object`: what is published between two looks must not be taken for a link to nothing.
            let link = match fs::symlink_metadata(entry.path()) {
                Ok(metadata) if !metadata.is_symlink() => {
                    found.push((name, Some(metadata)));
                    continue;
                }
                Ok(_) => entry.path(),
                Err(error) if error.kind() == ErrorKind::NotFound => continue,
                Err(error) => return Err(failure("look at", &entry.path(), error)),
            };
            match fs::metadata(&link) {
                Ok(metadata) => found.push((name, Some(metadata))),
                Err(error) if leads_nowhere(&error) => found.push((name, None)),
                Err(error) => return Err(failure("look at", &link, error)),
            }
        }
        Ok(found)
    }

    pub fn delete(&self, path: &Path) -> Result<()> {
        let removed = clear_directory(path).and_then(|()| fs::remove_file(path));
        match removed {
            Err(error) if error.kind() != ErrorKind::NotFound => Err(failure("remove", path, error)),
            _ => Ok(()),
        }
    }

    pub fn sweep(&self, age: Duration) -> Result<u64> {
        let latest = self.now_ms()?.saturating_sub(i64::try_from(age.as_millis()).unwrap_or(i64::MAX));
        let mut swept = 0;
        self.walk_all(&self.root, "", MAX_DEPTH, &mut |name, path, metadata| {
            if let Some(metadata) = metadata.filter(|metadata| metadata.is_file() && is_temporary(path))
                && object(name, path, metadata)?.modified_ms <= latest
            {
                self.delete(path)?;
                swept += 1;
            }
            Ok(())
        })?;
        Ok(swept)
    }

    /// Best effort: a directory that another process fills at this moment stays, or is made again by it.
    pub fn prune(&self, directory: &Path) -> Result<()> {
        for (name, metadata) in self.children(directory)? {
            let path = directory.join(name);
            // A link is the owner's, whatever it leads to.
            if metadata.is_some_and(|metadata| metadata.is_dir()) && !path.is_symlink() {
                self.prune(&path)?;
                let _ = fs::remove_dir(&path);
            }
        }
        Ok(())
    }

    pub fn now_ms(&self) -> Result<i64> {
        let temporary = self.temporary()?;
        let metadata = temporary.file().metadata().map_err(|e| failure("look at", temporary.path(), e))?;
        modified_ms(&metadata, temporary.path())
    }

    pub fn free_bytes(&self) -> Option<u64> {
        let there = self.root.ancestors().find(|path| path.is_dir())?;
        let space = rustix::fs::statvfs(there).ok()?;
        Some(space.f_bavail.saturating_mul(space.f_frsize))
    }
}

/// A file and its length in bytes. Does not wait where a pipe stands in its place.
fn open(path: &Path) -> Result<Option<(File, u64)>> {
    let mut options = OpenOptions::new();
    options.read(true).custom_flags(OFlags::NONBLOCK.bits().cast_signed());
    let file = match options.open(path) {
        Ok(file) => file,
        Err(error) if leads_nowhere(&error) => return Ok(None),
        // What a socket answers.
        Err(error) if is_no_object(path) => return Err(no_file(path).caused_by(error)),
        Err(error) => return Err(failure("open", path, error)),
    };
    let metadata = file.metadata().map_err(|e| failure("look at", path, e))?;
    if metadata.is_file() { Ok(Some((file, metadata.len()))) } else { Err(no_file(path)) }
}

fn look_at(path: &Path) -> Result<Option<Metadata>> {
    match fs::metadata(path) {
        Ok(metadata) if metadata.is_file() => Ok(Some(metadata)),
        Ok(_) => Err(no_file(path)),
        Err(error) if leads_nowhere(&error) => Ok(None),
        Err(error) => Err(failure("look at", path, error)),
    }
}

fn no_file(path: &Path) -> Error {
    Error::corrupt(format!("{} is not a file; expected an object of a store", path.display()))
}

/// Nothing is there, or a link to nothing, or round in circles.
fn leads_nowhere(error: &io::Error) -> bool {
    error.kind() == ErrorKind::NotFound || Errno::from_io_error(error) == Some(Errno::LOOP)
}

/// Whether what stands there can be no object: a directory, a pipe, a link that leads nowhere. The name itself is looked
/// at first: where nothing stands now, what another writer publishes in the next instant is an object.
fn is_no_object(path: &Path) -> bool {
    match fs::symlink_metadata(path) {
        Ok(found) if found.is_symlink() => match fs::metadata(path) {
            Ok(target) => !target.is_file(),
            Err(error) => leads_nowhere(&error),
        },
        Ok(found) => !found.is_file(),
        Err(_) => false,
    }
}

/// Frees a name from a directory, over which nothing can be renamed. One that holds something is kept beside it.
fn clear_directory(path: &Path) -> io::Result<()> {
    if !fs::symlink_metadata(path).is_ok_and(|metadata| metadata.is_dir()) || fs::remove_dir(path).is_ok() {
        return Ok(());
    }
    fs::rename(path, aside(path))
}

fn object(name: &str, path: &Path, metadata: &Metadata) -> Result<Object> {
    Ok(Object { name: name.to_owned(), bytes: metadata.len(), modified_ms: modified_ms(metadata, path)? })
}

fn sync_directory(directory: &Path) -> io::Result<()> {
    match File::open(directory)?.sync_all() {
        // What file systems answer that sync directories by themselves, or have nothing to sync as they are read-only.
        Err(e) if matches!(Errno::from_io_error(&e), Some(Errno::INVAL | Errno::OPNOTSUPP | Errno::ROFS)) => Ok(()),
        result => result,
    }
}

fn is_temporary(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(PREFIX.as_bytes()))
}

fn modified_ms(metadata: &Metadata, path: &Path) -> Result<i64> {
    let modified = metadata.modified().map_err(|e| failure("look at", path, e))?;
    let ms = match modified.duration_since(SystemTime::UNIX_EPOCH) {
        Ok(after) => i64::try_from(after.as_millis()).unwrap_or(i64::MAX),
        Err(before) => i64::try_from(before.duration().as_millis()).map_or(i64::MIN, |ms| -ms),
    };
    Ok(ms)
}

fn parent_of(path: &Path) -> io::Result<&Path> {
    path.parent().ok_or_else(|| ErrorKind::InvalidInput.into())
}

fn parent(path: &Path) -> Result<&Path> {
    parent_of(path).map_err(|e| failure("publish", path, e))
}
