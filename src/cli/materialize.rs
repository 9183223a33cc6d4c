//! `forebay materialize`: computes and stores stages.

use crate::app;
use crate::app::open::Which;
use crate::app::project::Project;
use crate::app::store_stages::{Done, Prepared, Request, check_room};
use crate::cli::output::{self, count, say, seconds, shown};
use crate::cli::worker::Given;
use crate::cli::{Context, now_ms, progress, reported};
use crate::engine::pool::Pool;
use crate::error::{Error, Kind, Result};
use crate::format::encoding::{Codec, Container};
use crate::id::SnapshotId;
use crate::materialize::Target;
use crate::materialize::estimate::Estimate;
use crate::materialize::run::{Options, Outcome, RETRY_AFTER};
use crate::materialize::worker::Worker;
use crate::plan::snapshot::Snapshot;
use crate::spec::pipeline::OnError;
use crate::spec::size;
use clap::Args;
use serde_json::{Value, json};
use std::fmt::Write;
use std::io::{BufRead, IsTerminal};
use std::path::PathBuf;
use std::sync::Arc;

/// Compute stages and store them as shards; what is stored already is not computed again
///
/// Killed at any point, the same command goes on where it stopped.
#[derive(Args)]
#[command(after_help = "Examples:
  forebay materialize photos.yaml                       store the default stage
  forebay materialize photos.yaml --stage decode --stage resize
  forebay materialize photos.yaml --stage all --format parquet --compression zstd:3
  forebay materialize photos.yaml --dry-run             say what would be done
  forebay snapshot photos.yaml                          before workers begin: they list nothing
  forebay materialize photos.yaml --worker 0/4          others, on other machines, are 1/4 to 3/4
  JOB_COMPLETION_INDEX=0 forebay materialize photos.yaml --worker auto/8")]
pub struct Arguments {
    /// The pipeline file
    pipeline: PathBuf,
    /// A stage's name, or `all`; may be repeated [default: the pipeline's `materialize:`, else the last deterministic
    /// stage that all splits share, less trailing steps that only cast or scale]
    #[arg(long, value_name = "NAME")]
    stage: Vec<String>,
    /// `arrow` or `parquet` [default: arrow for tensors, parquet otherwise]
    #[arg(long, value_name = "FORMAT")]
    format: Option<Container>,
    /// `none`, `lz4`, `zstd:LEVEL`, and with parquet `snappy`, `gzip:LEVEL`
    #[arg(long, value_name = "CODEC")]
    compression: Option<Codec>,
    /// Say what would be computed and reused, with bytes and time estimated from a small sample; store nothing
    #[arg(long)]
    dry_run: bool,
    /// Don't ask before writing much
    #[arg(short, long)]
    yes: bool,
    /// Accept a listing that loses or changes more than half of the entries
    #[arg(long, conflicts_with = "worker")]
    replace: bool,
    /// Be worker I of N that store the same stages, counted from 0: begin with an N-th of the shards, then take what is still
    /// missing of the others'. `auto`: as the variables of a Slurm job array say; `auto/N`: as JOB_COMPLETION_INDEX of a
    /// Kubernetes job says
    #[arg(long, value_name = "I/N")]
    worker: Option<Given>,
    /// The snapshot that the workers store [default: the current one]
    #[arg(long, value_name = "ID", requires = "worker")]
    snapshot: Option<SnapshotId>,
}

pub fn run(arguments: Arguments, context: &Context) -> Result<()> {
    let out = &context.out;
    let request =
        Request { stages: arguments.stage.clone(), container: arguments.format, codec: arguments.compression };
    let worker = arguments.worker.map(|given| given.resolve(&|name| std::env::var(name).ok())).transpose()?;
    let (project, snapshot) = match worker {
        Some(worker) => as_worker(&arguments, context, &request, worker)?,
        None => listed(&arguments, context, &request)?,
    };
    let mut prepared = Prepared::new(&project, snapshot.clone(), &request)?;
    if let Some(worker) = worker {
        prepared = prepared.for_worker(worker);
    }
    if let Some(reason) = &prepared.targets.reason {
        out.note(&format!("storing stage {}: {reason}", prepared.targets.targets[0].stage));
    }
    if prepared.healed() > 0 {
        let stages: Vec<String> = prepared.healing.targets.iter().map(Target::to_string).collect();
        let shards = count(prepared.healed() as u64, "shard");
        out.note(&format!("healing {shards} reported bad, of {}", stages.join(", ")));
    }
    let estimates = match prepared.plan.jobs.is_empty() {
        true => Vec::new(),
        false => prepared.estimate(&project)?,
    };
    if arguments.dry_run {
        return show_plan(&prepared, &estimates, context);
    }
    let bytes = estimates.iter().map(|e| e.bytes).sum();
    check_room(&project, bytes)?;
    if !arguments.yes {
        ask(&project, &prepared, bytes)?;
    }

    context.stop_on_signals();
    let rows = prepared.plan.jobs.iter().map(|j| snapshot.source_rows(j.partition)).sum();
    let storing = progress::Storing::new(out, rows);
    let options = Options {
        pool: Pool::new(context.threads())?,
        on_error: project.pipeline.on_error,
        stop: &context.stop,
        retry_after: &RETRY_AFTER,
        progress: &|event| storing.update(event),
    };
    let targets = prepared.targets.targets.clone();
    let done = prepared.run(&project, &options);
    let elapsed = storing.finish();
    let run = Run { worker, targets, elapsed: elapsed.as_secs_f64() };
    show_done(&arguments, context, &project, &run, &done?)
}

/// The project with a snapshot that was taken, and unless it is a dry run published, now.
fn listed(arguments: &Arguments, context: &Context, request: &Request) -> Result<(Project, Arc<Snapshot>)> {
    let begun_ms = now_ms();
    let (mut project, snapshot) = context.surrounded(|surroundings| {
        let project = Project::open(&arguments.pipeline, surroundings)?;
        // What can't be stored is refused before anything is listed and published.
        request.targets(&project)?;
        let snapshot = Arc::new(project.list(surroundings.progress)?);
        Ok((project, snapshot))
    })?;
    project.notes().iter().for_each(|note| context.out.note(note));
    if !arguments.dry_run {
        project.dataset.hold("materialize", snapshot.id)?;
        project.publish(&snapshot, begun_ms, arguments.replace)?;
    }
    Ok((project, snapshot))
}

/// The project with a snapshot that the store holds.
fn as_worker(
    arguments: &Arguments,
    context: &Context,
    request: &Request,
    worker: Worker,
) -> Result<(Project, Arc<Snapshot>)> {
    let which = arguments.snapshot.map_or(Which::Current, Which::Id);
    let (mut project, snapshot) = context.surrounded(|s| app::worker::open(&arguments.pipeline, which, s))?;
    request.targets(&project)?;
    if !arguments.dry_run {
        app::open::hold(&mut project.dataset, "materialize --worker", snapshot.id)?;
    }
    let partitions = count(snapshot.partitions() as u64, "partition");
    context.out.note(&format!("worker {worker} of snapshot {}: {partitions}", snapshot.id.short()));
    Ok((project, snapshot))
}

fn show_plan(prepared: &Prepared, estimates: &[Estimate], context: &Context) -> Result<()> {
    let partitions = prepared.snapshot.partitions();
    let rows: Vec<Value> = prepared
        .targets
        .targets
        .iter()
        .enumerate()
        .map(|(index, target)| {
            let missing = prepared.plan.missing(index);
            let estimate = estimates.get(index);
            json!({
                "stage": target.stage,
                "split": target.split,
                "encoding": target.encoding,
                "recipe": target.recipe,
                "shards_to_compute": missing,
                "shards_reused": partitions - missing,
                "estimated_bytes": estimate.map_or(0, |e| e.bytes),
                "estimated_seconds": estimate.map_or(0.0, |e| e.thread_seconds / context.threads() as f64),
            })
        })
        .collect();
    let document = json!({ "dry_run": true, "snapshot": prepared.snapshot.id, "stages": rows });
    context.out.result(document, || {
        let mut text = String::new();
        for (index, target) in prepared.targets.targets.iter().enumerate() {
            let missing = prepared.plan.missing(index) as u64;
            let reused = count(partitions as u64 - missing, "shard");
            let _ = write!(text, "{target}: {} to compute, {reused} reused", count(missing, "shard"));
            if let Some(estimate) = estimates.get(index) {
                let time = seconds(estimate.thread_seconds / context.threads() as f64);
                let _ = write!(
                    text,
                    "; about {} and {time} (estimated from {})",
                    size::print(estimate.bytes),
                    count(estimate.sampled_rows, "sample"),
                );
            }
            text.push('\n');
        }
        text
    })?;
    Ok(())
}

/// Asks before writing more than 3x the input or 20 % of the free space.
fn ask(project: &Project, prepared: &Prepared, bytes: u64) -> Result<()> {
    let input = prepared.snapshot.bytes();
    let free = project.dataset.store.storage().free_bytes();
    let why = if bytes > input.saturating_mul(3) && bytes > 1 << 30 {
        format!("more than 3x the input of {}", size::print(input))
    } else if let Some(free) = free.filter(|f| bytes > f / 5) {
        format!("more than a fifth of the {} free", size::print(free))
    } else {
        return Ok(());
    };
    let what = format!("about {} would be stored, {why}", size::print(bytes));
    if !std::io::stdin().is_terminal() {
        return Err(Error::invalid(format!("{what}; use --yes if that is meant, or see --dry-run")));
    }
    say(&format!("{what}. Go on? [y/N]"));
    let mut answer = String::new();
    std::io::stdin().lock().read_line(&mut answer).map_err(|e| Error::io("cannot read the answer", e))?;
    if answer.trim().eq_ignore_ascii_case("y") || answer.trim().eq_ignore_ascii_case("yes") {
        return Ok(());
    }
    Err(Error::invalid("no stage was stored"))
}

/// What was run, for the report.
struct Run {
    worker: Option<Worker>,
    targets: Vec<Target>,
    /// Seconds.
    elapsed: f64,
}

fn show_done(arguments: &Arguments, context: &Context, project: &Project, run: &Run, done: &Done) -> Result<()> {
    let (outcome, targets) = (&done.outcome, run.targets.as_slice());
    let stages: Vec<Value> = targets
        .iter()
        .zip(&done.manifests)
        .zip(&outcome.records)
        .map(|((target, manifest), records)| {
            json!({
                "stage": target.stage,
                "split": target.split,
                "encoding": target.encoding,
                "recipe": target.recipe,
                "shards": records.len(),
                "rows": records.values().map(|r| r.rows).sum::<u64>(),
                "bytes": records.values().map(|r| r.bytes).sum::<u64>(),
                "failed_rows": records.values().map(|r| r.failed_rows).sum::<u64>(),
                "complete": manifest.is_some(),
            })
        })
        .collect();
    let failures: Vec<Value> = outcome.failures.iter().map(|f| json!({ "key": f.key, "reason": f.reason })).collect();
    let errors: Vec<Value> =
        outcome.errors.iter().map(|(p, e)| json!({ "partition": p, "error": e.chain() })).collect();
    let failure = failure(project, targets, done);
    let document = json!({
        "error": failure.as_ref().map(output::document),
        "worker": run.worker.map(|worker| worker.to_string()),
        "stages": stages,
        "computed_shards": outcome.computed_shards,
        "computed_rows": outcome.computed_rows,
        "found_shards": outcome.found_shards,
        "failed_rows": outcome.failed_rows,
        "failures": failures,
        "errors": errors,
        "seconds": run.elapsed,
    });
    context.out.result(document, || {
        let mut text = String::new();
        for (target, records) in targets.iter().zip(&outcome.records) {
            let rows: u64 = records.values().map(|r| r.rows).sum();
            let bytes: u64 = records.values().map(|r| r.bytes).sum();
            let shards = count(records.len() as u64, "shard");
            let _ = writeln!(text, "{target}: {shards}, {}, {}", count(rows, "row"), size::print(bytes));
        }
        let there: u64 = outcome.records.iter().map(|r| r.len() as u64).sum();
        let reused = there - outcome.computed_shards - outcome.found_shards;
        let who = run.worker.map_or(String::new(), |worker| format!("worker {worker} "));
        let (shards, time) = (count(outcome.computed_shards, "shard"), seconds(run.elapsed));
        let _ = write!(text, "{who}computed {shards} in {time}, reused {reused}");
        if run.worker.is_some() || outcome.found_shards > 0 {
            let _ = write!(text, ", other writers stored {} meanwhile", outcome.found_shards);
        }
        text.push('\n');
        text
    })?;
    if !outcome.stopped {
        show_failures(arguments, context, project, outcome);
    }
    match failure {
        None => Ok(()),
        Some(error) => {
            context.out.complain(&error);
            Err(reported(error.kind()))
        }
    }
}

/// How many samples failed, which and why, and how to look at one; and what kept partitions from being stored.
fn show_failures(arguments: &Arguments, context: &Context, project: &Project, outcome: &Outcome) {
    const SHOWN: usize = 10;
    if let Some(first) = outcome.failures.first() {
        let kept = matches!(project.pipeline.on_error, OnError::Keep { .. });
        let fate = if kept { "kept with nulls and the reason in _error" } else { "their shards were not stored" };
        context.out.warn(&format!("{} failed; {fate}:", count(outcome.failed_rows, "sample")));
        for failure in outcome.failures.iter().take(SHOWN) {
            let line = step_line(project, &failure.reason).map_or(String::new(), |line| format!(" ({line})"));
            say(&format!("  {}: {}{line}", shown(&failure.key), shown(&failure.reason)));
        }
        if outcome.failed_rows > SHOWN as u64 {
            say(&format!("  … and {} more (--json lists up to 1,000)", outcome.failed_rows - SHOWN as u64));
        }
        let split = project.dataset.splits.first().and_then(|split| split.name.as_deref());
        say(&format!("  look at one: {}", context.look_at(&arguments.pipeline, &first.key, split)));
        if !kept {
            say("  mend or remove them, or set `on_error: keep` with `max_errors:` in the pipeline file");
        }
    }
    for (partition, error) in &outcome.errors {
        say(&format!("  partition {partition}: {}", error.chain()));
    }
}

/// What the command fails with, if anything isn't stored that should be.
fn failure(project: &Project, targets: &[Target], done: &Done) -> Option<Error> {
    let outcome = &done.outcome;
    if outcome.stopped {
        return Some(Error::unavailable("stopped; finished shards are kept, and the same command goes on from them"));
    }
    if let Some((_, first)) = outcome.errors.first() {
        let shards = count(outcome.errors.len() as u64, "partition");
        // What may help without mending anything is said by the exit code.
        let retry = outcome.errors.iter().any(|(_, error)| error.kind() == Kind::Unavailable);
        return Some(Error::new(
            if retry { Kind::Unavailable } else { first.kind() },
            format!("{shards} could not be stored; all others are. Run the command again once mended"),
        ));
    }
    let unfinished =
        targets.iter().zip(&outcome.records).zip(&done.manifests).filter(|(_, manifest)| manifest.is_none());
    let stages: Vec<String> = unfinished
        .map(|((target, records), _)| {
            let failed: u64 = records.values().map(|r| r.failed_rows).sum();
            let rows: u64 = records.values().map(|r| r.rows).sum();
            match project.pipeline.on_error {
                OnError::Keep { max_errors } => {
                    let share = max_errors * 100.0;
                    format!("{target}: {failed} of {rows} failed, more than max_errors: {share}%")
                }
                OnError::Fail if failed > 0 => {
                    format!("{target}: {failed} of {rows} failed when they were stored, with `on_error: keep`")
                }
                OnError::Fail => target.to_string(),
            }
        })
        .collect();
    let failed = match outcome.failed_rows {
        0 => String::new(),
        failed => format!("{} failed; ", count(failed, "sample")),
    };
    (!stages.is_empty()).then(|| Error::invalid(format!("{failed}not complete: {}", stages.join("; "))))
}

/// Where the step stands whose name a failure's reason begins with: `photos.yaml:7`.
fn step_line(project: &Project, reason: &str) -> Option<String> {
    let (name, _) = reason.split_once(": ")?;
    let own = project.pipeline.splits.iter().flat_map(|s| &s.steps);
    let step = project.pipeline.steps.iter().chain(own).find(|s| s.name == name)?;
    Some(format!("{}:{}", step.span.file, step.span.line))
}
