//! Heads: the small JSON objects that name what is current: pipelines, snapshots, stages, orders, manifests, reports.

use crate::error::Result;
use crate::format::canonical::{self, Domain, Value};
use crate::format::document::{Document, at_most, corrupt, equal};
use crate::format::encoding::Encoding;
use crate::format::name::{Name, PipelineName};
use crate::format::schema;
use crate::id::{Digest, OrderId, RecipeKey, SnapshotId};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// A reference to a blob that holds a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TableRef {
    pub blob: Digest,
    pub bytes: u64,
    pub rows: u64,
}

/// `v1/pipelines/<name>/<seq>-<id>.json`: what a trainer needs to open a dataset from the store alone.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PipelineHead {
    pub version: u32,
    pub name: String,
    /// The pipeline file's text with every variable left as written.
    pub text: String,
    /// Stages shared by all splits, then each split's own; `split` is absent for shared ones.
    pub stages: Vec<StageHead>,
    /// Class names by column, from `label.index`.
    pub classes: BTreeMap<String, Vec<String>>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StageHead {
    pub name: String,
    pub split: Option<String>,
    pub recipe: RecipeKey,
    /// The stage's schema as `schema::encode` writes it.
    pub schema: String,
}

/// `v1/pipelines/<name>/snapshots/<seq>-<snapshot-id>.json`
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
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
    /// The source reader and its parameters, and the input schema resolved when it was first listed (as `schema::encode`
    /// writes it): a later listing by the same reader keeps that schema.
    pub reader: serde_json::Value,
    pub input_schema: String,
}

/// `v1/stages/<recipe>/recipe.json`: the document whose canonical hash is the key, for people and `explain`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RecipeHead {
    pub version: u32,
    pub recipe: RecipeKey,
    pub stage: String,
    /// Hashed under `Domain::Recipe`.
    pub document: serde_json::Value,
}

/// `v1/stages/<recipe>/orders/<snapshot-id>.json`
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
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
#[serde(deny_unknown_fields)]
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
#[serde(deny_unknown_fields)]
pub struct Report {
    pub version: u32,
    pub blob: Digest,
    /// The record that names the blob, as an object name.
    pub record: String,
    pub found: String,
}

impl Document for PipelineHead {
    const WHAT: &'static str = "pipeline head";
    const MAX_BYTES: u64 = 64 << 20;

    fn check(&self) -> Result<()> {
        pipeline_name::<Self>(&self.name)?;
        let mut seen = BTreeSet::new();
        for stage in &self.stages {
            // A split's own stage may bear another split's name of a stage, but not a shared one's.
            if !seen.insert((stage.split.as_deref(), &stage.name))
                || seen.contains(&(None, &stage.name)) && stage.split.is_some()
            {
                return Err(corrupt::<Self>(format!("stages of different names, found {:?} twice", stage.name)));
            }
            schema::decode(&stage.schema)
                .map_err(|e| e.during(format!("bad {} in stage {:?}", Self::WHAT, stage.name)))?;
        }
        Ok(())
    }
}

/// Between a head's listing and the store's clock lies no more than this, however far apart the clocks of listers are.
const CLOCKS_APART_MS: i64 = 600_000;

impl SnapshotHead {
    /// Whether no listing can have begun when this one says: the head is damaged, or a clock was set wrong.
    pub fn is_of_the_future(&self, now_ms: i64) -> bool {
        self.listed_ms > now_ms.saturating_add(CLOCKS_APART_MS)
    }
}

impl Document for SnapshotHead {
    const WHAT: &'static str = "snapshot head";
    const MAX_BYTES: u64 = 4 << 20;

    fn check(&self) -> Result<()> {
        pipeline_name::<Self>(&self.pipeline)?;
        equal::<Self, _>("the table's rows to be the entries,", self.entries, self.table.rows)?;
        at_most::<Self>("partitions", self.entries, self.partitions)?;
        if !matches!(self.identity.as_str(), "content" | "etag" | "stat") {
            return Err(corrupt::<Self>(format!("identity content, etag or stat, found {:?}", self.identity)));
        }
        schema::decode(&self.input_schema).map_err(|e| e.during(format!("bad {}", Self::WHAT)))?;
        Ok(())
    }
}

impl Document for RecipeHead {
    const WHAT: &'static str = "recipe";
    const MAX_BYTES: u64 = 4 << 20;

    fn check(&self) -> Result<()> {
        let key = canonical::hash(Domain::Recipe, &Value::try_from(&self.document)?)?;
        equal::<Self, _>("a document whose hash is", self.recipe, RecipeKey::from_bytes(key))
    }
}

impl Document for OrderHead {
    const WHAT: &'static str = "order head";
    const MAX_BYTES: u64 = 1 << 16;

    fn check(&self) -> Result<()> {
        Ok(())
    }
}

impl Document for ManifestHead {
    const WHAT: &'static str = "manifest";
    const MAX_BYTES: u64 = 1 << 16;

    fn check(&self) -> Result<()> {
        at_most::<Self>("failed rows", self.rows, self.failed_rows)
    }
}

impl Document for Report {
    const WHAT: &'static str = "report";
    const MAX_BYTES: u64 = 1 << 16;

    fn check(&self) -> Result<()> {
        self.record.parse::<Name>().map_err(|e| corrupt::<Self>("the name of a record").caused_by(e))?;
        Ok(())
    }
}

fn pipeline_name<T: Document>(name: &str) -> Result<()> {
    name.parse::<PipelineName>().map_err(|e| corrupt::<T>("the name of a pipeline").caused_by(e))?;
    Ok(())
}

#[cfg(test)]
mod tests;
