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
                f.write_str(std::str::from_utf8(&to_hex(&self.0)).map_err(|_| fmt::Error)?)
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
                from_hex(text).map(Self).ok_or_else(|| {
                    Error::invalid(format!(
                        concat!("expected a ", stringify!($name), " of 64 lower-case hex digits, found {:?}"),
                        text
                    ))
                })
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

/// Tables hold an identity in each row, so the two ways between bytes and digits are tight loops.
fn to_hex(bytes: &[u8; 32]) -> [u8; 64] {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let mut hex = [0; 64];
    for (pair, byte) in hex.as_chunks_mut::<2>().0.iter_mut().zip(bytes) {
        *pair = [DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 15)]];
    }
    hex
}

fn from_hex(text: &str) -> Option<[u8; 32]> {
    const BAD: u8 = 0xff;
    const VALUES: [u8; 256] = {
        let mut values = [BAD; 256];
        let mut digit = 0;
        while digit < 16 {
            values[b"0123456789abcdef"[digit] as usize] = digit as u8;
            digit += 1;
        }
        values
    };
    let hex: &[u8; 64] = text.as_bytes().try_into().ok()?;
    let mut bytes = [0; 32];
    let mut seen = 0;
    for (byte, pair) in bytes.iter_mut().zip(hex.as_chunks::<2>().0) {
        let [high, low] = pair.map(|digit| VALUES[usize::from(digit)]);
        *byte = high << 4 | low & 15;
        seen |= high | low;
    }
    // Digits are below 16; one that is none sets the upper bits.
    (seen < 16).then_some(bytes)
}

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
        let bytes: [u8; 32] = std::array::from_fn(|i| (i * 37) as u8);
        assert_eq!(Digest::from_bytes(bytes).to_string(), blake3::Hash::from_bytes(bytes).to_hex().as_str());
        for bad in ["g", " ", "A", "/", ":", "`", "\u{0}"] {
            assert!((bad.to_owned() + &"0".repeat(63)).parse::<Digest>().is_err(), "{bad}");
            assert!(("0".repeat(63) + bad).parse::<Digest>().is_err(), "{bad}");
        }
    }
}
