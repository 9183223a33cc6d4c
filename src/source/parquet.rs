//! Parquet files as sources: their columns, their row groups, and one group as batches.

use crate::error::{Error, Result};
use crate::format::shard::CHUNK_BYTES;
use crate::source::root::Opened;
use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::{ArrowReaderMetadata, ArrowReaderOptions, ParquetRecordBatchReaderBuilder};
use parquet::basic::Compression;
use std::fs::File;

/// A file whose footer was read.
pub(super) struct ParquetFile {
    file: File,
    metadata: ArrowReaderMetadata,
}

impl ParquetFile {
    pub fn open(opened: &Opened) -> Result<Self> {
        let key = opened.key();
        let file = opened.file.try_clone().map_err(|e| Error::io(format!("cannot read {key}"), e))?;
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
        let file = self.file.try_clone().map_err(|e| Error::io(format!("cannot read {key}"), e))?;
        let builder = ParquetRecordBatchReaderBuilder::new_with_metadata(file, self.metadata.clone());
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
