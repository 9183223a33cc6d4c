//! A batch put together from what the last step gives, group by group. Tensors of one size, which are most of a batch's
//! bytes, go to their place at once, while they are still in the processor's cache; the rest is joined at the end.

use crate::error::{Error, Result};
use crate::format::shard::Recycler;
use arrow::array::{Array, ArrayRef, AsArray, FixedSizeListArray, NullBufferBuilder, RecordBatch, RecordBatchOptions};
use arrow::array::{ArrayData, make_array};
use arrow::compute::concat;
use arrow::datatypes::{DataType, FieldRef, SchemaRef};
use std::sync::Arc;

/// A batch's column is expected to be no larger, in bytes; one that is grows.
const MOST_AT_ONCE: usize = 1 << 30;

pub struct Assembly {
    schema: SchemaRef,
    /// Expected.
    rows: usize,
    held: usize,
    columns: Vec<Column>,
    memory: Recycler,
}

enum Column {
    Fixed(Fixed),
    Any(Vec<ArrayRef>),
}

/// Fixed-size lists of numbers, none of them null.
struct Fixed {
    item: FieldRef,
    size: i32,
    /// Bytes of a row.
    width: usize,
    rows: usize,
    /// Empty until the first rows come.
    values: Vec<u8>,
    nulls: NullBufferBuilder,
}

impl Assembly {
    /// `rows`: how many there will be.
    pub fn new(schema: SchemaRef, rows: usize, memory: Recycler) -> Assembly {
        let columns = schema.fields().iter().map(|field| match Fixed::new(field.data_type()) {
            Some(fixed) => Column::Fixed(fixed),
            None => Column::Any(Vec::new()),
        });
        Assembly { columns: columns.collect(), schema, rows, held: 0, memory }
    }

    /// Appends rows of the schema.
    pub fn push(&mut self, batch: &RecordBatch) -> Result<()> {
        for (column, array) in self.columns.iter_mut().zip(batch.columns()) {
            match column {
                Column::Any(arrays) => arrays.push(array.clone()),
                Column::Fixed(fixed) => {
                    if !fixed.push(array, self.rows, &self.memory)? {
                        let before = std::mem::replace(column, Column::Any(Vec::new()));
                        *column = Column::Any(vec![before.finish(self.held, &self.memory)?, array.clone()]);
                    }
                }
            }
        }
        self.held += batch.num_rows();
        Ok(())
    }

    /// The batch. `Invalid` where the rows don't fit in one.
    pub fn finish(self) -> Result<RecordBatch> {
        let held = self.held;
        if held == 0 {
            return Ok(RecordBatch::new_empty(self.schema));
        }
        let columns =
            self.columns.into_iter().map(|column| column.finish(held, &self.memory)).collect::<Result<Vec<_>>>()?;
        let rows = RecordBatchOptions::new().with_row_count(Some(held));
        Ok(RecordBatch::try_new_with_options(self.schema, columns, &rows)?)
    }
}

impl Column {
    fn finish(self, held: usize, memory: &Recycler) -> Result<ArrayRef> {
        match self {
            Column::Fixed(fixed) => fixed.finish(memory),
            Column::Any(arrays) => {
                let arrays: Vec<&dyn Array> = arrays.iter().map(|array| array.as_ref()).collect();
                concat(&arrays).map_err(|e| too_many(held).caused_by(e))
            }
        }
    }
}

impl Fixed {
    fn new(data_type: &DataType) -> Option<Fixed> {
        let DataType::FixedSizeList(item, size) = data_type else { return None };
        let width = usize::try_from(*size).ok()?.checked_mul(item.data_type().primitive_width()?)?;
        let nulls = NullBufferBuilder::new(0);
        Some(Fixed { item: item.clone(), size: *size, width, rows: 0, values: Vec::new(), nulls })
    }

    /// False, with nothing taken, where there are nulls among the numbers.
    fn push(&mut self, array: &ArrayRef, expected: usize, memory: &Recycler) -> Result<bool> {
        let list = array.as_fixed_size_list_opt().ok_or_else(|| other(array))?;
        if list.values().null_count() > 0 {
            return Ok(false);
        }
        // Rows may be a slice of a longer array.
        let values = list.values().slice(list.value_offset_at(0), list.len() * self.size as usize).to_data();
        let [buffer] = values.buffers() else { return Err(other(array)) };
        let start = values.offset() * values.data_type().primitive_width().unwrap_or(0);
        let bytes = buffer.get(start..start + list.len() * self.width).ok_or_else(|| other(array))?;
        if self.values.is_empty() {
            let bytes = self.width.saturating_mul(expected).min(MOST_AT_ONCE);
            self.values = memory.take(bytes)?;
        }
        self.values.extend_from_slice(bytes);
        match list.nulls() {
            Some(nulls) => self.nulls.append_buffer(nulls),
            None => self.nulls.append_n_non_nulls(list.len()),
        }
        self.rows += list.len();
        Ok(true)
    }

    fn finish(mut self, memory: &Recycler) -> Result<ArrayRef> {
        let data = ArrayData::builder(self.item.data_type().clone());
        let data = data.len(self.rows * self.size as usize).add_buffer(memory.lend(self.values));
        let data = data.align_buffers(true).build()?;
        Ok(Arc::new(FixedSizeListArray::try_new(self.item, self.size, make_array(data), self.nulls.finish())?))
    }
}

fn too_many(rows: usize) -> Error {
    Error::invalid(format!("{rows} rows don't fit in one batch; lower the batch size"))
}

fn other(array: &ArrayRef) -> Error {
    Error::internal(format!("a batch has {} where its schema has tensors of one size", array.data_type()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow::array::{Float32Array, Int64Array, LargeStringArray};
    use arrow::buffer::NullBuffer;
    use arrow::compute::concat_batches;
    use arrow::datatypes::{Field, Schema};

    #[test]
    fn as_if_concatenated_slices_and_nulls_included() {
        let item = Arc::new(Field::new_list_field(DataType::Float32, true));
        let tensors = |from: i32, nulls: Option<Vec<bool>>| {
            let rows = nulls.as_ref().map_or(3, Vec::len);
            let values = Float32Array::from_iter_values((0..rows as i32 * 4).map(|i| (from + i) as f32));
            FixedSizeListArray::new(item.clone(), 4, Arc::new(values), nulls.map(NullBuffer::from))
        };
        let nullable = Field::new_list_field(DataType::Int64, true);
        let pairs = |from: i64| {
            let values = Int64Array::from(vec![Some(from), None, Some(1), Some(2), None, None]);
            FixedSizeListArray::new(Arc::new(nullable.clone()), 2, Arc::new(values), None)
        };
        let fields = vec![
            Field::new("x", DataType::FixedSizeList(item.clone(), 4), true),
            Field::new("pair", DataType::FixedSizeList(Arc::new(nullable.clone()), 2), true),
            Field::new("name", DataType::LargeUtf8, true),
        ];
        let schema = Arc::new(Schema::new(fields));
        let batch = |from: i32, nulls| {
            let names = LargeStringArray::from(vec![Some("a"), None, Some("c")]);
            let columns: Vec<ArrayRef> =
                vec![Arc::new(tensors(from, nulls)), Arc::new(pairs(from.into())), Arc::new(names)];
            RecordBatch::try_new(schema.clone(), columns).unwrap()
        };
        let parts = [
            batch(0, None).slice(1, 2),
            batch(50, Some(vec![true, false, true])),
            batch(90, Some(vec![false, true, true])).slice(1, 1),
            batch(7, None).slice(0, 0),
        ];
        let mut assembly = Assembly::new(schema.clone(), 2, Recycler::default());
        parts.iter().for_each(|part| assembly.push(part).unwrap());
        assert_eq!(assembly.finish().unwrap(), concat_batches(&schema, &parts).unwrap());
        assert_eq!(Assembly::new(schema, 2, Recycler::default()).finish().unwrap().num_rows(), 0);
    }
}
