//! Files of records, JSON lines and CSV: where records end, how a file is cut into blocks from the front, and records to
//! columns. A record that doesn't fit the columns is a failed row with its reason, never an error.

use crate::error::{Error, Result};
use crate::id::Digest;
use crate::source::csv::{self, Scan};
use crate::source::json::{self, Shape};
use crate::source::opened::Opened;
use arrow::array::ArrayRef;
use arrow::datatypes::{Field, FieldRef};
use serde_json::Value;
use std::io::Read;

/// A block holds at most this many records and, unless a single one is longer, this many bytes.
pub(super) const BLOCK_ROWS: u64 = 1000;
pub(super) const BLOCK_BYTES: u64 = 1 << 20;
const MOST_RECORD_BYTES: usize = 256 << 20;
const MOST_HEADER_BYTES: u64 = 1 << 20;
const PIECE: usize = 1 << 20;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Format {
    Jsonl,
    Csv { delimiter: u8 },
}

impl Format {
    /// By a file's name; tabs separate the cells of `.tsv`.
    pub fn of(file: &str, csv: bool) -> Format {
        let delimiter = if file.to_ascii_lowercase().ends_with(".tsv") { b'\t' } else { b',' };
        if csv { Format::Csv { delimiter } } else { Format::Jsonl }
    }
}

/// A file of records and the columns wanted from it.
#[derive(Debug)]
pub(super) struct Sheet {
    pub format: Format,
    /// The bytes of CSV's first record; they are part of every block's identity, as they say what its cells mean.
    pub header: Vec<u8>,
    names: Vec<String>,
}

/// A run of records: bytes `start..end`, and the digest of the header and these bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Block {
    pub start: u64,
    pub end: u64,
    pub rows: u64,
    pub digest: Digest,
}

impl Sheet {
    /// Reads CSV's header; JSON lines have none. Compressed files are refused.
    pub fn open(opened: &Opened, file: &str, format: Format) -> Result<Sheet> {
        if let Some(compression) = opened.compression()? {
            return Err(Error::invalid(format!(
                "{file} is compressed with {compression}, and rows are read from plain files only; decompress it, or convert it to Parquet"
            )));
        }
        let Format::Csv { delimiter } = format else {
            return Ok(Sheet { format, header: Vec::new(), names: Vec::new() });
        };
        let mut header = Vec::new();
        opened.read(0, opened.validator.bytes.min(MOST_HEADER_BYTES), &mut header)?;
        let mut scan = Scan::default();
        let end = header.iter().position(|&byte| {
            scan = scan.after(byte, delimiter);
            byte == b'\n' && scan == Scan::Start
        });
        match end {
            Some(end) => header.truncate(end + 1),
            None if opened.validator.bytes > MOST_HEADER_BYTES => {
                return Err(Error::invalid(format!(
                    "{file}: the first record, which names the columns, does not end within 1 MiB"
                )));
            }
            None => {}
        }
        let body = header.strip_prefix(b"\xef\xbb\xbf").unwrap_or(&header);
        check_header(body, delimiter).map_err(|e| Error::invalid(format!("{file}, line 1: {e}")))?;
        let mut names = csv::cells(body, delimiter).map_err(|e| Error::invalid(format!("{file}: the header: {e}")))?;
        for (index, name) in names.iter_mut().enumerate() {
            if name.is_empty() {
                *name = format!("column_{index}");
            }
        }
        if let Some(twice) = names.iter().enumerate().find(|(i, n)| names[..*i].contains(n)) {
            return Err(Error::invalid(format!("{file}: the header names {:?} twice; rename one", twice.1)));
        }
        Ok(Sheet { format, header, names })
    }

    /// Calls `each` with the place and bytes of every record and every blank line (`true`), in order, until it returns false.
    fn records(
        &self,
        opened: &Opened,
        file: &str,
        mut each: impl FnMut(u64, &[u8], bool) -> Result<bool>,
    ) -> Result<()> {
        let mut start = self.header.len() as u64;
        let mut buffer: Vec<u8> = Vec::new();
        let mut piece = vec![0; PIECE];
        let mut sequence = opened.sequence(start);
        let mut scan = Scan::default();
        let mut scanned = 0;
        loop {
            let read = match sequence.read(&mut piece) {
                Ok(read) => read,
                Err(e) if e.kind() == std::io::ErrorKind::Interrupted => continue,
                Err(e) => return Err(Error::io(format!("cannot read {file}"), e)),
            };
            buffer.extend_from_slice(&piece[..read]);
            let mut begin = 0;
            while let Some(end) = self.record_end(&buffer, &mut scanned, &mut scan) {
                let record = &buffer[begin..end];
                if !each(start, record, self.blank(record))? {
                    return Ok(());
                }
                start += record.len() as u64;
                begin = end;
            }
            buffer.drain(..begin);
            scanned -= begin;
            if read == 0 {
                if !buffer.is_empty() {
                    each(start, &buffer, self.blank(&buffer))?;
                }
                return Ok(());
            }
            if buffer.len() > MOST_RECORD_BYTES {
                return Err(Error::invalid(format!(
                    "{file}: the record at byte {start} is longer than {} MiB; is a quote left open?",
                    MOST_RECORD_BYTES >> 20
                )));
            }
        }
    }

    /// The end of the next record behind `scanned`, which moves there.
    fn record_end(&self, buffer: &[u8], scanned: &mut usize, scan: &mut Scan) -> Option<usize> {
        let rest = buffer.get(*scanned..)?;
        let found = match self.format {
            Format::Jsonl => rest.iter().position(|&b| b == b'\n'),
            Format::Csv { delimiter } => rest.iter().position(|&byte| {
                *scan = scan.after(byte, delimiter);
                byte == b'\n' && *scan == Scan::Start
            }),
        };
        *scanned = found.map_or(buffer.len(), |at| *scanned + at + 1);
        found.map(|_| *scanned)
    }

    fn blank(&self, record: &[u8]) -> bool {
        match self.format {
            Format::Jsonl => record.trim_ascii().is_empty(),
            Format::Csv { .. } => matches!(record, b"\n" | b"\r\n" | b"\r"),
        }
    }

    /// Cuts the file from the front, so that appending changes the last block only.
    pub fn blocks(&self, opened: &Opened, file: &str, mut progress: impl FnMut(u64)) -> Result<Vec<Block>> {
        let mut blocks = Vec::new();
        let mut open: Option<(u64, u64, u64, blake3::Hasher)> = None;
        let close = |(start, end, rows, hasher): (u64, u64, u64, blake3::Hasher)| Block {
            start,
            end,
            rows,
            digest: Digest::from_bytes(*hasher.finalize().as_bytes()),
        };
        self.records(opened, file, |start, bytes, blank| {
            let end = start + bytes.len() as u64;
            let full = open.as_ref().is_some_and(|o| o.2 == BLOCK_ROWS || end - o.0 > BLOCK_BYTES);
            if full
                && !blank
                && let Some(done) = open.take()
            {
                progress(done.1 - done.0);
                blocks.push(close(done));
            }
            match &mut open {
                Some(block) => {
                    block.1 = end;
                    block.2 += u64::from(!blank);
                    block.3.update(bytes);
                }
                None if blank => {}
                None => {
                    let mut hasher = blake3::Hasher::new();
                    hasher.update(&self.header).update(bytes);
                    open = Some((start, end, 1, hasher));
                }
            }
            Ok(true)
        })?;
        blocks.extend(open.map(close));
        Ok(blocks)
    }

    /// Each record on its own, with its value of the column `key`.
    pub fn keyed(
        &self,
        opened: &Opened,
        file: &str,
        key: &str,
        mut progress: impl FnMut(u64),
    ) -> Result<Vec<(String, Block)>> {
        let field = std::sync::Arc::new(Field::new(key, arrow::datatypes::DataType::LargeUtf8, true));
        let columns = self.columns(file, std::slice::from_ref(&field))?;
        let mut rows = Vec::new();
        self.records(opened, file, |start, bytes, blank| {
            if blank {
                return Ok(true);
            }
            progress(bytes.len() as u64);
            let place = || format!("{file}, row {}", rows.len());
            let values = columns.values(bytes).map_err(|e| Error::invalid(format!("{}: {e}", place())))?;
            let name = match values.first() {
                Some(Value::Object(_) | Value::Array(_) | Value::Null) | None => String::new(),
                Some(value) => json::text(value).into_owned(),
            };
            if name.is_empty() {
                return Err(Error::invalid(format!("{} has no value in the key column {key:?}", place())));
            }
            let mut hasher = blake3::Hasher::new();
            hasher.update(&self.header).update(bytes);
            let digest = Digest::from_bytes(*hasher.finalize().as_bytes());
            rows.push((name, Block { start, end: start + bytes.len() as u64, rows: 1, digest }));
            Ok(true)
        })?;
        Ok(rows)
    }

    /// Names and types from the first block; empty for JSON lines without a row. What can't be stored is an error in the
    /// columns `wanted` (all where `None`) alone.
    pub fn infer(&self, opened: &Opened, file: &str, wanted: Option<&[String]>) -> Result<Vec<Field>> {
        let mut shapes: Vec<(String, Shape)> = self.names.iter().map(|n| (n.clone(), Shape::Unknown)).collect();
        let (mut rows, mut bytes) = (0, 0);
        let mut reason = None;
        self.records(opened, file, |_, record, blank| {
            if blank {
                return Ok(true);
            }
            rows += 1;
            bytes += record.len() as u64;
            if rows > BLOCK_ROWS || (rows > 1 && bytes > BLOCK_BYTES) {
                return Ok(false);
            }
            match self.format {
                Format::Jsonl => match object(record) {
                    Ok(object) => {
                        for (name, value) in object {
                            let shape = match wanted.is_none_or(|wanted| wanted.contains(&name)) {
                                true => Shape::of_sample(&value).map_err(|e| {
                                    Error::invalid(format!("{file}, row {}: column {name:?}: {e}", rows - 1))
                                })?,
                                false => Shape::Unknown,
                            };
                            match shapes.iter_mut().find(|(n, _)| *n == name) {
                                Some((_, common)) => *common = std::mem::take(common).with(shape),
                                None => shapes.push((name, shape)),
                            }
                        }
                    }
                    Err(e) => reason = reason.take().or(Some(e)),
                },
                Format::Csv { delimiter } => match csv::cells(record, delimiter) {
                    Ok(cells) => {
                        for ((_, shape), cell) in shapes.iter_mut().zip(&cells) {
                            *shape = std::mem::take(shape).with(csv::shape(cell));
                        }
                    }
                    Err(e) => reason = reason.take().or(Some(e)),
                },
            }
            Ok(true)
        })?;
        match reason {
            Some(reason) if shapes.is_empty() => {
                Err(Error::invalid(format!("{file}: no row of the first {rows} can be read: {reason}")))
            }
            _ => Ok(shapes.into_iter().map(|(name, shape)| Field::new(name, shape.data_type(), true)).collect()),
        }
    }

    /// Finds the columns in this file; one that CSV's header doesn't name is an error.
    pub fn columns<'a>(&'a self, file: &str, fields: &'a [FieldRef]) -> Result<Columns<'a>> {
        let positions = match self.format {
            Format::Jsonl => Vec::new(),
            Format::Csv { .. } => fields
                .iter()
                .map(|field| {
                    self.names.iter().position(|n| n == field.name()).ok_or_else(|| {
                        Error::invalid(format!(
                            "{file} has no column {:?}; its header names {}",
                            field.name(),
                            self.names.join(", ")
                        ))
                    })
                })
                .collect::<Result<_>>()?,
        };
        Ok(Columns { sheet: self, fields, positions })
    }

    /// The records of a block's bytes.
    pub fn split<'a>(&self, bytes: &'a [u8]) -> Vec<&'a [u8]> {
        let (mut records, mut begin, mut scanned, mut scan) = (Vec::new(), 0, 0, Scan::default());
        while let Some(end) = self.record_end(bytes, &mut scanned, &mut scan) {
            records.push(&bytes[begin..end]);
            begin = end;
        }
        if begin < bytes.len() {
            records.push(&bytes[begin..]);
        }
        records.retain(|record| !self.blank(record));
        records
    }
}

/// Columns wanted from a sheet.
pub(super) struct Columns<'a> {
    sheet: &'a Sheet,
    fields: &'a [FieldRef],
    positions: Vec<usize>,
}

impl Columns<'_> {
    /// The value of each column, or why the record has none to give.
    pub fn values(&self, record: &[u8]) -> Result<Vec<Value>, String> {
        let named = |field: &FieldRef, e: String| format!("column {:?}: {e}", field.name());
        match self.sheet.format {
            Format::Jsonl => {
                let mut object = object(record)?;
                let take = |field: &FieldRef| {
                    let value = object.remove(field.name()).unwrap_or_default();
                    json::fits(field.data_type(), &value).map_err(|e| named(field, e))?;
                    Ok(value)
                };
                self.fields.iter().map(take).collect()
            }
            Format::Csv { delimiter } => {
                let cells = csv::cells(record, delimiter)?;
                if cells.len() != self.sheet.names.len() {
                    return Err(format!("expected {} cells, found {}", self.sheet.names.len(), cells.len()));
                }
                let value = |(field, at): (&FieldRef, &usize)| {
                    let cell = cells.get(*at).map_or("", String::as_str);
                    csv::value(cell, field.data_type()).map_err(|e| named(field, e))
                };
                self.fields.iter().zip(&self.positions).map(value).collect()
            }
        }
    }
}

/// Rows to columns; a failed one is null throughout.
pub(super) fn arrays(fields: &[FieldRef], rows: &[Result<Vec<Value>, String>]) -> Result<Vec<ArrayRef>> {
    let column = |(index, field): (usize, &FieldRef)| {
        let values: Vec<_> = rows.iter().map(|row| row.as_ref().ok().and_then(|values| values.get(index))).collect();
        json::array(field.data_type(), &values)
    };
    fields.iter().enumerate().map(column).collect()
}

/// Refuses what is no first record, and would be read as another one silently.
fn check_header(header: &[u8], delimiter: u8) -> Result<(), String> {
    let line = header.strip_suffix(b"\n").unwrap_or(header);
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    if header.starts_with(&[0xff, 0xfe]) || header.starts_with(&[0xfe, 0xff]) || line.contains(&0) {
        return Err("expected text in UTF-8; it looks like UTF-16: convert it".to_owned());
    }
    if line.is_empty() {
        return Err("expected a record that names the columns, found nothing".to_owned());
    }
    let mut scan = Scan::default();
    let cut = line.iter().position(|&byte| {
        scan = scan.after(byte, delimiter);
        byte == b'\r' && scan != Scan::Quoted
    });
    match cut {
        Some(at) => Err(format!(
            "a carriage return alone, at byte {at}, ends no line; end lines with a line feed (tr '\\r' '\\n')"
        )),
        None => Ok(()),
    }
}

fn object(record: &[u8]) -> Result<serde_json::Map<String, Value>, String> {
    let record = record.strip_prefix(b"\xef\xbb\xbf").unwrap_or(record);
    match json::parse(record) {
        Ok(Value::Object(object)) => Ok(object),
        Ok(_) => Err("the line is JSON but not an object".to_owned()),
        Err(e) => Err(format!("the line is not JSON: {e}")),
    }
}
