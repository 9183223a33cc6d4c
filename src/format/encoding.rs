//! An encoding: container x codec, its text form (`arrow-none`, `parquet-zstd-3`) and what is accepted.

use crate::error::{Error, Result};
use std::fmt;
use std::str::FromStr;

/// How the batches of a shard are framed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Container {
    Arrow,
    Parquet,
}

/// How the bytes of a chunk are compressed. `Snappy` and `Gzip` are Parquet's only.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Codec {
    None,
    Lz4,
    Zstd(i32),
    Snappy,
    Gzip(u32),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Encoding {
    pub container: Container,
    pub codec: Codec,
}

impl Encoding {
    /// Accepts what the containers support and nothing else: `arrow` none, lz4, zstd:1..=22; `parquet` these and
    /// snappy, gzip:0..=9.
    pub fn new(container: Container, codec: Codec) -> Result<Self> {
        let ok = match (container, codec) {
            (_, Codec::None | Codec::Lz4) | (Container::Parquet, Codec::Snappy) => true,
            (_, Codec::Zstd(level)) => (1..=22).contains(&level),
            (Container::Parquet, Codec::Gzip(level)) => level <= 9,
            (Container::Arrow, Codec::Snappy | Codec::Gzip(_)) => false,
        };
        if ok {
            return Ok(Encoding { container, codec });
        }
        Err(Error::invalid(format!(
            "{container} can't be compressed with {codec}; arrow takes none, lz4, zstd:1 to zstd:22; parquet also snappy, gzip:0 to gzip:9"
        )))
    }

    /// The extension of a part's blob, without the dot.
    pub const fn extension(self) -> &'static str {
        match self.container {
            Container::Arrow => "arrow",
            Container::Parquet => "parquet",
        }
    }
}

impl fmt::Display for Container {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Container::Arrow => "arrow",
            Container::Parquet => "parquet",
        })
    }
}

impl FromStr for Container {
    type Err = Error;
    fn from_str(text: &str) -> Result<Self> {
        match text {
            "arrow" => Ok(Container::Arrow),
            "parquet" => Ok(Container::Parquet),
            _ => Err(Error::invalid(format!("unknown format {text:?}; expected arrow or parquet"))),
        }
    }
}

/// As users write it: `zstd:3`.
impl fmt::Display for Codec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Codec::None => f.write_str("none"),
            Codec::Lz4 => f.write_str("lz4"),
            Codec::Zstd(level) => write!(f, "zstd:{level}"),
            Codec::Snappy => f.write_str("snappy"),
            Codec::Gzip(level) => write!(f, "gzip:{level}"),
        }
    }
}

impl FromStr for Codec {
    type Err = Error;
    fn from_str(text: &str) -> Result<Self> {
        let (name, level) = match text.split_once(':') {
            Some((name, level)) => (name, Some(level)),
            None => (text, None),
        };
        let number = |default: u32| match level {
            None => Some(default),
            // One spelling of a number: no sign, no leading zero.
            Some(text) => text.parse::<u32>().ok().filter(|n| n.to_string() == text),
        };
        let codec = match (name, level) {
            ("none", None) => Some(Codec::None),
            ("lz4", None) => Some(Codec::Lz4),
            ("snappy", None) => Some(Codec::Snappy),
            ("zstd", _) => number(3).and_then(|n| i32::try_from(n).ok()).map(Codec::Zstd),
            ("gzip", _) => number(6).map(Codec::Gzip),
            _ => None,
        };
        codec.ok_or_else(|| {
            Error::invalid(format!(
                "unknown compression {text:?}; expected none, lz4, zstd:LEVEL, snappy or gzip:LEVEL"
            ))
        })
    }
}

/// As object names spell it: `parquet-zstd-3`.
impl fmt::Display for Encoding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.container, self.codec.to_string().replace(':', "-"))
    }
}

impl FromStr for Encoding {
    type Err = Error;
    fn from_str(text: &str) -> Result<Self> {
        let parsed = text.split_once('-').and_then(|(container, codec)| {
            let encoding = Encoding::new(container.parse().ok()?, codec.replacen('-', ":", 1).parse().ok()?).ok()?;
            (encoding.to_string() == text).then_some(encoding)
        });
        parsed.ok_or_else(|| {
            Error::invalid(format!("unknown encoding {text:?}; expected for example arrow-none or parquet-zstd-3"))
        })
    }
}

impl serde::Serialize for Encoding {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> serde::Deserialize<'de> for Encoding {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        let text = std::borrow::Cow::<str>::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_forms_round_trip_and_nothing_else_is_accepted() {
        for text in ["arrow-none", "arrow-lz4", "arrow-zstd-1", "parquet-zstd-22", "parquet-snappy", "parquet-gzip-9"] {
            assert_eq!(text.parse::<Encoding>().unwrap().to_string(), text);
        }
        for text in [
            "arrow-snappy",
            "arrow-gzip-1",
            "parquet-zstd",
            "parquet-zstd-03",
            "parquet-zstd-+3",
            "parquet-zstd-23",
            "orc-none",
            "arrow",
            "",
        ] {
            assert!(text.parse::<Encoding>().is_err(), "{text}");
        }
    }
}
