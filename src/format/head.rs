//! Heads: the small JSON objects that name what is current: pipelines, snapshots, stages, orders, manifests, reports.

use crate::format::encoding::Encoding;
use crate::id::{Digest, OrderId, RecipeKey, SnapshotId};
use serde::{Deserialize, Serialize};

/// A reference to a blob that holds a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct TableRef {
    pub blob: Digest,
    pub bytes: u64,
    pub rows: u64,
}

/// `v1/pipelines/<name>/<seq>-<id>.json`: what a trainer needs to open a dataset from the store alone.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PipelineHead {
    pub version: u32,
    pub name: String,
    /// The pipeline file's text with every variable left as written.
    pub text: String,
    /// Stages shared by all splits, then each split's own; `split` is absent for shared ones.
    pub stages: Vec<StageHead>,
    /// Class names by column, from `label.index`.
    pub classes: std::collections::BTreeMap<String, Vec<String>>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StageHead {
    pub name: String,
    pub split: Option<String>,
    pub recipe: RecipeKey,
    /// The stage's schema as Arrow IPC schema bytes in base64, so that nothing is lost.
    pub schema: String,
}

/// `v1/pipelines/<name>/snapshots/<seq>-<snapshot-id>.json`
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SnapshotHead {
    pub version: u32,
    pub pipeline: String,
    pub snapshot: SnapshotId,
    /// When listing began, by the store's clock, in milliseconds since 1970.
    pub listed_ms: i64,
    pub table: TableRef,
    pub entries: u64,
    pub partitions: u64,
    pub rows: u64,
    pub bytes: u64,
    /// The identity mode: `content`, `etag` or `stat`.
    pub identity: String,
    /// The source reader and its parameters, and the input schema resolved when it was first listed (Arrow IPC schema
    /// bytes in base64): a later listing by the same reader keeps that schema.
    pub reader: serde_json::Value,
    pub input_schema: String,
}

/// `v1/stages/<recipe>/recipe.json`: the document whose canonical hash is the key, for people and `explain`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RecipeHead {
    pub version: u32,
    pub recipe: RecipeKey,
    pub stage: String,
    /// Hashed under `Domain::Recipe`.
    pub document: serde_json::Value,
}

/// `v1/stages/<recipe>/orders/<snapshot-id>.json`
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct OrderHead {
    pub version: u32,
    pub recipe: RecipeKey,
    pub snapshot: SnapshotId,
    pub order: OrderId,
    pub table: TableRef,
    pub rows: u64,
}

/// `v1/stages/<recipe>/<encoding>/manifests/<snapshot-id>.json`: written last.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ManifestHead {
    pub version: u32,
    pub recipe: RecipeKey,
    pub encoding: Encoding,
    pub snapshot: SnapshotId,
    pub table: TableRef,
    pub rows: u64,
    pub bytes: u64,
    pub failed_rows: u64,
}

/// `v1/reports/<blob-digest>.json`: a reader found this blob bad.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Report {
    pub version: u32,
    pub blob: Digest,
    /// The record that names the blob, as an object name.
    pub record: String,
    pub found: String,
}
