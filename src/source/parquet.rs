//! Parquet files as sources: their columns, their row groups, and one group as batches.

use crate::error::{Error, Result};
use crate::format::shard::CHUNK_BYTES;
use crate::source::opened::{Body, Opened, Positional};
use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use bytes::Bytes;
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::{ArrowReaderMetadata, ArrowReaderOptions, ParquetRecordBatchReaderBuilder};
use parquet::basic::Compression;
use parquet::errors::Result as ParquetResult;
use parquet::file::reader::{ChunkReader, Length};
use std::io::{BufReader, Read};
use std::ops::Range;
use std::slice::from_ref;

/// Fetched at once from a file's end, where its footer is.
const TAIL: u64 = 64 << 10;

/// A file's bytes, as the decoder asks for them.
#[derive(Clone)]
struct Chunks {
    body: Body,
    bytes: u64,
}

impl Length for Chunks {
    fn len(&self) -> u64 {
        self.bytes
    }
}

impl ChunkReader for Chunks {
    type T = BufReader<Positional>;
    fn get_read(&self, start: u64) -> ParquetResult<Self::T> {
        Ok(BufReader::new(self.body.clone().from(start)))
    }
    fn get_bytes(&self, start: u64, length: usize) -> ParquetResult<Bytes> {
        let mut bytes = Vec::new();
        // Grows with what is there, not with what a header claims.
        self.body.clone().from(start).take(length as u64).read_to_end(&mut bytes)?;
        match bytes.len() == length {
            true => Ok(bytes.into()),
            false => Err(std::io::Error::from(std::io::ErrorKind::UnexpectedEof).into()),
        }
    }
}

/// A file whose footer was read.
pub(super) struct ParquetFile {
    file: Chunks,
    metadata: ArrowReaderMetadata,
}

impl ParquetFile {
    pub fn open(opened: &Opened) -> Result<Self> {
        let key = opened.key();
        let file = Chunks { body: opened.body.clone(), bytes: opened.validator.bytes };
        file.body.fetch(from_ref(&(file.bytes.saturating_sub(TAIL)..file.bytes)))?;
        let mut end = [0; 8];
        if file.bytes >= 8 && file.body.read_exact_at(&mut end, file.bytes - 8).is_ok() {
            // A length that can't be is the decoder's to refuse.
            let footer = 8 + u64::from(u32::from_le_bytes([end[0], end[1], end[2], end[3]]));
            file.body.fetch(from_ref(&(file.bytes.saturating_sub(footer)..file.bytes)))?;
        }
        let metadata = guarded(key, || ArrowReaderMetadata::load(&file, ArrowReaderOptions::new()))?;
        Ok(ParquetFile { file, metadata })
    }
    pub fn schema(&self) -> &SchemaRef {
        self.metadata.schema()
    }
    /// Refuses columns, by their places, whose pages no codec of this build reads.
    pub fn readable(&self, key: &str, roots: &[usize]) -> Result<()> {
        let metadata = self.metadata.metadata();
        for (index, leaf) in metadata.row_groups().iter().flat_map(|group| group.columns().iter().enumerate()) {
            let codec = match leaf.compression() {
                Compression::BROTLI(_) => "brotli",
                Compression::LZO => "lzo",
                _ => continue,
            };
            let root = metadata.file_metadata().schema_descr().get_column_root_idx(index);
            if roots.contains(&root) {
                let name = leaf.column_path().string();
                return Err(Error::invalid(format!(
                    "{key}: column {name:?} is compressed with {codec}, which is not supported; write it with zstd, lz4, snappy, gzip or none, or leave it out with `columns:`"
                )));
            }
        }
        Ok(())
    }
    /// (rows, bytes as stored) of each row group.
    pub fn groups(&self) -> Vec<(u64, u64)> {
        let groups = self.metadata.metadata().row_groups().iter();
        groups.map(|g| (g.num_rows().max(0) as u64, g.compressed_size().max(0) as u64)).collect()
    }
    /// Where the columns at `roots` of one group stand; what can't be is left to the decoder.
    fn chunks(&self, group: usize, roots: &[usize]) -> ParquetResult<Vec<Range<u64>>> {
        let metadata = self.metadata.metadata();
        let described = metadata.file_metadata().schema_descr();
        let columns = metadata.row_group(group).columns().iter().enumerate();
        let wanted = columns.filter(|(leaf, _)| roots.contains(&described.get_column_root_idx(*leaf)));
        let range = |(start, bytes): (u64, u64)| start..start.saturating_add(bytes).min(self.file.bytes);
        Ok(wanted.map(|(_, column)| range(column.byte_range())).collect())
    }
    /// The columns at `roots` of one group.
    pub fn read(
        &self,
        key: &str,
        group: usize,
        roots: &[usize],
    ) -> Result<impl Iterator<Item = Result<RecordBatch>> + Send + use<>> {
        let Some(described) = self.metadata.metadata().row_groups().get(group) else {
            return Err(Error::invalid(format!("{key} has no row group {group}")));
        };
        let per_row = described.total_byte_size().max(0) as u64 / (described.num_rows().max(1) as u64);
        let rows = (CHUNK_BYTES as u64 / per_row.max(1)).clamp(1, 8192) as usize;
        self.file.body.fetch(&guarded(key, || self.chunks(group, roots))?)?;
        let builder = ParquetRecordBatchReaderBuilder::new_with_metadata(self.file.clone(), self.metadata.clone());
        let mask = ProjectionMask::roots(builder.parquet_schema(), roots.iter().copied());
        let mut reader =
            guarded(key, || builder.with_row_groups(vec![group]).with_projection(mask).with_batch_size(rows).build())?;
        let key = key.to_owned();
        Ok(std::iter::from_fn(move || guarded(&key, || reader.next().transpose()).transpose()))
    }
}

/// Runs what reads untrusted bytes: an error, or a panic of the decoder on a damaged file, becomes an error that names the file.
pub(super) fn guarded<T, E: std::error::Error + Send + Sync + 'static>(
    key: &str,
    work: impl FnOnce() -> Result<T, E>,
) -> Result<T> {
    let message = || format!("{key} can't be read; is it damaged?");
    match std::panic::catch_unwind(std::panic::AssertUnwindSafe(work)) {
        Ok(result) => result.map_err(|e| Error::invalid(message()).caused_by(e)),
        Err(_) => Err(Error::invalid(message())),
    }
}
