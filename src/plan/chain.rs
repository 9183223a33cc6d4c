//! The chain: a source and its steps as stages, each with name, recipe key and schema.

use crate::format::canonical::Value;
use crate::id::RecipeKey;
use crate::step::{Cardinality, Context, Purity, Step};
use arrow::datatypes::SchemaRef;
use std::sync::Arc;

/// One chain: the shared steps and one split's own. Stage 0 is `concatenated`, the source's batches.
#[derive(Debug, Clone)]
pub struct Chain {
    pub stages: Vec<Stage>,
}

#[derive(Debug, Clone)]
pub struct Stage {
    /// Unique in the chain.
    pub name: String,
    /// `None` for stage 0.
    pub step: Option<Arc<dyn Step>>,
    /// How many steps of the same registered name stand before it.
    pub occurrence: u32,
    /// Whether it stands in the split's own part.
    pub own: bool,
    pub recipe: RecipeKey,
    pub document: Value,
    /// The schema as stored: the step's output, with `_row` behind `_error` once a step before or here isn't one-to-one.
    pub schema: SchemaRef,
    /// Whether the chain up to here is deterministic, so that it may be stored.
    pub deterministic: bool,
    /// Whether the chain up to here is one-to-one with the source's samples.
    pub one_to_one: bool,
}

/// A step with the name its stage gets.
#[derive(Debug, Clone)]
pub struct Named {
    pub name: String,
    pub step: Arc<dyn Step>,
    pub own: bool,
}

impl Chain {
    /// Links steps whose input schemas were already matched. Errors: two stages of one name, a stateful step before
    /// another step.
    pub fn new(_source: &Value, _input: SchemaRef, _steps: Vec<Named>) -> crate::error::Result<Chain> {
        unimplemented!()
    }
    /// Index of the last stage before the first step that isn't deterministic: order is over its rows.
    pub fn last_deterministic(&self) -> usize {
        self.stages.iter().rposition(|s| s.deterministic).unwrap_or(0)
    }
    /// Index of a stage by name; the error lists the names, the nearest first.
    pub fn stage(&self, _name: &str) -> crate::error::Result<usize> {
        unimplemented!()
    }
    pub fn context(&self, stage: usize, seed: u64, epoch: u64) -> Context {
        Context { seed, epoch, occurrence: self.stages[stage].occurrence }
    }
}

impl Stage {
    pub fn purity(&self) -> Purity {
        self.step.as_ref().map_or(Purity::Deterministic, |s| s.info().purity)
    }
    pub fn cardinality(&self) -> Cardinality {
        self.step.as_ref().map_or(Cardinality::OneToOne, |s| s.info().cardinality)
    }
}
