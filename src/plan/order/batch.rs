//! Batches and ranks: each batch takes the next positions from the cursor, lists them lane by lane, and every rank takes
//! its share of the list.

use super::{Epoch, Row};
use crate::error::{Error, Result};

/// What becomes of a last batch with fewer than B positions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tail {
    /// Filled up to B by repeating its positions cyclically, so that all ranks get equal shares.
    Pad,
    /// Left out.
    Drop,
    /// Delivered as it is.
    Short,
}

impl Tail {
    /// One rank keeps the short last batch; several pad, so that all take as many steps.
    pub fn default_for(world_size: u32) -> Self {
        if world_size > 1 { Tail::Pad } else { Tail::Short }
    }
}

/// How positions are dealt out. Neither the order nor the cursor depends on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Batching {
    batch: u64,
    rank: u32,
    world_size: u32,
    tail: Tail,
}

/// One rank's share of one batch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Share {
    pub rows: Vec<Row>,
    /// How many of `rows`, at the end, are padding.
    pub padding: usize,
    /// Position of the next batch: what the cursor says once this one is delivered.
    pub next: u64,
}

impl Batching {
    /// `batch`: B, the samples of all ranks together. Errors with `Invalid` on a batch of 0 or a rank outside the world.
    pub fn new(batch: u64, rank: u32, world_size: u32, tail: Tail) -> Result<Self> {
        if batch == 0 {
            return Err(Error::invalid("a batch has at least 1 sample, found a batch size of 0"));
        }
        if rank >= world_size {
            return Err(Error::invalid(format!(
                "rank {rank} of world size {world_size}: expected a rank from 0 to the world size less 1"
            )));
        }
        Ok(Batching { batch, rank, world_size, tail })
    }

    /// Batches from `position` to the end of an epoch of `rows` rows; the same on every rank.
    pub fn batches(&self, rows: u64, position: u64) -> u64 {
        let left = rows.saturating_sub(position);
        match self.tail {
            Tail::Drop => left / self.batch,
            Tail::Pad | Tail::Short => left.div_ceil(self.batch),
        }
    }
}

impl Epoch {
    /// This rank's share of the batch that begins at `position`; `None` where the epoch has no more batches.
    pub fn share(&self, position: u64, batching: &Batching) -> Option<Share> {
        if batching.batches(self.rows(), position) == 0 {
            return None;
        }
        let next = self.rows().min(position.saturating_add(batching.batch));
        let count = next - position;
        let listed = if batching.tail == Tail::Pad { batching.batch } else { count };
        let cut = |rank: u32| (u128::from(listed) * u128::from(rank) / u128::from(batching.world_size)) as u64;
        let (from, to) = (cut(batching.rank), cut(batching.rank + 1));
        let own = to.min(count).saturating_sub(from);
        let positions: Vec<u64> = self.lane_major(position..next).collect();
        let share = (from..to).filter_map(|index| positions.get((index % count) as usize).copied());
        Some(Share { rows: self.rows_at(share), padding: (to - from - own) as usize, next })
    }
}
