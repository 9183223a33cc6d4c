//! The small JSON objects of a store, for people and programs: one form of bytes for one value, and untrusted bytes
//! checked before anyone sees a value. What each holds stands in `head` and `record`; `formats/heads.md` specifies them.

use crate::error::{Error, Result};
use crate::format::VERSION;
use serde::Serialize;
use serde::de::DeserializeOwned;

/// A head, a record or a report.
pub trait Document: Serialize + DeserializeOwned {
    /// What it is called in errors.
    const WHAT: &'static str;
    /// The largest accepted size.
    const MAX_BYTES: u64;

    /// What a sound document of this version fulfils; the error is `Corrupt` and names what was expected and found.
    fn check(&self) -> Result<()>;

    /// Indented JSON in the order of the fields, maps sorted, with a newline at the end; the bytes are a function of
    /// the value.
    fn to_json(&self) -> Vec<u8> {
        let mut bytes = serde_json::to_vec_pretty(self).expect("documents have string keys only");
        bytes.push(b'\n');
        bytes
    }

    /// Errors: `Invalid` where a newer version wrote it, else `Corrupt`. The caller adds the object's name.
    fn from_json(bytes: &[u8]) -> Result<Self> {
        if bytes.len() as u64 > Self::MAX_BYTES {
            return Err(corrupt::<Self>(format!("at most {} bytes, found {}", Self::MAX_BYTES, bytes.len())));
        }
        let unreadable = |e: serde_json::Error| corrupt::<Self>("its JSON fields").caused_by(e);
        // Only the version of a newer document can be relied upon, so it is read first.
        let Version { version } = serde_json::from_slice(bytes).map_err(unreadable)?;
        check_version(Self::WHAT, version)?;
        let document: Self = serde_json::from_slice(bytes).map_err(unreadable)?;
        document.check()?;
        Ok(document)
    }
}

#[derive(serde::Deserialize)]
struct Version {
    version: u64,
}

/// Refuses what a newer Forebay wrote, by name, and versions that never were.
pub(super) fn check_version(what: &str, version: u64) -> Result<()> {
    match version {
        1.. if version <= u64::from(VERSION) => Ok(()),
        0 => Err(Error::corrupt(format!("bad {what}: expected a version from 1 to {VERSION}, found 0"))),
        _ => Err(Error::invalid(format!(
            "this {what} was written by a newer Forebay: version {version}, this one reads up to {VERSION}; use the newer one"
        ))),
    }
}

pub(super) fn corrupt<T: Document>(expected: impl std::fmt::Display) -> Error {
    Error::corrupt(format!("bad {}: expected {expected}", T::WHAT))
}

/// A `Corrupt` error unless the two are equal.
pub(super) fn equal<T: Document, V: PartialEq + std::fmt::Display>(what: &str, expected: V, found: V) -> Result<()> {
    if expected == found {
        return Ok(());
    }
    Err(corrupt::<T>(format!("{what} {expected}, found {found}")))
}

/// A `Corrupt` error unless `found` is at most `most`.
pub(super) fn at_most<T: Document>(what: &str, most: u64, found: impl Into<u128>) -> Result<()> {
    let found = found.into();
    if found <= u128::from(most) {
        return Ok(());
    }
    Err(corrupt::<T>(format!("{what} of at most {most}, found {found}")))
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::error::Kind;

    /// Every truncation is an error; every flipped bit is an error or another sound value.
    pub fn damage<T: Document + PartialEq + std::fmt::Debug>(document: &T) {
        let bytes = document.to_json();
        assert_eq!(&T::from_json(&bytes).unwrap(), document);
        for end in 0..bytes.len() - 2 {
            assert_eq!(T::from_json(&bytes[..end]).unwrap_err().kind(), Kind::Corrupt, "cut at {end}");
        }
        for at in 0..bytes.len() {
            for bit in 0..8 {
                let mut changed = bytes.clone();
                changed[at] ^= 1 << bit;
                if let Ok(value) = T::from_json(&changed) {
                    assert_eq!(T::from_json(&value.to_json()).unwrap(), value);
                }
            }
        }
        let mut newer: serde_json::Value = serde_json::from_slice(&bytes).unwrap();
        newer["version"] = 2.into();
        newer["unheard of"] = true.into();
        let error = T::from_json(newer.to_string().as_bytes()).unwrap_err();
        assert_eq!(error.kind(), Kind::Invalid);
        assert!(error.to_string().contains("version 2, this one reads up to 1"), "{error}");
        newer["version"] = 1.into();
        assert!(T::from_json(newer.to_string().as_bytes()).unwrap_err().chain().contains("unheard of"));
        let large = vec![b' '; T::MAX_BYTES as usize + 1];
        assert_eq!(T::from_json(&large).unwrap_err().kind(), Kind::Corrupt);
    }
}
