//! What a partition is computed from, in pieces small enough that a few of them per thread bound the memory: groups of
//! source entries, batches of a source stream, or chunks of a stored stage.

use crate::engine::rows::{Rows, batch_bytes};
use crate::engine::stored::StoredShard;
use crate::error::Result;
use crate::plan::snapshot::Snapshot;
use crate::source::{Batches, Source};
use std::sync::Arc;

/// Most source bytes and samples in a piece: decoded they are some tens of megabytes.
const PIECE_BYTES: u64 = 2 << 20;
const PIECE_SAMPLES: usize = 64;
/// Most rows in a piece cut from a stream of small rows.
const PIECE_ROWS: usize = 8192;

/// Input for one task; `read` does the work on the task's thread.
pub enum Piece {
    Entries { source: Arc<Source>, snapshot: Arc<Snapshot>, which: Vec<usize>, first: u64 },
    Rows(Rows),
    Chunk { shard: Arc<StoredShard>, chunk: usize },
}

impl Piece {
    pub fn read(self) -> Result<Rows> {
        match self {
            Piece::Entries { source, snapshot, which, first } => {
                Rows::from_source(source.read_entries(&snapshot.entries, &which)?, first)
            }
            Piece::Rows(rows) => Ok(rows),
            Piece::Chunk { shard, chunk } => Rows::from_stored(shard.chunk(chunk, None)?, shard.chunk_start(chunk)),
        }
    }
}

pub type Pieces = Box<dyn Iterator<Item = Result<Piece>> + Send>;

/// A partition's pieces from the source, in order.
pub fn from_source(source: &Arc<Source>, snapshot: &Arc<Snapshot>, partition: usize) -> Result<Pieces> {
    let range = snapshot.range(partition);
    if !source.entries_are_samples() {
        let batches = source.read_stream(&snapshot.entries, range)?;
        return Ok(Box::new(Stream { batches, held: None, row: 0 }));
    }
    let (source, snapshot) = (source.clone(), snapshot.clone());
    let mut next = range.start;
    Ok(Box::new(std::iter::from_fn(move || {
        let first = next;
        let mut bytes = 0;
        while next < range.end && next - first < PIECE_SAMPLES {
            bytes += snapshot.entries.entries[next].bytes;
            if next > first && bytes > PIECE_BYTES {
                break;
            }
            next += 1;
        }
        let piece = Piece::Entries {
            source: source.clone(),
            snapshot: snapshot.clone(),
            which: (first..next).collect(),
            first: (first - range.start) as u64,
        };
        (next > first).then_some(Ok(piece))
    })))
}

/// A stored shard's chunks, in order.
pub fn from_stored(shard: Arc<StoredShard>) -> Pieces {
    Box::new((0..shard.chunks()).map(move |chunk| Ok(Piece::Chunk { shard: shard.clone(), chunk })))
}

/// Batches of a source stream, cut into pieces.
struct Stream {
    batches: Batches,
    held: Option<arrow::array::RecordBatch>,
    row: u64,
}

impl Iterator for Stream {
    type Item = Result<Piece>;

    fn next(&mut self) -> Option<Self::Item> {
        let batch = loop {
            match self.held.take() {
                Some(batch) if batch.num_rows() > 0 => break batch,
                _ => match self.batches.next()? {
                    Ok(batch) => self.held = Some(batch),
                    Err(error) => return Some(Err(error)),
                },
            }
        };
        let per_row = batch_bytes(&batch, 0, batch.num_rows()) / batch.num_rows();
        let rows = (PIECE_BYTES as usize / per_row.max(1)).clamp(1, PIECE_ROWS).min(batch.num_rows());
        self.held = Some(batch.slice(rows, batch.num_rows() - rows));
        let piece = Rows::from_source(batch.slice(0, rows), self.row).map(Piece::Rows);
        self.row += rows as u64;
        Some(piece)
    }
}
