//! `classes: auto` of `label.index`: the names that a column has, found once and kept in a file beside the pipeline file,
//! where people can read and reorder them. The file wins from then on, so that numbers never move by themselves.

use crate::error::{Error, Result};
use crate::format::schema::words;
use crate::io::{Access, Storage};
use crate::step::table::{CLASSES, MAX_CLASSES, parse_classes};
use arrow::array::{AsArray, RecordBatch};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Field};
use std::collections::BTreeSet;
use std::path::Path;

/// Largest file of names.
const MAX_FILE_BYTES: u64 = 64 << 20;

/// The classes of a column.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Resolved {
    pub names: Vec<String>,
    /// Whether the file was written now.
    pub written: bool,
    /// One sentence for people.
    pub note: String,
}

/// The names in `file` beside the pipeline file, which is written from `found` where there is none yet. A file that
/// appears meanwhile is read: nothing is ever overwritten.
pub fn resolve(
    directory: &Path,
    file: &str,
    column: &str,
    found: impl FnOnce() -> Result<Vec<String>>,
) -> Result<Resolved> {
    let storage = Storage::open(&directory.to_string_lossy(), &Access::default())?;
    let read = || -> Result<Option<Vec<String>>> {
        let Some(bytes) = storage.get(file, MAX_FILE_BYTES)? else { return Ok(None) };
        let path = directory.join(file);
        parse_classes(&bytes).map(Some).map_err(|e| Error::invalid(format!("{}: {}", path.display(), e.message())))
    };
    let mut known = read()?;
    let mut written = false;
    if known.is_none() {
        let names = found()?;
        storage.put(text(&names).as_bytes(), file, false)?;
        // Whoever came first, what stands there is what counts.
        known = read()?;
        written = known.as_ref() == Some(&names);
    }
    let names = known.ok_or_else(|| Error::conflict(format!("{file} was removed while it was written")))?;
    let count = names.len();
    let note = match written {
        true => format!(
            "wrote {count} classes of {column:?} to {file}; edit it to change their numbers, keep it with the pipeline"
        ),
        false => format!("took the {count} classes of {column:?} from {file}; remove it to find them afresh"),
    };
    Ok(Resolved { names, written, note })
}

/// The distinct names of a column over all samples, sorted by their bytes; those that the column itself brings along
/// win, in their order. Nulls and failed rows have none.
pub fn collect(field: &Field, batches: impl IntoIterator<Item = Result<RecordBatch>>) -> Result<Vec<String>> {
    let column = field.name();
    if let Some(names) = field.metadata().get(CLASSES) {
        return serde_json::from_str(names).map_err(|e| {
            Error::invalid(format!("the column {column:?} carries `{CLASSES}` that is no list of names")).caused_by(e)
        });
    }
    let is_text = match field.data_type() {
        DataType::Dictionary(_, values) => values.is_string(),
        other => other.is_string(),
    };
    if !is_text {
        let message =
            format!("`classes: auto` finds names in a column of texts, and {column:?} is {}", words(field.data_type()));
        return Err(Error::invalid(format!("{message}; list the classes, or name a file with one a line")));
    }
    let mut names: BTreeSet<String> = BTreeSet::new();
    for batch in batches {
        let batch = batch?;
        let values = batch
            .column_by_name(column)
            .ok_or_else(|| Error::internal(format!("a batch came without the column {column:?}")))?;
        let values = cast(values, &DataType::LargeUtf8)?;
        for name in values.as_string::<i64>().iter().flatten() {
            if !names.contains(name) {
                names.insert(name.to_owned());
            }
        }
        if names.len() > MAX_CLASSES {
            let message = format!("the column {column:?} has more than {MAX_CLASSES} distinct values");
            return Err(Error::invalid(format!(
                "{message}; is it a label? list the classes, or name a file with them"
            )));
        }
    }
    if let Some(bad) = names.iter().find(|name| name.is_empty() || name.contains(['\n', '\r'])) {
        let message = format!("the column {column:?} has the value {bad:?}, which can't be a line of a file of names");
        return Err(Error::invalid(format!("{message}; leave it out by `where:`, or list the classes")));
    }
    if names.is_empty() {
        return Err(Error::invalid(format!(
            "the column {column:?} has no values to find classes in; list the classes"
        )));
    }
    Ok(names.into_iter().collect())
}

fn text(names: &[String]) -> String {
    names.iter().flat_map(|name| [name.as_str(), "\n"]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow::array::{ArrayRef, Int64Array, LargeStringArray};
    use arrow::datatypes::Schema;
    use std::sync::Arc;

    fn batches(values: &[&[Option<&str>]]) -> (Field, Vec<Result<RecordBatch>>) {
        let field = Field::new("label", DataType::LargeUtf8, true);
        let batch = |values: &&[Option<&str>]| {
            let array: ArrayRef = Arc::new(values.iter().copied().collect::<LargeStringArray>());
            Ok(RecordBatch::try_new(Arc::new(Schema::new(vec![field.clone()])), vec![array])?)
        };
        (field.clone(), values.iter().map(batch).collect())
    }

    #[test]
    fn names_are_sorted_by_bytes_and_distinct() {
        let (field, found) =
            batches(&[&[Some("dog"), None, Some("Zebra")], &[], &[Some("éclair"), Some("dog"), Some("cat")]]);
        assert_eq!(collect(&field, found).unwrap(), ["Zebra", "cat", "dog", "éclair"]);
    }

    #[test]
    fn what_names_no_class_is_refused() {
        let refused = |values: &[Option<&str>]| {
            let (field, found) = batches(&[values]);
            collect(&field, found).unwrap_err().message().to_owned()
        };
        assert!(refused(&[Some("a"), Some("")]).contains("has the value \"\""));
        assert!(refused(&[Some("a\nb")]).contains("can't be a line"));
        assert!(refused(&[None]).contains("has no values"));
        let numbers = Field::new("label", DataType::Int64, true);
        assert!(collect(&numbers, []).unwrap_err().message().contains("finds names in a column of texts"));
        let named = numbers.with_metadata([(CLASSES.to_owned(), r#"["b","a"]"#.to_owned())]);
        assert_eq!(collect(&named, []).unwrap(), ["b", "a"]);
    }

    #[test]
    fn an_endless_column_is_no_label() {
        let field = Field::new("label", DataType::LargeUtf8, true);
        let schema = Arc::new(Schema::new(vec![field.clone()]));
        let endless = (0..).map(|n: i64| {
            let values: Int64Array = (n * 100_000..(n + 1) * 100_000).collect();
            let texts = cast(&values, &DataType::LargeUtf8)?;
            Ok(RecordBatch::try_new(schema.clone(), vec![texts])?)
        });
        assert!(collect(&field, endless).unwrap_err().message().contains("more than 1000000 distinct values"));
    }

    #[test]
    fn the_file_wins() {
        let dir = tempfile::tempdir().unwrap();
        let names = |names: &[&str]| Ok(names.iter().map(|n| (*n).to_owned()).collect());
        let first = resolve(dir.path(), "classes.txt", "label", || names(&["cat", "dog"])).unwrap();
        assert!(first.written && first.note.starts_with("wrote 2 classes of \"label\" to classes.txt"));
        assert_eq!(std::fs::read(dir.path().join("classes.txt")).unwrap(), b"cat\ndog\n");
        std::fs::write(dir.path().join("classes.txt"), "dog\ncat\n").unwrap();
        let second = resolve(dir.path(), "classes.txt", "label", || panic!("there is a file")).unwrap();
        assert_eq!((second.names.as_slice(), second.written), (&["dog".to_owned(), "cat".to_owned()][..], false));
        assert!(second.note.starts_with("took the 2 classes of \"label\" from classes.txt"));
        std::fs::write(dir.path().join("classes.txt"), "dog\n\n").unwrap();
        let broken = resolve(dir.path(), "classes.txt", "label", || names(&["x"])).unwrap_err();
        assert!(broken.message().contains("classes.txt: line 2: "), "{broken}");
        let other = resolve(dir.path(), "other.txt", "label", || Err(Error::unavailable("disk"))).unwrap_err();
        assert_eq!(other.message(), "disk");
        assert!(!dir.path().join("other.txt").exists());
    }
}
