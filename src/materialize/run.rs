//! Computes and publishes the missing shards. Several partitions run side by side, each driven by a light thread that
//! hands pieces to the pool and writes what comes back in order.

use crate::engine::dataset::Dataset;
use crate::engine::input::{self, Piece};
use crate::engine::known::reports;
use crate::engine::pool::Pool;
use crate::engine::rows::Rows;
use crate::engine::stored::StoredShard;
use crate::engine::tree::Tree;
use crate::error::{Error, Kind, Result};
use crate::format::record::Record;
use crate::id::RecipeKey;
use crate::materialize::gate::Gate;
use crate::materialize::plan::{Job, Plan};
use crate::materialize::present::Present;
use crate::materialize::sink::Sink;
use crate::materialize::{Event, Failure, Target};
use crate::plan::chain::Stage;
use crate::plan::snapshot::Snapshot;
use crate::spec::pipeline::OnError;
use arrow::array::{Array, AsArray};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Partitions computed at once, however few threads there are: while some wait for the disk, others keep the threads busy.
const COMPUTING: usize = 4;
/// Partitions that are on their way to a remote store meanwhile.
const SENDING: usize = 6;
/// The usual waits: long enough for a server or a network to come back, short enough for a disk that won't.
pub const RETRY_AFTER: [Duration; 3] = [Duration::from_secs(1), Duration::from_secs(5), Duration::from_secs(15)];
/// Failures kept for the report; all are counted.
const FAILURES_KEPT: usize = 1000;

pub struct Options<'a> {
    pub pool: Pool,
    pub on_error: OnError,
    /// Set to stop: partitions in work are given up, finished shards stay.
    pub stop: &'a AtomicBool,
    /// How long to wait before partitions that failed for now (`Unavailable`) are tried again: once for each wait, and
    /// after the others were finished. A full disk is not tried again.
    pub retry_after: &'a [Duration],
    pub progress: &'a (dyn Fn(Event) + Sync),
}

/// What a run did.
#[derive(Debug, Default)]
pub struct Outcome {
    /// By target, then partition: computed in this run, there before it, or found since.
    pub records: Vec<BTreeMap<usize, Record>>,
    pub computed_shards: u64,
    pub computed_rows: u64,
    /// Shards that were missing when the run was planned and that another writer published before they were begun here.
    pub found_shards: u64,
    pub failed_rows: u64,
    /// The first of the failed samples, sorted.
    pub failures: Vec<Failure>,
    /// What kept partitions from being published, one line each.
    pub errors: Vec<(usize, Error)>,
    pub stopped: bool,
}

struct Run<'a> {
    dataset: &'a Dataset,
    present: Present<'a>,
    snapshot: &'a Arc<Snapshot>,
    targets: &'a [Target],
    options: &'a Options<'a>,
    /// Partitions in work at the same time, those of them that are computed, and pieces of each.
    drivers: usize,
    computing: Gate,
    window: usize,
    outcome: Mutex<Outcome>,
}

/// Runs the plan. Errors of single partitions are in the outcome; `Err` is for what stops everything.
pub fn run(
    dataset: &Dataset,
    snapshot: &Arc<Snapshot>,
    targets: &[Target],
    plan: Plan,
    options: &Options,
) -> Result<Outcome> {
    if !plan.jobs.is_empty() {
        // A store that can't be written is one error, not one for each partition.
        drop(dataset.store.spool()?);
    }
    let threads = options.pool.threads();
    // Few at a time, so that they aren't all sent at the same time, and nothing is computed meanwhile.
    let (computing, sending) = match dataset.store.storage().local_path() {
        Some(_) => (COMPUTING, 0),
        None => ((threads / 4).clamp(2, COMPUTING), SENDING),
    };
    let computing = computing.min(plan.jobs.len()).max(1);
    let drivers = (computing + sending).min(plan.jobs.len()).max(1);
    let run = Run {
        dataset,
        present: Present::new(dataset, snapshot, targets)?,
        snapshot,
        targets,
        options,
        drivers,
        computing: Gate::new(computing),
        window: (2 * threads).div_ceil(computing) + 1,
        outcome: Mutex::new(Outcome { records: plan.reused, ..Outcome::default() }),
    };
    let mut own = plan.jobs;
    let others = own.split_off(plan.own);
    let (begun, partitions) = (Instant::now(), own.len());
    run.compute(own)?;
    let Round { left, failed } = run.round(&others, Run::look_again)?;
    if !left.is_empty() {
        // As long as a partition takes here: whoever is at work on it, as fast, is done by then.
        let wait = begun.elapsed() * (drivers.min(partitions) as u32) / (partitions.max(1) as u32);
        (options.progress)(Event::Others { partitions: left.len(), wait });
        run.wait(wait);
    }
    run.compute(left.into_iter().chain(failed.into_iter().map(|(job, _)| job)).collect())?;
    let stopped = run.stopped();
    let mut outcome = run.outcome.into_inner().expect("no panics while locked");
    outcome.stopped = stopped;
    outcome.failures.sort();
    outcome.failures.truncate(FAILURES_KEPT);
    outcome.errors.sort_by_key(|(partition, _)| *partition);
    Ok(outcome)
}

impl Run<'_> {
    fn stopped(&self) -> bool {
        self.options.stop.load(Ordering::Relaxed)
    }

    /// Ends early where the run is to stop.
    fn wait(&self, wait: Duration) {
        const LOOK_EVERY: Duration = Duration::from_millis(50);
        let begun = Instant::now();
        while !self.stopped() && begun.elapsed() < wait {
            std::thread::sleep(LOOK_EVERY.min(wait.saturating_sub(begun.elapsed())));
        }
    }

    /// Computes every job, those that failed for now again after each wait.
    fn compute(&self, mut jobs: Vec<Job>) -> Result<()> {
        let mut waits = self.options.retry_after.iter();
        while !jobs.is_empty() {
            let Round { failed, .. } = self.round(&jobs, Run::partition)?;
            let (Some((_, error)), Some(&wait)) = (failed.first(), waits.next()) else {
                let errors = failed.into_iter().map(|(job, error)| (job.partition, error));
                self.outcome.lock().expect("no panics while locked").errors.extend(errors);
                break;
            };
            (self.options.progress)(Event::Retry { partitions: failed.len(), wait, reason: error.chain() });
            self.wait(wait);
            jobs = failed.into_iter().map(|(job, _)| job).collect();
        }
        Ok(())
    }

    /// Does the same with every job once.
    fn round(&self, jobs: &[Job], work: fn(&Self, &mut Job) -> Result<()>) -> Result<Round> {
        let next = AtomicUsize::new(0);
        let (left, failed, fatal) = (Mutex::new(Vec::new()), Mutex::new(Vec::new()), Mutex::new(None));
        std::thread::scope(|scope| {
            for _ in 0..self.drivers.min(jobs.len()) {
                scope.spawn(|| {
                    loop {
                        let place = next.fetch_add(1, Ordering::Relaxed);
                        let Some(job) = jobs.get(place) else { break };
                        if self.stopped() || fatal.lock().expect("no panics while locked").is_some() {
                            break;
                        }
                        let mut job = job.clone();
                        let Err(error) = work(self, &mut job) else {
                            if !job.missing.is_empty() {
                                left.lock().expect("no panics while locked").push((place, job));
                            }
                            continue;
                        };
                        match error.kind() {
                            // A full disk fails every partition, now and later.
                            Kind::Unavailable if !error.is_disk_full() => {
                                failed.lock().expect("no panics while locked").push((job, error));
                            }
                            Kind::Unavailable | Kind::Internal => {
                                *fatal.lock().expect("no panics while locked") = Some(error);
                            }
                            // What is wrong with one partition's data must not keep the others from being finished.
                            Kind::Conflict | Kind::NotFound | Kind::Invalid | Kind::Corrupt => {
                                let mut outcome = self.outcome.lock().expect("no panics while locked");
                                outcome.errors.push((job.partition, error));
                            }
                        }
                    }
                });
            }
        });
        if let Some(error) = fatal.into_inner().expect("no panics while locked") {
            return Err(error);
        }
        let mut left = left.into_inner().expect("no panics while locked");
        left.sort_by_key(|(place, _)| *place);
        let left = left.into_iter().map(|(_, job)| job).collect();
        Ok(Round { left, failed: failed.into_inner().expect("no panics while locked") })
    }

    /// Takes out of a job what was done by an earlier try, or by another writer since the run was planned.
    fn look_again(&self, job: &mut Job) -> Result<()> {
        let done = |target: usize| {
            let outcome = self.outcome.lock().expect("no panics while locked");
            outcome.records[target].contains_key(&job.partition)
        };
        let (mut missing, mut found) = (Vec::new(), Vec::new());
        for &target in job.missing.iter().filter(|target| !done(**target)) {
            match self.present.record(target, job.partition)? {
                Some(record) => found.push((target, record)),
                None => missing.push(target),
            }
        }
        if !found.is_empty() {
            let rows = if missing.is_empty() { self.snapshot.source_rows(job.partition) } else { 0 };
            (self.options.progress)(Event::Found { partition: job.partition, shards: found.len(), rows });
        }
        let mut outcome = self.outcome.lock().expect("no panics while locked");
        outcome.found_shards += found.len() as u64;
        for (target, record) in found {
            outcome.records[target].insert(job.partition, record);
        }
        job.missing = missing;
        Ok(())
    }

    /// Computes all missing shards of a partition, those that start from the same stage in one pass. What is done is taken
    /// out of the job, so that it isn't done again where the rest fails.
    fn partition(&self, job: &mut Job) -> Result<()> {
        self.look_again(job)?;
        let mut passes: Vec<(Start, Vec<usize>)> = Vec::new();
        for &target in &job.missing {
            let from = self.start(self.targets[target].recipe, job.partition)?;
            match passes.iter_mut().find(|(s, _)| s.is_same(&from)) {
                Some((_, targets)) => targets.push(target),
                None => passes.push((from, vec![target])),
            }
        }
        // A sample that fails in several passes is one.
        let mut failures = BTreeMap::new();
        let result = passes.into_iter().try_for_each(|(from, targets)| {
            match self.pass(job.partition, &from, &targets, &mut failures) {
                Err(error) if error.kind() == Kind::Corrupt && matches!(from, Start::Stored { .. }) => {
                    self.report(job.partition, &from, &error)?;
                    self.pass(job.partition, &Start::Source, &targets, &mut failures)?;
                }
                other => other?,
            }
            job.missing.retain(|target| !targets.contains(target));
            Ok(())
        });
        let mut outcome = self.outcome.lock().expect("no panics while locked");
        outcome.failed_rows += failures.len() as u64;
        let room = FAILURES_KEPT.saturating_sub(outcome.failures.len());
        outcome.failures.extend(failures.into_iter().take(room).map(|(key, reason)| Failure { key, reason }));
        result
    }

    /// Computes targets that start from the same stage. Failed samples join the others once all is published.
    fn pass(
        &self,
        partition: usize,
        from: &Start,
        targets: &[usize],
        all_failures: &mut BTreeMap<String, String>,
    ) -> Result<()> {
        let (recipe, pieces) = match from {
            Start::Source => {
                let source = self.dataset.source.as_ref();
                let source =
                    source.ok_or_else(|| Error::invalid("computing needs the source; open the pipeline file"))?;
                (self.present.chains[0].stages[0].recipe, input::from_source(source, self.snapshot, partition)?)
            }
            Start::Stored { stage, record } => {
                let shard = StoredShard::open(&self.dataset.store, record.clone(), &stage.schema)?;
                (stage.recipe, input::from_stored(Arc::new(shard)))
            }
        };
        let wanted: Vec<RecipeKey> = targets.iter().map(|t| self.targets[*t].recipe).collect();
        let tree = Arc::new(Tree::new(&self.present.chains, recipe, &wanted)?);
        let mut sinks = Vec::with_capacity(targets.len());
        for target in targets.iter().map(|t| &self.targets[*t]) {
            sinks.push((target.recipe, Sink::new(self.present.stage(target.recipe)?.schema.clone(), target.encoding)?));
        }

        let (pool, store) = (&self.options.pool, &self.dataset.store);
        let task = move |piece: Result<Piece>| {
            let rows = piece?.read()?;
            let mut wanted = Vec::new();
            for group in rows.groups() {
                let begun = Instant::now();
                tree.run(group, 0, 0, &mut |recipe, rows| wanted.push((recipe, rows, begun.elapsed().as_secs_f64())))?;
            }
            Ok((rows.len(), wanted))
        };
        let inside = self.computing.enter();
        let mut failures = BTreeMap::new();
        let source_bytes: u64 = self.snapshot.partition(partition).iter().map(|e| e.bytes).sum();
        let source_rows = self.snapshot.source_rows(partition).max(1);
        for done in pool.map(pieces, self.window, task) {
            if self.stopped() {
                return Ok(());
            }
            let (read, wanted) = done?;
            for (recipe, rows, seconds) in wanted {
                self.note_failures(&rows, &mut failures)?;
                for (_, sink) in sinks.iter_mut().filter(|(r, _)| *r == recipe) {
                    sink.seconds += seconds;
                    // What failed at a later stage doesn't keep this one from being stored.
                    if self.options.on_error == OnError::Fail && sink.failed_rows() > 0 {
                        sink.count(&rows)?;
                    } else {
                        sink.push(&rows, pool, store)?;
                    }
                }
            }
            let bytes = (u128::from(source_bytes) * read as u128 / u128::from(source_rows)) as u64;
            (self.options.progress)(Event::Rows { rows: read as u64, source_bytes: bytes });
        }
        drop(inside);
        for ((recipe, sink), &target) in sinks.into_iter().zip(targets) {
            if self.options.on_error == OnError::Fail && sink.failed_rows() > 0 {
                continue;
            }
            let record = sink.publish(pool, store, recipe, self.snapshot.shard_key(recipe, partition))?;
            let stage = self.targets[target].stage.clone();
            (self.options.progress)(Event::Shard { stage, partition, rows: record.rows, bytes: record.bytes });
            let mut outcome = self.outcome.lock().expect("no panics while locked");
            outcome.computed_shards += 1;
            outcome.computed_rows += record.rows;
            outcome.records[target].insert(partition, record);
        }
        for (key, reason) in failures {
            all_failures.entry(key).or_insert(reason);
        }
        Ok(())
    }

    /// The latest stored stage before a target, else the source.
    fn start(&self, target: RecipeKey, partition: usize) -> Result<Start> {
        let found =
            self.present.chains.iter().find_map(|c| Some((c, c.stages.iter().position(|s| s.recipe == target)?)));
        let (chain, end) = found.ok_or_else(|| Error::internal(format!("no chain has the stage {target}")))?;
        let nearest = self.present.known.nearest(chain, end, self.snapshot, partition, &BTreeSet::new())?;
        Ok(match nearest {
            Some((stage, record)) => Start::Stored { stage: Box::new(chain.stages[stage].clone()), record },
            None => Start::Source,
        })
    }

    fn note_failures(&self, rows: &Rows, failures: &mut BTreeMap<String, String>) -> Result<()> {
        let errors = rows.errors()?;
        if errors.null_count() == errors.len() {
            return Ok(());
        }
        let keys = rows.batch.column(0).as_string::<i64>();
        for index in (0..errors.len()).filter(|i| errors.is_valid(*i)) {
            failures.entry(keys.value(index).to_owned()).or_insert_with(|| errors.value(index).to_owned());
        }
        Ok(())
    }

    fn report(&self, partition: usize, from: &Start, error: &Error) -> Result<()> {
        let Start::Stored { stage, record } = from else { return Ok(()) };
        let reason = error.chain();
        reports(record, error).iter().try_for_each(|report| self.dataset.store.report(report))?;
        (self.options.progress)(Event::Bad { stage: stage.name.clone(), partition, reason });
        Ok(())
    }
}

/// What came of a round of jobs.
struct Round {
    /// Those of which something is missing still, in their order.
    left: Vec<Job>,
    /// Those that may succeed when tried again, with what is left of them.
    failed: Vec<(Job, Error)>,
}

/// What a pass computes from.
enum Start {
    Source,
    Stored { stage: Box<Stage>, record: Record },
}

impl Start {
    fn is_same(&self, other: &Start) -> bool {
        match (self, other) {
            (Start::Source, Start::Source) => true,
            (Start::Stored { record: a, .. }, Start::Stored { record: b, .. }) => {
                a.recipe == b.recipe && a.encoding == b.encoding
            }
            _ => false,
        }
    }
}
