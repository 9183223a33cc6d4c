//! Sources end to end: what each kind lists and yields, that identity is enforced at read, and hostile input.

mod archives;
mod buckets;
mod containers;
mod plain_files;
mod sheets;
mod tables;

use arrow::array::{Array, AsArray, RecordBatch};
use arrow::compute::concat_batches;
use forebay::error::{Error, Kind};
use forebay::format::entry::{Entry, Identity};
use forebay::format::table::Entries;
use forebay::io::Objects;
use forebay::source::{ListOptions, Listing, Source};
use forebay::spec::node::Span;
use forebay::spec::pipeline::{self, IdentityMode, Missing, SourceKind};
use std::collections::BTreeMap;
use std::path::PathBuf;

/// A directory with a source over it.
struct Place {
    directory: tempfile::TempDir,
    spec: pipeline::Source,
}

impl Place {
    fn new(kind: SourceKind, pattern: &str) -> Place {
        let span = Span { file: "p.yaml".into(), line: 2, column: 3, field: "".into() };
        let spec = pipeline::Source {
            kind,
            span,
            patterns: vec![pattern.to_owned()],
            root: None,
            columns: None,
            filter: None,
            key: None,
            fields: BTreeMap::new(),
            places: BTreeMap::new(),
            load: BTreeMap::new(),
            missing: Missing::Fail,
            identity: IdentityMode::Content,
        };
        Place { directory: tempfile::tempdir().unwrap(), spec }
    }
    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }
    fn write(&self, name: &str, bytes: impl AsRef<[u8]>) -> &Self {
        let path = self.path(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, bytes).unwrap();
        self
    }
    fn append(&self, name: &str, bytes: &[u8]) {
        use std::io::Write;
        std::fs::OpenOptions::new().append(true).open(self.path(name)).unwrap().write_all(bytes).unwrap();
    }
    fn columns(mut self, columns: &[&str]) -> Self {
        self.spec.columns = Some(columns.iter().map(|c| c.to_string()).collect());
        self
    }
    fn key(mut self, key: &str) -> Self {
        self.spec.key = Some(key.to_owned());
        self
    }
    fn stat(mut self) -> Self {
        self.spec.identity = IdentityMode::Stat;
        self
    }
    fn source(&self) -> Source {
        Source::open(&self.spec, self.directory.path(), None, None, &no_buckets).unwrap()
    }
    /// With a directory for what the machine knows of files.
    fn cached(&self) -> Source {
        Source::open(&self.spec, self.directory.path(), None, Some(self.path("cache")), &no_buckets).unwrap()
    }
    fn list(&self) -> Listing {
        list(&self.source()).unwrap()
    }
    fn list_error(&self) -> Error {
        Source::open(&self.spec, self.directory.path(), None, None, &no_buckets).and_then(|s| list(&s)).unwrap_err()
    }
    /// Lists and reads everything.
    fn rows(&self) -> RecordBatch {
        let source = self.source();
        read(&source, &entries(list(&source).unwrap())).unwrap()
    }
}

/// For sources on disk.
fn no_buckets(bucket: &str) -> Result<Objects, Error> {
    panic!("the bucket {bucket} is asked for")
}

fn list(source: &Source) -> Result<Listing, Error> {
    source.list(&ListOptions { threads: 2, progress: &|_, _| () })
}

fn entries(listing: Listing) -> Entries {
    Entries { entries: listing.entries, carried: listing.carried }
}

fn read(source: &Source, entries: &Entries) -> Result<RecordBatch, Error> {
    let batches = source.read_stream(entries, 0..entries.entries.len())?.collect::<Result<Vec<_>, _>>()?;
    let schema = source.schema()?;
    assert!(batches.iter().all(|b| b.schema() == schema), "every batch has the schema");
    Ok(concat_batches(&schema, &batches)?)
}

fn keys(listing: &Listing) -> Vec<&str> {
    listing.entries.iter().map(|e| e.key.as_str()).collect()
}

fn identities(listing: &Listing) -> Vec<Identity> {
    listing.entries.iter().map(|e| e.identity.clone()).collect()
}

fn text(batch: &RecordBatch, column: &str) -> Vec<Option<String>> {
    let column = batch.column_by_name(column).unwrap_or_else(|| panic!("no {column} in {:?}", batch.schema()));
    column.as_string::<i64>().iter().map(|v| v.map(str::to_owned)).collect()
}

fn bytes(batch: &RecordBatch, column: &str) -> Vec<Option<Vec<u8>>> {
    let column = batch.column_by_name(column).unwrap_or_else(|| panic!("no {column} in {:?}", batch.schema()));
    column.as_binary::<i64>().iter().map(|v| v.map(<[u8]>::to_vec)).collect()
}

fn integers(batch: &RecordBatch, column: &str) -> Vec<Option<i64>> {
    use arrow::datatypes::Int64Type;
    batch.column_by_name(column).unwrap().as_primitive::<Int64Type>().iter().collect()
}

fn some(values: &[&str]) -> Vec<Option<String>> {
    values.iter().map(|v| Some(v.to_string())).collect()
}

fn failed(batch: &RecordBatch) -> Vec<usize> {
    let errors = batch.column_by_name("_error").unwrap();
    (0..errors.len()).filter(|&row| errors.is_valid(row)).collect()
}

fn assert_conflict(error: Error, name: &str) {
    assert_eq!(error.kind(), Kind::Conflict, "{error:?}");
    assert!(error.chain().contains(name) && error.chain().contains("forebay snapshot"), "{error:?}");
}

fn assert_says(error: &Error, words: &[&str]) {
    for word in words {
        assert!(error.chain().contains(word), "{word:?} is not in {:?}", error.chain());
    }
}

fn entry<'a>(listing: &'a Listing, key: &str) -> &'a Entry {
    listing.entries.iter().find(|e| e.key == key).unwrap_or_else(|| panic!("no {key} in {:?}", keys(listing)))
}
