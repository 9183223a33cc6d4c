//! The documents by which it is known what a store may lose: pins, intents, and the lists of what a collection removes.

use crate::error::Result;
use crate::format::document::{Document, at_most, corrupt};
use crate::format::head::TableRef;
use crate::format::name::PipelineName;
use crate::id::{Digest, RecipeKey, SnapshotId};
use serde::{Deserialize, Serialize};

/// `v1/pins/<name>.json`: keeps a snapshot, and what is stored of it, until it is unpinned.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Pin {
    pub version: u32,
    pub name: String,
    pub pipeline: String,
    pub snapshot: SnapshotId,
    /// The stages whose shards of the snapshot are kept.
    pub recipes: Vec<RecipeKey>,
}

/// `v1/intents/<id>.json`: what a running process uses. It counts while it was written within the last ten minutes, and
/// is written anew while the process runs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Intent {
    pub version: u32,
    pub id: Digest,
    /// Which command, for people.
    pub purpose: String,
    pub pipeline: String,
    pub snapshots: Vec<SnapshotId>,
    pub recipes: Vec<RecipeKey>,
    /// When it was first written, by the store's clock, in milliseconds since 1970.
    pub began_ms: i64,
    /// How long after a list of candidates was published this process may still act without knowing it, in milliseconds.
    pub grace_ms: u64,
}

/// `v1/gc/<id>.json`: names that a collection is about to remove. It counts as an intent does.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Candidates {
    pub version: u32,
    pub id: Digest,
    pub table: TableRef,
}

/// The longest that a process may act without looking at lists.
const MOST_GRACE_MS: u64 = 3_600_000;

impl Document for Pin {
    const WHAT: &'static str = "pin";
    const MAX_BYTES: u64 = 1 << 20;

    fn check(&self) -> Result<()> {
        check_name::<Self>(&self.name)?;
        check_name::<Self>(&self.pipeline)
    }
}

impl Document for Intent {
    const WHAT: &'static str = "intent";
    const MAX_BYTES: u64 = 4 << 20;

    fn check(&self) -> Result<()> {
        check_name::<Self>(&self.pipeline)?;
        at_most::<Self>("grace_ms", MOST_GRACE_MS, self.grace_ms)
    }
}

impl Document for Candidates {
    const WHAT: &'static str = "list of candidates";
    const MAX_BYTES: u64 = 1 << 16;

    fn check(&self) -> Result<()> {
        Ok(())
    }
}

fn check_name<T: Document>(name: &str) -> Result<()> {
    name.parse::<PipelineName>().map_err(|e| corrupt::<T>("a name").caused_by(e))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::document::tests::damage;

    fn pin() -> Pin {
        let (snapshot, recipes) = (SnapshotId::from_bytes([3; 32]), vec![RecipeKey::from_bytes([7; 32])]);
        Pin { version: 1, name: "release-1".into(), pipeline: "photos".into(), snapshot, recipes }
    }

    fn intent() -> Intent {
        Intent {
            version: 1,
            id: Digest::of(b"id"),
            purpose: "materialize".into(),
            pipeline: "photos".into(),
            snapshots: vec![pin().snapshot],
            recipes: pin().recipes,
            began_ms: 1_700_000_000_000,
            grace_ms: 180_000,
        }
    }

    #[test]
    fn damage_is_found() {
        damage(&pin());
        damage(&intent());
        let table = TableRef { blob: Digest::of(b"table"), bytes: 1000, rows: 3 };
        damage(&Candidates { version: 1, id: Digest::of(b"id"), table });
    }

    #[test]
    fn what_cannot_be_is_refused() {
        let error = Pin { name: "../x".into(), ..pin() }.check().unwrap_err();
        assert!(error.chain().starts_with("bad pin: expected a name"), "{}", error.chain());
        assert!(Pin { pipeline: String::new(), ..pin() }.check().is_err());
        let error = Intent { grace_ms: MOST_GRACE_MS + 1, ..intent() }.check().unwrap_err();
        assert!(error.to_string().contains("grace_ms of at most 3600000, found 3600001"), "{error}");
    }
}
