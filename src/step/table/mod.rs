//! Steps on columns of any type: select, rename, cast, filter, and label.index.

mod cast;
mod expr;
mod filter;
mod index;
mod rename;
mod select;

pub use filter::filter_step;
pub use index::{CLASSES, MAX_CLASSES, parse_classes};

use crate::error::{Error, Result};
use crate::format::ERROR;
use crate::spec::node::{Node, Span, Value, suggest};
use crate::step::registry::Definition;
use arrow::array::{Array, ArrayRef, AsArray, LargeStringArray, RecordBatch};
use arrow::datatypes::{DataType, Schema, SchemaRef};
use std::sync::Arc;

pub const DEFINITIONS: &[Definition] =
    &[select::DEFINITION, rename::DEFINITION, cast::DEFINITION, filter::DEFINITION, index::DEFINITION];

/// The span of element `index` of a list.
fn element(list: &Node, index: usize) -> &Span {
    match &list.value {
        Value::List(items) => items.get(index).map_or(&list.span, |item| &item.span),
        _ => &list.span,
    }
}

/// The span of the key `name` of a map.
fn key<'a>(map: &'a Node, name: &str) -> &'a Span {
    match &map.value {
        Value::Map(fields) => fields.iter().find(|(key, _)| key.name == name).map_or(&map.span, |(key, _)| &key.span),
        _ => &map.span,
    }
}

/// The index of a column that a step may change: there, and none of Forebay's own.
fn find(schema: &Schema, name: &str, span: &Span) -> Result<usize> {
    refuse_reserved(name, span)?;
    schema.index_of(name).map_err(|_| {
        let hint = suggest(name, "the columns are", names(schema));
        span.error(format!("unknown column {name:?}; {hint}"))
    })
}

/// The columns that pipelines may name.
fn names(schema: &Schema) -> impl Iterator<Item = &str> + Clone {
    schema.fields().iter().map(|f| f.name().as_str()).filter(|n| !n.starts_with('_'))
}

fn refuse_reserved(name: &str, span: &Span) -> Result<()> {
    if name.starts_with('_') {
        let message = format!("{name:?} begins with `_`: those columns are Forebay's own and always kept");
        return Err(span.error(format!("{message}; expected another name")));
    }
    Ok(())
}

fn errors(batch: &RecordBatch) -> Result<LargeStringArray> {
    let column = batch.column_by_name(ERROR).ok_or_else(|| Error::internal("a batch has no column `_error`"))?;
    match column.data_type() {
        DataType::LargeUtf8 => Ok(column.as_string::<i64>().clone()),
        other => Err(Error::internal(format!("expected `_error` of large_utf8, found {other}"))),
    }
}

/// Reasons of the rows that failed in this step, laid over those that had failed before, whose reasons stay.
struct Failures {
    before: LargeStringArray,
    /// Ascending by row.
    new: Vec<(usize, String)>,
}

impl Failures {
    fn new(batch: &RecordBatch) -> Result<Self> {
        Ok(Failures { before: errors(batch)?, new: Vec::new() })
    }
    /// Whether the row had failed before this step.
    fn had(&self, row: usize) -> bool {
        self.before.is_valid(row)
    }
    fn add(&mut self, row: usize, reason: String) {
        self.new.push((row, reason));
    }
    fn column(mut self) -> ArrayRef {
        if self.new.is_empty() {
            return Arc::new(self.before);
        }
        self.new.sort_by_key(|(row, _)| *row);
        let mut new = self.new.iter().peekable();
        let merged = self.before.iter().enumerate().map(|(row, before)| {
            let mut first = None;
            while let Some((_, reason)) = new.next_if(|(r, _)| *r == row) {
                first.get_or_insert(reason.as_str());
            }
            before.or(first)
        });
        Arc::new(merged.collect::<LargeStringArray>())
    }
}

/// A batch of `schema` from these columns, with `_error` replaced.
fn finish(schema: &SchemaRef, mut columns: Vec<ArrayRef>, failures: Failures) -> Result<RecordBatch> {
    let position = schema.index_of(ERROR)?;
    let rows = failures.before.len();
    if let Some(column) = columns.get_mut(position) {
        *column = failures.column();
    }
    let options = arrow::array::RecordBatchOptions::new().with_row_count(Some(rows));
    Ok(RecordBatch::try_new_with_options(schema.clone(), columns, &options)?)
}

#[cfg(test)]
mod tests;
