//! What a pipeline would do, checked on a sample before anything is stored: schemas, what may be stored, whether rows are
//! independent, partitions, memory, and advice.

use crate::app::labels::columns as label_columns;
use crate::app::project::Project;
use crate::app::values::type_name;
use crate::engine::input;
use crate::engine::rows::{Rows, batch_bytes};
use crate::error::{Error, Kind, Result};
use crate::format::encoding::Encoding;
use crate::materialize::Target;
use crate::materialize::estimate::estimate;
use crate::plan::chain::Chain;
use crate::plan::cut;
use crate::plan::snapshot::Snapshot;
use crate::reader::{CHUNKS_BYTES, ENTRY_BYTES};
use crate::spec::pipeline::{IdentityMode, SourceKind};
use crate::spec::size;
use crate::step::{Cardinality, Purity};
use arrow::array::{Array, UInt32Array};
use arrow::util::display::{ArrayFormatter, FormatOptions};
use std::collections::HashSet;
use std::sync::Arc;

/// Rows that purity is tried on.
const SAMPLE_ROWS: usize = 16;
/// Stored shards below and above these sizes deserve another `partition:`.
const SMALL_SHARD: u64 = 1 << 20;
const LARGE_SHARD: u64 = 4 << 30;

#[derive(Debug, Clone)]
pub struct Checked {
    pub stages: Vec<StageCheck>,
    pub partitions: usize,
    pub entries: usize,
    pub rows: u64,
    pub bytes: u64,
    pub lanes: u32,
    pub block: u32,
    /// Bytes of the source that a reader holds at most where nothing is stored.
    pub open_bytes: u64,
    /// Failed samples among those tried: key and reason.
    pub failed: Vec<(String, String)>,
    /// What deserves attention, one sentence each.
    pub advice: Vec<String>,
}

#[derive(Debug, Clone)]
pub struct StageCheck {
    pub split: Option<String>,
    pub name: String,
    pub purity: Purity,
    pub cardinality: Cardinality,
    /// Column names and types.
    pub columns: Vec<(String, String)>,
    /// Why it can't be stored.
    pub unstorable: Option<String>,
    pub encoding: Encoding,
    /// Estimated bytes, where it may be stored.
    pub bytes: Option<u64>,
}

pub fn check(project: &Project, snapshot: &Arc<Snapshot>) -> Result<Checked> {
    let (lanes, block) = project.order_parameters(snapshot);
    let mut checked = Checked {
        stages: Vec::new(),
        partitions: snapshot.partitions(),
        entries: snapshot.entries.entries.len(),
        rows: snapshot.rows(),
        bytes: snapshot.bytes(),
        lanes,
        block,
        open_bytes: open_bytes(project, snapshot, lanes, block),
        failed: Vec::new(),
        advice: Vec::new(),
    };
    stages(project, snapshot, &mut checked)?;
    let source = &project.pipeline.source;
    let grows = matches!(source.kind, SourceKind::Tar | SourceKind::Jsonl | SourceKind::Csv);
    if grows && source.identity != IdentityMode::Content {
        checked.advice.push(
            "entries are known by the whole file or object that holds them: appending to it changes all of them, unless \
             identity: content is set"
                .to_owned(),
        );
    }
    let largest = snapshot.entries.entries.iter().max_by_key(|entry| project.source.unpacked_bytes(entry));
    if let Some(entry) = largest.filter(|entry| project.source.unpacked_bytes(entry) > ENTRY_BYTES as u64) {
        checked.advice.push(format!(
            "{} holds {} decompressed, too much to be read without a stored stage: store one, or write smaller archives",
            entry.key,
            size::print(project.source.unpacked_bytes(entry))
        ));
    }
    for split in &project.dataset.splits {
        rows_are_independent(project, snapshot, &split.chain, &mut checked)?;
        for index in split.chain.movable() {
            checked.advice.push(format!(
                "stage {} is deterministic and doesn't depend on the random step before it: moved up, it could be stored",
                split.chain.stages[index].name
            ));
        }
    }
    labels(project, snapshot, &mut checked)?;
    checked.advice.dedup();
    Ok(checked)
}

/// Samples are held as they are; of what is read as a stream, whole entries, at least one in each lane.
fn open_bytes(project: &Project, snapshot: &Snapshot, lanes: u32, block: u32) -> u64 {
    let rows = (u64::from(lanes) * u64::from(block) * 3 / 2).min(snapshot.rows());
    let samples = rows * snapshot.bytes().checked_div(snapshot.rows()).unwrap_or(0);
    if project.source.entries_are_samples() {
        return samples;
    }
    let mut sizes: Vec<u64> = snapshot.entries.entries.iter().map(|e| project.source.unpacked_bytes(e)).collect();
    sizes.sort_unstable_by(|a, b| b.cmp(a));
    let open: u64 = sizes.iter().take(lanes as usize).sum();
    // One is put together from its pieces while the others wait.
    let largest = sizes.first().map_or(0, |bytes| 2 * (*bytes).min(ENTRY_BYTES as u64));
    samples.max(open).min(CHUNKS_BYTES as u64).max(largest)
}

fn stages(project: &Project, snapshot: &Arc<Snapshot>, checked: &mut Checked) -> Result<()> {
    let mut targets: Vec<Target> = Vec::new();
    let mut seen = HashSet::new();
    for split in &project.dataset.splits {
        for (index, stage) in split.chain.stages.iter().enumerate() {
            if !seen.insert(stage.recipe) {
                continue;
            }
            let encoding = cut::default_encoding(&split.chain, index);
            if stage.deterministic {
                targets.push(Target::new(split, index, encoding));
            }
            checked.stages.push(StageCheck {
                split: stage.own.then(|| split.name.clone()).flatten(),
                name: stage.name.clone(),
                purity: stage.purity(),
                cardinality: stage.cardinality(),
                columns: stage.schema.fields().iter().map(|f| (f.name().clone(), type_name(f))).collect(),
                unstorable: cut::unstorable(&split.chain, index),
                encoding,
                bytes: None,
            });
        }
    }
    let estimates = estimate(&project.dataset, snapshot, &targets)?;
    let storable = checked.stages.iter_mut().filter(|s| s.unstorable.is_none());
    for (stage, estimate) in storable.zip(estimates) {
        stage.bytes = Some(estimate.bytes);
        let shard = estimate.bytes / (snapshot.partitions() as u64).max(1);
        let small = snapshot.partitions() > 1 && shard < SMALL_SHARD;
        if small || shard > LARGE_SHARD {
            let (way, target) = if small { ("larger", 64 << 20) } else { ("smaller", 1 << 30) };
            let (name, size) = (&stage.name, size::print(shard));
            let advice = sizes(snapshot, estimate.bytes, target);
            checked
                .advice
                .push(format!("shards of stage {name} come out at about {size}: {advice} would make them {way}"));
        }
    }
    Ok(())
}

/// What would bring the shards of a stage of `bytes` to about `target`.
fn sizes(snapshot: &Snapshot, bytes: u64, target: u64) -> String {
    let entries = &snapshot.entries.entries;
    let containers = entries.chunk_by(|a, b| a.file.is_some() && a.file == b.file).count() as u64;
    let within = if entries.iter().any(|entry| entry.file.is_some()) { bytes / containers.max(1) } else { u64::MAX };
    let smaller = bytes / (snapshot.partitions() as u64).max(1) > target;
    if within < SMALL_SHARD && !smaller {
        let times = target.div_ceil(within.max(1));
        return format!(
            "partitions never span files, of which the source has {containers}; files of {times} times as many rows"
        );
    }
    if smaller && entries.len() == snapshot.partitions() {
        return "each comes from one entry of the source, which is never cut; smaller row groups, batches or archives"
            .to_owned();
    }
    let share = |all: u64| (u128::from(all) * u128::from(target.min(within)) / u128::from(bytes.max(1))).max(1);
    let source = u64::try_from(share(snapshot.bytes())).unwrap_or(u64::MAX);
    format!("`partition: {{ entries: {}, bytes: {}mb }}`", share(entries.len() as u64), source.div_ceil(1_000_000))
}

/// Runs a few samples together, one by one and in reverse: what differs is a step that looks at its neighbours.
fn rows_are_independent(
    project: &Project,
    snapshot: &Arc<Snapshot>,
    chain: &Chain,
    checked: &mut Checked,
) -> Result<()> {
    if snapshot.partitions() == 0 {
        return Ok(());
    }
    let Some(piece) = input::from_source(&project.source, snapshot, 0)?.next() else { return Ok(()) };
    let mut rows = piece?.read()?;
    rows = rows.slice(0, rows.len().min(SAMPLE_ROWS));
    while rows.len() > 1 && through(chain, &rows).is_err_and(|e| e.kind() == Kind::Invalid) {
        // Too much for one batch: fewer at a time.
        rows = rows.slice(0, rows.len() / 2);
    }
    let count = rows.len() as u32;
    let reversed = rows.take(&UInt32Array::from_iter_values((0..count).rev()))?;
    let mut together = rows.clone();
    let mut alone: Vec<Rows> = (0..rows.len()).map(|i| rows.slice(i, 1)).collect();
    let mut backwards = reversed;
    for index in 1..chain.stages.len() {
        let stage = &chain.stages[index];
        let context = chain.context(index, 1, 1);
        together = together.apply(stage, context)?;
        backwards = backwards.apply(stage, context)?;
        for one in &mut alone {
            *one = one.apply(stage, context)?;
        }
        let schema = together.batch.schema();
        let joined = Rows::concat(&schema, &alone)?;
        let flipped = backwards.take(&UInt32Array::from_iter_values((0..backwards.len() as u32).rev()))?;
        if joined.batch != together.batch || flipped.batch != together.batch {
            return Err(Error::invalid(format!(
                "stage {} gives a row another value when its neighbours differ, so it can't be stored or reordered",
                stage.name
            )));
        }
    }
    let errors = together.errors()?;
    let keys = together.batch.column(0);
    for row in (0..together.len()).filter(|i| errors.is_valid(*i)) {
        let key = ArrayFormatter::try_new(keys, &FormatOptions::default())?.value(row).to_string();
        let failure = (key, errors.value(row).to_owned());
        if !checked.failed.contains(&failure) {
            checked.failed.push(failure);
        }
    }
    let last = chain.stages.len() - 1;
    if !together.is_empty() {
        let per_row = batch_bytes(&together.batch, 0, together.len()) / together.len();
        checked.advice.retain(|a| !a.starts_with("a batch of 256"));
        checked.advice.push(format!(
            "a batch of 256 of stage {} takes about {}; a reader holds one per thread and one more",
            chain.stages[last].name,
            size::print(per_row as u64 * 256)
        ));
    }
    Ok(())
}

fn through(chain: &Chain, rows: &Rows) -> Result<Rows> {
    let mut stages = chain.stages.iter().enumerate().skip(1);
    stages.try_fold(rows.clone(), |rows, (index, stage)| rows.apply(stage, chain.context(index, 1, 1)))
}

/// Warns where a label is constant within partitions: shuffling mixes rows of few partitions at a time.
fn labels(project: &Project, snapshot: &Arc<Snapshot>, checked: &mut Checked) -> Result<()> {
    let mut columns: Vec<String> = label_columns(&project.pipeline);
    columns.extend(["label", "cls", "class"].iter().map(|c| (*c).to_owned()));
    let Some(column) = columns.into_iter().find(|c| project.input.index_of(c).is_ok()) else { return Ok(()) };
    if snapshot.partitions() < 2 {
        return Ok(());
    }
    let ends: Vec<u64> = (0..snapshot.partitions())
        .scan(0, |end, p| {
            *end += snapshot.source_rows(p);
            Some(*end)
        })
        .collect();
    let mut distinct: Vec<HashSet<String>> = vec![HashSet::new(); ends.len()];
    let mut all = HashSet::new();
    let mut row = 0;
    for batch in project.source.column(&snapshot.entries, &column)? {
        let batch = batch?;
        let values = ArrayFormatter::try_new(batch.column(0), &FormatOptions::default())?;
        for index in 0..batch.num_rows() {
            let value = values.value(index).to_string();
            let partition = ends.partition_point(|end| *end <= row);
            if let Some(values) = distinct.get_mut(partition)
                && values.len() < 2
            {
                values.insert(value.clone());
            }
            all.insert(value);
            row += 1;
        }
    }
    let constant = distinct.iter().filter(|d| d.len() == 1).count();
    if all.len() > 1 && constant * 2 > distinct.len() {
        checked.advice.push(format!(
            "{column} is constant within {constant} of {} partitions: shuffled batches will hold few of its {} values. Write the data in random order, or use a `files` source, whose partitions are random mixtures",
            distinct.len(),
            all.len(),
        ));
    }
    Ok(())
}
