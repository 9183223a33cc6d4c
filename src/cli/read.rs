//! `forebay read`: samples and batches, from the nearest stored stage.

use crate::app::open::{Opened, Reading, Which, describe, from_file};
use crate::cli::output::{count, seconds};
use crate::cli::{Context, now_ms};
use crate::engine::pool::Pool;
use crate::error::Result;
use crate::plan::order::batch::{Batching, Tail};
use crate::spec::size;
use clap::Args;
use serde_json::json;
use std::path::PathBuf;
use std::time::Instant;

/// Read batches as a training job would, and look at samples
#[derive(Args)]
#[command(after_help = "Examples:
  forebay read photos.yaml --split train --bench        how fast are batches made?
  forebay read photos.yaml --key cats/1.jpg             one sample")]
pub struct Arguments {
    /// The pipeline file
    pipeline: PathBuf,
    /// Which split, where the pipeline has several
    #[arg(long)]
    split: Option<String>,
    /// Read this stage instead of the last
    #[arg(long)]
    stage: Option<String>,
    /// A snapshot's id [default: the current one]
    #[arg(long)]
    snapshot: Option<crate::id::SnapshotId>,
    /// Samples in a batch
    #[arg(long, default_value_t = 256)]
    batch_size: u64,
    /// Shuffle (or `--shuffle=false`) [default: as the split says, else not]
    #[arg(long, num_args = 0..=1, default_missing_value = "true", require_equals = true)]
    shuffle: Option<bool>,
    #[arg(long, default_value_t = 0)]
    seed: u64,
    #[arg(long, default_value_t = 0)]
    epoch: u64,
    /// Read whole epochs and say how fast
    #[arg(long)]
    bench: bool,
    /// With --bench: stop after this many seconds
    #[arg(long, default_value_t = 20.0, requires = "bench")]
    bench_seconds: f64,
}

pub fn run(arguments: Arguments, context: &Context) -> Result<()> {
    let which = arguments.snapshot.map_or(Which::Current, Which::Id);
    let opened = context.surrounded(|s| from_file(&arguments.pipeline, which, now_ms(), s))?;
    opened.notes.iter().for_each(|note| context.out.note(note));
    bench(&arguments, &opened, context)
}

fn bench(arguments: &Arguments, opened: &Opened, context: &Context) -> Result<()> {
    let reading = Reading {
        split: arguments.split.as_deref(),
        stage: arguments.stage.as_deref(),
        batching: Batching::new(arguments.batch_size, 0, 1, Tail::Short)?,
        shuffle: arguments.shuffle,
        seed: arguments.seed,
        prefetch: 0,
    };
    let reader = opened.reader(&reading, Pool::new(context.threads())?)?;
    context.out.note(&describe(&reader.origins()?));
    let begun = Instant::now();
    let (mut rows, mut batches, mut bytes, mut first) = (0u64, 0u64, 0u64, None);
    for batch in reader.epoch(arguments.epoch, 0)? {
        let batch = batch?;
        first.get_or_insert_with(|| begun.elapsed().as_secs_f64());
        rows += batch.rows.num_rows() as u64;
        bytes += crate::engine::rows::batch_bytes(&batch.rows, 0, batch.rows.num_rows()) as u64;
        batches += 1;
        if begun.elapsed().as_secs_f64() > arguments.bench_seconds {
            break;
        }
    }
    reader.take_warnings().iter().for_each(|w| context.out.warn(w));
    let elapsed = begun.elapsed().as_secs_f64();
    let rate = rows as f64 / elapsed.max(1e-9);
    let document = json!({
        "rows": rows, "batches": batches, "bytes": bytes, "seconds": elapsed, "rows_per_second": rate,
        "first_batch_seconds": first, "threads": context.threads(),
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
    });
    Ok(())
}
