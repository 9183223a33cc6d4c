//! A tensor column's rows, without copying: the bytes and the shape of each.

use super::{DType, Kind};
use crate::error::{Error, Result};
use arrow::array::{Array, ArrayRef, AsArray};
use arrow::buffer::{NullBuffer, ScalarBuffer};
use arrow::datatypes::{Field, Int32Type};

/// Rows of a tensor column. Cheap to make; holds the column's buffers.
pub struct View {
    dtype: DType,
    nulls: Option<NullBuffer>,
    /// All elements: `layout` says which belong to a row.
    values: arrow::buffer::Buffer,
    layout: Layout,
}

enum Layout {
    Fixed { shape: Vec<i32>, row_bytes: usize, rows: usize },
    Variable { offsets: ScalarBuffer<i32>, shapes: ScalarBuffer<i32>, ndim: usize },
}

/// One tensor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Row<'a> {
    /// Little-endian, C order.
    pub bytes: &'a [u8],
    pub shape: &'a [i32],
}

impl View {
    /// `Invalid` where the field is no tensor's; `Internal` where the array isn't the field's.
    pub fn new(field: &Field, array: &ArrayRef) -> Result<Self> {
        let name = field.name();
        if array.data_type() != field.data_type() {
            return Err(Error::internal(format!(
                "column {name:?} is {}, expected {}",
                array.data_type(),
                field.data_type()
            )));
        }
        let nulls = array.logical_nulls().filter(|nulls| nulls.null_count() > 0);
        match super::kind(field)? {
            Kind::NotTensor => {
                Err(Error::invalid(format!("column {name:?} is no tensor column but {}", field.data_type())))
            }
            Kind::Fixed { dtype, shape } => {
                let list = array.as_fixed_size_list();
                let elements = list.value_length() as usize;
                let row_bytes = elements * dtype.bytes();
                let start = list.value_offset_at(0);
                // Arrow's own types bound every size by i32.
                let shape = shape.iter().map(|size| *size as i32).collect();
                let layout = Layout::Fixed { shape, row_bytes, rows: list.len() };
                let values = element_bytes(list.values(), dtype, start, list.len() * elements)?;
                Ok(View { dtype, nulls, values, layout })
            }
            Kind::Variable { dtype, ndim, .. } => {
                let rows = array.as_struct();
                let data = rows.column(0).as_list::<i32>();
                let shape = rows.column(1).as_fixed_size_list();
                let sizes = shape.values().as_primitive::<Int32Type>().values();
                let start = shape.value_offset_at(0);
                let shapes = sizes.slice(start, shape.len() * ndim);
                let values = element_bytes(data.values(), dtype, 0, data.values().len())?;
                let layout = Layout::Variable { offsets: data.offsets().inner().clone(), shapes, ndim };
                Ok(View { dtype, nulls, values, layout })
            }
        }
    }

    pub fn dtype(&self) -> DType {
        self.dtype
    }

    pub fn rows(&self) -> usize {
        match &self.layout {
            Layout::Fixed { rows, .. } => *rows,
            Layout::Variable { offsets, .. } => offsets.len() - 1,
        }
    }

    /// Row `index`, or `None` where it is null or there is no such row. `Invalid` where a ragged row's shape isn't that
    /// of its elements.
    pub fn row(&self, index: usize) -> Result<Option<Row<'_>>> {
        if index >= self.rows() || self.nulls.as_ref().is_some_and(|nulls| nulls.is_null(index)) {
            return Ok(None);
        }
        match &self.layout {
            Layout::Fixed { shape, row_bytes, .. } => {
                let bytes = &self.values[index * row_bytes..(index + 1) * row_bytes];
                Ok(Some(Row { bytes, shape }))
            }
            Layout::Variable { offsets, shapes, ndim } => {
                let width = self.dtype.bytes();
                let (start, end) = (offsets[index] as usize, offsets[index + 1] as usize);
                let shape = &shapes[index * ndim..(index + 1) * ndim];
                let elements = shape.iter().try_fold(1usize, |n, size| n.checked_mul(usize::try_from(*size).ok()?));
                if elements != Some(end - start) {
                    return Err(Error::invalid(format!(
                        "row {index} has {} elements, which is not a tensor of shape {shape:?}",
                        end - start
                    )));
                }
                Ok(Some(Row { bytes: &self.values[start * width..end * width], shape }))
            }
        }
    }

    /// All rows of a fixed-shape column one after another, those of null rows included; `None` for ragged ones.
    pub fn contiguous(&self) -> Option<&[u8]> {
        matches!(self.layout, Layout::Fixed { .. }).then_some(&self.values)
    }
}

/// The bytes of elements `start..start + len`; an array of numbers has exactly one buffer.
fn element_bytes(values: &ArrayRef, dtype: DType, start: usize, len: usize) -> Result<arrow::buffer::Buffer> {
    let data = values.to_data();
    let width = dtype.bytes();
    let (from, bytes) = ((data.offset() + start) * width, len * width);
    match data.buffers() {
        [buffer] if buffer.len() >= from + bytes => Ok(buffer.slice_with_length(from, bytes)),
        _ => Err(Error::internal("an array of numbers that is shorter than its length")),
    }
}
