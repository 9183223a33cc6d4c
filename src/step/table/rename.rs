//! `table.rename`: gives columns other names.

use super::{find, key, refuse_reserved};
use crate::error::Result;
use crate::format::canonical;
use crate::step::registry::{Build, Definition};
use crate::step::{Cardinality, Context, Info, Output, Purity, Step};
use arrow::array::RecordBatch;
use arrow::datatypes::{Schema, SchemaRef};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

pub(super) const DEFINITION: Definition = Definition {
    name: "table.rename",
    summary: "Gives columns other names: { old: new }",
    purity: Purity::Deterministic,
    cardinality: Cardinality::OneToOne,
    reads: "no values",
    writes: "the same columns under other names",
    fails: "never",
    schema: || schemars::schema_for!(Params),
    build,
};

/// Old name to new name; all at once, so that two columns can swap names. Values and positions stay.
#[derive(Debug, Clone, Deserialize, Serialize, JsonSchema)]
#[serde(transparent)]
struct Params(BTreeMap<String, String>);

#[derive(Debug)]
struct Rename {
    info: Info,
    schema: SchemaRef,
}

fn build(request: &Build) -> Result<Arc<dyn Step>> {
    let Params(names) = request.params.parse()?;
    if names.is_empty() {
        return Err(request.span.error("expected at least one column to rename: { old: new }"));
    }
    let mut fields: Vec<_> = request.input.fields().iter().cloned().collect();
    for (old, new) in &names {
        let index = find(request.input, old, key(request.params, old))?;
        let span = request.params.span_of(old);
        refuse_reserved(new, span)?;
        if new.is_empty() {
            return Err(span.error(format!("the new name of {old:?} is empty")));
        }
        if let Some(field) = fields.get_mut(index) {
            *field = Arc::new(field.as_ref().clone().with_name(new));
        }
    }
    let mut seen: HashMap<&str, usize> = HashMap::new();
    for field in &fields {
        *seen.entry(field.name()).or_default() += 1;
    }
    if let Some((old, new)) = names.iter().find(|(_, new)| seen.get(new.as_str()).is_some_and(|count| *count > 1)) {
        let span = request.params.span_of(old);
        return Err(span.error(format!("two columns would be called {new:?}; rename or drop the other one")));
    }
    let schema = Arc::new(Schema::new_with_metadata(fields, request.input.metadata().clone()));
    let info = Info {
        name: DEFINITION.name,
        version: 1,
        purity: DEFINITION.purity,
        cardinality: DEFINITION.cardinality,
        reads: names.keys().cloned().collect(),
        writes: names.iter().flat_map(|(old, new)| [old.clone(), new.clone()]).collect(),
        params: canonical::Value::of(&names)?,
    };
    Ok(Arc::new(Rename { info, schema }))
}

impl Step for Rename {
    fn info(&self) -> &Info {
        &self.info
    }
    fn output_schema(&self) -> &SchemaRef {
        &self.schema
    }
    /// A row that failed before keeps its values under their new names: nothing is computed here that could be missing.
    fn apply(&self, batch: &RecordBatch, _context: Context) -> Result<Output> {
        let options = arrow::array::RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
        let batch = RecordBatch::try_new_with_options(self.schema.clone(), batch.columns().to_vec(), &options)?;
        Ok(Output::one_to_one(batch))
    }
}
