//! Canonical encoding: one sequence of bytes for one meaning, and the hash of it under a domain. The rules and vectors
//! stand in `formats/canonical.md`; an independent Python script there reproduces them.

mod serialize;

use crate::error::{Error, Result};
use std::collections::BTreeMap;

/// A value with exactly one encoding. Maps are sorted by the UTF-8 bytes of their keys. A float that is a whole number
/// within ±2^53 is the same value as the integer; NaN and infinities have no encoding.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    Null,
    Bool(bool),
    /// From -2^63 to 2^64 - 1.
    Int(i128),
    Float(f64),
    Str(String),
    List(Vec<Value>),
    Map(BTreeMap<String, Value>),
}

/// What is hashed: the same value under two domains has two unrelated digests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Domain {
    /// A recipe (`RecipeKey`).
    Recipe,
    /// A shard (`ShardKey`).
    Shard,
    /// The rows of a snapshot's entries table (`SnapshotId`).
    Snapshot,
    /// The rows of an order table (`OrderId`).
    Order,
    /// An entry's place in the hash order of its dataset.
    EntryOrder,
    /// Values carried by a row together with the objects that it names (`Identity::Row`).
    Row,
    /// The stream of random bits of one (seed, epoch, sample, step).
    Random,
    /// The permutation of shards in an epoch.
    ShardOrder,
    /// The permutation of the rows of one block.
    BlockOrder,
    /// `hash(key)` in expressions.
    KeyHash,
}

impl Domain {
    pub const ALL: [Domain; 10] = [
        Domain::Recipe,
        Domain::Shard,
        Domain::Snapshot,
        Domain::Order,
        Domain::EntryOrder,
        Domain::Row,
        Domain::Random,
        Domain::ShardOrder,
        Domain::BlockOrder,
        Domain::KeyHash,
    ];

    pub const fn name(self) -> &'static str {
        match self {
            Domain::Recipe => "recipe",
            Domain::Shard => "shard",
            Domain::Snapshot => "snapshot",
            Domain::Order => "order",
            Domain::EntryOrder => "entry-order",
            Domain::Row => "row",
            Domain::Random => "random",
            Domain::ShardOrder => "shard-order",
            Domain::BlockOrder => "block-order",
            Domain::KeyHash => "key-hash",
        }
    }
}

const NULL: u8 = 0;
const FALSE: u8 = 1;
const TRUE: u8 = 2;
const INT: u8 = 3;
const UINT: u8 = 4;
const FLOAT: u8 = 5;
const STR: u8 = 6;
const LIST: u8 = 7;
const MAP: u8 = 8;

/// Encodes values straight into a hash, so that a table of a million rows needs no tree.
#[derive(Clone)]
pub struct Writer {
    hasher: blake3::Hasher,
    /// What is not hashed yet: hashing many bytes at once is several times faster.
    buffer: Vec<u8>,
}

const BUFFER_BYTES: usize = 16 << 10;

impl Writer {
    /// Begins with `forebay/v1/`, the domain's name and a zero byte.
    pub fn new(domain: Domain) -> Self {
        let mut writer = Writer { hasher: blake3::Hasher::new(), buffer: Vec::with_capacity(256) };
        writer.put(b"forebay/v1/");
        writer.put(domain.name().as_bytes());
        writer.put(&[0]);
        writer
    }
    pub fn null(&mut self) {
        self.put(&[NULL]);
    }
    pub fn bool(&mut self, value: bool) {
        self.put(&[if value { TRUE } else { FALSE }]);
    }
    /// Eight bytes, big-endian; panics outside -2^63..2^64, which no caller can reach with values of 64 bits.
    pub fn int(&mut self, value: i128) {
        if let Ok(value) = i64::try_from(value) {
            self.put(&[INT]);
            self.put(&value.to_be_bytes());
        } else {
            let value = u64::try_from(value).expect("an integer of at most 64 bits");
            self.put(&[UINT]);
            self.put(&value.to_be_bytes());
        }
    }
    pub fn str(&mut self, value: &str) {
        self.put(&[STR]);
        self.length(value.len());
        self.put(value.as_bytes());
    }
    /// Announces a list; exactly `length` values must follow.
    pub fn list(&mut self, length: usize) {
        self.put(&[LIST]);
        self.length(length);
    }
    /// Errors with `Invalid` on a float that has no encoding.
    pub fn value(&mut self, value: &Value) -> Result<()> {
        match value {
            Value::Null => self.null(),
            Value::Bool(value) => self.bool(*value),
            Value::Int(value) => self.int(*value),
            Value::Float(value) => return self.float(*value),
            Value::Str(value) => self.str(value),
            Value::List(values) => {
                self.list(values.len());
                for value in values {
                    self.value(value)?;
                }
            }
            Value::Map(values) => {
                self.put(&[MAP]);
                self.length(values.len());
                for (key, value) in values {
                    self.str(key);
                    self.value(value)?;
                }
            }
        }
        Ok(())
    }
    pub fn finish(&self) -> [u8; 32] {
        *self.hashed().finalize().as_bytes()
    }
    /// An endless stream of bytes instead of 32.
    pub fn stream(&self) -> blake3::OutputReader {
        self.hashed().finalize_xof()
    }

    fn float(&mut self, value: f64) -> Result<()> {
        const WHOLE: f64 = 9_007_199_254_740_992.0; // 2^53
        if !value.is_finite() {
            return Err(Error::invalid(format!("{value} can't be part of a key; expected a finite number")));
        }
        if value.fract() == 0.0 && value.abs() <= WHOLE {
            self.int(value as i128);
        } else {
            self.put(&[FLOAT]);
            self.put(&value.to_bits().to_be_bytes());
        }
        Ok(())
    }
    fn hashed(&self) -> blake3::Hasher {
        let mut hasher = self.hasher.clone();
        hasher.update(&self.buffer);
        hasher
    }
    fn put(&mut self, bytes: &[u8]) {
        self.buffer.extend_from_slice(bytes);
        if self.buffer.len() >= BUFFER_BYTES {
            self.hasher.update(&self.buffer);
            self.buffer.clear();
        }
    }
    fn length(&mut self, length: usize) {
        self.put(&(length as u64).to_be_bytes());
    }
}

/// The digest of one value under a domain.
pub fn hash(domain: Domain, value: &Value) -> Result<[u8; 32]> {
    let mut writer = Writer::new(domain);
    writer.value(value)?;
    Ok(writer.finish())
}

impl Value {
    pub fn map<K: Into<String>>(fields: impl IntoIterator<Item = (K, Value)>) -> Value {
        Value::Map(fields.into_iter().map(|(key, value)| (key.into(), value)).collect())
    }
    /// From plain data; a struct's fields become a map. Errors with `Invalid` on what has no canonical form, such as NaN.
    pub fn of(data: &impl serde::Serialize) -> Result<Value> {
        data.serialize(serialize::Serializer)
            .map_err(|e| Error::invalid("these settings have no canonical form").caused_by(e))
    }
    pub fn to_json(&self) -> serde_json::Value {
        match self {
            Value::Null => serde_json::Value::Null,
            Value::Bool(value) => (*value).into(),
            Value::Int(value) => match i64::try_from(*value) {
                Ok(value) => value.into(),
                Err(_) => (*value as u64).into(),
            },
            Value::Float(value) => (*value).into(),
            Value::Str(value) => value.clone().into(),
            Value::List(values) => values.iter().map(Value::to_json).collect(),
            Value::Map(values) => {
                serde_json::Value::Object(values.iter().map(|(k, v)| (k.clone(), v.to_json())).collect())
            }
        }
    }
}

impl From<&str> for Value {
    fn from(value: &str) -> Self {
        Value::Str(value.to_owned())
    }
}
impl From<String> for Value {
    fn from(value: String) -> Self {
        Value::Str(value)
    }
}
impl From<bool> for Value {
    fn from(value: bool) -> Self {
        Value::Bool(value)
    }
}
impl From<u64> for Value {
    fn from(value: u64) -> Self {
        Value::Int(value.into())
    }
}
impl From<i64> for Value {
    fn from(value: i64) -> Self {
        Value::Int(value.into())
    }
}
impl<T: Into<Value>> From<Option<T>> for Value {
    fn from(value: Option<T>) -> Self {
        value.map_or(Value::Null, Into::into)
    }
}
impl<T: Into<Value>> From<Vec<T>> for Value {
    fn from(values: Vec<T>) -> Self {
        Value::List(values.into_iter().map(Into::into).collect())
    }
}

impl TryFrom<&serde_json::Value> for Value {
    type Error = Error;
    fn try_from(json: &serde_json::Value) -> Result<Self> {
        Ok(match json {
            serde_json::Value::Null => Value::Null,
            serde_json::Value::Bool(value) => Value::Bool(*value),
            serde_json::Value::Number(number) => match (number.as_i64(), number.as_u64(), number.as_f64()) {
                (Some(value), _, _) => Value::Int(value.into()),
                (_, Some(value), _) => Value::Int(value.into()),
                (_, _, Some(value)) => Value::Float(value),
                _ => return Err(Error::invalid(format!("the number {number} has no canonical form"))),
            },
            serde_json::Value::String(value) => Value::Str(value.clone()),
            serde_json::Value::Array(values) => Value::List(values.iter().map(Value::try_from).collect::<Result<_>>()?),
            serde_json::Value::Object(values) => {
                Value::Map(values.iter().map(|(k, v)| Ok((k.clone(), Value::try_from(v)?))).collect::<Result<_>>()?)
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_floats_are_integers_and_domains_differ() {
        let digest = |value| hash(Domain::Recipe, &value).unwrap();
        assert_eq!(digest(Value::Int(256)), digest(Value::Float(256.0)));
        assert_eq!(digest(Value::Int(0)), digest(Value::Float(-0.0)));
        assert_ne!(digest(Value::Float(0.5)), digest(Value::Int(0)));
        assert_ne!(digest(Value::Null), hash(Domain::Shard, &Value::Null).unwrap());
        assert!(hash(Domain::Recipe, &Value::Float(f64::NAN)).is_err());
    }

    #[test]
    fn structure_can_not_be_shifted() {
        let nested = |v: Vec<Vec<&str>>| hash(Domain::Recipe, &Value::from(v)).unwrap();
        assert_ne!(nested(vec![vec!["ab"], vec!["c"]]), nested(vec![vec!["a"], vec!["bc"]]));
        assert_ne!(nested(vec![vec!["a"], vec![]]), nested(vec![vec![], vec!["a"]]));
    }
}
