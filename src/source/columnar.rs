//! The sources `parquet` and `arrow`: files with columns. An entry is a row group or record batch, known by its file's
//! identity and its number; only the columns wanted are read, once the file is known to be the one that was listed.

use crate::error::{Error, Result};
use crate::format::entry::{Entry, Identity, Range};
use crate::id::Digest;
use crate::source::batch::{assemble, bounded, chosen, key_text, keys_from, own, position, schema_of};
use crate::source::ipc::IpcFile;
use crate::source::opened::Opened;
use crate::source::parquet::ParquetFile;
use crate::source::root::{Root, file_of};
use crate::source::types;
use crate::source::validator::Part;
use crate::source::walk::Found;
use crate::source::{Batches, ListOptions, Listing, unique};
use arrow::array::{Array, ArrayRef, LargeStringArray, RecordBatch};
use arrow::datatypes::{Schema, SchemaRef};
use rayon::prelude::*;
use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;

#[derive(Debug)]
pub(super) struct Columnar {
    pub root: Root,
    pub parquet: bool,
    pub columns: Option<Vec<String>>,
    pub key: Option<String>,
}

/// A file of either container.
pub(super) enum Container {
    Parquet(ParquetFile),
    Arrow(IpcFile),
}

impl Container {
    pub fn open(opened: &Opened, parquet: bool) -> Result<Self> {
        let container = match parquet {
            true => ParquetFile::open(opened).map(Container::Parquet),
            false => IpcFile::open(opened).map(Container::Arrow),
        };
        // Looked at only then: the beginning of a Parquet file would be one more request.
        container.or_else(|error| match opened.compression()? {
            Some(compression) => {
                let key = opened.key();
                Err(Error::invalid(format!("{key} is compressed with {compression} as a whole; decompress it")))
            }
            None => Err(error),
        })
    }
    pub fn schema(&self) -> &SchemaRef {
        match self {
            Container::Parquet(file) => file.schema(),
            Container::Arrow(file) => file.schema(),
        }
    }
    pub fn groups(&self) -> Vec<(u64, u64)> {
        match self {
            Container::Parquet(file) => file.groups(),
            Container::Arrow(file) => file.groups(),
        }
    }
    pub fn read(&self, key: &str, group: usize, roots: &[usize]) -> Result<Batches> {
        Ok(match self {
            Container::Parquet(file) => Box::new(file.read(key, group, roots)?),
            Container::Arrow(file) => Box::new(std::iter::once(file.read(key, group, roots))),
        })
    }
    /// Where the named columns stand in the file, ascending as readers give them, and for each name its place among these;
    /// one that can't be read is an error.
    pub fn find(&self, names: &[&str], file: &str) -> Result<(Vec<usize>, Vec<usize>)> {
        let all: Vec<&str> = self.schema().fields().iter().map(|f| f.name().as_str()).collect();
        let at = |name: &&str| position(&all, name).map_err(|e| Error::invalid(format!("{file}: {e}")));
        let places = names.iter().map(at).collect::<Result<Vec<_>>>()?;
        let mut roots = places.clone();
        roots.sort_unstable();
        roots.dedup();
        if let Container::Parquet(parquet) = self {
            parquet.readable(file, &roots)?;
        }
        let order = places.iter().map(|p| roots.partition_point(|r| r < p)).collect();
        Ok((roots, order))
    }
}

impl Columnar {
    /// The files, without the caches that `datasets` leaves in the folder of a saved dataset.
    fn walk(&self) -> Result<Vec<Found>> {
        let mut found = self.root.walk()?;
        if !self.parquet {
            let mut states: Vec<String> = found.iter().map(|file| beside(&file.key, "state.json")).collect();
            states.dedup();
            let texts = self.root.small_texts(&states)?;
            let files = texts.into_iter().map(|text| data_files(&text?));
            let states: HashMap<String, Option<HashSet<String>>> = states.into_iter().zip(files).collect();
            found.retain(|file| {
                let name = file.key.rsplit('/').next().unwrap_or_default();
                let state = states.get(&beside(&file.key, "state.json")).and_then(Option::as_ref);
                state.is_none_or(|files| files.contains(name))
            });
        }
        Ok(found)
    }

    /// From the first file.
    pub fn infer(&self) -> Result<SchemaRef> {
        let found = self.walk()?;
        let Some(first) = found.first() else { return Err(self.root.error("no file is left to read columns from")) };
        let opened = self.root.open(&first.key)?;
        let container = Container::open(&opened, self.parquet)?;
        let info = self.root.small_texts(&[beside(&first.key, "dataset_info.json")])?.pop().flatten();
        let schema = container.schema();
        let names: Vec<&str> = schema.fields().iter().map(|f| f.name().as_str()).collect();
        let chosen = chosen(&names, self.columns.as_deref())?;
        let picked = Schema::new_with_metadata(
            chosen.into_iter().map(|i| schema.fields()[i].clone()).collect::<Vec<_>>(),
            schema.metadata().clone(),
        );
        schema_of(types::columns(&picked, info.as_deref(), &first.key)?)
    }

    pub fn list(&self, schema: &SchemaRef, options: &ListOptions) -> Result<Listing> {
        let found = self.walk()?;
        let reader = format!("columns 1 {}", self.parquet);
        let (scanned, hashed) = self.root.scan(&found, &reader, options, |opened, meter| {
            let container = Container::open(opened, self.parquet)?;
            let digest = match self.root.hashes() {
                true => opened.digest(|n| meter.bytes(n))?,
                false => Digest::from_bytes([0; 32]),
            };
            let part = |(group, (rows, bytes)): (usize, (u64, u64))| Part {
                name: String::new(),
                start: group as u64,
                end: group as u64 + 1,
                bytes,
                rows,
                digest,
            };
            Ok(container.groups().into_iter().enumerate().map(part).collect())
        })?;
        self.root.know(found.iter().zip(&scanned));
        let mut entries = Vec::new();
        for (file, scanned) in found.iter().zip(&scanned) {
            let mut first_row = 0;
            for part in &scanned.parts {
                entries.push(Entry {
                    key: format!("{}#{first_row}", file.key),
                    file: Some(file.key.clone()),
                    identity: self.root.identity(&scanned.validator, part.digest),
                    range: Some(Range::Group(part.start)),
                    bytes: part.bytes,
                    rows: part.rows,
                    partition: 0,
                });
                first_row += part.rows;
            }
        }
        // A group without rows would share its key with the next one, and has nothing to give.
        entries.retain(|entry| entry.rows > 0);
        self.check(&found, schema)?;
        Ok(Listing { entries, carried: None, hashed })
    }

    /// Every file has the columns, and the key column, if any, names each row once.
    fn check(&self, found: &[Found], schema: &SchemaRef) -> Result<()> {
        let keys = found
            .par_iter()
            .map(|file| {
                let opened = self.root.open(&file.key)?;
                let container = Container::open(&opened, self.parquet)?;
                let names: Vec<&str> = own(schema).iter().map(|f| f.name().as_str()).collect();
                let (roots, order) = container.find(&names, &file.key)?;
                let picked = container.schema().project(&roots)?;
                for (field, place) in own(schema).iter().zip(order) {
                    let empty = arrow::array::new_empty_array(picked.field(place).data_type());
                    types::convert(&empty, field, &file.key, |_, _| ())?;
                }
                match &self.key {
                    Some(key) => keys_of(&container, &file.key, key),
                    None => Ok(Vec::new()),
                }
            })
            .collect::<Result<Vec<Vec<String>>>>()?;
        let places: Vec<(usize, usize)> =
            keys.iter().enumerate().flat_map(|(f, keys)| (0..keys.len()).map(move |row| (f, row))).collect();
        unique(keys.iter().flatten().map(String::as_str), |i| {
            format!("{}, row {}", found[places[i].0].key, places[i].1)
        })
    }

    /// The rows of entries, in order.
    pub fn read(self: Arc<Self>, schema: SchemaRef, entries: Vec<Entry>) -> Batches {
        let mut entries = entries.into_iter();
        let mut current: Option<Current> = None;
        let mut group: Option<Group> = None;
        let mut ready: VecDeque<RecordBatch> = VecDeque::new();
        let mut failed = false;
        Box::new(std::iter::from_fn(move || {
            let mut next = || -> Result<Option<RecordBatch>> {
                loop {
                    if let Some(batch) = ready.pop_front() {
                        return Ok(Some(batch));
                    }
                    if let Some(open) = &mut group {
                        match open.next(&schema)? {
                            Some(batch) => {
                                let mut pieces = Vec::new();
                                bounded(batch, &mut pieces);
                                ready.extend(pieces);
                            }
                            None => group = None,
                        }
                        continue;
                    }
                    let Some(entry) = entries.next() else { return Ok(None) };
                    let file = file_of(&entry);
                    let open = current.as_ref().filter(|c| c.file == file && c.trusted == entry.identity);
                    let open = match open {
                        Some(open) => open,
                        None => {
                            let opened = self.root.open_as(file, &entry.identity)?;
                            self.root.trust(&opened, &entry.identity)?;
                            let container = Container::open(&opened, self.parquet)?;
                            current.insert(Current {
                                file: file.to_owned(),
                                trusted: entry.identity.clone(),
                                opened: Arc::new(opened),
                                container,
                            })
                        }
                    };
                    group = Some(Group::open(&self, &schema, &entry, open.opened.clone(), &open.container)?);
                }
            };
            if failed {
                return None;
            }
            let next = next().transpose();
            failed = matches!(next, Some(Err(_)));
            next
        }))
    }
}

/// The file that is being read, known to be what `trusted` stands for.
struct Current {
    file: String,
    trusted: Identity,
    opened: Arc<Opened>,
    container: Container,
}

/// A row group that is being read.
struct Group {
    opened: Arc<Opened>,
    batches: Batches,
    /// Where each column of the schema, and the key if one is named, stands in a batch read.
    order: Vec<usize>,
    key: Option<String>,
    next_row: u64,
    left: u64,
}

impl Group {
    fn open(
        source: &Columnar,
        schema: &SchemaRef,
        entry: &Entry,
        opened: Arc<Opened>,
        container: &Container,
    ) -> Result<Group> {
        let Some(Range::Group(number)) = entry.range else {
            return Err(Error::internal(format!("{} is no row group", entry.key)));
        };
        let first = entry.key.rsplit_once('#').and_then(|(_, first)| first.parse::<u64>().ok());
        let next_row = first.ok_or_else(|| Error::internal(format!("{:?} names no first row", entry.key)))?;
        let mut names: Vec<&str> = own(schema).iter().map(|f| f.name().as_str()).collect();
        names.extend(source.key.as_deref());
        let (roots, order) = container.find(&names, opened.key())?;
        let batches = container.read(opened.key(), number as usize, &roots)?;
        Ok(Group { opened, batches, order, key: source.key.clone(), next_row, left: entry.rows })
    }

    fn next(&mut self, schema: &SchemaRef) -> Result<Option<RecordBatch>> {
        let Some(batch) = self.batches.next().transpose()? else {
            return match self.left {
                0 => Ok(None),
                _ => Err(Error::invalid(format!("{} holds fewer rows than its footer says", self.opened.key()))),
            };
        };
        self.opened.unchanged()?;
        let file = self.opened.key();
        let rows = batch.num_rows() as u64;
        self.left = self
            .left
            .checked_sub(rows)
            .ok_or_else(|| Error::invalid(format!("{file} holds more rows than its footer says")))?;
        let mut errors = vec![None; batch.num_rows()];
        let columns: Vec<ArrayRef> = own(schema)
            .iter()
            .zip(&self.order)
            .map(|(field, &place)| {
                types::convert(batch.column(place), field, file, |row, reason| errors[row] = Some(reason))
            })
            .collect::<Result<_>>()?;
        let keys = match &self.key {
            None => LargeStringArray::from_iter_values(
                (self.next_row..self.next_row + rows).map(|row| format!("{file}#{row}")),
            ),
            Some(name) => {
                let place = self.order.last().copied().unwrap_or(0);
                keys_from(&flat(batch.column(place))?, name, |row| {
                    format!("{file}, row {}", self.next_row + row as u64)
                })?
            }
        };
        self.next_row += rows;
        assemble(schema, keys, &errors, columns).map(Some)
    }
}

/// Text and dictionaries of it as `large_utf8`.
fn flat(column: &ArrayRef) -> Result<ArrayRef> {
    use arrow::datatypes::DataType;
    match column.data_type() {
        DataType::Utf8 | DataType::Utf8View | DataType::Dictionary(..) => {
            Ok(arrow::compute::cast(column, &DataType::LargeUtf8)?)
        }
        _ => Ok(column.clone()),
    }
}

fn keys_of(container: &Container, file: &str, key: &str) -> Result<Vec<String>> {
    let (roots, _) = container.find(&[key], file)?;
    let mut keys = Vec::new();
    for group in 0..container.groups().len() {
        for batch in container.read(file, group, &roots)? {
            let column = flat(batch?.column(0))?;
            key_text(&column, key)?;
            let before = keys.len();
            let text = keys_from(&column, key, |row| format!("{file}, row {}", before + row))?;
            keys.extend(text.iter().flatten().map(str::to_owned));
        }
    }
    Ok(keys)
}

/// The key of a name in the folder of a file.
fn beside(key: &str, name: &str) -> String {
    let folder = key.rfind('/').map_or(0, |slash| slash + 1);
    format!("{}{name}", &key[..folder])
}

/// What the `state.json` of a saved dataset names as its data.
fn data_files(text: &str) -> Option<HashSet<String>> {
    let state: serde_json::Value = serde_json::from_str(text).ok()?;
    let files = state.get("_data_files")?.as_array()?;
    files.iter().map(|file| Some(file.get("filename")?.as_str()?.to_owned())).collect()
}
