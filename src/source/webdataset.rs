//! The source `tar`, WebDataset's layout: members next to each other whose paths are equal up to the first dot of the name
//! are one sample, what follows that dot names the column. In a plain archive each sample is an entry that is read on its own;
//! a compressed archive is one entry, read as a stream.

use crate::error::{Error, Result};
use crate::format::entry::{Entry, Range};
use crate::format::shard::CHUNK_BYTES;
use crate::format::table::Entries;
use crate::id::Digest;
use crate::source::batch::{own, schema_of};
use crate::source::members::{Builder, Column, Inferred, Members};
use crate::source::opened::Opened;
use crate::source::root::{Meter, Root, file_of, ranges_of};
use crate::source::samples::{Grouper, Samples, split};
use crate::source::tar::{Stream, Tar};
use crate::source::validator::Part;
use crate::source::{Batches, ListOptions, Listing};
use crate::spec::size;
use arrow::array::{LargeStringArray, RecordBatch};
use arrow::datatypes::{Field, SchemaRef};
use flate2::read::MultiGzDecoder;
use std::collections::HashMap;
use std::io::{BufReader, Read};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

/// What a compressed archive may hold: it is one partition, and a small file may claim to be a large one.
const MOST_UNPACKED_BYTES: u64 = 16 << 30;

#[derive(Debug)]
pub(super) struct WebDataset {
    pub root: Root,
    columns: Option<Vec<String>>,
    plain: OnceLock<bool>,
    /// Bytes of compressed archives once decompressed, as the last listing found them.
    unpacked: Mutex<HashMap<String, u64>>,
}

fn is_compressed(key: &str) -> bool {
    let key = key.to_ascii_lowercase();
    [".gz", ".tgz", ".zst", ".tzst"].iter().any(|ext| key.ends_with(ext))
}

/// The bytes of an archive, decompressed by what it begins with.
fn decompressed(opened: &Opened) -> Result<Stream<Box<dyn Read + Send>>> {
    let key = opened.key();
    let io = |e| Error::io(format!("cannot read {key}"), e);
    let file = opened.sequence(0);
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

impl WebDataset {
    pub fn new(root: Root, columns: Option<Vec<String>>) -> Self {
        WebDataset { root, columns, plain: OnceLock::new(), unpacked: Mutex::default() }
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
        let mut found = Inferred::new(self.specs());
        if is_compressed(&first.key) {
            found.look(Samples::new(Tar::new(decompressed(&opened)?, &first.key, None), &first.key))?;
        } else {
            check_plain(&opened)?;
            let tar = Tar::new(opened.sequence(0), &first.key, Some(opened.validator.bytes));
            found.look(Samples::new(tar, &first.key))?;
        }
        let mut fields = Vec::new();
        for (column, values) in &found.columns {
            if !column.alternatives.iter().any(|a| found.held.contains(&a.extension)) {
                let held = found.held.iter().map(String::as_str).collect::<Vec<_>>().join(", ");
                return Err(self
                    .root
                    .error(format!("no column {:?}: the first samples of {} hold {held}", column.name, first.key)));
            }
            fields.push(Field::new(&column.name, values.data_type(), true));
        }
        schema_of(fields)
    }

    pub fn list(&self, options: &ListOptions) -> Result<Listing> {
        let found = self.root.walk()?;
        let (scanned, hashed) = self.root.scan(&found, "tar 2", options, |opened, meter| {
            if is_compressed(opened.key()) {
                self.index_compressed(opened, meter)
            } else {
                self.index_plain(opened, meter)
            }
        })?;
        self.root.know(found.iter().zip(&scanned).filter(|(file, _)| is_compressed(&file.key)));
        let mut entries = Vec::new();
        let mut unpacked = HashMap::new();
        for (file, scanned) in found.iter().zip(&scanned) {
            let compressed = is_compressed(&file.key);
            for part in &scanned.parts {
                if compressed {
                    unpacked.insert(file.key.clone(), part.end);
                }
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
        *self.unpacked.lock().unwrap_or_else(PoisonError::into_inner) = unpacked;
        Ok(Listing { entries, carried: None, hashed })
    }

    /// Bytes that an entry's samples take, as far as the last listing tells.
    pub fn unpacked_bytes(&self, entry: &Entry) -> u64 {
        let unpacked = self.unpacked.lock().unwrap_or_else(PoisonError::into_inner);
        unpacked.get(&entry.key).copied().filter(|_| entry.range.is_none()).unwrap_or(entry.bytes)
    }

    fn index_plain(&self, opened: &Opened, meter: &Meter) -> Result<Vec<Part>> {
        check_plain(opened)?;
        let archive = opened.key();
        let mut tar = Tar::new(opened.sequence(0), archive, Some(opened.validator.bytes));
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
            if grouper.begins(archive, stem, &extension, &member)? {
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
            if self.root.hashes() {
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

    /// One part: the archive, with the number of its samples; it ends where the archive does once decompressed.
    fn index_compressed(&self, opened: &Opened, meter: &Meter) -> Result<Vec<Part>> {
        let archive = opened.key();
        let mut tar = Tar::new(decompressed(opened)?, archive, None);
        let mut grouper = Grouper::default();
        let mut rows = 0;
        let mut end = 0;
        while let Some(member) = tar.next(&mut false)? {
            if let Some((stem, extension)) = split(&member.name) {
                rows += u64::from(grouper.begins(archive, stem, &extension, &member)?);
            }
            end = member.end;
            if end > MOST_UNPACKED_BYTES {
                return Err(Error::invalid(format!(
                    "{archive} holds more than {} decompressed; split it, or leave it uncompressed",
                    size::print(MOST_UNPACKED_BYTES)
                )));
            }
        }
        let bytes = opened.validator.bytes;
        let digest = opened.digest(|n| meter.bytes(n))?;
        Ok(vec![Part { name: String::new(), start: 0, end, bytes, rows, digest }])
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
        for (at, &index) in which.iter().enumerate() {
            let entry =
                entries.entries.get(index).ok_or_else(|| Error::internal(format!("there is no entry {index}")))?;
            let Some(Range::Bytes { start, end }) = entry.range else {
                return Err(Error::internal(format!("{} is a compressed archive: it is read as a stream", entry.key)));
            };
            let file = file_of(entry);
            if current.as_ref().is_none_or(|(open, _)| *open != file) {
                let opened = self.root.open_as(file, &entry.identity)?;
                let next = which[at..].iter().map_while(|&index| entries.entries.get(index));
                opened.body.fetch(&ranges_of(next, file))?;
                current = Some((file, opened));
            }
            let Some((_, opened)) = &current else { return Err(Error::internal("no archive is open")) };
            bytes.clear();
            opened.read(start, end, &mut bytes)?;
            self.root.check(opened, &entry.identity, || Digest::of(&bytes))?;
            let mut tar = Tar::piece(bytes.as_slice(), file);
            let mut sample: Members = Vec::new();
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
        let opened = self.root.open_as(&entry.key, &entry.identity)?;
        self.root.trust(&opened, &entry.identity)?;
        let mut samples = Samples::new(Tar::new(decompressed(&opened)?, &entry.key, None), &entry.key);
        let columns = self.columns_of(&schema);
        let mut left = entry.rows;
        let mut batch = move || -> Result<Option<RecordBatch>> {
            let mut rows = Builder::new(&schema, &columns, 0);
            let mut keys: Vec<String> = Vec::new();
            let mut bytes = 0;
            while bytes < CHUNK_BYTES {
                let Some((stem, sample)) = samples.next()? else { break };
                bytes += sample.iter().map(|(_, data)| data.len()).sum::<usize>();
                keys.push(format!("{}/{stem}", entry.key));
                rows.push(&sample.iter().map(|(e, data)| (e.clone(), data.as_slice())).collect::<Members>());
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
