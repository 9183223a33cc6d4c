//! Level 3: where samples come from. Lists entries with their identities and reads them into the first record batches,
//! verifying that what is read is what was listed. `formats/source.md` says what each kind yields and how it is keyed.
//!
//! One file for each kind (`files`, `table`, `webdataset`, `columnar`, `rows`) over shared parts: `pattern` and `walk` find
//! files on disk and `bucket` those in a bucket, `place` tells the two apart, `validator` and `root` know what files are, `opened`
//! reads them, `batch` builds what is read.

mod batch;
mod bucket;
mod columnar;
pub mod compression;
mod csv;
mod files;
mod ipc;
mod json;
mod lines;
mod lookup;
mod members;
mod opened;
mod parquet;
mod pattern;
mod place;
mod root;
pub mod row;
mod rows;
mod samples;
mod table;
mod tar;
mod types;
mod validator;
mod walk;
mod webdataset;

pub use files::Kind;
pub use place::Buckets;
pub use types::CLASSES;

use crate::error::{Error, Kind as Failure, Result};
use crate::format::canonical::Value;
use crate::format::entry::Entry;
use crate::format::shard::CHUNK_BYTES;
use crate::format::table::Entries;
use crate::spec::pipeline::{self, Field, Missing, SourceKind};
use crate::spec::size;
use arrow::array::RecordBatch;
use arrow::datatypes::{Schema, SchemaRef};
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

/// A source bound to the place of its pipeline file. Cheap to clone; shared between threads.
#[derive(Debug, Clone)]
pub struct Source {
    spec: Arc<pipeline::Source>,
    reader: Reader,
    schema: Arc<OnceLock<SchemaRef>>,
}

#[derive(Debug, Clone)]
enum Reader {
    Files(Arc<files::Files>),
    Table(Arc<table::Table>),
    WebDataset(Arc<webdataset::WebDataset>),
    Columnar(Arc<columnar::Columnar>),
    Rows(Arc<rows::Rows>),
}

/// What one listing found, in listing order; `Entry::partition` is 0 until partitioned.
#[derive(Debug, Clone)]
pub struct Listing {
    pub entries: Vec<Entry>,
    /// A row for each entry.
    pub carried: Option<RecordBatch>,
    /// Entries whose bytes were hashed, as the cache did not know them.
    pub hashed: u64,
}

pub struct ListOptions<'a> {
    pub threads: usize,
    /// Called now and then with (entries listed, bytes hashed).
    pub progress: &'a (dyn Fn(u64, u64) + Sync),
}

/// Batches of a stream of entries, in order, each within about `CHUNK_BYTES`.
pub type Batches = Box<dyn Iterator<Item = Result<RecordBatch>> + Send>;

/// Most bytes of a sample's files or members: no array of a batch passes it, and each is read whole.
const MOST_SAMPLE_BYTES: u64 = 1 << 30;

/// Files of a bucket that are looked into at a time while listing.
const REQUESTS: usize = 32;

/// Why a file or sample of so many bytes can't be read.
fn too_large(bytes: u64) -> Option<String> {
    let (held, most) = (size::print(bytes), size::print(MOST_SAMPLE_BYTES));
    (bytes > MOST_SAMPLE_BYTES).then(|| format!("holds {held}, and a sample is at most {most}"))
}

/// Versions of the readers: raised whenever the rows of any file change by a bit.
const VERSION: i64 = 1;

impl Source {
    /// `base`: the pipeline file's directory. `recorded`: the input schema found at an earlier listing, which wins over
    /// inferring it afresh. `cache`: the directory where this machine keeps digests by validator; `None`: nowhere.
    /// `buckets` opens those that the source names.
    pub fn open(
        spec: &pipeline::Source,
        base: &Path,
        recorded: Option<SchemaRef>,
        cache: Option<PathBuf>,
        buckets: Buckets,
    ) -> Result<Self> {
        let within: &[&str] = match spec.kind {
            SourceKind::Files => &["**"],
            SourceKind::Table => &["**/*.csv", "**/*.tsv", "**/*.jsonl", "**/*.ndjson", "**/*.parquet"],
            SourceKind::Tar => &["**/*.tar", "**/*.tar.gz", "**/*.tgz", "**/*.tar.zst", "**/*.tzst"],
            SourceKind::Parquet => &["**/*.parquet"],
            SourceKind::Arrow => &["**/*.arrow", "**/*.arrows", "**/*.feather", "**/*.ipc"],
            SourceKind::Jsonl => &["**/*.jsonl", "**/*.ndjson"],
            SourceKind::Csv => &["**/*.csv", "**/*.tsv"],
            SourceKind::Hdf5 => return Err(spec.span.error("hdf5: sources are not built yet")),
        };
        let placed = |e: Error| match e.kind() {
            Failure::Invalid => spec.span.error(e.chain()),
            _ => spec.span.wrap("the source can't be opened", e),
        };
        let patterns = pattern::Patterns::new(&spec.patterns, spec.root.as_deref(), base, within, buckets);
        let patterns = patterns.map_err(placed)?;
        let root = root::Root::new(patterns, spec.identity, spec.span.clone(), cache);
        let (columns, key) = (spec.columns.clone(), spec.key.clone());
        let reader = match spec.kind {
            SourceKind::Files => {
                let files = files::Files::new(root, spec, base, buckets).map_err(placed)?;
                Reader::Files(Arc::new(files))
            }
            SourceKind::Table => {
                let table = table::Table::new(root, spec, buckets).map_err(placed)?;
                Reader::Table(Arc::new(table))
            }
            SourceKind::Tar => Reader::WebDataset(Arc::new(webdataset::WebDataset::new(root, columns))),
            kind @ (SourceKind::Parquet | SourceKind::Arrow) => {
                let parquet = kind == SourceKind::Parquet;
                Reader::Columnar(Arc::new(columnar::Columnar { root, parquet, columns, key }))
            }
            kind @ (SourceKind::Jsonl | SourceKind::Csv) => {
                Reader::Rows(Arc::new(rows::Rows { root, csv: kind == SourceKind::Csv, columns, key }))
            }
            SourceKind::Hdf5 => return Err(spec.span.error("hdf5: sources are not built yet")),
        };
        let schema = recorded.map_or_else(OnceLock::new, OnceLock::from);
        Ok(Source { spec: Arc::new(spec.clone()), reader, schema: Arc::new(schema) })
    }

    /// The resolved schema of the first batches: `_key`, `_error`, then the source's columns. Inferred from a deterministic
    /// sample, once, unless it was recorded.
    pub fn schema(&self) -> Result<SchemaRef> {
        if let Some(schema) = self.schema.get() {
            return Ok(schema.clone());
        }
        let schema = match &self.reader {
            Reader::Files(files) => files.infer(),
            Reader::Table(table) => table.infer(),
            Reader::WebDataset(tar) => tar.infer(),
            Reader::Columnar(columnar) => columnar.infer(),
            Reader::Rows(rows) => rows.infer(),
        }?;
        Ok(self.schema.get_or_init(|| schema).clone())
    }

    /// Reader and parameters as they enter the recipe; no path of the machine.
    pub fn describe(&self) -> Value {
        let spec = &self.spec;
        let kind = match spec.kind {
            SourceKind::Files => "files",
            SourceKind::Table => "table",
            SourceKind::Tar => "tar",
            SourceKind::Parquet => "parquet",
            SourceKind::Arrow => "arrow",
            SourceKind::Jsonl => "jsonl",
            SourceKind::Csv => "csv",
            SourceKind::Hdf5 => "hdf5",
        };
        let field = |field: &Field| match field {
            Field::Template(text) => Value::map([("template", Value::from(text.as_str()))]),
            Field::Regex(text) => Value::map([("regex", Value::from(text.as_str()))]),
            // Not the table's path: its values are part of each entry's identity.
            Field::Join { table: _, on, matching, column } => Value::map([
                ("on", Value::from(on.as_str())),
                ("matching", matching.as_str().into()),
                ("column", column.as_str().into()),
            ]),
        };
        let missing = match spec.missing {
            Missing::Null => "null",
            Missing::Skip => "skip",
            Missing::Fail => "fail",
        };
        Value::map([
            ("reader", Value::from(kind)),
            ("version", VERSION.into()),
            ("columns", spec.columns.clone().into()),
            ("key", spec.key.clone().into()),
            ("fields", Value::map(spec.fields.iter().map(|(name, f)| (name.as_str(), field(f))))),
            ("load", Value::map(spec.load.iter().map(|(name, text)| (name.as_str(), Value::from(text.as_str()))))),
            ("missing", missing.into()),
        ])
    }

    /// Deterministic: the same files give the same listing whatever the directory order. Any error in it is an error.
    pub fn list(&self, options: &ListOptions) -> Result<Listing> {
        // Threads that wait for a service leave the processors to others.
        let threads = if self.root().is_remote() { options.threads.max(REQUESTS) } else { options.threads.max(1) };
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build();
        let pool = pool.map_err(|e| Error::unavailable("cannot start threads to list the source").caused_by(e))?;
        pool.install(|| {
            let schema = self.schema()?;
            match &self.reader {
                Reader::Files(files) => files.list(&schema, options),
                Reader::Table(table) => table.list(&schema, options),
                Reader::WebDataset(tar) => tar.list(options),
                Reader::Columnar(columnar) => columnar.list(&schema, options),
                Reader::Rows(rows) => rows.list(&schema, options),
            }
        })
    }

    /// What listing passed over or met that deserves a word, a sentence each.
    pub fn notes(&self) -> Vec<String> {
        self.root().notes()
    }

    fn root(&self) -> &root::Root {
        match &self.reader {
            Reader::Files(files) => &files.root,
            Reader::Table(table) => &table.root,
            Reader::WebDataset(tar) => &tar.root,
            Reader::Columnar(columnar) => &columnar.root,
            Reader::Rows(rows) => &rows.root,
        }
    }

    /// Whether each entry is one sample that can be read on its own (`files`, `table`, members of a plain tar), so that
    /// `read_entries` suits; otherwise entries are read as streams.
    pub fn entries_are_samples(&self) -> bool {
        match &self.reader {
            Reader::Files(_) | Reader::Table(_) => true,
            Reader::WebDataset(tar) => tar.plain(),
            Reader::Columnar(_) => false,
            Reader::Rows(_) => self.spec.key.is_some(),
        }
    }

    /// Bytes that the samples of an entry take once read, as far as the last listing tells: more than what is listed where
    /// it is compressed.
    pub fn unpacked_bytes(&self, entry: &Entry) -> u64 {
        match &self.reader {
            Reader::WebDataset(tar) => tar.unpacked_bytes(entry),
            Reader::Files(_) | Reader::Table(_) | Reader::Columnar(_) | Reader::Rows(_) => entry.bytes,
        }
    }

    /// One row for each of the entries `which` (indices into `entries`), in that order. A file that isn't what was listed is a
    /// `Conflict` that names it.
    pub fn read_entries(&self, entries: &Entries, which: &[usize]) -> Result<RecordBatch> {
        let schema = self.schema()?;
        match &self.reader {
            Reader::Files(files) => files.read_entries(&schema, entries, which),
            Reader::Table(table) => table.read_entries(&schema, entries, which),
            Reader::WebDataset(tar) => tar.read_entries(&schema, entries, which),
            Reader::Columnar(_) | Reader::Rows(_) => {
                let picked = which.iter().map(|&i| entries.entries.get(i).cloned()).collect::<Option<Vec<_>>>();
                let picked = picked.ok_or_else(|| Error::internal("an entry that isn't there was asked for"))?;
                let batches = self.stream(schema.clone(), picked).collect::<Result<Vec<_>>>()?;
                let batch = arrow::compute::concat_batches(&schema, &batches)?;
                match batch.num_rows() == which.len() {
                    true => Ok(batch),
                    false => Err(Error::internal("entries of many samples are read as streams")),
                }
            }
        }
    }

    /// The rows of a contiguous range of entries.
    pub fn read_stream(&self, entries: &Entries, which: std::ops::Range<usize>) -> Result<Batches> {
        let schema = self.schema()?;
        let picked =
            entries.entries.get(which.clone()).ok_or_else(|| Error::internal("a range of entries that isn't there"))?;
        if matches!(self.reader, Reader::Columnar(_) | Reader::Rows(_)) {
            return Ok(self.stream(schema, picked.to_vec()));
        }
        // Samples in groups of bounded size; a compressed archive as a stream of its own.
        let carried = entries.carried.as_ref().map(|c| c.slice(which.start, picked.len()));
        let entries = Entries { entries: picked.to_vec(), carried };
        let source = self.clone();
        let mut at = 0;
        let mut archive: Option<Batches> = None;
        let mut failed = false;
        Ok(Box::new(std::iter::from_fn(move || {
            loop {
                if failed {
                    return None;
                }
                let step = (|| {
                    if let Some(batch) = archive.as_mut().and_then(Iterator::next) {
                        return batch.map(Some);
                    }
                    archive = None;
                    let Some(entry) = entries.entries.get(at) else { return Ok(None) };
                    if let (Reader::WebDataset(tar), None) = (&source.reader, &entry.range) {
                        archive = Some(tar.clone().read_compressed(schema.clone(), entry.clone())?);
                        at += 1;
                        return Ok(Some(RecordBatch::new_empty(schema.clone())));
                    }
                    let first = at;
                    let mut bytes = 0;
                    while let Some(entry) = entries.entries.get(at) {
                        bytes += entry.bytes;
                        let stream = matches!((&source.reader, &entry.range), (Reader::WebDataset(_), None));
                        if at > first && (bytes > CHUNK_BYTES as u64 || at - first >= 8192 || stream) {
                            break;
                        }
                        at += 1;
                    }
                    source.read_entries(&entries, &(first..at).collect::<Vec<_>>()).map(Some)
                })();
                match step {
                    Ok(Some(batch)) if batch.num_rows() == 0 => {}
                    other => {
                        failed = other.is_err();
                        return other.transpose();
                    }
                }
            }
        })))
    }

    fn stream(&self, schema: SchemaRef, entries: Vec<Entry>) -> Batches {
        match &self.reader {
            Reader::Columnar(columnar) => columnar.clone().read(schema, entries),
            Reader::Rows(rows) => rows.clone().read(schema, entries),
            Reader::Files(_) | Reader::Table(_) | Reader::WebDataset(_) => Box::new(std::iter::empty()),
        }
    }

    /// One column of every entry's rows, in batches of that column alone; files aren't read for what their keys or the
    /// snapshot tell.
    pub fn column(&self, entries: &Entries, name: &str) -> Result<Batches> {
        let schema = self.schema()?;
        let only = Arc::new(Schema::new(vec![schema.field_with_name(name)?.clone()]));
        let carried = entries.carried.as_ref().and_then(|c| c.column_by_name(name));
        if let (Reader::Files(_) | Reader::Table(_), Some(carried)) = (&self.reader, carried) {
            let batch = RecordBatch::try_new(only, vec![carried.clone()])?;
            return Ok(Box::new(std::iter::once(Ok(batch))));
        }
        let index = schema.index_of(name)?;
        if let (Reader::Files(files), false) = (&self.reader, index == 2) {
            // The keys are enough for fields: the schema asks for nothing else.
            let narrow = batch::schema_of(vec![schema.field(index).clone()])?;
            let which: Vec<usize> = (0..entries.entries.len()).collect();
            let batch = files.read_entries(&narrow, entries, &which)?;
            return Ok(Box::new(std::iter::once(Ok(batch.project(&[2])?))));
        }
        let batches = self.read_stream(entries, 0..entries.entries.len())?;
        Ok(Box::new(batches.map(move |batch| Ok(batch?.project(&[index])?))))
    }

    /// The index of the entry that yields the sample `key`, as far as keys tell: with `key:`, samples of Parquet and Arrow are
    /// named by their values, and only reading finds them.
    pub fn locate(&self, entries: &[Entry], key: &str) -> Option<usize> {
        let exact = entries.iter().position(|e| e.key == key);
        exact.or_else(|| {
            entries.iter().position(|entry| match &self.reader {
                Reader::Files(_) | Reader::Table(_) => false,
                Reader::WebDataset(_) => {
                    entry.range.is_none() && key.strip_prefix(&entry.key).is_some_and(|rest| rest.starts_with('/'))
                }
                Reader::Columnar(_) | Reader::Rows(_) => match (numbered(&entry.key), numbered(key)) {
                    (Some((file, first)), Some((wanted, row))) => {
                        self.spec.key.is_none() && file == wanted && row >= first && row - first < entry.rows
                    }
                    _ => false,
                },
            })
        })
    }
}

/// `file#row`
fn numbered(key: &str) -> Option<(&str, u64)> {
    let (file, row) = key.rsplit_once('#')?;
    Some((file, row.parse().ok()?))
}

/// Errors with the places of both where a key stands twice.
fn unique<'a>(keys: impl Iterator<Item = &'a str>, place: impl Fn(usize) -> String) -> Result<()> {
    let mut seen: HashMap<&str, usize> = HashMap::new();
    for (index, key) in keys.enumerate() {
        if let Some(first) = seen.insert(key, index) {
            return Err(Error::invalid(format!(
                "the key {key:?} stands twice: in {} and in {}",
                place(first),
                place(index)
            )));
        }
    }
    Ok(())
}

/// The first few of many names.
fn summary<'a>(mut names: impl Iterator<Item = &'a str>) -> String {
    let few: Vec<&str> = names.by_ref().take(5).collect();
    let more = if names.next().is_some() { ", …" } else { "" };
    format!("{}{more}", few.join(", "))
}
