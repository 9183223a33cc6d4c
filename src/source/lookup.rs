//! Tables read whole: the rows of `table:` and what `join:` looks values up in. CSV, JSON lines or Parquet by extension. Unlike
//! data, a row here that can't be read is an error: a missing label must not pass for none.

use crate::error::{Error, Result};
use crate::source::columnar::Container;
use crate::source::lines::{self, Format, Sheet};
use crate::source::opened::Opened;
use crate::source::types;
use arrow::array::{ArrayRef, RecordBatch, RecordBatchOptions};
use arrow::compute::concat_batches;
use arrow::datatypes::{DataType, Field, FieldRef, Schema};
use std::sync::Arc;

enum Kind {
    Sheet(Format),
    Parquet,
}

fn kind(file: &str) -> Result<Kind> {
    match file.rsplit_once('.').map(|(_, ext)| ext.to_ascii_lowercase()).as_deref() {
        Some("csv" | "tsv") => Ok(Kind::Sheet(Format::of(file, true))),
        Some("jsonl" | "ndjson") => Ok(Kind::Sheet(Format::Jsonl)),
        Some("parquet") => Ok(Kind::Parquet),
        _ => Err(Error::invalid(format!(
            "{file}: a table is a .csv, .tsv, .jsonl, .ndjson or .parquet file, not compressed"
        ))),
    }
}

/// The columns of a table, of which `wanted` (all where `None`) matter; those of CSV and JSON lines inferred from a sample.
pub(super) fn fields(opened: &Opened, file: &str, wanted: Option<&[String]>) -> Result<Vec<Field>> {
    match kind(file)? {
        Kind::Sheet(format) => Sheet::open(opened, file, format)?.infer(opened, file, wanted),
        Kind::Parquet => {
            let container = Container::open(opened, true)?;
            let usable = container.schema().fields().iter().filter_map(|field| {
                let alone = Schema::new_with_metadata(vec![field.clone()], container.schema().metadata().clone());
                types::columns(&alone, None, file).ok()
            });
            Ok(usable.flatten().collect())
        }
    }
}

/// The columns `names` of a whole table, in that order; those in `known` in its types, others of CSV and JSON lines as text.
pub(super) fn read(opened: Opened, file: &str, names: &[String], known: &[FieldRef]) -> Result<RecordBatch> {
    // Rows are looked through, then read.
    let opened = &opened.whole()?;
    let known = |name: &str| known.iter().find(|f| f.name() == name).cloned();
    match kind(file)? {
        Kind::Sheet(format) => {
            let sheet = Sheet::open(opened, file, format)?;
            let text = |name: &String| Arc::new(Field::new(name, DataType::LargeUtf8, true));
            let fields: Vec<FieldRef> = names.iter().map(|n| known(n).unwrap_or_else(|| text(n))).collect();
            let columns = sheet.columns(file, &fields)?;
            let mut rows = Vec::new();
            let mut bytes = Vec::new();
            for block in sheet.blocks(opened, file, |_| ())? {
                bytes.clear();
                opened.read(block.start, block.end, &mut bytes)?;
                for record in sheet.split(&bytes) {
                    let values = columns.values(record);
                    if let Err(reason) = &values {
                        return Err(Error::invalid(format!("{file}, row {}: {reason}", rows.len())));
                    }
                    rows.push(values);
                }
            }
            batch(&fields, lines::arrays(&fields, &rows)?, rows.len())
        }
        Kind::Parquet => {
            let container = Container::open(opened, true)?;
            let own = fields(opened, file, Some(names))?;
            let missing =
                |name: &String| Error::invalid(format!("{file} has no column {name:?} of a type that is understood"));
            let fields: Vec<FieldRef> = names
                .iter()
                .map(|n| {
                    known(n)
                        .or_else(|| own.iter().find(|f| f.name() == n).cloned().map(Arc::new))
                        .ok_or_else(|| missing(n))
                })
                .collect::<Result<_>>()?;
            let borrowed: Vec<&str> = names.iter().map(String::as_str).collect();
            let (roots, order) = container.find(&borrowed, file)?;
            let mut batches = Vec::new();
            for group in 0..container.groups().len() {
                for read in container.read(file, group, &roots)? {
                    let read = read?;
                    let columns = fields
                        .iter()
                        .zip(&order)
                        .map(|(field, &place)| types::convert(read.column(place), field, file, |_, _| ()))
                        .collect::<Result<Vec<_>>>()?;
                    batches.push(batch(&fields, columns, read.num_rows())?);
                }
            }
            Ok(concat_batches(&Arc::new(Schema::new(fields)), &batches)?)
        }
    }
}

fn batch(fields: &[FieldRef], columns: Vec<ArrayRef>, rows: usize) -> Result<RecordBatch> {
    let options = RecordBatchOptions::new().with_row_count(Some(rows));
    Ok(RecordBatch::try_new_with_options(Arc::new(Schema::new(fields.to_vec())), columns, &options)?)
}
