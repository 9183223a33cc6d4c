//! The sources `jsonl` and `csv`. An entry is a block of records cut from the front (with `key:`, one record), known by the
//! digest of its bytes and CSV's header, so that appending re-keys the last block alone.

use crate::error::{Error, Kind, Result};
use crate::format::entry::{Entry, Range};
use crate::format::shard::CHUNK_BYTES;
use crate::id::Digest;
use crate::source::batch::{assemble, chosen, own, schema_of};
use crate::source::lines::{self, Block, Format, Sheet};
use crate::source::opened::Opened;
use crate::source::root::{Root, changed, file_of, ranges_of};
use crate::source::validator::Part;
use crate::source::{Batches, ListOptions, Listing, unique};
use arrow::array::LargeStringArray;
use arrow::datatypes::SchemaRef;
use std::sync::Arc;

/// Most rows in a batch.
const BATCH_ROWS: usize = 8192;

#[derive(Debug)]
pub(super) struct Rows {
    pub root: Root,
    pub csv: bool,
    pub columns: Option<Vec<String>>,
    pub key: Option<String>,
}

impl Rows {
    /// From the first file that has rows.
    pub fn infer(&self) -> Result<SchemaRef> {
        let mut fields = Vec::new();
        for found in self.root.walk()? {
            let opened = self.root.open(&found.key)?;
            let sheet = Sheet::open(&opened, &found.key, Format::of(&found.key, self.csv))?;
            let inferred = sheet.infer(&opened, &found.key, self.columns.as_deref())?;
            if fields.is_empty() {
                fields = inferred;
            }
            if opened.validator.bytes > sheet.header.len() as u64 && !fields.is_empty() {
                break;
            }
        }
        if fields.is_empty() {
            return Err(self.root.error("there is no row to infer columns from"));
        }
        let names: Vec<&str> = fields.iter().map(|f| f.name().as_str()).collect();
        let chosen = chosen(&names, self.columns.as_deref())?;
        schema_of(chosen.into_iter().map(|i| fields[i].clone()).collect())
    }

    pub fn list(&self, schema: &SchemaRef, options: &ListOptions) -> Result<Listing> {
        let found = self.root.walk()?;
        let reader = format!("rows 1 {} {:?}", self.csv, self.key);
        let (scanned, hashed) = self.root.scan(&found, &reader, options, |opened, meter| {
            let file = opened.key();
            let sheet = Sheet::open(opened, file, Format::of(file, self.csv))?;
            sheet.columns(file, own(schema))?;
            let part = |(name, block): (String, Block)| Part {
                name,
                start: block.start,
                end: block.end,
                bytes: block.end - block.start,
                rows: block.rows,
                digest: block.digest,
            };
            let progress = |n| meter.bytes(n);
            Ok(match &self.key {
                Some(key) => sheet.keyed(opened, file, key, progress)?.into_iter().map(part).collect(),
                None => sheet.blocks(opened, file, progress)?.into_iter().map(|b| part((String::new(), b))).collect(),
            })
        })?;
        let mut entries = Vec::new();
        let mut places = Vec::new();
        for (file, scanned) in found.iter().zip(&scanned) {
            let mut first_row = 0;
            for part in &scanned.parts {
                let key = match self.key {
                    Some(_) => part.name.clone(),
                    None => format!("{}#{first_row}", file.key),
                };
                entries.push(Entry {
                    key,
                    file: Some(file.key.clone()),
                    identity: self.root.identity(&scanned.validator, part.digest),
                    range: Some(Range::Bytes { start: part.start, end: part.end }),
                    bytes: part.bytes,
                    rows: part.rows,
                    partition: 0,
                });
                places.push((file.key.as_str(), first_row));
                first_row += part.rows;
            }
        }
        unique(entries.iter().map(|e| e.key.as_str()), |i| format!("{}, row {}", places[i].0, places[i].1))?;
        Ok(Listing { entries, carried: None, hashed })
    }

    /// The rows of entries, in order.
    pub fn read(self: Arc<Self>, schema: SchemaRef, entries: Vec<Entry>) -> Batches {
        let mut entries = entries.into_iter();
        let mut current: Option<(String, Opened, Sheet)> = None;
        Box::new(std::iter::from_fn(move || {
            entries.as_slice().first()?;
            let mut batch = || {
                let (mut keys, mut rows, mut bytes) = (Vec::new(), Vec::new(), 0);
                while let Some(entry) = entries.next() {
                    self.read_entry(&schema, &entry, entries.as_slice(), &mut current, &mut keys, &mut rows)?;
                    bytes += entry.bytes as usize;
                    let next = entries.as_slice().first().map_or(0, |next| next.bytes as usize);
                    if bytes + next > CHUNK_BYTES / 2 || rows.len() >= BATCH_ROWS {
                        break;
                    }
                }
                let errors: Vec<_> = rows.iter().map(|row| row.as_ref().err().cloned()).collect();
                assemble(
                    &schema,
                    LargeStringArray::from_iter_values(&keys),
                    &errors,
                    lines::arrays(own(&schema), &rows)?,
                )
            };
            let batch = batch();
            if batch.is_err() {
                // Nothing after an error: what follows would be at the wrong place.
                entries.by_ref().for_each(drop);
            }
            Some(batch)
        }))
    }

    fn read_entry(
        &self,
        schema: &SchemaRef,
        entry: &Entry,
        ahead: &[Entry],
        current: &mut Option<(String, Opened, Sheet)>,
        keys: &mut Vec<String>,
        rows: &mut Vec<Result<Vec<serde_json::Value>, String>>,
    ) -> Result<()> {
        let file = file_of(entry);
        if current.as_ref().is_none_or(|(open, _, _)| open != file) {
            let opened = self.root.open_as(file, &entry.identity)?;
            opened.body.fetch(&ranges_of(std::iter::once(entry).chain(ahead), file))?;
            let sheet = Sheet::open(&opened, file, Format::of(file, self.csv)).map_err(|e| match e.kind() {
                Kind::Unavailable => e,
                _ => changed(file),
            })?;
            *current = Some((file.to_owned(), opened, sheet));
        }
        let Some((_, opened, sheet)) = current else { return Err(Error::internal("no file is open")) };
        let Some(Range::Bytes { start, end }) = entry.range else {
            return Err(Error::internal(format!("{} is no range of bytes", entry.key)));
        };
        let mut bytes = Vec::new();
        opened.read(start, end, &mut bytes)?;
        self.root.check(opened, &entry.identity, || {
            let digest = blake3::Hasher::new().update(&sheet.header).update(&bytes).finalize();
            Digest::from_bytes(*digest.as_bytes())
        })?;
        let columns = sheet.columns(file, own(schema))?;
        let records = sheet.split(&bytes);
        if records.len() as u64 != entry.rows {
            return Err(changed(file));
        }
        let numbered = entry.key.rsplit_once('#').and_then(|(file, first)| Some((file, first.parse::<u64>().ok()?)));
        for (row, record) in records.into_iter().enumerate() {
            keys.push(match (&self.key, numbered) {
                (None, Some((file, first))) => format!("{file}#{}", first + row as u64),
                _ => entry.key.clone(),
            });
            rows.push(columns.values(record));
        }
        Ok(())
    }
}
