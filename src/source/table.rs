//! The source `table` with `load:`: each row of a table one sample, with the objects that it refers to. The row's carried
//! values and the identities of its objects together are what it is known by, so that one corrected label re-keys one row.

use crate::error::{Error, Result};
use crate::format::entry::{Entry, Identity};
use crate::format::table::Entries;
use crate::id::Digest;
use crate::source::batch::{Values, assemble, chosen, own, schema_of};
use crate::source::files::{Kind, take};
use crate::source::pattern::local;
use crate::source::root::{LIST_AGAIN, Root, changed};
use crate::source::row::{row_identity, text};
use crate::source::validator::Validator;
use crate::source::walk::Found;
use crate::source::{ListOptions, Listing, lookup, summary, too_large, unique};
use crate::spec::node::Span;
use crate::spec::pipeline::{self, Missing};
use crate::spec::template::Template;
use arrow::array::{Array, ArrayRef, BooleanArray, LargeStringArray, RecordBatch};
use arrow::compute::{concat_batches, filter_record_batch};
use arrow::datatypes::{Field, SchemaRef};
use rayon::prelude::*;
use std::collections::{BTreeMap, HashMap};

#[derive(Debug)]
pub(super) struct Table {
    pub root: Root,
    columns: Option<Vec<String>>,
    key: Option<String>,
    load: Vec<(String, Template)>,
    /// Where they stand.
    places: BTreeMap<String, Span>,
    missing: Missing,
}

/// What a listing found of an object.
type Object = (Validator, Digest);

impl Table {
    pub fn new(root: Root, spec: &pipeline::Source) -> Result<Self> {
        let load = spec
            .load
            .iter()
            .map(|(name, text)| Ok((name.clone(), Template::parse(local(text)?).map_err(Error::invalid)?)))
            .collect::<Result<_>>()?;
        let (columns, key, places) = (spec.columns.clone(), spec.key.clone(), spec.places.clone());
        Ok(Table { root, columns, key, load, places, missing: spec.missing })
    }

    /// The columns of the first table, then those loaded.
    pub fn infer(&self) -> Result<SchemaRef> {
        let found = self.root.walk()?;
        let Some(first) = found.first() else { return Err(self.root.error("there is no table")) };
        let mut fields = lookup::fields(&self.root.open(&first.key)?, &first.key, self.columns.as_deref())?;
        for (name, template) in &self.load {
            if let Some(place) = self.places.get(name).filter(|_| fields.iter().any(|f| f.name() == name)) {
                let file = &first.key;
                return Err(place.error(format_args!("{file} has a column {name:?} already; expected another name")));
            }
            let kind = Kind::of(template.ending());
            fields.push(Field::new(name, kind.data_type(), true));
        }
        let names: Vec<&str> = fields.iter().map(|f| f.name().as_str()).collect();
        let chosen = chosen(&names, self.columns.as_deref())?;
        schema_of(chosen.into_iter().map(|i| fields[i].clone()).collect())
    }

    /// The table's columns that rows carry: those of the schema, then those that templates need.
    fn carried(&self, schema: &SchemaRef) -> Vec<String> {
        let mut names: Vec<String> = Vec::new();
        let loaded = |name: &str| self.load.iter().any(|(n, _)| n == name);
        let selected = own(schema).iter().map(|f| f.name().as_str()).filter(|n| !loaded(n));
        for name in selected.chain(self.load.iter().flat_map(|(_, template)| template.places())) {
            if !names.iter().any(|n| n == name) {
                names.push(name.to_owned());
            }
        }
        names
    }

    pub fn list(&self, schema: &SchemaRef, options: &ListOptions) -> Result<Listing> {
        let tables = self.root.walk()?;
        let mut names = self.carried(schema);
        let carried_columns = names.len();
        names.extend(self.key.iter().filter(|key| !names.contains(key)).cloned().collect::<Vec<_>>());
        let mut batches = Vec::new();
        let mut places: Vec<(usize, usize)> = Vec::new();
        for (index, file) in tables.iter().enumerate() {
            let opened = self.root.open(&file.key)?;
            let batch = lookup::read(&opened, &file.key, &names, own(schema))?;
            opened.unchanged()?;
            places.extend((0..batch.num_rows()).map(|row| (index, row)));
            batches.push(batch);
        }
        let Some(first) = batches.first() else { return Err(self.root.error("there is no table")) };
        let mut rows = concat_batches(&first.schema(), &batches)?;
        let place = |(file, row): (usize, usize)| format!("{}, row {row}", tables[file].key);

        let paths = (0..rows.num_rows())
            .map(|row| {
                self.paths(&rows, row).map_err(|e| Error::invalid(format!("{}: {}", place(places[row]), e.message())))
            })
            .collect::<Result<Vec<_>>>()?;
        let (objects, hashed_objects) = self.objects(&paths, options)?;
        let there = |path: &Option<String>| path.as_ref().is_some_and(|p| objects.contains_key(p));
        let absent: Vec<bool> = paths.iter().map(|paths| !paths.iter().all(there)).collect();
        self.note_absent(&absent, |row| {
            let path = paths[row].iter().find(|p| !there(p)).and_then(|p| p.as_deref());
            format!("{} ({})", path.unwrap_or("no name"), place(places[row]))
        });
        let mut keep: Vec<usize> = (0..rows.num_rows()).collect();
        if self.missing == Missing::Skip {
            keep.retain(|&row| !absent[row]);
            rows = filter_record_batch(&rows, &BooleanArray::from_iter(absent.iter().map(|a| Some(!a))))?;
        }
        let carried = rows.project(&(0..carried_columns).collect::<Vec<_>>())?;
        let keys = match &self.key {
            None => None,
            Some(key) => {
                let column = rows.column_by_name(key).ok_or_else(|| Error::internal("the key column was not read"))?;
                Some(crate::source::batch::keys_from(column, key, |row| place(places[keep[row]]))?)
            }
        };
        let mut entries = Vec::with_capacity(keep.len());
        for (index, &row) in keep.iter().enumerate() {
            let (file, row_in_file) = places[row];
            let mut identities = Vec::new();
            let mut bytes = 0;
            for ((name, _), path) in self.load.iter().zip(&paths[row]) {
                let object = path.as_ref().and_then(|p| objects.get(p));
                bytes += object.map_or(0, |(validator, _)| validator.bytes);
                let identity = object.map_or(Identity::Absent, |(v, digest)| self.root.identity(v, *digest));
                identities.push((name.as_str(), identity));
            }
            entries.push(Entry {
                key: match &keys {
                    Some(keys) => keys.value(index).to_owned(),
                    None => format!("{}#{row_in_file}", tables[file].key),
                },
                file: Some(tables[file].key.clone()),
                identity: row_identity(&carried, index, identities)?,
                range: None,
                bytes,
                rows: 1,
                partition: 0,
            });
        }
        unique(entries.iter().map(|e| e.key.as_str()), |i| place(places[keep[i]]))?;
        Ok(Listing { entries, carried: Some(carried), hashed: hashed_objects })
    }

    /// Says how many rows lack an object, and what becomes of them.
    fn note_absent(&self, absent: &[bool], named: impl Fn(usize) -> String) {
        let missing = || (0..absent.len()).filter(|&row| absent[row]);
        let count = missing().count();
        if count == 0 {
            return;
        }
        let names: Vec<String> = missing().take(6).map(named).collect();
        let fate = match self.missing {
            Missing::Fail => "they fail, unless `missing: null` or `missing: skip` is set",
            Missing::Null => "their values are null",
            Missing::Skip => "they are left out",
        };
        let verb = if count == 1 { "row refers" } else { "rows refer" };
        self.root.note(format!(
            "{count} {verb} to objects that are not below {}: {}; {fate}",
            self.root.path.display(),
            summary(names.iter().map(String::as_str))
        ));
    }

    /// The path of each object of a row; `None` where a value that it is made of is null.
    fn paths(&self, rows: &RecordBatch, row: usize) -> Result<Vec<Option<String>>> {
        self.load
            .iter()
            .map(|(_, template)| {
                let path = template.fill(|name| {
                    let column = rows.column_by_name(name)?;
                    if column.is_valid(row) { text(column, row).ok() } else { None }
                });
                match path {
                    Some(path) => {
                        self.root.path(&path).map_err(|e| match path.starts_with('/') {
                            true => Error::invalid(format!(
                                "{path:?} is absolute; expected a path below root:, which may be set to /"
                            )),
                            false => e,
                        })?;
                        let plain = std::path::Path::new(&path).components().collect::<std::path::PathBuf>();
                        Ok(plain.to_str().map(str::to_owned))
                    }
                    None => Ok(None),
                }
            })
            .collect()
    }

    /// What is there of all objects, and how many were hashed.
    fn objects(&self, paths: &[Vec<Option<String>>], options: &ListOptions) -> Result<(HashMap<String, Object>, u64)> {
        use std::io::ErrorKind::{InvalidFilename, NotADirectory, NotFound};
        let mut wanted: Vec<&String> = paths.iter().flatten().flatten().collect();
        wanted.par_sort_unstable();
        wanted.dedup();
        let found = wanted
            .into_par_iter()
            .map(|key| match std::fs::metadata(self.root.path.join(key)) {
                Ok(metadata) if metadata.is_file() => {
                    Ok(Some(Found { key: key.clone(), validator: Validator::of(&metadata) }))
                }
                Ok(_) => Ok(None),
                // A name that no file can have is none's.
                Err(e) if matches!(e.kind(), NotFound | NotADirectory | InvalidFilename) => Ok(None),
                Err(e) => Err(Error::io(format!("cannot look at {key}"), e)),
            })
            .filter_map(Result::transpose)
            .collect::<Result<Vec<_>>>()?;
        let (scanned, hashed) = self.root.scan_whole(&found, options)?;
        let object = |(found, scanned): (Found, crate::source::root::Scanned)| {
            let digest = scanned.parts.first().map_or(Digest::from_bytes([0; 32]), |part| part.digest);
            (found.key, (scanned.validator, digest))
        };
        Ok((found.into_iter().zip(scanned).map(object).collect(), hashed))
    }

    pub fn read_entries(&self, schema: &SchemaRef, entries: &Entries, which: &[usize]) -> Result<RecordBatch> {
        let no_rows = || Error::invalid(format!("the snapshot carries no rows for this table: {LIST_AGAIN}"));
        let carried = entries.carried.as_ref().ok_or_else(no_rows)?;
        let bytes: u64 =
            which.iter().filter_map(|&i| entries.entries.get(i)).map(|e| e.bytes).fold(0, u64::saturating_add);
        let mut loaded: Vec<Values> = self
            .load
            .iter()
            .map(|_| Values::with_capacity((bytes / self.load.len() as u64).min(1 << 30) as usize, which.len()))
            .collect();
        let mut errors = vec![None; which.len()];
        let mut keys = Vec::with_capacity(which.len());
        for (&index, error) in which.iter().zip(&mut errors) {
            let entry = entries.entries.get(index).filter(|_| index < carried.num_rows());
            let entry = entry.ok_or_else(|| Error::internal(format!("there is no entry {index}")))?;
            keys.push(entry.key.as_str());
            let mut identities = Vec::new();
            for (((name, _), path), values) in self.load.iter().zip(self.paths(carried, index)?).zip(&mut loaded) {
                let opened = match &path {
                    Some(path) => self.root.open_if_there(path)?,
                    None => None,
                };
                let Some(opened) = opened else {
                    if self.missing == Missing::Fail {
                        *error = Some(match path {
                            Some(path) => format!("{path} is not there"),
                            None => format!("the row names no object for column {name:?}"),
                        });
                    }
                    values.push(None);
                    identities.push((name.as_str(), Identity::Absent));
                    continue;
                };
                let digest = match too_large(opened.validator.bytes) {
                    Some(reason) => {
                        *error = Some(format!("{} {reason}", opened.key()));
                        values.push(None);
                        opened.digest(|_| ())?
                    }
                    None => {
                        values.push_with(|out| opened.read_all(out))?;
                        Digest::of(values.last())
                    }
                };
                opened.unchanged()?;
                identities.push((name.as_str(), self.root.identity(&opened.validator, digest)));
                if schema.field_with_name(name).is_ok_and(|f| f.data_type() == &arrow::datatypes::DataType::LargeUtf8)
                    && let Some(reason) = values.last_to_text()
                {
                    *error = Some(reason);
                }
            }
            if row_identity(carried, index, identities)? != entry.identity {
                return Err(changed(&entry.key));
            }
        }
        let mut finished: HashMap<&str, Values> = self.load.iter().map(|(name, _)| name.as_str()).zip(loaded).collect();
        let columns: Vec<ArrayRef> = own(schema)
            .iter()
            .map(|field| match finished.remove(field.name().as_str()) {
                Some(values) => values.finish(field.data_type()),
                None => take(carried.column_by_name(field.name()).ok_or_else(no_rows)?, which),
            })
            .collect::<Result<_>>()?;
        assemble(schema, LargeStringArray::from_iter_values(keys), &errors, columns)
    }
}
