//! Materializing a project: list, publish the snapshot, plan, run, close. The command line and Python differ only in how they
//! ask and show.

use crate::app::project::Project;
use crate::app::targets::{Targets, resolve};
use crate::engine::count;
use crate::engine::dataset::Dataset;
use crate::error::{Error, Result};
use crate::format::encoding::{Codec, Container};
use crate::format::head::ManifestHead;
use crate::format::name::Name;
use crate::format::record::Record;
use crate::materialize::Target;
use crate::materialize::estimate::{Estimate, estimate};
use crate::materialize::finish;
use crate::materialize::plan::{Healing, Plan};
use crate::materialize::run::{self, Options, Outcome};
use crate::materialize::worker::Worker;
use crate::plan::snapshot::Snapshot;
use crate::spec::pipeline::OnError;
use std::collections::BTreeMap;
use std::sync::Arc;

/// What to store, as asked for; what is left out comes from the pipeline file, then from the defaults.
#[derive(Debug, Clone, Default)]
pub struct Request {
    pub stages: Vec<String>,
    pub container: Option<Container>,
    pub codec: Option<Codec>,
}

impl Request {
    /// The stages and encodings that are meant.
    pub fn targets(&self, project: &Project) -> Result<Targets> {
        let settings = &project.pipeline.materialize;
        let of_file = || settings.stages.iter().map(|(name, _)| name.clone()).collect();
        let stages = if self.stages.is_empty() { of_file() } else { self.stages.clone() };
        let (container, codec) = (self.container.or(settings.container), self.codec.or(settings.codec));
        resolve(&project.dataset, &stages, container, codec)
    }
}

/// A listed source with what is to be done about it.
pub struct Prepared {
    pub snapshot: Arc<Snapshot>,
    pub targets: Targets,
    /// Of other stages and encodings: computed as well.
    pub healing: Healing,
    pub plan: Plan,
}

/// What became of a run.
pub struct Done {
    pub outcome: Outcome,
    /// By target that was asked for; `None` where shards are missing.
    pub manifests: Vec<Option<ManifestHead>>,
}

impl Prepared {
    pub fn new(project: &Project, snapshot: Arc<Snapshot>, request: &Request) -> Result<Prepared> {
        let targets = request.targets(project)?;
        let healing = reported(&project.dataset, &targets.targets)?;
        let plan = Plan::new(&project.dataset, &snapshot, &targets.targets, &healing)?;
        Ok(Prepared { snapshot, targets, healing, plan })
    }

    /// What is missing, in the order in which one of several workers takes it.
    pub fn for_worker(mut self, worker: Worker) -> Prepared {
        self.plan.order_for(worker);
        self
    }

    /// How many shards are computed because they are reported bad, though nobody asked for their stage.
    pub fn healed(&self) -> usize {
        let asked = self.targets.targets.len();
        (asked..asked + self.healing.targets.len()).map(|target| self.plan.missing(target)).sum()
    }

    /// Bytes and seconds of what is missing, by target.
    pub fn estimate(&self, project: &Project) -> Result<Vec<Estimate>> {
        let mut estimates = estimate(&project.dataset, &self.snapshot, &self.targets.targets)?;
        let partitions = self.snapshot.partitions().max(1) as f64;
        for (index, estimate) in estimates.iter_mut().enumerate() {
            let share = self.plan.missing(index) as f64 / partitions;
            estimate.bytes = (estimate.bytes as f64 * share) as u64;
            estimate.value_bytes = (estimate.value_bytes as f64 * share) as u64;
            estimate.thread_seconds *= share;
        }
        Ok(estimates)
    }

    /// Computes what is missing, then publishes order tables and the manifests of targets that are whole.
    pub fn run(self, project: &Project, options: &Options) -> Result<Done> {
        let Prepared { snapshot, targets, healing, plan } = self;
        let targets = targets.targets;
        let all = [targets.as_slice(), &healing.targets].concat();
        let outcome = run::run(&project.dataset, &snapshot, &all, plan, options)?;
        let mut manifests = Vec::new();
        for (target, records) in targets.iter().zip(&outcome.records) {
            manifests.push(match acceptable(options.on_error, records) {
                true => finish::manifest(&project.dataset, &snapshot, target, records)?,
                false => None,
            });
        }
        for split in &project.dataset.splits {
            let stage = &split.chain.stages[split.chain.last_deterministic()];
            let records = targets.iter().position(|t| t.recipe == stage.recipe).map(|i| &outcome.records[i]);
            if let Some(rows) = count::order(&project.dataset, &snapshot, split, records, None)? {
                count::publish_order(&project.dataset, &snapshot, split, &rows)?;
            }
        }
        Ok(Done { outcome, manifests })
    }
}

/// Shards of the dataset's stages that are reported bad, and the targets besides `asked` to which they belong.
fn reported(dataset: &Dataset, asked: &[Target]) -> Result<Healing> {
    let stages = || dataset.splits.iter().flat_map(|s| (0..s.chain.stages.len()).map(move |index| (s, index)));
    let mut healing = Healing::default();
    for report in dataset.store.reports()? {
        let Ok(Name::Shard { recipe, encoding, shard }) = report.record.parse() else { continue };
        let found = stages().find(|(split, index)| split.chain.stages[*index].recipe == recipe);
        let Some((split, index)) = found else { continue };
        let target = Target::new(split, index, encoding);
        if asked.contains(&target) {
            continue;
        }
        healing.bad.insert((encoding, shard));
        if !healing.targets.contains(&target) {
            healing.targets.push(target);
        }
    }
    Ok(healing)
}

/// Whether no more rows of a stage failed than may be; shards that an earlier run kept count as well.
fn acceptable(on_error: OnError, records: &BTreeMap<usize, Record>) -> bool {
    let (failed, rows) = records.values().fold((0, 0), |(failed, rows), r| (failed + r.failed_rows, rows + r.rows));
    match on_error {
        OnError::Fail => failed == 0,
        OnError::Keep { max_errors } => failed as f64 <= max_errors * rows as f64,
    }
}

/// Refuses to begin where the disk has too little room for what would be written.
pub fn check_room(project: &Project, bytes: u64) -> Result<()> {
    match project.dataset.store.storage().free_bytes() {
        Some(free) if bytes > free => Err(Error::unavailable(format!(
            "about {} would be written and the store's disk has {} free; choose another --store, stage or --compression",
            crate::spec::size::print(bytes),
            crate::spec::size::print(free),
        ))),
        _ => Ok(()),
    }
}
