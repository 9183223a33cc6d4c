//! Arrow IPC as a source: where the messages of a stream or file stand, and one record batch read on its own. A file is a
//! stream between two magics, so both are read the same way. Every length is checked against the file before memory is asked for.

use crate::error::{Error, Result};
use crate::source::opened::{Body, Opened};
use crate::source::parquet::guarded;
use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use arrow::ipc::reader::StreamReader;
use arrow::ipc::{MessageHeader, root_as_message};
use std::io::{ErrorKind, Read, Result as IoResult};

const FILE_MAGIC: &[u8; 6] = b"ARROW1";
const CONTINUATION: [u8; 4] = [0xff; 4];
const MOST_METADATA_BYTES: u64 = 64 << 20;

/// A message with its body: bytes `start..end`.
type Span = (u64, u64);

pub(super) struct IpcFile {
    file: Body,
    schema: SchemaRef,
    schema_message: Span,
    dictionaries: Vec<Span>,
    batches: Vec<Batch>,
}

struct Batch {
    span: Span,
    rows: u64,
    /// How many dictionary messages stand before it.
    dictionaries: usize,
}

impl IpcFile {
    pub fn open(opened: &Opened) -> Result<Self> {
        let key = opened.key();
        let io = |e| Error::io(format!("cannot read {key}"), e);
        let file = opened.body.clone();
        let bytes = opened.validator.bytes;
        let bad =
            |at: u64, why: &str| Error::invalid(format!("{key} is no Arrow IPC file or stream: {why} at byte {at}"));
        let mut head = [0; 8];
        let known = file.read_at(&mut head, 0).map_err(io)?;
        if head.starts_with(b"FEA1") {
            return Err(bad(0, "Feather version 1, which has to be written again as version 2,"));
        }
        let mut at = 0;
        if head[..known].starts_with(FILE_MAGIC) {
            // Writers fill up to 8 bytes, or to 64.
            at = 8;
            let mut filling = [0; 56];
            let known = file.read_at(&mut filling, at).map_err(io)?;
            at += filling[..known].iter().take_while(|&&b| b == 0).count() as u64 / 8 * 8;
        }
        let (mut schema_message, mut dictionaries, mut batches) = (None, Vec::new(), Vec::new());
        while at < bytes {
            let start = at;
            let mut word = [0; 4];
            let mut next_word = |at: &mut u64| {
                file.read_exact_at(&mut word, *at).map_err(|e| match e.kind() {
                    ErrorKind::UnexpectedEof => bad(*at, "the end of the file inside a message"),
                    _ => io(e),
                })?;
                *at += 4;
                Ok::<_, Error>(word)
            };
            let mut length = next_word(&mut at)?;
            // Before Arrow 0.15 the length came first.
            if length == CONTINUATION {
                length = next_word(&mut at)?;
            }
            let length = u64::from(u32::from_le_bytes(length));
            if length == 0 {
                break;
            }
            if length > MOST_METADATA_BYTES || length > bytes - at {
                return Err(bad(start, "a message that is longer than the file"));
            }
            let mut metadata = vec![0; length as usize];
            file.read_exact_at(&mut metadata, at).map_err(io)?;
            at += length;
            let message = root_as_message(&metadata).map_err(|_| bad(start, "no valid message"))?;
            let body = u64::try_from(message.bodyLength()).ok().filter(|body| *body <= bytes - at);
            let body = body.ok_or_else(|| bad(start, "a message body that is longer than the file"))?;
            at += body;
            let data = match message.header_type() {
                MessageHeader::DictionaryBatch => message.header_as_dictionary_batch().and_then(|d| d.data()),
                _ => message.header_as_record_batch(),
            };
            if data.is_some_and(|data| !within(data, body)) {
                return Err(bad(start, "a buffer that is not within its message"));
            }
            match message.header_type() {
                MessageHeader::Schema if schema_message.is_none() => schema_message = Some((start, at)),
                MessageHeader::DictionaryBatch => dictionaries.push((start, at)),
                MessageHeader::RecordBatch => {
                    let rows = message.header_as_record_batch().map_or(0, |b| b.length());
                    let rows = u64::try_from(rows).map_err(|_| bad(start, "a batch of fewer than no rows"))?;
                    batches.push(Batch { span: (start, at), rows, dictionaries: dictionaries.len() });
                }
                _ => return Err(bad(start, "a message of unknown kind")),
            }
        }
        let Some(schema_message) = schema_message else { return Err(bad(0, "no schema")) };
        file.fetch(std::slice::from_ref(&(schema_message.0..schema_message.1)))?;
        let segments = Segments::new(&file, vec![schema_message]);
        let schema = guarded(key, || StreamReader::try_new(segments, None))?.schema();
        Ok(IpcFile { file, schema, schema_message, dictionaries, batches })
    }
    pub fn schema(&self) -> &SchemaRef {
        &self.schema
    }
    /// (rows, bytes as stored) of each batch.
    pub fn groups(&self) -> Vec<(u64, u64)> {
        self.batches.iter().map(|b| (b.rows, b.span.1 - b.span.0)).collect()
    }
    /// The columns at `roots` of one batch.
    pub fn read(&self, key: &str, group: usize, roots: &[usize]) -> Result<RecordBatch> {
        let Some(batch) = self.batches.get(group) else {
            return Err(Error::invalid(format!("{key} has no record batch {group}")));
        };
        let mut spans = vec![self.schema_message];
        spans.extend(&self.dictionaries[..batch.dictionaries]);
        spans.push(batch.span);
        self.file.fetch(&spans.iter().map(|span| span.0..span.1).collect::<Vec<_>>())?;
        let segments = Segments::new(&self.file, spans);
        let read = guarded(key, || StreamReader::try_new(segments, Some(roots.to_vec()))?.next().transpose())?;
        read.ok_or_else(|| Error::invalid(format!("{key}: record batch {group} can't be read; is it damaged?")))
    }
}

/// Whether every buffer of a batch lies within its body, which the decoder believes.
fn within(batch: arrow::ipc::RecordBatch, body: u64) -> bool {
    batch.buffers().is_none_or(|buffers| {
        buffers.iter().all(|buffer| {
            let end = buffer.offset().checked_add(buffer.length());
            buffer.offset() >= 0 && buffer.length() >= 0 && end.is_some_and(|end| end as u64 <= body)
        })
    })
}

/// Pieces of a file, one after the other.
struct Segments {
    file: Body,
    spans: std::vec::IntoIter<Span>,
    current: Span,
}

impl Segments {
    fn new(file: &Body, spans: Vec<Span>) -> Self {
        Segments { file: file.clone(), spans: spans.into_iter(), current: (0, 0) }
    }
}

impl Read for Segments {
    fn read(&mut self, out: &mut [u8]) -> IoResult<usize> {
        while self.current.0 == self.current.1 {
            match self.spans.next() {
                Some(next) => self.current = next,
                None => return Ok(0),
            }
        }
        let left = usize::try_from(self.current.1 - self.current.0).unwrap_or(usize::MAX).min(out.len());
        let read = self.file.read_at(&mut out[..left], self.current.0)?;
        self.current.0 += read as u64;
        Ok(read)
    }
}
