//! `table.cast`: changes the type of columns' values, of plain columns, lists and tensors alike.
//!
//! A value that the new type can't hold (out of range, or a fraction where a whole number is wanted) fails its row;
//! nothing wraps or saturates. Floats are rounded to the nearest value, ties to even; NaN becomes the one quiet NaN. Texts are read
//! as Rust reads numbers (`-1.5e3`, `inf`, no spaces), integers are written in decimal and floats in the shortest form
//! that reads back.

mod element;

use super::{Failures, errors, find, finish, key};
use crate::error::{Error, Result};
use crate::format::canonical;
use crate::format::schema::words;
use crate::format::shard::tensor;
use crate::step::registry::{Build, Definition};
use crate::step::{Cardinality, Context, Info, Output, Purity, Step};
use arrow::array::{Array, ArrayRef, AsArray, FixedSizeListArray, LargeListArray, ListArray, RecordBatch, StructArray};
use arrow::buffer::{BooleanBuffer, NullBuffer};
use arrow::datatypes::{DataType, Field, FieldRef, Schema, SchemaRef};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

pub(super) const DEFINITION: Definition = Definition {
    name: "table.cast",
    summary: "Changes the type of columns: { columns: { score: float32 } }",
    purity: Purity::Deterministic,
    cardinality: Cardinality::OneToOne,
    reads: "the columns named",
    writes: "the same columns with other types",
    fails: "the new type can't hold a value: it is out of range, has a fraction where a whole number is wanted, or is no number",
    schema: || schemars::schema_for!(Params),
    build,
};

/// Nothing wraps or saturates. Floats are rounded to the nearest value, ties to even. Texts are read as numbers such as
/// `-1.5e3` or `inf`, without spaces; integers are written in decimal, floats in the shortest form that reads back.
#[derive(Debug, Clone, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Params {
    /// Column to the type of its values; of its elements where the column holds lists or tensors.
    columns: BTreeMap<String, Dtype>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum Dtype {
    UInt8,
    UInt16,
    UInt32,
    UInt64,
    Int8,
    Int16,
    Int32,
    Int64,
    Float16,
    Float32,
    Float64,
    Bool,
    #[serde(alias = "large_utf8")]
    String,
}

impl Dtype {
    const fn data_type(self) -> DataType {
        match self {
            Dtype::UInt8 => DataType::UInt8,
            Dtype::UInt16 => DataType::UInt16,
            Dtype::UInt32 => DataType::UInt32,
            Dtype::UInt64 => DataType::UInt64,
            Dtype::Int8 => DataType::Int8,
            Dtype::Int16 => DataType::Int16,
            Dtype::Int32 => DataType::Int32,
            Dtype::Int64 => DataType::Int64,
            Dtype::Float16 => DataType::Float16,
            Dtype::Float32 => DataType::Float32,
            Dtype::Float64 => DataType::Float64,
            Dtype::Bool => DataType::Boolean,
            Dtype::String => DataType::LargeUtf8,
        }
    }
}

#[derive(Debug)]
struct Cast {
    info: Info,
    schema: SchemaRef,
    /// By column index.
    casts: Vec<(usize, DataType)>,
}

fn build(request: &Build) -> Result<Arc<dyn Step>> {
    let params: Params = request.params.parse()?;
    let node = request.params.get("columns").unwrap_or(request.params);
    if params.columns.is_empty() {
        return Err(node.span.error("expected at least one column: { name: type }"));
    }
    let mut fields: Vec<FieldRef> = request.input.fields().iter().cloned().collect();
    let mut casts = Vec::new();
    for (name, dtype) in &params.columns {
        let index = find(request.input, name, key(node, name))?;
        let Some(field) = fields.get_mut(index) else { continue };
        let target = dtype.data_type();
        let is_tensor = tensor::kind(field)? != tensor::Kind::NotTensor;
        let castable =
            if is_tensor { *dtype != Dtype::Bool } else { !matches!(field.data_type(), DataType::Struct(_)) };
        let Some(cast) = cast_type(field.data_type(), &target).filter(|_| castable) else {
            let message =
                format!("can't cast the column {name:?} of type {} to {}", words(field.data_type()), words(&target));
            let hint = "expected numbers, bool or texts, lists of numbers or bool, or tensors of numbers";
            return Err(node.span_of(name).error(format!("{message}; {hint}")));
        };
        let mut changed = Field::new(name, cast, true);
        // Class names and the like describe integers; a tensor's metadata describes its shape.
        if !matches!(dtype, Dtype::String | Dtype::Bool) {
            changed = changed.with_metadata(field.metadata().clone());
        }
        *field = Arc::new(changed);
        casts.push((index, target));
    }
    let names: Vec<String> = params.columns.keys().cloned().collect();
    let info = Info {
        name: DEFINITION.name,
        version: 1,
        purity: DEFINITION.purity,
        cardinality: DEFINITION.cardinality,
        reads: names.clone(),
        writes: names,
        params: canonical::Value::of(&params)?,
    };
    let schema = Arc::new(Schema::new_with_metadata(fields, request.input.metadata().clone()));
    Ok(Arc::new(Cast { info, schema, casts }))
}

/// The type that a column gets, if its values can be cast.
fn cast_type(from: &DataType, target: &DataType) -> Option<DataType> {
    let inner = |field: &FieldRef| {
        let nested = element::is_number(field.data_type()) && element::is_number(target);
        nested.then(|| Arc::new(field.as_ref().clone().with_data_type(target.clone())))
    };
    Some(match from {
        DataType::List(field) => DataType::List(inner(field)?),
        DataType::LargeList(field) => DataType::LargeList(inner(field)?),
        DataType::FixedSizeList(field, length) => DataType::FixedSizeList(inner(field)?, *length),
        DataType::Struct(fields) => {
            // A tensor of variable shape.
            let (data, shape) = match fields.iter().as_slice() {
                [data, shape] if data.name() == "data" && shape.name() == "shape" => (data, shape),
                _ => return None,
            };
            let data = data.as_ref().clone().with_data_type(cast_type(data.data_type(), target)?);
            DataType::Struct([Arc::new(data), shape.clone()].into_iter().collect())
        }
        plain => (element::is_number(plain) || element::is_text(plain)).then(|| target.clone())?,
    })
}

impl Step for Cast {
    fn info(&self) -> &Info {
        &self.info
    }
    fn output_schema(&self) -> &SchemaRef {
        &self.schema
    }
    fn apply(&self, batch: &RecordBatch, _context: Context) -> Result<Output> {
        let before = errors(batch)?;
        let mut failures = Failures::new(batch)?;
        let mut columns = batch.columns().to_vec();
        for (index, target) in &self.casts {
            let Some(column) = columns.get_mut(*index) else { continue };
            let mut failed: Vec<(usize, String)> = Vec::new();
            let present: BooleanBuffer = (0..batch.num_rows()).map(|row| before.is_null(row)).collect();
            let nulls = NullBuffer::union(column.logical_nulls().as_ref(), Some(&NullBuffer::new(present)));
            let field = self.schema.field(*index);
            *column = cast_column(column, target, field.data_type(), nulls, &mut failed)?;
            for (row, reason) in failed {
                failures.add(row, format!("{}: {reason}", field.name()));
            }
        }
        // A row that failed in one column has nulls in all that are written.
        if !failures.new.is_empty() {
            let rows: BooleanBuffer = {
                let mut valid = vec![true; batch.num_rows()];
                for (row, _) in &failures.new {
                    if let Some(valid) = valid.get_mut(*row) {
                        *valid = false;
                    }
                }
                valid.into_iter().collect()
            };
            for (index, _) in &self.casts {
                if let Some(column) = columns.get_mut(*index) {
                    *column = mask(column, &rows)?;
                }
            }
        }
        finish(&self.schema, columns, failures).map(Output::one_to_one)
    }
}

/// The column with nulls also where `valid` is false.
fn mask(column: &ArrayRef, valid: &BooleanBuffer) -> Result<ArrayRef> {
    let nulls = NullBuffer::union(column.nulls(), Some(&NullBuffer::new(valid.clone())));
    let data = column.to_data().into_builder().nulls(nulls).build()?;
    Ok(arrow::array::make_array(data))
}

/// Casts the rows that `nulls` leaves; `output` is the type of the result. A row that fails is named once, with the first reason.
fn cast_column(
    column: &ArrayRef,
    target: &DataType,
    output: &DataType,
    nulls: Option<NullBuffer>,
    failed: &mut Vec<(usize, String)>,
) -> Result<ArrayRef> {
    let rows = column.len();
    let skip = |row: usize| nulls.as_ref().is_some_and(|n| n.is_null(row));
    let mismatch = || Error::internal(format!("can't cast {} to {output}", column.data_type()));
    Ok(match (column.data_type(), output) {
        (DataType::List(_), DataType::List(field)) => {
            let list = column.as_list::<i32>();
            let offsets = list.value_offsets();
            let values = element::cast(list.values(), target, rows, &|row| span(offsets, row), &skip, failed)?;
            Arc::new(ListArray::try_new(field.clone(), list.offsets().clone(), values, nulls)?)
        }
        (DataType::LargeList(_), DataType::LargeList(field)) => {
            let list = column.as_list::<i64>();
            let offsets = list.value_offsets();
            let values = element::cast(list.values(), target, rows, &|row| span(offsets, row), &skip, failed)?;
            Arc::new(LargeListArray::try_new(field.clone(), list.offsets().clone(), values, nulls)?)
        }
        (DataType::FixedSizeList(_, _), DataType::FixedSizeList(field, length)) => {
            let list = column.as_fixed_size_list();
            let each = usize::try_from(*length).map_err(|_| mismatch())?;
            let span = |row: usize| row * each..(row + 1) * each;
            let values = element::cast(list.values(), target, rows, &span, &skip, failed)?;
            Arc::new(FixedSizeListArray::try_new(field.clone(), *length, values, nulls)?)
        }
        (DataType::Struct(_), DataType::Struct(fields)) => {
            let tensor = column.as_struct();
            let (data, shape, field) = match (tensor.columns(), fields.first()) {
                ([data, shape], Some(field)) => (data, shape, field),
                _ => return Err(mismatch()),
            };
            let lists = cast_column(data, target, field.data_type(), nulls.clone(), failed)?;
            // The struct says which rows are null; its lists, by the format, are never null themselves.
            let lists = arrow::array::make_array(lists.to_data().into_builder().nulls(None).build()?);
            Arc::new(StructArray::try_new(fields.clone(), vec![lists, shape.clone()], nulls)?)
        }
        _ => {
            let plain = element::cast(column, target, rows, &|row| row..row + 1, &skip, failed)?;
            let data = plain.to_data().into_builder().nulls(nulls).build()?;
            arrow::array::make_array(data)
        }
    })
}

/// The elements of a row of a list.
fn span<O: arrow::array::OffsetSizeTrait>(offsets: &[O], row: usize) -> Range<usize> {
    let at = |index: usize| offsets.get(index).map_or(0, |offset| offset.as_usize());
    at(row)..at(row + 1)
}

#[cfg(test)]
mod tests;
