//! The source `table` with `load:`: each row of a table one sample, with the objects that it refers to. The row's carried
//! values and the identities of its objects together are what it is known by, so that one corrected label re-keys one row.

use crate::error::{Error, Result};
use crate::format::entry::{Entry, Identity};
use crate::format::table::Entries;
use crate::id::Digest;
use crate::source::batch::{Values, assemble, chosen, own, schema_of};
use crate::source::files::{Kind, take};
use crate::source::place::{Buckets, Place};
use crate::source::root::{LIST_AGAIN, Root, changed};
use crate::source::row::{row_identity, text};
use crate::source::validator::Validator;
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
    load: Vec<Load>,
    /// Buckets that they name.
    elsewhere: Vec<Root>,
    /// Where they stand.
    places: BTreeMap<String, Span>,
    missing: Missing,
}

/// Objects by bucket (none: on disk) and path.
type Referred = HashMap<(Option<usize>, Option<String>), Object>;

/// A column of objects.
#[derive(Debug)]
struct Load {
    name: String,
    /// Of a key below the source's root or, where a bucket is named, of an object's name in it.
    template: Template,
    /// Which of `elsewhere`.
    bucket: Option<usize>,
}

/// What a listing found of an object.
type Object = (Validator, Digest);

impl Table {
    pub fn new(root: Root, spec: &pipeline::Source, buckets: Buckets) -> Result<Self> {
        let mut elsewhere: Vec<Root> = Vec::new();
        let mut load = Vec::new();
        for (name, text) in &spec.load {
            let (place, paths) = Place::of(&[text], buckets)?;
            let path = paths.iter().map(String::as_str).collect::<String>();
            let bucket = matches!(place, Place::Bucket(_)).then(|| {
                let found = root.at(place, "load");
                elsewhere.iter().position(|root| root.shown() == found.shown()).unwrap_or_else(|| {
                    elsewhere.push(found);
                    elsewhere.len() - 1
                })
            });
            let path = if bucket.is_some() { path.trim_start_matches('/') } else { path.as_str() };
            let template = Template::parse(path).map_err(Error::invalid)?;
            load.push(Load { name: name.clone(), template, bucket });
        }
        let (columns, key, places) = (spec.columns.clone(), spec.key.clone(), spec.places.clone());
        Ok(Table { root, columns, key, load, elsewhere, places, missing: spec.missing })
    }

    /// Where a column's objects lie.
    fn root_of(&self, load: &Load) -> &Root {
        load.bucket.and_then(|bucket| self.elsewhere.get(bucket)).unwrap_or(&self.root)
    }

    /// The columns of the first table, then those loaded.
    pub fn infer(&self) -> Result<SchemaRef> {
        let found = self.root.walk()?;
        let Some(first) = found.first() else { return Err(self.root.error("there is no table")) };
        let mut fields = lookup::fields(&self.root.open(&first.key)?, &first.key, self.columns.as_deref())?;
        for Load { name, template, .. } in &self.load {
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
        let loaded = |name: &str| self.load.iter().any(|load| load.name == name);
        let selected = own(schema).iter().map(|f| f.name().as_str()).filter(|n| !loaded(n));
        for name in selected.chain(self.load.iter().flat_map(|load| load.template.places())) {
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
            let batch = lookup::read(opened, &file.key, &names, own(schema))?;
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
        let object = |(load, path): (&Load, &Option<String>)| objects.get(&(load.bucket, Some(path.clone()?)));
        let missing = |paths: &[Option<String>]| self.load.iter().zip(paths).position(|one| object(one).is_none());
        let absent: Vec<bool> = paths.iter().map(|paths| missing(paths).is_some()).collect();
        self.note_absent(&absent, |row| {
            let path = missing(&paths[row]).and_then(|load| paths[row][load].as_deref());
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
            for (load, path) in self.load.iter().zip(&paths[row]) {
                let object = object((load, path));
                bytes += object.map_or(0, |(validator, _)| validator.bytes);
                let identity = |(v, digest): &Object| self.root_of(load).identity(v, *digest);
                identities.push((load.name.as_str(), object.map_or(Identity::Absent, identity)));
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
            self.shown(),
            summary(names.iter().map(String::as_str))
        ));
    }

    /// Where objects are looked for.
    fn shown(&self) -> String {
        let mut roots: Vec<String> = self.load.iter().map(|load| self.root_of(load).shown()).collect();
        roots.dedup();
        roots.join(" or ")
    }

    /// The path of each object of a row; `None` where a value that it is made of is null.
    fn paths(&self, rows: &RecordBatch, row: usize) -> Result<Vec<Option<String>>> {
        self.load
            .iter()
            .map(|load| {
                let path = load.template.fill(|name| {
                    let column = rows.column_by_name(name)?;
                    if column.is_valid(row) { text(column, row).ok() } else { None }
                });
                match path {
                    Some(path) => {
                        self.root_of(load).path(&path).map_err(|e| match path.starts_with('/') {
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

    /// What is there of all objects, by bucket and path, and how many were hashed.
    fn objects(&self, paths: &[Vec<Option<String>>], options: &ListOptions) -> Result<(Referred, u64)> {
        let mut objects = HashMap::new();
        let mut hashed = 0;
        for bucket in std::iter::once(None).chain((0..self.elsewhere.len()).map(Some)) {
            let loads: Vec<usize> = (0..self.load.len()).filter(|&load| self.load[load].bucket == bucket).collect();
            let Some(root) = loads.first().map(|&load| self.root_of(&self.load[load])) else { continue };
            let mut wanted: Vec<&String> =
                paths.iter().flat_map(|row| loads.iter().filter_map(|&load| row[load].as_ref())).collect();
            wanted.par_sort_unstable();
            wanted.dedup();
            let found = root.look(wanted)?;
            let (scanned, read) = root.scan_whole(&found, options)?;
            hashed += read;
            objects.extend(found.into_iter().zip(scanned).map(|(found, scanned)| {
                let digest = scanned.parts.first().map_or(Digest::from_bytes([0; 32]), |part| part.digest);
                ((bucket, Some(found.key)), (scanned.validator, digest))
            }));
        }
        Ok((objects, hashed))
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
        let paths = which
            .iter()
            .map(|&index| match index < carried.num_rows() {
                true => self.paths(carried, index),
                false => Err(Error::internal(format!("there is no entry {index}"))),
            })
            .collect::<Result<Vec<_>>>()?;
        let mut opened = Vec::with_capacity(self.load.len());
        for (at, load) in self.load.iter().enumerate() {
            let wanted = paths.iter().filter_map(|row| Some((row[at].as_deref()?, None))).collect();
            opened.push(self.root_of(load).each(wanted)?);
        }
        for ((&index, paths), error) in which.iter().zip(&paths).zip(&mut errors) {
            let entry = entries.entries.get(index);
            let entry = entry.ok_or_else(|| Error::internal(format!("there is no entry {index}")))?;
            keys.push(entry.key.as_str());
            let mut identities = Vec::new();
            for (((load, path), opened), values) in self.load.iter().zip(paths).zip(&mut opened).zip(&mut loaded) {
                let name = load.name.as_str();
                let opened = if path.is_some() { opened.next().transpose()?.flatten() } else { None };
                let Some(opened) = opened else {
                    if self.missing == Missing::Fail {
                        *error = Some(match path {
                            Some(path) => format!("{path} is not there"),
                            None => format!("the row names no object for column {name:?}"),
                        });
                    }
                    values.push(None);
                    identities.push((name, Identity::Absent));
                    continue;
                };
                let digest = match too_large(opened.validator.bytes) {
                    Some(reason) => {
                        *error = Some(format!("{} {reason}", opened.key()));
                        values.push(None);
                        if self.root.hashes() { opened.digest(|_| ())? } else { Digest::of(&[]) }
                    }
                    None => {
                        values.push_with(|out| opened.read_all(out))?;
                        Digest::of(values.last())
                    }
                };
                opened.unchanged()?;
                identities.push((name, self.root_of(load).identity(&opened.validator, digest)));
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
        let mut finished: HashMap<&str, Values> = self.load.iter().map(|load| load.name.as_str()).zip(loaded).collect();
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
