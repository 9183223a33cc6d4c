//! A stored shard, opened: its parts mapped, its chunks found by row.

use crate::error::{Error, Result};
use crate::format::ERROR;
use crate::format::record::Record;
use crate::format::shard::{PartReader, Recycler};
use crate::store::Store;
use arrow::array::{Array, RecordBatch};
use arrow::buffer::Buffer;
use arrow::datatypes::SchemaRef;

pub struct StoredShard {
    pub record: Record,
    parts: Vec<PartReader>,
    /// For each chunk of all parts: its part, its number there, and the shard's row at which it begins.
    chunks: Vec<(usize, usize, u64)>,
}

impl StoredShard {
    /// Maps every part and verifies what finding chunks needs. `NotFound` and `Corrupt` name the blob.
    pub fn open(store: &Store, record: Record, schema: &SchemaRef) -> Result<StoredShard> {
        let mut parts = Vec::with_capacity(record.parts.len());
        let mut chunks = Vec::new();
        let mut row = 0;
        for (index, part) in record.parts.iter().enumerate() {
            let named = |e: Error| e.during(format!("blob {} of shard {}", part.blob, record.shard));
            let bytes = store.part(part, record.encoding.container).map_err(named)?;
            parts.push(PartReader::open(bytes, part, schema.clone(), record.encoding).map_err(named)?);
            for (number, chunk) in part.chunks.iter().enumerate() {
                chunks.push((index, number, row));
                row += chunk.rows;
            }
        }
        Ok(StoredShard { record, parts, chunks })
    }

    /// Decodes large columns into memory that others may have used before.
    pub fn with_memory(self, memory: &Recycler) -> Self {
        let parts = self.parts.into_iter().map(|part| part.with_memory(memory.clone())).collect();
        StoredShard { parts, ..self }
    }

    pub fn rows(&self) -> u64 {
        self.record.rows
    }
    pub fn chunks(&self) -> usize {
        self.chunks.len()
    }
    /// The shard's row at which a chunk begins.
    pub fn chunk_start(&self, chunk: usize) -> u64 {
        self.chunks[chunk].2
    }
    /// The chunk that holds a row.
    pub fn chunk_of(&self, row: u64) -> usize {
        self.chunks.partition_point(|c| c.2 <= row).saturating_sub(1)
    }
    /// Decodes one chunk, verified at first use; an error names the blob.
    pub fn chunk(&self, chunk: usize, columns: Option<&[usize]>) -> Result<RecordBatch> {
        let (part, number, _) = self.chunks[chunk];
        let named =
            |e: Error| e.during(format!("blob {} of shard {}", self.record.parts[part].blob, self.record.shard));
        self.parts[part].chunk(number, columns).map_err(named)
    }
    /// What a chunk takes in its part.
    pub fn chunk_bytes(&self, chunk: usize) -> u64 {
        let (part, number, _) = self.chunks[chunk];
        let chunk = &self.record.parts[part].chunks[number];
        chunk.head.iter().chain(&chunk.columns).map(|span| span.bytes).sum()
    }
    /// Has the bytes of chunks fetched, near ones together, and held for as long as the buffers are; none where they are at
    /// hand anyway.
    pub fn bring(&self, chunks: &[usize]) -> Result<Vec<Buffer>> {
        let mut buffers = Vec::new();
        for run in chunks.chunk_by(|a, b| self.chunks[*a].0 == self.chunks[*b].0) {
            let numbers: Vec<usize> = run.iter().map(|chunk| self.chunks[*chunk].1).collect();
            buffers.extend(self.parts[self.chunks[run[0]].0].bring(&numbers)?);
        }
        Ok(buffers)
    }
    /// Rows with a reason in `_error`, counted.
    pub fn failed_rows(&self, schema: &SchemaRef) -> Result<u64> {
        let column = schema.index_of(ERROR)?;
        let mut failed = 0;
        for chunk in 0..self.chunks() {
            let batch = self.chunk(chunk, Some(&[column]))?;
            failed += batch.columns().iter().map(|errors| (errors.len() - errors.null_count()) as u64).sum::<u64>();
        }
        Ok(failed)
    }
    /// The blob that holds a chunk.
    pub fn blob(&self, chunk: usize) -> crate::id::Digest {
        self.record.parts[self.chunks[chunk].0].blob
    }
}
