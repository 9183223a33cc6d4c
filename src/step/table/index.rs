//! `label.index`: class names to the numbers that training wants.

use super::{Failures, element, find, finish, refuse_reserved};
use crate::error::{Error, Result};
use crate::format::canonical;
use crate::format::schema::words;
use crate::id::Digest;
use crate::io::read_small;
use crate::spec::node::nearest;
use crate::step::registry::{Build, Definition};
use crate::step::{Cardinality, Context, Info, Output, Purity, Step};
use arrow::array::{Array, ArrayRef, AsArray, Int64Array, RecordBatch};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Field, FieldRef, Int64Type, Schema, SchemaRef};
use schemars::JsonSchema;
use serde::de::value::SeqAccessDeserializer;
use serde::de::{SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::Arc;

pub(super) const DEFINITION: Definition = Definition {
    name: "label.index",
    summary: "Turns class names into their numbers: { column: label, classes: auto }",
    purity: Purity::Deterministic,
    cardinality: Cardinality::OneToOne,
    reads: "a column of class names (text), or of their numbers",
    writes: "a column of int64, which carries the names as metadata",
    fails: "its class isn't among `classes`",
    schema: || schemars::schema_for!(Params),
    build,
};

/// Metadata of an integer field: the class names as a JSON array, number 0 first.
pub const CLASSES: &str = "forebay.classes";
/// Most classes.
pub const MAX_CLASSES: usize = 1_000_000;
/// Largest file of class names.
const MAX_FILE_BYTES: u64 = 64 << 20;

/// The first class is number 0.
#[derive(Debug, Clone, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Params {
    /// The column with class names, or with integers: numbers of the classes that the column's own metadata names,
    /// else numbers of `classes`.
    column: String,
    /// The names, the path of a UTF-8 file with one name a line, or `auto`: found once and written to a file.
    classes: Classes,
    /// Another column for the numbers (int64); by default they replace the names.
    to: Option<String>,
}

#[derive(Debug, Clone, Serialize, JsonSchema)]
#[serde(untagged)]
enum Classes {
    Named(Vec<String>),
    /// `auto` or a path relative to the pipeline file.
    File(String),
}

impl<'de> Deserialize<'de> for Classes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        struct Form;
        impl<'de> Visitor<'de> for Form {
            type Value = Classes;
            fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
                f.write_str("a list of names, the path of a file with one name a line, or `auto`")
            }
            fn visit_str<E>(self, text: &str) -> std::result::Result<Classes, E> {
                Ok(Classes::File(text.to_owned()))
            }
            fn visit_seq<A: SeqAccess<'de>>(self, seq: A) -> std::result::Result<Classes, A::Error> {
                Vec::deserialize(SeqAccessDeserializer::new(seq)).map(Classes::Named)
            }
        }
        deserializer.deserialize_any(Form)
    }
}

/// How the input names a class.
#[derive(Debug)]
enum Form {
    Text,
    /// Integers that count in another list: its numbers to ours, or the name that ours lacks.
    Renumbered(Vec<std::result::Result<i64, String>>),
    /// Integers that are already ours.
    Number,
}

#[derive(Debug)]
struct Index {
    info: Info,
    schema: SchemaRef,
    input: usize,
    output: usize,
    form: Form,
    names: Vec<String>,
    numbers: HashMap<String, i64>,
}

fn build(request: &Build) -> Result<Arc<dyn Step>> {
    let params: Params = request.params.parse()?;
    let column_span = request.params.span_of("column");
    let input = find(request.input, &params.column, column_span)?;
    let names = read_classes(&params.classes, request)?;
    let numbers: HashMap<String, i64> = names.iter().cloned().zip(0..).collect();

    let source = request.input.field(input);
    let form = match source.data_type() {
        t if is_text(t) => Form::Text,
        t if t.is_integer() => match known_names(source)? {
            Some(known) if known != names => {
                Form::Renumbered(known.into_iter().map(|name| numbers.get(&name).copied().ok_or(name)).collect())
            }
            _ => Form::Number,
        },
        other => {
            let message =
                format!("the column {:?} is of type {}; expected texts or integers", params.column, words(other));
            return Err(column_span.error(message));
        }
    };

    let to = params.to.clone().unwrap_or_else(|| params.column.clone());
    refuse_reserved(&to, request.params.span_of("to"))?;
    let json = serde_json::to_string(&names).map_err(|e| Error::internal("class names as JSON").caused_by(e))?;
    let made: FieldRef =
        Arc::new(Field::new(&to, DataType::Int64, true).with_metadata(HashMap::from([(CLASSES.to_owned(), json)])));
    let mut fields: Vec<FieldRef> = request.input.fields().iter().cloned().collect();
    let output = request.input.index_of(&to).unwrap_or(fields.len());
    match fields.get_mut(output) {
        Some(field) if output == input => *field = made,
        Some(_) => {
            let span = request.params.span_of("to");
            return Err(span.error(format!("there is a column {to:?} already; expected a new name")));
        }
        None => fields.push(made),
    }

    let params = canonical::Value::map([
        ("column", canonical::Value::from(params.column.as_str())),
        ("classes", classes_digest(&names).to_string().into()),
        ("to", to.as_str().into()),
    ]);
    let info = Info {
        name: DEFINITION.name,
        version: 1,
        purity: DEFINITION.purity,
        cardinality: DEFINITION.cardinality,
        reads: vec![source.name().clone()],
        writes: vec![to],
        params,
    };
    let schema = Arc::new(Schema::new_with_metadata(fields, request.input.metadata().clone()));
    Ok(Arc::new(Index { info, schema, input, output, form, names, numbers }))
}

fn is_text(data_type: &DataType) -> bool {
    match data_type {
        DataType::Dictionary(_, values) => values.is_string(),
        other => other.is_string(),
    }
}

/// The class names that an integer column brings along.
fn known_names(field: &Field) -> Result<Option<Vec<String>>> {
    let Some(json) = field.metadata().get(CLASSES) else { return Ok(None) };
    let names = serde_json::from_str(json).map_err(|e| {
        Error::invalid(format!("the column {:?} carries `{CLASSES}` that is no list of names", field.name()))
            .caused_by(e)
    })?;
    Ok(Some(names))
}

/// What the key holds: the digest of the list as a file with one name a line.
fn classes_digest(names: &[String]) -> Digest {
    let mut hasher = blake3::Hasher::new();
    for name in names {
        hasher.update(name.as_bytes());
        hasher.update(b"\n");
    }
    Digest::from_bytes(*hasher.finalize().as_bytes())
}

fn read_classes(classes: &Classes, request: &Build) -> Result<Vec<String>> {
    let node = request.params.get("classes").unwrap_or(request.params);
    match classes {
        Classes::Named(names) => {
            check_classes(names).map_err(|(index, reason)| element(node, index).error(reason))?;
            Ok(names.clone())
        }
        Classes::File(name) if name == "auto" => {
            let message = "`classes: auto` has not been resolved yet; expected a list of names or a file with one name";
            Err(node.span.error(format!("{message} a line (commands that list the source resolve it)")))
        }
        Classes::File(name) => {
            let text = read_small(&request.base.join(name), MAX_FILE_BYTES)
                .map_err(|error| node.span.error(format!("can't read the classes in {name:?}")).caused_by(error))?;
            parse_classes(&text).map_err(|error| node.span.error(format!("{name}: {}", error.message())))
        }
    }
}

/// The names in a file of classes: UTF-8, one a line, number 0 first; a byte-order mark and CR before LF are no part of
/// them. Errors name the line.
pub fn parse_classes(bytes: &[u8]) -> Result<Vec<String>> {
    let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
    let text = std::str::from_utf8(bytes).map_err(|e| {
        let line = 1 + bytes.iter().take(e.valid_up_to()).filter(|b| **b == b'\n').count();
        Error::invalid(format!("line {line} is not UTF-8"))
    })?;
    let names: Vec<String> = text.lines().map(str::to_owned).collect();
    check_classes(&names).map_err(|(index, reason)| Error::invalid(format!("line {}: {reason}", index + 1)))?;
    Ok(names)
}

/// The index of the first name that can't be one, and why.
fn check_classes(names: &[String]) -> std::result::Result<(), (usize, String)> {
    if names.is_empty() {
        return Err((0, "expected at least one class name".to_owned()));
    }
    if names.len() > MAX_CLASSES {
        return Err((MAX_CLASSES, format!("expected at most {MAX_CLASSES} classes, found {}", names.len())));
    }
    let mut seen = HashSet::new();
    for (index, name) in names.iter().enumerate() {
        if name.is_empty() || name.contains(['\n', '\r']) {
            return Err((index, format!("a class name must be one line of text, found {name:?}")));
        }
        if !seen.insert(name) {
            return Err((index, format!("the class {name:?} stands twice")));
        }
    }
    Ok(())
}

impl Index {
    fn unknown(&self, name: &str) -> String {
        let shown: String = name.chars().take(60).collect();
        let near = if self.names.len() <= 1000 { nearest(&shown, self.names.iter().map(String::as_str)) } else { None };
        let hint = near.map_or_else(String::new, |near| format!("; did you mean {near:?}?"));
        format!("{}: {shown:?} is none of the {} classes{hint}", self.info.reads.concat(), self.names.len())
    }
    fn beyond(&self, number: i64, count: usize) -> String {
        format!("{}: {number} is no number of one of {count} classes", self.info.reads.concat())
    }
    fn renumber(&self, number: i64) -> std::result::Result<i64, String> {
        let place = |count: usize| usize::try_from(number).ok().filter(|n| *n < count);
        match &self.form {
            Form::Renumbered(known) => match place(known.len()).and_then(|n| known.get(n)) {
                Some(Ok(number)) => Ok(*number),
                Some(Err(name)) => Err(self.unknown(name)),
                None => Err(self.beyond(number, known.len())),
            },
            Form::Text | Form::Number => match place(self.names.len()) {
                Some(_) => Ok(number),
                None => Err(self.beyond(number, self.names.len())),
            },
        }
    }
}

impl Step for Index {
    fn info(&self) -> &Info {
        &self.info
    }
    fn output_schema(&self) -> &SchemaRef {
        &self.schema
    }
    fn apply(&self, batch: &RecordBatch, _context: Context) -> Result<Output> {
        let column = batch.column(self.input);
        let mut failures = Failures::new(batch)?;
        let mut indexed: Vec<Option<i64>> = Vec::with_capacity(batch.num_rows());
        let mut add = |row: usize, found: Option<std::result::Result<i64, String>>| {
            indexed.push(match found {
                Some(Ok(number)) if !failures.had(row) => Some(number),
                Some(Err(reason)) => {
                    failures.add(row, reason);
                    None
                }
                _ => None,
            });
        };
        if matches!(self.form, Form::Text) {
            let texts = cast(column, &DataType::LargeUtf8)?;
            for (row, text) in texts.as_string::<i64>().iter().enumerate() {
                let number = |text: &str| self.numbers.get(text).copied().ok_or_else(|| self.unknown(text));
                add(row, text.map(number));
            }
        } else {
            // An uint64 beyond int64 becomes null here and is told apart from a null by the column's own.
            let numbers = cast(column, &DataType::Int64)?;
            for (row, number) in numbers.as_primitive::<Int64Type>().iter().enumerate() {
                let found = match number {
                    Some(number) => Some(self.renumber(number)),
                    None if column.is_valid(row) => Some(Err(self.beyond(i64::MAX, self.names.len()))),
                    None => None,
                };
                add(row, found);
            }
        }
        let made: ArrayRef = Arc::new(Int64Array::from(indexed));
        let mut columns = batch.columns().to_vec();
        match columns.get_mut(self.output) {
            Some(column) => *column = made,
            None => columns.push(made),
        }
        finish(&self.schema, columns, failures).map(Output::one_to_one)
    }
}
