//! One sample through every stage, computed from the source in this process: what to look at when a value surprises.

use crate::app::open::Opened;
use crate::engine::dataset::Split;
use crate::engine::rows::Rows;
use crate::error::{Error, Result};
use crate::source::Source;
use crate::spec::node::nearest;
use crate::step::Context;
use crate::step::random::Stream;
use arrow::array::{Array, AsArray, UInt32Array};

/// A stage's rows that come from one sample: one, none where a filter dropped it, or several.
pub struct Traced {
    pub stage: String,
    pub rows: Rows,
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

/// Samples chosen at random, by seed, without repeats.
pub fn random(opened: &Opened, count: u64, seed: u64) -> Vec<Place> {
    let entries = &opened.snapshot.entries.entries;
    let rows = opened.snapshot.rows();
    let context = Context { seed, epoch: 0, occurrence: 0 };
    let mut stream = Stream::new(context, "read --random", "");
    let mut chosen = std::collections::BTreeSet::new();
    while (chosen.len() as u64) < count.min(rows) {
        chosen.insert(stream.below(rows));
    }
    let mut ends = Vec::with_capacity(entries.len());
    let mut end = 0;
    for entry in entries {
        end += entry.rows;
        ends.push(end);
    }
    let place = |row: u64| {
        let entry = ends.partition_point(|e| *e <= row);
        Place { entry, row: row - (ends[entry] - entries[entry].rows) }
    };
    chosen.into_iter().map(place).collect()
}

/// Runs a sample through a split's chain from the source.
pub fn trace(opened: &Opened, split: &Split, place: Place, seed: u64, epoch: u64) -> Result<Vec<Traced>> {
    let source = source(opened)?;
    let batch = if source.entries_are_samples() {
        source.read_entries(&opened.snapshot.entries, &[place.entry])?
    } else {
        let mut before = 0;
        let mut found = None;
        for batch in source.read_stream(&opened.snapshot.entries, place.entry..place.entry + 1)? {
            let batch = batch?;
            if place.row < before + batch.num_rows() as u64 {
                found = Some(batch.slice((place.row - before) as usize, 1));
                break;
            }
            before += batch.num_rows() as u64;
        }
        found.ok_or_else(|| Error::internal("an entry has fewer rows than were counted"))?
    };
    let mut rows = Rows { batch, source: UInt32Array::from(vec![0]) };
    let mut traced = vec![Traced { stage: split.chain.stages[0].name.clone(), rows: rows.clone() }];
    for index in 1..split.chain.stages.len() {
        rows = rows.apply(&split.chain.stages[index], split.chain.context(index, seed, epoch))?;
        traced.push(Traced { stage: split.chain.stages[index].name.clone(), rows: rows.clone() });
    }
    Ok(traced)
}

fn source(opened: &Opened) -> Result<&Source> {
    let source = opened.dataset.source.as_deref();
    source.ok_or_else(|| Error::invalid("tracing a sample computes it from the source; open the pipeline file"))
}
