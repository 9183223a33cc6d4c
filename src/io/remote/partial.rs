//! An object of which some ranges are there: a sparse local file without a name, mapped. Ranges are fetched when they are
//! asked for, those near each other by one request; nothing is verified.

use super::{Remote, Version, joined, wait};
use crate::error::{Error, Result};
use crate::io::{failure::failure, map};
use arrow::buffer::Buffer;
use std::fmt;
use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::sync::{Arc, Mutex};

pub struct Partial {
    remote: Arc<Remote>,
    name: String,
    version: Option<Version>,
    file: File,
    buffer: Buffer,
    bytes: u64,
    /// What is there: disjoint, ascending.
    there: Mutex<Vec<Range<u64>>>,
}

impl Partial {
    pub(super) fn new(remote: Arc<Remote>, name: String, bytes: u64, version: Option<Version>) -> Result<Partial> {
        let temporary = remote.temporary()?;
        let failed = |e| failure("make space for an object in", temporary.path(), e);
        let file = temporary.file().try_clone().map_err(failed)?;
        file.set_len(bytes).map_err(failed)?;
        let length = usize::try_from(bytes).map_err(|_| failed(std::io::ErrorKind::FileTooLarge.into()))?;
        let buffer = map::map(&file, length).map_err(failed)?;
        Ok(Partial { remote, name, version, file, buffer, bytes, there: Mutex::default() })
    }

    pub fn buffer(&self) -> &Buffer {
        &self.buffer
    }

    /// As `fetch_ranges`, of one.
    pub fn fetch_range(&self, range: Range<u64>) -> Result<()> {
        self.fetch_ranges(std::slice::from_ref(&range))
    }

    /// Fetches what is missing of some ranges.
    pub fn fetch_ranges(&self, ranges: &[Range<u64>]) -> Result<()> {
        self.bring(&self.missing(ranges))
    }

    /// Where what is there from `at` on ends; `at` where nothing is.
    pub fn held_from(&self, at: u64) -> u64 {
        let there = self.there.lock().expect("no panics while locked");
        there.iter().find(|range| range.contains(&at)).map_or(at, |range| range.end)
    }

    fn missing(&self, ranges: &[Range<u64>]) -> Vec<Range<u64>> {
        let there = self.there.lock().expect("no panics while locked");
        let covered = |range: &Range<u64>| there.iter().any(|t| t.start <= range.start && range.end <= t.end);
        let missing = ranges.iter().filter(|range| !covered(range)).cloned().collect();
        joined(missing)
    }

    fn bring(&self, ranges: &[Range<u64>]) -> Result<()> {
        if ranges.is_empty() {
            return Ok(());
        }
        if ranges.iter().any(|range| range.end > self.bytes) {
            return Err(Error::corrupt(format!("a range of {} lies outside its {} bytes", self.name, self.bytes)));
        }
        for (offset, bytes) in wait(self.remote.ranges(&self.name, self.bytes, self.version.as_ref(), ranges))? {
            let written = self.file.write_all_at(&bytes, offset);
            written.map_err(|e| failure("write what was fetched to", &self.remote.scratch, e))?;
        }
        let mut there = self.there.lock().expect("no panics while locked");
        there.extend(ranges.iter().cloned());
        there.sort_unstable_by_key(|range| range.start);
        there.dedup_by(|next, last| {
            let joins = next.start <= last.end;
            if joins {
                last.end = last.end.max(next.end);
            }
            joins
        });
        Ok(())
    }
}

impl fmt::Debug for Partial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Partial").field("name", &self.name).field("bytes", &self.bytes).finish()
    }
}
