//! The identity of a row that refers to objects: its carried values and the identities of the objects together, under
//! `Domain::Row`; `formats/source.md` says how. Also single values as text.

use crate::error::Result;
use crate::format::canonical::{Domain, Value, hash};
use crate::format::entry::Identity;
use crate::id::Digest;
use arrow::array::{Array, ArrayRef, AsArray, RecordBatch};
use arrow::compute::cast;
use arrow::datatypes::{DataType, FieldRef, Float32Type, Float64Type, Int64Type, UInt64Type};
use arrow::util::display::{ArrayFormatter, FormatOptions};
use std::sync::Arc;

/// `objects`: a name for each, and what it is known by.
pub(super) fn row_identity(carried: &RecordBatch, row: usize, objects: Vec<(&str, Identity)>) -> Result<Identity> {
    let schema = carried.schema();
    let values = schema
        .fields()
        .iter()
        .zip(carried.columns())
        .map(|(field, column)| Ok((field.name().clone(), value(column, row)?)))
        .collect::<Result<_>>()?;
    let objects = objects.into_iter().map(|(name, identity)| (name, known_by(identity)));
    let digest = hash(Domain::Row, &Value::List(vec![Value::Map(values), Value::map(objects)]))?;
    Ok(Identity::Row(Digest::from_bytes(digest)))
}

fn known_by(identity: Identity) -> Value {
    Value::List(match identity {
        Identity::Content(digest) => vec!["content".into(), digest.to_string().into()],
        Identity::Etag { etag, bytes } => vec!["etag".into(), etag.into(), bytes.into()],
        Identity::Stat { root, bytes, modified_ns } => {
            vec!["stat".into(), root.into(), bytes.into(), modified_ns.into()]
        }
        Identity::Row(digest) => vec!["row".into(), digest.to_string().into()],
        Identity::Absent => vec!["absent".into()],
    })
}

/// What has no canonical form of its own is a list of its type and its text.
fn value(column: &ArrayRef, row: usize) -> Result<Value> {
    if column.is_null(row) {
        return Ok(Value::Null);
    }
    let float = |x: f64| match x.is_finite() {
        true => Value::Float(x),
        false => Value::List(vec!["float".into(), x.to_string().into()]),
    };
    Ok(match column.data_type() {
        DataType::Boolean => Value::Bool(column.as_boolean().value(row)),
        DataType::LargeUtf8 => column.as_string::<i64>().value(row).into(),
        DataType::Float64 => float(column.as_primitive::<Float64Type>().value(row)),
        DataType::Float32 => float(column.as_primitive::<Float32Type>().value(row).into()),
        DataType::UInt64 => column.as_primitive::<UInt64Type>().value(row).into(),
        t if t.is_integer() => {
            let wide = cast(&column.slice(row, 1), &DataType::Int64)?;
            wide.as_primitive::<Int64Type>().value(0).into()
        }
        t => Value::List(vec![t.to_string().into(), text(column, row)?.into()]),
    })
}

/// A value as text; times of a zone that has a name as UTC, since such zones need a table of them.
pub fn text(column: &ArrayRef, row: usize) -> Result<String> {
    if column.data_type() == &DataType::LargeUtf8 {
        return Ok(column.as_string::<i64>().value(row).to_owned());
    }
    let options = FormatOptions::new();
    if let Ok(values) = ArrayFormatter::try_new(column, &options) {
        return Ok(values.value(row).try_to_string()?);
    }
    let value = cast(&column.slice(row, 1), &in_utc(column.data_type()))?;
    Ok(ArrayFormatter::try_new(&value, &options)?.value(0).try_to_string()?)
}

fn in_utc(data_type: &DataType) -> DataType {
    let field = |field: &FieldRef| Arc::new(field.as_ref().clone().with_data_type(in_utc(field.data_type())));
    match data_type {
        DataType::Timestamp(unit, Some(_)) => DataType::Timestamp(*unit, Some("+00:00".into())),
        DataType::List(item) => DataType::List(field(item)),
        DataType::LargeList(item) => DataType::LargeList(field(item)),
        DataType::FixedSizeList(item, size) => DataType::FixedSizeList(field(item), *size),
        DataType::Map(entries, sorted) => DataType::Map(field(entries), *sorted),
        DataType::Struct(fields) => DataType::Struct(fields.iter().map(field).collect()),
        other => other.clone(),
    }
}
