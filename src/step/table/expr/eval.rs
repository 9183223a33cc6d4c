//! The program's value for each row. Nulls follow SQL's three-valued logic; operands are evaluated from left to right
//! and no further than the result needs; what has no value (overflow, division by zero) is a reason to fail the row.

use super::check::{Form, Set, Typed};
use super::{Arithmetic, Comparison, Function, Program};
use crate::error::{Error, Result};
use crate::format::canonical::{Domain, Writer};
use arrow::array::{
    Array, AsArray, BooleanArray, Float64Array, Int64Array, LargeStringArray, RecordBatch, UInt64Array,
};
use arrow::buffer::NullBuffer;
use arrow::compute::{cast, kernels::length::length};
use arrow::datatypes::{DataType, Float64Type, Int64Type, UInt64Type};
use std::borrow::Cow;
use std::cmp::Ordering;

/// A program with one batch's columns.
pub(crate) struct Bound<'a> {
    program: &'a Program,
    inputs: Vec<Column>,
}

enum Column {
    Bool(BooleanArray),
    Int(Int64Array),
    UInt(UInt64Array),
    Float(Float64Array),
    Text(LargeStringArray),
    Presence(Option<NullBuffer>),
}

#[derive(Debug, Clone, PartialEq)]
enum Value<'a> {
    Null,
    Bool(bool),
    Int(i128),
    Float(f64),
    Text(Cow<'a, str>),
    /// Not null, of a type that has no values here.
    Present,
}

/// Why a row has no value; `check` rules out all but what depends on data.
type Evaluated<T> = std::result::Result<T, Cow<'static, str>>;

const MISTYPED: Cow<'static, str> = Cow::Borrowed("the expression met a value of a type that it was not checked for");
const ZERO: Cow<'static, str> = Cow::Borrowed("division by zero");

impl Program {
    /// The batch must be of the schema that the program was compiled for.
    pub(crate) fn bind(&self, batch: &RecordBatch) -> Result<Bound<'_>> {
        let read = |input: &super::check::Input| {
            let column = batch.columns().get(input.column).ok_or_else(|| {
                Error::internal(format!(
                    "expected at least {} columns, found {}",
                    input.column + 1,
                    batch.num_columns()
                ))
            })?;
            Ok(match input.form {
                Form::Bool => Column::Bool(cast(column, &DataType::Boolean)?.as_boolean().clone()),
                Form::Int => Column::Int(cast(column, &DataType::Int64)?.as_primitive::<Int64Type>().clone()),
                Form::UInt => Column::UInt(cast(column, &DataType::UInt64)?.as_primitive::<UInt64Type>().clone()),
                Form::Float => Column::Float(cast(column, &DataType::Float64)?.as_primitive::<Float64Type>().clone()),
                Form::Text => Column::Text(cast(column, &DataType::LargeUtf8)?.as_string::<i64>().clone()),
                Form::Length => {
                    let lengths = cast(&length(column)?, &DataType::Int64)?;
                    Column::Int(lengths.as_primitive::<Int64Type>().clone())
                }
                Form::Presence => Column::Presence(column.logical_nulls()),
            })
        };
        Ok(Bound { program: self, inputs: self.inputs.iter().map(read).collect::<Result<_>>()? })
    }
}

impl Column {
    fn get(&self, row: usize) -> Value<'_> {
        match self {
            Column::Bool(array) if array.is_valid(row) => Value::Bool(array.value(row)),
            Column::Int(array) if array.is_valid(row) => Value::Int(array.value(row).into()),
            Column::UInt(array) if array.is_valid(row) => Value::Int(array.value(row).into()),
            Column::Float(array) if array.is_valid(row) => Value::Float(array.value(row)),
            Column::Text(array) if array.is_valid(row) => Value::Text(array.value(row).into()),
            Column::Presence(nulls) if nulls.as_ref().is_none_or(|n| n.is_valid(row)) => Value::Present,
            _ => Value::Null,
        }
    }
}

impl Bound<'_> {
    /// Whether the condition is true, false or unknown (`None`) for a row of the batch, or why it has no value.
    pub(crate) fn test(&self, row: usize) -> Evaluated<Option<bool>> {
        self.truth(&self.program.root, row)
    }

    /// Whether a column that the program reads is null in this row.
    pub(crate) fn reads_null(&self, row: usize) -> bool {
        self.inputs.iter().any(|input| input.get(row) == Value::Null)
    }

    fn truth(&self, tree: &Typed, row: usize) -> Evaluated<Option<bool>> {
        match self.value(tree, row)? {
            Value::Bool(value) => Ok(Some(value)),
            Value::Null => Ok(None),
            _ => Err(MISTYPED),
        }
    }

    fn text<'a>(&'a self, tree: &'a Typed, row: usize) -> Evaluated<Option<Cow<'a, str>>> {
        match self.value(tree, row)? {
            Value::Text(value) => Ok(Some(value)),
            Value::Null => Ok(None),
            _ => Err(MISTYPED),
        }
    }

    fn value<'a>(&'a self, tree: &'a Typed, row: usize) -> Evaluated<Value<'a>> {
        Ok(match tree {
            Typed::Bool(value) => Value::Bool(*value),
            Typed::Int(value) => Value::Int(*value),
            Typed::Float(value) => Value::Float(*value),
            Typed::Str(value) => Value::Text(value.as_str().into()),
            Typed::Input(index) => self.inputs.get(*index).ok_or(MISTYPED)?.get(row),
            Typed::Not(inner) => truth_value(self.truth(inner, row)?.map(|value| !value)),
            Typed::Negate(inner) => match self.value(inner, row)? {
                Value::Int(value) => whole(-value)?,
                Value::Float(value) => Value::Float(-value),
                Value::Null => Value::Null,
                _ => return Err(MISTYPED),
            },
            Typed::And(operands) => truth_value(self.join(operands, false, row)?),
            Typed::Or(operands) => truth_value(self.join(operands, true, row)?),
            Typed::Compare(operator, left, right) => {
                let left = self.value(left, row)?;
                compare(*operator, &left, &self.value(right, row)?)?
            }
            Typed::Compute(operator, left, right) => {
                let left = self.value(left, row)?;
                compute(*operator, left, self.value(right, row)?)?
            }
            Typed::In(value, set) => match self.value(value, row)? {
                Value::Null => Value::Null,
                value => Value::Bool(set.contains(&value)),
            },
            Typed::IsNull(inner) => Value::Bool(self.value(inner, row)? == Value::Null),
            Typed::Call(function, text) => match self.text(text, row)? {
                Some(text) => call(*function, &text)?,
                None => Value::Null,
            },
            Typed::Test(function, text, part) => match (self.text(text, row)?, self.text(part, row)?) {
                (Some(text), Some(part)) => Value::Bool(test(*function, &text, &part)?),
                _ => Value::Null,
            },
            Typed::Matches(text, regex) => truth_value(self.text(text, row)?.map(|text| regex.is_match(&text))),
        })
    }

    /// `and` is decided by the first false, `or` by the first true; else unknown if any operand is.
    fn join(&self, operands: &[Typed], decisive: bool, row: usize) -> Evaluated<Option<bool>> {
        let mut joined = Some(!decisive);
        for operand in operands {
            match self.truth(operand, row)? {
                Some(value) if value == decisive => return Ok(Some(decisive)),
                Some(_) => {}
                None => joined = None,
            }
        }
        Ok(joined)
    }
}

impl Set {
    fn contains(&self, value: &Value) -> bool {
        match value {
            Value::Bool(value) => self.bools.contains(value),
            Value::Text(value) => self.texts.contains(value.as_ref()),
            Value::Int(value) => {
                self.ints.contains(value) || self.floats.iter().any(|f| order(*value, *f) == Some(Ordering::Equal))
            }
            Value::Float(value) => {
                let whole = value.fract() == 0.0 && self.ints.contains(&(*value as i128));
                whole || self.floats.contains(value)
            }
            Value::Null | Value::Present => false,
        }
    }
}

fn truth_value(value: Option<bool>) -> Value<'static> {
    value.map_or(Value::Null, Value::Bool)
}

/// An integer within what integers may be: -2^63 to 2^64 - 1.
fn whole(value: i128) -> Evaluated<Value<'static>> {
    if value < i64::MIN.into() || value > u64::MAX.into() {
        return Err(format!("integer overflow: {value} is outside {} to {}", i64::MIN, u64::MAX).into());
    }
    Ok(Value::Int(value))
}

fn compare<'a>(operator: Comparison, left: &Value, right: &Value) -> Evaluated<Value<'a>> {
    let ordering = match (left, right) {
        (Value::Null, _) | (_, Value::Null) => return Ok(Value::Null),
        (Value::Bool(a), Value::Bool(b)) => Some(a.cmp(b)),
        (Value::Text(a), Value::Text(b)) => Some(a.as_bytes().cmp(b.as_bytes())),
        (Value::Int(a), Value::Int(b)) => Some(a.cmp(b)),
        (Value::Float(a), Value::Float(b)) => a.partial_cmp(b),
        (Value::Int(a), Value::Float(b)) => order(*a, *b),
        (Value::Float(a), Value::Int(b)) => order(*b, *a).map(Ordering::reverse),
        _ => return Err(MISTYPED),
    };
    Ok(Value::Bool(match operator {
        Comparison::Equal => ordering == Some(Ordering::Equal),
        Comparison::NotEqual => ordering != Some(Ordering::Equal),
        Comparison::Less => ordering == Some(Ordering::Less),
        Comparison::LessOrEqual => matches!(ordering, Some(Ordering::Less | Ordering::Equal)),
        Comparison::Greater => ordering == Some(Ordering::Greater),
        Comparison::GreaterOrEqual => matches!(ordering, Some(Ordering::Greater | Ordering::Equal)),
    }))
}

/// Exactly, without rounding the integer; `None` for NaN.
fn order(whole: i128, float: f64) -> Option<Ordering> {
    if float.is_nan() {
        return None;
    }
    // Saturates beyond 2^127, which is beyond every integer here.
    let ordering = whole.cmp(&(float.trunc() as i128));
    Some(ordering.then_with(|| 0.0_f64.total_cmp(&(float.fract() + 0.0))))
}

fn compute<'a>(operator: Arithmetic, left: Value, right: Value) -> Evaluated<Value<'a>> {
    let (a, b) = match (left, right) {
        (Value::Null, _) | (_, Value::Null) => return Ok(Value::Null),
        (Value::Int(a), Value::Int(b)) if operator != Arithmetic::Divide => return compute_whole(operator, a, b),
        (Value::Int(a), Value::Int(b)) => (a as f64, b as f64),
        (Value::Int(a), Value::Float(b)) => (a as f64, b),
        (Value::Float(a), Value::Int(b)) => (a, b as f64),
        (Value::Float(a), Value::Float(b)) => (a, b),
        _ => return Err(MISTYPED),
    };
    let value = match operator {
        Arithmetic::Add => a + b,
        Arithmetic::Subtract => a - b,
        Arithmetic::Multiply => a * b,
        Arithmetic::Divide | Arithmetic::Remainder if b == 0.0 => return Err(ZERO),
        Arithmetic::Divide => a / b,
        Arithmetic::Remainder => a % b,
    };
    if !value.is_finite() && a.is_finite() && b.is_finite() {
        return Err(format!("float overflow: {a:?} {} {b:?}", operator.symbol()).into());
    }
    Ok(Value::Float(value))
}

fn compute_whole<'a>(operator: Arithmetic, a: i128, b: i128) -> Evaluated<Value<'a>> {
    let value = match operator {
        Arithmetic::Add => a.checked_add(b),
        Arithmetic::Subtract => a.checked_sub(b),
        Arithmetic::Multiply => a.checked_mul(b),
        Arithmetic::Remainder if b == 0 => return Err(ZERO),
        // Both are nearly always small, and division of 128 bits is slow.
        Arithmetic::Remainder => match (u64::try_from(a), u64::try_from(b)) {
            (Ok(a), Ok(b)) => Some((a % b).into()),
            _ => a.checked_rem(b),
        },
        Arithmetic::Divide => return Err(MISTYPED),
    };
    whole(value.ok_or_else(|| format!("integer overflow: {a} {} {b}", operator.symbol()))?)
}

fn call<'a>(function: Function, text: &str) -> Evaluated<Value<'a>> {
    Ok(match function {
        Function::Hash => Value::Int(hash(text).into()),
        Function::Length => Value::Int(text.chars().count() as i128),
        Function::Lower => Value::Text(text.to_lowercase().into()),
        Function::Upper => Value::Text(text.to_uppercase().into()),
        _ => return Err(MISTYPED),
    })
}

fn test(function: Function, text: &str, part: &str) -> Evaluated<bool> {
    Ok(match function {
        Function::StartsWith => text.starts_with(part),
        Function::EndsWith => text.ends_with(part),
        Function::Contains => text.contains(part),
        _ => return Err(MISTYPED),
    })
}

/// The first eight bytes, big-endian, of the text's canonical hash under its own domain.
pub(super) fn hash(text: &str) -> u64 {
    let mut writer = Writer::new(Domain::KeyHash);
    writer.str(text);
    let [a, b, c, d, e, f, g, h, ..] = writer.finish();
    u64::from_be_bytes([a, b, c, d, e, f, g, h])
}
