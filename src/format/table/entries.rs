//! The entries table: identity as text, the range as its kind and two numbers, carried values as one struct column.

use super::Entries;
use super::file::{Table, batch, column, corrupt, write};
use crate::error::{Error, Result};
use crate::format::entry::{Entry, Range};
use arrow::array::{
    Array, ArrayRef, LargeStringArray, LargeStringBuilder, RecordBatch, StructArray, UInt32Array, UInt64Array,
    UInt64Builder,
};
use arrow::buffer::Buffer;
use arrow::datatypes::{DataType, Field, Schema};
use std::collections::HashSet;
use std::fmt::Write;
use std::sync::Arc;

const KIND: &str = "entries";
const COLUMNS: [&str; 9] =
    ["key", "file", "identity", "range_kind", "range_start", "range_end", "bytes", "rows", "partition"];
const CARRIED: &str = "carried";

impl Entries {
    /// The bytes are a function of the value. Errors: a carried type that Parquet has no form for.
    pub fn encode(&self) -> Result<Vec<u8>> {
        let entries = &self.entries;
        let mut columns = columns(entries);
        let types = [DataType::LargeUtf8, DataType::UInt64, DataType::UInt32];
        let [text, number, partition] = &types;
        let of = [text, text, text, text, number, number, number, number, partition];
        let nullable = ["file", "range_kind", "range_start", "range_end"];
        let mut fields: Vec<Field> =
            COLUMNS.iter().zip(of).map(|(name, t)| Field::new(*name, t.clone(), nullable.contains(name))).collect();
        if let Some(carried) = &self.carried {
            if carried.num_rows() != entries.len() || carried.num_columns() == 0 {
                return Err(Error::internal(format!(
                    "expected carried values for {} entries, found {} rows of {} columns",
                    entries.len(),
                    carried.num_rows(),
                    carried.num_columns()
                )));
            }
            fields.push(Field::new(CARRIED, DataType::Struct(carried.schema().fields().clone()), false));
            columns.push(Arc::new(StructArray::from(carried.clone())));
        }
        write(KIND, &batch(fields, columns)?, &["key", "identity", "range_start", "range_end", "bytes"], &["partition"])
    }

    /// Checks every rule of `formats/tables.md`; errors are `Corrupt`, or `Invalid` for a newer version.
    pub fn decode(bytes: &Buffer) -> Result<Entries> {
        let mut stream = Stream::open(bytes)?;
        let mut entries = Vec::with_capacity(usize::try_from(stream.table.rows).unwrap_or(usize::MAX).min(1 << 20));
        let mut carried = Vec::new();
        while let Some(batch) = stream.batch() {
            let (batch, mut some) = batch?;
            entries.append(&mut some);
            if stream.carried.is_some() {
                carried.push(RecordBatch::from(column::<StructArray>(KIND, &batch, CARRIED, false)?.clone()));
            }
        }
        let mut keys = HashSet::with_capacity(entries.len());
        if let Some(twice) = entries.iter().find(|e| !keys.insert(e.key.as_str())) {
            return Err(corrupt(KIND, format!("every key once, found {:?} twice", twice.key)));
        }
        let carried = match stream.carried {
            None => None,
            Some(DataType::Struct(fields)) => {
                let schema = Arc::new(Schema::new(fields));
                let all = arrow::compute::concat_batches(&schema, &carried);
                Some(all.map_err(|e| corrupt(KIND, "carried values of one type").caused_by(e))?)
            }
            Some(other) => return Err(corrupt(KIND, format!("a struct of carried values, found {other}"))),
        };
        Ok(Entries { entries, carried })
    }

    /// The entries alone, in order and some at a time, for what can't hold them all. As `decode`, but for keys that stand
    /// twice, which nothing looks for.
    pub fn stream(bytes: &Buffer) -> Result<impl Iterator<Item = Result<Vec<Entry>>> + use<>> {
        let mut stream = Stream::open(bytes)?;
        Ok(std::iter::from_fn(move || Some(stream.batch()?.map(|(_, entries)| entries))))
    }
}

/// A table of entries, read batch by batch.
struct Stream {
    table: Table,
    /// The type of the values that rows carry, if they do.
    carried: Option<DataType>,
    /// Of the last entry read.
    partition: Option<u32>,
}

impl Stream {
    fn open(bytes: &Buffer) -> Result<Stream> {
        let table = Table::open(KIND, bytes)?;
        let carried = table.schema.field_with_name(CARRIED).ok().map(|f| f.data_type().clone());
        let names: Vec<&str> = COLUMNS.into_iter().chain(carried.as_ref().map(|_| CARRIED)).collect();
        table.expect_columns(&names)?;
        Ok(Stream { table, carried, partition: None })
    }

    fn batch(&mut self) -> Option<Result<(RecordBatch, Vec<Entry>)>> {
        let batch = self.table.next()?;
        Some(batch.and_then(|batch| {
            let entries = decode(&batch, &mut self.partition)?;
            Ok((batch, entries))
        }))
    }
}

fn columns(entries: &[Entry]) -> Vec<ArrayRef> {
    let n = entries.len();
    let mut identity = LargeStringBuilder::with_capacity(n, n * 72);
    let mut kind = LargeStringBuilder::with_capacity(n, n * 5);
    let (mut start, mut end) = (UInt64Builder::with_capacity(n), UInt64Builder::with_capacity(n));
    for entry in entries {
        // Writing to memory can't fail.
        let _ = write!(identity, "{}", entry.identity);
        identity.append_value("");
        let (name, from, to) = match entry.range {
            None => (None, None, None),
            Some(Range::Bytes { start, end }) => (Some("bytes"), Some(start), Some(end)),
            Some(Range::Group(number)) => (Some("group"), Some(number), None),
            Some(Range::Rows { start, end }) => (Some("rows"), Some(start), Some(end)),
        };
        kind.append_option(name);
        start.append_option(from);
        end.append_option(to);
    }
    vec![
        Arc::new(LargeStringArray::from_iter_values(entries.iter().map(|e| &e.key))),
        Arc::new(entries.iter().map(|e| e.file.as_deref()).collect::<LargeStringArray>()),
        Arc::new(identity.finish()),
        Arc::new(kind.finish()),
        Arc::new(start.finish()),
        Arc::new(end.finish()),
        Arc::new(UInt64Array::from_iter_values(entries.iter().map(|e| e.bytes))),
        Arc::new(UInt64Array::from_iter_values(entries.iter().map(|e| e.rows))),
        Arc::new(UInt32Array::from_iter_values(entries.iter().map(|e| e.partition))),
    ]
}

/// The entries of a batch. `previous`: the partition of the entry before it.
fn decode(batch: &RecordBatch, previous: &mut Option<u32>) -> Result<Vec<Entry>> {
    let mut entries = Vec::with_capacity(batch.num_rows());
    let key: &LargeStringArray = column(KIND, batch, "key", false)?;
    let file: &LargeStringArray = column(KIND, batch, "file", true)?;
    let identity: &LargeStringArray = column(KIND, batch, "identity", false)?;
    let kind: &LargeStringArray = column(KIND, batch, "range_kind", true)?;
    let start: &UInt64Array = column(KIND, batch, "range_start", true)?;
    let end: &UInt64Array = column(KIND, batch, "range_end", true)?;
    let bytes: &UInt64Array = column(KIND, batch, "bytes", false)?;
    let rows: &UInt64Array = column(KIND, batch, "rows", false)?;
    let partition: &UInt32Array = column(KIND, batch, "partition", false)?;
    for row in 0..batch.num_rows() {
        let at = |array: &UInt64Array| array.is_valid(row).then(|| array.value(row));
        let kind = kind.is_valid(row).then(|| kind.value(row));
        let range = match (kind, at(start), at(end)) {
            (None, None, None) => None,
            (Some("bytes"), Some(start), Some(end)) if start <= end => Some(Range::Bytes { start, end }),
            (Some("group"), Some(number), None) => Some(Range::Group(number)),
            (Some("rows"), Some(start), Some(end)) if start <= end => Some(Range::Rows { start, end }),
            found => return Err(corrupt(KIND, format!("a range bytes, group or rows, found {found:?}"))),
        };
        let partition = partition.value(row);
        if partition != previous.unwrap_or(0) && Some(partition) != previous.and_then(|p| p.checked_add(1)) {
            return Err(corrupt(
                KIND,
                format!("partitions from 0 without gaps, found {partition} behind {previous:?}"),
            ));
        }
        *previous = Some(partition);
        entries.push(Entry {
            key: key.value(row).to_owned(),
            file: file.is_valid(row).then(|| file.value(row).to_owned()),
            identity: identity.value(row).parse().map_err(|e: Error| corrupt(KIND, "identities").caused_by(e))?,
            range,
            bytes: bytes.value(row),
            rows: rows.value(row),
            partition,
        });
    }
    Ok(entries)
}
