//! Rows on their way through a chain: a batch, and for each row the source row of its partition that it came from.

use crate::error::{Error, Result};
use crate::format::{ERROR, ROW};
use crate::plan::chain::Stage;
use crate::step::Context;
use arrow::array::{Array, ArrayRef, AsArray, LargeStringArray, RecordBatch, UInt32Array};
use arrow::compute::{concat, concat_batches, interleave, take, take_record_batch};
use arrow::datatypes::{DataType, SchemaRef, UInt32Type};
use std::sync::Arc;

/// Rows go through the steps in groups of about this many bytes, so that what one step writes is still in the processor's
/// cache when the next reads it.
const GROUP_BYTES: u64 = 64 << 10;
const GROUP_ROWS: u64 = 1024;

#[derive(Debug, Clone)]
pub struct Rows {
    /// `_key`, `_error`, then the stage's columns; `_row` is kept apart, in `source`.
    pub batch: RecordBatch,
    /// Ascending.
    pub source: UInt32Array,
}

impl Rows {
    /// Rows straight from the source, the first of which is the partition's row `first`.
    pub fn from_source(batch: RecordBatch, first: u64) -> Result<Self> {
        let end = first + batch.num_rows() as u64;
        let end = u32::try_from(end)
            .map_err(|_| Error::invalid(format!("a partition of {end} rows; at most 2^32 - 1 fit")))?;
        Ok(Rows { source: UInt32Array::from_iter_values(first as u32..end), batch })
    }

    /// Rows as a stage stores them; where there is no `_row` the first is the partition's row `first`.
    pub fn from_stored(batch: RecordBatch, first: u64) -> Result<Self> {
        let Ok(index) = batch.schema_ref().index_of(ROW) else { return Self::from_source(batch, first) };
        let mut batch = batch;
        let source = batch.remove_column(index);
        let source = source.as_primitive_opt::<UInt32Type>();
        let source = source.ok_or_else(|| Error::corrupt(format!("{ROW} must be uint32")))?.clone();
        Ok(Rows { batch, source })
    }

    /// The batch as `schema` stores it, `_row` put back where the schema has it.
    pub fn to_stored(&self, schema: &SchemaRef) -> Result<RecordBatch> {
        let mut columns = self.batch.columns().to_vec();
        if let Ok(index) = schema.index_of(ROW) {
            columns.insert(index, Arc::new(self.source.clone()));
        }
        Ok(RecordBatch::try_new(schema.clone(), columns)?)
    }

    pub fn len(&self) -> usize {
        self.batch.num_rows()
    }
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
    pub fn slice(&self, offset: usize, length: usize) -> Rows {
        Rows { batch: self.batch.slice(offset, length), source: self.source.slice(offset, length) }
    }
    /// The same rows, a group at a time; one empty group where there are none.
    pub fn groups(&self) -> impl Iterator<Item = Rows> + '_ {
        let bytes = batch_bytes(&self.batch, 0, self.len()) as u64;
        let size = group_rows(bytes / self.len().max(1) as u64);
        (0..self.len().max(1)).step_by(size).map(move |start| self.slice(start, size.min(self.len() - start)))
    }
    pub fn take(&self, rows: &UInt32Array) -> Result<Rows> {
        let source = take(&self.source, rows, None)?;
        Ok(Rows { batch: take_record_batch(&self.batch, rows)?, source: source.as_primitive().clone() })
    }

    /// One after the other.
    pub fn concat(schema: &SchemaRef, parts: &[Rows]) -> Result<Rows> {
        if let [one] = parts {
            return Ok(one.clone());
        }
        let source: Vec<&dyn Array> = parts.iter().map(|p| &p.source as _).collect();
        let source =
            if source.is_empty() { UInt32Array::from_iter_values([]) } else { concat(&source)?.as_primitive().clone() };
        Ok(Rows { batch: concat_batches(schema, parts.iter().map(|p| &p.batch))?, source })
    }

    /// Rows `picks` = (part, row) in that order.
    pub fn gather(schema: &SchemaRef, parts: &[&Rows], picks: &[(usize, usize)]) -> Result<Rows> {
        // A single row is not copied, and large rows come one by one.
        if let [(part, row)] = picks {
            return Ok(parts[*part].slice(*row, 1));
        }
        let mut columns: Vec<ArrayRef> = Vec::with_capacity(schema.fields().len());
        for index in 0..schema.fields().len() {
            let arrays: Vec<&dyn Array> = parts.iter().map(|p| p.batch.column(index).as_ref()).collect();
            columns.push(interleave(&arrays, picks)?);
        }
        let source = UInt32Array::from_iter_values(picks.iter().map(|(p, r)| parts[*p].source.value(*r)));
        Ok(Rows { batch: RecordBatch::try_new(schema.clone(), columns)?, source })
    }

    /// The rows after one more stage. A reason that the step gave a row is prefixed by the step's name.
    pub fn apply(&self, stage: &Stage, context: Context) -> Result<Rows> {
        let Some(step) = &stage.step else { return Err(stage.cannot_compute()) };
        let name = step.info().name;
        let output = step.apply(&self.batch, context).map_err(|e| e.during(format!("step {name} failed")))?;
        if output.batch.schema_ref() != step.output_schema() {
            let (expected, found) = (step.output_schema(), output.batch.schema_ref());
            return Err(Error::internal(format!("step {name} promised {expected:?} and returned {found:?}")));
        }
        let (source, before) = match &output.rows {
            None => (self.source.clone(), self.errors()?.clone()),
            Some(rows) => {
                let before = take(self.errors()?, rows, None)?;
                (take(&self.source, rows, None)?.as_primitive().clone(), before.as_string::<i64>().clone())
            }
        };
        if source.len() != output.batch.num_rows() {
            let (expected, found) = (source.len(), output.batch.num_rows());
            return Err(Error::internal(format!("step {name} returned {found} rows where {expected} were expected")));
        }
        let rows = Rows { batch: output.batch, source };
        rows.name_new_errors(&before, name)
    }

    pub fn errors(&self) -> Result<&LargeStringArray> {
        self.batch
            .column_by_name(ERROR)
            .and_then(|c| c.as_string_opt::<i64>())
            .ok_or_else(|| Error::internal(format!("a batch without {ERROR}")))
    }

    fn name_new_errors(self, before: &LargeStringArray, step: &str) -> Result<Rows> {
        let after = self.errors()?;
        if after.null_count() == before.null_count() {
            return Ok(self);
        }
        let named: LargeStringArray = (0..after.len())
            .map(|i| match (after.is_valid(i), before.is_valid(i)) {
                (false, _) => None,
                (true, true) => Some(after.value(i).to_owned()),
                (true, false) => Some(format!("{step}: {}", after.value(i))),
            })
            .collect();
        let mut columns = self.batch.columns().to_vec();
        columns[self.batch.schema_ref().index_of(ERROR)?] = Arc::new(named);
        Ok(Rows { batch: RecordBatch::try_new(self.batch.schema(), columns)?, source: self.source })
    }
}

/// How many rows of so many bytes each go through the steps together; at least 1.
pub fn group_rows(bytes_per_row: u64) -> usize {
    (GROUP_BYTES / bytes_per_row.max(1)).clamp(1, GROUP_ROWS) as usize
}

/// Bytes of the values of rows `offset..offset + length`, by their types alone: the same for the same values however
/// the arrays were built.
pub fn value_bytes(array: &dyn Array, offset: usize, length: usize) -> usize {
    fn between<O: Into<i64> + Copy>(offsets: &[O], offset: usize, length: usize) -> (usize, usize) {
        let (start, end) = (offsets[offset].into() as usize, offsets[offset + length].into() as usize);
        (start, end - start)
    }
    match array.data_type() {
        DataType::LargeUtf8 => between(array.as_string::<i64>().value_offsets(), offset, length).1 + 8 * length,
        DataType::Utf8 => between(array.as_string::<i32>().value_offsets(), offset, length).1 + 4 * length,
        DataType::LargeBinary => between(array.as_binary::<i64>().value_offsets(), offset, length).1 + 8 * length,
        DataType::Binary => between(array.as_binary::<i32>().value_offsets(), offset, length).1 + 4 * length,
        DataType::List(_) | DataType::Map(..) => {
            let list = array.as_list_opt::<i32>();
            let Some(list) = list else { return array.get_array_memory_size() };
            let (start, count) = between(list.value_offsets(), offset, length);
            value_bytes(list.values(), start, count) + 4 * length
        }
        DataType::LargeList(_) => {
            let list = array.as_list::<i64>();
            let (start, count) = between(list.value_offsets(), offset, length);
            value_bytes(list.values(), start, count) + 8 * length
        }
        DataType::FixedSizeList(_, size) => {
            let size = *size as usize;
            value_bytes(array.as_fixed_size_list().values(), offset * size, length * size)
        }
        DataType::Struct(_) => array.as_struct().columns().iter().map(|c| value_bytes(c, offset, length)).sum(),
        DataType::FixedSizeBinary(size) => *size as usize * length,
        DataType::Null => 0,
        DataType::Boolean => length.div_ceil(8),
        other => other.primitive_width().unwrap_or(16) * length,
    }
}

/// Bytes of the values of some rows of a batch.
pub fn batch_bytes(batch: &RecordBatch, offset: usize, length: usize) -> usize {
    batch.columns().iter().map(|c| value_bytes(c, offset, length)).sum()
}
