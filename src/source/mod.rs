//! Level 3: where samples come from. Lists entries with their identities and reads them into the first record batches,
//! verifying that what is read is what was listed.

use crate::error::Result;
use crate::format::canonical;
use crate::format::entry::Entry;
use crate::format::table::Entries;
use crate::spec::pipeline;
use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use std::path::{Path, PathBuf};

/// A source bound to the place of its pipeline file.
pub struct Source {
    _spec: pipeline::Source,
}

/// What one listing found, in listing order; `Entry::partition` is 0 until partitioned.
pub struct Listing {
    pub entries: Vec<Entry>,
    /// A row for each entry.
    pub carried: Option<RecordBatch>,
    /// Entries whose bytes were hashed, as the cache did not know them.
    pub hashed: u64,
}

pub struct ListOptions<'a> {
    /// Where digests by validator are kept between listings; `None`: nowhere.
    pub cache: Option<PathBuf>,
    pub threads: usize,
    /// Called now and then with (entries listed, bytes hashed).
    pub progress: &'a (dyn Fn(u64, u64) + Sync),
}

/// Batches of a stream of entries, in order, each within about `CHUNK_BYTES`.
pub type Batches = Box<dyn Iterator<Item = Result<RecordBatch>> + Send>;

impl Source {
    /// `base`: the pipeline file's directory. `recorded`: the input schema found at an earlier listing, which wins over
    /// inferring it afresh.
    pub fn open(_spec: &pipeline::Source, _base: &Path, _recorded: Option<SchemaRef>) -> Result<Self> {
        unimplemented!()
    }
    /// The resolved schema of the first batches: `_key`, `_error`, then the source's columns.
    pub fn schema(&self) -> Result<SchemaRef> {
        unimplemented!()
    }
    /// Reader and parameters as they enter the recipe; no path of the machine.
    pub fn describe(&self) -> canonical::Value {
        unimplemented!()
    }
    /// Deterministic: the same files give the same listing whatever the directory order.
    pub fn list(&self, _options: &ListOptions) -> Result<Listing> {
        unimplemented!()
    }
    /// Whether each entry is one sample that can be read on its own (`files`, `table`, members of a plain tar), so that
    /// `read_entries` suits; otherwise entries are read as streams.
    pub fn entries_are_samples(&self) -> bool {
        unimplemented!()
    }
    /// One row for each of the entries `which` (indices into `entries`), in that order. A file that isn't what was listed is a
    /// `Conflict` that names it.
    pub fn read_entries(&self, _entries: &Entries, _which: &[usize]) -> Result<RecordBatch> {
        unimplemented!()
    }
    /// The rows of a contiguous range of entries.
    pub fn read_stream(&self, _entries: &Entries, _which: std::ops::Range<usize>) -> Result<Batches> {
        unimplemented!()
    }
}
