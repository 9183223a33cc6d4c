//! Arrays of tensors: from whole buffers, or row by row with the row's bytes written in place.

use super::{DType, element, fixed_size, size_element};
use crate::error::{Error, Result};
use arrow::array::{ArrayData, ArrayRef, FixedSizeListArray, ListArray, NullBufferBuilder, StructArray, make_array};
use arrow::buffer::{Buffer, MutableBuffer, NullBuffer, OffsetBuffer};
use arrow::datatypes::{ArrowNativeType, DataType, Field};
use std::sync::Arc;

/// Elements of one type over `values`, which is copied only where it is not aligned for them.
fn elements(dtype: DType, values: Buffer) -> Result<ArrayRef> {
    let data = ArrayData::builder(dtype.data_type())
        .len(values.len() / dtype.bytes())
        .add_buffer(values)
        .align_buffers(true)
        .build()?;
    Ok(make_array(data))
}

/// A column of `fixed_field`'s type. `values` holds the rows one after another (little-endian, C order), those of null
/// rows included, which should be zeros.
pub fn fixed_array(dtype: DType, shape: &[usize], values: Buffer, nulls: Option<NullBuffer>) -> Result<ArrayRef> {
    let size = fixed_size("", shape)?;
    let row_bytes = size as usize * dtype.bytes();
    let rows = values.len() / row_bytes;
    if values.len() != rows * row_bytes || nulls.as_ref().is_some_and(|nulls| nulls.len() != rows) {
        return Err(Error::internal(format!("{} bytes aren't rows of shape {shape:?}", values.len())));
    }
    let item = Arc::new(Field::new_list_field(dtype.data_type(), true));
    Ok(Arc::new(FixedSizeListArray::try_new(item, size, elements(dtype, values)?, nulls)?))
}

/// A column of `variable_field`'s type. `lengths` are elements per row, `shapes` the rows' sizes one after another,
/// `ndim` for each row.
pub fn variable_array(
    dtype: DType,
    ndim: usize,
    values: Buffer,
    lengths: impl IntoIterator<Item = usize>,
    shapes: Vec<i32>,
    nulls: Option<NullBuffer>,
) -> Result<ArrayRef> {
    let ndim = super::check_ndim("", ndim)?;
    let mut end = 0usize;
    let mut offsets = vec![0i32];
    for length in lengths {
        end = end.saturating_add(length);
        offsets.push(i32::try_from(end).map_err(|_| too_large())?);
    }
    let offsets = OffsetBuffer::new(offsets.into());
    let data = ListArray::try_new(Arc::new(element(dtype)), offsets, elements(dtype, values)?, None)?;
    let sizes = Arc::new(arrow::array::Int32Array::from(shapes));
    let shape = FixedSizeListArray::try_new(Arc::new(size_element()), ndim, sizes, None)?;
    let fields = vec![
        Field::new("data", DataType::List(Arc::new(element(dtype))), false),
        Field::new("shape", DataType::FixedSizeList(Arc::new(size_element()), ndim), false),
    ];
    Ok(Arc::new(StructArray::try_new(fields.into(), vec![Arc::new(data), Arc::new(shape)], nulls)?))
}

fn too_large() -> Error {
    Error::invalid("a batch of tensors has more than 2^31 - 1 elements; use smaller batches")
}

/// Builds a column of `fixed_field`'s type.
pub struct FixedBuilder {
    dtype: DType,
    shape: Vec<usize>,
    row_bytes: usize,
    values: MutableBuffer,
    nulls: NullBufferBuilder,
}

impl FixedBuilder {
    pub fn new(dtype: DType, shape: &[usize], rows: usize) -> Result<Self> {
        let row_bytes = fixed_size("", shape)? as usize * dtype.bytes();
        Ok(FixedBuilder {
            dtype,
            shape: shape.to_vec(),
            row_bytes,
            values: MutableBuffer::new(row_bytes.saturating_mul(rows)),
            nulls: NullBufferBuilder::new(rows),
        })
    }

    /// A row of exactly the shape's bytes: little-endian, C order.
    pub fn append(&mut self, bytes: &[u8]) -> Result<()> {
        if bytes.len() != self.row_bytes {
            return Err(Error::internal(format!("{} bytes for a tensor of shape {:?}", bytes.len(), self.shape)));
        }
        self.values.extend_from_slice(bytes);
        self.nulls.append_non_null();
        Ok(())
    }

    /// A row of zeros, to be written in place. `T` is as wide as the element type, or `u8`.
    pub fn append_slot<T: ArrowNativeType>(&mut self) -> &mut [T] {
        let start = self.values.len();
        self.values.resize(start + self.row_bytes, 0);
        self.nulls.append_non_null();
        &mut self.values.typed_data_mut::<T>()[start / size_of::<T>()..]
    }

    /// A null over zeros.
    pub fn append_null(&mut self) {
        self.values.resize(self.values.len() + self.row_bytes, 0);
        self.nulls.append_null();
    }

    pub fn finish(mut self) -> Result<ArrayRef> {
        fixed_array(self.dtype, &self.shape, self.values.into(), self.nulls.finish())
    }
}

/// Builds a column of `variable_field`'s type.
pub struct VariableBuilder {
    dtype: DType,
    uniform: Vec<Option<usize>>,
    values: MutableBuffer,
    lengths: Vec<usize>,
    shapes: Vec<i32>,
    nulls: NullBufferBuilder,
}

impl VariableBuilder {
    pub fn new(dtype: DType, uniform: &[Option<usize>]) -> Result<Self> {
        super::check_ndim("", uniform.len())?;
        Ok(VariableBuilder {
            dtype,
            uniform: uniform.to_vec(),
            values: MutableBuffer::new(0),
            lengths: Vec::new(),
            shapes: Vec::new(),
            nulls: NullBufferBuilder::new(0),
        })
    }

    /// A row of exactly the shape's bytes: little-endian, C order.
    pub fn append(&mut self, shape: &[usize], bytes: &[u8]) -> Result<()> {
        if self.push_shape(shape)? != bytes.len() {
            return Err(Error::internal(format!("{} bytes for a tensor of shape {shape:?}", bytes.len())));
        }
        self.values.extend_from_slice(bytes);
        Ok(())
    }

    /// A row of zeros, to be written in place. `T` is as wide as the element type, or `u8`.
    pub fn append_slot<T: ArrowNativeType>(&mut self, shape: &[usize]) -> Result<&mut [T]> {
        let bytes = self.push_shape(shape)?;
        let start = self.values.len();
        self.values.resize(start + bytes, 0);
        Ok(&mut self.values.typed_data_mut::<T>()[start / size_of::<T>()..])
    }

    /// A null, of no elements.
    pub fn append_null(&mut self) {
        self.shapes.extend(std::iter::repeat_n(0, self.uniform.len()));
        self.lengths.push(0);
        self.nulls.append_null();
    }

    /// The row's bytes.
    fn push_shape(&mut self, shape: &[usize]) -> Result<usize> {
        let fits = shape.len() == self.uniform.len()
            && shape.iter().zip(&self.uniform).all(|(size, uniform)| uniform.is_none_or(|uniform| uniform == *size));
        if !fits {
            return Err(Error::internal(format!("a tensor of shape {shape:?} where {:?} is declared", self.uniform)));
        }
        let elements = shape.iter().try_fold(1usize, |n, size| n.checked_mul(*size)).ok_or_else(too_large)?;
        i32::try_from(elements).map_err(|_| too_large())?;
        let sizes = shape.iter().map(|size| i32::try_from(*size)).collect::<Result<Vec<_>, _>>();
        self.shapes.extend(sizes.map_err(|_| too_large())?);
        self.lengths.push(elements);
        self.nulls.append_non_null();
        Ok(elements * self.dtype.bytes())
    }

    pub fn finish(mut self) -> Result<ArrayRef> {
        let ndim = self.uniform.len();
        variable_array(self.dtype, ndim, self.values.into(), self.lengths, self.shapes, self.nulls.finish())
    }
}
