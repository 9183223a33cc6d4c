//! Sources in buckets: every kind gives what the same files give on disk, only what is wanted is fetched, and what changed
//! after it was listed is refused. On a real server, and on a memory that counts what it is asked for.

use super::*;
use crate::servers::Server;
use crate::sources::containers::parquet;
use arrow::array::{ArrayRef, Int64Array, LargeBinaryArray};
use async_trait::async_trait;
use forebay::error::Result;
use forebay::io::{Access, Put, Storage};
use futures_util::stream::BoxStream;
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{
    CopyOptions, GetOptions, GetRange, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStore,
    PutMultipartOptions, PutOptions, PutPayload, PutResult, Result as Answer,
};
use std::fmt;
use std::ops::Range as Bytes;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// What a kind of source reads: its settings, and files by name.
struct Case {
    place: Place,
    files: Vec<(&'static str, Vec<u8>)>,
}

fn case(kind: SourceKind, pattern: &str, files: &[(&'static str, &[u8])]) -> Case {
    let files = files.iter().map(|(name, bytes)| (*name, bytes.to_vec())).collect();
    Case { place: Place::new(kind, pattern), files }
}

fn arrow_file(groups: i64) -> Vec<u8> {
    let batch = |from: i64| {
        let ids = Int64Array::from_iter_values(from..from + 4);
        RecordBatch::try_from_iter([("id", Arc::new(ids) as ArrayRef)]).unwrap()
    };
    let mut writer = arrow::ipc::writer::FileWriter::try_new(Vec::new(), &batch(0).schema()).unwrap();
    (0..groups).for_each(|group| writer.write(&batch(group * 4)).unwrap());
    writer.into_inner().unwrap()
}

/// Rows of a number and of bytes that don't compress.
fn wide(rows: usize, bytes: usize) -> RecordBatch {
    let noise = |row: usize| {
        let mut out = vec![0; bytes];
        blake3::Hasher::new().update(&row.to_le_bytes()).finalize_xof().fill(&mut out);
        out
    };
    let ids = Int64Array::from_iter_values(0..rows as i64);
    let values = LargeBinaryArray::from_iter_values((0..rows).map(noise));
    RecordBatch::try_from_iter([("id", Arc::new(ids) as ArrayRef), ("wide", Arc::new(values))]).unwrap()
}

fn archive(members: &[(&str, &[u8])]) -> Vec<u8> {
    let mut archive = tar::Builder::new(Vec::new());
    for (name, bytes) in members {
        let mut header = tar::Header::new_gnu();
        header.set_size(bytes.len() as u64);
        archive.append_data(&mut header, name, *bytes).unwrap();
    }
    archive.into_inner().unwrap()
}

fn gzipped(bytes: &[u8]) -> Vec<u8> {
    use std::io::Write;
    let mut out = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    out.write_all(bytes).unwrap();
    out.finish().unwrap()
}

fn cases() -> Vec<Case> {
    let members = archive(&[("a.jpg", b"one"), ("a.cls", b"3"), ("b.jpg", &[7; 3000]), ("b.cls", b"4")]);
    let csv = b"file,label\na.jpg,cat\nb c%+#.jpg,dog\nnone.jpg,owl\n";
    let photos: &[(&str, &[u8])] = &[("p/x/a.jpg", b"first"), ("p/x/b c%+#é.jpg", b"second"), ("p/.hidden.jpg", b"no")];
    let mut joined = case(SourceKind::Files, "p/**/*.jpg", photos);
    joined.files.push(("labels.csv", b"name,label\na.jpg,cat\n".to_vec()));
    let join = pipeline::Field::Join {
        table: "labels.csv".into(),
        on: "name".into(),
        matching: "{name}".into(),
        column: "label".into(),
    };
    joined.place.spec.fields.insert("label".into(), join);
    joined.place.spec.missing = Missing::Null;
    let mut table = case(SourceKind::Table, "t.csv", &[("t.csv", csv), ("i/a.jpg", b"A"), ("i/b c%+#.jpg", b"B")]);
    table.place.spec.load.insert("image".into(), "i/{file}".into());
    let jsonl: Vec<u8> = (0..2500).flat_map(|i| format!("{{\"id\": {i}, \"t\": \"{i}\"}}\n").into_bytes()).collect();
    vec![
        case(SourceKind::Files, "p/**/*.jpg", photos),
        joined,
        table,
        case(SourceKind::Tar, "s/*.tar", &[("s/0.tar", &members), ("s/1.tar", &members)]),
        case(
            SourceKind::Tar,
            "s/{0..1}.tar.gz",
            &[("s/0.tar.gz", &gzipped(&members)), ("s/1.tar.gz", &gzipped(&members))],
        ),
        case(
            SourceKind::Parquet,
            "d",
            &[("d/a.parquet", &parquet(&wide(10, 50), 4)), ("d/deep/b.parquet", &parquet(&wide(3, 5), 4))],
        ),
        case(SourceKind::Arrow, "d/*.arrow", &[("d/a.arrow", &arrow_file(3)), ("d/b.arrow", &arrow_file(1))]),
        case(SourceKind::Jsonl, "r.jsonl", &[("r.jsonl", &jsonl)]),
        case(SourceKind::Csv, "c", &[("c/1.csv", csv), ("c/2.csv", csv)]),
        case(SourceKind::Csv, "c/*.csv", &[("c/1.csv", csv)]).keyed("file"),
    ]
}

impl Case {
    fn keyed(mut self, key: &str) -> Case {
        self.place.spec.key = Some(key.to_owned());
        self
    }

    /// The same source below a URL.
    fn spec_at(&self, url: &str, identity: IdentityMode) -> pipeline::Source {
        let mut spec = self.place.spec.clone();
        let at = |path: &String| format!("{url}/{path}");
        spec.patterns = spec.patterns.iter().map(at).collect();
        for field in spec.fields.values_mut() {
            if let pipeline::Field::Join { table, .. } = field {
                *table = at(table);
            }
        }
        spec.root = Some(url.to_owned());
        spec.identity = identity;
        spec
    }
}

fn access(server: &Server, scratch: &std::path::Path) -> Access {
    let options = server.environment().map(|(name, value)| (name.to_ascii_lowercase(), value.to_owned()));
    let patience = Duration::from_secs(5);
    Access { given: options.into(), scratch: scratch.to_owned(), patience, ..Access::default() }
}

fn open(spec: &pipeline::Source, access: &Access, cache: Option<PathBuf>) -> Result<Source> {
    let buckets = |bucket: &str| Objects::open(bucket, access);
    Source::open(spec, std::path::Path::new("/nowhere"), None, cache, &buckets)
}

/// Keys, values and columns are those of the disk; a listing anew is the same.
fn same_as_on_disk(server: &Server, identity: IdentityMode) {
    let scratch = tempfile::tempdir().unwrap();
    let access = access(server, scratch.path());
    for (number, mut case) in cases().into_iter().enumerate() {
        let name = format!("{} {number} {:?} {identity:?}", server.name, case.place.spec.kind);
        let url = server.prefix("source");
        let storage = Storage::open(&url, &access).unwrap();
        for (file, bytes) in &case.files {
            case.place.write(file, bytes);
            assert_eq!(storage.put(bytes, file, true).unwrap(), Put::Created);
        }
        let spec = case.spec_at(&url, identity);
        case.place.spec.root = Some(".".to_owned());
        let expected = case.place.rows();
        assert!(expected.num_rows() > 1, "{name}");
        let source = open(&spec, &access, None).unwrap();
        let listing = list(&source).unwrap_or_else(|e| panic!("{name}: {}", e.chain()));
        assert_eq!(keys(&listing), keys(&case.place.list()), "{name}");
        let again = list(&open(&spec, &access, None).unwrap()).unwrap();
        assert_eq!(identities(&listing), identities(&again), "{name}");
        if identity == IdentityMode::Content && case.place.spec.load.is_empty() {
            assert_eq!(
                identities(&listing),
                identities(&case.place.list()),
                "{name}: content is known alike everywhere"
            );
        }
        let entries = entries(listing);
        let rows = read(&source, &entries).unwrap_or_else(|e| panic!("{name}: {}", e.chain()));
        assert_eq!(rows, expected, "{name}");
        // As one that only reads does: from a snapshot, with nothing listed before.
        let schema = Some(source.schema().unwrap());
        let buckets = |bucket: &str| Objects::open(bucket, &access);
        let reader = Source::open(&spec, std::path::Path::new("/nowhere"), schema, None, &buckets).unwrap();
        assert_eq!(read(&reader, &entries).unwrap(), expected, "{name}");
    }
    assert_eq!(std::fs::read_dir(scratch.path()).unwrap().count(), 0, "nothing is left in local space");
}

#[test]
fn every_kind_is_in_a_bucket_what_it_is_on_disk() {
    same_as_on_disk(Server::shared(), IdentityMode::Content);
    if Server::shared().name != "juicefs" {
        same_as_on_disk(Server::shared(), IdentityMode::Etag);
    }
}

#[test]
fn a_service_without_etags_serves_content_and_says_so() {
    let server = Server::start("juicefs");
    same_as_on_disk(&server, IdentityMode::Content);
    let scratch = tempfile::tempdir().unwrap();
    let access = access(&server, scratch.path());
    let url = server.prefix("etags");
    Storage::open(&url, &access).unwrap().put(b"x", "a.txt", true).unwrap();
    let case = case(SourceKind::Files, "*.txt", &[]);
    let error = list(&open(&case.spec_at(&url, IdentityMode::Etag), &access, None).unwrap()).unwrap_err();
    assert_eq!(error.kind(), Kind::Invalid);
    assert_says(&error, &["a.txt", "etag", "identity: content"]);
}

#[test]
fn a_table_on_disk_may_name_objects_of_buckets() {
    let counting =
        Counting::with(&[("i/a.jpg", b"A".to_vec()), ("i/b.jpg", b"B".to_vec()), ("m/b.jpg", b"M".to_vec())]);
    let mut place = Place::new(SourceKind::Table, "t.csv");
    place.write("t.csv", "file,label\na.jpg,cat\nb.jpg,dog\n");
    place.spec.load.insert("image".into(), "s3://b/i/{file}".into());
    place.spec.load.insert("mask".into(), "s3://b/m/{file}".into());
    place.spec.missing = Missing::Null;
    place.spec.identity = IdentityMode::Etag;
    let access = Access { scratch: place.path("scratch"), ..Access::default() };
    let buckets = |bucket: &str| Ok(Objects::over(counting.clone(), bucket, &access));
    let source = Source::open(&place.spec, place.directory.path(), None, None, &buckets).unwrap();
    let entries = entries(list(&source).unwrap());
    assert_says(&Error::invalid(source.notes().join(" ")), &["1 row refers", "s3://b", "m/a.jpg"]);
    let rows = read(&source, &entries).unwrap();
    assert_eq!(bytes(&rows, "image"), [Some(b"A".to_vec()), Some(b"B".to_vec())]);
    assert_eq!(bytes(&rows, "mask"), [None, Some(b"M".to_vec())]);
    assert_eq!(text(&rows, "label"), some(&["cat", "dog"]));
}

/// Of each kind, one object is replaced by another of the same length, and then removed.
#[test]
fn what_changed_after_the_listing_is_refused() {
    let server = Server::shared();
    let scratch = tempfile::tempdir().unwrap();
    let access = access(server, scratch.path());
    let modes: &[IdentityMode] = match server.name.as_str() {
        "juicefs" => &[IdentityMode::Content],
        _ => &[IdentityMode::Content, IdentityMode::Etag],
    };
    for &mode in modes {
        for case in cases() {
            let name = format!("{:?} {mode:?}", case.place.spec.kind);
            let url = server.prefix("changed");
            let storage = Storage::open(&url, &access).unwrap();
            case.files
                .iter()
                .for_each(|(file, bytes)| assert_eq!(storage.put(bytes, file, true).unwrap(), Put::Created));
            let source = open(&case.spec_at(&url, mode), &access, None).unwrap();
            let entries = entries(list(&source).unwrap());
            read(&source, &entries).unwrap();
            let (file, bytes) = match case.place.spec.load.is_empty() {
                true => &case.files[0],
                false => &case.files[1],
            };
            let mut other = bytes.clone();
            let middle = other.len() / 2;
            other[middle] ^= 1;
            storage.put(&other, file, true).unwrap();
            let error = read(&source, &entries).unwrap_err();
            assert_eq!(error.kind(), Kind::Conflict, "{name}: {error:?}");
            assert!(error.chain().contains("forebay snapshot"), "{name}: {error:?}");
            storage.delete(file).unwrap();
            let error = read(&source, &entries).unwrap_err();
            assert_eq!(error.kind(), Kind::Conflict, "{name}: {error:?}");
            storage.put(bytes, file, true).unwrap();
            read(&source, &entries).unwrap_or_else(|e| panic!("{name}: {e:?}"));
        }
    }
}

#[test]
fn a_list_of_thousands_is_one_listing() {
    let server = Server::shared();
    let scratch = tempfile::tempdir().unwrap();
    let access = access(server, scratch.path());
    let url = server.prefix("many");
    let storage = Storage::open(&url, &access).unwrap();
    std::thread::scope(|scope| {
        for worker in 0..8 {
            let storage = &storage;
            scope.spawn(move || {
                for number in (worker..2300).step_by(8) {
                    storage.put(number.to_string().as_bytes(), &format!("{number:05}.txt"), true).unwrap();
                }
            });
        }
    });
    let case = case(SourceKind::Files, "*.txt", &[]);
    let source = open(&case.spec_at(&url, IdentityMode::Content), &access, None).unwrap();
    let listing = list(&source).unwrap();
    assert!(keys(&listing).iter().copied().eq((0..2300).map(|n| format!("{n:05}.txt")).collect::<Vec<_>>()));
    let rows = read(&source, &entries(listing)).unwrap();
    assert_eq!(text(&rows, "text")[2299], Some("2299".to_owned()));
}

/// A memory that counts what it is asked for.
#[derive(Debug, Default)]
struct Counting {
    objects: InMemory,
    asked: Mutex<Asked>,
}

#[derive(Debug, Default)]
struct Asked {
    heads: usize,
    lists: usize,
    gets: Vec<Option<Bytes<u64>>>,
}

impl fmt::Display for Counting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a memory that counts")
    }
}

#[async_trait]
impl ObjectStore for Counting {
    async fn put_opts(&self, location: &Path, payload: PutPayload, options: PutOptions) -> Answer<PutResult> {
        self.objects.put_opts(location, payload, options).await
    }
    async fn put_multipart_opts(&self, _: &Path, _: PutMultipartOptions) -> Answer<Box<dyn MultipartUpload>> {
        unreachable!("nothing is written to a source")
    }
    async fn get_opts(&self, location: &Path, options: GetOptions) -> Answer<GetResult> {
        {
            let mut asked = self.asked.lock().unwrap();
            match (&options.range, options.head) {
                (_, true) => asked.heads += 1,
                (Some(GetRange::Bounded(range)), _) => asked.gets.push(Some(range.clone())),
                _ => asked.gets.push(None),
            }
        }
        self.objects.get_opts(location, options).await
    }
    fn delete_stream(&self, _: BoxStream<'static, Answer<Path>>) -> BoxStream<'static, Answer<Path>> {
        unreachable!("nothing of a source is removed")
    }
    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Answer<ObjectMeta>> {
        self.asked.lock().unwrap().lists += 1;
        self.objects.list(prefix)
    }
    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Answer<ListResult> {
        self.objects.list_with_delimiter(prefix).await
    }
    async fn copy_opts(&self, _: &Path, _: &Path, _: CopyOptions) -> Answer<()> {
        unreachable!("nothing of a source is copied")
    }
}

impl Counting {
    fn with(files: &[(&str, Vec<u8>)]) -> Arc<Counting> {
        let counting = Arc::new(Counting::default());
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        for (name, bytes) in files {
            let location = Path::parse(name).unwrap();
            let put = counting.objects.put_opts(&location, bytes.clone().into(), PutOptions::default());
            runtime.block_on(put).unwrap();
        }
        counting
    }

    fn open(self: &Arc<Self>, spec: &pipeline::Source, scratch: &std::path::Path) -> Source {
        let access = Access { scratch: scratch.to_owned(), ..Access::default() };
        let buckets = |bucket: &str| Ok(Objects::over(self.clone(), bucket, &access));
        Source::open(spec, std::path::Path::new("/nowhere"), None, None, &buckets).unwrap()
    }

    fn take(&self) -> Asked {
        std::mem::take(&mut *self.asked.lock().unwrap())
    }
}

impl Asked {
    fn bytes(&self) -> u64 {
        self.gets.iter().flatten().map(|range| range.end - range.start).sum()
    }
}

#[test]
fn of_a_parquet_file_only_the_footer_and_the_wanted_group_and_columns_are_fetched() {
    let scratch = tempfile::tempdir().unwrap();
    let bytes = parquet(&wide(40, 100_000), 10);
    assert!(bytes.len() > 4_000_000);
    let counting = Counting::with(&[("d/a.parquet", bytes.clone())]);
    let mut case = case(SourceKind::Parquet, "d/*.parquet", &[]);
    let source = counting.open(&case.spec_at("s3://b", IdentityMode::Etag), scratch.path());
    let entries = entries(list(&source).unwrap());
    let listing = counting.take();
    assert!(listing.bytes() < 3 * (64 << 10) + 1, "{listing:?}");

    let group = source.read_stream(&entries, 2..3).unwrap().collect::<Result<Vec<_>>>().unwrap();
    assert_eq!(group.iter().map(RecordBatch::num_rows).sum::<usize>(), 10);
    let one = counting.take();
    assert_eq!((one.heads, one.lists), (0, 0), "the snapshot tells all");
    assert_eq!(one.gets.len(), 2, "footer and group: {one:?}");
    assert!((1_000_000..1_300_000).contains(&one.bytes()), "{one:?}");

    case.place.spec.columns = Some(vec!["id".to_owned()]);
    let narrow = counting.open(&case.spec_at("s3://b", IdentityMode::Etag), scratch.path());
    let ids = read(&narrow, &entries).unwrap();
    assert_eq!(integers(&ids, "id")[39], Some(39));
    assert!(counting.take().bytes() < 6 * (64 << 10), "bytes of other columns");
}

#[test]
fn of_an_arrow_file_one_batch_and_of_an_archive_one_sample_is_fetched() {
    let scratch = tempfile::tempdir().unwrap();
    let mut file = arrow::ipc::writer::FileWriter::try_new(Vec::new(), &wide(1, 1).schema()).unwrap();
    (0..4).for_each(|_| file.write(&wide(10, 100_000)).unwrap());
    let noise = vec![9; 1_000_000];
    let members = [("a.bin", &noise[..]), ("b.bin", &noise), ("c.bin", &noise), ("d.bin", &noise)];
    for (kind, name, bytes) in
        [(SourceKind::Arrow, "d/a.arrow", file.into_inner().unwrap()), (SourceKind::Tar, "d/a.tar", archive(&members))]
    {
        let counting = Counting::with(&[(name, bytes)]);
        let case = case(kind, name, &[]);
        let source = counting.open(&case.spec_at("s3://b", IdentityMode::Etag), scratch.path());
        let entries = entries(list(&source).unwrap());
        counting.take();
        assert_eq!(entries.entries.len(), 4);
        let rows = source.read_stream(&entries, 2..3).unwrap().collect::<Result<Vec<_>>>().unwrap();
        assert!(!rows.is_empty());
        let asked = counting.take();
        assert!((1_000_000..1_500_000).contains(&asked.bytes()), "{name}: {asked:?}");
        assert_eq!((asked.heads, asked.lists), (0, 0), "{name}");
    }
}

#[test]
fn many_small_objects_are_one_request_each() {
    let scratch = tempfile::tempdir().unwrap();
    let names: Vec<String> = (0..300).map(|n| format!("d/{n:03}.txt")).collect();
    let files: Vec<(&str, Vec<u8>)> = names.iter().map(|name| (name.as_str(), name.clone().into_bytes())).collect();
    let counting = Counting::with(&files);
    let case = case(SourceKind::Files, "d/*.txt", &[]);
    let source = counting.open(&case.spec_at("s3://b", IdentityMode::Etag), scratch.path());
    let entries = entries(list(&source).unwrap());
    let listing = counting.take();
    assert_eq!((listing.lists, listing.heads, listing.gets.len()), (1, 0, 0), "a listing tells all");
    assert_eq!(read(&source, &entries).unwrap().num_rows(), 300);
    let reading = counting.take();
    assert_eq!((reading.lists, reading.heads, reading.gets.len()), (0, 0, 300));
}

#[test]
fn content_is_read_once_and_then_known_by_its_etag() {
    let (scratch, cache) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let counting = Counting::with(&[("d/a.parquet", parquet(&wide(40, 100_000), 10))]);
    let spec = case(SourceKind::Parquet, "d/*.parquet", &[]).spec_at("s3://b", IdentityMode::Content);
    let access = Access { scratch: scratch.path().to_owned(), ..Access::default() };
    let buckets = |bucket: &str| Ok(Objects::over(counting.clone(), bucket, &access));
    let open = || {
        let cache = Some(cache.path().to_owned());
        Source::open(&spec, std::path::Path::new("/nowhere"), None, cache, &buckets).unwrap()
    };
    let first = list(&open()).unwrap();
    assert!(first.hashed > 0 && counting.take().bytes() > 4_000_000);
    let source = open();
    let second = list(&source).unwrap();
    assert_eq!((second.hashed, identities(&second)), (0, identities(&first)));
    assert!(counting.take().bytes() < 500_000);
    let entries = entries(second);
    source.read_stream(&entries, 0..1).unwrap().for_each(|batch| drop(batch.unwrap()));
    assert!(counting.take().bytes() < 1_500_000, "one group, not the whole to know it");
}

#[test]
fn patterns_in_a_bucket() {
    let scratch = tempfile::tempdir().unwrap();
    let file = |name: &'static str| (name, name.as_bytes().to_vec());
    let names = ["p/a.txt", "p/b[1].txt", "p/deep/.no/c.txt", "p/deep/c.txt", "pp/d.txt", "p/x.txt.gz"].map(file);
    let mut files = names.to_vec();
    // What consoles leave for a folder.
    files.push(("p/deep", Vec::new()));
    let counting = Counting::with(&files);
    let listed = |pattern: &str| {
        let case = case(SourceKind::Files, pattern, &[]);
        let mut spec = case.spec_at("s3://b", IdentityMode::Etag);
        spec.root = None;
        let source = counting.open(&spec, scratch.path());
        list(&source).map(|listing| keys(&listing).join(" "))
    };
    let check = |pattern: &str, expect: &str| assert_eq!(listed(pattern).unwrap(), expect, "{pattern}");
    check("p/*.txt", "a.txt b[1].txt");
    check("p/**/*.txt", "a.txt b[1].txt deep/c.txt");
    check("p/b\\[1\\].txt", "b[1].txt");
    check("p/{a,deep/c}.txt", "a.txt deep/c.txt");
    check("p/a.txt", "a.txt");
    check("pp", "d.txt");
    check("pp/", "d.txt");
    check("p/deep/**", "c.txt");
    for (pattern, words) in [
        ("q/*.txt", ["matches no object", "s3://b"]),
        ("p/{a,z}.txt", ["p/z.txt", "is no object"]),
        ("P/a.txt", ["matches no object", "upper and lower case"]),
    ] {
        let error = listed(pattern).unwrap_err();
        assert_eq!(error.kind(), Kind::NotFound, "{error:?}");
        assert_says(&error, &words);
        assert_says(&error, &["p.yaml:2:3"]);
    }
}
