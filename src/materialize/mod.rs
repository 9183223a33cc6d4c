//! Level 7: plan + engine + store to shards. `plan` says what is there (as `present` finds it) and what is missing, as data;
//! `worker` in which order one of several machines takes what is missing; `run` computes it, several partitions side by side;
//! `finish` writes manifests; `estimate` foretells bytes and seconds from a small sample.
//!
//! Work is at-least-once and visibility exactly-once: a shard's blobs are published, then its record; a manifest last.

pub mod estimate;
pub mod finish;
mod gate;
pub mod plan;
mod present;
pub mod run;
mod sink;
pub mod worker;

use crate::engine::dataset::Split;
use crate::format::encoding::Encoding;
use crate::id::RecipeKey;
use std::fmt;
use std::time::Duration;

/// A stage to store, in one encoding.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    /// The stage's name, for people.
    pub stage: String,
    /// Of which split alone, where splits don't share the stage.
    pub split: Option<String>,
    pub recipe: RecipeKey,
    pub encoding: Encoding,
}

impl Target {
    /// A stage of a split, by its index.
    pub fn new(split: &Split, index: usize, encoding: Encoding) -> Target {
        let stage = &split.chain.stages[index];
        let own = if stage.own { split.name.clone() } else { None };
        Target { stage: stage.name.clone(), split: own, recipe: stage.recipe, encoding }
    }
}

/// `resize (arrow-none)`, or `crop [val] (arrow-none)` of one split alone.
impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let split = self.split.as_deref().map_or(String::new(), |split| format!(" [{split}]"));
        write!(f, "{}{split} ({})", self.stage, self.encoding)
    }
}

/// What happens, for progress bars and logs.
#[derive(Debug, Clone)]
pub enum Event {
    /// Source rows went through the steps.
    Rows { rows: u64, source_bytes: u64 },
    /// A shard was computed and published, unless another writer was faster.
    Shard { stage: String, partition: usize, rows: u64, bytes: u64 },
    /// Shards of a partition that were to be computed had been published by another writer. `rows`: those of the source that
    /// need not be read therefore.
    Found { partition: usize, shards: usize, rows: u64 },
    /// A stored shard that was to be computed from proved bad and was reported.
    Bad { stage: String, partition: usize, reason: String },
    /// The own part is done. What is missing of the others' is probably in work there: it is looked for again after `wait`, and
    /// computed where it is missing still.
    Others { partitions: usize, wait: Duration },
    /// Partitions failed for now and are tried again after `wait`; the reason is one of theirs.
    Retry { partitions: usize, wait: Duration, reason: String },
}

/// A sample that failed.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Failure {
    pub key: String,
    /// Step and cause, as in `_error`.
    pub reason: String,
}
