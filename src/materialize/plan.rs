//! What a run has to do, as plain data: which shards are there and which are missing.

use crate::engine::dataset::Dataset;
use crate::engine::known::{Known, reports};
use crate::engine::stored::StoredShard;
use crate::error::{Error, Kind, Result};
use crate::format::encoding::Encoding;
use crate::format::record::Record;
use crate::format::table::ShardRow;
use crate::id::ShardKey;
use crate::materialize::Target;
use crate::plan::chain::Chain;
use crate::plan::snapshot::Snapshot;
use crate::store::shard_row;
use std::collections::{BTreeMap, BTreeSet};

#[derive(Debug, Clone, Default)]
pub struct Plan {
    pub jobs: Vec<Job>,
    /// By target, those to heal included, then partition: the records that are there already.
    pub reused: Vec<BTreeMap<usize, Record>>,
}

/// Shards that are reported bad, and the targets, besides those asked for, to which they belong.
#[derive(Debug, Clone, Default)]
pub struct Healing {
    pub targets: Vec<Target>,
    pub bad: BTreeSet<(Encoding, ShardKey)>,
}

/// One partition's missing shards.
#[derive(Debug, Clone)]
pub struct Job {
    pub partition: usize,
    /// Indices of targets.
    pub missing: Vec<usize>,
}

impl Plan {
    /// Looks every shard of every target up. Of the targets to heal, which come after the others, only bad shards are wanted.
    pub fn new(dataset: &Dataset, snapshot: &Snapshot, targets: &[Target], healing: &Healing) -> Result<Plan> {
        let count = targets.len() + healing.targets.len();
        let mut plan = Plan { jobs: Vec::new(), reused: vec![BTreeMap::new(); count] };
        let chains = dataset.chains();
        let known = Known::new(&dataset.store, &chains)?;
        let manifests = targets.iter().map(|t| manifest(dataset, snapshot, t)).collect::<Result<Vec<_>>>()?;
        for partition in 0..snapshot.partitions() {
            let mut missing = Vec::new();
            for (index, target) in targets.iter().enumerate() {
                match known.record(target.recipe, target.encoding, snapshot.shard_key(target.recipe, partition))? {
                    Some(record) if is_true(dataset, &chains, &record, manifests[index].get(partition))? => {
                        plan.reused[index].insert(partition, record);
                    }
                    _ => missing.push(index),
                }
            }
            for (index, target) in healing.targets.iter().enumerate() {
                if healing.bad.contains(&(target.encoding, snapshot.shard_key(target.recipe, partition))) {
                    missing.push(targets.len() + index);
                }
            }
            if !missing.is_empty() {
                plan.jobs.push(Job { partition, missing });
            }
        }
        Ok(plan)
    }

    /// Shards to compute of one target.
    pub fn missing(&self, target: usize) -> usize {
        self.jobs.iter().filter(|j| j.missing.contains(&target)).count()
    }
}

/// What the manifest says of each partition; nothing where it is damaged or not there.
fn manifest(dataset: &Dataset, snapshot: &Snapshot, target: &Target) -> Result<Vec<ShardRow>> {
    match dataset.store.manifest(target.recipe, target.encoding, snapshot.id) {
        Err(error) if matches!(error.kind(), Kind::Corrupt | Kind::NotFound) => Ok(Vec::new()),
        found => Ok(found?.map_or(Vec::new(), |(_, rows)| rows)),
    }
}

/// Whether a record says the truth about failed rows, on which it depends if a stage is whole. Only one that invites doubt, as rows
/// failed or the manifest says something else of the same blobs, is held against the shard itself.
fn is_true(dataset: &Dataset, chains: &[Chain], record: &Record, told: Option<&ShardRow>) -> Result<bool> {
    let contradicted = told.is_some_and(|told| {
        let row = shard_row(told.partition, record);
        row != *told && (row.shard, &row.blobs) == (told.shard, &told.blobs)
    });
    if record.failed_rows == 0 && !contradicted {
        return Ok(true);
    }
    let stage = chains.iter().flat_map(|c| &c.stages).find(|s| s.recipe == record.recipe);
    let stage = stage.ok_or_else(|| Error::internal("a target without a stage"))?;
    let opened = StoredShard::open(&dataset.store, record.clone(), &stage.schema);
    match opened.and_then(|shard| shard.failed_rows(&stage.schema)) {
        Ok(failed) => Ok(failed == record.failed_rows),
        Err(error) if matches!(error.kind(), Kind::Corrupt | Kind::NotFound) => {
            reports(record, &error).iter().try_for_each(|report| dataset.store.report(report))?;
            Ok(false)
        }
        Err(error) => Err(error),
    }
}
