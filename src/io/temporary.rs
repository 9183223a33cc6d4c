//! How bytes come to a name whole or not at all: a file without a name (`O_TMPFILE`) that gets one by a hard link, or,
//! where the file system refuses either, a file with a temporary name that is renamed. The first leaves nothing behind
//! when the process is killed; the second a `.tmp-…` that no list shows and `Storage::sweep` removes.

use std::fs::{self, File, OpenOptions};
use std::hash::{BuildHasher, RandomState};
use std::io::{self, Seek, Write};
use std::path::{Path, PathBuf};

/// What temporary names begin with; no object's name does.
pub(super) const PREFIX: &str = ".tmp-";

/// What the file system is asked for; each is done without where it is refused.
#[derive(Debug, Clone, Copy)]
pub(super) struct Means {
    pub unnamed: bool,
    pub exclusive_rename: bool,
    pub hard_link: bool,
}

impl Means {
    pub const ALL: Means = Means { unnamed: true, exclusive_rename: true, hard_link: true };
}

/// A new file, open for reading and writing; gone when dropped, unless it got a name.
#[derive(Debug)]
pub(super) struct Temporary {
    file: File,
    /// The file where `named`, else the directory in which it was made.
    path: PathBuf,
    named: bool,
}

impl Temporary {
    pub fn new(directory: &Path, means: Means) -> io::Result<Self> {
        if means.unnamed
            && let Some(file) = unnamed(directory)?
        {
            return Ok(Temporary { file, path: directory.to_owned(), named: false });
        }
        Self::named(directory)
    }

    fn named(directory: &Path) -> io::Result<Self> {
        loop {
            let path = fresh_name(directory);
            match OpenOptions::new().read(true).write(true).create_new(true).open(&path) {
                Ok(file) => return Ok(Temporary { file, path, named: true }),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Where the bytes are, for messages.
    pub fn path(&self) -> &Path {
        &self.path
    }
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Gives the synced file the name `to`, whose directory is there. False: the name is taken and `replace` isn't set.
    pub fn place(&mut self, to: &Path, replace: bool, means: Means) -> io::Result<bool> {
        if !self.named {
            match link_unnamed(&self.file, to, means) {
                Ok(true) => return Ok(true),
                Ok(false) if !replace => return Ok(false),
                // A link can't replace: the file gets a temporary name first.
                Ok(false) => {}
                Err(error) if refused(&error) => {}
                Err(error) => return Err(error),
            }
            let path = fresh_name(parent(to)?);
            match link_unnamed(&self.file, &path, means) {
                Ok(true) => (self.path, self.named) = (path, true),
                Ok(false) => return Err(io::ErrorKind::AlreadyExists.into()),
                Err(error) if refused(&error) => *self = self.copied(parent(to)?)?,
                Err(error) => return Err(error),
            }
        }
        match self.rename(to, replace, means) {
            Err(error) if error.kind() == io::ErrorKind::CrossesDevices => {
                self.copied(parent(to)?)?.rename(to, replace, means)
            }
            result => result,
        }
    }

    fn rename(&mut self, to: &Path, replace: bool, means: Means) -> io::Result<bool> {
        if !replace {
            if means.exclusive_rename {
                match rename_exclusive(&self.path, to) {
                    Ok(()) => {
                        self.named = false;
                        return Ok(true);
                    }
                    Err(error) if error.kind() == io::ErrorKind::AlreadyExists => return Ok(false),
                    Err(error) if refused(&error) => {}
                    Err(error) => return Err(error),
                }
            }
            if means.hard_link {
                match fs::hard_link(&self.path, to) {
                    Ok(()) => return Ok(true),
                    Err(error) if error.kind() == io::ErrorKind::AlreadyExists => return Ok(false),
                    Err(error) if refused(&error) => {}
                    Err(error) => return Err(error),
                }
            }
            // Neither is to be had: two writers at the same instant may both succeed, the later one's file staying.
            // Objects are whole all the same, and equal where their name is their digest or their meaning.
            if fs::symlink_metadata(to).is_ok() {
                return Ok(false);
            }
        }
        fs::rename(&self.path, to)?;
        self.named = false;
        Ok(true)
    }

    /// The same bytes, synced, in a named file in `directory`.
    fn copied(&mut self, directory: &Path) -> io::Result<Self> {
        let mut copy = Self::named(directory)?;
        self.file.rewind()?;
        io::copy(&mut self.file, &mut copy.file)?;
        copy.file.sync_all()?;
        Ok(copy)
    }
}

impl Write for Temporary {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write(bytes)
    }
    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        if self.named {
            // What can't be removed now is swept later.
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// The operation isn't to be had here, as against: it failed.
fn refused(error: &io::Error) -> bool {
    use rustix::io::Errno;
    matches!(
        Errno::from_io_error(error),
        // EISDIR and ENOENT: what kernels and file systems without O_TMPFILE, or a machine without /proc, answer.
        Some(
            Errno::OPNOTSUPP
                | Errno::NOSYS
                | Errno::INVAL
                | Errno::PERM
                | Errno::XDEV
                | Errno::MLINK
                | Errno::ISDIR
                | Errno::NOENT
        )
    )
}

fn parent(path: &Path) -> io::Result<&Path> {
    path.parent().ok_or_else(|| io::ErrorKind::InvalidInput.into())
}

/// Random, so that processes on several machines don't meet; the process id is for people.
fn fresh_name(directory: &Path) -> PathBuf {
    directory.join(fresh())
}

/// A name of nobody's object.
pub(super) fn fresh() -> String {
    format!("{PREFIX}{}", unique())
}

/// Where what stood in an object's place is kept: beside it, under a name that is no object's.
pub(super) fn aside(path: &Path) -> PathBuf {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    path.with_file_name(format!("{name}.aside-{}", unique()))
}

fn unique() -> String {
    format!("{}-{:016x}", std::process::id(), RandomState::new().hash_one(()))
}

/// `None` where the file system has no unnamed files.
#[cfg(target_os = "linux")]
fn unnamed(directory: &Path) -> io::Result<Option<File>> {
    use rustix::fs::{Mode, OFlags};
    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
    // As for any new file, the umask takes its bits away.
    match rustix::fs::open(directory, flags, Mode::from_raw_mode(0o666)) {
        Ok(file) => Ok(Some(file.into())),
        Err(error) => {
            let error = io::Error::from(error);
            if refused(&error) { Ok(None) } else { Err(error) }
        }
    }
}

/// False: the name is taken.
#[cfg(target_os = "linux")]
fn link_unnamed(file: &File, to: &Path, means: Means) -> io::Result<bool> {
    use rustix::fs::{AtFlags, CWD};
    use std::os::fd::AsRawFd;
    if !means.hard_link {
        return Err(rustix::io::Errno::OPNOTSUPP.into());
    }
    let from = format!("/proc/self/fd/{}", file.as_raw_fd());
    match rustix::fs::linkat(CWD, from, CWD, to, AtFlags::SYMLINK_FOLLOW) {
        Ok(()) => Ok(true),
        Err(rustix::io::Errno::EXIST) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

#[cfg(not(target_os = "linux"))]
fn unnamed(_directory: &Path) -> io::Result<Option<File>> {
    Ok(None)
}

#[cfg(not(target_os = "linux"))]
fn link_unnamed(_file: &File, _to: &Path, _means: Means) -> io::Result<bool> {
    Err(rustix::io::Errno::OPNOTSUPP.into())
}

#[cfg(any(target_os = "linux", target_vendor = "apple"))]
fn rename_exclusive(from: &Path, to: &Path) -> io::Result<()> {
    use rustix::fs::{CWD, RenameFlags};
    Ok(rustix::fs::renameat_with(CWD, from, CWD, to, RenameFlags::NOREPLACE)?)
}

#[cfg(not(any(target_os = "linux", target_vendor = "apple")))]
fn rename_exclusive(_from: &Path, _to: &Path) -> io::Result<()> {
    Err(rustix::io::Errno::NOSYS.into())
}
