//! Nodes to typed settings, through serde: `#[derive(Deserialize)] #[serde(deny_unknown_fields)]` and `Node::parse`.
//! Every error stands at the node that it is about and says what was expected, what was found and the nearest name.
//!
//! - A struct is a map; `Null` is an empty one, so that all its fields may have defaults.
//! - An enum is the name of a variant; a variant with content is a map with that name as its only key.
//! - Text is never taken for a number or a number for text.
//! - serde reads an untagged enum from a copy that has lost its places, so that errors stand at the enum as a whole and
//!   say nothing of the variants. Give it `#[serde(untagged, expecting = "expected an integer or [height, width]")]`:
//!   what was found is added. Better, where a settings struct is large, is a field of the plainest type and a check of
//!   its own at `Node::span_of("field")`.

use crate::error::Result;
use crate::spec::node::{Key, Node, Span, Value, nearest, one_of, quote, suggest};
use serde::de::value::StrDeserializer;
use serde::de::{self, DeserializeSeed, Deserializer, Expected, IntoDeserializer, Unexpected, Visitor};
use std::fmt;

impl Node {
    /// Reads typed settings; `Null` reads as an empty map. Errors stand at the node that they are about and name the field,
    /// what was expected and, for unknown fields, the nearest valid one.
    pub fn parse<T: de::DeserializeOwned>(&self) -> Result<T> {
        T::deserialize(self).map_err(|fault| fault.span.as_ref().unwrap_or(&self.span).error(&fault.message))
    }
}

/// An error on its way to the node that it is about; public only because serde asks for it.
#[derive(Debug)]
pub struct Fault {
    message: String,
    span: Option<Span>,
}

impl Fault {
    fn at(self, span: &Span) -> Self {
        Fault { span: self.span.or_else(|| Some(span.clone())), ..self }
    }
    fn new(span: &Span, message: String) -> Self {
        Fault { message, span: Some(span.clone()) }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Fault {}

impl de::Error for Fault {
    fn custom<T: fmt::Display>(message: T) -> Self {
        Fault { message: message.to_string(), span: None }
    }
    fn invalid_type(found: Unexpected, expected: &dyn Expected) -> Self {
        Self::custom(format_args!("expected {expected}, found {}", name(&found)))
    }
    fn invalid_value(found: Unexpected, expected: &dyn Expected) -> Self {
        Self::invalid_type(found, expected)
    }
    fn invalid_length(length: usize, expected: &dyn Expected) -> Self {
        Self::custom(format_args!("expected {expected}, found {length} items"))
    }
    fn unknown_variant(variant: &str, expected: &'static [&'static str]) -> Self {
        let names = || expected.iter().copied();
        let hint = nearest(variant, names()).map(|near| format!("; did you mean {near:?}?"));
        let hint = hint.unwrap_or_default();
        Self::custom(format_args!("expected {}, found {}{hint}", one_of(names()), quote(variant)))
    }
    fn unknown_field(field: &str, expected: &'static [&'static str]) -> Self {
        if expected.is_empty() {
            return Self::custom(format_args!("unknown field {}; there are none here", quote(field)));
        }
        let hint = suggest(field, "expected", expected.iter().copied());
        Self::custom(format_args!("unknown field {}; {hint}", quote(field)))
    }
    fn missing_field(field: &'static str) -> Self {
        Self::custom(format_args!("the field {field:?} is missing"))
    }
}

fn name(found: &Unexpected) -> String {
    match found {
        Unexpected::Bool(value) => value.to_string(),
        Unexpected::Unsigned(value) => value.to_string(),
        Unexpected::Signed(value) => value.to_string(),
        Unexpected::Float(value) => format!("{value:?}"),
        Unexpected::Str(text) => quote(text),
        Unexpected::Unit | Unexpected::Option => "nothing".to_owned(),
        Unexpected::Seq => "a list".to_owned(),
        Unexpected::Map => "a map".to_owned(),
        other => other.to_string(),
    }
}

impl Node {
    fn wanted(&self, what: impl fmt::Display) -> Fault {
        Fault::new(&self.span, format!("expected {what}, found {}", self.found()))
    }

    /// Places an error that a visitor made; what it calls only "expected ..." is given what was found.
    fn place<T>(&self, result: Result<T, Fault>) -> Result<T, Fault> {
        result.map_err(|fault| match fault.span {
            None if fault.message.starts_with("expected ") && !fault.message.contains("found ") => {
                Fault::new(&self.span, format!("{}, found {}", fault.message, self.found()))
            }
            _ => fault.at(&self.span),
        })
    }

    fn integer(&self, min: i128, max: i128) -> Result<i64, Fault> {
        match self.value {
            Value::Int(value) if (min..=max).contains(&i128::from(value)) => Ok(value),
            Value::Int(_) if max > i128::from(u32::MAX) => {
                Err(self.wanted(format_args!("an integer of at least {min}")))
            }
            Value::Int(_) => Err(self.wanted(format_args!("an integer from {min} to {max}"))),
            _ => Err(self.wanted("an integer")),
        }
    }

    fn number(&self) -> Result<f64, Fault> {
        match self.value {
            Value::Int(value) => Ok(value as f64),
            Value::Float(value) if value.is_finite() => Ok(value),
            Value::Float(_) => Err(self.wanted("a finite number")),
            _ => Err(self.wanted("a number")),
        }
    }

    fn text(&self) -> Result<&str, Fault> {
        match &self.value {
            Value::Str(text) => Ok(text),
            Value::Null | Value::List(_) | Value::Map(_) => Err(self.wanted("text")),
            _ => Err(Fault::new(&self.span, format!("expected text, found {0}; quote it: \"{0}\"", self.found()))),
        }
    }

    fn items(&self) -> Result<&[Node], Fault> {
        match &self.value {
            Value::List(items) => Ok(items),
            _ => Err(self.wanted("a list")),
        }
    }

    fn pairs(&self, what: &dyn fmt::Display) -> Result<&[(Key, Node)], Fault> {
        match &self.value {
            Value::Null => Ok(&[]),
            Value::Map(pairs) => Ok(pairs),
            _ => Err(self.wanted(what)),
        }
    }
}

macro_rules! integers {
    ($($method:ident $visit:ident $kind:ty),*) => {$(
        fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
            let value = self.integer(i128::from(<$kind>::MIN), i128::from(<$kind>::MAX))?;
            // In range by the check above.
            self.place(visitor.$visit(value as $kind))
        }
    )*};
}

impl<'de> Deserializer<'de> for &'de Node {
    type Error = Fault;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        self.place(match &self.value {
            Value::Null => visitor.visit_unit(),
            Value::Bool(value) => visitor.visit_bool(*value),
            Value::Int(value) => visitor.visit_i64(*value),
            Value::Float(_) => visitor.visit_f64(self.number()?),
            Value::Str(text) => visitor.visit_borrowed_str(text),
            Value::List(items) => visitor.visit_seq(Items(items.iter())),
            Value::Map(pairs) => visitor.visit_map(Pairs { pairs: pairs.iter(), value: None }),
        })
    }

    integers!(
        deserialize_i8 visit_i8 i8, deserialize_i16 visit_i16 i16, deserialize_i32 visit_i32 i32, deserialize_i64 visit_i64 i64,
        deserialize_u8 visit_u8 u8, deserialize_u16 visit_u16 u16, deserialize_u32 visit_u32 u32, deserialize_u64 visit_u64 u64
    );

    fn deserialize_bool<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        match self.value {
            Value::Bool(value) => self.place(visitor.visit_bool(value)),
            _ => Err(self.wanted("true or false")),
        }
    }
    fn deserialize_f32<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        let value = self.number()? as f32;
        if value.is_finite() {
            self.place(visitor.visit_f32(value))
        } else {
            Err(self.wanted("a number within ±3.4e38"))
        }
    }
    fn deserialize_f64<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        let value = self.number()?;
        self.place(visitor.visit_f64(value))
    }
    fn deserialize_char<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        let text = self.text()?;
        let mut characters = text.chars();
        match (characters.next(), characters.next()) {
            (Some(one), None) => self.place(visitor.visit_char(one)),
            _ => Err(self.wanted("one character")),
        }
    }
    fn deserialize_str<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        self.place(visitor.visit_borrowed_str(self.text()?))
    }
    fn deserialize_string<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        self.deserialize_str(visitor)
    }
    fn deserialize_identifier<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        self.deserialize_str(visitor)
    }
    fn deserialize_bytes<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        self.deserialize_str(visitor)
    }
    fn deserialize_byte_buf<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        self.deserialize_str(visitor)
    }
    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        self.place(if self.value == Value::Null { visitor.visit_none() } else { visitor.visit_some(self) })
    }
    fn deserialize_unit<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        if self.value == Value::Null { self.place(visitor.visit_unit()) } else { Err(self.wanted("nothing")) }
    }
    fn deserialize_unit_struct<V: Visitor<'de>>(self, _name: &'static str, visitor: V) -> Result<V::Value, Fault> {
        self.deserialize_unit(visitor)
    }
    fn deserialize_newtype_struct<V: Visitor<'de>>(self, _name: &'static str, visitor: V) -> Result<V::Value, Fault> {
        self.place(visitor.visit_newtype_struct(self))
    }
    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        self.place(visitor.visit_seq(Items(self.items()?.iter())))
    }
    fn deserialize_tuple<V: Visitor<'de>>(self, length: usize, visitor: V) -> Result<V::Value, Fault> {
        match &self.value {
            Value::List(items) if items.len() == length => self.place(visitor.visit_seq(Items(items.iter()))),
            _ => Err(self.wanted(format_args!("a list of {length} items"))),
        }
    }
    fn deserialize_tuple_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        length: usize,
        visitor: V,
    ) -> Result<V::Value, Fault> {
        self.deserialize_tuple(length, visitor)
    }
    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        self.place(visitor.visit_map(Pairs { pairs: self.pairs(&"a map")?.iter(), value: None }))
    }
    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Fault> {
        let what = format!("a map with the fields {}", one_of(fields.iter().copied()));
        self.place(visitor.visit_map(Pairs { pairs: self.pairs(&what)?.iter(), value: None }))
    }
    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Fault> {
        self.place(match &self.value {
            Value::Str(text) => visitor.visit_enum(Choice { name: text, span: &self.span, content: None }),
            Value::Map(pairs) => match pairs.as_slice() {
                [(key, node)] => visitor.visit_enum(Choice { name: &key.name, span: &key.span, content: Some(node) }),
                _ => Err(self.wanted(format_args!("{} as the only key", one_of(variants.iter().copied())))),
            },
            _ => Err(self.wanted(one_of(variants.iter().copied()))),
        })
    }
    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        self.place(visitor.visit_unit())
    }
}

struct Items<'de>(std::slice::Iter<'de, Node>);

impl<'de> de::SeqAccess<'de> for Items<'de> {
    type Error = Fault;
    fn next_element_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>, Fault> {
        self.0.next().map(|node| node.place(seed.deserialize(node))).transpose()
    }
    fn size_hint(&self) -> Option<usize> {
        Some(self.0.len())
    }
}

struct Pairs<'de> {
    pairs: std::slice::Iter<'de, (Key, Node)>,
    value: Option<&'de Node>,
}

impl<'de> de::MapAccess<'de> for Pairs<'de> {
    type Error = Fault;
    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, Fault> {
        let Some((key, node)) = self.pairs.next() else { return Ok(None) };
        self.value = Some(node);
        let name: StrDeserializer<'de, Fault> = key.name.as_str().into_deserializer();
        seed.deserialize(name).map(Some).map_err(|fault| fault.at(&key.span))
    }
    fn next_value_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<T::Value, Fault> {
        let node = self.value.take().ok_or_else(|| <Fault as de::Error>::custom("expected a key before its value"))?;
        node.place(seed.deserialize(node))
    }
    fn size_hint(&self) -> Option<usize> {
        Some(self.pairs.len())
    }
}

/// The variant `name`, with what stands behind its colon.
struct Choice<'de> {
    name: &'de str,
    span: &'de Span,
    content: Option<&'de Node>,
}

impl<'de> Choice<'de> {
    fn content(&self) -> Result<&'de Node, Fault> {
        let missing = || format!("{0} needs settings: expected {{{0}: ...}}", self.name);
        self.content.ok_or_else(|| Fault::new(self.span, missing()))
    }
}

impl<'de> de::EnumAccess<'de> for Choice<'de> {
    type Error = Fault;
    type Variant = Self;
    fn variant_seed<V: DeserializeSeed<'de>>(self, seed: V) -> Result<(V::Value, Self), Fault> {
        let name: StrDeserializer<'de, Fault> = self.name.into_deserializer();
        let variant = seed.deserialize(name).map_err(|fault| fault.at(self.span))?;
        Ok((variant, self))
    }
}

impl<'de> de::VariantAccess<'de> for Choice<'de> {
    type Error = Fault;
    fn unit_variant(self) -> Result<(), Fault> {
        match self.content {
            Some(node) if node.value != Value::Null => Err(node.wanted("nothing")),
            _ => Ok(()),
        }
    }
    fn newtype_variant_seed<T: DeserializeSeed<'de>>(self, seed: T) -> Result<T::Value, Fault> {
        let node = self.content()?;
        node.place(seed.deserialize(node))
    }
    fn tuple_variant<V: Visitor<'de>>(self, length: usize, visitor: V) -> Result<V::Value, Fault> {
        self.content()?.deserialize_tuple(length, visitor)
    }
    fn struct_variant<V: Visitor<'de>>(self, fields: &'static [&'static str], visitor: V) -> Result<V::Value, Fault> {
        self.content()?.deserialize_struct("", fields, visitor)
    }
}
