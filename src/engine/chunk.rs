//! Cuts a stream of rows into chunks: the cuts depend on the rows alone, never on the batches that they came in, so a
//! shard has the same bytes however it was computed.

use crate::engine::rows::batch_bytes;
use arrow::array::RecordBatch;

/// Collects rows until a chunk is full: a chunk holds the most rows that stay within `limit` bytes of values, at least one.
pub struct Chunker {
    limit: usize,
    held: Vec<RecordBatch>,
    held_bytes: usize,
}

impl Chunker {
    pub fn new(limit: usize) -> Self {
        Chunker { limit, held: Vec::new(), held_bytes: 0 }
    }

    /// Takes a batch in and returns the chunks that are full now, each as the batches that its rows lie in.
    pub fn push(&mut self, mut batch: RecordBatch) -> Vec<Vec<RecordBatch>> {
        let mut full = Vec::new();
        while batch.num_rows() > 0 {
            let fit = self.fitting(&batch);
            if fit == batch.num_rows() {
                self.held_bytes += batch_bytes(&batch, 0, fit);
                self.held.push(batch);
                break;
            }
            if fit > 0 {
                self.held.push(batch.slice(0, fit));
                batch = batch.slice(fit, batch.num_rows() - fit);
            }
            full.extend(self.finish());
        }
        full
    }

    /// What is held as a last chunk; `None` where nothing is.
    pub fn finish(&mut self) -> Option<Vec<RecordBatch>> {
        self.held_bytes = 0;
        let held = std::mem::take(&mut self.held);
        (!held.is_empty()).then_some(held)
    }

    /// The most rows of `batch` that fit into the chunk begun; 1 where nothing is held and even one row is too large.
    fn fitting(&self, batch: &RecordBatch) -> usize {
        let room = self.limit.saturating_sub(self.held_bytes);
        let (mut low, mut high) = (0, batch.num_rows());
        while low < high {
            let middle = (low + high).div_ceil(2);
            if batch_bytes(batch, 0, middle) <= room {
                low = middle;
            } else {
                high = middle - 1;
            }
        }
        if low == 0 && self.held.is_empty() { 1 } else { low }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow::array::{Int64Array, LargeBinaryArray, RecordBatch};
    use arrow::compute::concat_batches;
    use proptest::prelude::*;
    use std::sync::Arc;

    fn batch(lengths: &[usize]) -> RecordBatch {
        let data = LargeBinaryArray::from_iter_values(lengths.iter().map(|n| vec![7u8; *n]));
        let ids = Int64Array::from_iter_values(lengths.iter().map(|n| *n as i64));
        RecordBatch::try_from_iter([("data", Arc::new(data) as _), ("id", Arc::new(ids) as _)]).unwrap()
    }

    proptest! {
        #[test]
        fn cuts_do_not_depend_on_batches(lengths in prop::collection::vec(0usize..300, 0..80), cuts in prop::collection::vec(1usize..9, 80)) {
            let whole = batch(&lengths);
            let chunks = |pieces: Vec<RecordBatch>| {
                let mut chunker = Chunker::new(500);
                let mut out: Vec<Vec<RecordBatch>> = Vec::new();
                for piece in pieces {
                    out.extend(chunker.push(piece));
                }
                out.extend(chunker.finish());
                let joined = out.iter().map(|chunk| concat_batches(&whole.schema(), chunk).unwrap());
                joined.collect::<Vec<_>>()
            };
            let mut pieces = Vec::new();
            let mut at = 0;
            for cut in cuts {
                let n = cut.min(lengths.len() - at);
                pieces.push(whole.slice(at, n));
                at += n;
            }
            let expected = chunks(vec![whole.clone()]);
            prop_assert_eq!(&chunks(pieces), &expected);
            prop_assert_eq!(expected.iter().map(RecordBatch::num_rows).sum::<usize>(), lengths.len());
            for chunk in &expected {
                prop_assert!(chunk.num_rows() == 1 || batch_bytes(chunk, 0, chunk.num_rows()) <= 500);
            }
        }
    }
}
