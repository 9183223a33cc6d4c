//! Tensor columns: the canonical Arrow extension types. Here: element types, the `Field` of a tensor column and what a
//! field says about its tensors. `build` makes arrays, `view` looks at their rows without copying, `hint` says in one
//! line how other tools decode a column.
//!
//! * `arrow.fixed_shape_tensor`: `FixedSizeList<T>[product of shape]`, the shape in the extension metadata.
//! * `arrow.variable_shape_tensor`: `Struct { data: List<T>, shape: FixedSizeList<int32>[ndim] }`, the dimensions that
//!   are equal in all rows in `uniform_shape`.
//!
//! Elements lie in C order.

mod build;
mod hint;
mod view;

pub use build::{FixedBuilder, VariableBuilder, fixed_array, variable_array};
pub use hint::{Consumer, decode_hint, decode_imports, shape_column};
pub use view::{Row, View};

#[cfg(target_endian = "big")]
compile_error!("stored values are little-endian and are used in place");

use crate::error::{Error, Result};
use arrow::datatypes::{DataType, Field, Fields};
use serde::Deserialize;
use std::sync::Arc;

pub const FIXED_SHAPE: &str = "arrow.fixed_shape_tensor";
pub const VARIABLE_SHAPE: &str = "arrow.variable_shape_tensor";
/// Field metadata keys of the Arrow format.
const EXTENSION_TYPE_NAME_KEY: &str = "ARROW:extension:name";
const EXTENSION_TYPE_METADATA_KEY: &str = "ARROW:extension:metadata";
/// As many dimensions as numpy 1 and torch take.
const MAX_NDIM: usize = 32;

/// The type of a tensor's elements.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum DType {
    U8,
    I8,
    U16,
    I16,
    U32,
    I32,
    U64,
    I64,
    F16,
    F32,
    F64,
}

impl DType {
    pub const ALL: [DType; 11] = [
        DType::U8,
        DType::I8,
        DType::U16,
        DType::I16,
        DType::U32,
        DType::I32,
        DType::U64,
        DType::I64,
        DType::F16,
        DType::F32,
        DType::F64,
    ];

    /// Bytes of one element.
    pub const fn bytes(self) -> usize {
        match self {
            DType::U8 | DType::I8 => 1,
            DType::U16 | DType::I16 | DType::F16 => 2,
            DType::U32 | DType::I32 | DType::F32 => 4,
            DType::U64 | DType::I64 | DType::F64 => 8,
        }
    }

    /// numpy's name: `uint8`, `float16`.
    pub const fn name(self) -> &'static str {
        match self {
            DType::U8 => "uint8",
            DType::I8 => "int8",
            DType::U16 => "uint16",
            DType::I16 => "int16",
            DType::U32 => "uint32",
            DType::I32 => "int32",
            DType::U64 => "uint64",
            DType::I64 => "int64",
            DType::F16 => "float16",
            DType::F32 => "float32",
            DType::F64 => "float64",
        }
    }

    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|dtype| dtype.name() == name)
    }

    pub const fn data_type(self) -> DataType {
        match self {
            DType::U8 => DataType::UInt8,
            DType::I8 => DataType::Int8,
            DType::U16 => DataType::UInt16,
            DType::I16 => DataType::Int16,
            DType::U32 => DataType::UInt32,
            DType::I32 => DataType::Int32,
            DType::U64 => DataType::UInt64,
            DType::I64 => DataType::Int64,
            DType::F16 => DataType::Float16,
            DType::F32 => DataType::Float32,
            DType::F64 => DataType::Float64,
        }
    }

    pub fn from_data_type(data_type: &DataType) -> Option<Self> {
        Self::ALL.into_iter().find(|dtype| dtype.data_type() == *data_type)
    }
}

/// What a field says about its tensors.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Kind {
    Fixed {
        dtype: DType,
        shape: Vec<usize>,
    },
    /// `uniform` has a size for each dimension that is equal in all rows and `None` for the others.
    Variable {
        dtype: DType,
        ndim: usize,
        uniform: Vec<Option<usize>>,
    },
    NotTensor,
}

/// A nullable column of tensors of one shape; every dimension is at least 1, and there are fewer than 2^31 elements.
pub fn fixed_field(name: &str, dtype: DType, shape: &[usize]) -> Result<Field> {
    let size = fixed_size(name, shape)?;
    let metadata = serde_json::json!({ "shape": shape }).to_string();
    // The item's name and nullability are those of pyarrow's own fixed_shape_tensor.
    let item = Arc::new(Field::new_list_field(dtype.data_type(), true));
    Ok(extension(Field::new(name, DataType::FixedSizeList(item, size), true), FIXED_SHAPE, metadata))
}

/// A nullable column of tensors of `uniform.len()` dimensions, of which those that are `Some` are equal in all rows.
pub fn variable_field(name: &str, dtype: DType, uniform: &[Option<usize>]) -> Result<Field> {
    let ndim = check_ndim(name, uniform.len())?;
    if let Some(size) = uniform.iter().flatten().find(|size| i32::try_from(**size).is_err()) {
        return Err(Error::invalid(format!("column {name:?}: a dimension of {size} exceeds 2^31 - 1")));
    }
    let metadata = match uniform.iter().any(Option::is_some) {
        true => serde_json::json!({ "uniform_shape": uniform }).to_string(),
        false => "{}".to_owned(),
    };
    let data = Field::new("data", DataType::List(Arc::new(element(dtype))), false);
    let shape = Field::new("shape", DataType::FixedSizeList(Arc::new(size_element()), ndim), false);
    let storage = DataType::Struct(Fields::from(vec![data, shape]));
    Ok(extension(Field::new(name, storage, true), VARIABLE_SHAPE, metadata))
}

fn extension(field: Field, name: &str, metadata: String) -> Field {
    field.with_metadata([
        (EXTENSION_TYPE_NAME_KEY.to_owned(), name.to_owned()),
        (EXTENSION_TYPE_METADATA_KEY.to_owned(), metadata),
    ])
}

fn element(dtype: DType) -> Field {
    Field::new_list_field(dtype.data_type(), false)
}

fn size_element() -> Field {
    Field::new_list_field(DataType::Int32, false)
}

fn check_ndim(name: &str, ndim: usize) -> Result<i32> {
    match i32::try_from(ndim) {
        Ok(n) if (1..=MAX_NDIM).contains(&ndim) => Ok(n),
        _ => Err(Error::invalid(format!("column {name:?}: a tensor has 1 to {MAX_NDIM} dimensions, found {ndim}"))),
    }
}

fn fixed_size(name: &str, shape: &[usize]) -> Result<i32> {
    check_ndim(name, shape.len())?;
    let product = shape.iter().try_fold(1usize, |product, size| product.checked_mul(*size));
    match product.and_then(|n| i32::try_from(n).ok()) {
        Some(size) if size > 0 => Ok(size),
        _ => Err(Error::invalid(format!(
            "column {name:?}: a tensor of shape {shape:?} has no elements or more than 2^31 - 1; give sizes of at least 1"
        ))),
    }
}

/// The extension metadata of both types; names and permutations describe views of the same elements, which no reader
/// of ours takes, so they are refused and never silently dropped.
#[derive(Deserialize)]
struct Metadata {
    shape: Option<Vec<usize>>,
    uniform_shape: Option<Vec<Option<usize>>>,
    permutation: Option<Vec<usize>>,
}

/// Recognises a tensor column. `Invalid` where the extension's name and its metadata or storage don't agree.
pub fn kind(field: &Field) -> Result<Kind> {
    let Some(extension) = field.metadata().get(EXTENSION_TYPE_NAME_KEY) else {
        return Ok(Kind::NotTensor);
    };
    if extension != FIXED_SHAPE && extension != VARIABLE_SHAPE {
        return Ok(Kind::NotTensor);
    }
    let name = field.name();
    let wrong = |what: &str| Error::invalid(format!("column {name:?} is no valid {extension}: {what}"));
    let text = field.metadata().get(EXTENSION_TYPE_METADATA_KEY).map_or("{}", |text| text.as_str());
    let text = if text.is_empty() { "{}" } else { text };
    let metadata: Metadata =
        serde_json::from_str(text).map_err(|error| wrong("its metadata can't be parsed").caused_by(error))?;
    if metadata.permutation.is_some_and(|permutation| !permutation.is_sorted()) {
        return Err(wrong("permuted dimensions aren't supported; store the tensors in C order"));
    }
    match (extension == FIXED_SHAPE, field.data_type()) {
        (true, DataType::FixedSizeList(item, size)) => {
            let dtype = DType::from_data_type(item.data_type()).ok_or_else(|| wrong("unsupported element type"))?;
            let shape = metadata.shape.ok_or_else(|| wrong("its metadata has no shape"))?;
            match fixed_size(name, &shape)? == *size {
                true => Ok(Kind::Fixed { dtype, shape }),
                false => Err(wrong(&format!("shape {shape:?} doesn't have the list's {size} elements"))),
            }
        }
        (false, DataType::Struct(fields)) => {
            let (data, shape) = match fields.as_ref() {
                [data, shape] if data.name() == "data" && shape.name() == "shape" => (data, shape),
                _ => return Err(wrong("expected a struct of data and shape")),
            };
            let dtype = match data.data_type() {
                DataType::List(item) => DType::from_data_type(item.data_type()),
                _ => None,
            }
            .ok_or_else(|| wrong("expected data to be a list of numbers"))?;
            let ndim = match shape.data_type() {
                DataType::FixedSizeList(item, ndim) if *item.data_type() == DataType::Int32 => {
                    usize::try_from(*ndim).ok()
                }
                _ => None,
            }
            .ok_or_else(|| wrong("expected shape to be a fixed-size list of int32"))?;
            check_ndim(name, ndim)?;
            let uniform = metadata.uniform_shape.unwrap_or_else(|| vec![None; ndim]);
            match uniform.len() == ndim {
                true => Ok(Kind::Variable { dtype, ndim, uniform }),
                false => Err(wrong(&format!("uniform_shape {uniform:?} doesn't have {ndim} dimensions"))),
            }
        }
        (_, found) => Err(wrong(&format!("its storage is {found}"))),
    }
}

#[cfg(test)]
mod tests;
