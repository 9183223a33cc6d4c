//! What a run has to do, as plain data: which shards are there and which are missing.

use crate::engine::dataset::Dataset;
use crate::error::Result;
use crate::format::encoding::Encoding;
use crate::format::record::Record;
use crate::id::ShardKey;
use crate::materialize::Target;
use crate::materialize::present::Present;
use crate::materialize::worker::Worker;
use crate::plan::snapshot::Snapshot;
use std::collections::{BTreeMap, BTreeSet};

#[derive(Debug, Clone, Default)]
pub struct Plan {
    /// Those of this worker's own part first.
    pub jobs: Vec<Job>,
    /// How many jobs are of the own part: all, where there is but one worker.
    pub own: usize,
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
        let mut plan = Plan { jobs: Vec::new(), own: 0, reused: vec![BTreeMap::new(); count] };
        let present = Present::new(dataset, snapshot, targets)?;
        for partition in 0..snapshot.partitions() {
            let mut missing = Vec::new();
            for index in 0..targets.len() {
                match present.record(index, partition)? {
                    Some(record) => _ = plan.reused[index].insert(partition, record),
                    None => missing.push(index),
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
        plan.own = plan.jobs.len();
        Ok(plan)
    }

    /// Puts the jobs in the order in which a worker takes them.
    pub fn order_for(&mut self, worker: Worker) {
        self.jobs.sort_by_key(|job| worker.turn(job.partition));
        self.own = self.jobs.partition_point(|job| worker.owns(job.partition));
    }

    /// Shards to compute of one target.
    pub fn missing(&self, target: usize) -> usize {
        self.jobs.iter().filter(|j| j.missing.contains(&target)).count()
    }
}
