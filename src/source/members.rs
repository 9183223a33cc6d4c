//! Columns made of the members of samples: which member is whose, what type a column has, and growing a batch.

use crate::error::{Error, Result};
use crate::io::utf8;
use crate::source::batch::{Values, assemble, own};
use crate::source::files::Kind;
use crate::source::json::{self, Shape};
use crate::source::samples::Samples;
use crate::source::tar::Input;
use arrow::array::{ArrayRef, Int64Array, LargeStringArray, RecordBatch};
use arrow::datatypes::{DataType, Field, FieldRef, SchemaRef};
use serde_json::Value;
use std::collections::BTreeSet;
use std::sync::Arc;

/// Columns and types are found in so many samples of the first archive.
const SAMPLE: usize = 100;
/// Extensions that WebDataset decodes as integers.
const INTEGERS: [&str; 7] = ["cls", "cls2", "class", "count", "index", "inx", "id"];

/// A column: the first of these that a sample has.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Column {
    pub name: String,
    pub alternatives: Vec<Alternative>,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) struct Alternative {
    pub extension: String,
    /// Into a JSON member: `json.meta.label`.
    path: Vec<String>,
}

impl Column {
    /// `jpg;jpeg;png`, `json.label` or a single extension.
    pub fn parse(text: &str) -> Column {
        let alternatives: Vec<Alternative> = text
            .split(';')
            .map(str::trim)
            .map(|one| {
                let dot = one.find("json.").filter(|&at| at == 0 || one[..at].ends_with('.')).map(|at| at + 4);
                let (extension, path) = dot.map_or((one, ""), |dot| (&one[..dot], &one[dot + 1..]));
                let path = path.split('.').filter(|p| !p.is_empty()).map(str::to_owned).collect();
                Alternative { extension: extension.to_ascii_lowercase(), path }
            })
            .collect();
        let name = text.split(';').next().unwrap_or(text).trim().to_owned();
        Column { name, alternatives }
    }
}

/// The extensions and bytes of a sample's members.
pub(super) type Members<'a> = Vec<(String, &'a [u8])>;

/// Columns and what is known of their values, from the first samples.
pub(super) struct Inferred {
    /// Whether the columns were named; else each extension is one, in the order in which they are first seen.
    named: bool,
    pub columns: Vec<(Column, Common)>,
    pub held: BTreeSet<String>,
}

impl Inferred {
    pub fn new(specs: Option<Vec<Column>>) -> Self {
        let named = specs.is_some();
        let columns = specs.unwrap_or_default().into_iter().map(|column| (column, Common::default())).collect();
        Inferred { named, columns, held: BTreeSet::new() }
    }

    pub fn look(&mut self, mut samples: Samples<impl Input>) -> Result<()> {
        for _ in 0..SAMPLE {
            let Some((stem, sample)) = samples.next()? else { break };
            self.add(&sample).map_err(|e| Error::invalid(format!("{}/{stem}: {e}", samples.archive)))?;
        }
        Ok(())
    }

    fn add(&mut self, sample: &[(String, Vec<u8>)]) -> Result<(), String> {
        for (extension, _) in sample {
            if self.held.insert(extension.clone()) && !self.named {
                let alternatives = vec![Alternative { extension: extension.clone(), path: Vec::new() }];
                self.columns.push((Column { name: extension.clone(), alternatives }, Common::default()));
            }
        }
        for (column, values) in &mut self.columns {
            let found =
                column.alternatives.iter().find_map(|a| Some((a, &sample.iter().find(|(e, _)| *e == a.extension)?.1)));
            if let Some((alternative, bytes)) = found {
                values.add(alternative, bytes).map_err(|e| format!("column {:?}: {e}", column.name))?;
            }
        }
        Ok(())
    }
}

/// What the values of a column have in common so far.
pub(super) struct Common {
    shape: Shape,
    fields: bool,
    kind: Option<Kind>,
    integers: bool,
}

impl Default for Common {
    fn default() -> Self {
        Common { shape: Shape::default(), fields: false, kind: None, integers: true }
    }
}

impl Common {
    fn add(&mut self, alternative: &Alternative, bytes: &[u8]) -> Result<(), String> {
        if !alternative.path.is_empty() {
            self.fields = true;
            if let Ok(value) = json::parse(bytes)
                && let Some(value) = at_path(&value, &alternative.path)
            {
                self.shape = std::mem::take(&mut self.shape).with(Shape::of_sample(value)?);
            }
            return Ok(());
        }
        let extension = alternative.extension.rsplit('.').next().unwrap_or_default();
        let of = if INTEGERS.contains(&extension) || matches!(extension, "caption" | "transcript") {
            Kind::Text
        } else {
            Kind::of(&alternative.extension)
        };
        let of = if alternative.extension.contains('.') {
            of
        } else if of == Kind::Data {
            Kind::of(&format!("x.{extension}"))
        } else {
            of
        };
        self.kind = match self.kind {
            Some(kind) if kind != of => Some(Kind::Data),
            _ => Some(of),
        };
        self.integers &= INTEGERS.contains(&extension) && integer(bytes).is_ok();
        Ok(())
    }

    pub fn data_type(&self) -> DataType {
        match self.kind {
            _ if self.fields => self.shape.data_type(),
            Some(Kind::Text) if self.integers => DataType::Int64,
            Some(kind) => kind.data_type(),
            None => DataType::LargeBinary,
        }
    }
}

fn integer(bytes: &[u8]) -> Result<i64, String> {
    let text = utf8(bytes)?.trim();
    text.parse().map_err(|_| format!("expected an integer, found {:?}", text.chars().take(60).collect::<String>()))
}

fn at_path<'a>(value: &'a Value, path: &[String]) -> Option<&'a Value> {
    path.iter().try_fold(value, |value, name| value.get(name))
}

/// Grows the columns of a batch, sample by sample.
pub(super) struct Builder<'a> {
    schema: &'a SchemaRef,
    columns: Vec<(&'a Column, &'a FieldRef, Out)>,
    errors: Vec<Option<String>>,
}

enum Out {
    Values(Values),
    Integers(Vec<Option<i64>>),
    Json(Vec<Option<Value>>),
}

impl<'a> Builder<'a> {
    pub fn new(schema: &'a SchemaRef, columns: &'a [Column], rows: usize) -> Self {
        let out = |column: &Column, field: &Field| match field.data_type() {
            _ if column.alternatives.iter().any(|a| !a.path.is_empty()) => Out::Json(Vec::with_capacity(rows)),
            DataType::Int64 => Out::Integers(Vec::with_capacity(rows)),
            _ => Out::Values(Values::with_capacity(0, rows)),
        };
        let columns =
            columns.iter().zip(own(schema)).map(|(column, field)| (column, field, out(column, field))).collect();
        Builder { schema, columns, errors: Vec::with_capacity(rows) }
    }

    pub fn push(&mut self, sample: &Members) {
        let mut error = None;
        for (column, field, out) in &mut self.columns {
            let found =
                column.alternatives.iter().find_map(|a| Some((a, sample.iter().find(|(e, _)| *e == a.extension)?.1)));
            let reason = match (out, found) {
                (Out::Values(values), found) => {
                    values.push(found.map(|(_, bytes)| bytes));
                    if field.data_type() == &DataType::LargeUtf8 { values.last_to_text() } else { None }
                }
                (Out::Integers(values), None) => {
                    values.push(None);
                    None
                }
                (Out::Integers(values), Some((_, bytes))) => {
                    let value = integer(bytes);
                    values.push(value.as_ref().ok().copied());
                    value.err()
                }
                (Out::Json(values), None) => {
                    values.push(None);
                    None
                }
                (Out::Json(values), Some((alternative, bytes))) => {
                    let value = json_at(bytes, alternative, field.data_type());
                    values.push(value.as_ref().ok().cloned().flatten());
                    value.err()
                }
            };
            error = error.or(reason.map(|reason| format!("column {:?}: {reason}", column.name)));
        }
        self.errors.push(error);
    }

    pub fn finish(self, keys: LargeStringArray) -> Result<RecordBatch> {
        let arrays = self
            .columns
            .into_iter()
            .map(|(_, field, out)| match out {
                Out::Values(values) => values.finish(field.data_type()),
                Out::Integers(values) => Ok(Arc::new(Int64Array::from(values)) as ArrayRef),
                Out::Json(values) => {
                    json::array(field.data_type(), &values.iter().map(Option::as_ref).collect::<Vec<_>>())
                }
            })
            .collect::<Result<Vec<_>>>()?;
        assemble(self.schema, keys, &self.errors, arrays)
    }
}

fn json_at(bytes: &[u8], alternative: &Alternative, data_type: &DataType) -> Result<Option<Value>, String> {
    let value = json::parse(bytes).map_err(|e| format!("the member is not JSON: {e}"))?;
    let Some(value) = at_path(&value, &alternative.path) else { return Ok(None) };
    json::fits(data_type, value)?;
    Ok(Some(value.clone()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_have_alternatives_and_paths() {
        let check = |text: &str, expect: &[(&str, &[&str])]| {
            let column = Column::parse(text);
            let found: Vec<_> = column.alternatives.iter().map(|a| (a.extension.as_str(), a.path.clone())).collect();
            let expect: Vec<_> =
                expect.iter().map(|(e, p)| (*e, p.iter().map(|s| s.to_string()).collect::<Vec<_>>())).collect();
            assert_eq!(found, expect, "{text}");
        };
        check("jpg;jpeg; PNG", &[("jpg", &[]), ("jpeg", &[]), ("png", &[])]);
        check("json.meta.label", &[("json", &["meta", "label"])]);
        check("seg.png", &[("seg.png", &[])]);
        check("a.json.x", &[("a.json", &["x"])]);
        assert_eq!(Column::parse("jpg;png").name, "jpg");
    }
}
