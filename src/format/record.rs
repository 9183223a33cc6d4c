//! A shard's record: the parts (blobs) it consists of, with a digest for every chunk, so that a ranged read of some
//! columns is verified by its chunks.

use crate::format::encoding::Encoding;
use crate::id::{Digest, RecipeKey, ShardKey};
use serde::{Deserialize, Serialize};

/// Contents of `v1/stages/<recipe>/<encoding>/shards/<hh>/<shard-key>.json`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Record {
    pub version: u32,
    pub shard: ShardKey,
    pub recipe: RecipeKey,
    pub encoding: Encoding,
    pub rows: u64,
    /// Bytes of all parts.
    pub bytes: u64,
    /// Rows with a reason in `_error`.
    pub failed_rows: u64,
    pub parts: Vec<Part>,
    /// Wall seconds times threads that computing this stage from its source took, measured; what eviction weighs.
    pub seconds: f64,
}

/// One blob of a shard: a whole Arrow IPC or Parquet file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Part {
    pub blob: Digest,
    pub bytes: u64,
    pub rows: u64,
    /// Row groups or record batches in file order.
    pub chunks: Vec<Chunk>,
    /// Parquet: the footer (metadata, its length, magic). Arrow: everything that is not in a chunk's head or columns
    /// after the last chunk (end-of-stream, footer, length, magic).
    pub footer: Span,
}

/// One row group or record batch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Chunk {
    pub rows: u64,
    /// Arrow: the record batch's message metadata. Parquet: absent.
    pub head: Option<Span>,
    /// One span for each top-level column of the schema, in order.
    pub columns: Vec<Span>,
}

/// A range of a blob and the digest of its bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Span {
    pub offset: u64,
    pub bytes: u64,
    pub digest: Digest,
}
