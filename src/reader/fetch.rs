//! Rows by their place in the order: from the nearest stored stage of their shard, the rest computed. A shard that
//! proves bad is reported and left, and the next nearest stage serves instead.

use crate::engine::dataset::Dataset;
use crate::engine::known::Known;
use crate::engine::rows::{Rows, group_rows};
use crate::engine::stored::StoredShard;
use crate::error::{Error, Kind, Result};
use crate::format::encoding::{Codec, Container, Encoding};
use crate::format::head::Report;
use crate::format::name::Name;
use crate::format::record::Record;
use crate::format::table::OrderRow;
use crate::format::{ROW, VERSION};
use crate::id::Digest;
use crate::plan::chain::Chain;
use crate::plan::order::Row;
use crate::plan::snapshot::Snapshot;
use crate::reader::assemble::Assembly;
use crate::reader::cache::{Cache, Held};
use crate::reader::chunk::{Chunk, Kept};
use crate::reader::recycle::Recycler;
use crate::step::Cardinality;
use arrow::array::{AsArray, RecordBatch, UInt32Array};
use arrow::datatypes::{SchemaRef, UInt32Type};
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

/// Decoded chunks held at most, in bytes of values; mapped ones weigh next to nothing.
const CHUNKS_BYTES: usize = 512 << 20;
/// Shards held open at most.
const SHARDS: usize = 4096;

pub struct Fetch {
    dataset: Dataset,
    chain: Chain,
    snapshot: Arc<Snapshot>,
    order: Arc<Vec<OrderRow>>,
    known: Known,
    last_deterministic: usize,
    shards: Cache<u32, Arc<Shard>>,
    chunks: Cache<(u32, usize), Arc<Chunk>>,
    memory: Recycler,
    bad: Mutex<BTreeSet<Digest>>,
    warnings: Mutex<Vec<String>>,
}

/// Where a partition's rows come from.
struct Shard {
    /// Stage index; 0 with no stored shard is the source.
    stage: usize,
    stored: Option<StoredShard>,
    /// How many of its rows go through the steps together.
    group: usize,
    /// The source row of each row, where the stage isn't one-to-one with the source.
    rows: Option<UInt32Array>,
}

impl Held for Arc<Shard> {}

/// A chunk from which rows are gathered.
struct Opened {
    key: (u32, usize),
    chunk: Arc<Chunk>,
    kept: Arc<Kept>,
    /// The rows taken.
    numbers: Vec<usize>,
}

impl Fetch {
    pub fn new(dataset: Dataset, chain: Chain, snapshot: Arc<Snapshot>, order: Arc<Vec<OrderRow>>) -> Result<Fetch> {
        let known = Known::new(&dataset.store, std::slice::from_ref(&chain))?;
        Ok(Fetch {
            last_deterministic: chain.last_deterministic(),
            dataset,
            chain,
            snapshot,
            order,
            known,
            shards: Cache::new(SHARDS),
            chunks: Cache::new(CHUNKS_BYTES),
            memory: Recycler::default(),
            bad: Mutex::new(BTreeSet::new()),
            warnings: Mutex::new(Vec::new()),
        })
    }

    /// The stage and encoding that serve a partition now; stage 0 without a record is the source.
    pub fn origin(&self, partition: usize) -> Result<(usize, Option<Record>)> {
        let bad = self.bad.lock().expect("no panics while locked").clone();
        let found = self.known.nearest(&self.chain, self.last_deterministic + 1, &self.snapshot, partition, &bad)?;
        Ok(found.map_or((0, None), |(stage, record)| (stage, Some(record))))
    }

    /// What went wrong on the way and was mended, since last asked.
    pub fn take_warnings(&self) -> Vec<String> {
        std::mem::take(&mut *self.warnings.lock().expect("no panics while locked"))
    }

    /// The chain's last stage for these rows of its last deterministic stage, in their order.
    pub fn fetch(&self, rows: &[Row], seed: u64, epoch: u64) -> Result<RecordBatch> {
        let end = self.chain.stages.len() - 1;
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
                    if matches!(error.kind(), Kind::Corrupt | Kind::NotFound) && self.leave(taken, &error)? => {}
                Err(error) => return Err(error),
            }
        }
        batch.finish()
    }

    /// The schema of what `fetch` returns.
    pub fn schema(&self) -> SchemaRef {
        self.chain.last().rows_schema()
    }

    /// How many of the first rows to compute together: those that come from one stage, by size.
    fn group(&self, rows: &[Row]) -> Result<(usize, Arc<Shard>)> {
        let first = self.shard(rows[0].partition)?;
        // Rows whose number changes on the way are told apart by source row, which is unique within a partition only.
        let one_partition = self.changes_rows(first.stage);
        let mut count = 1;
        while count < rows.len().min(first.group) {
            let next = &rows[count];
            if next.partition != rows[0].partition {
                let shard = self.shard(next.partition)?;
                if one_partition || shard.stage != first.stage || shard.stored.is_some() != first.stored.is_some() {
                    break;
                }
            }
            count += 1;
        }
        Ok((count, first))
    }

    fn compute(&self, rows: &[Row], stage: usize, seed: u64, epoch: u64, end: usize) -> Result<Rows> {
        let mut done = if self.changes_rows(stage) {
            self.through_row_changes(rows, stage)?
        } else {
            let picks: Vec<(u32, u64)> = rows.iter().map(|r| (r.partition, r.row)).collect();
            self.gather(&picks, stage)?
        };
        let from = if self.changes_rows(stage) { self.last_deterministic } else { stage };
        for index in from + 1..=end {
            done = done.apply(&self.chain.stages[index], self.chain.context(index, seed, epoch))?;
        }
        Ok(done)
    }

    fn changes_rows(&self, stage: usize) -> bool {
        self.chain.stages[stage + 1..=self.last_deterministic.max(stage)]
            .iter()
            .any(|s| s.cardinality() != Cardinality::OneToOne)
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
        let shard = self.shard(partition)?;
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
        for index in stage + 1..=self.last_deterministic {
            done = done.apply(&self.chain.stages[index], self.chain.context(index, 0, 0))?;
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
            let shard = self.shard(partition)?;
            let (chunk, start) = match &shard.stored {
                Some(stored) => {
                    let chunk = stored.chunk_of(row);
                    (chunk, stored.chunk_start(chunk))
                }
                None => {
                    let (entry, start) = self.entry(partition, row)?;
                    samples.push(entry);
                    (entry, start)
                }
            };
            if shard.stored.is_none() && self.source()?.entries_are_samples() {
                continue;
            }
            let (key, number) = ((partition, chunk), (row - start) as usize);
            let last = opened.iter().rposition(|o| o.key == key);
            let found = last.and_then(|index| Some((index, opened[index].kept.find(number)?)));
            let (index, place) = match found {
                Some(found) => found,
                None => {
                    let mut chunk = self.open_chunk(&shard, key, start)?;
                    if chunk.kept.find(number).is_none() {
                        // Handed out before and let go, but wanted again: for padding, or in another epoch.
                        self.chunks.remove(&key);
                        chunk = self.open_chunk(&shard, key, start)?;
                    }
                    let place = chunk.kept.find(number).ok_or_else(|| {
                        Error::corrupt(format!("stage {} has no row {row} in a chunk", self.chain.stages[stage].name))
                    })?;
                    opened.push(chunk);
                    (opened.len() - 1, place)
                }
            };
            places.push((index, place));
            opened[index].numbers.push(number);
        }
        if places.is_empty() {
            return Rows::from_source(self.source()?.read_entries(&self.snapshot.entries, &samples)?, 0)
                .map(|rows| with_source(rows, picks));
        }
        let parts: Vec<&Rows> = opened.iter().map(|o| &o.kept.rows).collect();
        let gathered = Rows::gather(&parts[0].batch.schema(), &parts, &places)?;
        for opened in opened {
            if opened.chunk.hand_out(opened.numbers.into_iter()) {
                self.chunks.remove(&opened.key);
            }
        }
        Ok(gathered)
    }

    /// The entry that holds a partition's source row, and the row at which it begins.
    fn entry(&self, partition: u32, row: u64) -> Result<(usize, u64)> {
        let range = self.snapshot.range(partition as usize);
        if self.source()?.entries_are_samples() {
            return Ok((range.start + row as usize, row));
        }
        let mut start = 0;
        for index in range {
            let rows = self.snapshot.entries.entries[index].rows;
            if row < start + rows {
                return Ok((index, start));
            }
            start += rows;
        }
        Err(Error::internal(format!("partition {partition} has no source row {row}")))
    }

    fn source(&self) -> Result<&Arc<crate::source::Source>> {
        self.dataset.source.as_ref().ok_or_else(|| {
            Error::not_found(format!(
                "some shards of {} aren't stored at any stage, and there is no source to compute them from; run `forebay materialize` where the source is",
                self.dataset.name
            ))
        })
    }

    fn open_chunk(&self, shard: &Shard, key: (u32, usize), start: u64) -> Result<Opened> {
        let chunk = self.chunks.get(&key, || {
            let chunk = Arc::new(self.decode_chunk(shard, key.1, start)?);
            let weight = chunk.weight();
            Ok((chunk, weight))
        })?;
        Ok(Opened { key, kept: chunk.kept(), chunk, numbers: Vec::new() })
    }

    fn decode_chunk(&self, shard: &Shard, chunk: usize, start: u64) -> Result<Chunk> {
        if let Some(stored) = &shard.stored {
            let plain = Encoding { container: Container::Arrow, codec: Codec::None };
            let rows = Rows::from_stored(stored.chunk(chunk, None)?, start)?;
            return Ok(Chunk::new(rows, stored.record.encoding == plain));
        }
        let source = self.source()?;
        let batches = source.read_stream(&self.snapshot.entries, chunk..chunk + 1)?.collect::<Result<Vec<_>>>()?;
        let batch = arrow::compute::concat_batches(&source.schema()?, &batches)?;
        Ok(Chunk::new(Rows::from_source(batch, start)?, false))
    }

    fn shard(&self, partition: u32) -> Result<Arc<Shard>> {
        self.shards.get(&partition, || {
            loop {
                let (stage, record) = self.origin(partition as usize)?;
                let Some(record) = record else {
                    let bytes: u64 = self.snapshot.partition(partition as usize).iter().map(|e| e.bytes).sum();
                    let group = group_rows(bytes / self.snapshot.source_rows(partition as usize).max(1));
                    return Ok((Arc::new(Shard { stage: 0, stored: None, group, rows: None }), 1));
                };
                let opened = StoredShard::open(&self.dataset.store, record.clone(), &self.chain.stages[stage].schema)
                    .and_then(|stored| {
                        let group = group_rows(stored.record.bytes / stored.rows().max(1));
                        Ok(Shard { stage, rows: self.source_rows(&stored, stage)?, group, stored: Some(stored) })
                    });
                match opened {
                    Ok(shard) => return Ok((Arc::new(shard), 1)),
                    Err(error) if matches!(error.kind(), Kind::Corrupt | Kind::NotFound) => {
                        self.report(&record, stage, &error)
                    }
                    Err(error) => return Err(error),
                }
            }
        })
    }

    fn source_rows(&self, stored: &StoredShard, stage: usize) -> Result<Option<UInt32Array>> {
        let stage = &self.chain.stages[stage];
        if stage.one_to_one {
            return Ok(None);
        }
        let column = stage.schema.index_of(ROW)?;
        let mut rows = Vec::with_capacity(stored.rows() as usize);
        for chunk in 0..stored.chunks() {
            let batch = stored.chunk(chunk, Some(&[column]))?;
            let array = batch.column_by_name(ROW).and_then(|c| c.as_primitive_opt::<UInt32Type>());
            rows.extend_from_slice(array.ok_or_else(|| Error::corrupt(format!("a shard without {ROW}")))?.values());
        }
        Ok(Some(UInt32Array::from(rows)))
    }

    /// Leaves the stored shards of these rows if one of them is what failed; false where nothing stored is to blame.
    fn leave(&self, rows: &[Row], error: &Error) -> Result<bool> {
        let reason = error.chain();
        let mut left = false;
        for partition in rows.iter().map(|r| r.partition).collect::<BTreeSet<_>>() {
            let shard = self.shard(partition)?;
            let Some(stored) = &shard.stored else { continue };
            if stored.record.parts.iter().any(|p| reason.contains(&p.blob.to_string())) {
                self.report(&stored.record, shard.stage, error);
                self.shards.remove(&partition);
                for chunk in 0..stored.chunks() {
                    self.chunks.remove(&(partition, chunk));
                }
                left = true;
            }
        }
        Ok(left)
    }

    /// Notes bad blobs for this reader, and in the store where it can be written.
    fn report(&self, record: &Record, stage: usize, error: &Error) {
        let reason = error.chain();
        let named: Vec<_> = record.parts.iter().filter(|p| reason.contains(&p.blob.to_string())).collect();
        let blamed = if named.is_empty() { record.parts.iter().collect() } else { named };
        for part in blamed {
            self.bad.lock().expect("no panics while locked").insert(part.blob);
            let name = Name::Shard { recipe: record.recipe, encoding: record.encoding, shard: record.shard };
            let report = Report { version: VERSION, blob: part.blob, record: name.to_string(), found: reason.clone() };
            // A store that can't be written keeps no reports; this reader knows all the same.
            let _ = self.dataset.store.report(&report);
        }
        let stage = &self.chain.stages[stage].name;
        self.warnings.lock().expect("no panics while locked").push(format!(
            "a stored shard of stage {stage} is bad and was left ({reason}); `forebay materialize` will heal it"
        ));
    }
}

fn with_source(rows: Rows, picks: &[(u32, u64)]) -> Rows {
    Rows { source: UInt32Array::from_iter_values(picks.iter().map(|(_, row)| *row as u32)), ..rows }
}
