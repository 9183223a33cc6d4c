//! Sources in buckets, on a real S3 server: every kind gives the keys and values of the same data on disk, and an object that
//! was replaced since it was listed is refused.

use crate::fixture::{Dataset, PHOTOS, photo};
use crate::servers::Server;
use arrow::array::{ArrayRef, Int64Array, RecordBatch, StringArray};
use forebay::io::{Access, Storage};
use std::path::Path;
use std::process::{Command, Output};
use std::sync::Arc;

fn forebay(server: &Server, at: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_forebay"));
    command.args(arguments).current_dir(at).env_remove("FOREBAY_STORE").env_remove("AWS_PROFILE");
    command.env("FOREBAY_CACHE", at.join("cache")).envs(server.environment()).output().unwrap()
}

fn succeed(server: &Server, at: &Path, arguments: &[&str]) -> String {
    let output = forebay(server, at, arguments);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "forebay {arguments:?} on {}: {said}", server.name);
    String::from_utf8(output.stdout).unwrap()
}

fn refused(server: &Server, at: &Path, arguments: &[&str]) -> String {
    let output = forebay(server, at, arguments);
    assert!(!output.status.success(), "forebay {arguments:?}");
    String::from_utf8(output.stderr).unwrap()
}

/// The bucket's prefix, and what lies below it.
fn bucket(server: &Server, at: &Path, name: &str) -> (String, Storage) {
    let url = server.prefix(name);
    let given = server.environment().map(|(name, value)| (name.to_ascii_lowercase(), value.to_owned())).into();
    let storage = Storage::open(&url, &Access { given, scratch: at.join("scratch"), ..Access::default() }).unwrap();
    (url, storage)
}

/// Puts every file below a directory into the bucket.
fn upload(storage: &Storage, root: &Path, directory: &Path) {
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            upload(storage, root, &path);
        } else {
            let name = path.strip_prefix(root).unwrap().to_str().unwrap();
            storage.put(&std::fs::read(&path).unwrap(), name, true).unwrap();
        }
    }
}

#[test]
fn a_folder_in_a_bucket_is_the_folder_on_disk() {
    let server = Server::shared();
    let dataset = Dataset::with_photos(PHOTOS, 24);
    let at = dataset.path();
    let (url, storage) = bucket(server, at, "folder");
    upload(&storage, at, &at.join("photos"));
    std::fs::write(at.join("cloud.yaml"), PHOTOS.replace("./photos", &format!("{url}/photos"))).unwrap();
    let read = |file, store| {
        succeed(server, at, &["read", file, "--split", "val", "--json", "--limit", "100", "--store", store])
    };
    let expected = read("pipeline.yaml", "local");
    assert!(expected.matches("_key").count() >= 2);
    assert_eq!(read("cloud.yaml", "cloud"), expected, "from the source");
    succeed(server, at, &["materialize", "cloud.yaml", "--stage", "resize", "--store", "cloud"]);
    assert_eq!(read("cloud.yaml", "cloud"), expected, "from what is stored");
    let again = succeed(server, at, &["materialize", "cloud.yaml", "--stage", "resize", "--store", "cloud", "--json"]);
    assert!(again.contains("\"computed_shards\": 0"), "etags are the same: {again}");
    assert!(succeed(server, at, &["check", "cloud.yaml", "--store", "cloud"]).contains("24"));

    // Replaced since it was listed: neither the old bytes nor the new ones are what the snapshot says.
    storage.put(&photo(77, 48, 64), "photos/cat/0000.jpg", true).unwrap();
    let arguments = ["read", "cloud.yaml", "--store", "cloud", "--key", "cat/0000.jpg"];
    let error = refused(server, at, &arguments);
    assert!(error.contains("cat/0000.jpg (it has changed since it was listed"), "{error}");
    succeed(server, at, &["snapshot", "cloud.yaml", "--store", "cloud"]);
    succeed(server, at, &arguments);
}

#[test]
fn lines_and_tables_in_a_bucket_are_those_on_disk() {
    let server = Server::shared();
    let dataset = Dataset::new("");
    let at = dataset.path();
    let data = at.join("data");
    std::fs::create_dir_all(&data).unwrap();
    let lines: String = (0..500).map(|n| format!("{{\"id\": {n}, \"text\": \"row {}\"}}\n", n * 7)).collect();
    std::fs::write(data.join("rows.jsonl"), lines).unwrap();
    let rows: String = (0..300).map(|n| format!("{n},{}\n", n * n)).collect();
    std::fs::write(data.join("rows.csv"), format!("n,square\n{rows}")).unwrap();
    let numbers: ArrayRef = Arc::new(Int64Array::from_iter_values(1..5));
    let texts: ArrayRef = Arc::new(StringArray::from_iter_values(["a", "b", "c", "d"]));
    let columns = RecordBatch::try_from_iter([("n", numbers), ("name", texts)]).unwrap();
    let file = std::fs::File::create(data.join("rows.parquet")).unwrap();
    let mut writer = parquet::arrow::ArrowWriter::try_new(file, columns.schema(), None).unwrap();
    writer.write(&columns).unwrap();
    writer.close().unwrap();
    let file = std::fs::File::create(data.join("rows.arrow")).unwrap();
    let mut writer = arrow::ipc::writer::FileWriter::try_new(file, &columns.schema()).unwrap();
    writer.write(&columns).unwrap();
    writer.finish().unwrap();
    let mut tar = Command::new("tar");
    tar.args(["-cf", "data/rows.tar", "-C", "data", "rows.csv", "rows.jsonl"]).current_dir(at);
    assert!(tar.status().unwrap().success());
    let (url, storage) = bucket(server, at, "tables");
    upload(&storage, at, &data);
    for kind in ["jsonl", "csv", "parquet", "arrow", "tar"] {
        let read = |place: &str, name: &str| {
            let file = format!("{name}.yaml");
            let text = format!("name: rows\nsource: {{ {kind}: {place}/data/*.{kind} }}\n");
            std::fs::write(at.join(&file), text).unwrap();
            succeed(server, at, &["read", &file, "--json", "--limit", "1000", "--store", &format!("{kind}-{name}")])
        };
        let expected = read(".", "local");
        assert!(expected.contains("_key"), "{kind}");
        assert_eq!(read(&url, "cloud"), expected, "{kind}");
    }
}

#[test]
fn what_is_not_there_is_said() {
    let server = Server::shared();
    let dataset = Dataset::new("");
    let at = dataset.path();
    let (url, _) = bucket(server, at, "nothing");
    let pipeline =
        |files: &str| std::fs::write(at.join("cloud.yaml"), format!("name: none\nsource: {{ files: {files} }}\n"));
    pipeline(&format!("{url}/*.jpg")).unwrap();
    let error = refused(server, at, &["snapshot", "cloud.yaml"]);
    assert!(error.contains("matches no object"), "{error}");
    pipeline("s3://forebay-no-such-bucket/*.jpg").unwrap();
    let error = refused(server, at, &["snapshot", "cloud.yaml"]);
    assert!(error.contains("forebay-no-such-bucket"), "{error}");
    let error = refused(server, at, &["init", &url]);
    assert!(error.contains("init looks at folders and files on disk"), "{error}");
}
