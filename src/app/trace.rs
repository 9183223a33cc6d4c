//! One sample through every stage, computed from the source in this process: what to look at when a value surprises.

use crate::app::open::Opened;
use crate::engine::dataset::Split;
use crate::engine::rows::Rows;
use crate::error::{Error, Result};
use crate::plan::chain::Chain;
use crate::source::Source;
use crate::spec::node::nearest;
use crate::step::Context;
use crate::step::random::Stream;
use arrow::array::{Array, AsArray, RecordBatch, UInt32Array};
use std::collections::HashMap;

/// A stage's rows that come from one sample: one, or several.
pub struct Traced {
    pub stage: String,
    pub rows: Rows,
}

/// A sample on its way through a split's chain.
pub struct Trace {
    pub key: String,
    /// Up to the last stage that has rows of it.
    pub stages: Vec<Traced>,
    pub dropped: Option<Dropped>,
}

/// Where a sample leaves a split's chain.
pub struct Dropped {
    pub stage: String,
    /// The condition that isn't true of it.
    pub condition: Option<String>,
}

/// Where a sample is: its entry and its row there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    pub entry: usize,
    pub row: u64,
}

/// Finds a sample by its key. The error names the nearest key.
pub fn find(opened: &Opened, key: &str) -> Result<Place> {
    let entries = &opened.snapshot.entries.entries;
    let source = source(opened)?;
    let located = source.locate(entries, key);
    if let Some(entry) = located.filter(|_| source.entries_are_samples()) {
        return Ok(Place { entry, row: 0 });
    }
    // Where keys alone don't tell, every entry is read.
    let candidates = located.map_or(0..entries.len(), |entry| entry..entry + 1);
    for entry in candidates.filter(|_| !source.entries_are_samples()) {
        let mut row = 0;
        for batch in source.read_stream(&opened.snapshot.entries, entry..entry + 1)? {
            let batch = batch?;
            let keys = batch.column(0).as_string::<i64>();
            if let Some(at) = (0..keys.len()).find(|i| keys.value(*i) == key) {
                return Ok(Place { entry, row: row + at as u64 });
            }
            row += batch.num_rows() as u64;
        }
    }
    let hint = match nearest(key, entries.iter().map(|e| e.key.as_str())) {
        Some(near) => format!("did you mean {near:?}?"),
        None => entries.first().map_or("the snapshot is empty".to_owned(), |e| format!("keys look like {:?}", e.key)),
    };
    Err(Error::not_found(format!("no sample has the key {key:?}; {hint}")))
}

/// Every sample in an order that is random by the seed, without repeats.
pub fn random(opened: &Opened, seed: u64) -> impl Iterator<Item = Place> {
    let entries = &opened.snapshot.entries.entries;
    let rows = opened.snapshot.rows();
    let context = Context { seed, epoch: 0, occurrence: 0 };
    let mut stream = Stream::new(context, "read --random", "");
    let mut ends = Vec::with_capacity(entries.len());
    let mut end = 0;
    for entry in entries {
        end += entry.rows;
        ends.push(end);
    }
    // The shuffle of Fisher and Yates, of which only what was moved is kept.
    let mut moved: HashMap<u64, u64> = HashMap::new();
    (0..rows).map(move |position| {
        let other = position + stream.below(rows - position);
        let own = moved.remove(&position).unwrap_or(position);
        let row = if other == position { own } else { moved.insert(other, own).unwrap_or(other) };
        let entry = ends.partition_point(|e| *e <= row);
        Place { entry, row: row - (ends[entry] - entries[entry].rows) }
    })
}

/// Runs a sample through a split's chain from the source.
pub fn trace(opened: &Opened, split: &Split, place: Place, seed: u64, epoch: u64) -> Result<Trace> {
    let batch = read(opened, place)?;
    let key = batch.column(0).as_string::<i64>().value(0).to_owned();
    let rows = Rows { batch, source: UInt32Array::from(vec![0]) };
    let stages = run(&split.chain, &rows, seed, epoch)?;
    let dropped = split.chain.stages.get(stages.len()).map(|stage| {
        let parameters = stage.step.as_ref().map(|step| step.info().params.to_json());
        let condition = parameters.and_then(|p| Some(p.get("where")?.as_str()?.to_owned()));
        Dropped { stage: stage.name.clone(), condition }
    });
    Ok(Trace { key, stages, dropped })
}

/// The splits through whose chains a sample goes to the end.
pub fn kept_by(opened: &Opened, trace: &Trace, seed: u64, epoch: u64) -> Result<Vec<String>> {
    let mut names = Vec::new();
    let Some(source) = trace.stages.first() else { return Ok(names) };
    for split in &opened.dataset.splits {
        if run(&split.chain, &source.rows, seed, epoch)?.len() == split.chain.stages.len() {
            names.extend(split.name.clone());
        }
    }
    Ok(names)
}

/// The stages of a chain, up to the last that has rows.
fn run(chain: &Chain, rows: &Rows, seed: u64, epoch: u64) -> Result<Vec<Traced>> {
    let mut rows = rows.clone();
    let mut traced = vec![Traced { stage: chain.stages[0].name.clone(), rows: rows.clone() }];
    for (index, stage) in chain.stages.iter().enumerate().skip(1) {
        rows = rows.apply(stage, chain.context(index, seed, epoch))?;
        if rows.is_empty() {
            break;
        }
        traced.push(Traced { stage: stage.name.clone(), rows: rows.clone() });
    }
    Ok(traced)
}

/// The sample as its source gives it.
fn read(opened: &Opened, place: Place) -> Result<RecordBatch> {
    let source = source(opened)?;
    if source.entries_are_samples() {
        return source.read_entries(&opened.snapshot.entries, &[place.entry]);
    }
    let mut before = 0;
    for batch in source.read_stream(&opened.snapshot.entries, place.entry..place.entry + 1)? {
        let batch = batch?;
        if place.row < before + batch.num_rows() as u64 {
            return Ok(batch.slice((place.row - before) as usize, 1));
        }
        before += batch.num_rows() as u64;
    }
    Err(Error::internal("an entry has fewer rows than were counted"))
}

fn source(opened: &Opened) -> Result<&Source> {
    let source = opened.dataset.source.as_deref();
    source.ok_or_else(|| Error::invalid("tracing a sample computes it from the source; open the pipeline file"))
}
