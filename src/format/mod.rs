//! Level 1: pure codecs of what `formats/` specifies: canonical hashing, object names, heads, records, tables and the
//! bytes of shards. No I/O: bytes in, values out. Sizes found in untrusted bytes are bounded before they are trusted.

pub mod canonical;
pub mod document;
pub mod encoding;
pub mod entry;
mod guard;
pub mod head;
pub mod name;
pub mod record;
pub mod root;
pub mod schema;
pub mod shard;
pub mod table;

/// The format version written into every head, record and table; readers refuse a newer one by name.
pub const VERSION: u32 = 1;

/// Every batch of every stage begins with these columns: the sample key (large_utf8, never null) and why the row
/// failed (large_utf8, null where it did not).
pub const KEY: &str = "_key";
pub const ERROR: &str = "_error";
/// From the first step on that is not one-to-one, a third column: the row of the partition's source from which this
/// row came (uint32, never null, ascending).
pub const ROW: &str = "_row";
