//! Types of Arrow and Parquet files as batches carry them: large text and bytes, dictionaries unpacked, tensors of the canonical
//! extension types as they are; and what Hugging Face datasets say about their columns: encoded images and audio as
//! `struct{bytes, path}`, class names.

use crate::error::{Error, Result};
use crate::format::schema::words;
use arrow::array::{Array, ArrayRef, AsArray, LargeBinaryArray};
use arrow::buffer::NullBuffer;
use arrow::compute::{can_cast_types, cast};
use arrow::datatypes::{DataType, Field, FieldRef, Fields, Schema};
use std::collections::HashMap;
use std::sync::Arc;

/// Field metadata: the names of a column's classes, a JSON list.
pub const CLASSES: &str = "forebay.classes";
const EXTENSION: &str = "ARROW:extension:name";

/// The columns that a file of this schema yields. `info`: the text of a `dataset_info.json` beside it.
pub(super) fn columns(schema: &Schema, info: Option<&str>, file: &str) -> Result<Vec<Field>> {
    let features = features(schema, info);
    schema.fields().iter().map(|field| column(field, features.as_ref(), file)).collect()
}

fn column(field: &FieldRef, features: Option<&serde_json::Value>, file: &str) -> Result<Field> {
    let data_type = if is_encoded(field.data_type()) { DataType::LargeBinary } else { normal(field) };
    if data_type != *field.data_type()
        && !is_encoded(field.data_type())
        && !can_cast_types(field.data_type(), &data_type)
    {
        return Err(Error::invalid(format!(
            "{file}: column {:?} is of type {}, which is not understood; leave it out with `columns:`",
            field.name(),
            words(field.data_type())
        )));
    }
    let mut metadata: HashMap<String, String> = field
        .metadata()
        .iter()
        .filter(|(k, _)| k.starts_with("ARROW:extension:") || *k == CLASSES)
        .map(|(k, v)| (k.clone(), v.clone()))
        .collect();
    if let Some(names) = features.and_then(|f| f.get(field.name())).and_then(class_names) {
        metadata.insert(CLASSES.to_owned(), names);
    }
    Ok(Field::new(field.name(), data_type, true).with_metadata(metadata))
}

/// The type that a column is carried in.
fn normal(field: &Field) -> DataType {
    if field.metadata().get(EXTENSION).is_some_and(|name| {
        name.starts_with("arrow.fixed_shape_tensor") || name.starts_with("arrow.variable_shape_tensor")
    }) {
        return field.data_type().clone();
    }
    normal_type(field.data_type())
}

fn normal_type(data_type: &DataType) -> DataType {
    let inner = |field: &FieldRef| -> FieldRef { Arc::new(field.as_ref().clone().with_data_type(normal(field))) };
    match data_type {
        DataType::Utf8 | DataType::Utf8View | DataType::LargeUtf8 => DataType::LargeUtf8,
        DataType::Binary | DataType::BinaryView | DataType::LargeBinary => DataType::LargeBinary,
        DataType::Dictionary(_, values) => normal_type(values),
        // No time zone, said otherwise: Arrow's schema messages can't tell the two apart.
        DataType::Timestamp(unit, Some(zone)) if zone.is_empty() => DataType::Timestamp(*unit, None),
        DataType::RunEndEncoded(_, values) => normal_type(values.data_type()),
        DataType::List(item) | DataType::ListView(item) => DataType::List(inner(item)),
        DataType::LargeList(item) | DataType::LargeListView(item) => DataType::LargeList(inner(item)),
        DataType::FixedSizeList(item, length) => DataType::FixedSizeList(inner(item), *length),
        DataType::Struct(fields) => DataType::Struct(fields.iter().map(inner).collect::<Fields>()),
        DataType::Map(entries, sorted) => DataType::Map(inner(entries), *sorted),
        other => other.clone(),
    }
}

/// Whether this is how Hugging Face datasets keep an image or a sound.
fn is_encoded(data_type: &DataType) -> bool {
    let DataType::Struct(fields) = data_type else { return false };
    let of = |name: &str, pick: fn(&DataType) -> bool| fields.iter().any(|f| f.name() == name && pick(f.data_type()));
    fields.len() == 2
        && of("bytes", |t| matches!(t, DataType::Binary | DataType::LargeBinary | DataType::BinaryView))
        && of("path", |t| matches!(t, DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View))
}

/// A column of a file in the type of the schema. `failed(row, reason)` is called for rows that can't be had.
pub(super) fn convert(
    column: &ArrayRef,
    to: &Field,
    file: &str,
    mut failed: impl FnMut(usize, String),
) -> Result<ArrayRef> {
    if column.data_type() == to.data_type() {
        return Ok(column.clone());
    }
    let mismatch = || {
        let (found, expected) = (words(column.data_type()), words(to.data_type()));
        Error::invalid(format!("{file}: column {:?} is {found}, expected {expected}", to.name()))
    };
    if to.data_type() == &DataType::LargeBinary && is_encoded(column.data_type()) {
        let parts = column.as_struct();
        let bytes = cast(parts.column_by_name("bytes").ok_or_else(mismatch)?, &DataType::LargeBinary)?;
        let paths = cast(parts.column_by_name("path").ok_or_else(mismatch)?, &DataType::LargeUtf8)?;
        let (bytes, paths) = (bytes.as_binary::<i64>(), paths.as_string::<i64>());
        for row in (0..parts.len()).filter(|&r| parts.is_valid(r) && bytes.is_null(r) && paths.is_valid(r)) {
            failed(row, format!("column {:?} names {} but does not hold its bytes", to.name(), paths.value(row)));
        }
        let nulls = NullBuffer::union(parts.nulls(), bytes.nulls());
        return Ok(Arc::new(LargeBinaryArray::try_new(bytes.offsets().clone(), bytes.values().clone(), nulls)?));
    }
    // Only what `normal` changes may be cast: another file's column of another type must not be bent into shape.
    if normal_type(column.data_type()) != *to.data_type()
        && !same_storage(&normal_type(column.data_type()), to.data_type())
    {
        return Err(mismatch());
    }
    cast(column, to.data_type()).map_err(|e| mismatch().caused_by(e))
}

/// Whether two types differ in names and nullability of nested fields alone.
fn same_storage(a: &DataType, b: &DataType) -> bool {
    a.equals_datatype(b)
}

/// The features of a dataset: from the schema's own metadata, else from `dataset_info.json`.
fn features(schema: &Schema, info: Option<&str>) -> Option<serde_json::Value> {
    let parse = |text: &str| serde_json::from_str::<serde_json::Value>(text).ok();
    let own = schema
        .metadata()
        .get("huggingface")
        .and_then(|t| parse(t))
        .and_then(|v| v.get("info")?.get("features").cloned());
    own.or_else(|| parse(info?)?.get("features").cloned())
}

fn class_names(feature: &serde_json::Value) -> Option<String> {
    if feature.get("_type")?.as_str()? != "ClassLabel" {
        return None;
    }
    let names = feature.get("names")?;
    names.as_array()?.iter().all(serde_json::Value::is_string).then(|| names.to_string())
}
