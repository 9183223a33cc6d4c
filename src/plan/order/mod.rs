//! The order of samples as a pure function of (order table, seed, epoch, position, L, K); ranks, tails and the cursor.
//! Specified in `formats/order.md`.
//!
//! Shards are permuted and laid end to end; L lanes cut that line into contiguous ranges; inside a lane rows are mixed
//! by two passes of keyed bijections in blocks of K (`block`). `batch` cuts positions into batches and ranks' shares,
//! `cursor` is the resume state. Nothing here knows where rows are stored.

pub mod batch;
mod block;
pub mod cursor;

use crate::error::{Error, Result};
use crate::format::canonical::{Domain, Writer};
use block::{EpochKeys, Keys, Pass};
use std::ops::Range;

/// L where a pipeline doesn't set it.
pub const DEFAULT_LANES: u32 = 16;

/// What the order of an epoch depends on, besides the rows of each partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Params {
    pub seed: u64,
    pub epoch: u64,
    /// L, at least 1.
    pub lanes: u32,
    /// K, at least 1.
    pub block: u32,
    /// `false`: one lane, position p is row p, and `lanes` and `block` mean nothing.
    pub shuffle: bool,
}

/// Where a position's sample is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Row {
    pub partition: u32,
    /// Row of the partition at the last deterministic stage.
    pub row: u64,
}

/// A contiguous range of one partition's rows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rows {
    pub partition: u32,
    pub rows: Range<u64>,
}

/// One epoch's order: 12 bytes a shard, built in one pass over the shards.
#[derive(Debug, Clone)]
pub struct Epoch {
    params: Params,
    /// Partitions in this epoch's sequence.
    shards: Vec<u32>,
    /// Where each shard begins on the line, and where the last one ends.
    starts: Vec<u64>,
    keys: EpochKeys,
}

/// K where a pipeline doesn't set it: 64 where shards are random mixtures of the dataset; else the largest power of two
/// from 16 to 1,024 with which 1.5 L K rows of mean source size stay within 256 MiB.
pub fn default_block(hash_ordered: bool, mean_source_bytes: u64, lanes: u32) -> u32 {
    if hash_ordered {
        return 64;
    }
    let fits = |block: &u32| {
        3 * u128::from(lanes) * u128::from(*block) * u128::from(mean_source_bytes) <= 2 * u128::from(256_u64 << 20)
    };
    [1024, 512, 256, 128, 64, 32].into_iter().find(fits).unwrap_or(16)
}

impl Epoch {
    /// `partition_rows`: rows of each partition at the last deterministic stage, in partition order. Errors with
    /// `Invalid` on more rows or partitions than can be counted, and on L or K of 0.
    pub fn new(partition_rows: &[u64], params: Params) -> Result<Self> {
        if params.shuffle && (params.lanes == 0 || params.block == 0) {
            return Err(Error::invalid(format!(
                "order: lanes and block are at least 1, found lanes {} and block {}",
                params.lanes, params.block
            )));
        }
        let count = u32::try_from(partition_rows.len()).map_err(|_| {
            Error::invalid(format!("{} partitions; at most 2^32 - 1 can be ordered", partition_rows.len()))
        })?;
        let mut shards: Vec<u32> = (0..count).collect();
        let mut params = params;
        if params.shuffle {
            permute_shards(&mut shards, params.seed, params.epoch);
        } else {
            (params.lanes, params.block) = (1, 1);
        }
        let mut starts = Vec::with_capacity(shards.len() + 1);
        let mut end = 0_u64;
        starts.push(end);
        for shard in &shards {
            end = end
                .checked_add(partition_rows[*shard as usize])
                .ok_or_else(|| Error::invalid("the rows of all partitions exceed 2^64 - 1"))?;
            starts.push(end);
        }
        Ok(Epoch { keys: EpochKeys::new(&params), params, shards, starts })
    }

    pub fn params(&self) -> &Params {
        &self.params
    }

    /// N, and so the number of positions.
    pub fn rows(&self) -> u64 {
        self.starts.last().copied().unwrap_or(0)
    }

    /// The row at a position; `None` from N on.
    pub fn at(&self, position: u64) -> Option<Row> {
        (position < self.rows()).then(|| self.find(Mixer::new(self).line(position)))
    }

    /// Positions `start..end` (cut at N) in the order in which a batch lists them: lane by lane, each ascending.
    pub fn lane_major(&self, positions: Range<u64>) -> impl Iterator<Item = u64> + use<> {
        let lanes = u64::from(self.params.lanes);
        let end = positions.end.min(self.rows());
        let start = positions.start.min(end);
        let heads = end.min(start.saturating_add(lanes));
        let lane_zero = start.next_multiple_of(lanes).min(heads);
        (lane_zero..heads).chain(start..lane_zero).flat_map(move |head| (head..end).step_by(lanes as usize))
    }

    /// The rows at `positions`, which are below N. Fastest in lane-major order.
    pub fn rows_at(&self, positions: impl IntoIterator<Item = u64>) -> Vec<Row> {
        let mut mixer = Mixer::new(self);
        positions.into_iter().map(|position| self.find(mixer.line(position))).collect()
    }

    /// Most rows that are open at once when rows are taken in order and each is dropped once delivered: 1.5 L K (K/2
    /// rounded up), or N if that is less.
    pub fn open_rows_bound(&self) -> u64 {
        let block = u64::from(self.params.block);
        let lane = if self.params.shuffle { block + block.div_ceil(2) } else { 1 };
        u64::from(self.params.lanes).saturating_mul(lane).min(self.rows())
    }

    /// Row ranges in use from the first of `positions` up to the last, lane by lane. In each lane, what lies before is
    /// delivered and may be dropped, and what lies behind is not needed yet.
    pub fn window(&self, positions: Range<u64>) -> Vec<Rows> {
        let mut found = Vec::new();
        let lanes = u64::from(self.params.lanes);
        let end = positions.end.min(self.rows());
        for head in self.lane_major(positions.start..positions.start.saturating_add(lanes)) {
            let tail = head + end.saturating_sub(head + 1) / lanes * lanes;
            let (start, rows) = self.lane((head % lanes) as u32);
            let block = |pass: Pass, offset| pass.block(offset, self.params.block, rows).rows;
            let first = block(Pass::Aligned, block(Pass::Shifted, head / lanes).start).start;
            let last = block(Pass::Aligned, block(Pass::Shifted, tail / lanes).end - 1).end;
            self.split(start + first..start + last, &mut found);
        }
        found
    }

    /// A range of the line as ranges of partitions.
    fn split(&self, line: Range<u64>, found: &mut Vec<Rows>) {
        let mut index = self.shard_at(line.start);
        let mut from = line.start;
        while from < line.end {
            let (start, end) = (self.starts[index], self.starts[index + 1].min(line.end));
            if from < end {
                found.push(Rows { partition: self.shards[index], rows: from - start..end - start });
                from = end;
            }
            index += 1;
        }
    }

    /// Index of the shard that holds a place on the line below N; shards without rows hold none.
    fn shard_at(&self, line: u64) -> usize {
        self.starts.partition_point(|start| *start <= line) - 1
    }

    fn find(&self, line: u64) -> Row {
        let index = self.shard_at(line);
        Row { partition: self.shards[index], row: line - self.starts[index] }
    }

    /// Where a lane begins on the line, and its rows: lane l has ceil((N - l) / L).
    fn lane(&self, lane: u32) -> (u64, u64) {
        let (lane, lanes) = (u64::from(lane), u64::from(self.params.lanes));
        let (share, longer) = (self.rows() / lanes, self.rows() % lanes);
        (lane * share + lane.min(longer), share + u64::from(lane < longer))
    }
}

/// Positions to places on the line; keeps the keys of the blocks last used, so that neighbours in a lane share them.
struct Mixer<'a> {
    epoch: &'a Epoch,
    lane: u32,
    shifted: Option<(u64, Keys)>,
    /// A shifted block reaches into two aligned blocks: one of an even number and one of an odd.
    aligned: [Option<(u64, Keys)>; 2],
}

impl<'a> Mixer<'a> {
    fn new(epoch: &'a Epoch) -> Self {
        Mixer { epoch, lane: 0, shifted: None, aligned: [None, None] }
    }

    fn line(&mut self, position: u64) -> u64 {
        let params = &self.epoch.params;
        if !params.shuffle {
            return position;
        }
        let lanes = u64::from(params.lanes);
        let lane = (position % lanes) as u32;
        if lane != self.lane {
            *self = Mixer { lane, ..Mixer::new(self.epoch) };
        }
        let (start, rows) = self.epoch.lane(lane);
        let mut offset = position / lanes;
        for pass in [Pass::Shifted, Pass::Aligned] {
            let block = pass.block(offset, params.block, rows);
            let slot = match pass {
                Pass::Shifted => &mut self.shifted,
                Pass::Aligned => &mut self.aligned[(block.number % 2) as usize],
            };
            let keys = match slot {
                Some((number, keys)) if *number == block.number => keys,
                _ => &slot.insert((block.number, self.epoch.keys.block(lane, pass, block.number))).1,
            };
            let size = block.rows.end - block.rows.start;
            offset = block.rows.start + keys.permute(offset - block.rows.start, size);
        }
        start + offset
    }
}

/// Fisher and Yates' shuffle from the end, with words of the stream of (seed, epoch).
fn permute_shards(shards: &mut [u32], seed: u64, epoch: u64) {
    let mut writer = Writer::new(Domain::ShardOrder);
    writer.list(2);
    writer.int(seed.into());
    writer.int(epoch.into());
    // All words at once: drawing them one by one costs a hash for each.
    let mut bytes = vec![0; 8 * shards.len().saturating_sub(1)];
    writer.stream().fill(&mut bytes);
    let (words, _) = bytes.as_chunks::<8>();
    for (last, word) in (1..shards.len()).rev().zip(words) {
        let other = (u128::from(u64::from_le_bytes(*word)) * (last as u128 + 1)) >> 64;
        shards.swap(last, other as usize);
    }
}

#[cfg(test)]
mod tests;
