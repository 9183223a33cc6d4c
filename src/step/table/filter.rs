//! `table.filter`: keeps the rows for which a condition is true. Also what `where:` of a source and of a split becomes.

use super::{Failures, expr, finish};
use crate::error::{Error, Result};
use crate::format::canonical;
use crate::spec::node::Span;
use crate::step::registry::{Build, Definition};
use crate::step::{Cardinality, Context, Info, Output, Purity, Step};
use arrow::array::{RecordBatch, UInt32Array};
use arrow::compute::take_record_batch;
use arrow::datatypes::SchemaRef;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::sync::Arc;

pub(super) const DEFINITION: Definition = Definition {
    name: "table.filter",
    summary: "Keeps the rows for which a condition is true",
    purity: Purity::Deterministic,
    cardinality: Cardinality::Filter,
    reads: "the columns that the condition names",
    writes: "no column: rows of which the condition isn't true are left out",
    fails: "the condition has no value: a number overflows, or a division is by zero",
    schema: || schemars::schema_for!(Params),
    build,
};

/// A row that had failed before is kept where a column that the condition names is null.
#[derive(Debug, Clone, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Params {
    /// The condition, such as `hash(key) % 20 != 0 and label is not null`; `formats/expression.md` has the language.
    #[serde(rename = "where")]
    condition: String,
}

#[derive(Debug)]
struct Filter {
    info: Info,
    schema: SchemaRef,
    program: expr::Program,
}

fn build(request: &Build) -> Result<Arc<dyn Step>> {
    let params: Params = request.params.parse()?;
    filter_step(&params.condition, request.params.span_of("where"), request.input)
}

/// A filter by the condition `text`, which stands at `span`. A row is kept only where the condition is true; where it
/// has no value (overflow, division by zero) the row is kept as a failed one. A row that failed before is kept where a
/// column that the condition reads is null. Errors point into the text.
pub fn filter_step(text: &str, span: &Span, input: &SchemaRef) -> Result<Arc<dyn Step>> {
    let program = expr::compile(text, span, input)?;
    let info = Info {
        name: DEFINITION.name,
        version: 1,
        purity: DEFINITION.purity,
        cardinality: DEFINITION.cardinality,
        reads: program.reads.clone(),
        writes: Vec::new(),
        params: canonical::Value::map([("where", program.text.as_str().into())]),
    };
    Ok(Arc::new(Filter { info, schema: input.clone(), program }))
}

impl Step for Filter {
    fn info(&self) -> &Info {
        &self.info
    }
    fn output_schema(&self) -> &SchemaRef {
        &self.schema
    }
    fn apply(&self, batch: &RecordBatch, _context: Context) -> Result<Output> {
        let bound = self.program.bind(batch)?;
        let mut failures = Failures::new(batch)?;
        let mut kept = Vec::new();
        for row in 0..batch.num_rows() {
            let keep = failures.had(row) && bound.reads_null(row)
                || match bound.test(row) {
                    Ok(value) => value == Some(true),
                    Err(reason) => {
                        failures.add(row, format!("where: {reason}"));
                        true
                    }
                };
            if keep {
                kept.push(u32::try_from(row).map_err(|e| Error::internal("a batch of over 2^32 rows").caused_by(e))?);
            }
        }
        let rows = UInt32Array::from(kept);
        let batch = finish(&self.schema, batch.columns().to_vec(), failures)?;
        let batch = if rows.len() == batch.num_rows() { batch } else { take_record_batch(&batch, &rows)? };
        Ok(Output { batch, rows: Some(rows) })
    }
}
