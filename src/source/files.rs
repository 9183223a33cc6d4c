//! The source `files`: each file one sample, its bytes in one column named by its kind, with columns made from its key or
//! joined from a table.

use crate::error::{Error, Result};
use crate::format::entry::{Entry, Identity};
use crate::format::table::Entries;
use crate::id::Digest;
use crate::source::batch::{Values, assemble, chosen, own, schema_of, strings};
use crate::source::opened::Opened;
use crate::source::place::{Buckets, Place};
use crate::source::root::{Root, changed, gone};
use crate::source::row::{self, row_identity};
use crate::source::walk::Found;
use crate::source::{ListOptions, Listing, lookup, summary, too_large};
use crate::spec::node::Span;
use crate::spec::pipeline::{self, Field, Missing};
use crate::spec::size;
use crate::spec::template::Template;
use arrow::array::{Array, ArrayRef, LargeStringArray, RecordBatch};
use arrow::datatypes::{self, DataType, Schema, SchemaRef};
use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Most bytes of a table to join.
const MOST_JOINED_BYTES: u64 = 1 << 30;

/// What the bytes of a file are, as far as its extension tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Image,
    Audio,
    Text,
    Data,
}

impl Kind {
    /// By the extension of a path, in any case.
    pub fn of(path: &str) -> Kind {
        let name = path.rsplit('/').next().unwrap_or(path);
        match name.rsplit_once('.').map(|(_, ext)| ext.to_ascii_lowercase()).as_deref() {
            Some(
                "jpg" | "jpeg" | "jpe" | "jfif" | "png" | "apng" | "webp" | "gif" | "bmp" | "tif" | "tiff" | "avif"
                | "heic" | "ppm" | "pgm",
            ) => Kind::Image,
            Some("wav" | "flac" | "mp3" | "ogg" | "oga" | "opus" | "m4a" | "aac" | "aif" | "aiff") => Kind::Audio,
            Some(
                "txt" | "text" | "md" | "html" | "htm" | "xml" | "json" | "csv" | "tsv" | "rst" | "tex" | "srt" | "vtt"
                | "yaml" | "yml",
            ) => Kind::Text,
            _ => Kind::Data,
        }
    }
    /// The name of the column.
    pub const fn column(self) -> &'static str {
        match self {
            Kind::Image => "image",
            Kind::Audio => "audio",
            Kind::Text => "text",
            Kind::Data => "data",
        }
    }
    /// Text is `large_utf8`, all else `large_binary`.
    pub const fn data_type(self) -> DataType {
        match self {
            Kind::Text => DataType::LargeUtf8,
            Kind::Image | Kind::Audio | Kind::Data => DataType::LargeBinary,
        }
    }
}

/// A column besides the bytes.
#[derive(Debug)]
enum Rule {
    Template(Template),
    Regex(regex::Regex),
    Join { place: Place, table: PathBuf, on: String, matching: Template, column: String },
}

#[derive(Debug)]
pub(super) struct Files {
    pub root: Root,
    columns: Option<Vec<String>>,
    rules: Vec<(String, Rule)>,
    /// Where the rules stand.
    places: BTreeMap<String, Span>,
    missing: Missing,
}

impl Files {
    pub fn new(root: Root, spec: &pipeline::Source, base: &Path, buckets: Buckets) -> Result<Self> {
        let rule = |(name, field): (&String, &Field)| {
            let rule = match field {
                Field::Template(text) => Rule::Template(Template::of_key(text).map_err(Error::invalid)?),
                Field::Regex(text) => Rule::Regex(regex::Regex::new(text).map_err(|e| {
                    Error::invalid(format!("the regular expression of field {name:?} is wrong")).caused_by(e)
                })?),
                Field::Join { table, on, matching, column } => {
                    let (place, paths) = Place::of(&[table], buckets)?;
                    Rule::Join {
                        place,
                        table: paths.iter().map(|path| base.join(path)).collect(),
                        on: on.clone(),
                        matching: Template::of_key(matching).map_err(Error::invalid)?,
                        column: column.clone(),
                    }
                }
            };
            Ok((name.clone(), rule))
        };
        let rules = spec.fields.iter().map(rule).collect::<Result<_>>()?;
        let (columns, places) = (spec.columns.clone(), spec.places.clone());
        Ok(Files { root, columns, rules, places, missing: spec.missing })
    }

    /// The kind is that of the patterns' extensions where they have some, else of all files.
    pub fn infer(&self) -> Result<SchemaRef> {
        let of = |kinds: &mut dyn Iterator<Item = Kind>| kinds.reduce(|a, b| if a == b { a } else { Kind::Data });
        let named = of(&mut self.root.patterns.written.iter().map(|p| match p.rsplit('/').next() {
            Some(name) if !name.ends_with(['*', '}']) => Kind::of(name),
            _ => Kind::Data,
        }));
        let kind = match named {
            Some(kind) if kind != Kind::Data => kind,
            _ => of(&mut self.root.paths()?.iter().map(|path| Kind::of(&path.to_string_lossy()))).unwrap_or(Kind::Data),
        };
        if let Some(place) = self.places.get(kind.column()) {
            return Err(place.error(format_args!(
                "the files themselves are the column {:?}; expected another name",
                kind.column()
            )));
        }
        let mut fields = vec![datatypes::Field::new(kind.column(), kind.data_type(), true)];
        fields.extend(self.rules.iter().map(|(name, _)| datatypes::Field::new(name, DataType::LargeUtf8, true)));
        let names: Vec<&str> = fields.iter().map(|f| f.name().as_str()).collect();
        let chosen = chosen(&names, self.columns.as_deref())?;
        let all = schema_of(fields.clone())?;
        if chosen.len() == own(&all).len() {
            return Ok(all);
        }
        schema_of(chosen.into_iter().map(|i| fields[i].clone()).collect())
    }

    fn rule(&self, name: &str) -> Option<&Rule> {
        self.rules.iter().find(|(n, _)| n == name).map(|(_, rule)| rule)
    }

    pub fn list(&self, schema: &SchemaRef, options: &ListOptions) -> Result<Listing> {
        let mut found = self.root.walk()?;
        let carried = self.join(schema, &mut found)?;
        let (scanned, hashed) = self.root.scan_whole(&found, options)?;
        let mut entries = Vec::with_capacity(found.len());
        for (index, (file, scanned)) in found.into_iter().zip(scanned).enumerate() {
            let digest = scanned.parts.first().map_or(Digest::from_bytes([0; 32]), |part| part.digest);
            let identity = self.root.identity(&scanned.validator, digest);
            entries.push(Entry {
                identity: match &carried {
                    Some(carried) => row_identity(carried, index, vec![("", identity)])?,
                    None => identity,
                },
                key: file.key,
                file: None,
                range: None,
                bytes: scanned.validator.bytes,
                rows: 1,
                partition: 0,
            });
        }
        Ok(Listing { entries, carried, hashed })
    }

    /// The joined columns of the files, less those files that `missing: skip` leaves out.
    fn join(&self, schema: &SchemaRef, found: &mut Vec<Found>) -> Result<Option<RecordBatch>> {
        let mut columns: Vec<(&str, Vec<Option<String>>)> = Vec::new();
        let mut unmatched = Vec::new();
        for field in own(schema) {
            let Some(Rule::Join { place, table, on, matching, column }) = self.rule(field.name()) else { continue };
            let values = lookup_table(place, table, on, column).map_err(|e| match self.places.get(field.name()) {
                Some(place) => place.wrap("the table to join can't be read", e),
                None => e,
            })?;
            let mut joined = Vec::with_capacity(found.len());
            for (index, file) in found.iter().enumerate() {
                let hit = matching.fill_from_key(&file.key).and_then(|wanted| values.get(&wanted));
                if hit.is_none() {
                    unmatched.push(index);
                }
                joined.push(hit.cloned().flatten());
            }
            columns.push((field.name(), joined));
        }
        if columns.is_empty() {
            return Ok(None);
        }
        unmatched.sort_unstable();
        unmatched.dedup();
        let mut left: Vec<bool> = vec![true; found.len()];
        match self.missing {
            Missing::Fail if !unmatched.is_empty() => {
                let keys = unmatched.iter().map(|&i| found[i].key.as_str());
                return Err(self.root.error(format!(
                    "{} no row in the joined table: {}; mend the table, or set missing: null or missing: skip",
                    match unmatched.len() {
                        1 => "1 file has".to_owned(),
                        files => format!("{files} files have"),
                    },
                    summary(keys)
                )));
            }
            Missing::Skip => unmatched.iter().for_each(|&i| left[i] = false),
            Missing::Fail | Missing::Null => {}
        }
        let mut at = 0..;
        found.retain(|_| at.next().and_then(|i| left.get(i)).copied().unwrap_or(true));
        let arrays = columns.iter().map(|(_, values)| {
            strings(values.iter().zip(&left).filter(|(_, left)| **left).map(|(value, _)| value.as_deref()))
        });
        let fields: Vec<_> =
            columns.iter().map(|(name, _)| datatypes::Field::new(*name, DataType::LargeUtf8, true)).collect();
        Ok(Some(RecordBatch::try_new(Arc::new(Schema::new(fields)), arrays.collect())?))
    }

    pub fn read_entries(&self, schema: &SchemaRef, entries: &Entries, which: &[usize]) -> Result<RecordBatch> {
        let listed = which
            .iter()
            .map(|&i| entries.entries.get(i).ok_or_else(|| Error::internal(format!("there is no entry {i}"))))
            .collect::<Result<Vec<_>>>()?;
        let mut errors = vec![None; listed.len()];
        let mut columns: Vec<ArrayRef> = Vec::new();
        for field in own(schema) {
            columns.push(match self.rule(field.name()) {
                None => self.read_files(field.data_type(), entries, which, &listed, &mut errors)?,
                Some(Rule::Template(template)) => strings(listed.iter().map(|e| template.fill_from_key(&e.key))),
                Some(Rule::Regex(regex)) => strings(listed.iter().map(|e| {
                    let found = regex.captures(&e.key)?;
                    Some(found.get(1).or_else(|| found.get(0))?.as_str().to_owned())
                })),
                Some(Rule::Join { .. }) => {
                    let carried = entries.carried.as_ref().and_then(|c| c.column_by_name(field.name()));
                    take(carried.ok_or_else(|| changed(field.name()))?, which)?
                }
            });
        }
        let keys = LargeStringArray::from_iter_values(listed.iter().map(|e| e.key.as_str()));
        assemble(schema, keys, &errors, columns)
    }

    fn read_files(
        &self,
        data_type: &DataType,
        entries: &Entries,
        which: &[usize],
        listed: &[&Entry],
        errors: &mut [Option<String>],
    ) -> Result<ArrayRef> {
        // Each file is opened before its listed length is believed, so the sum is only a hint, kept in bounds.
        let bytes: u64 = listed.iter().map(|e| e.bytes).fold(0, u64::saturating_add);
        let mut values = Values::with_capacity(bytes.min(1 << 30) as usize, listed.len());
        let wanted = listed.iter().map(|entry| (entry.key.as_str(), Some(&entry.identity))).collect();
        let opened = self.root.each(wanted)?;
        for ((entry, opened), (&index, error)) in listed.iter().zip(opened).zip(which.iter().zip(errors)) {
            let opened = opened?.ok_or_else(|| gone(&entry.key))?;
            if opened.validator.bytes != entry.bytes {
                return Err(changed(&entry.key));
            }
            if let Some(reason) = too_large(entry.bytes) {
                values.push(None);
                *error = Some(reason);
                continue;
            }
            values.push_with(|out| opened.read_all(out))?;
            let digest = || Digest::of(values.last());
            match &entry.identity {
                Identity::Row(_) => {
                    opened.unchanged()?;
                    let carried = entries.carried.as_ref().ok_or_else(|| changed(&entry.key))?;
                    let object = self.root.identity(&opened.validator, digest());
                    if row_identity(carried, index, vec![("", object)])? != entry.identity {
                        return Err(changed(&entry.key));
                    }
                }
                identity => self.root.check(&opened, identity, digest)?,
            }
            if data_type == &DataType::LargeUtf8 {
                *error = values.last_to_text();
            }
        }
        values.finish(data_type)
    }
}

/// The rows `which` of a carried column.
pub(super) fn take(column: &ArrayRef, which: &[usize]) -> Result<ArrayRef> {
    let indices = arrow::array::UInt64Array::from_iter_values(which.iter().map(|&i| i as u64));
    Ok(arrow::compute::take(column, &indices, None)?)
}

/// `on` to `column` of a table, as text; a value of `on` that stands twice is an error that names both rows.
fn lookup_table(place: &Place, path: &Path, on: &str, column: &str) -> Result<HashMap<String, Option<String>>> {
    let opened = Opened::alone(place, path)?;
    let name = opened.key().to_owned();
    if opened.validator.bytes > MOST_JOINED_BYTES {
        let (held, most) = (size::print(opened.validator.bytes), size::print(MOST_JOINED_BYTES));
        return Err(Error::invalid(format!(
            "{name} holds {held}, and a table to join, which is held in memory, is at most {most}; leave columns out, or write it as Parquet"
        )));
    }
    let names = match on == column {
        true => vec![on.to_owned()],
        false => vec![on.to_owned(), column.to_owned()],
    };
    let batch = lookup::read(opened, &name, &names, &[])?;
    let (keys, values) = (batch.column(0), batch.column(batch.num_columns() - 1));
    let mut table = HashMap::with_capacity(batch.num_rows());
    let mut rows: HashMap<String, usize> = HashMap::with_capacity(batch.num_rows());
    for at in (0..batch.num_rows()).filter(|&at| keys.is_valid(at)) {
        let key = row::text(keys, at)?;
        if let Some(first) = rows.insert(key.clone(), at) {
            return Err(Error::invalid(format!(
                "{name}: {on} is {key:?} in row {first} and in row {at}; each may stand once"
            )));
        }
        let value = if values.is_null(at) { None } else { Some(row::text(values, at)?) };
        table.insert(key, value);
    }
    Ok(table)
}
