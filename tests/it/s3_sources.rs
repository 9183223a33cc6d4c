//! Pipelines over sources in buckets, driven as people do: every command, workers, and what they say when it can't be done.

use crate::fixture::{Dataset, PHOTOS};
use crate::s3::{access, command, succeed, text};
use crate::servers::Server;
use forebay::io::Storage;

/// The photographs of a dataset, put into a bucket, and a pipeline over them beside that over the files.
fn in_bucket(server: &Server, count: usize) -> (Dataset, String, Storage) {
    let dataset = Dataset::with_photos(PHOTOS, count);
    let url = server.prefix("photos");
    let storage = Storage::open(&url, &access(server, &dataset.path().join("scratch"))).unwrap();
    for number in 0..count {
        let name = format!("photos/{}/{number:04}.jpg", ["cat", "dog", "owl"][number % 3]);
        storage.put(&std::fs::read(dataset.path().join(&name)).unwrap(), &name, true).unwrap();
    }
    let mode = if server.name == "juicefs" { "identity: content" } else { "identity: etag" };
    let pipeline = PHOTOS.replace("./photos/**/*.jpg", &format!("{url}/photos/**/*.jpg\n  {mode}"));
    std::fs::write(dataset.path().join("bucket.yaml"), pipeline).unwrap();
    (dataset, url, storage)
}

#[test]
fn every_command_works_on_a_source_in_a_bucket() {
    let server = Server::shared();
    let (dataset, _, storage) = in_bucket(server, 40);
    let run = |arguments: &[&str]| succeed(server, dataset.path(), arguments);
    let read = |file: &str, store: &str, split: &str| {
        run(&["read", file, "--store", store, "--split", split, "--json", "--limit", "40"])
    };
    run(&["snapshot", "pipeline.yaml", "--store", "disk"]);
    assert!(run(&["check", "bucket.yaml", "--store", "bucket"]).contains("40"));
    run(&["snapshot", "bucket.yaml", "--store", "bucket"]);
    for split in ["train", "val"] {
        let from_source = read("bucket.yaml", "bucket", split);
        assert_eq!(from_source, read("pipeline.yaml", "disk", split), "{split}");
    }
    for worker in ["0/2", "1/2"] {
        run(&["materialize", "bucket.yaml", "--store", "bucket", "--worker", worker, "--stage", "resize"]);
    }
    run(&["materialize", "pipeline.yaml", "--store", "disk", "--stage", "resize"]);
    for split in ["train", "val"] {
        assert_eq!(read("bucket.yaml", "bucket", split), read("pipeline.yaml", "disk", split), "{split}, stored");
    }
    run(&["explain", "bucket.yaml", "--store", "bucket"]);

    // One photograph is replaced: what is stored is served, what isn't says so, and a new snapshot mends it.
    let (changed, other) = ("photos/cat/0003.jpg", "photos/cat/0006.jpg");
    storage.put(&std::fs::read(dataset.path().join(other)).unwrap(), changed, true).unwrap();
    let arguments = ["materialize", "bucket.yaml", "--store", "fresh", "--stage", "resize", "--json"];
    run(&arguments);
    storage.put(&std::fs::read(dataset.path().join(changed)).unwrap(), changed, true).unwrap();
    let reading = "read bucket.yaml --store fresh --stage concatenated --on-missing compute --split train --json";
    let stale = command(server, dataset.path(), &reading.split(' ').chain(["--limit", "40"]).collect::<Vec<_>>())
        .output()
        .unwrap();
    assert_eq!(stale.status.code(), Some(1), "{}", text(&stale));
    assert!(text(&stale).contains("forebay snapshot"), "{}", text(&stale));
    let again = run(&arguments);
    let done: serde_json::Value = serde_json::from_str(&again).unwrap();
    assert_eq!(done["computed_shards"], 1, "{again}");
}

#[test]
fn a_source_that_cannot_be_reached_or_read_says_what_to_do() {
    let server = Server::shared();
    if server.is_azure() {
        return; // `others` has what is said there
    }
    let (dataset, url, _) = in_bucket(server, 2);
    let nobody = "http://127.0.0.1:9".to_owned();
    let secure = server.endpoint.replace("http://", "https://");
    let cases: [(&str, &str, &str, u8, &[&str]); 7] = [
        ("AWS_SECRET_ACCESS_KEY", "wrong", &url, 1, &["secret key"]),
        ("AWS_ACCESS_KEY_ID", "nobody", &url, 1, &["AWS_ACCESS_KEY_ID"]),
        ("AWS_ENDPOINT_URL", &nobody, &url, 3, &["can't be reached", "AWS_ENDPOINT_URL"]),
        ("AWS_ENDPOINT_URL", &secure, &url, 1, &["plain http, not https"]),
        ("AWS_REGION", "us-east-1", "s3://no-such-bucket-here/prefix", 1, &["the bucket doesn't exist"]),
        ("AWS_REGION", "us-east-1", "s3://key:hunter2@bucket/x", 1, &["holds credentials"]),
        ("AWS_REGION", "us-east-1", "s3://", 1, &["names no bucket"]),
    ];
    for (name, value, url, code, parts) in cases {
        let pipeline = PHOTOS.replace("./photos/**/*.jpg", &format!("\"{url}/**/*.jpg\""));
        std::fs::write(dataset.path().join("bad.yaml"), pipeline).unwrap();
        let mut command =
            command(server, dataset.path(), &["check", "bad.yaml", "--storage-option", "retry_seconds=1"]);
        let output = command.env(name, value).output().unwrap();
        let said = text(&output);
        assert_eq!(output.status.code(), Some(code.into()), "{name}={value} {url}: {said}");
        for part in parts.iter().chain(&["bad.yaml:4:3"]) {
            assert!(said.contains(part), "{name}={value} {url}: {said}");
        }
        assert!(!said.contains("hunter2") && !said.contains(&server.secret_key), "{said}");
    }
    let init = command(server, dataset.path(), &["init", &url]).output().unwrap();
    assert_eq!(init.status.code(), Some(1));
    assert!(text(&init).contains("local folders and files only"), "{}", text(&init));
}
