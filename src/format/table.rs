//! The tables kept as Parquet blobs, so that DuckDB can query them: entries of a snapshot, shards of a manifest, counts
//! of an order. Their bytes are a function of their rows. Ids hash rows, never these bytes.

use crate::format::entry::Entry;
use crate::id::{Digest, ShardKey};
use arrow::array::RecordBatch;

/// A snapshot's table: entries in partition order, partition 0 first, and within a partition in their order.
#[derive(Debug, Clone, PartialEq)]
pub struct Entries {
    pub entries: Vec<Entry>,
    /// Values that rows carry (`table:`, `join:`), a row for each entry; part of the entry's identity.
    pub carried: Option<RecordBatch>,
}

/// A row of a manifest's shard table, in partition order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShardRow {
    pub partition: u32,
    pub shard: ShardKey,
    pub rows: u64,
    pub bytes: u64,
    pub failed_rows: u64,
    pub blobs: Vec<Digest>,
}

/// A row of an order table, in partition order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OrderRow {
    pub partition: u32,
    /// Rows of the last deterministic stage.
    pub rows: u64,
    /// For each of these rows its source row within the partition, ascending; absent where the chain is one-to-one.
    pub row_map: Option<Vec<u32>>,
}
