//! The chain: a source and its steps as stages, each with name, recipe key and schema. Which steps depend on which
//! columns is in `columns`.

mod columns;

pub use columns::Counting;

use crate::error::{Error, Result};
use crate::format::canonical::Value;
use crate::format::{ERROR, ROW};
use crate::id::RecipeKey;
use crate::plan::key::{document_steps, longer_document, recipe_document, recipe_key};
use crate::spec::node::suggest;
use crate::step::{Cardinality, Context, Purity, Step};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use std::sync::Arc;

/// The name of stage 0.
pub const SOURCE: &str = "concatenated";

/// One chain: the shared steps and one split's own. Stage 0 is `concatenated`, the source's batches.
#[derive(Debug, Clone)]
pub struct Chain {
    pub stages: Vec<Stage>,
}

#[derive(Debug, Clone)]
pub struct Stage {
    /// Unique in the chain.
    pub name: String,
    /// `None` for stage 0, and for a stage that is recorded in a store but can't be computed by this build.
    pub step: Option<Arc<dyn Step>>,
    /// Why there is no step.
    pub lacking: Option<String>,
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
    /// another step, a parameter that no key can hold.
    pub fn new(source: &Value, input: SchemaRef, steps: Vec<Named>) -> Result<Chain> {
        let mut chain = Chain::of_source(source, input)?;
        steps.into_iter().try_for_each(|step| chain.push(step))?;
        Ok(chain)
    }

    /// Stage 0 alone.
    pub fn of_source(source: &Value, input: SchemaRef) -> Result<Chain> {
        let document = recipe_document(source, &input, &[]);
        let stage = Stage {
            name: SOURCE.to_owned(),
            step: None,
            lacking: None,
            occurrence: 0,
            own: false,
            recipe: recipe_key(&document).map_err(|e| e.during("the source has no key"))?,
            document,
            schema: input,
            deterministic: true,
            one_to_one: true,
        };
        Ok(Chain { stages: vec![stage] })
    }

    /// Links one more step; see `new`.
    pub fn push(&mut self, Named { name, step, own }: Named) -> Result<()> {
        let info = step.info();
        let before = self.last();
        if self.stages.iter().any(|stage| stage.name == name) {
            let advice = format!("give {} another name with `as:`", info.name);
            return Err(Error::invalid(format!("two stages are named {name:?}; {advice}")));
        }
        if before.purity() == Purity::Stateful && info.purity != Purity::Stateful {
            return Err(Error::invalid(format!(
                "{:?} is stateful and {name:?} comes after it; stateful steps may only end the chain: move it behind",
                before.name
            )));
        }
        let document = longer_document(&before.document, info);
        let one_to_one = before.one_to_one && info.cardinality == Cardinality::OneToOne;
        let schema = step.output_schema().clone();
        self.stages.push(Stage {
            occurrence: document_steps(&before.document).filter(|(other, _)| *other == info.name).count() as u32,
            own,
            recipe: recipe_key(&document).map_err(|e| e.during(format!("the stage {name:?} has no key")))?,
            document,
            schema: if one_to_one { schema } else { with_row(&schema) },
            deterministic: before.deterministic && info.purity == Purity::Deterministic,
            one_to_one,
            name,
            step: Some(step),
            lacking: None,
        });
        Ok(())
    }

    pub fn last(&self) -> &Stage {
        &self.stages[self.stages.len() - 1]
    }

    /// Index of the last stage before the first step that isn't deterministic: order is over its rows.
    pub fn last_deterministic(&self) -> usize {
        self.stages.iter().rposition(|s| s.deterministic).unwrap_or(0)
    }

    /// Index of a stage by name; the error suggests the nearest name, or lists them.
    pub fn stage(&self, name: &str) -> Result<usize> {
        if let Some(index) = self.stages.iter().position(|stage| stage.name == name) {
            return Ok(index);
        }
        let names = || self.stages.iter().map(|stage| stage.name.as_str());
        let hint = suggest(name, "the stages are", names());
        Err(Error::not_found(format!("no stage is named {name:?}; {hint}")))
    }

    pub fn context(&self, stage: usize, seed: u64, epoch: u64) -> Context {
        Context { seed, epoch, occurrence: self.stages[stage].occurrence }
    }
}

impl Stage {
    /// The schema of the stage's rows on their way, without `_row`.
    pub fn rows_schema(&self) -> SchemaRef {
        if self.one_to_one {
            return self.schema.clone();
        }
        let fields: Vec<_> = self.schema.fields().iter().filter(|field| field.name() != ROW).cloned().collect();
        Arc::new(Schema::new_with_metadata(fields, self.schema.metadata().clone()))
    }
    /// The error of computing a stage that has no step.
    pub fn cannot_compute(&self) -> Error {
        match &self.lacking {
            Some(lacking) => Error::invalid(format!(
                "stage {} can't be computed: {lacking}; use the Forebay that wrote the store, or materialize again with this one",
                self.name
            )),
            None => Error::internal(format!("stage {} has no step", self.name)),
        }
    }
    pub fn purity(&self) -> Purity {
        self.step.as_ref().map_or(Purity::Deterministic, |s| s.info().purity)
    }
    pub fn cardinality(&self) -> Cardinality {
        self.step.as_ref().map_or(Cardinality::OneToOne, |s| s.info().cardinality)
    }
}

/// Inserts `_row` behind `_error`.
fn with_row(schema: &Schema) -> SchemaRef {
    let mut fields: Vec<_> = schema.fields().iter().filter(|field| field.name() != ROW).cloned().collect();
    let place = fields.iter().position(|field| field.name() == ERROR).map_or(0, |error| error + 1);
    fields.insert(place, Arc::new(Field::new(ROW, DataType::UInt32, false)));
    Arc::new(Schema::new_with_metadata(fields, schema.metadata().clone()))
}

#[cfg(test)]
pub(super) mod tests;
