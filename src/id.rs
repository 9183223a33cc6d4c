//! Newtypes of the identities: what bytes are (`Digest`) and what values mean (`RecipeKey`, `ShardKey`, `SnapshotId`,
//! `OrderId`). All are BLAKE3-256 in lower-case hex; the types never mix.

use crate::error::{Error, Result};
use std::fmt;
use std::str::FromStr;

macro_rules! identity {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name([u8; 32]);

        impl $name {
            pub const fn from_bytes(bytes: [u8; 32]) -> Self {
                Self(bytes)
            }
            pub const fn as_bytes(&self) -> &[u8; 32] {
                &self.0
            }
            /// The first 12 hex digits, for people; never for look-up.
            pub fn short(&self) -> String {
                self.to_string()[..12].to_owned()
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&blake3::Hash::from_bytes(self.0).to_hex())
            }
        }
        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!(stringify!($name), "({})"), self)
            }
        }
        impl FromStr for $name {
            type Err = Error;
            fn from_str(text: &str) -> Result<Self> {
                let lower = text.len() == 64 && text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
                match blake3::Hash::from_hex(text) {
                    Ok(hash) if lower => Ok(Self(*hash.as_bytes())),
                    _ => Err(Error::invalid(format!(
                        concat!("expected a ", stringify!($name), " of 64 lower-case hex digits, found {:?}"),
                        text
                    ))),
                }
            }
        }
        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }
        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let text = std::borrow::Cow::<str>::deserialize(deserializer)?;
                text.parse().map_err(serde::de::Error::custom)
            }
        }
    };
}

identity!(
    /// What bytes are.
    Digest
);
identity!(
    /// What a stage means: source reader, schema, columns and the steps up to it.
    RecipeKey
);
identity!(
    /// What a shard means: a recipe applied to one partition's entries.
    ShardKey
);
identity!(
    /// The digest of a snapshot's table of entries.
    SnapshotId
);
identity!(
    /// The digest of an order table: which rows there are, without what they contain.
    OrderId
);

impl Digest {
    pub fn of(bytes: &[u8]) -> Self {
        Self(*blake3::hash(bytes).as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hex_round_trip_and_only_lower_case() {
        let digest = Digest::of(b"forebay");
        assert_eq!(digest.to_string().parse::<Digest>().unwrap(), digest);
        assert!(digest.to_string().to_uppercase().parse::<Digest>().is_err());
        assert!("ab".parse::<Digest>().is_err());
    }
}
