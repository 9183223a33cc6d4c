//! The tables kept as Parquet blobs, so that DuckDB can query them: entries of a snapshot, shards of a manifest, counts
//! of an order, names that a collection removes. Their bytes are a function of their rows. Ids hash rows, never these bytes.

mod entries;
mod file;

use crate::error::{Error, Result};
use crate::format::entry::Entry;
use crate::id::{Digest, ShardKey};
use arrow::array::{
    Array, LargeListArray, LargeListBuilder, LargeStringArray, LargeStringBuilder, RecordBatch, UInt32Array,
    UInt32Builder, UInt64Array,
};
use arrow::buffer::Buffer;
use arrow::datatypes::{DataType, Field};
use file::{Table, batch, column, corrupt, write};
use std::sync::Arc;

/// A snapshot's table: entries in partition order, partition 0 first, and within a partition in their order.
#[derive(Debug, Clone, PartialEq)]
pub struct Entries {
    pub entries: Vec<Entry>,
    /// Values that rows carry (`table:`, `join:`), a row for each entry and at least one column; part of the entry's
    /// identity. Metadata of the schema as a whole isn't stored.
    pub carried: Option<RecordBatch>,
}

/// A row of a manifest's shard table, in partition order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShardRow {
    pub partition: u32,
    pub shard: ShardKey,
    pub rows: u64,
    pub bytes: u64,
    pub failed_rows: u64,
    pub blobs: Vec<Digest>,
}

/// A row of an order table, in partition order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OrderRow {
    pub partition: u32,
    /// Rows of the last deterministic stage.
    pub rows: u64,
    /// For each of these rows its source row within the partition, ascending; absent where the chain is one-to-one.
    pub row_map: Option<Vec<u32>>,
}

const SHARDS: &str = "shards";
const ORDER: &str = "order";
const NAMES: &str = "names";

/// The shard table of a manifest; the bytes are a function of the rows.
pub fn encode_shards(rows: &[ShardRow]) -> Result<Vec<u8>> {
    let number = |value: fn(&ShardRow) -> u64| Arc::new(UInt64Array::from_iter_values(rows.iter().map(value)));
    let mut blobs = LargeListBuilder::new(LargeStringBuilder::new()).with_field(element(DataType::LargeUtf8));
    for row in rows {
        for blob in &row.blobs {
            blobs.values().append_value(blob.to_string());
        }
        blobs.append(true);
    }
    let fields = vec![
        Field::new("partition", DataType::UInt32, false),
        Field::new("shard", DataType::LargeUtf8, false),
        Field::new("rows", DataType::UInt64, false),
        Field::new("bytes", DataType::UInt64, false),
        Field::new("failed_rows", DataType::UInt64, false),
        Field::new("blobs", DataType::LargeList(Arc::new(element(DataType::LargeUtf8))), false),
    ];
    let table = batch(
        fields,
        vec![
            Arc::new(UInt32Array::from_iter_values(rows.iter().map(|r| r.partition))),
            Arc::new(LargeStringArray::from_iter_values(rows.iter().map(|r| r.shard.to_string()))),
            number(|r| r.rows),
            number(|r| r.bytes),
            number(|r| r.failed_rows),
            Arc::new(blobs.finish()),
        ],
    )?;
    write(SHARDS, &table, &["shard", "bytes", "blobs.list.element"], &["partition"])
}

/// Errors are `Corrupt`, or `Invalid` for a newer version.
pub fn decode_shards(bytes: &Buffer) -> Result<Vec<ShardRow>> {
    let table = Table::open(SHARDS, bytes)?;
    table.expect_columns(&["partition", "shard", "rows", "bytes", "failed_rows", "blobs"])?;
    let mut found = Vec::new();
    for batch in table {
        let batch = batch?;
        let partition: &UInt32Array = column(SHARDS, &batch, "partition", false)?;
        let shard: &LargeStringArray = column(SHARDS, &batch, "shard", false)?;
        let rows: &UInt64Array = column(SHARDS, &batch, "rows", false)?;
        let bytes: &UInt64Array = column(SHARDS, &batch, "bytes", false)?;
        let failed: &UInt64Array = column(SHARDS, &batch, "failed_rows", false)?;
        let blobs: &LargeListArray = column(SHARDS, &batch, "blobs", false)?;
        for row in 0..batch.num_rows() {
            check_partition(SHARDS, found.len(), partition.value(row))?;
            let digests = blobs.value(row);
            let digests: &LargeStringArray = elements(SHARDS, &digests)?;
            let row = ShardRow {
                partition: partition.value(row),
                shard: shard.value(row).parse().map_err(|e: Error| corrupt(SHARDS, "shard keys").caused_by(e))?,
                rows: rows.value(row),
                bytes: bytes.value(row),
                failed_rows: failed.value(row),
                blobs: digests
                    .iter()
                    .flatten()
                    .map(str::parse)
                    .collect::<Result<_>>()
                    .map_err(|e: Error| corrupt(SHARDS, "digests of blobs").caused_by(e))?,
            };
            if row.failed_rows > row.rows {
                return Err(corrupt(SHARDS, format!("at most {} failed rows, found {}", row.rows, row.failed_rows)));
            }
            found.push(row);
        }
    }
    Ok(found)
}

/// The order table of a snapshot; the bytes are a function of the rows.
pub fn encode_order(rows: &[OrderRow]) -> Result<Vec<u8>> {
    let mut map = LargeListBuilder::new(UInt32Builder::new()).with_field(element(DataType::UInt32));
    for row in rows {
        map.values().append_slice(row.row_map.as_deref().unwrap_or_default());
        map.append(row.row_map.is_some());
    }
    let fields = vec![
        Field::new("partition", DataType::UInt32, false),
        Field::new("rows", DataType::UInt64, false),
        Field::new("row_map", DataType::LargeList(Arc::new(element(DataType::UInt32))), true),
    ];
    let table = batch(
        fields,
        vec![
            Arc::new(UInt32Array::from_iter_values(rows.iter().map(|r| r.partition))),
            Arc::new(UInt64Array::from_iter_values(rows.iter().map(|r| r.rows))),
            Arc::new(map.finish()),
        ],
    )?;
    write(ORDER, &table, &[], &["partition", "row_map.list.element"])
}

/// Errors are `Corrupt`, or `Invalid` for a newer version.
pub fn decode_order(bytes: &Buffer) -> Result<Vec<OrderRow>> {
    let table = Table::open(ORDER, bytes)?;
    table.expect_columns(&["partition", "rows", "row_map"])?;
    let mut found = Vec::new();
    for batch in table {
        let batch = batch?;
        let partition: &UInt32Array = column(ORDER, &batch, "partition", false)?;
        let rows: &UInt64Array = column(ORDER, &batch, "rows", false)?;
        let maps: &LargeListArray = column(ORDER, &batch, "row_map", true)?;
        for row in 0..batch.num_rows() {
            check_partition(ORDER, found.len(), partition.value(row))?;
            let row_map = match maps.is_valid(row) {
                false => None,
                true => Some(elements::<UInt32Array>(ORDER, &maps.value(row))?.values().to_vec()),
            };
            let rows = rows.value(row);
            if let Some(map) = &row_map
                && (map.len() as u64 != rows || !map.is_sorted())
            {
                return Err(corrupt(ORDER, format!("an ascending row map of {rows} rows, found {}", map.len())));
            }
            found.push(OrderRow { partition: partition.value(row), rows, row_map });
        }
    }
    Ok(found)
}

/// A table of objects' names.
pub fn encode_names(names: &[String]) -> Result<Vec<u8>> {
    let fields = vec![Field::new("name", DataType::LargeUtf8, false)];
    let table = batch(fields, vec![Arc::new(LargeStringArray::from_iter_values(names))])?;
    write(NAMES, &table, &["name"], &[])
}

/// Errors are `Corrupt`, or `Invalid` for a newer version.
pub fn decode_names(bytes: &Buffer) -> Result<Vec<String>> {
    let table = Table::open(NAMES, bytes)?;
    table.expect_columns(&["name"])?;
    let mut found = Vec::new();
    for batch in table {
        let batch = batch?;
        let names: &LargeStringArray = column(NAMES, &batch, "name", false)?;
        found.extend(names.iter().flatten().map(str::to_owned));
    }
    Ok(found)
}

/// The elements of lists, named as Parquet names them.
fn element(data_type: DataType) -> Field {
    Field::new("element", data_type, false)
}

fn elements<'a, A: Array + 'static>(kind: &str, list: &'a arrow::array::ArrayRef) -> Result<&'a A> {
    match list.as_any().downcast_ref() {
        Some(elements) if list.null_count() == 0 => Ok(elements),
        _ => Err(corrupt(kind, format!("lists without nulls of another type, found {}", list.data_type()))),
    }
}

/// The row of each partition stands at its number.
fn check_partition(kind: &str, expected: usize, found: u32) -> Result<()> {
    if expected == found as usize {
        return Ok(());
    }
    Err(corrupt(kind, format!("partition {expected}, found {found}")))
}

#[cfg(test)]
mod tests;
