//! What a reader has open: the nearest stored shard of each partition and its chunks, verified when they are first used. A
//! shard that proves bad is reported and left, and the next nearest stage serves instead.

use crate::engine::dataset::Dataset;
use crate::engine::known::{Known, reports};
use crate::engine::rows::{Rows, batch_bytes, group_rows};
use crate::engine::stored::StoredShard;
use crate::error::{Error, Kind, Result};
use crate::format::ROW;
use crate::format::encoding::{Codec, Container, Encoding};
use crate::format::record::Record;
use crate::format::shard::Recycler;
use crate::id::Digest;
use crate::plan::chain::Chain;
use crate::plan::order::Row;
use crate::plan::snapshot::Snapshot;
use crate::reader::cache::{Cache, Held};
use crate::reader::chunk::{Chunk, Kept};
use crate::spec::size;
use crate::step::Cardinality;
use arrow::array::{AsArray, UInt32Array};
use arrow::datatypes::UInt32Type;
use std::collections::{BTreeSet, HashSet};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, Once};

/// Decoded chunks held at most, in bytes of values; mapped ones weigh next to nothing.
pub const CHUNKS_BYTES: usize = 512 << 20;
/// What one entry may take that has to be read whole for any of its rows: a compressed archive, a row group. While it is put
/// together it takes twice as much.
pub const ENTRY_BYTES: usize = 1 << 30;
/// Shards held open at most.
const SHARDS: usize = 4096;

pub struct Open {
    pub dataset: Dataset,
    pub chain: Chain,
    pub snapshot: Arc<Snapshot>,
    pub last_deterministic: usize,
    known: Known,
    shards: Cache<u32, Arc<Shard>>,
    chunks: Cache<(u32, usize), Arc<Chunk>>,
    memory: Recycler,
    /// Counts calls of `ahead`.
    turn: AtomicUsize,
    bad: Mutex<BTreeSet<Digest>>,
    warnings: Mutex<Vec<String>>,
    overflow: Once,
}

/// Where a partition's rows come from.
pub struct Shard {
    /// Stage index; 0 with no stored shard is the source.
    pub stage: usize,
    pub stored: Option<StoredShard>,
    /// How many of its rows go through the steps together.
    pub group: usize,
    /// The source row of each row, where the stage isn't one-to-one with the source.
    pub rows: Option<UInt32Array>,
}

impl Held for Arc<Shard> {}

/// A chunk from which rows are gathered.
pub struct Opened {
    pub key: (u32, usize),
    chunk: Arc<Chunk>,
    pub kept: Arc<Kept>,
    /// The rows taken.
    pub numbers: Vec<usize>,
}

impl Open {
    pub fn new(dataset: Dataset, chain: Chain, snapshot: Arc<Snapshot>) -> Result<Open> {
        let known = Known::new(&dataset.store, std::slice::from_ref(&chain))?;
        Ok(Open {
            last_deterministic: chain.last_deterministic(),
            dataset,
            chain,
            snapshot,
            known,
            shards: Cache::new(SHARDS),
            chunks: Cache::new(CHUNKS_BYTES),
            memory: Recycler::default(),
            turn: AtomicUsize::new(0),
            bad: Mutex::new(BTreeSet::new()),
            warnings: Mutex::new(Vec::new()),
            overflow: Once::new(),
        })
    }

    /// The stage and encoding that serve a partition now; stage 0 without a record is the source.
    pub fn origin(&self, partition: usize) -> Result<(usize, Option<Record>)> {
        let bad = self.bad.lock().expect("no panics while locked").clone();
        let found = self.known.nearest(&self.chain, self.last_deterministic + 1, &self.snapshot, partition, &bad)?;
        Ok(found.map_or((0, None), |(stage, record)| (stage, Some(record))))
    }

    /// What went wrong on the way and was mended, or made it slow, since last asked.
    pub fn take_warnings(&self) -> Vec<String> {
        let mut warnings = std::mem::take(&mut *self.warnings.lock().expect("no panics while locked"));
        if self.chunks.overflowed() {
            self.overflow.call_once(|| {
                warnings.push(format!(
                    "the chunks that this order has open at a time exceed {} when decoded, so some are decoded again; store the stage as arrow without a codec, or lower lanes or block of `order:`",
                    size::print(CHUNKS_BYTES as u64)
                ));
            });
        }
        warnings
    }

    pub fn changes_rows(&self, stage: usize) -> bool {
        self.chain.stages[stage + 1..=self.last_deterministic.max(stage)]
            .iter()
            .any(|s| s.cardinality() != Cardinality::OneToOne)
    }

    /// Opens the stored chunks that rows lie in. Each call begins at another of them, and leaves those that another thread is
    /// at: batches that are computed side by side want the same chunks, and would wait for each other.
    pub fn ahead(&self, rows: &[Row]) {
        let mut wanted = Vec::new();
        let mut seen = HashSet::new();
        for row in rows {
            // What is wrong with a shard or chunk is met again, and dealt with, when its rows are gathered.
            let Ok(shard) = self.shard(row.partition) else { return };
            if self.changes_rows(shard.stage) {
                return;
            }
            if let Some(stored) = &shard.stored {
                let chunk = stored.chunk_of(row.row);
                if seen.insert((row.partition, chunk)) {
                    wanted.push((shard, (row.partition, chunk)));
                }
            }
        }
        // Two neighbours begin half the chunks apart.
        let turn = self.turn.fetch_add(1, Ordering::Relaxed);
        let first = turn.wrapping_mul(wanted.len().div_ceil(2)).wrapping_add(turn / 2);
        for index in 0..wanted.len() {
            let (shard, key) = &wanted[first.wrapping_add(index) % wanted.len()];
            let Some(start) = shard.stored.as_ref().map(|stored| stored.chunk_start(key.1)) else { continue };
            if self.chunks.prepare(key, || self.weighed_chunk(shard, key.1, start)).is_err() {
                return;
            }
        }
    }

    /// The stored chunks that rows of a partition lie in; `None` where they are computed from whole shards, or something is
    /// wrong, which is met again when they are gathered.
    pub fn stored_chunks(&self, partition: u32, rows: &[u64]) -> Option<(Arc<Shard>, BTreeSet<usize>)> {
        let shard = self.shard(partition).ok().filter(|shard| !self.changes_rows(shard.stage))?;
        let stored = shard.stored.as_ref()?;
        let chunks = rows.iter().map(|row| stored.chunk_of(*row)).collect();
        Some((shard, chunks))
    }

    /// The entry that holds a partition's source row, and the row at which it begins.
    pub fn entry(&self, partition: u32, row: u64) -> Result<(usize, u64)> {
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

    pub fn source(&self) -> Result<&Arc<crate::source::Source>> {
        self.dataset.source.as_ref().ok_or_else(|| {
            Error::not_found(format!(
                "some shards of {} aren't stored at any stage, and there is no source to compute them from; run `forebay materialize` where the source is",
                self.dataset.name
            ))
        })
    }

    pub fn open_chunk(&self, shard: &Shard, key: (u32, usize), start: u64) -> Result<Opened> {
        let chunk = self.chunks.get(&key, || self.weighed_chunk(shard, key.1, start))?;
        Ok(Opened { key, kept: chunk.kept(), chunk, numbers: Vec::new() })
    }

    /// Opens a chunk all of whose rows are there, though some were let go after they were handed out.
    pub fn reopen_chunk(&self, shard: &Shard, key: (u32, usize), start: u64) -> Result<Opened> {
        self.chunks.remove(&key);
        self.open_chunk(shard, key, start)
    }

    /// Notes which rows were taken; chunks that have none left are let go.
    pub fn hand_out(&self, opened: Vec<Opened>) {
        for opened in opened {
            if opened.chunk.hand_out(opened.numbers.into_iter()) {
                self.chunks.remove(&opened.key);
            }
        }
    }

    fn weighed_chunk(&self, shard: &Shard, chunk: usize, start: u64) -> Result<(Arc<Chunk>, usize)> {
        let chunk = Arc::new(self.decode_chunk(shard, chunk, start)?);
        let weight = chunk.weight();
        Ok((chunk, weight))
    }

    fn decode_chunk(&self, shard: &Shard, chunk: usize, start: u64) -> Result<Chunk> {
        if let Some(stored) = &shard.stored {
            let plain = Encoding { container: Container::Arrow, codec: Codec::None };
            let rows = Rows::from_stored(stored.chunk(chunk, None)?, start)?;
            return Ok(Chunk::new(rows, stored.record.encoding == plain));
        }
        let source = self.source()?;
        let mut batches = Vec::new();
        let mut bytes = 0;
        for batch in source.read_stream(&self.snapshot.entries, chunk..chunk + 1)? {
            let batch = batch?;
            bytes += batch_bytes(&batch, 0, batch.num_rows());
            if bytes > ENTRY_BYTES {
                let key = &self.snapshot.entries.entries[chunk].key;
                return Err(Error::not_found(format!(
                    "no stage of {key} is stored, and computing from the source has to hold it whole, which is more than {}: run `forebay materialize`, or write the source in smaller pieces",
                    size::print(ENTRY_BYTES as u64)
                )));
            }
            batches.push(batch);
        }
        let batch = arrow::compute::concat_batches(&source.schema()?, &batches)?;
        Ok(Chunk::new(Rows::from_source(batch, start)?, false))
    }

    pub fn shard(&self, partition: u32) -> Result<Arc<Shard>> {
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
                        let rows = self.source_rows(&stored, stage)?;
                        Ok(Shard { stage, rows, group, stored: Some(stored.with_memory(&self.memory)) })
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
    pub fn leave(&self, rows: &[Row], error: &Error) -> Result<bool> {
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
        let mut way_out = "`forebay materialize` will heal it";
        for report in reports(record, error) {
            self.bad.lock().expect("no panics while locked").insert(report.blob);
            // A store that can't be written keeps no reports; this reader knows all the same.
            if self.dataset.store.report(&report).is_err() {
                way_out = "run `forebay verify --repair` and `forebay materialize` where the store can be written";
            }
        }
        let stage = &self.chain.stages[stage].name;
        self.warnings
            .lock()
            .expect("no panics while locked")
            .push(format!("a stored shard of stage {stage} is bad and was left ({reason}); {way_out}"));
    }
}
