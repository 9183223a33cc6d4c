//! The bytes of a shard: record batches to Arrow IPC or Parquet files and back, chunk by chunk, with a digest per chunk.
//! Chunks are encoded and decoded independently, so that callers can do it on many threads.

mod arrow;
mod body;
mod parquet;
mod recycle;
pub mod tensor;

mod normal;
mod spans;
mod storage;

pub use recycle::Recycler;
pub use spans::verify_part;

use crate::error::{Error, Result};
use crate::format::encoding::{Codec, Container, Encoding};
use crate::format::record::{Chunk, Part, Span};
use crate::id::Digest;
use ::arrow::array::{Array, RecordBatch, RecordBatchOptions};
use ::arrow::buffer::Buffer;
use ::arrow::compute::concat_batches;
use ::arrow::datatypes::SchemaRef;
use spans::{Hashing, MAX_CHUNK_ROWS, Verified};
use std::fmt;
use std::io::{BufWriter, Write};
use std::sync::Arc;
use storage::Storage;

/// Row groups and record batches stay within about this many bytes of decoded values.
pub const CHUNK_BYTES: usize = 8 << 20;
/// A part is closed at the first chunk that reaches this size, so that a large shard spans several blobs.
pub const PART_BYTES: u64 = 128 << 20;
/// A chunk of more decoded bytes (one huge row) is neither written nor read: Parquet's pages end at 2^31.
pub const MAX_CHUNK_BYTES: u64 = 2_000_000_000;
/// Batches of this mean size are written where they are; smaller ones are joined first.
const LARGE_PART: u64 = 64 << 10;
/// Digesting in larger pieces is faster.
const WRITE_BUFFER: usize = 256 << 10;

/// Encodes chunks: immutable and shared between threads.
#[derive(Debug, Clone)]
pub struct Encoder {
    pub schema: SchemaRef,
    pub encoding: Encoding,
    storage: Arc<Storage>,
    /// For Parquet.
    layout: Option<Arc<parquet::Layout>>,
}

/// An encoded chunk, ready to be appended to a part in order.
pub struct EncodedChunk(Form);

enum Form {
    Arrow(arrow::Encoded),
    Parquet(parquet::Encoded),
}

impl Encoder {
    /// The schema is the stage's, in Arrow's form; refused where a type can't be stored in the container.
    pub fn new(schema: SchemaRef, encoding: Encoding) -> Result<Self> {
        let storage = Arc::new(Storage::new(schema.clone(), encoding.container)?);
        let layout = match encoding.container {
            Container::Arrow => None,
            Container::Parquet => Some(Arc::new(parquet::Layout::new(storage.clone(), encoding.codec)?)),
        };
        Ok(Encoder { schema, encoding, storage, layout })
    }

    /// Compresses one chunk; the bytes are a function of the batch's values, schema and encoding alone. `Invalid` where a
    /// chunk is larger than can be stored.
    pub fn encode(&self, batch: &RecordBatch) -> Result<EncodedChunk> {
        self.encode_parts(std::slice::from_ref(batch))
    }

    /// The same for a chunk whose rows lie in several batches, one after the other.
    pub fn encode_parts(&self, parts: &[RecordBatch]) -> Result<EncodedChunk> {
        let rows: usize = parts.iter().map(RecordBatch::num_rows).sum();
        let mut bytes = 0;
        for (column, field) in self.schema.fields().iter().enumerate() {
            for part in parts {
                bytes += part.column(column).to_data().get_slice_memory_size()? as u64;
            }
            if bytes > MAX_CHUNK_BYTES || rows as u64 > MAX_CHUNK_ROWS {
                return Err(Error::invalid(format!(
                    "a batch of {rows} rows has over {bytes} bytes up to column {:?}; at most {MAX_CHUNK_BYTES} bytes and {MAX_CHUNK_ROWS} rows can be stored as one chunk: use smaller batches or values",
                    field.name()
                )));
            }
        }
        let pack = |batch: &RecordBatch| self.storage.pack(batch);
        if self.layout.is_none() && self.encoding.codec == Codec::None && bytes >= LARGE_PART * parts.len() as u64 {
            let stored = parts.iter().map(pack).collect::<Result<Vec<_>>>()?;
            return Ok(EncodedChunk(Form::Arrow(arrow::encode_plain(&stored)?)));
        }
        let stored = match parts {
            [one] => pack(one)?,
            many => pack(&concat_batches(&self.schema, many)?)?,
        };
        Ok(EncodedChunk(match (&self.layout, self.encoding.codec) {
            (None, Codec::None) => Form::Arrow(arrow::encode_plain(&[stored])?),
            (None, codec) => Form::Arrow(arrow::encode_compressed(&stored, codec)?),
            (Some(layout), _) => Form::Parquet(parquet::encode(layout, &stored)?),
        }))
    }

    /// Begins a part that is written to `out`.
    pub fn part<W: Write + Send>(&self, out: W) -> Result<PartWriter<W>> {
        let mut out = BufWriter::with_capacity(WRITE_BUFFER, Hashing::new(out));
        let file = match &self.layout {
            None => {
                let prefix = arrow::prefix(&self.storage.stored)?;
                write(&mut out, &prefix)?;
                File::Arrow { out, bytes: prefix.len() as u64, prefix: Digest::of(&prefix) }
            }
            Some(layout) => File::Parquet(parquet::Writer::new(layout, out)?),
        };
        Ok(PartWriter { file, storage: self.storage.clone(), chunks: Vec::new() })
    }
}

fn write(out: &mut impl Write, bytes: &[u8]) -> Result<()> {
    out.write_all(bytes).map_err(|error| Error::io("cannot write a part", error))
}

/// Writes one part: a whole file. Digests are taken on the way.
pub struct PartWriter<W: Write + Send> {
    file: File<W>,
    storage: Arc<Storage>,
    chunks: Vec<Chunk>,
}

enum File<W: Write + Send> {
    Arrow { out: BufWriter<Hashing<W>>, bytes: u64, prefix: Digest },
    Parquet(parquet::Writer<W>),
}

impl<W: Write + Send> PartWriter<W> {
    pub fn append(&mut self, chunk: EncodedChunk) -> Result<()> {
        let chunk = match (&mut self.file, chunk.0) {
            (File::Arrow { out, bytes, .. }, Form::Arrow(encoded)) => {
                let chunk = encoded.chunk(*bytes);
                for piece in encoded.bytes() {
                    write(out, piece)?;
                    *bytes += piece.len() as u64;
                }
                chunk
            }
            (File::Parquet(writer), Form::Parquet(encoded)) => writer.append(encoded)?,
            _ => return Err(Error::internal("a chunk of one container appended to a part of another")),
        };
        self.chunks.push(chunk);
        Ok(())
    }

    /// Bytes written so far.
    pub fn bytes(&self) -> u64 {
        match &self.file {
            File::Arrow { bytes, .. } => *bytes,
            File::Parquet(writer) => writer.bytes(),
        }
    }

    /// Writes the footer; the part's `blob` is the digest of every byte written.
    pub fn finish(self) -> Result<(W, Part)> {
        let offset = self.bytes();
        let out = match self.file {
            File::Arrow { mut out, prefix, .. } => {
                out.flush().map_err(|error| Error::io("cannot write a part", error))?;
                out.get_mut().begin_span();
                write(&mut out, &arrow::footer(&self.storage.stored, &self.chunks, prefix)?)?;
                out
            }
            File::Parquet(writer) => writer.finish()?,
        };
        let hashing = out.into_inner().map_err(|error| Error::io("cannot write a part", error.into_error()))?;
        let (mut out, blob, bytes, digest) = hashing.finish();
        out.flush().map_err(|error| Error::io("cannot write a part", error))?;
        let footer = Span { offset, bytes, digest };
        let rows = self.chunks.iter().map(|chunk| chunk.rows).sum();
        Ok((out, Part { blob, bytes: offset + bytes, rows, chunks: self.chunks, footer }))
    }
}

/// Brings spans of a part's bytes into place before they are looked at.
pub trait Fetch: Send + Sync + fmt::Debug {
    /// As long as the part; the bytes of `spans` are there and were verified.
    fn fetch(&self, spans: &[Span]) -> Result<Buffer>;
}

/// A part's bytes: all there, or to be fetched.
#[derive(Debug, Clone)]
pub enum PartBytes {
    Whole(Buffer),
    Fetched(Arc<dyn Fetch>),
}

impl From<Buffer> for PartBytes {
    fn from(bytes: Buffer) -> PartBytes {
        PartBytes::Whole(bytes)
    }
}

impl PartBytes {
    fn bring(&self, spans: &[Span]) -> Result<Buffer> {
        match self {
            PartBytes::Whole(bytes) => Ok(bytes.clone()),
            PartBytes::Fetched(fetch) => fetch.fetch(spans),
        }
    }
}

/// Reads one part from its mapped (or fetched) bytes. Nothing is believed before its digest was checked: `open` verifies
/// the footer and each `chunk` the spans that it uses, once per reader. Shared between threads.
pub struct PartReader {
    bytes: PartBytes,
    part: Part,
    encoding: Encoding,
    storage: Arc<Storage>,
    verified: Verified,
    /// The parsed footer, for Parquet.
    parquet: Option<parquet::Metadata>,
    memory: Recycler,
}

impl PartReader {
    /// `schema` is the stage's, in Arrow's form; a file with another one is `Corrupt`.
    pub fn open(from: impl Into<PartBytes>, part: &Part, schema: SchemaRef, encoding: Encoding) -> Result<Self> {
        let from = from.into();
        spans::check_layout(part, encoding.container, schema.fields().len())?;
        let bytes = &from.bring(&[part.footer])?;
        if bytes.len() as u64 != part.bytes {
            return Err(Error::corrupt(format!(
                "part {} has {} bytes, its record says {}",
                part.blob.short(),
                bytes.len(),
                part.bytes
            )));
        }
        // What lies before the first chunk is used by other readers only, and not fetched for this one.
        let whole = matches!(from, PartBytes::Whole(_));
        if whole {
            spans::verify(bytes, part.footer, || format!("the footer of part {}", part.blob.short()))?;
        }
        let verified = Verified::new(part.chunks.len(), schema.fields().len());
        let storage = Arc::new(Storage::new(schema, encoding.container)?);
        let parquet = match encoding.container {
            Container::Arrow => {
                let prefix = arrow::check_footer(bytes, part, &storage.stored)?;
                if whole {
                    spans::verify(bytes, prefix, || "what lies before the first record batch".to_owned())?;
                }
                None
            }
            Container::Parquet => {
                if whole {
                    parquet::check_prefix(bytes, part)?;
                }
                Some(parquet::open(bytes, part, storage.clone())?)
            }
        };
        let memory = Recycler::default();
        Ok(PartReader { bytes: from, part: part.clone(), encoding, storage, verified, parquet, memory })
    }

    /// Decodes large columns into memory that others may have used before.
    pub fn with_memory(self, memory: Recycler) -> Self {
        PartReader { memory, ..self }
    }

    pub fn chunks(&self) -> usize {
        self.part.chunks.len()
    }

    /// Has the bytes of chunks fetched, and held for as long as the buffers are, one for each chunk; none where all bytes
    /// are there anyway.
    pub fn bring(&self, chunks: &[usize]) -> Result<Vec<Buffer>> {
        let PartBytes::Fetched(fetch) = &self.bytes else { return Ok(Vec::new()) };
        let wanted = chunks.iter().filter_map(|chunk| self.part.chunks.get(*chunk));
        let spans: Vec<Span> = wanted.flat_map(|chunk| chunk.head.iter().chain(&chunk.columns)).copied().collect();
        let buffer = fetch.fetch(&spans)?;
        Ok(chunks.iter().map(|_| buffer.clone()).collect())
    }

    /// Decodes chunk `index`, with the top-level columns `columns` in schema order (`None`: all). For `arrow-none` the
    /// arrays point into the part's bytes. Errors are `Corrupt` and name the chunk and column.
    pub fn chunk(&self, index: usize, columns: Option<&[usize]>) -> Result<RecordBatch> {
        let Some(chunk) = self.part.chunks.get(index) else {
            return Err(Error::internal(format!("there is no chunk {index} of {}", self.chunks())));
        };
        let during = |error: Error| error.during(format!("chunk {index} of part {}", self.part.blob.short()));
        let schema = &self.storage.stage;
        let mut wanted = match columns {
            Some(columns) => columns.to_vec(),
            None => (0..schema.fields().len()).collect(),
        };
        wanted.sort_unstable();
        wanted.dedup();
        let columns = wanted.iter().filter_map(|column| chunk.columns.get(*column));
        let spans: Vec<Span> = chunk.head.iter().chain(columns).copied().collect();
        let bytes = &self.bytes.bring(&spans).map_err(during)?;
        if let PartBytes::Whole(bytes) = &self.bytes {
            self.verified.check(bytes, chunk, index, &wanted, schema).map_err(during)?;
        }
        let stored = match &self.parquet {
            None => arrow::decode(bytes, chunk, &self.storage.stored, &wanted, self.encoding.codec),
            Some(metadata) => {
                let shared = parquet::shared(bytes.clone());
                parquet::decode(&shared, metadata, index, chunk.rows, &wanted, &self.memory)
            }
        }
        .map_err(during)?;

        let mut arrays = stored.columns();
        let fields: Vec<_> = self.storage.fields().collect();
        let mut unpacked = Vec::with_capacity(wanted.len());
        for &column in &wanted {
            let count = fields.get(column).map_or(0, |fields| fields.len());
            let (own, rest) = arrays.split_at_checked(count).unwrap_or_default();
            unpacked.push(self.storage.unpack(column, own).map_err(during)?);
            arrays = rest;
        }
        let rows = RecordBatchOptions::new().with_row_count(Some(chunk.rows as usize));
        let schema = Arc::new(schema.project(&wanted)?);
        RecordBatch::try_new_with_options(schema, unpacked, &rows)
            .map_err(|error| during(Error::corrupt("its columns are not the stage's").caused_by(error)))
    }

    /// Everything that is wrong with the part's bytes, by name; empty where they are sound. Where they are fetched, those of
    /// its chunks.
    pub fn verify(&self) -> Vec<Error> {
        match &self.bytes {
            PartBytes::Whole(bytes) => verify_part(bytes, &self.part, &self.storage.stage),
            PartBytes::Fetched(_) => (0..self.chunks()).filter_map(|chunk| self.bring(&[chunk]).err()).collect(),
        }
    }
}

impl fmt::Debug for PartReader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PartReader").field("blob", &self.part.blob).field("encoding", &self.encoding).finish()
    }
}
