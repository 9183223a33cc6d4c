//! Casting single values: numbers and bool to each other exactly or not at all, and from and to texts.

use crate::error::{Error, Result};
use arrow::array::{
    Array, ArrayRef, AsArray, BooleanArray, BooleanBufferBuilder, LargeStringArray, LargeStringBuilder, PrimitiveArray,
};
use arrow::buffer::NullBuffer;
use arrow::compute;
use arrow::datatypes::{
    ArrowPrimitiveType, DataType, Float16Type, Float32Type, Float64Type, Int8Type, Int16Type, Int32Type, Int64Type,
    UInt8Type, UInt16Type, UInt32Type, UInt64Type,
};
use half::f16;
use std::ops::Range;
use std::sync::Arc;

pub(super) const fn is_number(data_type: &DataType) -> bool {
    use DataType::{Boolean, Float16, Float32, Float64, Int8, Int16, Int32, Int64, UInt8, UInt16, UInt32, UInt64};
    matches!(
        data_type,
        Boolean | UInt8 | UInt16 | UInt32 | UInt64 | Int8 | Int16 | Int32 | Int64 | Float16 | Float32 | Float64
    )
}

pub(super) fn is_text(data_type: &DataType) -> bool {
    match data_type {
        DataType::Dictionary(_, values) => values.is_string(),
        other => other.is_string(),
    }
}

/// A value on its way, in the form that loses nothing.
#[derive(Debug, Clone, Copy)]
enum Number {
    Int(i64),
    UInt(u64),
    Float32(f32),
    Float64(f64),
}

/// What values are cast from and to.
trait Element: Copy + Default {
    fn number(self) -> Number;
    /// `None` where the number has no place in this type.
    fn from_number(number: Number) -> Option<Self>;
    /// `None` where the text is no value of this type.
    fn from_text(text: &str) -> Option<Self>;
    fn to_text(self) -> String;
}

macro_rules! integer {
    ($($native:ty, $wide:ident, $as:ty);*) => {$(
        impl Element for $native {
            fn number(self) -> Number {
                Number::$wide(<$as>::from(self))
            }
            fn from_number(number: Number) -> Option<Self> {
                match number {
                    Number::Int(value) => value.try_into().ok(),
                    Number::UInt(value) => value.try_into().ok(),
                    Number::Float32(value) => whole(value.into())?.try_into().ok(),
                    Number::Float64(value) => whole(value)?.try_into().ok(),
                }
            }
            fn from_text(text: &str) -> Option<Self> {
                text.parse().ok()
            }
            fn to_text(self) -> String {
                self.to_string()
            }
        }
    )*};
}

integer!(u8, Int, i64; u16, Int, i64; u32, Int, i64; u64, UInt, u64; i8, Int, i64; i16, Int, i64; i32, Int, i64; i64, Int, i64);

/// A float that is a whole number of at most 64 bits.
fn whole(value: f64) -> Option<i128> {
    const LIMIT: f64 = 18_446_744_073_709_551_616.0; // 2^64
    (value.fract() == 0.0 && value.abs() <= LIMIT).then_some(value as i128)
}

/// A finite number must not become infinite; every NaN becomes the same one.
macro_rules! float {
    ($($native:ty, $nan:expr, $variant:ident($text:ty), $from_int:expr, $from_uint:expr, $from32:expr, $from64:expr);*) => {$(
        impl Element for $native {
            fn number(self) -> Number {
                Number::$variant(self.into())
            }
            fn from_number(number: Number) -> Option<Self> {
                let (rounded, finite) = match number {
                    Number::Int(value) => ($from_int(value), true),
                    Number::UInt(value) => ($from_uint(value), true),
                    Number::Float32(value) => ($from32(value), value.is_finite()),
                    Number::Float64(value) => ($from64(value), value.is_finite()),
                };
                if rounded.is_nan() {
                    return Some($nan);
                }
                (rounded.is_finite() || !finite).then_some(rounded)
            }
            fn from_text(text: &str) -> Option<Self> {
                let value: $text = text.parse().ok()?;
                // A text of digits that overflows is no infinity.
                if value.is_infinite() && text.bytes().any(|b| b.is_ascii_digit()) {
                    return None;
                }
                Self::from_number(Number::$variant(value))
            }
            fn to_text(self) -> String {
                format!("{self:?}")
            }
        }
    )*};
}

float!(
    f16, f16::NAN, Float32(f32), |v: i64| f16::from_f64(v as f64), |v: u64| f16::from_f64(v as f64), f16::from_f32, f16::from_f64;
    f32, f32::NAN, Float32(f32), |v: i64| v as f32, |v: u64| v as f32, |v: f32| v, |v: f64| v as f32;
    f64, f64::NAN, Float64(f64), |v: i64| v as f64, |v: u64| v as f64, f64::from, |v: f64| v
);

impl Element for bool {
    fn number(self) -> Number {
        Number::Int(self.into())
    }
    fn from_number(number: Number) -> Option<Self> {
        match u8::from_number(number)? {
            0 => Some(false),
            1 => Some(true),
            _ => None,
        }
    }
    fn from_text(text: &str) -> Option<Self> {
        match text {
            "true" | "True" | "TRUE" | "1" => Some(true),
            "false" | "False" | "FALSE" | "0" => Some(false),
            _ => None,
        }
    }
    fn to_text(self) -> String {
        self.to_string()
    }
}

/// What is cast and how failures are told.
struct Job<'a> {
    target: &'a DataType,
    rows: usize,
    /// The elements of a row.
    span: &'a dyn Fn(usize) -> Range<usize>,
    /// Rows that are null and not looked at.
    skip: &'a dyn Fn(usize) -> bool,
}

/// Casts the elements of every row that isn't skipped; the others become zero, false or empty. A row with an element that
/// can't be cast is added to `failed` with the first reason.
pub(super) fn cast(
    values: &ArrayRef,
    target: &DataType,
    rows: usize,
    span: &dyn Fn(usize) -> Range<usize>,
    skip: &dyn Fn(usize) -> bool,
    failed: &mut Vec<(usize, String)>,
) -> Result<ArrayRef> {
    let job = Job { target, rows, span, skip };
    macro_rules! from {
        ($type:ty) => {{
            let array = values.as_primitive::<$type>();
            let source = array.values();
            job.dispatch(array, &|i| source.get(i).copied().unwrap_or_default(), failed)
        }};
    }
    match values.data_type() {
        DataType::UInt8 => from!(UInt8Type),
        DataType::UInt16 => from!(UInt16Type),
        DataType::UInt32 => from!(UInt32Type),
        DataType::UInt64 => from!(UInt64Type),
        DataType::Int8 => from!(Int8Type),
        DataType::Int16 => from!(Int16Type),
        DataType::Int32 => from!(Int32Type),
        DataType::Int64 => from!(Int64Type),
        DataType::Float16 => from!(Float16Type),
        DataType::Float32 => from!(Float32Type),
        DataType::Float64 => from!(Float64Type),
        DataType::Boolean => {
            let array = values.as_boolean();
            job.dispatch(array, &|i| array.value(i), failed)
        }
        other if is_text(other) => {
            let texts = compute::cast(values, &DataType::LargeUtf8)?;
            job.texts(texts.as_string::<i64>(), failed)
        }
        other => Err(Error::internal(format!("can't cast values of type {other}"))),
    }
}

impl Job<'_> {
    fn dispatch<S: Element>(
        &self,
        array: &dyn Array,
        get: &impl Fn(usize) -> S,
        failed: &mut Vec<(usize, String)>,
    ) -> Result<ArrayRef> {
        macro_rules! to {
            ($type:ty) => {
                self.primitive::<$type>(
                    array,
                    &|i| Element::from_number(get(i).number()),
                    &|i| get(i).to_text(),
                    failed,
                )
            };
        }
        Ok(match self.target {
            DataType::UInt8 => to!(UInt8Type),
            DataType::UInt16 => to!(UInt16Type),
            DataType::UInt32 => to!(UInt32Type),
            DataType::UInt64 => to!(UInt64Type),
            DataType::Int8 => to!(Int8Type),
            DataType::Int16 => to!(Int16Type),
            DataType::Int32 => to!(Int32Type),
            DataType::Int64 => to!(Int64Type),
            DataType::Float16 => to!(Float16Type),
            DataType::Float32 => to!(Float32Type),
            DataType::Float64 => to!(Float64Type),
            DataType::Boolean => {
                self.bools(array, &|i| bool::from_number(get(i).number()), &|i| get(i).to_text(), failed)
            }
            DataType::LargeUtf8 => {
                let mut builder = LargeStringBuilder::new();
                for i in 0..array.len() {
                    let text = if (self.skip)(i) { String::new() } else { get(i).to_text() };
                    builder.append_value(text);
                }
                Arc::new(builder.finish())
            }
            other => return Err(Error::internal(format!("can't cast values to {other}"))),
        })
    }

    fn texts(&self, array: &LargeStringArray, failed: &mut Vec<(usize, String)>) -> Result<ArrayRef> {
        macro_rules! to {
            ($type:ty) => {
                self.primitive::<$type>(
                    array,
                    &|i| Element::from_text(array.value(i)),
                    &|i| format!("{:?}", shortened(array.value(i))),
                    failed,
                )
            };
        }
        Ok(match self.target {
            DataType::UInt8 => to!(UInt8Type),
            DataType::UInt16 => to!(UInt16Type),
            DataType::UInt32 => to!(UInt32Type),
            DataType::UInt64 => to!(UInt64Type),
            DataType::Int8 => to!(Int8Type),
            DataType::Int16 => to!(Int16Type),
            DataType::Int32 => to!(Int32Type),
            DataType::Int64 => to!(Int64Type),
            DataType::Float16 => to!(Float16Type),
            DataType::Float32 => to!(Float32Type),
            DataType::Float64 => to!(Float64Type),
            DataType::Boolean => {
                let show = |i: usize| format!("{:?}", shortened(array.value(i)));
                self.bools(array, &|i| bool::from_text(array.value(i)), &show, failed)
            }
            DataType::LargeUtf8 => Arc::new(array.clone()),
            other => return Err(Error::internal(format!("can't cast texts to {other}"))),
        })
    }

    fn primitive<T: ArrowPrimitiveType<Native: Element>>(
        &self,
        array: &dyn Array,
        convert: &impl Fn(usize) -> Option<T::Native>,
        show: &dyn Fn(usize) -> String,
        failed: &mut Vec<(usize, String)>,
    ) -> ArrayRef {
        let nulls = array.logical_nulls();
        let mut values = vec![T::Native::default(); array.len()];
        self.each(array, show, failed, &mut |elements| {
            let bad =
                first_bad(elements.clone(), nulls.as_ref(), |index| match (values.get_mut(index), convert(index)) {
                    (Some(place), Some(value)) => {
                        *place = value;
                        true
                    }
                    _ => false,
                });
            if let (Some(_), Some(row)) = (bad, values.get_mut(elements)) {
                row.fill(T::Native::default());
            }
            bad
        });
        Arc::new(PrimitiveArray::<T>::new(values.into(), nulls))
    }

    fn bools(
        &self,
        array: &dyn Array,
        convert: &impl Fn(usize) -> Option<bool>,
        show: &dyn Fn(usize) -> String,
        failed: &mut Vec<(usize, String)>,
    ) -> ArrayRef {
        let nulls = array.logical_nulls();
        let mut values = BooleanBufferBuilder::new(array.len());
        values.append_n(array.len(), false);
        self.each(array, show, failed, &mut |elements| {
            first_bad(elements, nulls.as_ref(), |index| match convert(index) {
                Some(value) => {
                    values.set_bit(index, value);
                    true
                }
                None => false,
            })
        });
        Arc::new(BooleanArray::new(values.finish(), nulls))
    }

    /// Calls `convert` for the elements of each row that is there; it returns the first that fails.
    fn each(
        &self,
        array: &dyn Array,
        show: &dyn Fn(usize) -> String,
        failed: &mut Vec<(usize, String)>,
        convert: &mut dyn FnMut(Range<usize>) -> Option<usize>,
    ) {
        for row in (0..self.rows).filter(|row| !(self.skip)(*row)) {
            let elements = (self.span)(row);
            let elements = elements.start.min(array.len())..elements.end.min(array.len());
            if let Some(index) = convert(elements) {
                failed.push((row, format!("{} is no {}", show(index), self.target)));
            }
        }
    }
}

fn first_bad(
    mut elements: Range<usize>,
    nulls: Option<&NullBuffer>,
    mut convert: impl FnMut(usize) -> bool,
) -> Option<usize> {
    match nulls {
        None => elements.find(|index| !convert(*index)),
        Some(nulls) => elements.find(|index| nulls.is_valid(*index) && !convert(*index)),
    }
}

/// The beginning of a text, for a message.
fn shortened(text: &str) -> &str {
    text.char_indices().nth(60).map_or(text, |(end, _)| text.get(..end).unwrap_or(text))
}
