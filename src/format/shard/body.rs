//! The message and body of a record batch without a codec, made of batches that follow one another. Values are not
//! copied: the body is a list of pieces of the arrays' own buffers. The layout is that of arrow's IPC writer.

use super::arrow::ALIGNMENT;
use crate::error::{Error, Result};
use arrow::array::{Array, ArrayRef, AsArray, BooleanBufferBuilder, NullBufferBuilder, OffsetSizeTrait, RecordBatch};
use arrow::buffer::Buffer;
use arrow::datatypes::DataType;
use arrow::ipc;
use flatbuffers::FlatBufferBuilder;

pub struct Body {
    /// To be written one after the other, padding included.
    pub pieces: Vec<Buffer>,
    /// For each column the number of pieces up to its end.
    pub ends: Vec<usize>,
    nodes: Vec<ipc::FieldNode>,
    buffers: Vec<ipc::Buffer>,
    rows: usize,
    bytes: usize,
    padding: Buffer,
}

impl Body {
    /// `parts` have one schema and are in normal form; at least one.
    pub fn new(parts: &[RecordBatch]) -> Result<Body> {
        let mut body = Body {
            pieces: Vec::new(),
            ends: Vec::new(),
            nodes: Vec::new(),
            buffers: Vec::new(),
            rows: parts.iter().map(RecordBatch::num_rows).sum(),
            bytes: 0,
            padding: Buffer::from_vec(vec![0u8; ALIGNMENT]),
        };
        let columns = parts.first().map_or(0, RecordBatch::num_columns);
        for column in 0..columns {
            body.add(&parts.iter().map(|part| part.column(column).clone()).collect::<Vec<_>>())?;
            body.ends.push(body.pieces.len());
        }
        Ok(body)
    }

    /// The encapsulated message's flatbuffer.
    pub fn message(&self) -> Vec<u8> {
        let mut builder = FlatBufferBuilder::new();
        let buffers = builder.create_vector(&self.buffers);
        let nodes = builder.create_vector(&self.nodes);
        let mut batch = ipc::RecordBatchBuilder::new(&mut builder);
        batch.add_length(self.rows as i64);
        batch.add_nodes(nodes);
        batch.add_buffers(buffers);
        let batch = batch.finish();
        let mut message = ipc::MessageBuilder::new(&mut builder);
        message.add_version(ipc::MetadataVersion::V5);
        message.add_header_type(ipc::MessageHeader::RecordBatch);
        message.add_bodyLength(self.bytes as i64);
        message.add_header(batch.as_union_value());
        let message = message.finish();
        builder.finish(message, None);
        builder.finished_data().to_vec()
    }

    fn add(&mut self, parts: &[ArrayRef]) -> Result<()> {
        let Some(first) = parts.first() else { return Ok(()) };
        let rows: usize = parts.iter().map(|part| part.len()).sum();
        if *first.data_type() == DataType::Null {
            self.nodes.push(ipc::FieldNode::new(rows as i64, rows as i64));
            return Ok(());
        }
        let nulls: usize = parts.iter().map(|part| part.null_count()).sum();
        self.nodes.push(ipc::FieldNode::new(rows as i64, nulls as i64));
        let mut valid = NullBufferBuilder::new(rows);
        for part in parts.iter().filter(|_| nulls > 0) {
            match part.nulls() {
                Some(nulls) => valid.append_buffer(nulls),
                None => valid.append_n_non_nulls(part.len()),
            }
        }
        self.buffer(valid.finish().map(|valid| valid.inner().sliced()).into_iter().collect());
        match first.data_type() {
            DataType::Boolean => {
                let mut bits = BooleanBufferBuilder::new(rows);
                parts.iter().for_each(|part| bits.append_buffer(part.as_boolean().values()));
                self.buffer(vec![bits.finish().sliced()]);
                Ok(())
            }
            DataType::Binary | DataType::Utf8 => self.bytes_column::<i32>(parts),
            DataType::LargeBinary | DataType::LargeUtf8 => self.bytes_column::<i64>(parts),
            DataType::List(_) => {
                let lists = parts.iter().map(|part| part.as_list::<i32>());
                let lists = lists.map(|list| (list.value_offsets(), list.values().clone()));
                self.lists(lists.collect())
            }
            DataType::LargeList(_) => {
                let lists = parts.iter().map(|part| part.as_list::<i64>());
                let lists = lists.map(|list| (list.value_offsets(), list.values().clone()));
                self.lists(lists.collect())
            }
            DataType::Map(..) => {
                let maps = parts.iter().map(|part| part.as_map());
                let maps =
                    maps.map(|map| (map.value_offsets(), std::sync::Arc::new(map.entries().clone()) as ArrayRef));
                self.lists(maps.collect())
            }
            DataType::FixedSizeList(_, size) => {
                let values = parts.iter().map(|part| part.as_fixed_size_list()).map(|list| {
                    list.values().slice(list.value_offset_at(0), list.len() * usize::try_from(*size).unwrap_or(0))
                });
                self.add(&values.collect::<Vec<_>>())
            }
            DataType::Struct(fields) => (0..fields.len()).try_for_each(|field| {
                self.add(&parts.iter().map(|part| part.as_struct().column(field).clone()).collect::<Vec<_>>())
            }),
            data_type => {
                let width = match data_type {
                    DataType::FixedSizeBinary(width) => usize::try_from(*width).ok(),
                    number => number.primitive_width(),
                };
                let width = width.ok_or_else(|| Error::internal(format!("{data_type} can't be stored")))?;
                let values = parts.iter().map(|part| {
                    let data = part.to_data();
                    data.buffers().first().map(|b| b.slice_with_length(data.offset() * width, data.len() * width))
                });
                self.buffer(values.flatten().collect());
                Ok(())
            }
        }
    }

    fn bytes_column<O: OffsetSizeTrait>(&mut self, parts: &[ArrayRef]) -> Result<()> {
        let data: Vec<_> = parts.iter().map(|part| part.to_data()).collect();
        let mut offsets = Vec::with_capacity(parts.len());
        let mut values = Vec::with_capacity(parts.len());
        for data in &data {
            let [own, bytes] = data.buffers() else { return Err(Error::internal("bytes without offsets and values")) };
            let own = own.typed_data::<O>().get(data.offset()..data.offset() + data.len() + 1).unwrap_or_default();
            let (from, to) = ends(own);
            offsets.push(own);
            values.push(bytes.slice_with_length(from, to - from));
        }
        self.offsets(&offsets)?;
        self.buffer(values);
        Ok(())
    }

    /// Offsets and values of each part.
    fn lists<O: OffsetSizeTrait>(&mut self, parts: Vec<(&[O], ArrayRef)>) -> Result<()> {
        let (offsets, values): (Vec<_>, Vec<_>) = parts.into_iter().unzip();
        self.offsets(&offsets)?;
        let values = values.iter().zip(&offsets).map(|(values, offsets)| {
            let (from, to) = ends(offsets);
            values.slice(from, to - from)
        });
        self.add(&values.collect::<Vec<_>>())
    }

    /// The parts' offsets as one array's, from 0.
    fn offsets<O: OffsetSizeTrait>(&mut self, parts: &[&[O]]) -> Result<()> {
        let mut all = Vec::with_capacity(parts.iter().map(|part| part.len()).sum());
        all.push(O::usize_as(0));
        let mut base = 0;
        for part in parts {
            let (from, to) = ends(part);
            for offset in part.iter().skip(1) {
                let offset = O::from_usize(base + offset.as_usize() - from);
                all.push(offset.ok_or_else(|| Error::invalid("a chunk's lists have over 2^31 elements"))?);
            }
            base += to - from;
        }
        self.buffer(vec![Buffer::from_vec(all)]);
        Ok(())
    }

    /// One buffer of the body, in pieces.
    fn buffer(&mut self, pieces: Vec<Buffer>) {
        let bytes: usize = pieces.iter().map(Buffer::len).sum();
        self.buffers.push(ipc::Buffer::new(self.bytes as i64, bytes as i64));
        self.pieces.extend(pieces.into_iter().filter(|piece| !piece.is_empty()));
        let padded = bytes.next_multiple_of(ALIGNMENT);
        if padded > bytes {
            self.pieces.push(self.padding.slice_with_length(0, padded - bytes));
        }
        self.bytes += padded;
    }
}

/// The first and the last offset.
fn ends<O: OffsetSizeTrait>(offsets: &[O]) -> (usize, usize) {
    let at = |offset: Option<&O>| offset.map_or(0, |offset| offset.as_usize());
    (at(offsets.first()), at(offsets.last()))
}
