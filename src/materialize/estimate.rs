//! Foretells what a run would write and how long it would take, by running a few pieces of the source in memory.

use crate::engine::dataset::Dataset;
use crate::engine::input;
use crate::engine::rows::{Rows, batch_bytes};
use crate::engine::tree::Tree;
use crate::error::{Error, Result};
use crate::format::shard::Encoder;
use crate::materialize::Target;
use crate::plan::snapshot::Snapshot;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Pieces tried, spread over the partitions, how much of each, and the time after which no further one is begun.
const PIECES: usize = 4;
const GROUPS: usize = 2;
const ENOUGH: Duration = Duration::from_millis(1500);

/// What storing one target of the whole snapshot would take.
#[derive(Debug, Clone)]
pub struct Estimate {
    /// Bytes as stored.
    pub bytes: u64,
    /// Bytes of the values, before compression.
    pub value_bytes: u64,
    /// Seconds on one thread, all targets' shared steps counted in each.
    pub thread_seconds: f64,
    pub sampled_rows: u64,
}

/// One estimate for each target; all zero for an empty snapshot.
pub fn estimate(dataset: &Dataset, snapshot: &Arc<Snapshot>, targets: &[Target]) -> Result<Vec<Estimate>> {
    let source = dataset
        .source
        .as_ref()
        .ok_or_else(|| Error::invalid("an estimate needs the source; open the pipeline file"))?;
    let chains = dataset.chains();
    let recipes: Vec<_> = targets.iter().map(|t| t.recipe).collect();
    let tree = Tree::new(&chains, chains[0].stages[0].recipe, &recipes)?;
    let mut sums = vec![Estimate { bytes: 0, value_bytes: 0, thread_seconds: 0.0, sampled_rows: 0 }; targets.len()];
    let mut sampled = 0;
    let begun = Instant::now();
    let step = (snapshot.partitions() / PIECES).max(1);
    for partition in (0..snapshot.partitions()).step_by(step).take(PIECES) {
        if begun.elapsed() > ENOUGH {
            break;
        }
        let Some(piece) = input::from_source(source, snapshot, partition)?.next() else { continue };
        let mut start = Instant::now();
        let rows = piece?.read()?;
        for group in rows.groups().take(GROUPS) {
            sampled += group.len() as u64;
            let mut outputs = Vec::new();
            tree.run(group, 0, 0, &mut |recipe, rows: Rows| outputs.push((recipe, rows, start.elapsed())))?;
            for (target, sum) in targets.iter().zip(&mut sums) {
                for (_, rows, elapsed) in outputs.iter().filter(|(r, ..)| *r == target.recipe) {
                    let encode = Instant::now();
                    let stage = chains.iter().flat_map(|c| &c.stages).find(|s| s.recipe == target.recipe);
                    let stage = stage.ok_or_else(|| Error::internal("a target without a stage"))?;
                    let encoder = Encoder::new(stage.schema.clone(), target.encoding)?;
                    let batch = rows.to_stored(&stage.schema)?;
                    let mut part = encoder.part(Vec::new())?;
                    part.append(encoder.encode(&batch)?)?;
                    sum.bytes += part.finish()?.1.bytes;
                    sum.value_bytes += batch_bytes(&batch, 0, batch.num_rows()) as u64;
                    sum.thread_seconds += (*elapsed + encode.elapsed()).as_secs_f64();
                }
            }
            start = Instant::now();
        }
    }
    let scale = if sampled == 0 { 0.0 } else { snapshot.rows() as f64 / sampled as f64 };
    for sum in &mut sums {
        sum.bytes = (sum.bytes as f64 * scale) as u64;
        sum.value_bytes = (sum.value_bytes as f64 * scale) as u64;
        sum.thread_seconds *= scale;
        sum.sampled_rows = sampled;
    }
    Ok(sums)
}
