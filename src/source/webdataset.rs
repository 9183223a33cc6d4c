//! The source `tar`, WebDataset's layout: members next to each other whose paths are equal up to the first dot of the name
//! are one sample, what follows that dot names the column. In a plain archive each sample is an entry that is read on its own;
//! a compressed archive is one entry, read as a stream.

use crate::error::{Error, Result};
use crate::format::entry::{Entry, Range};
use crate::format::shard::CHUNK_BYTES;
use crate::format::table::Entries;
use crate::id::Digest;
use crate::source::batch::{Values, assemble, own, schema_of, text};
use crate::source::files::Kind;
use crate::source::json::{self, Shape};
use crate::source::root::{Meter, Opened, Root, digest_file, file_of};
use crate::source::tar::{Input, Stream, Tar};
use crate::source::validator::Part;
use crate::source::{Batches, ListOptions, Listing};
use crate::spec::pipeline::IdentityMode;
use arrow::array::{ArrayRef, Int64Array, LargeStringArray, RecordBatch};
use arrow::datatypes::{DataType, Field, FieldRef, SchemaRef};
use flate2::read::MultiGzDecoder;
use serde_json::Value;
use std::collections::{BTreeMap, HashSet};
use std::io::{BufReader, Read, Seek};
use std::sync::{Arc, OnceLock};

/// Columns and types are found in so many samples of the first archive.
const SAMPLE: usize = 100;
/// Extensions that WebDataset decodes as integers.
const INTEGERS: [&str; 7] = ["cls", "cls2", "class", "count", "index", "inx", "id"];

#[derive(Debug)]
pub(super) struct WebDataset {
    root: Root,
    columns: Option<Vec<String>>,
    plain: OnceLock<bool>,
}

/// A column: the first of these that a sample has.
#[derive(Debug, PartialEq, Eq)]
struct Column {
    name: String,
    alternatives: Vec<Alternative>,
}

#[derive(Debug, PartialEq, Eq)]
struct Alternative {
    extension: String,
    /// Into a JSON member: `json.meta.label`.
    path: Vec<String>,
}

impl Column {
    /// `jpg;jpeg;png`, `json.label` or a single extension.
    fn parse(text: &str) -> Column {
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

/// A sample's members: extension and bytes.
type Sample<'a> = Vec<(String, &'a [u8])>;

/// The sample that a member belongs to and its extension; `None` for names without one and hidden files.
fn split(name: &str) -> Option<(&str, String)> {
    let base = name.rfind('/').map_or(0, |slash| slash + 1);
    let dot = base + name[base..].find('.').filter(|dot| *dot > 0)?;
    let extension = &name[dot + 1..];
    (!extension.is_empty()).then(|| (&name[..dot], extension.to_ascii_lowercase()))
}

fn is_compressed(key: &str) -> bool {
    let key = key.to_ascii_lowercase();
    [".gz", ".tgz", ".zst", ".tzst"].iter().any(|ext| key.ends_with(ext))
}

/// The bytes of an archive, decompressed by what it begins with.
fn decompressed(opened: &Opened) -> Result<Stream<Box<dyn Read + Send>>> {
    let key = opened.key();
    let io = |e| Error::io(format!("cannot read {key}"), e);
    let mut file = opened.file.try_clone().map_err(io)?;
    file.rewind().map_err(io)?;
    Ok(Stream(match opened.compression()? {
        Some("gzip") => Box::new(MultiGzDecoder::new(BufReader::new(file))),
        Some("zstd") => Box::new(zstd::stream::read::Decoder::new(file).map_err(io)?),
        _ => return Err(Error::invalid(format!("{key} is neither gzip nor zstd, as its name says"))),
    }))
}

/// Refuses what only looks like a plain archive.
fn check_plain(opened: &Opened) -> Result<()> {
    let Some(found) = opened.compression()? else { return Ok(()) };
    let hint = match found {
        "gzip" => "name it .tar.gz",
        "zstd" => "name it .tar.zst",
        _ => "compress it with gzip or zstd, or not at all",
    };
    Err(Error::invalid(format!("{} is compressed with {found}; {hint}", opened.key())))
}

/// Follows the samples of an archive and refuses those that are torn apart or name a column twice.
#[derive(Default)]
struct Grouper {
    stem: Option<String>,
    extensions: HashSet<String>,
    done: HashSet<String>,
}

impl Grouper {
    /// Takes the next member; true where a new sample begins with it.
    fn begins(&mut self, archive: &str, stem: &str, extension: &str, at: u64) -> Result<bool> {
        let bad = |why: &str| Error::invalid(format!("{archive}: sample {stem:?}, at byte {at}, {why}"));
        let begins = self.stem.as_deref() != Some(stem);
        if begins {
            self.end();
            if self.done.contains(stem) {
                return Err(bad(
                    "has members that do not stand next to each other; write the archive in the order of names (tar --sort=name)",
                ));
            }
            self.stem = Some(stem.to_owned());
        }
        if !self.extensions.insert(extension.to_owned()) {
            return Err(bad(&format!("has two members .{extension}")));
        }
        Ok(begins)
    }
    fn end(&mut self) {
        self.done.extend(self.stem.take());
        self.extensions.clear();
    }
}

impl WebDataset {
    pub fn new(root: Root, columns: Option<Vec<String>>) -> Self {
        WebDataset { root, columns, plain: OnceLock::new() }
    }

    /// Whether every archive is plain.
    pub fn plain(&self) -> bool {
        let look = || self.root.walk().is_ok_and(|found| !found.iter().any(|f| is_compressed(&f.key)));
        *self.plain.get_or_init(look)
    }

    fn specs(&self) -> Option<Vec<Column>> {
        self.columns.as_ref().map(|columns| columns.iter().map(|c| Column::parse(c)).collect())
    }

    /// From the first samples of the first archive.
    pub fn infer(&self) -> Result<SchemaRef> {
        let found = self.root.walk()?;
        let Some(first) = found.first() else { return Err(self.root.error("there is no archive")) };
        let opened = self.root.open(&first.key)?;
        let mut samples: Vec<Vec<(String, Vec<u8>)>> = Vec::new();
        if is_compressed(&first.key) {
            self.each_sample(Tar::new(decompressed(&opened)?, &first.key, None), &first.key, |_, sample| {
                samples.push(sample);
                Ok(samples.len() < SAMPLE)
            })?;
        } else {
            check_plain(&opened)?;
            let tar = Tar::new(plain(&opened)?, &first.key, Some(opened.validator.bytes));
            self.each_sample(tar, &first.key, |_, sample| {
                samples.push(sample);
                Ok(samples.len() < SAMPLE)
            })?;
        }
        let columns = self.specs().unwrap_or_else(|| {
            let mut columns: Vec<Column> = Vec::new();
            for (extension, _) in samples.iter().flatten() {
                if !columns.iter().any(|c| c.name == *extension) {
                    let alternatives = vec![Alternative { extension: extension.clone(), path: Vec::new() }];
                    columns.push(Column { name: extension.clone(), alternatives });
                }
            }
            columns
        });
        let held: BTreeMap<&str, ()> =
            samples.iter().flatten().map(|(extension, _)| (extension.as_str(), ())).collect();
        let mut fields = Vec::new();
        for column in &columns {
            if !column.alternatives.iter().any(|a| held.contains_key(a.extension.as_str())) {
                let held = held.keys().copied().collect::<Vec<_>>().join(", ");
                return Err(self
                    .root
                    .error(format!("no column {:?}: the first samples of {} hold {held}", column.name, first.key)));
            }
            let values = samples.iter().filter_map(|sample| {
                column.alternatives.iter().find_map(|a| Some((a, &sample.iter().find(|(e, _)| *e == a.extension)?.1)))
            });
            fields.push(Field::new(&column.name, data_type(values), true));
        }
        schema_of(fields)
    }

    /// Hands each sample to `each` until it returns false.
    fn each_sample<R: Input>(
        &self,
        mut tar: Tar<R>,
        archive: &str,
        mut each: impl FnMut(String, Vec<(String, Vec<u8>)>) -> Result<bool>,
    ) -> Result<()> {
        let mut grouper = Grouper::default();
        let mut sample = Vec::new();
        let mut gap = false;
        while let Some(member) = tar.next(&mut gap)? {
            let Some((stem, extension)) = split(&member.name) else { continue };
            let last = grouper.stem.clone();
            if grouper.begins(archive, stem, &extension, member.start)?
                && let Some(last) = last
                && !each(last, std::mem::take(&mut sample))?
            {
                return Ok(());
            }
            let mut bytes = Vec::new();
            tar.data(&mut bytes)?;
            sample.push((extension, bytes));
        }
        match grouper.stem {
            Some(last) => each(last, sample).map(|_| ()),
            None => Ok(()),
        }
    }

    pub fn list(&self, options: &ListOptions) -> Result<Listing> {
        let found = self.root.walk()?;
        let (scanned, hashed) = self.root.scan(&found, "tar 1", options, |opened, meter| {
            if is_compressed(opened.key()) {
                self.index_compressed(opened, meter)
            } else {
                self.index_plain(opened, meter)
            }
        })?;
        self.root.know(found.iter().zip(&scanned).filter(|(file, _)| is_compressed(&file.key)));
        let mut entries = Vec::new();
        for (file, scanned) in found.iter().zip(&scanned) {
            let compressed = is_compressed(&file.key);
            for part in &scanned.parts {
                entries.push(Entry {
                    key: if compressed { file.key.clone() } else { format!("{}/{}", file.key, part.name) },
                    file: (!compressed).then(|| file.key.clone()),
                    identity: self.root.identity(&scanned.validator, part.digest),
                    range: (!compressed).then_some(Range::Bytes { start: part.start, end: part.end }),
                    bytes: part.bytes,
                    rows: part.rows,
                    partition: 0,
                });
            }
        }
        Ok(Listing { entries, carried: None, hashed })
    }

    fn index_plain(&self, opened: &Opened, meter: &Meter) -> Result<Vec<Part>> {
        check_plain(opened)?;
        let archive = opened.key();
        let stat = self.root.mode == IdentityMode::Stat;
        let mut tar = Tar::new(plain(opened)?, archive, Some(opened.validator.bytes));
        let mut grouper = Grouper::default();
        let mut parts: Vec<Part> = Vec::new();
        let mut hasher = blake3::Hasher::new();
        let finish = |parts: &mut Vec<Part>, hasher: &mut blake3::Hasher| {
            if let Some(part) = parts.last_mut() {
                part.bytes = part.end - part.start;
                part.digest = Digest::from_bytes(*hasher.finalize().as_bytes());
            }
            hasher.reset();
        };
        loop {
            let mut gap = false;
            let Some(member) = tar.next(&mut gap)? else { break };
            let Some((stem, extension)) = split(&member.name) else {
                // Nobody's member: the sample before it can't go on behind it.
                grouper.end();
                continue;
            };
            if gap {
                grouper.end();
            }
            if grouper.begins(archive, stem, &extension, member.start)? {
                finish(&mut parts, &mut hasher);
                let digest = Digest::from_bytes([0; 32]);
                parts.push(Part {
                    name: stem.to_owned(),
                    start: member.start,
                    end: member.end,
                    bytes: 0,
                    rows: 1,
                    digest,
                });
            }
            if let Some(part) = parts.last_mut() {
                part.end = member.end;
            }
            if !stat {
                hasher.update(&tar.head);
                tar.pass(|bytes| {
                    hasher.update(bytes);
                    meter.bytes(bytes.len() as u64);
                })?;
            }
        }
        finish(&mut parts, &mut hasher);
        Ok(parts)
    }

    /// One part: the archive, with the number of its samples.
    fn index_compressed(&self, opened: &Opened, meter: &Meter) -> Result<Vec<Part>> {
        let archive = opened.key();
        let mut tar = Tar::new(decompressed(opened)?, archive, None);
        let mut grouper = Grouper::default();
        let mut rows = 0;
        let mut gap = false;
        while let Some(member) = tar.next(&mut gap)? {
            if let Some((stem, extension)) = split(&member.name) {
                rows += u64::from(grouper.begins(archive, stem, &extension, member.start)?);
            }
        }
        let bytes = opened.validator.bytes;
        let digest = digest_file(&opened.file, bytes, |n| meter.bytes(n));
        let digest = digest.map_err(|e| Error::io(format!("cannot read {archive}"), e))?;
        Ok(vec![Part { name: String::new(), start: 0, end: bytes, bytes, rows, digest }])
    }

    /// Column specifications for a schema, which names them by their first alternative.
    fn columns_of(&self, schema: &SchemaRef) -> Vec<Column> {
        let mut specs = self.specs().unwrap_or_default();
        own(schema)
            .iter()
            .map(|field| match specs.iter().position(|s| s.name == *field.name()) {
                Some(at) => specs.swap_remove(at),
                None => Column::parse(field.name()),
            })
            .collect()
    }

    pub fn read_entries(&self, schema: &SchemaRef, entries: &Entries, which: &[usize]) -> Result<RecordBatch> {
        let columns = self.columns_of(schema);
        let mut rows = Builder::new(schema, &columns, which.len());
        let mut current: Option<(&str, Opened)> = None;
        let mut bytes = Vec::new();
        let mut keys = Vec::with_capacity(which.len());
        for &index in which {
            let entry =
                entries.entries.get(index).ok_or_else(|| Error::internal(format!("there is no entry {index}")))?;
            let Some(Range::Bytes { start, end }) = entry.range else {
                return Err(Error::internal(format!("{} is a compressed archive: it is read as a stream", entry.key)));
            };
            let file = file_of(entry);
            if current.as_ref().is_none_or(|(open, _)| *open != file) {
                current = Some((file, self.root.open(file)?));
            }
            let Some((_, opened)) = &current else { return Err(Error::internal("no archive is open")) };
            bytes.clear();
            opened.read(start, end, &mut bytes)?;
            self.root.check(opened, &entry.identity, || Digest::of(&bytes))?;
            let mut tar = Tar::piece(bytes.as_slice(), file);
            let mut sample: Sample = Vec::new();
            let mut gap = false;
            while let Some(member) = tar.next(&mut gap)? {
                let (from, padded) = (member.end - member.bytes.next_multiple_of(512), member.bytes);
                let data = bytes.get(from as usize..(from + padded) as usize);
                let data = data.ok_or_else(|| crate::source::root::changed(file))?;
                if let Some((_, extension)) = split(&member.name) {
                    sample.push((extension, data));
                }
            }
            rows.push(&sample);
            keys.push(entry.key.as_str());
        }
        rows.finish(LargeStringArray::from_iter_values(keys))
    }

    /// The samples of one compressed archive, which is read through twice where this machine hasn't seen it before: first to
    /// know that it is what was listed.
    pub fn read_compressed(self: Arc<Self>, schema: SchemaRef, entry: Entry) -> Result<Batches> {
        let opened = self.root.open(&entry.key)?;
        self.root.trust(&opened, &entry.identity)?;
        let mut tar = Tar::new(decompressed(&opened)?, &entry.key, None);
        let columns = self.columns_of(&schema);
        // A member that was read and belongs to the next sample.
        let mut held: Option<(String, String, Vec<u8>)> = None;
        let mut left = entry.rows;
        let mut ended = false;
        let mut batch = move || -> Result<Option<RecordBatch>> {
            let mut rows = Builder::new(&schema, &columns, 0);
            let mut keys: Vec<String> = Vec::new();
            let mut bytes = 0;
            while !ended && bytes < CHUNK_BYTES {
                let mut sample: Vec<(String, Vec<u8>)> = Vec::new();
                let mut stem = None;
                if let Some((held_stem, extension, data)) = held.take() {
                    stem = Some(held_stem);
                    sample.push((extension, data));
                }
                loop {
                    let Some(member) = tar.next(&mut false)? else {
                        ended = true;
                        break;
                    };
                    let Some((member_stem, extension)) = split(&member.name) else { continue };
                    let mut data = Vec::new();
                    tar.data(&mut data)?;
                    if stem.as_deref().is_some_and(|stem| stem != member_stem) {
                        held = Some((member_stem.to_owned(), extension, data));
                        break;
                    }
                    stem = Some(member_stem.to_owned());
                    sample.push((extension, data));
                }
                let Some(stem) = stem else { break };
                bytes += sample.iter().map(|(_, data)| data.len()).sum::<usize>();
                keys.push(format!("{}/{stem}", entry.key));
                rows.push(&sample.iter().map(|(e, data)| (e.clone(), data.as_slice())).collect::<Sample>());
            }
            opened.unchanged()?;
            if keys.is_empty() {
                return if left == 0 { Ok(None) } else { Err(crate::source::root::changed(&entry.key)) };
            }
            left = left.checked_sub(keys.len() as u64).ok_or_else(|| crate::source::root::changed(&entry.key))?;
            rows.finish(LargeStringArray::from_iter_values(keys)).map(Some)
        };
        let mut failed = false;
        Ok(Box::new(std::iter::from_fn(move || {
            if failed {
                return None;
            }
            let next = batch().transpose();
            failed = matches!(next, Some(Err(_)));
            next
        })))
    }
}

fn plain(opened: &Opened) -> Result<BufReader<std::fs::File>> {
    let io = |e| Error::io(format!("cannot read {}", opened.key()), e);
    let mut file = opened.file.try_clone().map_err(io)?;
    file.rewind().map_err(io)?;
    Ok(BufReader::with_capacity(1 << 18, file))
}

/// The type of a column from its values in the sample.
fn data_type<'a>(values: impl Iterator<Item = (&'a Alternative, &'a Vec<u8>)>) -> DataType {
    let (mut shape, mut fields, mut kind, mut integers, mut any) = (Shape::default(), false, None, true, false);
    for (alternative, bytes) in values {
        any = true;
        if !alternative.path.is_empty() {
            fields = true;
            if let Ok(value) = serde_json::from_slice::<Value>(bytes) {
                shape = shape.with(at_path(&value, &alternative.path).map_or(Shape::Unknown, Shape::of));
            }
            continue;
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
        kind = match kind {
            None => Some(of),
            Some(kind) if kind == of => Some(of),
            Some(_) => Some(Kind::Data),
        };
        integers &= INTEGERS.contains(&extension) && integer(bytes).is_ok();
    }
    match kind {
        _ if fields => shape.data_type(),
        Some(Kind::Text) if any && integers => DataType::Int64,
        Some(kind) => kind.data_type(),
        None => DataType::LargeBinary,
    }
}

fn integer(bytes: &[u8]) -> Result<i64, String> {
    let text = text(bytes)?.trim();
    text.parse().map_err(|_| format!("expected an integer, found {:?}", text.chars().take(60).collect::<String>()))
}

fn at_path<'a>(value: &'a Value, path: &[String]) -> Option<&'a Value> {
    path.iter().try_fold(value, |value, name| value.get(name))
}

/// Grows the columns of a batch, sample by sample.
struct Builder<'a> {
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
    fn new(schema: &'a SchemaRef, columns: &'a [Column], rows: usize) -> Self {
        let out = |column: &Column, field: &Field| match field.data_type() {
            _ if column.alternatives.iter().any(|a| !a.path.is_empty()) => Out::Json(Vec::with_capacity(rows)),
            DataType::Int64 => Out::Integers(Vec::with_capacity(rows)),
            _ => Out::Values(Values::with_capacity(0, rows)),
        };
        let columns =
            columns.iter().zip(own(schema)).map(|(column, field)| (column, field, out(column, field))).collect();
        Builder { schema, columns, errors: Vec::with_capacity(rows) }
    }

    fn push(&mut self, sample: &Sample) {
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

    fn finish(self, keys: LargeStringArray) -> Result<RecordBatch> {
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
    let value: Value = serde_json::from_slice(bytes).map_err(|e| format!("the member is not JSON: {e}"))?;
    let Some(value) = at_path(&value, &alternative.path) else { return Ok(None) };
    json::fits(data_type, value)?;
    Ok(Some(value.clone()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_split_at_the_first_dot_of_its_last_part() {
        let check = |name: &str, expect: Option<(&str, &str)>| {
            assert_eq!(split(name), expect.map(|(stem, ext)| (stem, ext.to_owned())), "{name}");
        };
        check("a/b.c/d.seg.PNG", Some(("a/b.c/d", "seg.png")));
        check("d.jpg", Some(("d", "jpg")));
        check("README", None);
        check("x/._d.jpg", None);
        check("d.", None);
    }

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
