//! Files of a source, listed and read through `Source` as pipelines do, and the cache of what was listed.

use super::{Run, Target};
use arrow::array::{ArrayRef, DictionaryArray, Int64Array, LargeBinaryArray, ListArray, RecordBatch, StringArray};
use arrow::datatypes::{Int32Type, Schema};
use arrow::ipc::writer::{FileWriter, StreamWriter};
use forebay::error::Error;
use forebay::format::table::Entries;
use forebay::id::Digest;
use forebay::source::{ListOptions, Source};
use forebay::spec::node::Span;
use forebay::spec::pipeline::{self, IdentityMode, Missing, SourceKind};
use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

pub const TARGETS: &[Target] = &[
    Target {
        name: "tar",
        corpus: archives,
        tokens: &[
            "ustar\0",
            "ustar  \0",
            "0",
            "L",
            "x",
            "S",
            "30 path=a/b.txt\n",
            "26 size=99999999999999\n",
            "\u{0}",
            "../",
        ],
        open: || files(SourceKind::Tar, "a.tar", <[u8]>::to_vec),
    },
    Target {
        name: "tar-zstd",
        corpus: archives,
        tokens: &["ustar\0", "0", "L", "x", "26 size=99999999999999999\n", "GNU.sparse", "\u{80}", "\u{0}"],
        open: || files(SourceKind::Tar, "a.tar.zst", |bytes| zstd::encode_all(bytes, 1).unwrap()),
    },
    Target {
        name: "tar-gzip",
        corpus: || archives().iter().map(|archive| gzip(archive)).collect(),
        tokens: &["\u{1f}", "\u{8}", "\u{0}"],
        open: || files(SourceKind::Tar, "a.tar.gz", <[u8]>::to_vec),
    },
    Target {
        name: "jsonl",
        corpus: || {
            vec![
                b"{\"id\": 1, \"x\": [1.5, null], \"o\": {\"k\": true}}\n\n{\"id\": 2, \"t\": \"a\\u00e9\"}\r\n[1]\n"
                    .to_vec(),
            ]
        },
        tokens: &[
            "{",
            "}",
            "[",
            "]",
            ":",
            ",",
            "\"",
            "\n",
            "null",
            "1e400",
            "-0",
            "\\ud800",
            "18446744073709551615",
            "-99999999999999999999",
            "[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[",
            "\u{feff}",
        ],
        open: || files(SourceKind::Jsonl, "a.jsonl", <[u8]>::to_vec),
    },
    Target {
        name: "csv",
        corpus: || vec![b"id,text,ratio\n1,\"a\n\"\"b\"\"\",0.5\n2,,-1e3\r\n\n3,x\n007,true,nan\n".to_vec()],
        tokens: &[",", "\"", "\n", "\r", "\r\n", "\"\"", "1e999", "-0", "9223372036854775808", "\u{feff}", "true"],
        open: || files(SourceKind::Csv, "a.csv", <[u8]>::to_vec),
    },
    Target {
        name: "parquet",
        corpus: parquets,
        tokens: &["PAR1", "\u{0}", "huggingface", "ARROW:schema"],
        open: || files(SourceKind::Parquet, "a.parquet", <[u8]>::to_vec),
    },
    Target {
        name: "arrow",
        corpus: arrows,
        tokens: &["ARROW1", "\u{ff}", "\u{0}\u{0}\u{0}\u{0}"],
        open: || files(SourceKind::Arrow, "a.arrow", <[u8]>::to_vec),
    },
    Target {
        name: "validators",
        corpus: || vec![Place::new(SourceKind::Csv, "a.csv").cached()],
        tokens: &[],
        open: validators,
    },
];

/// A directory with a source over one file in it.
struct Place {
    directory: tempfile::TempDir,
    spec: pipeline::Source,
}

impl Place {
    fn new(kind: SourceKind, pattern: &str) -> Place {
        let spec = pipeline::Source {
            kind,
            span: Span { file: "fuzz.yaml".into(), line: 1, column: 1, field: "".into() },
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

    /// Lists and reads everything; every batch has the schema.
    fn read(&self, cache: Option<&Path>) -> forebay::error::Result<usize> {
        let source = Source::open(&self.spec, self.directory.path(), None, cache.map(Path::to_owned), &|_| {
            Err(Error::internal("a source on disk asks for a bucket"))
        })?;
        let listing = source.list(&ListOptions { threads: 1, progress: &|_, _| () })?;
        let entries = Entries { entries: listing.entries, carried: listing.carried };
        let schema = source.schema()?;
        let mut rows = 0;
        for batch in source.read_stream(&entries, 0..entries.entries.len())? {
            let batch = batch?;
            assert_eq!(batch.schema(), schema);
            batch.columns().iter().for_each(|column| column.to_data().validate_full().unwrap());
            rows += batch.num_rows();
        }
        assert_eq!(rows as u64, entries.entries.iter().map(|entry| entry.rows).sum::<u64>());
        if source.entries_are_samples() {
            let all: Vec<usize> = (0..entries.entries.len()).rev().collect();
            assert_eq!(source.read_entries(&entries, &all)?.num_rows(), all.len());
        }
        Ok(rows)
    }

    /// The cache that a listing of a small file leaves, less its digest.
    fn cached(&self) -> Vec<u8> {
        std::fs::write(self.path("a.csv"), "id,text\n1,a\n2,b\n").unwrap();
        // Validators younger than the clock's granularity aren't kept.
        let old = std::time::SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(1_000_000_000);
        std::fs::File::options().append(true).open(self.path("a.csv")).unwrap().set_modified(old).unwrap();
        self.read(Some(&self.path("cache"))).unwrap();
        let mut bytes = std::fs::read(self.cache_file()).unwrap();
        bytes.truncate(bytes.len() - 32);
        bytes
    }

    fn cache_file(&self) -> PathBuf {
        std::fs::read_dir(self.path("cache")).unwrap().next().unwrap().unwrap().path()
    }
}

/// Each input, once `wrap` was around it, as the one file of a source.
fn files(kind: SourceKind, name: &'static str, wrap: fn(&[u8]) -> Vec<u8>) -> Run {
    let place = Place::new(kind, name);
    Box::new(move |bytes| {
        std::fs::write(place.path(name), wrap(bytes)).unwrap();
        let _ = place.read(None);
    })
}

fn validators() -> Run {
    let place = Place::new(SourceKind::Csv, "a.csv");
    place.cached();
    let file = place.cache_file();
    Box::new(move |bytes| {
        let mut bytes = bytes.to_vec();
        bytes.extend(Digest::of(&bytes).as_bytes());
        std::fs::write(&file, bytes).unwrap();
        let _ = place.read(Some(&place.path("cache")));
    })
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut out = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    out.write_all(bytes).unwrap();
    out.finish().unwrap()
}

fn archives() -> Vec<Vec<u8>> {
    let members: [(&str, &[u8]); 6] = [
        ("a/1.txt", b"one"),
        ("a/1.cls", b"3"),
        ("a/1.json", br#"{"label": "x", "n": [1]}"#),
        ("a/2.txt", b""),
        ("a/2.cls", b"not a number"),
        ("a/2.json", b"{"),
    ];
    let mut plain = tar::Builder::new(Vec::new());
    for (name, data) in members {
        let mut header = tar::Header::new_gnu();
        header.set_size(data.len() as u64);
        header.set_mode(0o644);
        plain.append_data(&mut header, name, data).unwrap();
    }
    let mut long = tar::Builder::new(Vec::new());
    for (name, data) in members {
        let mut header = tar::Header::new_ustar();
        header.set_size(data.len() as u64);
        long.append_pax_extensions([("path", format!("{}/{name}", "long".repeat(40)).as_bytes()), ("size", b"3")])
            .unwrap();
        long.append_data(&mut header, name, &data[..data.len().min(3)]).unwrap();
    }
    let mut gnu = tar::Builder::new(Vec::new());
    let mut header = tar::Header::new_gnu();
    header.set_size(3);
    gnu.append_data(&mut header, format!("{}/x.txt", "d/".repeat(80)), &b"abc"[..]).unwrap();
    [plain, long, gnu].map(|archive| archive.into_inner().unwrap()).to_vec()
}

fn rows() -> RecordBatch {
    let label: DictionaryArray<Int32Type> = [Some("cat"), None, Some("dog"), Some("cat")].into_iter().collect();
    let lists = [Some(vec![Some(1i32), None]), None, Some(vec![]), Some(vec![Some(2)])];
    RecordBatch::try_from_iter_with_nullable([
        ("id", Arc::new(Int64Array::from(vec![1, 2, 3, 4])) as ArrayRef, false),
        ("text", Arc::new(StringArray::from(vec![Some("a"), None, Some(""), Some("é")])), true),
        ("blob", Arc::new(LargeBinaryArray::from(vec![Some(&b"xyz"[..]), None, Some(b""), Some(b"0")])), true),
        ("label", Arc::new(label), true),
        ("list", Arc::new(ListArray::from_iter_primitive::<Int32Type, _, _>(lists)), true),
    ])
    .unwrap()
}

fn parquets() -> Vec<Vec<u8>> {
    use parquet::basic::{Compression, ZstdLevel};
    let write = |compression| {
        let properties = parquet::file::properties::WriterProperties::builder()
            .set_compression(compression)
            .set_max_row_group_row_count(Some(3))
            .build();
        let mut out = Vec::new();
        let mut writer = parquet::arrow::ArrowWriter::try_new(&mut out, rows().schema(), Some(properties)).unwrap();
        writer.write(&rows()).unwrap();
        writer.close().unwrap();
        out
    };
    vec![write(Compression::UNCOMPRESSED), write(Compression::ZSTD(ZstdLevel::default())), write(Compression::SNAPPY)]
}

fn arrows() -> Vec<Vec<u8>> {
    let schema: Arc<Schema> = rows().schema();
    let mut stream = StreamWriter::try_new(Vec::new(), &schema).unwrap();
    stream.write(&rows()).unwrap();
    stream.write(&rows().slice(1, 2)).unwrap();
    let mut file = FileWriter::try_new(Vec::new(), &schema).unwrap();
    file.write(&rows()).unwrap();
    vec![stream.into_inner().unwrap(), file.into_inner().unwrap()]
}
