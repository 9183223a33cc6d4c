//! Level 5: the catalog over `io`: publish, fetch and verify blobs, records, heads and manifests.

use crate::error::Result;
use crate::format::encoding::{Container, Encoding};
use crate::format::head::{ManifestHead, OrderHead, PipelineHead, RecipeHead, Report, SnapshotHead, TableRef};
use crate::format::record::{Part, Record};
use crate::format::table::{Entries, OrderRow, ShardRow};
use crate::id::{Digest, OrderId, RecipeKey, ShardKey, SnapshotId};
use crate::io::{Spool, Storage};
use arrow::buffer::Buffer;

/// A store: see `formats/store.md`. Cheap to clone; shared between threads.
#[derive(Debug, Clone)]
pub struct Store {
    _storage: Storage,
}

impl Store {
    /// Opens a store; a directory that isn't there is an empty store, made at the first write. A newer `vN/` is refused by name.
    pub fn open(_url: &str) -> Result<Self> {
        unimplemented!()
    }
    pub fn storage(&self) -> &Storage {
        unimplemented!()
    }
    pub fn spool(&self) -> Result<Spool> {
        unimplemented!()
    }

    /// Publishes a part's blob. One that exists with another length, or is reported bad, is replaced.
    pub fn put_part(&self, _spool: Spool, _part: &Part, _container: Container) -> Result<()> {
        unimplemented!()
    }
    /// Maps a part's blob. `NotFound`, or `Corrupt` where the length differs.
    pub fn map_part(&self, _part: &Part, _container: Container) -> Result<Buffer> {
        unimplemented!()
    }

    /// Publishes a record once its blobs are there. Where another is there: adopted if it is sound (parses, same shard and recipe, every
    /// blob there with its length, none reported), else replaced. Returns the record in force.
    pub fn put_record(&self, _record: &Record) -> Result<Record> {
        unimplemented!()
    }
    /// `None` where there is none; a bad one is `Corrupt`.
    pub fn record(&self, _recipe: RecipeKey, _encoding: Encoding, _shard: ShardKey) -> Result<Option<Record>> {
        unimplemented!()
    }
    /// Whether every part is there with its length and none is reported bad.
    pub fn sound(&self, _record: &Record) -> Result<bool> {
        unimplemented!()
    }
    /// Encodings in which anything of a recipe is stored.
    pub fn encodings(&self, _recipe: RecipeKey) -> Result<Vec<Encoding>> {
        unimplemented!()
    }

    pub fn put_recipe(&self, _head: &RecipeHead) -> Result<()> {
        unimplemented!()
    }
    pub fn recipe(&self, _recipe: RecipeKey) -> Result<Option<RecipeHead>> {
        unimplemented!()
    }
    pub fn recipes(&self) -> Result<Vec<RecipeKey>> {
        unimplemented!()
    }

    /// Appends a pipeline head unless the newest is equal.
    pub fn put_pipeline(&self, _head: &PipelineHead) -> Result<()> {
        unimplemented!()
    }
    pub fn pipeline(&self, _name: &str) -> Result<Option<PipelineHead>> {
        unimplemented!()
    }
    pub fn pipelines(&self) -> Result<Vec<String>> {
        unimplemented!()
    }

    /// Publishes the entries table, then a head with the next sequence number. If the current head is of the same snapshot nothing is
    /// written; if a head whose listing began later is there, a `Conflict`.
    pub fn put_snapshot(&self, _head: SnapshotHead, _entries: &Entries) -> Result<SnapshotHead> {
        unimplemented!()
    }
    /// Highest sequence number, then lowest id.
    pub fn current_snapshot(&self, _pipeline: &str) -> Result<Option<SnapshotHead>> {
        unimplemented!()
    }
    /// By id, newest first where `id` is `None`.
    pub fn snapshots(&self, _pipeline: &str) -> Result<Vec<SnapshotHead>> {
        unimplemented!()
    }
    /// The table, verified; its rows must hash to the head's id (the caller checks with `plan::key::snapshot_id`).
    pub fn entries(&self, _head: &SnapshotHead) -> Result<Entries> {
        unimplemented!()
    }

    pub fn put_order(
        &self,
        _recipe: RecipeKey,
        _snapshot: SnapshotId,
        _order: OrderId,
        _rows: &[OrderRow],
    ) -> Result<OrderHead> {
        unimplemented!()
    }
    pub fn order(&self, _recipe: RecipeKey, _snapshot: SnapshotId) -> Result<Option<(OrderHead, Vec<OrderRow>)>> {
        unimplemented!()
    }

    /// Publishes the shard table and then the manifest.
    pub fn put_manifest(
        &self,
        _recipe: RecipeKey,
        _encoding: Encoding,
        _snapshot: SnapshotId,
        _rows: &[ShardRow],
    ) -> Result<ManifestHead> {
        unimplemented!()
    }
    pub fn manifest(
        &self,
        _recipe: RecipeKey,
        _encoding: Encoding,
        _snapshot: SnapshotId,
    ) -> Result<Option<(ManifestHead, Vec<ShardRow>)>> {
        unimplemented!()
    }
    pub fn manifests(&self, _recipe: RecipeKey, _encoding: Encoding) -> Result<Vec<ManifestHead>> {
        unimplemented!()
    }

    pub fn report(&self, _report: &Report) -> Result<()> {
        unimplemented!()
    }
    pub fn reports(&self) -> Result<Vec<Report>> {
        unimplemented!()
    }
    pub fn clear_report(&self, _blob: Digest) -> Result<()> {
        unimplemented!()
    }

    pub fn put_table(&self, _bytes: Vec<u8>, _rows: u64) -> Result<TableRef> {
        unimplemented!()
    }
    pub fn table(&self, _table: &TableRef) -> Result<Buffer> {
        unimplemented!()
    }
}
