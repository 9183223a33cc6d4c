//! Bounded local space for bytes whose digest is not known yet. What was written goes to the disk in the background, so
//! that publishing has little left to wait for.

use super::failure::failure;
use super::temporary::Temporary;
use crate::error::{Error, Result};
use std::fs::File;
use std::io::{self, Write};
use std::thread::JoinHandle;

/// Bytes written between syncs.
const SYNC_BYTES: u64 = 16 << 20;

/// Unnamed where the file system can (`O_TMPFILE`), gone with its handle. Each write is a call of the system: callers
/// collect small ones.
#[derive(Debug)]
pub struct Spool {
    out: Temporary,
    /// It becomes the object itself, and so has to reach the disk.
    durable: bool,
    bytes: u64,
    synced: u64,
    syncing: Option<JoinHandle<io::Result<()>>>,
}

impl Spool {
    pub(super) fn new(temporary: Temporary, durable: bool) -> Spool {
        Spool { out: temporary, durable, bytes: 0, synced: 0, syncing: None }
    }

    /// Bytes written so far.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(super) fn finish(mut self) -> Result<Temporary> {
        if let Some(syncing) = self.syncing.take() {
            joined(syncing).map_err(|e| failure("write", self.out.path(), e))?;
        }
        Ok(self.out)
    }

    /// Syncs what was written so far on a thread of its own, unless the last sync is still at it. A disk's error is
    /// reported to one sync only, so none may be lost.
    fn sync(&mut self) -> io::Result<()> {
        match self.syncing.take_if(|syncing| syncing.is_finished()) {
            Some(done) => joined(done)?,
            None if self.syncing.is_some() => return Ok(()),
            None => {}
        }
        self.synced = self.bytes;
        let file = self.out.file().try_clone()?;
        let named = std::thread::Builder::new().name("forebay-sync".into());
        // Where no thread is to be had, publishing syncs everything.
        self.syncing = named.spawn(move || File::sync_data(&file)).ok();
        Ok(())
    }

    /// The error's kind stays; its text says which file, and what to try.
    fn explain(&self, error: io::Error) -> io::Error {
        io::Error::new(error.kind(), failure("write", self.out.path(), error))
    }
}

impl Write for Spool {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.out.write(bytes).map_err(|e| self.explain(e))?;
        self.bytes += written as u64;
        if self.durable && self.bytes - self.synced >= SYNC_BYTES {
            self.sync().map_err(|e| self.explain(e))?;
        }
        Ok(written)
    }
    fn flush(&mut self) -> io::Result<()> {
        self.out.flush().map_err(|e| self.explain(e))
    }
}

fn joined(syncing: JoinHandle<io::Result<()>>) -> io::Result<()> {
    syncing.join().unwrap_or_else(|_| Err(io::Error::other(Error::internal("a syncing thread panicked"))))
}
