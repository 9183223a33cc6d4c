//! How a table beside files, or given alone, names files: the column and the template that lead from one to the other,
//! tried on what is there.

use std::collections::HashSet;
use std::fs::{self, File};
use std::io::Read;
use std::path::Path;

/// Most bytes of a table that are read.
const MAX_BYTES: u64 = 16 << 20;
/// How many rows of a table are tried as paths.
const TRIED_ROWS: usize = 50;
/// Most directories beside a table in which its files are looked for.
const MAX_DIRECTORIES: usize = 100;

/// The beginning of a CSV file, as texts.
pub(super) struct Table {
    pub columns: Vec<String>,
    pub rows: Vec<Vec<String>>,
    /// Whether these are all rows.
    whole: bool,
}

/// How files find their row in a table beside them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Join {
    /// The column that names files.
    pub on: String,
    /// What of a file's key stands there.
    pub matching: &'static str,
    /// Whether every file has its row.
    pub complete: bool,
}

/// How a row of a table names a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Load {
    /// The path below the table's directory: `images/{file}`.
    pub template: String,
    /// The column, and whether its values can be keys, as each stands once.
    pub column: String,
    pub unique: bool,
}

impl Table {
    pub fn read(path: &Path) -> Option<Table> {
        let mut bytes = Vec::new();
        let whole = {
            let mut file = File::open(path).ok()?;
            file.by_ref().take(MAX_BYTES).read_to_end(&mut bytes).ok()?;
            (bytes.len() as u64) < MAX_BYTES
        };
        if !whole {
            bytes.truncate(bytes.iter().rposition(|b| *b == b'\n')? + 1);
        }
        let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(&bytes);
        let tab = path.extension().is_some_and(|e| e.eq_ignore_ascii_case("tsv"));
        let delimiter = if tab { b'\t' } else { b',' };
        let format = arrow::csv::reader::Format::default().with_header(true).with_delimiter(delimiter);
        let (schema, _) = format.infer_schema(bytes, Some(0)).ok()?;
        let columns: Vec<String> = schema.fields().iter().map(|f| f.name().clone()).collect();
        let text = |name: &String| arrow::datatypes::Field::new(name, arrow::datatypes::DataType::Utf8, true);
        let schema = arrow::datatypes::Schema::new(columns.iter().map(text).collect::<Vec<_>>());
        let reader = arrow::csv::ReaderBuilder::new(schema.into()).with_format(format).build(bytes).ok()?;
        let mut rows = Vec::new();
        for batch in reader {
            let batch = batch.ok()?;
            let values: Vec<_> =
                batch.columns().iter().map(arrow::array::AsArray::as_string::<i32>).collect::<Vec<_>>();
            rows.extend((0..batch.num_rows()).map(|row| values.iter().map(|v| v.value(row).to_owned()).collect()));
        }
        Some(Table { columns, rows, whole })
    }

    pub fn values(&self, column: usize) -> impl Iterator<Item = &str> {
        self.rows.iter().filter_map(move |row| row.get(column)).map(String::as_str)
    }

    pub fn unique(&self, column: usize) -> bool {
        let mut seen = HashSet::new();
        self.values(column).all(|value| !value.is_empty() && seen.insert(value))
    }

    /// The column and template that find a row for most of the files with these keys.
    pub fn join<'a>(&self, keys: impl Iterator<Item = &'a str> + Clone) -> Option<Join> {
        let files = keys.clone().count();
        let mut best: Option<(usize, Join)> = None;
        for column in (0..self.columns.len()).filter(|column| self.unique(*column)) {
            let values: HashSet<&str> = self.values(column).collect();
            for matching in ["{key}", "{name}", "{stem}"] {
                let found = keys.clone().filter(|key| values.contains(filled(matching, key))).count();
                if found > best.as_ref().map_or(0, |(most, _)| *most) {
                    let join = Join { on: self.columns[column].clone(), matching, complete: found == files };
                    best = Some((found, join));
                }
            }
        }
        best.map(|(_, join)| join)
    }

    /// The column that names files below `directory`, by trying its values there, in the directories in it, and with the
    /// `extensions` of files.
    pub fn load(&self, directory: &Path, extensions: &[&str]) -> Option<Load> {
        let mut below = vec![String::new()];
        for entry in fs::read_dir(directory).ok()?.flatten().take(MAX_DIRECTORIES) {
            let name = entry.file_name().to_string_lossy().into_owned();
            if entry.path().is_dir() && !name.starts_with('.') {
                below.push(format!("{name}/"));
            }
        }
        below.sort();
        let mut endings = vec![String::new()];
        endings.extend(extensions.iter().map(|extension| format!(".{extension}")));
        let known = |path: &str| {
            extensions.iter().any(|e| path.len() > e.len() && path.to_ascii_lowercase().ends_with(&format!(".{e}")))
        };
        let mut best: Option<(usize, Load)> = None;
        for (column, heading) in self.columns.iter().enumerate().filter(|(_, c)| !c.contains(['{', '}'])) {
            let plain = |value: &&str| {
                let parts = || value.split('/');
                !value.is_empty() && !value.starts_with('/') && !parts().any(|part| matches!(part, "." | ".."))
            };
            let values: Vec<&str> = self.values(column).filter(plain).take(TRIED_ROWS).collect();
            for (before, ending) in below.iter().flat_map(|b| endings.iter().map(move |e| (b, e))) {
                let is_there = |value: &&&str| {
                    let path = format!("{before}{value}{ending}");
                    known(&path) && directory.join(path).is_file()
                };
                let found = values.iter().filter(is_there).count();
                // Half of them are no accident; what is missing is said by `check`.
                if found * 2 > values.len() && found > best.as_ref().map_or(0, |(most, _)| *most) {
                    let escape = |text: &str| text.replace('{', "{{").replace('}', "}}");
                    let template = format!("{}{{{heading}}}{ending}", escape(before));
                    best = Some((
                        found,
                        Load { template, column: heading.clone(), unique: self.whole && self.unique(column) },
                    ));
                }
            }
        }
        best.map(|(_, load)| load)
    }
}

/// What a template is for a file's key.
fn filled<'a>(template: &str, key: &'a str) -> &'a str {
    let name = key.rsplit('/').next().unwrap_or(key);
    match template {
        "{name}" => name,
        "{stem}" => name.rsplit_once('.').map_or(name, |(stem, _)| stem),
        _ => key,
    }
}
