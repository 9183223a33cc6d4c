//! The bytes of a shard: record batches to Arrow IPC or Parquet files and back, chunk by chunk, with a digest per chunk.
//! Chunks are encoded and decoded independently, so that callers can do it on many threads.

pub mod arrow;
pub mod parquet;
pub mod tensor;

use crate::error::Result;
use crate::format::encoding::Encoding;
use crate::format::record::Part;
use ::arrow::array::RecordBatch;
use ::arrow::buffer::Buffer;
use ::arrow::datatypes::SchemaRef;
use std::io::Write;

/// Row groups and record batches stay within about this many bytes of decoded values.
pub const CHUNK_BYTES: usize = 8 << 20;
/// A part is closed at the first chunk that reaches this size, so that a large shard spans several blobs.
pub const PART_BYTES: u64 = 128 << 20;

/// Encodes chunks: immutable and shared between threads.
#[derive(Debug, Clone)]
pub struct Encoder {
    pub schema: SchemaRef,
    pub encoding: Encoding,
}

/// An encoded chunk, ready to be appended to a part in order.
pub struct EncodedChunk {
    _todo: (),
}

impl Encoder {
    /// The schema is the stage's, in Arrow's form; refused where a type can't be stored in the container.
    pub fn new(_schema: SchemaRef, _encoding: Encoding) -> Result<Self> {
        unimplemented!()
    }
    /// Compresses one chunk; the bytes are a function of the batch, schema and encoding alone.
    pub fn encode(&self, _batch: &RecordBatch) -> Result<EncodedChunk> {
        unimplemented!()
    }
    /// Begins a part that is written to `out`.
    pub fn part<W: Write + Send>(&self, _out: W) -> Result<PartWriter<W>> {
        unimplemented!()
    }
}

/// Writes one part: a whole file. Digests are taken on the way.
pub struct PartWriter<W: Write + Send> {
    _out: W,
}

impl<W: Write + Send> PartWriter<W> {
    pub fn append(&mut self, _chunk: EncodedChunk) -> Result<()> {
        unimplemented!()
    }
    /// Bytes written so far.
    pub fn bytes(&self) -> u64 {
        unimplemented!()
    }
    /// Writes the footer; the part's `blob` is the digest of every byte written.
    pub fn finish(self) -> Result<(W, Part)> {
        unimplemented!()
    }
}

/// Reads one part from its mapped (or fetched) bytes. Nothing is believed before its digest was checked: `open` verifies
/// the footer and each `chunk` the spans that it uses, once per reader. Shared between threads.
pub struct PartReader {
    _todo: (),
}

impl PartReader {
    /// `schema` is the stage's, in Arrow's form; a file with another one is `Corrupt`.
    pub fn open(_bytes: Buffer, _part: &Part, _schema: SchemaRef, _encoding: Encoding) -> Result<Self> {
        unimplemented!()
    }
    pub fn chunks(&self) -> usize {
        unimplemented!()
    }
    /// Decodes chunk `index`, with the top-level columns `columns` in schema order (`None`: all). For `arrow-none` the
    /// arrays point into the part's bytes. Errors are `Corrupt` and name the chunk and column.
    pub fn chunk(&self, _index: usize, _columns: Option<&[usize]>) -> Result<RecordBatch> {
        unimplemented!()
    }
}
