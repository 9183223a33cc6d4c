//! An entry: what a source lists, and its identity. A snapshot is a table of entries in partition order.

use crate::id::Digest;

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
