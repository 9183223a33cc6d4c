//! What to say when the system refuses: which operation on which path, why, and what to try.

use crate::error::{Error, Kind};
use rustix::io::Errno;
use std::io;
use std::path::Path;

/// `doing` is a verb phrase that `path` completes: "write", "list the directory".
pub(super) fn failure(doing: &str, path: &Path, error: io::Error) -> Error {
    let (kind, advice) = match Errno::from_io_error(&error) {
        Some(Errno::NOSPC) => (Kind::Unavailable, "the disk is full: free some space or use a store on another disk"),
        Some(Errno::DQUOT) => {
            (Kind::Unavailable, "the quota is used up: free some space or use a store on another disk")
        }
        Some(Errno::FBIG) => {
            (Kind::Invalid, "no file may be as large as this: raise the limit (ulimit -f) or use another disk")
        }
        Some(Errno::ROFS) => {
            (Kind::Invalid, "the file system is mounted read-only: mount it writable or use another store")
        }
        Some(Errno::ACCESS | Errno::PERM) => {
            (Kind::Invalid, "permission denied: ask its owner for access or use another store")
        }
        Some(Errno::MFILE) => (Kind::Unavailable, "this process has too many open files: raise its limit (ulimit -n)"),
        Some(Errno::NFILE) => {
            (Kind::Unavailable, "the machine has too many open files: close some or raise fs.file-max")
        }
        Some(Errno::NOMEM) => {
            (Kind::Unavailable, "no memory or no more mappings are to be had: free some or raise vm.max_map_count")
        }
        Some(Errno::NAMETOOLONG) => (Kind::Invalid, "the path is too long: use a store with a shorter path"),
        Some(Errno::NOTDIR) => {
            (Kind::Invalid, "a file is in the place of a directory: move it away or use another store")
        }
        Some(Errno::ISDIR) => (Kind::Corrupt, "a directory is in the place of a file: move it away"),
        Some(Errno::NOENT) => (Kind::NotFound, "it is not there"),
        _ => (Kind::Unavailable, "try again; if it persists, look at the disk and its file system"),
    };
    Error::new(kind, format!("cannot {doing} {} ({advice})", path.display())).caused_by(error)
}
