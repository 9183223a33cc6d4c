//! Shards as Parquet files: a chunk is a row group. Encodings are a fixed choice by type, so that bytes are a function of
//! values and codec.

use super::spans::{self, Hashing};
use super::storage::Storage;
use super::{MAX_CHUNK_BYTES, Recycler};
use crate::error::{Error, Result};
use crate::format::KEY;
use crate::format::encoding::Codec;
use crate::format::record::{Chunk, Part, Span};
use crate::id::Digest;
use ::arrow::array::{Array, ArrayRef, AsArray, LargeBinaryArray, RecordBatch, RecordBatchOptions};
use ::arrow::buffer::{Buffer, OffsetBuffer};
use ::arrow::datatypes::{DataType, FieldRef, Schema, SchemaRef};
use ::parquet::arrow::arrow_reader::{ArrowReaderMetadata, ArrowReaderOptions, ParquetRecordBatchReaderBuilder};
use ::parquet::arrow::arrow_writer::{ArrowRowGroupWriterFactory, compute_leaves};
use ::parquet::arrow::{ArrowSchemaConverter, ProjectionMask, encode_arrow_schema};
use ::parquet::basic::{Compression, GzipLevel, ZstdLevel};
use ::parquet::column::writer::ColumnCloseResult;
use ::parquet::errors::ParquetError;
use ::parquet::file::metadata::{KeyValue, ParquetMetaData, ParquetMetaDataReader, SortingColumn};
use ::parquet::file::properties::{EnabledStatistics, WriterProperties, WriterPropertiesPtr};
use ::parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter, TrackedWrite};
use ::parquet::schema::types::{SchemaDescPtr, SchemaDescriptor};
use bytes::Bytes;
use std::io::{BufWriter, Write};
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

const MAGIC: &[u8] = b"PAR1";
/// Part of every file's bytes: changes only with the rules below.
const CREATED_BY: &str = "forebay version 1.0.0 (build 1)";
/// Key-value metadata: the tensors of the file's columns, as JSON.
pub const TENSORS_KEY: &str = "forebay.tensors";
const ARROW_SCHEMA_KEY: &str = "ARROW:schema";
const PAGE_BYTES: usize = 1 << 20;

/// What the chunks of a file have in common.
#[derive(Debug)]
pub struct Layout {
    storage: Arc<Storage>,
    descriptor: SchemaDescPtr,
    properties: WriterPropertiesPtr,
    factory: ArrowRowGroupWriterFactory,
}

impl Layout {
    pub fn new(storage: Arc<Storage>, codec: Codec) -> Result<Self> {
        for field in storage.stored.fields() {
            let alone = Schema::new(vec![field.clone()]);
            ArrowSchemaConverter::new().convert(&alone).map_err(|error| {
                Error::invalid(format!(
                    "column {:?} of type {} can't be stored as parquet; cast it (`table.cast`) or use arrow",
                    field.name(),
                    field.data_type()
                ))
                .caused_by(error)
            })?;
        }
        let descriptor = Arc::new(descriptor(&storage)?);
        let properties = Arc::new(properties(&storage, &descriptor, codec)?);
        let root = descriptor.root_schema_ptr();
        let writer = SerializedFileWriter::new(std::io::sink(), root, properties.clone()).map_err(bug)?;
        let factory = ArrowRowGroupWriterFactory::new(&writer, storage.stored.clone());
        Ok(Layout { storage, descriptor, properties, factory })
    }
}

fn bug(error: ParquetError) -> Error {
    Error::internal("a Parquet operation failed").caused_by(error)
}

fn descriptor(storage: &Storage) -> Result<SchemaDescriptor> {
    ArrowSchemaConverter::new().convert(&storage.stored).map_err(bug)
}

fn compression(codec: Codec) -> Result<Compression> {
    Ok(match codec {
        Codec::None => Compression::UNCOMPRESSED,
        Codec::Lz4 => Compression::LZ4_RAW,
        Codec::Snappy => Compression::SNAPPY,
        Codec::Zstd(level) => Compression::ZSTD(ZstdLevel::try_new(level).map_err(bug)?),
        Codec::Gzip(level) => Compression::GZIP(GzipLevel::try_new(level).map_err(bug)?),
    })
}

fn properties(storage: &Storage, descriptor: &SchemaDescriptor, codec: Codec) -> Result<WriterProperties> {
    let metadata = vec![
        KeyValue::new(ARROW_SCHEMA_KEY.to_owned(), encode_arrow_schema(&storage.stored)),
        KeyValue::new(TENSORS_KEY.to_owned(), storage.tensors()?.to_string()),
    ];
    let mut builder = WriterProperties::builder()
        .set_created_by(CREATED_BY.to_owned())
        .set_compression(compression(codec)?)
        .set_key_value_metadata(Some(metadata))
        .set_data_page_size_limit(PAGE_BYTES)
        // Plain values but for text, which often repeats; keys never do.
        .set_dictionary_enabled(false)
        .set_statistics_enabled(EnabledStatistics::Chunk)
        // The page index would have a place of its own, for which a record has no digest.
        .set_offset_index_disabled(true)
        .set_sorting_columns(None::<Vec<SortingColumn>>);
    for leaf in 0..descriptor.num_columns() {
        let field = storage.stored.field(descriptor.get_column_root_idx(leaf));
        let path = descriptor.column(leaf).path().clone();
        let text = matches!(field.data_type(), DataType::Utf8 | DataType::LargeUtf8) && field.name() != KEY;
        builder = match field.data_type() {
            DataType::Binary | DataType::LargeBinary => {
                builder.set_column_statistics_enabled(path, EnabledStatistics::None)
            }
            _ if text => builder.set_column_dictionary_enabled(path, true),
            _ => builder,
        };
    }
    Ok(builder.build())
}

/// A row group's bytes and what the footer says of them.
pub struct Encoded {
    pub rows: u64,
    bytes: Bytes,
    leaves: Vec<ColumnCloseResult>,
    /// Bytes and digest of each of the stage's columns.
    columns: Vec<(u64, Digest)>,
}

/// `batch` is of the stored schema.
pub fn encode(layout: &Layout, batch: &RecordBatch) -> Result<Encoded> {
    let mut out = TrackedWrite::new(Vec::new());
    let mut group =
        SerializedRowGroupWriter::new(layout.descriptor.clone(), layout.properties.clone(), &mut out, 0, None);
    let mut writers = layout.factory.create_column_writers(0).map_err(bug)?.into_iter();
    // Leaves of each stored field.
    let mut counts = Vec::with_capacity(batch.num_columns());
    for (field, array) in layout.storage.stored.fields().iter().zip(batch.columns()) {
        let leaves = compute_leaves(field, array).map_err(bug)?;
        counts.push(leaves.len());
        for leaf in leaves {
            let mut writer = writers.next().ok_or_else(|| Error::internal("too few column writers"))?;
            writer.write(&leaf).map_err(bug)?;
            writer.close().and_then(|chunk| chunk.append_to_row_group(&mut group)).map_err(bug)?;
        }
    }
    let metadata = group.close().map_err(bug)?;
    let rows = batch.num_rows() as u64;
    let bytes = Bytes::from(out.into_inner().map_err(bug)?);

    let sizes: Vec<u64> = metadata.columns().iter().map(|leaf| leaf.compressed_size() as u64).collect();
    let mut sizes = sizes.into_iter();
    let mut fields = counts.into_iter();
    let (mut start, mut columns) = (0u64, Vec::new());
    for column in layout.storage.fields() {
        let leaves: usize = fields.by_ref().take(column.len()).sum();
        let length: u64 = sizes.by_ref().take(leaves).sum();
        let range = Span { offset: start, bytes: length, digest: Digest::from_bytes([0; 32]) };
        let found = spans::slice(&bytes, range).ok_or_else(|| Error::internal("a column outside its row group"))?;
        columns.push((length, Digest::of(found)));
        start += length;
    }
    let leaves = metadata.columns().iter().map(|leaf| ColumnCloseResult {
        bytes_written: leaf.compressed_size() as u64,
        rows_written: rows,
        metadata: leaf.clone(),
        bloom_filter: None,
        column_index: None,
        offset_index: None,
    });
    Ok(Encoded { rows, leaves: leaves.collect(), bytes, columns })
}

type Out<W> = BufWriter<Hashing<W>>;

/// Writes row groups and footer.
pub struct Writer<W: Write + Send> {
    file: SerializedFileWriter<Out<W>>,
}

impl<W: Write + Send> Writer<W> {
    pub fn new(layout: &Layout, out: Out<W>) -> Result<Self> {
        let root = layout.descriptor.root_schema_ptr();
        let file = SerializedFileWriter::new(out, root, layout.properties.clone()).map_err(output)?;
        Ok(Writer { file })
    }

    pub fn bytes(&self) -> u64 {
        self.file.bytes_written() as u64
    }

    pub fn append(&mut self, encoded: Encoded) -> Result<Chunk> {
        let mut end = self.bytes();
        let mut group = self.file.next_row_group().map_err(output)?;
        for leaf in encoded.leaves {
            group.append_column(&encoded.bytes, leaf).map_err(output)?;
        }
        group.close().map_err(output)?;
        let columns = encoded.columns.into_iter().map(|(bytes, digest)| {
            let span = Span { offset: end, bytes, digest };
            end += bytes;
            span
        });
        Ok(Chunk { rows: encoded.rows, head: None, columns: columns.collect() })
    }

    /// The writer with the footer written, as the span begun last.
    pub fn finish(mut self) -> Result<Out<W>> {
        self.file.flush().and_then(|()| self.file.inner_mut().flush()).map_err(|error| Error::io(WRITE, error))?;
        self.file.inner_mut().get_mut().begin_span();
        self.file.into_inner().map_err(output)
    }
}

const WRITE: &str = "cannot write a part";

/// The sink failing; what we hand to the writer was encoded by it.
fn output(error: ParquetError) -> Error {
    match error {
        ParquetError::External(error) => match error.downcast::<std::io::Error>() {
            Ok(error) => Error::io(WRITE, *error),
            Err(error) => Error::internal("a Parquet operation failed").caused_by(error),
        },
        error => bug(error),
    }
}

/// A part's metadata, checked against its record and schema.
pub struct Metadata {
    arrow: ArrowReaderMetadata,
    storage: Arc<Storage>,
}

/// What lies before the first row group.
pub fn check_prefix(bytes: &[u8], part: &Part) -> Result<()> {
    match bytes.starts_with(MAGIC) && spans::prefix_bytes(part) == MAGIC.len() as u64 {
        true => Ok(()),
        false => Err(Error::corrupt(format!("part {} doesn't begin with PAR1", part.blob.short()))),
    }
}

/// Parses the footer, whose digest was verified, and compares it with the record and the schema.
pub fn open(bytes: &[u8], part: &Part, storage: Arc<Storage>) -> Result<Metadata> {
    let wrong = |what: &str| Error::corrupt(format!("the footer of part {} {what}", part.blob.short()));
    let footer = spans::slice(bytes, part.footer).unwrap_or_default();
    let (metadata, tail) = footer.split_last_chunk::<8>().ok_or_else(|| wrong("is too short"))?;
    let [a, b, c, d, magic @ ..] = *tail;
    if magic != MAGIC || u32::from_le_bytes([a, b, c, d]) as usize != metadata.len() {
        return Err(wrong("has no length and magic"));
    }
    let metadata =
        ParquetMetaDataReader::decode_metadata(metadata).map_err(|error| wrong("can't be parsed").caused_by(error))?;
    if metadata.file_metadata().schema_descr().root_schema() != descriptor(&storage)?.root_schema() {
        return Err(wrong("has another schema than its stage"));
    }
    check_row_groups(&metadata, part, &storage).map_err(|what| wrong(&what))?;
    let options = ArrowReaderOptions::new().with_skip_arrow_metadata(true).with_schema(read_schema(&storage));
    let arrow = ArrowReaderMetadata::try_new(Arc::new(metadata), options)
        .map_err(|error| wrong("has another schema than its stage").caused_by(error))?;
    Ok(Metadata { arrow, storage })
}

/// The stored schema, but for tensors' bytes, which are read as views of the pages: their one copy is then of the right
/// size from the start.
fn read_schema(storage: &Storage) -> SchemaRef {
    let mut fields: Vec<FieldRef> = storage.stored.fields().iter().cloned().collect();
    for index in storage.payloads() {
        fields[index] = Arc::new(fields[index].as_ref().clone().with_data_type(DataType::BinaryView));
    }
    Arc::new(Schema::new_with_metadata(fields, storage.stored.metadata().clone()))
}

/// A batch as it was read, as the stored schema has it.
fn as_stored(batch: &RecordBatch, schema: SchemaRef, memory: &Recycler) -> Result<RecordBatch> {
    let columns = batch.columns().iter().map(|column| match column.as_binary_view_opt() {
        None => Ok(column.clone()),
        Some(views) => {
            let bytes = |view: Option<&[u8]>| view.map_or(0, <[u8]>::len);
            let total: usize = views.iter().map(bytes).sum();
            if total as u64 > MAX_CHUNK_BYTES {
                return Err(Error::corrupt(format!("a column of {total} bytes, at most {MAX_CHUNK_BYTES} are stored")));
            }
            let mut values = memory.take(total)?;
            views.iter().flatten().for_each(|view| values.extend_from_slice(view));
            let offsets = OffsetBuffer::from_lengths(views.iter().map(bytes));
            let values = memory.lend(values);
            Ok(Arc::new(LargeBinaryArray::try_new(offsets, values, views.nulls().cloned())?) as ArrayRef)
        }
    });
    let rows = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
    Ok(RecordBatch::try_new_with_options(schema, columns.collect::<Result<_>>()?, &rows)?)
}

/// Column chunks lie end to end within the record's spans.
fn check_row_groups(metadata: &ParquetMetaData, part: &Part, storage: &Storage) -> Result<(), String> {
    if metadata.num_row_groups() != part.chunks.len() {
        return Err(format!("has {} row groups, its record {}", metadata.num_row_groups(), part.chunks.len()));
    }
    let descriptor = metadata.file_metadata().schema_descr();
    for (index, (group, chunk)) in metadata.row_groups().iter().zip(&part.chunks).enumerate() {
        if group.num_rows() as u64 != chunk.rows {
            return Err(format!(
                "says that row group {index} has {} rows, its record {}",
                group.num_rows(),
                chunk.rows
            ));
        }
        let mut decoded = 0u64;
        for (fields, span) in storage.fields().zip(&chunk.columns) {
            let mut end = span.offset;
            for (leaf, column) in group.columns().iter().enumerate() {
                if !fields.contains(&descriptor.get_column_root_idx(leaf)) {
                    continue;
                }
                let start = column.dictionary_page_offset().unwrap_or(column.data_page_offset());
                if u64::try_from(start) != Ok(end) || column.compressed_size() < 0 {
                    return Err(format!("has a column of row group {index} elsewhere than its record"));
                }
                end = end.saturating_add(column.compressed_size() as u64);
                decoded = decoded.saturating_add(column.uncompressed_size() as u64);
            }
            if Some(end) != span.offset.checked_add(span.bytes) {
                return Err(format!("has a column of row group {index} of another length than its record"));
            }
        }
        if decoded > MAX_CHUNK_BYTES {
            return Err(format!("has a row group of {decoded} bytes, at most {MAX_CHUNK_BYTES} are stored"));
        }
    }
    Ok(())
}

struct Owner(Buffer);

impl AsRef<[u8]> for Owner {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

/// A part's bytes as the Parquet reader wants them, without copying.
pub fn shared(bytes: Buffer) -> Bytes {
    Bytes::from_owner(Owner(bytes))
}

/// Decodes the stored columns of the stage's columns `wanted` (ascending), which were verified.
pub fn decode(
    bytes: &Bytes,
    metadata: &Metadata,
    index: usize,
    rows: u64,
    wanted: &[usize],
    memory: &Recycler,
) -> Result<RecordBatch> {
    let wrong = |error: ParquetError| Error::corrupt(format!("row group {index} can't be decoded")).caused_by(error);
    let roots: Vec<usize> = metadata
        .storage
        .fields()
        .enumerate()
        .filter(|(i, _)| wanted.contains(i))
        .flat_map(|(_, fields)| fields)
        .collect();
    let builder = ParquetRecordBatchReaderBuilder::new_with_metadata(bytes.clone(), metadata.arrow.clone());
    let mask = ProjectionMask::roots(builder.parquet_schema(), roots.iter().copied());
    let builder = builder.with_row_groups(vec![index]).with_projection(mask).with_batch_size((rows as usize).max(1));
    let schema = Arc::new(metadata.storage.stored.project(&roots)?);
    let read = || Ok(builder.build()?.collect::<Result<Vec<_>, _>>()?);
    // The crate's decoders panic on some pages that no writer makes, for which only a forged record has digests.
    let batches = std::panic::catch_unwind(AssertUnwindSafe(read))
        .map_err(|_| Error::corrupt(format!("row group {index} has pages that make no sense")))?
        .map_err(wrong)?;
    match batches.as_slice() {
        [] => Ok(RecordBatch::new_empty(schema)),
        [batch] => as_stored(batch, schema, memory),
        batches => as_stored(&::arrow::compute::concat_batches(&batches[0].schema(), batches)?, schema, memory),
    }
}
