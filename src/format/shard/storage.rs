//! The schema in which a stage is stored and the way there and back. Dictionary columns are stored as their values. In
//! Parquet a tensor column `x` becomes a binary column `x` and, where its shape varies, a column `x_shape` beside it.

use super::normal;
use super::tensor::{self, DType, Kind, shape_column};
use crate::error::{Error, Result};
use crate::format::encoding::Container;
use crate::format::schema::words;
use arrow::array::{Array, ArrayRef, AsArray, GenericListArray, Int32Array, LargeBinaryArray, RecordBatch};
use arrow::array::{ArrayData, FixedSizeListArray, RecordBatchOptions, make_array};
use arrow::buffer::{Buffer, MutableBuffer, OffsetBuffer};
use arrow::compute::CastOptions;
use arrow::datatypes::{DataType, Field, FieldRef, Fields, Int32Type, Schema, SchemaRef, TimeUnit};
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

/// How a stage's columns are stored in a container.
#[derive(Debug)]
pub struct Storage {
    pub stage: SchemaRef,
    pub stored: SchemaRef,
    columns: Vec<Column>,
}

#[derive(Debug)]
struct Column {
    form: Form,
    /// Of `stored`'s fields.
    fields: Range<usize>,
}

#[derive(Debug)]
enum Form {
    Same,
    /// Stored as values of another type.
    Cast(DataType),
    Fixed {
        dtype: DType,
        shape: Vec<usize>,
    },
    Variable {
        dtype: DType,
        ndim: usize,
    },
}

impl Storage {
    /// `Invalid`, naming the column, where a type can't be stored.
    pub fn new(stage: SchemaRef, container: Container) -> Result<Self> {
        let mut fields: Vec<FieldRef> = Vec::new();
        let mut columns = Vec::new();
        for field in stage.fields() {
            storable(field.name(), field.data_type())?;
            let first = fields.len();
            let form = match (tensor::kind(field)?, container) {
                (Kind::Fixed { dtype, shape }, Container::Parquet) => {
                    fields.push(payload(field));
                    Form::Fixed { dtype, shape }
                }
                (Kind::Variable { dtype, ndim, .. }, Container::Parquet) => {
                    let sizes = Arc::new(Field::new_list_field(DataType::Int32, false));
                    let shape = Field::new(shape_column(field.name()), DataType::List(sizes), field.is_nullable());
                    fields.extend([payload(field), Arc::new(shape)]);
                    Form::Variable { dtype, ndim }
                }
                _ => {
                    let data_type = stored_type(field.data_type(), container);
                    if data_type == *field.data_type() {
                        fields.push(field.clone());
                        Form::Same
                    } else {
                        fields.push(Arc::new(field.as_ref().clone().with_data_type(data_type.clone())));
                        Form::Cast(data_type)
                    }
                }
            };
            columns.push(Column { form, fields: first..fields.len() });
        }
        let mut names: Vec<&str> = fields.iter().map(|field| field.name().as_str()).collect();
        names.sort_unstable();
        if let Some([name, _]) = names.array_windows().find(|[a, b]| a == b) {
            return Err(Error::invalid(format!(
                "two columns would be stored under the name {name:?}; rename one of them (`table.rename`)"
            )));
        }
        let stored = Arc::new(Schema::new_with_metadata(fields, stage.metadata().clone()));
        Ok(Storage { stage, stored, columns })
    }

    /// The stored fields that hold tensors' bytes in Parquet.
    pub fn payloads(&self) -> impl Iterator<Item = usize> {
        let tensors = self.columns.iter().filter(|c| matches!(c.form, Form::Fixed { .. } | Form::Variable { .. }));
        tensors.map(|column| column.fields.start)
    }

    /// The stored fields of each of the stage's columns.
    pub fn fields(&self) -> impl Iterator<Item = Range<usize>> {
        self.columns.iter().map(|column| column.fields.clone())
    }

    /// The tensors of Parquet's columns, for the key-value metadata: `{"x": {"dtype": "uint8", "shape": [224, 224, 3]}}`, and
    /// for ragged ones `null` in the shape and the name of the column that holds the rows' shapes.
    pub fn tensors(&self) -> Result<serde_json::Value> {
        let mut tensors = serde_json::Map::new();
        for (field, column) in self.stage.fields().iter().zip(&self.columns) {
            let entry = match (&column.form, tensor::kind(field)?) {
                (Form::Fixed { dtype, shape }, _) => serde_json::json!({ "dtype": dtype.name(), "shape": shape }),
                (Form::Variable { dtype, .. }, Kind::Variable { uniform, .. }) => serde_json::json!({
                    "dtype": dtype.name(), "shape": uniform, "shapes": shape_column(field.name()),
                }),
                _ => continue,
            };
            tensors.insert(field.name().clone(), entry);
        }
        Ok(tensors.into())
    }

    /// A batch of the stage as it is stored.
    pub fn pack(&self, batch: &RecordBatch) -> Result<RecordBatch> {
        if batch.schema_ref().fields() != self.stage.fields() {
            return Err(Error::internal(format!(
                "a batch's schema is not its stage's: expected {}, found {}",
                self.stage,
                batch.schema_ref()
            )));
        }
        let mut stored = Vec::with_capacity(self.stored.fields().len());
        for (array, column) in batch.columns().iter().zip(&self.columns) {
            match &column.form {
                Form::Same => stored.push(array.clone()),
                Form::Cast(data_type) => stored.push(cast(array, data_type)?),
                // The normal form has no null elements under null rows.
                Form::Fixed { dtype, .. } => {
                    let array = normal::column(array, None)?;
                    stored.push(fixed_to_binary(array.as_fixed_size_list(), *dtype)?);
                }
                Form::Variable { dtype, ndim } => {
                    stored.extend(variable_to_binary(&normal::column(array, None)?, *dtype, *ndim)?);
                }
            }
        }
        let rows = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
        Ok(RecordBatch::try_new_with_options(self.stored.clone(), stored, &rows)?)
    }

    /// Column `index` of the stage from its stored fields' arrays.
    pub fn unpack(&self, index: usize, stored: &[ArrayRef]) -> Result<ArrayRef> {
        let (Some(column), Some(field)) = (self.columns.get(index), self.stage.fields().get(index)) else {
            return Err(Error::internal(format!("there is no column {index}")));
        };
        let name = field.name();
        match (&column.form, stored) {
            (Form::Same, [array]) => Ok(array.clone()),
            (Form::Cast(_), [array]) => cast(array, field.data_type()),
            (Form::Fixed { dtype, shape }, [values]) => {
                let values = values.as_binary_opt::<i64>().ok_or_else(|| not_stored_so(name))?;
                let values = binary_to_fixed(name, field, values, *dtype, shape)?;
                Ok(values)
            }
            (Form::Variable { dtype, ndim }, [values, shapes]) => {
                let values = values.as_binary_opt::<i64>().ok_or_else(|| not_stored_so(name))?;
                let shapes = shapes.as_list_opt::<i32>().ok_or_else(|| not_stored_so(name))?;
                binary_to_variable(name, field, values, shapes, *dtype, *ndim)
            }
            _ => Err(not_stored_so(name)),
        }
    }
}

fn not_stored_so(name: &str) -> Error {
    Error::corrupt(format!("column {name:?} is not stored as the stage's type"))
}

/// The binary column of a tensor column; what the extension says is kept in the file's key-value metadata.
fn payload(field: &Field) -> FieldRef {
    let metadata = field.metadata().iter().filter(|(key, _)| !key.starts_with("ARROW:extension:"));
    let metadata: BTreeMap<String, String> =
        metadata.map(|(key, value)| (key.to_string(), value.to_string())).collect();
    Arc::new(Field::new(field.name(), DataType::LargeBinary, field.is_nullable()).with_metadata(metadata))
}

/// Refuses, naming the column, the types that not every reader of the containers knows.
fn storable(column: &str, data_type: &DataType) -> Result<()> {
    use DataType::*;
    match data_type {
        Utf8View | BinaryView | ListView(_) | LargeListView(_) | Union(..) | RunEndEncoded(..) | Interval(_) => {
            Err(Error::invalid(format!(
                "column {column:?} of type {} can't be stored; cast it (`table.cast`), for example to text, or leave it out (`table.select`)",
                words(data_type)
            )))
        }
        FixedSizeList(_, size) | FixedSizeBinary(size) if *size < 1 => Err(Error::invalid(format!(
            "column {column:?} of type {} can't be stored: its values have no elements; leave it out (`table.select`)",
            words(data_type)
        ))),
        Struct(fields) if fields.is_empty() => Err(Error::invalid(format!(
            "column {column:?} can't be stored: a struct without fields; leave it out (`table.select`)"
        ))),
        Struct(fields) => fields.iter().try_for_each(|field| storable(column, field.data_type())),
        List(item) | LargeList(item) | FixedSizeList(item, _) | Map(item, _) => storable(column, item.data_type()),
        Dictionary(_, values) => storable(column, values),
        _ => Ok(()),
    }
}

/// Dictionaries are stored as their values; Parquet, which counts no seconds, has milliseconds instead.
fn stored_type(data_type: &DataType, container: Container) -> DataType {
    use DataType::*;
    let inner = |field: &FieldRef| -> FieldRef {
        Arc::new(field.as_ref().clone().with_data_type(stored_type(field.data_type(), container)))
    };
    match (data_type, container) {
        (Dictionary(_, values), _) => stored_type(values, container),
        (List(item), _) => List(inner(item)),
        (LargeList(item), _) => LargeList(inner(item)),
        (FixedSizeList(item, size), _) => FixedSizeList(inner(item), *size),
        (Map(entries, sorted), _) => Map(inner(entries), *sorted),
        (Struct(fields), _) => Struct(fields.iter().map(inner).collect::<Fields>()),
        (Timestamp(TimeUnit::Second, zone), Container::Parquet) => Timestamp(TimeUnit::Millisecond, zone.clone()),
        (Time32(TimeUnit::Second), Container::Parquet) => Time32(TimeUnit::Millisecond),
        (other, _) => other.clone(),
    }
}

/// Every value or an error: a plain cast makes nulls of what doesn't fit.
fn cast(array: &ArrayRef, data_type: &DataType) -> Result<ArrayRef> {
    let options = CastOptions { safe: false, ..Default::default() };
    arrow::compute::cast_with_options(array, data_type, &options)
        .map_err(|error| Error::invalid(format!("values can't be stored as {}", words(data_type))).caused_by(error))
}

/// The one buffer of an array of numbers, from its first element on.
fn number_bytes(array: &ArrayRef, dtype: DType) -> Result<Buffer> {
    let data = array.to_data();
    let (start, bytes) = (data.offset() * dtype.bytes(), data.len() * dtype.bytes());
    match data.buffers() {
        [buffer] if buffer.len() >= start + bytes && data.null_count() == 0 => {
            Ok(buffer.slice_with_length(start, bytes))
        }
        _ => Err(Error::invalid("a tensor has null elements; replace them by a number before it is stored")),
    }
}

fn fixed_to_binary(list: &FixedSizeListArray, dtype: DType) -> Result<ArrayRef> {
    let elements = list.value_length() as usize;
    let values = list.values().slice(list.value_offset_at(0), list.len() * elements);
    let lengths = std::iter::repeat_n(elements * dtype.bytes(), list.len());
    let offsets = OffsetBuffer::<i64>::from_lengths(lengths);
    Ok(Arc::new(LargeBinaryArray::try_new(offsets, number_bytes(&values, dtype)?, list.nulls().cloned())?))
}

fn variable_to_binary(array: &ArrayRef, dtype: DType, ndim: usize) -> Result<[ArrayRef; 2]> {
    let rows = array.as_struct();
    let (data, shape) = (rows.column(0).as_list::<i32>(), rows.column(1).as_fixed_size_list());
    let offsets = data.offsets();
    let width = dtype.bytes() as i64;
    let (from, to) = (offsets[0], offsets[data.len()]);
    let values = data.values().slice(from as usize, (to - from) as usize);
    let bytes: Vec<i64> = offsets.iter().map(|offset| i64::from(offset - from) * width).collect();
    let binary = LargeBinaryArray::try_new(
        OffsetBuffer::new(bytes.into()),
        number_bytes(&values, dtype)?,
        rows.nulls().cloned(),
    )?;
    let sizes = shape.values().slice(shape.value_offset_at(0), shape.len() * ndim);
    let item = Arc::new(Field::new_list_field(DataType::Int32, false));
    let shapes = GenericListArray::<i32>::try_new(
        item,
        OffsetBuffer::from_lengths(std::iter::repeat_n(ndim, shape.len())),
        sizes,
        rows.nulls().cloned(),
    )?;
    Ok([Arc::new(binary), Arc::new(shapes)])
}

/// Without nulls the values' bytes are the tensors' and aren't copied.
fn binary_to_fixed(
    name: &str,
    field: &Field,
    binary: &LargeBinaryArray,
    dtype: DType,
    shape: &[usize],
) -> Result<ArrayRef> {
    let row_bytes = shape.iter().product::<usize>() * dtype.bytes();
    let wrong = |row: usize| {
        Error::corrupt(format!(
            "row {row} of column {name:?} has {} bytes, expected {row_bytes} for {shape:?} of {}",
            binary.value_length(row),
            dtype.name()
        ))
    };
    let offsets = binary.value_offsets();
    let whole = |row: usize| binary.value_length(row) as usize == row_bytes;
    let values = if let Some(nulls) = binary.nulls().filter(|nulls| nulls.null_count() > 0) {
        let mut values = MutableBuffer::from_len_zeroed(binary.len() * row_bytes);
        for row in nulls.valid_indices() {
            if !whole(row) {
                return Err(wrong(row));
            }
            values[row * row_bytes..(row + 1) * row_bytes].copy_from_slice(binary.value(row));
        }
        values.into()
    } else {
        if let Some(row) = (0..binary.len()).find(|row| !whole(*row)) {
            return Err(wrong(row));
        }
        binary.values().slice_with_length(offsets[0] as usize, binary.len() * row_bytes)
    };
    let array = tensor::fixed_array(dtype, shape, values, binary.nulls().cloned())?;
    as_field(field, array)
}

fn binary_to_variable(
    name: &str,
    field: &Field,
    binary: &LargeBinaryArray,
    shapes: &GenericListArray<i32>,
    dtype: DType,
    ndim: usize,
) -> Result<ArrayRef> {
    let wrong = |row: usize| {
        Error::corrupt(format!("row {row} of column {name:?} and its shape column are no {ndim}-dimensional tensor"))
    };
    let offsets = binary.value_offsets();
    let mut lengths = Vec::with_capacity(binary.len());
    let mut sizes = Vec::with_capacity(binary.len() * ndim);
    for row in 0..binary.len() {
        let bytes = (offsets[row + 1] - offsets[row]) as usize;
        if binary.is_null(row) {
            sizes.extend(std::iter::repeat_n(0, ndim));
        } else {
            let shape = shapes.value(row);
            let shape: &Int32Array = shape.as_primitive_opt::<Int32Type>().ok_or_else(|| wrong(row))?;
            if shape.len() != ndim || shape.null_count() > 0 || !bytes.is_multiple_of(dtype.bytes()) {
                return Err(wrong(row));
            }
            sizes.extend_from_slice(shape.values());
        }
        // A null row of this reader has no bytes.
        if binary.is_null(row) && bytes > 0 {
            return Err(wrong(row));
        }
        lengths.push(bytes / dtype.bytes());
    }
    let (from, to) = (offsets[0] as usize, offsets[binary.len()] as usize);
    let values = binary.values().slice_with_length(from, to - from);
    let array = tensor::variable_array(dtype, ndim, values, lengths, sizes, binary.nulls().cloned())?;
    as_field(field, array)
}

/// Inner fields may be named or nullable otherwise than those that we make ourselves; the values are the same.
fn as_field(field: &Field, array: ArrayRef) -> Result<ArrayRef> {
    if array.data_type() == field.data_type() {
        return Ok(array);
    }
    fn retype(data: ArrayData, data_type: &DataType) -> Result<ArrayData> {
        let inner: Vec<&DataType> = match data_type {
            DataType::Struct(fields) => fields.iter().map(|field| field.data_type()).collect(),
            DataType::List(item) | DataType::FixedSizeList(item, _) => vec![item.data_type()],
            _ => Vec::new(),
        };
        let children = data.child_data().iter().cloned().zip(inner).map(|(child, inner)| retype(child, inner));
        let children = children.collect::<Result<Vec<_>>>()?;
        Ok(data.into_builder().data_type(data_type.clone()).child_data(children).build()?)
    }
    Ok(make_array(retype(array.to_data(), field.data_type())?))
}
