//! A decoded chunk while its rows are handed out, each once an epoch. When memory is short only the rows still to come
//! are kept.

use super::cache::Held;
use crate::engine::rows::{Rows, batch_bytes};
use crate::error::Result;
use arrow::array::{BooleanBufferBuilder, UInt32Array};
use std::sync::{Arc, Mutex};

pub struct Chunk {
    state: Mutex<State>,
    /// Its values lie in mapped files, which weigh nothing.
    mapped: bool,
}

struct State {
    kept: Arc<Kept>,
    handed_out: BooleanBufferBuilder,
    remaining: usize,
}

/// Rows of a chunk that are still held.
pub struct Kept {
    pub rows: Rows,
    /// Their numbers in the chunk, ascending; `None`: all.
    numbers: Option<UInt32Array>,
}

/// What a mapped chunk counts for.
const MAPPED_WEIGHT: usize = 4096;

impl Kept {
    /// Where row `number` of the chunk is in `rows`; `None`: no longer held.
    pub fn find(&self, number: usize) -> Option<usize> {
        match &self.numbers {
            None => (number < self.rows.len()).then_some(number),
            Some(numbers) => numbers.values().binary_search(&u32::try_from(number).ok()?).ok(),
        }
    }

    fn bytes(&self) -> usize {
        batch_bytes(&self.rows.batch, 0, self.rows.len()).max(1)
    }
}

impl Chunk {
    pub fn new(rows: Rows, mapped: bool) -> Chunk {
        let (mut handed_out, remaining) = (BooleanBufferBuilder::new(rows.len()), rows.len());
        handed_out.append_n(rows.len(), false);
        let kept = Arc::new(Kept { rows, numbers: None });
        Chunk { state: Mutex::new(State { kept, handed_out, remaining }), mapped }
    }

    pub fn kept(&self) -> Arc<Kept> {
        self.state().kept.clone()
    }

    pub fn weight(&self) -> usize {
        if self.mapped { MAPPED_WEIGHT } else { self.kept().bytes() }
    }

    /// Notes that these rows were handed out; true once all were.
    pub fn hand_out(&self, numbers: impl Iterator<Item = usize>) -> bool {
        let mut state = self.state();
        for number in numbers {
            if !state.handed_out.get_bit(number) {
                state.handed_out.set_bit(number, true);
                state.remaining -= 1;
            }
        }
        state.remaining == 0
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().expect("no panics while locked")
    }
}

impl State {
    fn shrink(&mut self) -> Result<()> {
        let numbers = UInt32Array::from_iter_values(
            (0..self.handed_out.len() as u32).filter(|number| !self.handed_out.get_bit(*number as usize)),
        );
        let places = UInt32Array::from_iter_values(
            numbers.values().iter().filter_map(|number| self.kept.find(*number as usize)).map(|place| place as u32),
        );
        self.kept = Arc::new(Kept { rows: self.kept.rows.take(&places)?, numbers: Some(numbers) });
        Ok(())
    }
}

impl Held for Arc<Chunk> {
    fn spare(&self) -> usize {
        if self.mapped {
            return 0;
        }
        let state = self.state();
        let gone = state.kept.rows.len() - state.remaining.min(state.kept.rows.len());
        state.kept.bytes() / state.kept.rows.len().max(1) * gone
    }

    fn shrink(&self) -> usize {
        // What can't be shrunk is whole as it was.
        let _ = self.state().shrink();
        self.weight()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow::array::{Int64Array, LargeStringArray, RecordBatch};

    #[test]
    fn rows_still_to_come_are_kept_when_others_are_let_go() {
        let names = LargeStringArray::from_iter_values((0..6).map(|i| format!("row {i}")));
        let batch = RecordBatch::try_from_iter([
            ("_key", Arc::new(names) as _),
            ("n", Arc::new(Int64Array::from_iter_values(0..6)) as _),
        ]);
        let chunk = Arc::new(Chunk::new(Rows::from_source(batch.unwrap(), 10).unwrap(), false));
        assert!(!chunk.hand_out([1, 4, 1].into_iter()));
        let weight = chunk.weight();
        assert!(chunk.spare() >= weight / 4 && chunk.shrink() < weight);
        assert_eq!(chunk.spare(), 0);
        let kept = chunk.kept();
        assert_eq!(
            (0..7).map(|n| kept.find(n)).collect::<Vec<_>>(),
            [Some(0), None, Some(1), Some(2), None, Some(3), None]
        );
        assert_eq!(kept.rows.source.values(), &[10, 12, 13, 15]);
        assert!(!chunk.hand_out([0, 2, 5].into_iter()));
        chunk.shrink();
        assert_eq!(chunk.kept().rows.source.values(), &[13]);
        assert!(chunk.hand_out([3].into_iter()));
    }
}
