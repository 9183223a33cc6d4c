//! Plain data to canonical values. Unlike JSON's serializer, which turns NaN and infinities into null without a word, this
//! one refuses them: two different parameters must never share a key.

use super::Value;
use serde::ser::{self, Impossible, Serialize};
use std::collections::BTreeMap;
use std::fmt;

/// Why data has no canonical form.
#[derive(Debug)]
pub struct Refused(String);

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Refused {}

impl ser::Error for Refused {
    fn custom<T: fmt::Display>(message: T) -> Self {
        Refused(message.to_string())
    }
}

/// Structs, maps and variants with contents become maps; sequences and tuples lists; variants without contents their names.
pub struct Serializer;

macro_rules! integers {
    ($($method:ident $kind:ty),*) => {$(
        fn $method(self, value: $kind) -> Result<Value, Refused> {
            Ok(Value::Int(value.into()))
        }
    )*};
}

impl ser::Serializer for Serializer {
    type Ok = Value;
    type Error = Refused;
    type SerializeSeq = List;
    type SerializeTuple = List;
    type SerializeTupleStruct = List;
    type SerializeTupleVariant = Impossible<Value, Refused>;
    type SerializeMap = Map;
    type SerializeStruct = Map;
    type SerializeStructVariant = Map;

    integers!(
        serialize_i8 i8, serialize_i16 i16, serialize_i32 i32, serialize_i64 i64,
        serialize_u8 u8, serialize_u16 u16, serialize_u32 u32, serialize_u64 u64
    );

    fn serialize_bool(self, value: bool) -> Result<Value, Refused> {
        Ok(Value::Bool(value))
    }
    fn serialize_f32(self, value: f32) -> Result<Value, Refused> {
        self.serialize_f64(value.into())
    }
    fn serialize_f64(self, value: f64) -> Result<Value, Refused> {
        match value.is_finite() {
            true => Ok(Value::Float(value)),
            false => Err(Refused(format!("expected a finite number, found {value}"))),
        }
    }
    fn serialize_char(self, value: char) -> Result<Value, Refused> {
        Ok(Value::Str(value.into()))
    }
    fn serialize_str(self, value: &str) -> Result<Value, Refused> {
        Ok(value.into())
    }
    fn serialize_bytes(self, _: &[u8]) -> Result<Value, Refused> {
        Err(Refused("expected text, found bytes".to_owned()))
    }
    fn serialize_none(self) -> Result<Value, Refused> {
        Ok(Value::Null)
    }
    fn serialize_some<T: Serialize + ?Sized>(self, value: &T) -> Result<Value, Refused> {
        value.serialize(self)
    }
    fn serialize_unit(self) -> Result<Value, Refused> {
        Ok(Value::Null)
    }
    fn serialize_unit_struct(self, _: &'static str) -> Result<Value, Refused> {
        Ok(Value::Null)
    }
    fn serialize_unit_variant(self, _: &'static str, _: u32, variant: &'static str) -> Result<Value, Refused> {
        Ok(variant.into())
    }
    fn serialize_newtype_struct<T: Serialize + ?Sized>(self, _: &'static str, value: &T) -> Result<Value, Refused> {
        value.serialize(self)
    }
    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        _: u32,
        variant: &'static str,
        value: &T,
    ) -> Result<Value, Refused> {
        Ok(Value::map([(variant, value.serialize(self)?)]))
    }
    fn serialize_seq(self, _: Option<usize>) -> Result<List, Refused> {
        Ok(List(Vec::new()))
    }
    fn serialize_tuple(self, _: usize) -> Result<List, Refused> {
        Ok(List(Vec::new()))
    }
    fn serialize_tuple_struct(self, _: &'static str, _: usize) -> Result<List, Refused> {
        Ok(List(Vec::new()))
    }
    fn serialize_tuple_variant(
        self,
        _: &'static str,
        _: u32,
        variant: &'static str,
        _: usize,
    ) -> Result<Self::SerializeTupleVariant, Refused> {
        Err(Refused(format!("expected {variant} to have named fields")))
    }
    fn serialize_map(self, _: Option<usize>) -> Result<Map, Refused> {
        Ok(Map::default())
    }
    fn serialize_struct(self, _: &'static str, _: usize) -> Result<Map, Refused> {
        Ok(Map::default())
    }
    fn serialize_struct_variant(
        self,
        _: &'static str,
        _: u32,
        variant: &'static str,
        _: usize,
    ) -> Result<Map, Refused> {
        Ok(Map { variant: Some(variant), ..Map::default() })
    }
}

pub struct List(Vec<Value>);

impl List {
    fn push<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), Refused> {
        self.0.push(value.serialize(Serializer)?);
        Ok(())
    }
}

macro_rules! lists {
    ($($of:ident $method:ident),*) => {$(
        impl ser::$of for List {
            type Ok = Value;
            type Error = Refused;
            fn $method<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), Refused> {
                self.push(value)
            }
            fn end(self) -> Result<Value, Refused> {
                Ok(Value::List(self.0))
            }
        }
    )*};
}

lists!(SerializeSeq serialize_element, SerializeTuple serialize_element, SerializeTupleStruct serialize_field);

#[derive(Default)]
pub struct Map {
    /// The only key of a map around this one.
    variant: Option<&'static str>,
    key: String,
    fields: BTreeMap<String, Value>,
}

impl Map {
    fn finish(self) -> Value {
        let fields = Value::Map(self.fields);
        match self.variant {
            Some(variant) => Value::map([(variant, fields)]),
            None => fields,
        }
    }
}

impl ser::SerializeMap for Map {
    type Ok = Value;
    type Error = Refused;
    fn serialize_key<T: Serialize + ?Sized>(&mut self, key: &T) -> Result<(), Refused> {
        match key.serialize(Serializer)? {
            Value::Str(key) => self.key = key,
            other => return Err(Refused(format!("expected text as a key, found {}", other.to_json()))),
        }
        Ok(())
    }
    fn serialize_value<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), Refused> {
        self.fields.insert(std::mem::take(&mut self.key), value.serialize(Serializer)?);
        Ok(())
    }
    fn end(self) -> Result<Value, Refused> {
        Ok(self.finish())
    }
}

macro_rules! structs {
    ($($of:ident),*) => {$(
        impl ser::$of for Map {
            type Ok = Value;
            type Error = Refused;
            fn serialize_field<T: Serialize + ?Sized>(&mut self, name: &'static str, value: &T) -> Result<(), Refused> {
                let value = value.serialize(Serializer).map_err(|e| Refused(format!("{name}: {}", e.0)))?;
                self.fields.insert(name.to_owned(), value);
                Ok(())
            }
            fn end(self) -> Result<Value, Refused> {
                Ok(self.finish())
            }
        }
    )*};
}

structs!(SerializeStruct, SerializeStructVariant);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Kind;
    use serde::Serialize;
    use serde_json::json;

    #[derive(Serialize)]
    struct Params {
        mean: Vec<f32>,
        fill: Option<f64>,
        mode: Mode,
        names: BTreeMap<String, (u8, i64)>,
    }

    #[derive(Serialize)]
    #[serde(rename_all = "lowercase")]
    enum Mode {
        Plain,
        Edge(u32),
        Both { left: bool },
    }

    fn params(fill: Option<f64>, mode: Mode) -> Params {
        Params { mean: vec![0.485, 1.0], fill, mode, names: BTreeMap::from([("a".to_owned(), (1, -2))]) }
    }

    #[test]
    fn values_are_those_of_json() {
        for mode in [Mode::Plain, Mode::Edge(3), Mode::Both { left: true }] {
            for data in [params(None, Mode::Plain), params(Some(0.1), mode)] {
                let json = serde_json::to_value(&data).unwrap();
                assert_eq!(Value::of(&data).unwrap(), Value::try_from(&json).unwrap());
            }
        }
        assert_eq!(Value::of(&json!({"a": [null, "x", 1.5]})).unwrap().to_json(), json!({"a": [null, "x", 1.5]}));
    }

    #[test]
    fn numbers_without_a_form_are_refused_not_null() {
        for bad in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
            let error = Value::of(&params(Some(bad), Mode::Plain)).unwrap_err();
            assert_eq!(error.kind(), Kind::Invalid);
            assert!(error.chain().contains(&format!("fill: expected a finite number, found {bad}")), "{error:?}");
        }
        assert!(Value::of(&[f32::NAN]).is_err());
        assert!(Value::of(&BTreeMap::from([(1, 2)])).is_err());
    }
}
