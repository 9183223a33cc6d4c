//! An entry: what a source lists, and its identity. A snapshot is a table of entries in partition order.

use crate::error::{Error, Result};
use crate::id::Digest;
use std::fmt;
use std::str::FromStr;

/// What an entry's bytes are known by. Two modes never match each other.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Identity {
    /// The digest of the bytes of the entry (or of its range).
    Content(Digest),
    /// An object store's strong etag and the object's size in bytes.
    Etag { etag: String, bytes: u64 },
    /// Root URL, size and modification time, where the user chose not to hash.
    Stat { root: String, bytes: u64, modified_ns: i64 },
    /// A row's carried values together with the identities of the objects that it names (`Domain::Row`).
    Row(Digest),
    /// The object that the row names is not there.
    Absent,
}

/// Which part of its file an entry is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Range {
    /// Bytes `start..end` of the file.
    Bytes { start: u64, end: u64 },
    /// The row group or record batch of this number.
    Group(u64),
    /// Rows `start..end` of a table.
    Rows { start: u64, end: u64 },
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Relative to the source root, unique in the snapshot; the `_key` of its one sample, or of its first row where rows are
    /// numbered (`<file>#<row>`). `Source::locate` leads from a `_key` to its entry.
    pub key: String,
    /// The file that holds the entry, relative to the source root, where that isn't the key.
    pub file: Option<String>,
    pub identity: Identity,
    pub range: Option<Range>,
    /// Bytes as listed (compressed size for a compressed container).
    pub bytes: u64,
    /// Samples that the source yields for it.
    pub rows: u64,
    /// Index of its partition.
    pub partition: u32,
}

impl Entry {
    /// What its bytes are known by: two entries of one key and meaning hold the same. Where the bytes of the range are hashed,
    /// their place in a growing file means nothing.
    pub fn meaning(&self) -> (&Identity, Option<Range>) {
        let own_digest = matches!((&self.identity, self.range), (Identity::Content(_), Some(Range::Bytes { .. })));
        (&self.identity, self.range.filter(|_| !own_digest))
    }
}

/// `content:<hex>`, `etag:<bytes>:<etag>`, `stat:<bytes>:<modified_ns>:<root>`, `row:<hex>`, `absent`: one spelling each,
/// as tables show it and keys hash it.
impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Identity::Content(digest) => write!(f, "content:{digest}"),
            Identity::Etag { etag, bytes } => write!(f, "etag:{bytes}:{etag}"),
            Identity::Stat { root, bytes, modified_ns } => write!(f, "stat:{bytes}:{modified_ns}:{root}"),
            Identity::Row(digest) => write!(f, "row:{digest}"),
            Identity::Absent => f.write_str("absent"),
        }
    }
}

impl FromStr for Identity {
    type Err = Error;
    fn from_str(text: &str) -> Result<Self> {
        parse(text).ok_or_else(|| {
            let shown: String = text.chars().take(200).collect();
            Error::invalid(format!("expected an identity such as content:<64 hex digits>, found {shown:?}"))
        })
    }
}

fn parse(text: &str) -> Option<Identity> {
    if text == "absent" {
        return Some(Identity::Absent);
    }
    let (mode, rest) = text.split_once(':')?;
    match mode {
        "content" => Some(Identity::Content(rest.parse().ok()?)),
        "row" => Some(Identity::Row(rest.parse().ok()?)),
        "etag" => {
            let (bytes, etag) = rest.split_once(':')?;
            Some(Identity::Etag { etag: etag.to_owned(), bytes: number(bytes)? })
        }
        "stat" => {
            let (bytes, rest) = rest.split_once(':')?;
            let (modified_ns, root) = rest.split_once(':')?;
            Some(Identity::Stat { root: root.to_owned(), bytes: number(bytes)?, modified_ns: number(modified_ns)? })
        }
        _ => None,
    }
}

/// One spelling of a number: no plus sign, no leading zero.
fn number<T: FromStr + ToString>(text: &str) -> Option<T> {
    text.parse::<T>().ok().filter(|n| n.to_string() == text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn identities_round_trip(digest in any::<[u8; 32]>(), text in ".{0,20}", bytes in any::<u64>(), modified_ns in any::<i64>()) {
            for identity in [
                Identity::Content(Digest::from_bytes(digest)),
                Identity::Etag { etag: text.clone(), bytes },
                Identity::Stat { root: text, bytes, modified_ns },
                Identity::Row(Digest::from_bytes(digest)),
                Identity::Absent,
            ] {
                prop_assert_eq!(identity.to_string().parse::<Identity>().unwrap(), identity);
            }
        }

        #[test]
        fn what_parses_has_one_spelling(text in "(content|etag|stat|row|absent)?[:0-9a-f+-]{0,70}") {
            if let Ok(identity) = text.parse::<Identity>() {
                prop_assert_eq!(identity.to_string(), text);
            }
        }
    }

    #[test]
    fn other_spellings_are_refused() {
        let hex = "ab".repeat(32);
        for text in [
            "",
            "content:",
            "content:ab",
            &format!("content:{}", hex.to_uppercase()),
            &format!("content:{hex} "),
            &format!("Content:{hex}"),
            "etag:07:x",
            "etag:x",
            "stat:1:+2:x",
            "stat:-1:2:x",
            "stat:1:18446744073709551616:x",
            "absent:",
        ] {
            assert!(text.parse::<Identity>().is_err(), "{text}");
        }
    }
}
