//! Shards as Arrow IPC files: what lies before the first record batch, the batches, the footer.
//!
//! A reader gets the digests of batches and footer from the shard's record; the footer carries the digest of what lies
//! before the first batch, so that every byte is verified.

use super::MAX_CHUNK_BYTES;
use super::body::Body;
use super::normal;
use super::spans;
use crate::error::{Error, Result};
use crate::format::encoding::Codec;
use crate::format::record::{Chunk, Part, Span};
use crate::id::Digest;
use ::arrow::array::RecordBatch;
use ::arrow::buffer::Buffer;
use ::arrow::datatypes::{DataType, Schema, SchemaRef};
use ::arrow::ipc;
use ::arrow::ipc::reader::{RecordBatchDecoder, read_footer_length};
use ::arrow::ipc::writer::{DictionaryTracker, EncodedData, IpcDataGenerator, IpcWriteOptions, write_message};
use flatbuffers::FlatBufferBuilder;
use std::collections::HashMap;
use std::io::{self, Write};
use std::ops::Range;

/// Buffers begin at multiples of this many bytes of the file.
pub const ALIGNMENT: usize = 64;
const MAGIC: &[u8] = b"ARROW1";
/// Footer metadata: the digest of the bytes before the first record batch.
pub const PREFIX_KEY: &str = "forebay.prefix";
/// The length before a compressed buffer, where it is stored as it is.
const STORED_RAW: i64 = -1;

fn options(codec: Codec) -> Result<IpcWriteOptions> {
    let options = IpcWriteOptions::try_new(ALIGNMENT, false, ipc::MetadataVersion::V5)?;
    Ok(match codec {
        Codec::Lz4 => options.try_with_compression(Some(ipc::CompressionType::LZ4_FRAME))?,
        Codec::Zstd(level) => {
            options.try_with_compression(Some(ipc::CompressionType::ZSTD))?.try_with_compression_level(Some(level))?
        }
        // `Encoding::new` refuses the other two.
        Codec::None | Codec::Snappy | Codec::Gzip(_) => options,
    })
}

/// A record batch's message and body.
pub struct Encoded {
    pub rows: u64,
    head: Vec<u8>,
    body: Vec<Buffer>,
    head_digest: Digest,
    /// Bytes and digest of each column's part of the body.
    columns: Vec<(u64, Digest)>,
}

/// Without a codec: the rows of batches of the stored schema, one after the other, at least one.
pub fn encode_plain(parts: &[RecordBatch]) -> Result<Encoded> {
    let parts = parts.iter().map(normal::batch).collect::<Result<Vec<_>>>()?;
    let body = Body::new(&parts)?;
    let mut start = 0;
    let mut columns = Vec::with_capacity(body.ends.len());
    for &end in &body.ends {
        let mut column = spans::Hashing::new(io::sink());
        for piece in &body.pieces[start..end] {
            column.write_all(piece).map_err(|error| Error::io("cannot digest a column", error))?;
        }
        columns.push(column.whole());
        start = end;
    }
    let rows = parts.iter().map(|part| part.num_rows() as u64).sum();
    encoded(rows, body.message(), body.pieces, columns, &options(Codec::None)?)
}

/// With a codec: a batch of the stored schema.
pub fn encode_compressed(batch: &RecordBatch, codec: Codec) -> Result<Encoded> {
    let options = options(codec)?;
    let batch = normal::batch(batch)?;
    let (_, data) = IpcDataGenerator::default().encode(
        &batch,
        &mut DictionaryTracker::new(true),
        &options,
        &mut Default::default(),
    )?;
    let EncodedData { ipc_message, arrow_data: body } = data;
    let starts = column_starts(&message(&ipc_message)?, batch.schema_ref(), body.len())?;
    let columns = starts.array_windows().map(|[from, to]| ((to - from) as u64, Digest::of(&body[*from..*to])));
    let columns = columns.collect();
    encoded(batch.num_rows() as u64, ipc_message, vec![Buffer::from_vec(body)], columns, &options)
}

fn encoded(
    rows: u64,
    ipc_message: Vec<u8>,
    body: Vec<Buffer>,
    columns: Vec<(u64, Digest)>,
    options: &IpcWriteOptions,
) -> Result<Encoded> {
    let mut head = Vec::new();
    write_message(&mut head, EncodedData { ipc_message, arrow_data: Vec::new() }, options)?;
    Ok(Encoded { rows, head_digest: Digest::of(&head), head, body, columns })
}

impl Encoded {
    /// What is written, in pieces.
    pub fn bytes(&self) -> impl Iterator<Item = &[u8]> {
        std::iter::once(self.head.as_slice()).chain(self.body.iter().map(Buffer::as_slice))
    }

    /// The record's entry for this chunk where it begins at `offset`.
    pub fn chunk(&self, offset: u64) -> Chunk {
        let head = Span { offset, bytes: self.head.len() as u64, digest: self.head_digest };
        let mut end = offset + head.bytes;
        let columns = self.columns.iter().map(|(bytes, digest)| {
            let span = Span { offset: end, bytes: *bytes, digest: *digest };
            end += bytes;
            span
        });
        Chunk { rows: self.rows, head: Some(head), columns: columns.collect() }
    }
}

fn message(bytes: &[u8]) -> Result<ipc::RecordBatch<'_>> {
    let message = ipc::root_as_message(bytes)
        .map_err(|error| Error::corrupt("a record batch's message can't be parsed").caused_by(error.to_string()))?;
    if message.version() != ipc::MetadataVersion::V5 {
        return Err(Error::corrupt("a record batch's message is not of version 5"));
    }
    message.header_as_record_batch().ok_or_else(|| Error::corrupt("a message is no record batch"))
}

/// The width of an element of each buffer that an array of this type has in a message, those of its children included;
/// 1 for bits and bytes.
fn buffer_widths(data_type: &DataType, widths: &mut Vec<usize>) {
    use DataType::*;
    // Validity comes first.
    match data_type {
        Null => {}
        Utf8 | Binary => widths.extend([1, 4, 1]),
        LargeUtf8 | LargeBinary => widths.extend([1, 8, 1]),
        List(item) | Map(item, _) => {
            widths.extend([1, 4]);
            buffer_widths(item.data_type(), widths);
        }
        LargeList(item) => {
            widths.extend([1, 8]);
            buffer_widths(item.data_type(), widths);
        }
        FixedSizeList(item, _) => {
            widths.push(1);
            buffer_widths(item.data_type(), widths);
        }
        Struct(fields) => {
            widths.push(1);
            fields.iter().for_each(|field| buffer_widths(field.data_type(), widths));
        }
        FixedSizeBinary(width) => widths.extend([1, *width as usize]),
        number => widths.extend([1, number.primitive_width().unwrap_or(1)]),
    }
}

fn column_widths(schema: &Schema) -> Vec<Vec<usize>> {
    let widths = |data_type| {
        let mut widths = Vec::new();
        buffer_widths(data_type, &mut widths);
        widths
    };
    schema.fields().iter().map(|field| widths(field.data_type())).collect()
}

/// Where each column begins in the body, and at last the body's end. Columns without buffers are empty ranges.
fn column_starts(batch: &ipc::RecordBatch<'_>, schema: &Schema, body: usize) -> Result<Vec<usize>> {
    let wrong = || Error::corrupt("a record batch's buffers are not those of its schema");
    let buffers = batch.buffers().ok_or_else(wrong)?;
    let mut starts = Vec::with_capacity(schema.fields().len() + 1);
    let mut next = 0;
    for widths in column_widths(schema) {
        let start = match next < buffers.len() {
            true => usize::try_from(buffers.get(next).offset()).map_err(|_| wrong())?,
            false => body,
        };
        starts.push(start);
        next += widths.len();
    }
    starts.push(body);
    if next != buffers.len() || starts.first().is_some_and(|start| *start != 0) || !starts.is_sorted() {
        return Err(wrong());
    }
    Ok(starts)
}

/// Magic and schema: everything before the first record batch.
pub fn prefix(schema: &Schema) -> Result<Vec<u8>> {
    let options = options(Codec::None)?;
    let mut bytes = MAGIC.to_vec();
    bytes.resize(ALIGNMENT, 0);
    let schema = IpcDataGenerator::default().schema_to_bytes_with_dictionary_tracker(
        schema,
        &mut DictionaryTracker::new(true),
        &options,
    );
    write_message(&mut bytes, schema, &options)?;
    Ok(bytes)
}

/// End of stream, footer, its length, magic: everything after the last record batch.
pub fn footer(schema: &Schema, chunks: &[Chunk], prefix: Digest) -> Result<Vec<u8>> {
    let mut blocks = Vec::with_capacity(chunks.len());
    for chunk in chunks {
        let head = chunk.head.ok_or_else(|| Error::internal("a record batch without a head"))?;
        let body: u64 = chunk.columns.iter().map(|span| span.bytes).sum();
        let head_bytes = i32::try_from(head.bytes).map_err(|_| Error::internal("a head of over 2 GiB"))?;
        blocks.push(ipc::Block::new(head.offset as i64, head_bytes, body as i64));
    }
    let mut builder = FlatBufferBuilder::new();
    let dictionaries = builder.create_vector::<ipc::Block>(&[]);
    let blocks = builder.create_vector(&blocks);
    let schema = ipc::convert::schema_to_fb_offset(&mut builder, schema);
    let metadata = [(PREFIX_KEY.to_owned(), prefix.to_string())];
    let metadata = ipc::convert::metadata_to_fb(&mut builder, &metadata.into());
    let mut footer = ipc::FooterBuilder::new(&mut builder);
    footer.add_version(ipc::MetadataVersion::V5);
    footer.add_schema(schema);
    footer.add_dictionaries(dictionaries);
    footer.add_recordBatches(blocks);
    footer.add_custom_metadata(metadata);
    let footer = footer.finish();
    builder.finish(footer, None);
    let footer = builder.finished_data();
    let length = i32::try_from(footer.len()).map_err(|_| Error::internal("a footer of over 2 GiB"))?;
    let mut bytes = vec![0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0];
    bytes.extend_from_slice(footer);
    bytes.extend_from_slice(&length.to_le_bytes());
    bytes.extend_from_slice(MAGIC);
    Ok(bytes)
}

/// Compares the footer, whose digest was verified, with the record and the schema. Returns what lies before the first record
/// batch.
pub fn check_footer(bytes: &[u8], part: &Part, schema: &Schema) -> Result<Span> {
    let wrong = |what: &str| Error::corrupt(format!("the footer of part {} {what}", part.blob.short()));
    let span = spans::slice(bytes, part.footer).unwrap_or_default();
    let (rest, tail) = span.split_last_chunk::<10>().ok_or_else(|| wrong("is too short"))?;
    let length = read_footer_length(*tail).map_err(|error| wrong("has no length and magic").caused_by(error))?;
    // The end-of-stream marker stands between the last batch and the footer.
    let footer = match rest.len().checked_sub(length) {
        Some(8) => {
            ipc::root_as_footer(&rest[8..]).map_err(|error| wrong("can't be parsed").caused_by(error.to_string()))?
        }
        _ => return Err(wrong("is not as long as it says")),
    };
    let found = footer.schema().ok_or_else(|| wrong("has no schema"))?;
    let found = ipc::convert::try_fb_to_schema(found).map_err(|error| wrong("has no schema").caused_by(error))?;
    if found != *schema {
        return Err(wrong(&format!("has another schema than its stage: expected {schema}, found {found}")));
    }
    let blocks = footer.recordBatches().map(|blocks| blocks.iter().copied().collect::<Vec<_>>()).unwrap_or_default();
    let same = |(block, chunk): (&ipc::Block, &Chunk)| {
        let head = chunk.head.map(|head| (head.offset, head.bytes));
        let body: u64 = chunk.columns.iter().map(|span| span.bytes).sum();
        head == Some((block.offset() as u64, block.metaDataLength() as u64)) && block.bodyLength() as u64 == body
    };
    if blocks.len() != part.chunks.len() || !blocks.iter().zip(&part.chunks).all(same) {
        return Err(wrong("lists other record batches than the record"));
    }
    let metadata = footer.custom_metadata();
    let mut entries = metadata.iter().flat_map(|entries| entries.iter());
    let digest = entries.find(|entry| entry.key() == Some(PREFIX_KEY)).and_then(|entry| entry.value());
    let digest = digest.and_then(|digest| digest.parse().ok()).ok_or_else(|| wrong("has no digest of the prefix"))?;
    Ok(Span { offset: 0, bytes: spans::prefix_bytes(part), digest })
}

/// Decodes a chunk whose head and wanted columns were verified. Without a codec the arrays point into `bytes`.
pub fn decode(
    bytes: &Buffer,
    chunk: &Chunk,
    schema: &SchemaRef,
    wanted: &[usize],
    codec: Codec,
) -> Result<RecordBatch> {
    let wrong = |what: &str| Error::corrupt(format!("a record batch {what}"));
    let head = chunk.head.and_then(|head| spans::slice(bytes, head)).unwrap_or_default();
    // The continuation marker and the message's length come first.
    let batch = message(head.get(8..).ok_or_else(|| wrong("has no message"))?)?;
    let start = chunk.head.map_or(0, |head| head.offset + head.bytes) as usize;
    let length: u64 = chunk.columns.iter().map(|span| span.bytes).sum();
    let body = bytes.slice_with_length(start, length as usize);

    let starts = column_starts(&batch, schema, body.len())?;
    let expected = chunk.columns.iter().scan(0u64, |end, span| {
        *end += span.bytes;
        Some(*end)
    });
    if !starts.iter().skip(1).map(|start| *start as u64).eq(expected) {
        return Err(wrong("has its columns elsewhere than its record says"));
    }
    if batch.length() as u64 != chunk.rows {
        return Err(wrong(&format!("has {} rows, its record says {}", batch.length(), chunk.rows)));
    }
    let kind = batch.compression().map(|compression| compression.codec());
    let expected = match codec {
        Codec::Lz4 => Some(ipc::CompressionType::LZ4_FRAME),
        Codec::Zstd(_) => Some(ipc::CompressionType::ZSTD),
        Codec::None | Codec::Snappy | Codec::Gzip(_) => None,
    };
    if kind != expected {
        return Err(wrong("is compressed otherwise than its encoding says"));
    }
    // What was verified are the wanted columns' spans: their buffers must lie inside and unpack within bounds.
    let mut decoded = 0u64;
    let mut buffers = batch.buffers().ok_or_else(|| wrong("has no buffers"))?.iter();
    for (column, (field, widths)) in schema.fields().iter().zip(column_widths(schema)).enumerate() {
        let range = starts[column]..starts[column + 1];
        for (buffer, width) in buffers.by_ref().take(widths.len()).zip(widths) {
            if !wanted.contains(&column) {
                continue;
            }
            let bad = || wrong(&format!("has a bad buffer in column {:?}", field.name()));
            let length = buffer_bytes(buffer, &body, &range, kind.is_some()).ok_or_else(bad)?;
            if !length.is_multiple_of(width as u64) {
                return Err(bad());
            }
            decoded = decoded.saturating_add(length);
        }
    }
    if decoded > MAX_CHUNK_BYTES {
        return Err(wrong(&format!("would decode to {decoded} bytes, at most {MAX_CHUNK_BYTES} are stored")));
    }
    let nodes = batch.nodes().ok_or_else(|| wrong("has no nodes"))?;
    // No array has more elements than the bits of its buffers, but for those that have none.
    let most = (MAX_CHUNK_BYTES * 8) as i64;
    if nodes
        .iter()
        .any(|node| !(0..=most).contains(&node.length()) || !(0..=node.length()).contains(&node.null_count()))
    {
        return Err(wrong("has an array of impossible length"));
    }
    let dictionaries = HashMap::new();
    RecordBatchDecoder::try_new(&body, batch, schema.clone(), &dictionaries, &ipc::MetadataVersion::V5)
        .and_then(|decoder| decoder.with_projection(Some(wanted)).read_record_batch())
        .map_err(|error| wrong("can't be decoded").caused_by(error))
}

/// Bytes of a buffer once decompressed; `None` where it isn't aligned within `range` of the body.
fn buffer_bytes(buffer: &ipc::Buffer, body: &[u8], range: &Range<usize>, compressed: bool) -> Option<u64> {
    let start = usize::try_from(buffer.offset()).ok()?;
    let end = start.checked_add(usize::try_from(buffer.length()).ok()?)?;
    if !start.is_multiple_of(ALIGNMENT) || start < range.start || end > range.end {
        return None;
    }
    let stored = body.get(start..end)?;
    if !compressed || stored.is_empty() {
        return Some(stored.len() as u64);
    }
    match i64::from_le_bytes(*stored.first_chunk::<8>()?) {
        STORED_RAW => Some(stored.len() as u64 - 8),
        length => u64::try_from(length).ok(),
    }
}
