//! Which shards of the targets are there and may be relied upon: looked up by name when a run is planned, and again just
//! before a shard is computed, as another writer may have been faster.

use crate::engine::dataset::Dataset;
use crate::engine::known::{Known, reports};
use crate::engine::stored::StoredShard;
use crate::error::{Error, Kind, Result};
use crate::format::record::Record;
use crate::format::table::ShardRow;
use crate::id::RecipeKey;
use crate::materialize::Target;
use crate::plan::chain::{Chain, Stage};
use crate::plan::snapshot::Snapshot;
use crate::store::shard_row;

pub struct Present<'a> {
    pub known: Known,
    pub chains: Vec<Chain>,
    dataset: &'a Dataset,
    snapshot: &'a Snapshot,
    targets: &'a [Target],
    /// By target, then partition: what its manifest says.
    manifests: Vec<Vec<ShardRow>>,
}

impl<'a> Present<'a> {
    pub fn new(dataset: &'a Dataset, snapshot: &'a Snapshot, targets: &'a [Target]) -> Result<Present<'a>> {
        let chains = dataset.chains();
        Ok(Present {
            known: Known::new(&dataset.store, &chains)?,
            chains,
            dataset,
            snapshot,
            targets,
            manifests: targets.iter().map(|t| manifest(dataset, snapshot, t)).collect::<Result<_>>()?,
        })
    }

    /// The record of a target's shard, by the target's index; `None` where it has to be computed.
    pub fn record(&self, target: usize, partition: usize) -> Result<Option<Record>> {
        let Target { recipe, encoding, .. } = self.targets[target];
        let shard = self.snapshot.shard_key(recipe, partition);
        let Some(record) = self.known.record(recipe, encoding, shard)? else { return Ok(None) };
        let told = self.manifests[target].get(partition);
        Ok(self.is_true(&record, told)?.then_some(record))
    }

    pub fn stage(&self, recipe: RecipeKey) -> Result<&Stage> {
        let mut stages = self.chains.iter().flat_map(|c| &c.stages);
        stages.find(|s| s.recipe == recipe).ok_or_else(|| Error::internal(format!("no chain has the stage {recipe}")))
    }

    /// Whether a record says the truth about failed rows, on which it depends if a stage is whole. Only one that invites
    /// doubt, as rows failed or the manifest says something else of the same blobs, is held against the shard itself.
    fn is_true(&self, record: &Record, told: Option<&ShardRow>) -> Result<bool> {
        let contradicted = told.is_some_and(|told| {
            let row = shard_row(told.partition, record);
            row != *told && (row.shard, &row.blobs) == (told.shard, &told.blobs)
        });
        if record.failed_rows == 0 && !contradicted {
            return Ok(true);
        }
        let store = &self.dataset.store;
        let stage = self.stage(record.recipe)?;
        let opened = StoredShard::open(store, record.clone(), &stage.schema);
        match opened.and_then(|shard| shard.failed_rows(&stage.schema)) {
            Ok(failed) => Ok(failed == record.failed_rows),
            Err(error) if matches!(error.kind(), Kind::Corrupt | Kind::NotFound) => {
                reports(record, &error).iter().try_for_each(|report| store.report(report))?;
                Ok(false)
            }
            Err(error) => Err(error),
        }
    }
}

/// What the manifest says of each partition; nothing where it is damaged or not there.
fn manifest(dataset: &Dataset, snapshot: &Snapshot, target: &Target) -> Result<Vec<ShardRow>> {
    match dataset.store.manifest(target.recipe, target.encoding, snapshot.id) {
        Err(error) if matches!(error.kind(), Kind::Corrupt | Kind::NotFound) => Ok(Vec::new()),
        found => Ok(found?.map_or(Vec::new(), |(_, rows)| rows)),
    }
}
