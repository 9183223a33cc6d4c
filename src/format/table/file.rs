//! A table as the bytes of a Parquet file: fixed settings on the way out, checks before belief on the way in.

use crate::error::{Error, Result};
use crate::format::VERSION;
use crate::format::document::check_version;
use crate::format::guard::guard;
use arrow::array::{Array, RecordBatch};
use arrow::buffer::Buffer;
use arrow::datatypes::{Schema, SchemaRef};
use parquet::arrow::ArrowWriter;
use parquet::arrow::arrow_reader::{ParquetRecordBatchReader, ParquetRecordBatchReaderBuilder};
use parquet::basic::{Compression, Encoding, ZstdLevel};
use parquet::file::metadata::{KeyValue, ParquetMetaData};
use parquet::file::properties::{EnabledStatistics, WriterProperties, WriterVersion};
use parquet::schema::types::ColumnPath;
use serde::{Deserialize, Serialize};

/// The key in the file's metadata under which kind and version stand.
const METADATA: &str = "forebay";
/// In every table; it names no version, so that bytes don't change with one.
const CREATED_BY: &str = "forebay";
const ROW_GROUP_ROWS: usize = 1 << 17;
const BATCH_ROWS: usize = 1 << 14;
/// Decoded bytes that any table may have, and those that it may have for each byte of the file.
const FREE_BYTES: u64 = 64 << 20;
const EXPANSION: u64 = 1 << 10;

#[derive(Serialize, Deserialize)]
struct Mark {
    kind: String,
    version: u64,
}

/// `unlike`: columns whose values hardly ever repeat, so that a dictionary would only cost. `ascending`: columns of
/// ascending integers.
pub(super) fn write(kind: &str, batch: &RecordBatch, unlike: &[&str], ascending: &[&str]) -> Result<Vec<u8>> {
    let internal =
        |e: parquet::errors::ParquetError| Error::internal(format!("can't write the table of {kind}")).caused_by(e);
    let mark = Mark { kind: kind.to_owned(), version: VERSION.into() };
    let mark = serde_json::to_string(&mark).map_err(|e| Error::internal("can't write a table's mark").caused_by(e))?;
    let mut properties = WriterProperties::builder()
        .set_created_by(CREATED_BY.to_owned())
        .set_writer_version(WriterVersion::PARQUET_1_0)
        .set_compression(Compression::ZSTD(ZstdLevel::try_new(3).map_err(internal)?))
        .set_max_row_group_row_count(Some(ROW_GROUP_ROWS))
        .set_statistics_enabled(EnabledStatistics::None)
        .set_offset_index_disabled(true)
        .set_key_value_metadata(Some(vec![KeyValue::new(METADATA.to_owned(), mark)]));
    for column in unlike {
        properties = properties.set_column_dictionary_enabled(path(column), false);
    }
    for column in ascending {
        properties = properties
            .set_column_dictionary_enabled(path(column), false)
            .set_column_encoding(path(column), Encoding::DELTA_BINARY_PACKED);
    }
    let mut bytes = Vec::new();
    let mut writer = ArrowWriter::try_new(&mut bytes, batch.schema(), Some(properties.build())).map_err(internal)?;
    writer.write(batch).map_err(internal)?;
    writer.close().map_err(internal)?;
    Ok(bytes)
}

fn path(column: &str) -> ColumnPath {
    ColumnPath::new(column.split('.').map(str::to_owned).collect())
}

/// A table whose footer was checked; yields batches whose columns are still to be checked.
pub(super) struct Table {
    kind: &'static str,
    pub schema: SchemaRef,
    pub rows: u64,
    left: u64,
    batches: Option<ParquetRecordBatchReader>,
}

impl Table {
    pub fn open(kind: &'static str, bytes: &Buffer) -> Result<Table> {
        let unreadable = |e: parquet::errors::ParquetError| corrupt(kind, "a Parquet file").caused_by(e);
        let file = bytes::Bytes::from_owner(bytes.clone());
        let reader = guard(|| ParquetRecordBatchReaderBuilder::try_new(file))?.map_err(unreadable)?;
        check_mark(kind, reader.metadata())?;
        let rows = check_sizes(kind, reader.metadata(), bytes.len() as u64)?;
        let schema = reader.schema().clone();
        let batches = guard(|| reader.with_batch_size(BATCH_ROWS).build())?.map_err(unreadable)?;
        Ok(Table { kind, schema, rows, left: rows, batches: Some(batches) })
    }

    /// Errors unless the columns have these names.
    pub fn expect_columns(&self, names: &[&str]) -> Result<()> {
        let found: Vec<&str> = self.schema.fields().iter().map(|f| f.name().as_str()).collect();
        if found == names {
            return Ok(());
        }
        Err(corrupt(self.kind, format!("the columns {}, found {}", names.join(", "), found.join(", "))))
    }
}

impl Iterator for Table {
    type Item = Result<RecordBatch>;
    fn next(&mut self) -> Option<Self::Item> {
        // Ends at the first error, as the reader behind it may be in no state to go on.
        let batches = self.batches.as_mut()?;
        let batch = match guard(|| batches.next()) {
            Ok(None) if self.left == 0 => return None,
            Ok(None) => Err(corrupt(self.kind, format!("{} rows, found {} fewer", self.rows, self.left))),
            Ok(Some(batch)) => batch.map_err(|e| corrupt(self.kind, "readable pages").caused_by(e)),
            Err(panic) => Err(corrupt(self.kind, "readable pages").caused_by(panic)),
        };
        match &batch {
            Ok(batch) => self.left = self.left.saturating_sub(batch.num_rows() as u64),
            Err(_) => self.batches = None,
        }
        Some(batch)
    }
}

/// A column by name, of the Arrow type `A`; nulls only where `nullable`.
pub(super) fn column<'a, A: Array + 'static>(
    kind: &'static str,
    batch: &'a RecordBatch,
    name: &str,
    nullable: bool,
) -> Result<&'a A> {
    let column = batch.column_by_name(name).ok_or_else(|| corrupt(kind, format!("a column {name}")))?;
    if !nullable && column.null_count() > 0 {
        return Err(corrupt(kind, format!("no null in column {name}, found {}", column.null_count())));
    }
    column
        .as_any()
        .downcast_ref()
        .ok_or_else(|| corrupt(kind, format!("another type of column {name}, found {}", column.data_type())))
}

pub(super) fn corrupt(kind: &str, expected: impl std::fmt::Display) -> Error {
    Error::corrupt(format!("bad table of {kind}: expected {expected}"))
}

pub(super) fn batch(fields: Vec<arrow::datatypes::Field>, columns: Vec<arrow::array::ArrayRef>) -> Result<RecordBatch> {
    Ok(RecordBatch::try_new(Schema::new(fields).into(), columns)?)
}

fn check_mark(kind: &'static str, metadata: &ParquetMetaData) -> Result<()> {
    let mark = metadata
        .file_metadata()
        .key_value_metadata()
        .and_then(|pairs| pairs.iter().find(|pair| pair.key == METADATA))
        .and_then(|pair| pair.value.as_deref())
        .ok_or_else(|| corrupt(kind, format!("metadata under the key {METADATA:?}, found none")))?;
    let mark: Mark =
        serde_json::from_str(mark).map_err(|e| corrupt(kind, "kind and version in its metadata").caused_by(e))?;
    check_version("table", mark.version)?;
    if mark.kind != kind {
        return Err(corrupt(kind, format!("that kind, found {:?}", mark.kind)));
    }
    Ok(())
}

/// The rows of a table whose claims are in proportion to the file's bytes.
fn check_sizes(kind: &'static str, metadata: &ParquetMetaData, file_bytes: u64) -> Result<u64> {
    let limit = FREE_BYTES.saturating_add(file_bytes.saturating_mul(EXPANSION));
    let (mut rows, mut bytes) = (0i128, 0i128);
    for group in metadata.row_groups() {
        rows += i128::from(group.num_rows());
        for chunk in group.columns() {
            let (values, decoded) = (chunk.num_values(), chunk.uncompressed_size());
            if values < 0 || decoded < 0 || group.num_rows() < 0 {
                return Err(corrupt(kind, "counts and sizes that aren't negative"));
            }
            bytes += i128::from(decoded);
        }
    }
    if rows != i128::from(metadata.file_metadata().num_rows()) {
        return Err(corrupt(
            kind,
            format!("row groups that add up to {}, found {rows}", metadata.file_metadata().num_rows()),
        ));
    }
    if bytes > i128::from(limit) || rows > i128::from(limit) {
        return Err(corrupt(kind, format!("at most {limit} decoded bytes and rows, found {bytes} and {rows}")));
    }
    u64::try_from(rows).map_err(|_| corrupt(kind, "rows that aren't negative"))
}
