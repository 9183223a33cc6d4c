//! The keyed bijection that mixes the rows of one block, and where blocks lie within a lane.

use super::Params;
use crate::format::canonical::{Domain, Writer};
use std::ops::Range;

const ROUNDS: usize = 8;

/// The two passes: rows are mixed in aligned blocks, then in blocks shifted by half a block. From a position to its row
/// they are undone in reverse: shifted first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Pass {
    Aligned = 0,
    Shifted = 1,
}

/// A block and the offsets within the lane that it covers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Block {
    pub number: u64,
    pub rows: Range<u64>,
}

impl Pass {
    /// The block of an offset in a lane of `rows` rows. Shifted: block 0 has the first K/2 rows, rounded down, and the
    /// others K each; the last one of either pass is what is left.
    pub fn block(self, offset: u64, block: u32, rows: u64) -> Block {
        let size = u64::from(block);
        let half = match self {
            Pass::Aligned => 0,
            Pass::Shifted => size / 2,
        };
        if offset < half {
            return Block { number: 0, rows: 0..half.min(rows) };
        }
        let number = (offset - half) / size;
        let start = half + number * size;
        let end = start.saturating_add(size).min(rows);
        Block { number: number + u64::from(self == Pass::Shifted), rows: start..end }
    }
}

/// What the round keys of all blocks of an epoch are made from.
#[derive(Debug, Clone)]
pub(super) struct EpochKeys([u64; ROUNDS]);

impl EpochKeys {
    pub fn new(params: &Params) -> Self {
        let mut writer = Writer::new(Domain::BlockOrder);
        writer.list(2);
        writer.int(params.seed.into());
        writer.int(params.epoch.into());
        let mut bytes = [0; 8 * ROUNDS];
        writer.stream().fill(&mut bytes);
        let mut keys = [0; ROUNDS];
        for (key, word) in keys.iter_mut().zip(bytes.as_chunks::<8>().0) {
            *key = u64::from_le_bytes(*word);
        }
        EpochKeys(keys)
    }

    /// Arithmetic rather than a hash for each block: a single position then costs no more than its neighbours.
    pub fn block(&self, lane: u32, pass: Pass, block: u64) -> Keys {
        let tweak = mix(mix(2 * u64::from(lane) + pass as u64).wrapping_add(block));
        Keys(self.0.map(|key| mix(key.wrapping_add(tweak))))
    }
}

/// The round keys of one block.
#[derive(Debug, Clone)]
pub(super) struct Keys([u64; ROUNDS]);

impl Keys {
    /// A bijection on `0..size`: an alternating Feistel network on the bits that `size - 1` needs, walked until it comes
    /// back into the range, which takes fewer than two steps on average.
    pub fn permute(&self, index: u64, size: u64) -> u64 {
        if size < 2 {
            return index;
        }
        let bits = u64::BITS - (size - 1).leading_zeros();
        let low_bits = bits / 2;
        let low_mask = (1 << low_bits) - 1;
        let high_mask = (1 << (bits - low_bits)) - 1;
        let mut value = index;
        loop {
            let (mut high, mut low) = (value >> low_bits, value & low_mask);
            for [first, second] in self.0.as_chunks::<2>().0 {
                low ^= mix(high ^ first) & low_mask;
                high ^= mix(low ^ second) & high_mask;
            }
            value = high << low_bits | low;
            if value < size {
                return value;
            }
        }
    }
}

/// A bijection on 64 bits in which every bit of the input moves every bit of the output (SplitMix64's finalizer).
fn mix(mut word: u64) -> u64 {
    word = (word ^ word >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    word = (word ^ word >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ word >> 31
}
