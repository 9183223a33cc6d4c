//! JSON values to Arrow columns: types inferred from a sample, and values that don't fit a type told apart. Rows of CSV take the
//! same way.
//!
//! `large_utf8` takes strings as they are and anything else as its JSON text; other types take only what loses nothing.

use crate::error::{Error, Result};
use crate::format::schema::words;
use crate::source::batch::MOST_LEVELS;
use arrow::array::{ArrayRef, BooleanArray, Float64Array, Int64Array, LargeStringArray, ListArray, StructArray};
use arrow::buffer::{NullBuffer, OffsetBuffer};
use arrow::datatypes::{DataType, Field, Fields};
use serde_json::Value;
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

/// What the values of one place have in common.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) enum Shape {
    /// Nothing but null so far.
    #[default]
    Unknown,
    Bool,
    Int,
    Float,
    /// Text, or values that have no closer type in common.
    Text,
    List(Box<Shape>),
    Map(BTreeMap<String, Shape>),
}

/// One JSON value. Integers beyond 64 bits, which have no other type that keeps every digit, are taken for text.
pub(super) fn parse(bytes: &[u8]) -> serde_json::Result<Value> {
    serde_json::from_slice(&long_integers_quoted(bytes))
}

/// The text with quotes around integers that 64 bits don't hold.
fn long_integers_quoted(bytes: &[u8]) -> Cow<'_, [u8]> {
    const DIGITS: usize = 19;
    let mut quoted: Option<Vec<u8>> = None;
    let (mut at, mut copied) = (0, 0);
    while let Some(&byte) = bytes.get(at) {
        match byte {
            b'"' => {
                at += 1;
                while let Some(&inner) = bytes.get(at).filter(|b| **b != b'"') {
                    at += 1 + usize::from(inner == b'\\');
                }
                at += 1;
            }
            b'-' | b'0'..=b'9' => {
                let number = |b: &&u8| matches!(b, b'-' | b'+' | b'.' | b'e' | b'E' | b'0'..=b'9');
                let end = at + bytes[at..].iter().take_while(number).count();
                let token = &bytes[at..end];
                let digits = token.strip_prefix(b"-").unwrap_or(token);
                if digits.len() >= DIGITS
                    && digits.iter().all(u8::is_ascii_digit)
                    && digits[0] != b'0'
                    && std::str::from_utf8(token).is_ok_and(|t| t.parse::<i64>().is_err() && t.parse::<u64>().is_err())
                {
                    let out = quoted.get_or_insert_default();
                    out.extend_from_slice(&bytes[copied..at]);
                    out.push(b'"');
                    out.extend_from_slice(token);
                    out.push(b'"');
                    copied = end;
                }
                at = end;
            }
            _ => at += 1,
        }
    }
    match quoted {
        None => Cow::Borrowed(bytes),
        Some(mut out) => {
            out.extend_from_slice(&bytes[copied..]);
            Cow::Owned(out)
        }
    }
}

impl Shape {
    /// The shape of one of the values that a column's type is inferred from, or why none has it.
    pub fn of_sample(value: &Value) -> Result<Shape, String> {
        let levels = levels(value);
        if levels > MOST_LEVELS {
            return Err(format!(
                "lists and objects are nested {levels} deep, and at most {MOST_LEVELS} levels can be stored; write the value as text, or leave the column out with `columns:`"
            ));
        }
        Ok(Shape::of(value))
    }

    fn of(value: &Value) -> Shape {
        match value {
            Value::Null => Shape::Unknown,
            Value::Bool(_) => Shape::Bool,
            Value::Number(n) if n.is_i64() => Shape::Int,
            Value::Number(n) if n.is_f64() => Shape::Float,
            // Beyond 2^63: neither type holds it without loss.
            Value::Number(_) | Value::String(_) => Shape::Text,
            Value::Array(items) => {
                Shape::List(Box::new(items.iter().fold(Shape::Unknown, |shape, item| shape.with(Shape::of(item)))))
            }
            Value::Object(fields) => Shape::Map(fields.iter().map(|(k, v)| (k.clone(), Shape::of(v))).collect()),
        }
    }
    /// The closest shape that takes both.
    pub fn with(self, other: Shape) -> Shape {
        match (self, other) {
            (Shape::Unknown, shape) | (shape, Shape::Unknown) => shape,
            (Shape::Int, Shape::Float) | (Shape::Float, Shape::Int) => Shape::Float,
            (Shape::List(a), Shape::List(b)) => Shape::List(Box::new(a.with(*b))),
            (Shape::Map(mut a), Shape::Map(b)) => {
                for (name, shape) in b {
                    let so_far = a.remove(&name).unwrap_or_default();
                    a.insert(name, so_far.with(shape));
                }
                Shape::Map(a)
            }
            (a, b) if a == b => a,
            _ => Shape::Text,
        }
    }
    pub fn data_type(&self) -> DataType {
        match self {
            Shape::Unknown | Shape::Text => DataType::LargeUtf8,
            Shape::Bool => DataType::Boolean,
            Shape::Int => DataType::Int64,
            Shape::Float => DataType::Float64,
            Shape::List(item) => DataType::List(Arc::new(Field::new("item", item.data_type(), true))),
            Shape::Map(fields) if fields.is_empty() => DataType::LargeUtf8,
            Shape::Map(fields) => DataType::Struct(
                fields.iter().map(|(name, shape)| Field::new(name, shape.data_type(), true)).collect::<Fields>(),
            ),
        }
    }
}

fn levels(value: &Value) -> usize {
    match value {
        Value::Array(items) => 1 + items.iter().map(levels).max().unwrap_or(0),
        Value::Object(fields) => 1 + fields.values().map(levels).max().unwrap_or(0),
        _ => 0,
    }
}

/// Why a value can't stand in a column of this type; null always can.
pub(super) fn fits(data_type: &DataType, value: &Value) -> Result<(), String> {
    let ok = match (data_type, value) {
        (_, Value::Null) | (DataType::LargeUtf8, _) | (DataType::Boolean, Value::Bool(_)) => true,
        (DataType::Int64, Value::Number(n)) => n.is_i64(),
        (DataType::Float64, Value::Number(_)) => true,
        (DataType::List(item), Value::Array(values)) => {
            return values.iter().try_for_each(|value| fits(item.data_type(), value));
        }
        (DataType::Struct(fields), Value::Object(values)) => {
            return fields.iter().try_for_each(|field| match values.get(field.name()) {
                Some(value) => fits(field.data_type(), value).map_err(|e| format!("{}: {e}", field.name())),
                None => Ok(()),
            });
        }
        _ => false,
    };
    if ok {
        return Ok(());
    }
    let mut found: String = value.to_string().chars().take(60).collect();
    if found.len() < value.to_string().len() {
        found.push('…');
    }
    Err(format!("expected {}, found {found}", words(data_type)))
}

/// A column of values that fit.
pub(super) fn array(data_type: &DataType, values: &[Option<&Value>]) -> Result<ArrayRef> {
    let values: Vec<Option<&Value>> = values.iter().map(|v| v.filter(|v| !v.is_null())).collect();
    let misfit = || Error::internal(format!("a JSON value that was not checked to fit {data_type}"));
    Ok(match data_type {
        DataType::Boolean => Arc::new(BooleanArray::from_iter(values.iter().map(|v| v.and_then(Value::as_bool)))),
        DataType::Int64 => Arc::new(Int64Array::from_iter(values.iter().map(|v| v.and_then(Value::as_i64)))),
        DataType::Float64 => Arc::new(Float64Array::from_iter(values.iter().map(|v| v.and_then(Value::as_f64)))),
        DataType::LargeUtf8 => Arc::new(LargeStringArray::from_iter(values.iter().map(|v| v.map(text)))),
        DataType::List(item) => {
            let lists = values.iter().map(|v| items(v).ok_or_else(misfit)).collect::<Result<Vec<_>>>()?;
            if lists.iter().map(|l| l.len()).sum::<usize>() > i32::MAX as usize {
                return Err(Error::invalid("the lists of one block of rows hold more than 2^31 values"));
            }
            let offsets = OffsetBuffer::from_lengths(lists.iter().map(|l| l.len()));
            let flat: Vec<Option<&Value>> = lists.into_iter().flatten().map(Some).collect();
            Arc::new(ListArray::try_new(item.clone(), offsets, array(item.data_type(), &flat)?, nulls(&values))?)
        }
        DataType::Struct(fields) => {
            let children = fields
                .iter()
                .map(|field| {
                    let inner: Vec<_> = values.iter().map(|v| v.and_then(|v| v.get(field.name()))).collect();
                    array(field.data_type(), &inner)
                })
                .collect::<Result<Vec<_>>>()?;
            Arc::new(StructArray::try_new_with_length(fields.clone(), children, nulls(&values), values.len())?)
        }
        other => return Err(Error::invalid(format!("JSON and CSV can't yield a column of type {}", words(other)))),
    })
}

/// The items of a list; a null has none. `None` for other values.
fn items<'a>(value: &Option<&'a Value>) -> Option<&'a [Value]> {
    match value {
        Some(Value::Array(items)) => Some(items),
        Some(_) => None,
        None => Some(&[]),
    }
}

fn nulls(values: &[Option<&Value>]) -> Option<NullBuffer> {
    values.contains(&None).then(|| NullBuffer::from_iter(values.iter().map(Option::is_some)))
}

/// A string as it is, anything else as JSON.
pub(super) fn text(value: &Value) -> Cow<'_, str> {
    match value {
        Value::String(text) => text.as_str().into(),
        other => other.to_string().into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn infer(values: &[Value]) -> DataType {
        values.iter().fold(Shape::Unknown, |shape, value| shape.with(Shape::of(value))).data_type()
    }

    #[test]
    fn the_closest_type_is_found_whatever_the_order() {
        let check = |values: &[Value], expect: DataType| {
            assert_eq!(infer(values), expect, "{values:?}");
            let reversed: Vec<_> = values.iter().rev().cloned().collect();
            assert_eq!(infer(&reversed), expect, "{reversed:?}");
        };
        check(&[json!(1), json!(null), json!(2.5)], DataType::Float64);
        check(&[json!(1), json!("x")], DataType::LargeUtf8);
        check(&[json!(null)], DataType::LargeUtf8);
        check(&[json!({})], DataType::LargeUtf8);
        check(&[json!(u64::MAX), json!(1)], DataType::LargeUtf8);
        let list = DataType::List(Arc::new(Field::new("item", DataType::Float64, true)));
        check(&[json!([1]), json!([]), json!([0.5, null])], list);
        let fields = vec![Field::new("a", DataType::Int64, true), Field::new("b", DataType::Boolean, true)];
        check(&[json!({"b": true}), json!({"a": 1})], DataType::Struct(fields.into()));
    }

    #[test]
    fn values_survive_and_misfits_are_named() {
        let values = [json!({"a": [1, null], "b": "x"}), json!(null), json!({"b": 7})];
        let data_type = infer(&values);
        let array = array(&data_type, &values.iter().map(Some).collect::<Vec<_>>()).unwrap();
        let mut out = Vec::new();
        let batch = arrow::array::RecordBatch::try_from_iter([("v", array)]).unwrap();
        arrow::json::LineDelimitedWriter::new(&mut out).write(&batch).unwrap();
        assert_eq!(
            String::from_utf8(out).unwrap(),
            "{\"v\":{\"a\":[1,null],\"b\":\"x\"}}\n{}\n{\"v\":{\"b\":\"7\"}}\n"
        );
        assert!(fits(&data_type, &json!({"a": [1.5]})).unwrap_err().contains("a: expected int64, found 1.5"));
        assert!(fits(&DataType::Int64, &json!(u64::MAX)).is_err());
        assert!(fits(&DataType::Boolean, &json!("true")).is_err());
    }
}
