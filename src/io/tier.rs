//! The cache tier: parts of remote stores kept on local disk, for later epochs and other processes, up to a limit.
//!
//! A part is a sparse file under its object's name, in which names are digests, so that all stores and processes share
//! one. Only verified bytes are written to it, so that whoever writes a range writes the same; which ranges are there the
//! file system knows, and whoever finds one verifies it before use. A crash, at whatever point, leaves nothing that needs
//! more than that. Nothing here fails a read: where no file is to be had, `remote::partial` does without.
//!
//! A part in use is locked by its open file, which ends with its process; no part that is locked, or that was used since
//! this process opened the tier, makes way. Every epoch wants every part once: what was read last is worth as much as
//! what is read now, and letting it go for that would end with a tier in which nothing is ever found again.

use super::Access;
use super::local::Local;
use crate::error::Result;
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use std::fs::{self, File, OpenOptions};
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::{Duration, Instant, SystemTime};

/// Where parts are kept, and how many bytes of them.
#[derive(Debug, Clone)]
pub struct TierOptions {
    /// Made when it is needed.
    pub directory: PathBuf,
    /// `None`: a tenth of what is free, and of what the tier has taken of it.
    pub bytes: Option<u64>,
}

#[derive(Debug)]
pub(super) struct Tier {
    files: Local,
    limit: Option<u64>,
    opened_ms: i64,
    room: Mutex<Room>,
}

#[derive(Debug, Default)]
struct Room {
    /// Bytes left when the files were last looked at, less those admitted since.
    left: u64,
    /// Bytes that may be admitted before the files are looked at again: other processes fill the tier, too.
    unseen: u64,
    /// When nothing more could make way.
    full: Option<Instant>,
}

/// Tells a file from another of the same name, or of the same number, at another time.
pub(super) type Incarnation = (u64, u64, SystemTime);

/// How long nothing is admitted once nothing could make way.
const FULL: Duration = Duration::from_secs(10);
/// The files are looked at again after this share of the limit was admitted.
const UNSEEN: u64 = 16;
const FREE_SHARE: u64 = 10;

impl Tier {
    /// `None` where nothing is to be kept.
    pub fn new(access: &Access) -> Option<Tier> {
        let TierOptions { directory, bytes } = access.tier.clone()?;
        let root = std::path::absolute(directory).ok().filter(|_| bytes != Some(0))?;
        Some(Tier { files: Local::new(root), limit: bytes, opened_ms: now_ms(), room: Mutex::default() })
    }

    /// The file of an object of `bytes` bytes, locked for as long as it is open. `None` where there is none and no room for
    /// one, or the disk refuses.
    pub fn open(&self, name: &str, bytes: u64) -> Option<(File, Option<Incarnation>)> {
        let path = self.files.root().join(name);
        // It may be let go between being opened and locked.
        (0..3).find_map(|_| {
            let file = match open(&path, false) {
                Err(error) if error.kind() == ErrorKind::NotFound => self.admit(&path, bytes)?,
                file => file.ok()?,
            };
            let locked = flock(&file, FlockOperation::NonBlockingLockShared);
            let found = file.metadata().ok()?;
            // Where the file system has no locks, a part in use may lose its name, and no more.
            if locked == Err(Errno::WOULDBLOCK) || found.nlink() == 0 || !found.is_file() {
                return None;
            }
            if found.len() != bytes {
                file.set_len(bytes).ok()?;
            }
            file.set_modified(SystemTime::now()).ok()?;
            Some((file, found.created().ok().map(|created| (found.dev(), found.ino(), created))))
        })
    }

    /// Makes room for a part, and its file while nobody else here counts what is there.
    fn admit(&self, path: &Path, bytes: u64) -> Option<File> {
        let mut room = self.room.lock().expect("no panics while locked");
        if room.full.is_some_and(|since| since.elapsed() < FULL) {
            return None;
        }
        if bytes > room.left || bytes > room.unseen {
            *room = self.look(bytes).ok()?;
        }
        if bytes > room.left {
            room.full = Some(Instant::now());
            return None;
        }
        room.left -= bytes;
        room.unseen = room.unseen.saturating_sub(bytes);
        fs::create_dir_all(path.parent()?).ok()?;
        let file = open(path, true).ok()?;
        file.set_len(bytes).ok()?;
        Some(file)
    }

    /// Looks at what is there; lets go of what wasn't used for longest until there is room for `bytes`.
    fn look(&self, bytes: u64) -> Result<Room> {
        let mut found = Vec::new();
        self.files.walk(self.files.root(), "", &mut |object, path| {
            found.push((object.modified_ms, object.bytes, path.to_owned()));
            Ok(())
        })?;
        // A file counts in full: it may grow until it is whole.
        let mut used: u64 = found.iter().map(|(_, bytes, _)| bytes).sum();
        let free = || self.files.free_bytes().unwrap_or(0).saturating_add(used) / FREE_SHARE;
        let limit = self.limit.unwrap_or_else(free);
        found.sort_unstable();
        let unused = found.iter().filter(|(modified_ms, ..)| *modified_ms < self.opened_ms);
        for (_, freed, path) in unused {
            if bytes > limit || used.saturating_add(bytes) <= limit {
                break;
            }
            if let_go(path) {
                used -= freed;
            }
        }
        Ok(Room { left: limit.saturating_sub(used), unseen: (limit / UNSEEN).max(bytes), full: None })
    }
}

fn open(path: &Path, create: bool) -> std::io::Result<File> {
    OpenOptions::new().read(true).write(true).create(create).truncate(false).open(path)
}

/// Removes a file unless it is in use.
fn let_go(path: &Path) -> bool {
    let Ok(file) = open(path, false) else { return false };
    flock(&file, FlockOperation::NonBlockingLockExclusive) != Err(Errno::WOULDBLOCK) && fs::remove_file(path).is_ok()
}

fn now_ms() -> i64 {
    let elapsed = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    i64::try_from(elapsed.as_millis()).unwrap_or(i64::MAX)
}
