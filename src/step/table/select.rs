//! `table.select`: keeps some columns.

use super::{element, find};
use crate::error::Result;
use crate::format::canonical;
use crate::step::registry::{Build, Definition};
use crate::step::{Cardinality, Context, Info, Output, Purity, Step};
use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::sync::Arc;

pub(super) const DEFINITION: Definition = Definition {
    name: "table.select",
    summary: "Keeps the columns named, in that order, or all except those named",
    purity: Purity::Deterministic,
    cardinality: Cardinality::OneToOne,
    reads: "no values",
    writes: "the columns that are kept",
    fails: "never",
    schema: || schemars::schema_for!(Params),
    build,
};

/// Exactly one of the two. `_key`, `_error` and `_row` are always kept, in front.
#[derive(Debug, Clone, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Params {
    /// Columns to keep, in this order.
    columns: Option<Vec<String>>,
    /// Columns to leave out; the others keep their order.
    except: Option<Vec<String>>,
}

#[derive(Debug)]
struct Select {
    info: Info,
    schema: SchemaRef,
    indices: Vec<usize>,
}

fn build(request: &Build) -> Result<Arc<dyn Step>> {
    let params: Params = request.params.parse()?;
    let (name, listed, keep) = match (params.columns, params.except) {
        (Some(columns), None) => ("columns", columns, true),
        (None, Some(columns)) => ("except", columns, false),
        _ => return Err(request.span.error("expected either `columns:` or `except:`, with a list of names")),
    };
    let node = request.params.get(name).unwrap_or(request.params);
    let mut chosen = Vec::with_capacity(listed.len());
    for (position, column) in listed.iter().enumerate() {
        let span = element(node, position);
        let index = find(request.input, column, span)?;
        if chosen.contains(&index) {
            return Err(span.error(format!("the column {column:?} is named twice")));
        }
        chosen.push(index);
    }
    let fields = || request.input.fields().iter().enumerate();
    let mut indices: Vec<usize> = fields().filter(|(_, f)| f.name().starts_with('_')).map(|(i, _)| i).collect();
    let own = indices.len();
    if keep {
        indices.extend(chosen);
    } else {
        indices.extend(fields().filter(|(i, f)| !f.name().starts_with('_') && !chosen.contains(i)).map(|(i, _)| i));
    }
    let kept: BTreeSet<usize> = indices.iter().copied().collect();
    let schema = Arc::new(request.input.project(&indices)?);
    // Both ways to say it mean the same and so have the same key.
    let names = schema.fields().iter().skip(own).map(|f| f.name().as_str().into()).collect();
    let info = Info {
        name: DEFINITION.name,
        version: 1,
        purity: DEFINITION.purity,
        cardinality: DEFINITION.cardinality,
        reads: Vec::new(),
        writes: fields().filter(|(i, _)| !kept.contains(i)).map(|(_, f)| f.name().clone()).collect(),
        params: canonical::Value::map([("columns", canonical::Value::List(names))]),
    };
    Ok(Arc::new(Select { info, schema, indices }))
}

impl Step for Select {
    fn info(&self) -> &Info {
        &self.info
    }
    fn output_schema(&self) -> &SchemaRef {
        &self.schema
    }
    fn apply(&self, batch: &RecordBatch, _context: Context) -> Result<Output> {
        Ok(Output::one_to_one(batch.project(&self.indices)?.with_schema(self.schema.clone())?))
    }
}
