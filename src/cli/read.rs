//! `forebay read`: samples and batches, from the nearest stored stage.

use crate::app::open::{OnMissing, Opened, Reading, Which, describe, from_file};
use crate::app::trace::{self, Dropped, Trace};
use crate::app::values;
use crate::cli::output::{count, say, seconds, shown};
use crate::cli::{Context, now_ms};
use crate::engine::dataset::Split;
use crate::engine::pool::Pool;
use crate::error::{Error, Result};
use crate::format::ERROR;
use crate::plan::order::batch::{Batching, Tail};
use crate::reader::{Origin, Reader};
use crate::spec::size;
use arrow::array::{Array, AsArray, RecordBatch};
use clap::{Args, ValueEnum};
use serde_json::{Value, json};
use std::fmt::Write;
use std::path::PathBuf;
use std::time::Instant;

/// Read batches as a training job would, and look at samples
#[derive(Args)]
#[command(after_help = "Examples:
  forebay read photos.yaml --split train                the first samples
  forebay read photos.yaml --split train --count
  forebay read photos.yaml --split train --key cats/1.jpg --save ./look
  forebay read photos.yaml --split train --random 16 --save ./look
  forebay read photos.yaml --split train --bench        how fast are batches made?")]
pub struct Arguments {
    /// The pipeline file
    pipeline: PathBuf,
    /// Which split, where the pipeline has several [default: the first]
    #[arg(long)]
    split: Option<String>,
    /// Read this stage instead of the last
    #[arg(long)]
    stage: Option<String>,
    /// What to do about shards that aren't stored: warn where another recipe of a stage is, refuse to read, or
    /// compute them without a word [default: warn; error with --stage, where that stage can be stored]
    #[arg(long, value_name = "WHAT")]
    on_missing: Option<Missing>,
    /// A snapshot's id [default: the current one]
    #[arg(long)]
    snapshot: Option<crate::id::SnapshotId>,
    /// Samples in a batch
    #[arg(long, default_value_t = 256, value_parser = clap::value_parser!(u64).range(1..))]
    batch_size: u64,
    /// Shuffle (or `--shuffle=false`) [default: as the split says, else not]
    #[arg(long, num_args = 0..=1, default_missing_value = "true", require_equals = true)]
    shuffle: Option<bool>,
    #[arg(long, default_value_t = 0)]
    seed: u64,
    #[arg(long, default_value_t = 0)]
    epoch: u64,
    /// Show this many samples
    #[arg(long, default_value_t = 5)]
    limit: u64,
    /// Print how many samples an epoch has
    #[arg(long, group = "what")]
    count: bool,
    /// Show one sample at every stage, computed from the source
    #[arg(long, value_name = "KEY", groups = ["what", "sample"])]
    key: Option<String>,
    /// Show this many of the split's samples, chosen at random (by --seed), at every stage
    #[arg(long, value_name = "N", groups = ["what", "sample"])]
    random: Option<u64>,
    /// With --key or --random: write each stage of each sample into this directory, images as PNG
    #[arg(long, value_name = "DIR", requires = "sample")]
    save: Option<PathBuf>,
    /// Read an epoch and say how fast
    #[arg(long, group = "what")]
    bench: bool,
    /// With --bench: stop after this many seconds
    #[arg(long, default_value_t = 20.0, requires = "bench")]
    bench_seconds: f64,
}

#[derive(Clone, Copy, ValueEnum)]
enum Missing {
    Warn,
    Error,
    Compute,
}

impl From<Missing> for OnMissing {
    fn from(missing: Missing) -> OnMissing {
        match missing {
            Missing::Warn => OnMissing::Warn,
            Missing::Error => OnMissing::Error,
            Missing::Compute => OnMissing::Compute,
        }
    }
}

pub fn run(arguments: Arguments, context: &Context) -> Result<()> {
    let which = arguments.snapshot.map_or(Which::Current, Which::Id);
    let opened = context.surrounded(|s| from_file(&arguments.pipeline, which, now_ms(), s))?;
    opened.notes.iter().for_each(|note| context.out.note(note));
    let split = split(&arguments, &opened, context)?;
    if arguments.key.is_some() || arguments.random.is_some() {
        return samples(&arguments, &opened, split, context);
    }
    let reading = Reading {
        split: split.name.as_deref(),
        stage: arguments.stage.as_deref(),
        batching: Batching::new(arguments.batch_size, 0, 1, Tail::Short)?,
        shuffle: arguments.shuffle,
        seed: arguments.seed,
        prefetch: 0,
    };
    let reader = opened.reader(&reading, Pool::new(context.threads())?)?;
    if arguments.count {
        let document = json!({ "rows": reader.rows(), "batches": reader.batches(0) });
        context.out.result(document, || reader.rows().to_string())?;
        return Ok(());
    }
    let origins = reader.origins()?;
    context.out.note(&describe(&origins));
    let warning = opened.missing(&reading, &origins, arguments.on_missing.map(OnMissing::from))?;
    warning.iter().for_each(|w| context.out.warn(w));
    let mut failed = Failed::default();
    let done = if arguments.bench {
        bench(&arguments, &reader, &origins, &mut failed, context)
    } else {
        head(&arguments, &reader, &mut failed, context)
    };
    if let Some((key, reason)) = &failed.first {
        let samples = format!("{} of {}", failed.samples, count(failed.of, "sample"));
        context.out.warn(&format!("{samples} failed and hold nulls, first {}: {}", shown(key), shown(reason)));
        say(&format!("  look at it: {}", context.look_at(&arguments.pipeline, key, split.name.as_deref())));
    }
    reader.take_warnings().iter().for_each(|w| context.out.warn(w));
    done
}

/// Failed samples among those read.
#[derive(Default)]
struct Failed {
    samples: u64,
    of: u64,
    /// Key and reason.
    first: Option<(String, String)>,
}

impl Failed {
    fn note(&mut self, batch: &RecordBatch) {
        self.of += batch.num_rows() as u64;
        let errors = batch.column_by_name(ERROR).and_then(|column| column.as_string_opt::<i64>());
        let Some(errors) = errors.filter(|errors| errors.null_count() < errors.len()) else { return };
        self.samples += (errors.len() - errors.null_count()) as u64;
        if self.first.is_none() {
            let row = (0..errors.len()).find(|row| errors.is_valid(*row)).unwrap_or(0);
            self.first = Some((batch.column(0).as_string::<i64>().value(row).to_owned(), errors.value(row).to_owned()));
        }
    }
}

/// The split that is asked for; the first, and says so, where there are several and none is named.
fn split<'a>(arguments: &Arguments, opened: &'a Opened, context: &Context) -> Result<&'a Split> {
    let splits = &opened.dataset.splits;
    let (None, [first, _, ..]) = (&arguments.split, splits.as_slice()) else {
        return opened.dataset.split(arguments.split.as_deref());
    };
    let names: Vec<&str> = splits.iter().filter_map(|s| s.name.as_deref()).collect();
    context.out.note(&format!("reading split {}, the first of {}", names[0], names.join(", ")));
    Ok(first)
}

/// The first samples, a line each.
fn head(arguments: &Arguments, reader: &Reader, failed: &mut Failed, context: &Context) -> Result<()> {
    let mut rows = Vec::new();
    let mut text = String::new();
    let mut batches = reader.epoch(arguments.epoch, 0)?;
    while (rows.len() as u64) < arguments.limit {
        let Some(batch) = batches.next() else { break };
        let batch = batch?.rows;
        let wanted = arguments.limit - rows.len() as u64;
        for row in (0..batch.num_rows()).take(usize::try_from(wanted).unwrap_or(usize::MAX)) {
            failed.note(&batch.slice(row, 1));
            rows.push(values::row_json(&batch, row));
            text.push_str(&line(&batch, row));
        }
    }
    context.out.result(Value::Array(rows), || text)
}

/// `key  column=value …`
fn line(batch: &RecordBatch, row: usize) -> String {
    let schema = batch.schema();
    let mut text = shown(&values::short(schema.field(0), batch.column(0), row));
    for (field, array) in schema.fields().iter().zip(batch.columns()).skip(1) {
        if field.name() != ERROR || array.is_valid(row) {
            let _ = write!(text, "  {}={}", field.name(), shown(&values::short(field, array, row)));
        }
    }
    text + "\n"
}

/// Single samples at every stage.
fn samples(arguments: &Arguments, opened: &Opened, split: &Split, context: &Context) -> Result<()> {
    let run = |place| trace::trace(opened, split, place, arguments.seed, arguments.epoch);
    let traces: Box<dyn Iterator<Item = Result<Trace>>> = match (&arguments.key, arguments.random) {
        (Some(key), _) => Box::new(std::iter::once(run(trace::find(opened, key)?))),
        // Samples of other splits are passed over.
        (None, count) => {
            let kept = |trace: &Result<Trace>| trace.as_ref().map_or(true, |trace| trace.dropped.is_none());
            let count = usize::try_from(count.unwrap_or(1)).unwrap_or(usize::MAX);
            Box::new(trace::random(opened, arguments.seed).map(run).filter(kept).take(count))
        }
    };
    if let Some(directory) = &arguments.save {
        std::fs::create_dir_all(directory).map_err(|e| Error::io(format!("cannot make {}", directory.display()), e))?;
    }
    let mut documents = Vec::new();
    let mut text = String::new();
    for trace in traces {
        let trace = trace?;
        let key = &trace.key;
        let _ = writeln!(text, "{}", shown(key));
        let mut stages = Vec::new();
        for (number, stage) in trace.stages.iter().enumerate() {
            let batch = &stage.rows.batch;
            let mut files = Vec::new();
            for row in 0..batch.num_rows() {
                let _ = write!(text, "  {:<14}{}", stage.stage, line(batch, row));
                if let Some(directory) = &arguments.save {
                    let prefix = format!("{}.{number}-{}", values::file_name(key), stage.stage);
                    files.extend(values::save(batch, row, directory, &prefix)?);
                }
            }
            let rows: Vec<Value> = (0..batch.num_rows()).map(|row| values::row_json(batch, row)).collect();
            stages.push(json!({ "stage": stage.stage, "rows": rows, "files": files }));
        }
        let mut fate = Value::Null;
        if let Some(dropped) = &trace.dropped {
            let kept_by = trace::kept_by(opened, &trace, arguments.seed, arguments.epoch)?;
            let _ = writeln!(text, "  {:<14}dropped: {}", dropped.stage, why(dropped, &kept_by));
            fate = json!({ "stage": dropped.stage, "condition": dropped.condition, "kept_by_splits": kept_by });
        }
        documents.push(json!({ "key": key, "stages": stages, "dropped": fate }));
    }
    context.out.result(Value::Array(documents), || text)
}

/// Why a sample isn't in a split, and in which it is.
fn why(dropped: &Dropped, kept_by: &[String]) -> String {
    let condition = match &dropped.condition {
        Some(condition) => format!("{} isn't true of it", shown(condition)),
        None => "the step left it out".to_owned(),
    };
    match kept_by {
        [] => condition,
        [one] => format!("{condition}; it is in split {one}"),
        several => format!("{condition}; it is in the splits {}", several.join(", ")),
    }
}

fn bench(
    arguments: &Arguments,
    reader: &Reader,
    origins: &[Origin],
    failed: &mut Failed,
    context: &Context,
) -> Result<()> {
    let begun = Instant::now();
    let (mut rows, mut batches, mut bytes, mut first) = (0u64, 0u64, 0u64, None);
    for batch in reader.epoch(arguments.epoch, 0)? {
        let batch = batch?;
        first.get_or_insert_with(|| begun.elapsed().as_secs_f64());
        failed.note(&batch.rows);
        rows += batch.rows.num_rows() as u64;
        bytes += crate::engine::rows::batch_bytes(&batch.rows, 0, batch.rows.num_rows()) as u64;
        batches += 1;
        if begun.elapsed().as_secs_f64() > arguments.bench_seconds {
            break;
        }
    }
    let elapsed = begun.elapsed().as_secs_f64();
    let rate = rows as f64 / elapsed.max(1e-9);
    let origins: Vec<Value> = origins
        .iter()
        .map(|o| json!({ "stage": o.stage, "encoding": o.encoding, "shards": o.shards, "rows": o.rows }))
        .collect();
    let document = json!({
        "rows": rows, "failed_rows": failed.samples, "batches": batches, "bytes": bytes, "seconds": elapsed, "rows_per_second": rate,
        "first_batch_seconds": first, "threads": context.threads(), "origins": origins,
    });
    context.out.result(document, || {
        format!(
            "{} in {}: {rate:.0} samples a second, {}/s of batches ({} threads, first batch after {})",
            count(rows, "sample"),
            seconds(elapsed),
            size::print((bytes as f64 / elapsed.max(1e-9)) as u64),
            context.threads(),
            seconds(first.unwrap_or(0.0)),
        )
    })?;
    Ok(())
}
