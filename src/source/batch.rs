//! Builds the first record batches: `_key`, `_error`, then the source's columns, all nullable, within bounded size.

use crate::error::{Error, Result};
use crate::format::schema::words;
use crate::format::shard::CHUNK_BYTES;
use crate::format::{ERROR, KEY, ROW};
use crate::io::utf8;
use crate::spec::node::nearest;
use arrow::array::{Array, ArrayRef, AsArray, LargeBinaryArray, LargeStringArray, RecordBatch, RecordBatchOptions};
use arrow::buffer::{Buffer, NullBuffer, OffsetBuffer, ScalarBuffer};
use arrow::datatypes::{DataType, Field, FieldRef, Schema, SchemaRef};
use std::sync::Arc;

/// The schema of a source's batches over its columns. Errors where two columns share a name or one takes a reserved one.
pub(super) fn schema_of(columns: Vec<Field>) -> Result<SchemaRef> {
    for (index, field) in columns.iter().enumerate() {
        let name = field.name();
        if [KEY, ERROR, ROW].contains(&name.as_str()) {
            return Err(Error::invalid(format!(
                "the source has a column {name:?}, a name that Forebay keeps for itself; rename it"
            )));
        }
        if levels(field.data_type()) > MOST_LEVELS {
            return Err(Error::invalid(format!(
                "column {name:?} is nested {} levels deep, and at most {MOST_LEVELS} can be stored; leave it out with `columns:`",
                levels(field.data_type())
            )));
        }
        if columns[..index].iter().any(|other| other.name() == name) {
            return Err(Error::invalid(format!("the source has two columns {name:?}; rename one")));
        }
    }
    let mut fields = vec![Field::new(KEY, DataType::LargeUtf8, false), Field::new(ERROR, DataType::LargeUtf8, true)];
    fields.extend(columns.into_iter().map(|f| f.with_nullable(true)));
    Ok(Arc::new(Schema::new(fields)))
}

/// Most lists and structs within each other: deeper ones would make a schema that no reader accepts.
pub(super) const MOST_LEVELS: usize = 32;

fn levels(data_type: &DataType) -> usize {
    let below = |field: &FieldRef| levels(field.data_type());
    match data_type {
        DataType::List(item)
        | DataType::LargeList(item)
        | DataType::ListView(item)
        | DataType::LargeListView(item)
        | DataType::FixedSizeList(item, _)
        | DataType::Map(item, _) => 1 + below(item),
        DataType::Struct(fields) => 1 + fields.iter().map(below).max().unwrap_or(0),
        _ => 0,
    }
}

/// The source's own columns of such a schema.
pub(super) fn own(schema: &Schema) -> &[FieldRef] {
    schema.fields().get(2..).unwrap_or_default()
}

/// The positions of the columns asked for, in the order asked; all where none are.
pub(super) fn chosen(names: &[&str], columns: Option<&[String]>) -> Result<Vec<usize>> {
    let Some(columns) = columns else { return Ok((0..names.len()).collect()) };
    columns.iter().map(|wanted| position(names, wanted)).collect()
}

pub(super) fn position(names: &[&str], wanted: &str) -> Result<usize> {
    names.iter().position(|n| n == &wanted).ok_or_else(|| {
        let hint = match nearest(wanted, names.iter().copied()) {
            Some(near) => format!("did you mean {near:?}?"),
            None => format!("the columns are {}", names.join(", ")),
        };
        Error::invalid(format!("the source has no column {wanted:?}; {hint}"))
    })
}

/// One batch. `errors`: the reason for each failed row.
pub(super) fn assemble(
    schema: &SchemaRef,
    keys: LargeStringArray,
    errors: &[Option<String>],
    columns: Vec<ArrayRef>,
) -> Result<RecordBatch> {
    let rows = keys.len();
    let errors: ArrayRef = match errors.iter().any(Option::is_some) {
        true => Arc::new(LargeStringArray::from_iter(errors.iter().map(Option::as_deref))),
        false => arrow::array::new_null_array(&DataType::LargeUtf8, rows),
    };
    let mut arrays: Vec<ArrayRef> = vec![Arc::new(keys), errors];
    arrays.extend(columns);
    let options = RecordBatchOptions::new().with_row_count(Some(rows));
    Ok(RecordBatch::try_new_with_options(schema.clone(), arrays, &options)?)
}

pub(super) fn strings<S: AsRef<str>>(values: impl IntoIterator<Item = Option<S>>) -> ArrayRef {
    Arc::new(LargeStringArray::from_iter(values))
}

/// Halves a batch until each piece is within about `CHUNK_BYTES` or one row. The pieces share its memory.
pub(super) fn bounded(batch: RecordBatch, out: &mut Vec<RecordBatch>) {
    let bytes = |b: &RecordBatch| -> usize {
        b.columns().iter().map(|c| c.to_data().get_slice_memory_size().unwrap_or(usize::MAX / 1024)).sum()
    };
    if batch.num_rows() > 1 && bytes(&batch) > CHUNK_BYTES {
        let half = batch.num_rows() / 2;
        bounded(batch.slice(0, half), out);
        bounded(batch.slice(half, batch.num_rows() - half), out);
    } else {
        out.push(batch);
    }
}

/// Grows one column of bytes or text in a single buffer, into which files are read directly.
pub(super) struct Values {
    bytes: Vec<u8>,
    offsets: Vec<i64>,
    valid: Vec<bool>,
}

impl Values {
    pub fn with_capacity(bytes: usize, rows: usize) -> Self {
        let mut offsets = Vec::with_capacity(rows + 1);
        offsets.push(0);
        Values { bytes: Vec::with_capacity(bytes), offsets, valid: Vec::with_capacity(rows) }
    }
    /// Appends a value that `fill` writes; `fill` must only append.
    pub fn push_with(&mut self, fill: impl FnOnce(&mut Vec<u8>) -> Result<()>) -> Result<()> {
        fill(&mut self.bytes)?;
        self.close(true);
        Ok(())
    }
    pub fn push(&mut self, value: Option<&[u8]>) {
        self.bytes.extend_from_slice(value.unwrap_or_default());
        self.close(value.is_some());
    }
    /// The value appended last.
    pub fn last(&self) -> &[u8] {
        self.bytes.get(self.last_start()..).unwrap_or_default()
    }
    /// Turns the value appended last into text: a byte order mark is taken off; what isn't UTF-8 becomes null, with the reason.
    pub fn last_to_text(&mut self) -> Option<String> {
        let start = self.last_start();
        if self.valid.last() != Some(&true) {
            return None;
        }
        match utf8(&self.bytes[start..]) {
            Ok(text) => {
                let mark = self.bytes.len() - start - text.len();
                self.bytes.drain(start..start + mark);
                if let Some(last) = self.offsets.last_mut() {
                    *last = self.bytes.len() as i64;
                }
                None
            }
            Err(reason) => {
                self.bytes.truncate(start);
                self.offsets.pop();
                self.valid.pop();
                self.close(false);
                Some(reason)
            }
        }
    }
    pub fn finish(self, data_type: &DataType) -> Result<ArrayRef> {
        let offsets = OffsetBuffer::new(ScalarBuffer::from(self.offsets));
        let nulls = self.valid.contains(&false).then(|| NullBuffer::from(self.valid));
        let values = Buffer::from_vec(self.bytes);
        Ok(match data_type {
            DataType::LargeUtf8 => Arc::new(LargeStringArray::try_new(offsets, values, nulls)?),
            _ => Arc::new(LargeBinaryArray::try_new(offsets, values, nulls)?),
        })
    }
    fn last_start(&self) -> usize {
        self.offsets.iter().rev().nth(1).map_or(0, |start| *start as usize)
    }
    fn close(&mut self, valid: bool) {
        self.offsets.push(self.bytes.len() as i64);
        self.valid.push(valid);
    }
}

/// A column as the text that keys are made of; null stays null.
pub(super) fn key_text(column: &ArrayRef, name: &str) -> Result<ArrayRef> {
    let fits = matches!(column.data_type(), DataType::Boolean | DataType::LargeUtf8) || column.data_type().is_integer();
    if !fits {
        return Err(Error::invalid(format!(
            "column {name:?} can't be a key: expected text, integers or booleans, found {}",
            words(column.data_type())
        )));
    }
    Ok(arrow::compute::cast(column, &DataType::LargeUtf8)?)
}

/// Keys from such a column; a null or empty one is an error that names the row.
pub(super) fn keys_from(column: &ArrayRef, name: &str, place: impl Fn(usize) -> String) -> Result<LargeStringArray> {
    let text = key_text(column, name)?;
    let text = text.as_string::<i64>();
    match (0..text.len()).find(|&i| text.is_null(i) || text.value(i).is_empty()) {
        None => Ok(text.clone()),
        Some(row) => Err(Error::invalid(format!("{} has no value in the key column {name:?}", place(row)))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_loses_its_mark_and_refuses_other_encodings() {
        let mut values = Values::with_capacity(0, 0);
        let mut push = |bytes: &[u8]| {
            values.push(Some(bytes));
            values.last_to_text()
        };
        assert_eq!(push(b"\xef\xbb\xbfh\xc3\xa9"), None);
        assert!(push(b"caf\xe9").unwrap().contains("at byte 3"));
        assert!(push(b"\xff\xfeh\0").unwrap().contains("UTF-16"));
        assert_eq!(push(b""), None);
        assert_eq!(push(b"nul\0"), None);
        let array = values.finish(&DataType::LargeUtf8).unwrap();
        let array = array.as_string::<i64>();
        let found: Vec<_> = array.iter().collect();
        assert_eq!(found, [Some("hé"), None, None, Some(""), Some("nul\0")]);
    }

    #[test]
    fn large_batches_are_cut_without_losing_rows() {
        let schema = schema_of(vec![Field::new("x", DataType::LargeBinary, true)]).unwrap();
        let mut values = Values::with_capacity(0, 0);
        (0..40).for_each(|i| values.push(Some(&vec![i; 1 << 20])));
        let keys = LargeStringArray::from_iter_values((0..40).map(|i| i.to_string()));
        let whole = assemble(&schema, keys, &[], vec![values.finish(&DataType::LargeBinary).unwrap()]).unwrap();
        let mut pieces = Vec::new();
        bounded(whole.clone(), &mut pieces);
        assert!(pieces.len() >= 5 && pieces.len() <= 16, "{}", pieces.len());
        assert_eq!(arrow::compute::concat_batches(&schema, &pieces).unwrap(), whole);
    }

    #[test]
    fn reserved_and_double_names_are_refused() {
        let field = |name: &str| Field::new(name, DataType::Int64, true);
        assert!(schema_of(vec![field("_error")]).is_err());
        assert!(schema_of(vec![field("a"), field("a")]).unwrap_err().message().contains("two columns"));
        let error = chosen(&["image", "label"], Some(&["lable".to_owned()])).unwrap_err();
        assert!(error.message().contains("did you mean \"label\""), "{error}");
    }
}
