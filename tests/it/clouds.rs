//! Commands on a source in a bucket of a real S3 server.

use crate::fixture::{Dataset, PHOTOS, photo};
use crate::servers::Server;
use forebay::io::{Access, Storage};
use std::path::Path;
use std::process::{Command, Output};

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
    assert!(error.contains("init looks at local folders and files only"), "{error}");
}
