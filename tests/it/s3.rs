//! Stores on real S3 servers: what holds on local disk holds there, and a service that refuses is answered with what to do.

use crate::fixture::{Dataset, PHOTOS};
use crate::servers::Server;
use forebay::error::Kind;
use forebay::io::{Access, Put, Storage};
use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

pub fn access(server: &Server, scratch: &Path) -> Access {
    let options = server.environment().map(|(name, value)| (name.to_ascii_lowercase(), value.to_owned()));
    let patience = Duration::from_secs(5);
    Access { given: options.into(), scratch: scratch.to_owned(), patience, ..Access::default() }
}

pub fn command(server: &Server, directory: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_forebay"));
    command.args(arguments).current_dir(directory).env_remove("FOREBAY_STORE").env_remove("AWS_PROFILE");
    command.env("FOREBAY_CACHE", directory.join("cache")).envs(server.environment());
    command
}

pub fn text(output: &Output) -> String {
    String::from_utf8_lossy(&[&output.stdout[..], &output.stderr].concat()).into_owned()
}

pub fn succeed(server: &Server, directory: &Path, arguments: &[&str]) -> String {
    let output = command(server, directory, arguments).output().unwrap();
    assert!(output.status.success(), "forebay {arguments:?} on {}: {}", server.name, text(&output));
    String::from_utf8(output.stdout).unwrap()
}

/// Names and bytes of all that a finished run leaves the same: blobs, and records but for their measured seconds.
fn contents(storage: &Storage) -> BTreeMap<String, Vec<u8>> {
    let kept = |name: &str| name.starts_with("v1/blobs/") || name.contains("/shards/") || name.contains("/manifests/");
    let objects = storage.list("").unwrap().into_iter().filter(|object| kept(&object.name));
    objects
        .map(|object| {
            let mut bytes = storage.get(&object.name, 1 << 30).unwrap().unwrap();
            assert_eq!(bytes.len() as u64, object.bytes, "{}", object.name);
            if object.name.contains("/shards/") {
                let mut record: serde_json::Value = serde_json::from_slice(&bytes).unwrap();
                assert!(record.as_object_mut().unwrap().remove("seconds").is_some());
                bytes = record.to_string().into_bytes();
            }
            (object.name, bytes)
        })
        .collect()
}

fn local(dataset: &Dataset) -> Storage {
    Storage::open(dataset.store().to_str().unwrap(), &Access::default()).unwrap()
}

fn same(found: &BTreeMap<String, Vec<u8>>, expected: &BTreeMap<String, Vec<u8>>) {
    assert!(found.keys().eq(expected.keys()), "{:?}", found.keys());
    let other: Vec<&String> = found.keys().filter(|name| found[*name] != expected[*name]).collect();
    assert!(other.is_empty(), "other bytes than expected: {other:?}");
}

/// Samples as `read --json` has them, by split.
fn read(server: &Server, dataset: &Dataset, store: &str) -> Vec<String> {
    let of = |split| {
        succeed(server, dataset.path(), &["read", "pipeline.yaml", "--split", split, "--json", "--store", store])
    };
    ["train", "val"].map(of).to_vec()
}

#[test]
fn a_store_in_a_bucket_is_that_of_a_directory() {
    let server = Server::shared();
    for (stage, format) in [("resize", "arrow"), ("all", "parquet")] {
        let dataset = Dataset::with_photos(PHOTOS, 40);
        let store = &server.prefix("same");
        let storage = Storage::open(store, &access(server, &dataset.path().join("scratch"))).unwrap();
        let arguments = ["materialize", "pipeline.yaml", "--stage", stage, "--format", format];
        succeed(server, dataset.path(), &arguments);
        succeed(server, dataset.path(), &[&arguments[..], &["--store", store]].concat());
        let expected = contents(&local(&dataset));
        assert!(expected.len() > 10);
        same(&contents(&storage), &expected);
        let again = succeed(server, dataset.path(), &[&arguments[..], &["--store", store, "--json"]].concat());
        assert!(again.contains("\"computed_shards\": 0") || again.contains("\"computed_shards\":0"), "{again}");
        let samples = read(server, &dataset, dataset.store().to_str().unwrap());
        assert_eq!(read(server, &dataset, store), samples);
        assert!(succeed(server, dataset.path(), &["verify", store]).contains("all good"));
        assert_eq!(
            std::fs::read_dir(dataset.path().join("cache/scratch")).unwrap().count(),
            0,
            "nothing is left there"
        );
    }
}

#[test]
fn a_copy_goes_into_a_bucket_and_back_and_is_collected_there() {
    let server = Server::shared();
    let dataset = Dataset::with_photos(PHOTOS, 24);
    let (at, bucket) = (dataset.path(), &server.prefix("copied"));
    succeed(server, at, &["materialize", "pipeline.yaml", "--stage", "all"]);
    succeed(server, at, &["cp", "pipeline.yaml", bucket]);
    let storage = Storage::open(bucket, &access(server, &at.join("scratch"))).unwrap();
    same(&contents(&storage), &contents(&local(&dataset)));
    succeed(server, at, &["cp", bucket, "back"]);
    let back = Storage::open(at.join("back").to_str().unwrap(), &Access::default()).unwrap();
    same(&contents(&back), &contents(&storage));
    assert!(succeed(server, at, &["cp", bucket, "back", "--json"]).contains("\"shards\": 0"));

    // A second snapshot makes most of the first obsolete.
    for number in 0..4 {
        std::fs::remove_file(at.join(format!("photos/{}/{number:04}.jpg", ["cat", "dog", "owl"][number % 3]))).unwrap();
    }
    succeed(server, at, &["materialize", "pipeline.yaml", "--stage", "all", "--store", bucket]);
    let before = storage.list("").unwrap().len();
    // Services that keep whole seconds: what is as young as that stays.
    std::thread::sleep(Duration::from_secs(4));
    succeed(server, at, &["gc", bucket, "--keep-within", "0"]);
    assert!(storage.list("").unwrap().len() < before);
    assert!(succeed(server, at, &["verify", bucket]).contains("all good"));
    succeed(server, at, &["materialize", "pipeline.yaml", "--stage", "all"]);
    succeed(server, at, &["gc", "pipeline.yaml", "--keep-within", "0"]);
    same(&contents(&storage), &contents(&local(&dataset)));
}

#[test]
fn what_is_damaged_in_a_bucket_is_found_and_healed() {
    let server = Server::shared();
    let dataset = Dataset::with_photos(PHOTOS, 24);
    let store = &server.prefix("heal");
    let storage = Storage::open(store, &access(server, &dataset.path().join("scratch"))).unwrap();
    let arguments = ["materialize", "pipeline.yaml", "--stage", "resize", "--store", store];
    succeed(server, dataset.path(), &arguments);
    let sound = contents(&storage);
    let samples = read(server, &dataset, store);
    let named = |part: &str| sound.keys().filter(|name| name.contains(part)).cloned().collect::<Vec<_>>();
    let blobs: Vec<String> = named("/blobs/").into_iter().filter(|name| name.ends_with(".arrow")).collect();
    let names_one = |record: &str| {
        let text = String::from_utf8_lossy(&sound[record]);
        blobs[..3].iter().any(|blob| text.contains(blob.rsplit(['/', '.']).nth(1).unwrap()))
    };
    let record = named("/shards/").into_iter().find(|record| !names_one(record)).unwrap();
    let mut flipped = sound[&blobs[0]].clone();
    let middle = flipped.len() / 2;
    flipped[middle] ^= 1;
    storage.put(&flipped, &blobs[0], true).unwrap();
    storage.put(&sound[&blobs[1]][..100], &blobs[1], true).unwrap();
    storage.delete(&blobs[2]).unwrap();
    storage.put(b"{\"version\": 1", &record, true).unwrap();
    assert_eq!(read(server, &dataset, store), samples, "lost shards are computed from the source");
    let found = command(server, dataset.path(), &["verify", store]).output().unwrap();
    assert_eq!(found.status.code(), Some(4), "{}", text(&found));
    succeed(server, dataset.path(), &["verify", store, "--repair"]);
    succeed(server, dataset.path(), &arguments);
    same(&contents(&storage), &sound);
    assert!(succeed(server, dataset.path(), &["verify", store]).contains("all good"));
}

#[test]
fn killed_writers_and_racing_writers_end_with_the_store_of_one() {
    let server = Server::shared();
    let dataset = Dataset::with_photos(&PHOTOS.replace("entries: 8", "entries: 3"), 60);
    let arguments = ["materialize", "pipeline.yaml", "--stage", "all"];
    succeed(server, dataset.path(), &arguments);
    let store = &server.prefix("kill");
    let arguments = [&arguments[..], &["--store", store]].concat();
    for round in 0..6 {
        let start = || command(server, dataset.path(), &arguments).stderr(Stdio::null()).stdout(Stdio::null()).spawn();
        let (mut one, mut two) = (start().unwrap(), start().unwrap());
        std::thread::sleep(Duration::from_millis(60 + 70 * round));
        one.kill().unwrap();
        two.kill().unwrap();
        one.wait().unwrap();
        two.wait().unwrap();
    }
    let mut race = command(server, dataset.path(), &arguments);
    race.stderr(Stdio::null()).stdout(Stdio::null());
    let racers = [race.spawn().unwrap(), race.spawn().unwrap()];
    assert!(racers.into_iter().all(|mut racer| racer.wait().unwrap().success()));
    let storage = Storage::open(store, &access(server, &dataset.path().join("scratch"))).unwrap();
    same(&contents(&storage), &contents(&local(&dataset)));
}

#[test]
fn objects_in_a_bucket_behave_as_files_do() {
    let server = Server::shared();
    let scratch = tempfile::tempdir().unwrap();
    let open = |url: &str| Storage::open(url, &access(server, scratch.path())).unwrap();
    let storage = open(&server.prefix("objects"));
    assert_eq!(
        (storage.list("").unwrap(), storage.get("x", 9).unwrap(), storage.bytes("x").unwrap()),
        (vec![], None, None)
    );
    let large: Vec<u8> = (0..20_000_000u32).map(|i| (i % 251) as u8).collect();
    let spool = || {
        let mut spool = storage.spool().unwrap();
        spool.write_all(&large).unwrap();
        spool
    };
    assert_eq!(storage.publish(spool(), "v1/blobs/ab/large", false).unwrap(), Put::Created);
    assert_eq!(storage.publish(spool(), "v1/blobs/ab/large", false).unwrap(), Put::Exists { bytes: 20_000_000 });
    assert!(storage.map("v1/blobs/ab/large", 20_000_000).unwrap().as_slice() == large);
    let mut streamed = Vec::new();
    storage.reader("v1/blobs/ab/large").unwrap().unwrap().read_to_end(&mut streamed).unwrap();
    assert!(streamed == large);
    for (bytes, kind) in [(19_999_999, Kind::Corrupt), (20_000_001, Kind::Corrupt)] {
        assert_eq!(storage.map("v1/blobs/ab/large", bytes).unwrap_err().kind(), kind);
    }
    assert_eq!(storage.map("v1/never", 1).unwrap_err().kind(), Kind::NotFound);
    assert_eq!(storage.put(b"", "v1/empty", true).unwrap(), Put::Created);
    assert_eq!(storage.map("v1/empty", 0).unwrap().len(), 0);
    let odd = "v1/a b%+#é/..x..";
    assert_eq!(storage.put(b"x", odd, true).unwrap(), Put::Created);
    assert_eq!(storage.get(odd, 1).unwrap().unwrap(), b"x");
    let names: Vec<String> = storage.list("").unwrap().into_iter().map(|object| object.name).collect();
    assert_eq!(names, [odd, "v1/blobs/ab/large", "v1/empty"]);
    assert_eq!(storage.list_directories("v1").unwrap(), ["a b%+#é", "blobs"]);
    assert_eq!(storage.list_files("v1").unwrap(), ["empty"]);
    assert!(storage.list("v1/blob").unwrap().is_empty(), "a prefix is a directory");
    for _ in 0..2 {
        storage.delete("v1/empty").unwrap();
    }
    let listed = storage.list("v1/blobs").unwrap()[0].modified_ms;
    assert!((storage.now_ms().unwrap() - listed).abs() < 120_000);
    assert_eq!(std::fs::read_dir(scratch.path()).unwrap().count(), 0);
}

#[test]
fn a_list_of_thousands_is_complete() {
    let server = Server::shared();
    let scratch = tempfile::tempdir().unwrap();
    let storage = Storage::open(&server.prefix("many"), &access(server, scratch.path())).unwrap();
    std::thread::scope(|scope| {
        for worker in 0..8 {
            let storage = &storage;
            scope.spawn(move || {
                for number in (worker..2300).step_by(8) {
                    storage.put(b"x", &format!("v1/many/{number:05}"), true).unwrap();
                }
            });
        }
    });
    let names: Vec<String> = storage.list("v1/many").unwrap().into_iter().map(|object| object.name).collect();
    assert!(names.iter().eq(&(0..2300).map(|number| format!("v1/many/{number:05}")).collect::<Vec<_>>()));
}

#[test]
fn a_service_that_refuses_is_answered_with_what_to_do() {
    let server = Server::shared();
    if server.is_azure() {
        return; // `others` has what is said there
    }
    let dataset = Dataset::with_photos(PHOTOS, 2);
    let store = &server.prefix("refused");
    let nobody = "http://127.0.0.1:9".to_owned();
    let no_bucket = "s3://no-such-bucket-here/prefix".to_owned();
    let refused: [(&str, &str, &str, u8, &[&str]); 6] = [
        ("AWS_SECRET_ACCESS_KEY", "wrong", store, 1, &["secret key"]),
        ("AWS_ACCESS_KEY_ID", "nobody", store, 1, &["AWS_ACCESS_KEY_ID"]),
        ("AWS_ENDPOINT_URL", &nobody, store, 3, &["can't be reached", "AWS_ENDPOINT_URL"]),
        ("AWS_REGION", "us-east-1", &no_bucket, 1, &["bucket"]),
        ("AWS_REGION", "us-east-1", "s3://key:hunter2@bucket/x", 1, &["holds credentials"]),
        ("AWS_REGION", "us-east-1", "gs://bucket/x", 1, &["gs://"]),
    ];
    for (name, value, url, code, parts) in refused {
        let mut command = command(server, dataset.path(), &["materialize", "pipeline.yaml", "--store", url]);
        let output = command.args(["--storage-option", "retry_seconds=2"]).env(name, value).output().unwrap();
        let said = text(&output);
        assert_eq!(output.status.code(), Some(code.into()), "{name}={value} {url}: {said}");
        for part in parts {
            assert!(said.contains(part), "{name}={value} {url}: {said}");
        }
        for secret in [server.secret_key.as_str(), "hunter2"] {
            assert!(!said.contains(secret), "{said}");
        }
    }
    let profile = command(server, dataset.path(), &["ls", store])
        .env_remove("AWS_ACCESS_KEY_ID")
        .env("AWS_PROFILE", "work")
        .output()
        .unwrap();
    assert_eq!((profile.status.code(), text(&profile).contains("AWS_PROFILE=work")), (Some(1), true));
    let option = command(server, dataset.path(), &["ls", store, "--storage-option", "regoin=x"]).output().unwrap();
    assert!(text(&option).contains("\"regoin\" is no option of S3"), "{}", text(&option));
    let nothing = command(server, dataset.path(), &["ls", store]).output().unwrap();
    assert!(text(&nothing).contains("there is no store at s3://"), "{}", text(&nothing));
}

#[test]
fn options_in_the_pipeline_file_reach_the_service_and_secrets_stay_out_of_the_store() {
    let server = Server::shared();
    let store = server.prefix("options");
    let options = match server.is_azure() {
        false => format!(
            "  aws_endpoint_url: {}\n  aws_region: {}\n  aws_secret_access_key: ${{MY_SECRET}}\n  aws_access_key_id: ${{MY_KEY}}\n",
            server.endpoint, server.region
        ),
        true => format!(
            "  azure_storage_endpoint: {}\n  azure_storage_account_key: ${{MY_SECRET}}\n  account_name: ${{MY_KEY}}\n  aws_region: x\n",
            server.endpoint
        ),
    };
    let pipeline = format!("{PHOTOS}store: {store}\nstorage:\n{options}");
    let dataset = Dataset::with_photos(&pipeline, 6);
    let mut command = command(server, dataset.path(), &["materialize", "pipeline.yaml", "-v"]);
    for (name, _) in server.environment() {
        command.env_remove(name);
    }
    let output = command.env("MY_SECRET", &server.secret_key).env("MY_KEY", &server.access_key).output().unwrap();
    assert!(output.status.success(), "{}", text(&output));
    let storage = Storage::open(&store, &access(server, &dataset.path().join("scratch"))).unwrap();
    let objects = storage.list("").unwrap();
    assert!(objects.len() > 5);
    for object in objects {
        let bytes = storage.get(&object.name, 1 << 30).unwrap().unwrap();
        let found = bytes.windows(server.secret_key.len()).any(|window| window == server.secret_key.as_bytes());
        assert!(!found, "{} holds the secret", object.name);
    }
    let literal = pipeline.replace("${MY_SECRET}", "hunter2");
    std::fs::write(dataset.path().join("literal.yaml"), literal).unwrap();
    let output = self::command(server, dataset.path(), &["check", "literal.yaml"]).output().unwrap();
    let said = text(&output);
    assert!(said.contains("published with its store") && !said.contains("hunter2"), "{said}");
}
