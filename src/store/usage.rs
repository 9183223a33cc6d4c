//! What is stored, in numbers: by stage and encoding, and in all.

use super::Store;
use crate::error::{Kind, Result};
use crate::format::encoding::Encoding;
use crate::format::name::{self, Name};
use crate::id::RecipeKey;

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Usage {
    /// By recipe key, then encoding.
    pub stages: Vec<StageUsage>,
    /// All blobs, those that no record or head refers to included.
    pub blobs: u64,
    pub blob_bytes: u64,
    /// Heads, records, manifests and reports.
    pub documents: u64,
    pub document_bytes: u64,
}

/// What one stage takes in one encoding, as its records say; records that can't be read are left out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StageUsage {
    pub recipe: RecipeKey,
    pub encoding: Encoding,
    pub shards: u64,
    pub parts: u64,
    pub bytes: u64,
    pub rows: u64,
    pub failed_rows: u64,
}

impl Store {
    /// Reads every record: meant for people who look, not for the way to the first batch.
    pub fn usage(&self) -> Result<Usage> {
        let mut usage = Usage::default();
        for object in self.storage.list(name::ROOT)? {
            match object.name.parse() {
                Ok(Name::Blob { .. }) => {
                    usage.blobs += 1;
                    usage.blob_bytes += object.bytes;
                }
                Ok(_) => {
                    usage.documents += 1;
                    usage.document_bytes += object.bytes;
                }
                Err(_) => {}
            }
        }
        for recipe in self.recipes()? {
            for encoding in self.encodings(recipe)? {
                let stage = self.stage_usage(recipe, encoding)?;
                // What a collection left are empty directories at most.
                usage.stages.extend((stage.shards > 0).then_some(stage));
            }
        }
        Ok(usage)
    }

    fn stage_usage(&self, recipe: RecipeKey, encoding: Encoding) -> Result<StageUsage> {
        let mut usage = StageUsage { recipe, encoding, shards: 0, parts: 0, bytes: 0, rows: 0, failed_rows: 0 };
        for shard in self.records(recipe, encoding)? {
            let record = match self.record(recipe, encoding, shard) {
                Ok(Some(record)) => record,
                Ok(None) => continue,
                Err(error) if error.kind() == Kind::Corrupt => continue,
                Err(error) => return Err(error),
            };
            usage.shards += 1;
            usage.parts += record.parts.len() as u64;
            usage.bytes = usage.bytes.saturating_add(record.bytes);
            usage.rows = usage.rows.saturating_add(record.rows);
            usage.failed_rows = usage.failed_rows.saturating_add(record.failed_rows);
        }
        Ok(usage)
    }
}
