//! What a run has to do, as plain data: which shards are there and which are missing.

use crate::engine::dataset::Dataset;
use crate::engine::known::Known;
use crate::error::Result;
use crate::format::record::Record;
use crate::materialize::Target;
use crate::plan::snapshot::Snapshot;
use std::collections::BTreeMap;

#[derive(Debug, Clone, Default)]
pub struct Plan {
    pub jobs: Vec<Job>,
    /// By target, then partition: the records that are there already.
    pub reused: Vec<BTreeMap<usize, Record>>,
}

/// One partition's missing shards.
#[derive(Debug, Clone)]
pub struct Job {
    pub partition: usize,
    /// Indices of targets.
    pub missing: Vec<usize>,
}

impl Plan {
    /// Looks every shard of every target up.
    pub fn new(dataset: &Dataset, snapshot: &Snapshot, targets: &[Target]) -> Result<Plan> {
        let mut plan = Plan { jobs: Vec::new(), reused: vec![BTreeMap::new(); targets.len()] };
        let known = Known::new(&dataset.store, &dataset.chains())?;
        for partition in 0..snapshot.partitions() {
            let mut missing = Vec::new();
            for (index, target) in targets.iter().enumerate() {
                match known.record(target.recipe, target.encoding, snapshot.shard_key(target.recipe, partition))? {
                    Some(record) => {
                        plan.reused[index].insert(partition, record);
                    }
                    None => missing.push(index),
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
