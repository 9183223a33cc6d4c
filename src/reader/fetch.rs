//! Rows by their place in the order: gathered from what is open, the rest of the chain computed.

use crate::engine::rows::Rows;
use crate::error::{Error, Kind, Result};
use crate::format::shard::Recycler;
use crate::format::table::OrderRow;
use crate::plan::order::Row;
use crate::reader::assemble::Assembly;
use crate::reader::open::{Open, Opened, Shard};
use arrow::array::{RecordBatch, UInt32Array};
use arrow::datatypes::SchemaRef;
use std::collections::BTreeSet;
use std::sync::Arc;

pub struct Fetch {
    open: Open,
    order: Arc<Vec<OrderRow>>,
    memory: Recycler,
}

impl Fetch {
    pub fn new(open: Open, order: Arc<Vec<OrderRow>>) -> Fetch {
        Fetch { open, order, memory: Recycler::default() }
    }

    /// What the rows come from.
    pub fn open(&self) -> &Open {
        &self.open
    }

    /// The chain's last stage for these rows of its last deterministic stage, in their order.
    pub fn fetch(&self, rows: &[Row], seed: u64, epoch: u64) -> Result<RecordBatch> {
        self.open.ahead(rows);
        let end = self.open.chain.stages.len() - 1;
        let mut batch = Assembly::new(self.schema(), rows.len(), self.memory.clone());
        let mut at = 0;
        let mut most = usize::MAX;
        while at < rows.len() {
            let (group, shard) = self.group(&rows[at..])?;
            let taken = &rows[at..at + group.min(most)];
            match self.compute(taken, shard.stage, seed, epoch, end) {
                Ok(done) => {
                    batch.push(&done.batch)?;
                    at += taken.len();
                    most = usize::MAX;
                }
                // Too much for one array: fewer rows at a time.
                Err(error) if error.kind() == Kind::Invalid && taken.len() > 1 => most = taken.len() / 2,
                Err(error)
                    if matches!(error.kind(), Kind::Corrupt | Kind::NotFound) && self.open.leave(taken, &error)? => {}
                Err(error) => return Err(error),
            }
        }
        batch.finish()
    }

    /// The schema of what `fetch` returns.
    pub fn schema(&self) -> SchemaRef {
        self.open.chain.last().rows_schema()
    }

    /// How many of the first rows to compute together: those that come from one stage, by size.
    fn group(&self, rows: &[Row]) -> Result<(usize, Arc<Shard>)> {
        let first = self.open.shard(rows[0].partition)?;
        // Rows whose number changes on the way are told apart by source row, which is unique within a partition only.
        let one_partition = self.open.changes_rows(first.stage);
        let mut count = 1;
        while count < rows.len().min(first.group) {
            let next = &rows[count];
            if next.partition != rows[0].partition {
                let shard = self.open.shard(next.partition)?;
                if one_partition || shard.stage != first.stage || shard.stored.is_some() != first.stored.is_some() {
                    break;
                }
            }
            count += 1;
        }
        Ok((count, first))
    }

    fn compute(&self, rows: &[Row], stage: usize, seed: u64, epoch: u64, end: usize) -> Result<Rows> {
        let mut done = if self.open.changes_rows(stage) {
            self.through_row_changes(rows, stage)?
        } else {
            let picks: Vec<(u32, u64)> = rows.iter().map(|r| (r.partition, r.row)).collect();
            self.gather(&picks, stage)?
        };
        let from = if self.open.changes_rows(stage) { self.open.last_deterministic } else { stage };
        for index in from + 1..=end {
            done = done.apply(&self.open.chain.stages[index], self.open.chain.context(index, seed, epoch))?;
        }
        Ok(done)
    }

    /// Rows of one partition through steps that drop or add rows: all that their source rows give, then those asked for.
    fn through_row_changes(&self, rows: &[Row], stage: usize) -> Result<Rows> {
        let partition = rows[0].partition;
        let order = self.order.get(partition as usize);
        let map = order
            .and_then(|o| o.row_map.as_ref())
            .ok_or_else(|| Error::internal("an order table without its row map"))?;
        // (source row, how many earlier rows come from the same one)
        let wanted: Vec<(u32, usize)> = rows
            .iter()
            .map(|r| {
                let source = *map.get(r.row as usize).ok_or_else(|| Error::corrupt("a row map that is too short"))?;
                Ok((source, r.row as usize - map.partition_point(|s| *s < source)))
            })
            .collect::<Result<_>>()?;
        let sources: BTreeSet<u32> = wanted.iter().map(|(s, _)| *s).collect();
        let shard = self.open.shard(partition)?;
        let mut picks = Vec::with_capacity(sources.len());
        for source in sources {
            match &shard.rows {
                None => picks.push((partition, u64::from(source))),
                Some(rows) => {
                    let from = rows.values().partition_point(|s| *s < source);
                    picks.extend(
                        rows.values()[from..]
                            .iter()
                            .take_while(|s| **s == source)
                            .enumerate()
                            .map(|(i, _)| (partition, (from + i) as u64)),
                    );
                }
            }
        }
        let mut done = self.gather(&picks, stage)?;
        for index in stage + 1..=self.open.last_deterministic {
            done = done.apply(&self.open.chain.stages[index], self.open.chain.context(index, 0, 0))?;
        }
        let found: Vec<u32> = wanted
            .iter()
            .map(|(source, nth)| {
                let at = done.source.values().partition_point(|s| s < source) + nth;
                let there = done.source.values().get(at) == Some(source);
                there.then_some(at as u32).ok_or_else(|| {
                    Error::conflict("the steps gave other rows than were counted: a step isn't deterministic")
                })
            })
            .collect::<Result<_>>()?;
        done.take(&UInt32Array::from(found))
    }

    /// Rows of one stage, by partition and row there, as one batch.
    fn gather(&self, picks: &[(u32, u64)], stage: usize) -> Result<Rows> {
        let mut opened: Vec<Opened> = Vec::new();
        let mut samples = Vec::new();
        let mut places = Vec::with_capacity(picks.len());
        for &(partition, row) in picks {
            let shard = self.open.shard(partition)?;
            let (chunk, start) = match &shard.stored {
                Some(stored) => {
                    let chunk = stored.chunk_of(row);
                    (chunk, stored.chunk_start(chunk))
                }
                None => {
                    let (entry, start) = self.open.entry(partition, row)?;
                    samples.push(entry);
                    (entry, start)
                }
            };
            if shard.stored.is_none() && self.open.source()?.entries_are_samples() {
                continue;
            }
            let (key, number) = ((partition, chunk), (row - start) as usize);
            let last = opened.iter().rposition(|o| o.key == key);
            let found = last.and_then(|index| Some((index, opened[index].kept.find(number)?)));
            let (index, place) = match found {
                Some(found) => found,
                None => {
                    let mut chunk = self.open.open_chunk(&shard, key, start)?;
                    if chunk.kept.find(number).is_none() {
                        // Handed out before and let go, but wanted again: for padding, or in another epoch.
                        chunk = self.open.reopen_chunk(&shard, key, start)?;
                    }
                    let place = chunk.kept.find(number).ok_or_else(|| {
                        Error::corrupt(format!(
                            "stage {} has no row {row} in a chunk",
                            self.open.chain.stages[stage].name
                        ))
                    })?;
                    opened.push(chunk);
                    (opened.len() - 1, place)
                }
            };
            places.push((index, place));
            opened[index].numbers.push(number);
        }
        if places.is_empty() {
            return Rows::from_source(self.open.source()?.read_entries(&self.open.snapshot.entries, &samples)?, 0)
                .map(|rows| with_source(rows, picks));
        }
        let parts: Vec<&Rows> = opened.iter().map(|o| &o.kept.rows).collect();
        let gathered = Rows::gather(&parts[0].batch.schema(), &parts, &places)?;
        self.open.hand_out(opened);
        Ok(gathered)
    }
}

fn with_source(rows: Rows, picks: &[(u32, u64)]) -> Rows {
    Rows { source: UInt32Array::from_iter_values(picks.iter().map(|(_, row)| *row as u32)), ..rows }
}
