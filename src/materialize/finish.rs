//! What closes a run: manifests of the targets that are whole.

use crate::engine::dataset::Dataset;
use crate::error::Result;
use crate::format::head::ManifestHead;
use crate::format::record::Record;
use crate::format::table::ShardRow;
use crate::materialize::Target;
use crate::plan::snapshot::Snapshot;
use crate::store::shard_row;
use std::collections::BTreeMap;

/// Publishes the manifest of a target all of whose shards are there; `None` where some are missing.
pub fn manifest(
    dataset: &Dataset,
    snapshot: &Snapshot,
    target: &Target,
    records: &BTreeMap<usize, Record>,
) -> Result<Option<ManifestHead>> {
    if records.len() != snapshot.partitions() {
        return Ok(None);
    }
    let rows: Vec<ShardRow> = records.iter().map(|(partition, record)| shard_row(*partition as u32, record)).collect();
    dataset.store.put_manifest(target.recipe, target.encoding, snapshot.id, &rows).map(Some)
}
