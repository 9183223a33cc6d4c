//! Level 7: batches rebuilt from the nearest stored stage of each shard, in an order that is a pure function of seed, epoch
//! and position, so that a cursor resumes anywhere. `open` knows what serves each shard and holds it open (`cache`, `chunk`),
//! `ahead` has fetched what a remote store holds, `fetch` gets rows by their place, `assemble` puts them together as batches, in memory that is used again.

mod ahead;
mod assemble;
mod cache;
mod chunk;
mod fetch;
mod open;

use crate::engine::dataset::{Dataset, Split};
use crate::engine::pool::Pool;
use crate::error::{Error, Result};
use crate::format::encoding::Encoding;
use crate::format::table::OrderRow;
use crate::id::OrderId;
use crate::plan::chain::Chain;
use crate::plan::key;
use crate::plan::order::batch::Batching;
use crate::plan::order::cursor::{Cursor, Resumable};
use crate::plan::order::{Epoch, Params};
use crate::plan::snapshot::Snapshot;
use ahead::Ahead;
use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use fetch::Fetch;
use open::Open;
pub use open::{CHUNKS_BYTES, ENTRY_BYTES};
use std::collections::BTreeMap;
use std::sync::Arc;

#[derive(Debug, Clone)]
pub struct Options {
    pub batching: Batching,
    pub shuffle: bool,
    pub seed: u64,
    pub lanes: u32,
    pub block: u32,
    /// Batches computed ahead; 0: one per thread and one more.
    pub prefetch: usize,
}

/// A split, ready to be read.
pub struct Reader {
    fetch: Arc<Fetch>,
    chain: Chain,
    snapshot: Arc<Snapshot>,
    partition_rows: Vec<u64>,
    order: OrderId,
    pool: Pool,
    /// Those that wait for a remote store.
    waiting: Option<Pool>,
    options: Options,
}

/// From where a share of the shards is served.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Origin {
    /// The stage's name; `None`: computed from the source.
    pub stage: Option<String>,
    pub encoding: Option<Encoding>,
    pub shards: u64,
    pub rows: u64,
}

/// One batch of one rank.
#[derive(Debug, Clone)]
pub struct Batch {
    pub rows: RecordBatch,
    /// How many of the rows, at the end, repeat others so that all ranks get equal shares.
    pub padding: usize,
    /// The position of the next batch: what the cursor says once this one was used.
    pub next: u64,
}

impl Reader {
    /// `order`: the split's order table for this snapshot.
    pub fn open(
        dataset: &Dataset,
        split: &Split,
        snapshot: Arc<Snapshot>,
        order: Vec<OrderRow>,
        pool: Pool,
        options: Options,
    ) -> Result<Reader> {
        if order.len() != snapshot.partitions() {
            let (expected, found) = (snapshot.partitions(), order.len());
            return Err(Error::corrupt(format!(
                "an order table of {found} partitions where the snapshot has {expected}"
            )));
        }
        let order_id = key::order_id(&snapshot.entries.entries, &order);
        let partition_rows = order.iter().map(|o| o.rows).collect();
        let remote = dataset.store.storage().local_path().is_none();
        let open = Open::new(dataset.clone(), split.chain.clone(), snapshot.clone())?;
        Ok(Reader {
            fetch: Arc::new(Fetch::new(open, Arc::new(order))),
            chain: split.chain.clone(),
            snapshot,
            partition_rows,
            order: order_id,
            pool,
            waiting: remote.then(|| Pool::new(ahead::THREADS)).transpose()?,
            options,
        })
    }

    /// Samples of an epoch, over all ranks.
    pub fn rows(&self) -> u64 {
        self.partition_rows.iter().sum()
    }

    /// Batches of an epoch from a position on; the same on every rank.
    pub fn batches(&self, position: u64) -> u64 {
        self.options.batching.batches(self.rows(), position)
    }

    /// The schema of every batch.
    pub fn schema(&self) -> SchemaRef {
        self.fetch.schema()
    }

    /// From where each shard would be served now, by stage and encoding, the nearest stage first.
    pub fn origins(&self) -> Result<Vec<Origin>> {
        let mut counted: BTreeMap<(usize, Option<Encoding>), (u64, u64)> = BTreeMap::new();
        let fetch = self.fetch.clone();
        let find = move |partition| fetch.open().origin(partition);
        let threads = self.waiting.as_ref().unwrap_or(&self.pool);
        let found = threads.map(0..self.partition_rows.len(), 2 * threads.threads(), find);
        for (found, rows) in found.zip(&self.partition_rows) {
            let (stage, record) = found?;
            let count = counted.entry((stage, record.map(|r| r.encoding))).or_default();
            *count = (count.0 + 1, count.1 + rows);
        }
        let origin = |((stage, encoding), (shards, rows)): ((usize, Option<Encoding>), (u64, u64))| Origin {
            stage: encoding.map(|_| self.chain.stages[stage].name.clone()),
            encoding,
            shards,
            rows,
        };
        Ok(counted.into_iter().rev().map(origin).collect())
    }

    /// What went wrong with stored shards and was mended by computing, or made reading slow, since last asked.
    pub fn take_warnings(&self) -> Vec<String> {
        self.fetch.open().take_warnings()
    }

    /// The resume state at a position of an epoch.
    pub fn cursor(&self, epoch: u64, position: u64) -> Cursor {
        let recipe = self.chain.stages[self.chain.stages.len() - 1].recipe;
        Cursor::new(&self.params(epoch), recipe, self.snapshot.id, self.order, position)
    }

    /// The (epoch, position) to go on from. Errors with `Invalid` where the state belongs to another dataset, seed or order.
    pub fn resume(&self, cursor: &Cursor) -> Result<(u64, u64, Resumable)> {
        let how = cursor.check(&self.cursor(0, 0), self.rows())?;
        let place = cursor.place()?;
        Ok((place.epoch, place.position, how))
    }

    /// This rank's batches of an epoch from a position on, computed ahead on the pool's threads.
    pub fn epoch(&self, epoch: u64, position: u64) -> Result<impl Iterator<Item = Result<Batch>> + use<>> {
        let order = Epoch::new(&self.partition_rows, self.params(epoch))?;
        let batching = self.options.batching;
        let mut position = position;
        let shares = std::iter::from_fn(move || {
            let share = order.share(position, &batching)?;
            position = share.next;
            Some(share)
        });
        let (fetch, seed) = (self.fetch.clone(), self.options.seed);
        let window = if self.options.prefetch == 0 { self.pool.threads() + 1 } else { self.options.prefetch };
        let shares = Ahead::new(shares, self.fetch.clone(), self.waiting.clone());
        Ok(self.pool.map(shares, window, move |(share, _brought)| {
            let rows = fetch.fetch(&share.rows, seed, epoch)?;
            Ok(Batch { rows, padding: share.padding, next: share.next })
        }))
    }

    fn params(&self, epoch: u64) -> Params {
        let Options { seed, lanes, block, shuffle, .. } = self.options;
        Params { seed, epoch, lanes, block, shuffle }
    }
}
