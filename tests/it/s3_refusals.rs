//! Services that refuse, aren't there, or aren't services: every command ends soon with exit code 1 or 3 and one sentence
//! that says what happened and what to do. Real servers where they can be brought to it, else a scripted one.

use crate::fixture::{Dataset, PHOTOS};
use crate::s3::{command, succeed, text};
use crate::scripted::{Reply, Request, Scripted, bucket};
use crate::servers::Server;
use forebay::error::{Error, Kind};
use forebay::io::{Access, Put, Storage};
use std::io::Read;
use std::path::Path;
use std::process::{Command, Output};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

const SECRETS: [&str; 4] = ["hunter2hunter2", "AKIAKEPTSECRET", "token-kept-secret", "session-kept"];
const STORE: &str = "s3://bucket/store";

/// A command with nothing of the user's: keys and an endpoint of its own.
fn forebay(at: &Path, endpoint: &str, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_forebay"));
    command.args(arguments).current_dir(at).env_clear().env("HOME", at).env("FOREBAY_CACHE", at.join("cache"));
    command.env("AWS_ENDPOINT_URL", endpoint).env("AWS_ACCESS_KEY_ID", "AKIAKEPTSECRET");
    command.env("AWS_SECRET_ACCESS_KEY", "hunter2hunter2").env("AWS_SESSION_TOKEN", "session-kept");
    command
}

/// Runs to the end; neither longer than `seconds` nor with a panic or a secret.
fn ends(command: &mut Command, seconds: u64) -> (i32, String) {
    let begun = Instant::now();
    let output: Output = command.output().unwrap();
    let said = text(&output);
    assert!(begun.elapsed() < Duration::from_secs(seconds), "{command:?} took {:?}: {said}", begun.elapsed());
    let code = output.status.code().unwrap_or_else(|| panic!("{command:?} was killed: {said}"));
    assert!(!said.contains("panicked"), "{said}");
    for secret in SECRETS {
        assert!(!said.contains(secret), "{secret} is shown: {said}");
    }
    (code, said)
}

/// Each command that uses a store, and two that use a source in a bucket.
fn every_command(store: &str) -> Vec<Vec<String>> {
    let commands = [
        "materialize pipeline.yaml --store STORE",
        "snapshot pipeline.yaml --store STORE",
        "read pipeline.yaml --split train --limit 1 --store STORE",
        "ls STORE",
        "du STORE",
        "verify STORE",
        "gc STORE",
        "snapshot bucket.yaml",
        "check bucket.yaml",
    ];
    commands.map(|line| line.split(' ').map(|word| word.replace("STORE", store)).collect()).to_vec()
}

fn dataset(source: &str) -> Dataset {
    let dataset = Dataset::with_photos(PHOTOS, 4);
    let pipeline = PHOTOS.replace("./photos/**/*.jpg", &format!("\"{source}/**/*.jpg\""));
    std::fs::write(dataset.path().join("bucket.yaml"), pipeline).unwrap();
    dataset
}

/// All commands end with this code and these words; each says something of its own in one sentence.
fn all_say(at: &Path, endpoint: &str, store: &str, code: i32, parts: &[&str], change: impl Fn(&mut Command)) {
    for arguments in every_command(store) {
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        let mut command = forebay(at, endpoint, &arguments);
        command.args(["--storage-option", "retry_seconds=1"]);
        change(&mut command);
        let (found, said) = ends(&mut command, 30);
        assert_eq!(found, code, "{arguments:?} on {endpoint}: {said}");
        for part in parts {
            assert!(said.contains(part), "{arguments:?} on {endpoint} lacks {part:?}: {said}");
        }
        assert_eq!(said.lines().filter(|line| line.starts_with("error: ")).count(), 1, "{arguments:?}: {said}");
    }
}

/// What the service answers to everything; the exit code; what is said.
type Case = (fn(&Request) -> Reply, i32, &'static [&'static str]);

#[test]
fn what_a_service_refuses_is_answered_with_what_to_do() {
    let dataset = dataset("s3://bucket/photos");
    let region = |reply: Reply| reply.with("x-amz-bucket-region", "eu-west-3");
    let cases: Vec<Case> = vec![
        (
            |_| Reply::refusal(404, "NoSuchBucket", "The specified bucket does not exist"),
            1,
            &["the bucket doesn't exist", "NoSuchBucket"],
        ),
        (
            |_| Reply::refusal(400, "ExpiredToken", "The provided token has expired."),
            1,
            &["credentials have expired", "get new ones"],
        ),
        (
            |_| Reply::refusal(400, "InvalidToken", "The provided token is malformed or otherwise invalid."),
            1,
            &["AWS_SESSION_TOKEN"],
        ),
        (
            |_| Reply::refusal(403, "InvalidAccessKeyId", "The AWS Access Key Id you provided does not exist."),
            1,
            &["AWS_ACCESS_KEY_ID"],
        ),
        (
            |_| Reply::refusal(403, "SignatureDoesNotMatch", "The request signature we calculated does not match"),
            1,
            &["AWS_SECRET_ACCESS_KEY"],
        ),
        (
            |_| {
                Reply::refusal(
                    403,
                    "RequestTimeTooSkewed",
                    "The difference between the request time and the current time is too large.",
                )
            },
            1,
            &["clock is wrong: set it"],
        ),
        (|_| Reply::refusal(403, "AccessDenied", "Access Denied"), 1, &["don't allow listing (s3:ListBucket)"]),
        (|_| Reply::new(401, ""), 1, &["credentials are needed"]),
        (
            |_| {
                let reply = Reply::refusal(400, "AuthorizationHeaderMalformed", "The region 'us-east-1' is wrong");
                let body = String::from_utf8(reply.body).unwrap();
                let body = body.replace("</Message>", "</Message><Region>eu-west-3</Region>");
                Reply { body: body.into(), ..Reply::refusal(400, "", "") }
            },
            1,
            &["set AWS_REGION=eu-west-3"],
        ),
        (
            |_| Reply::refusal(301, "PermanentRedirect", "must be addressed using the specified endpoint"),
            1,
            &["another region: set AWS_REGION"],
        ),
        (|_| Reply::page(200), 1, &["no storage service", "AWS_ENDPOINT_URL"]),
        (|_| Reply::new(404, "404 page not found\n").with("content-type", "text/plain"), 1, &["no storage service"]),
        (|_| Reply::page(404), 1, &["no storage service", "AWS_ENDPOINT_URL"]),
        (|_| Reply::new(200, "{\"ok\": true}").with("content-type", "application/json"), 1, &["no storage service"]),
        (
            |_| Reply::new(400, "Client sent an HTTP request to an HTTPS server.\n"),
            1,
            &["wants https", "AWS_ENDPOINT_URL"],
        ),
        (|_| Reply::new(400, "").with("content-type", "application/xml"), 1, &["refuses the request"]),
        (
            |_| {
                Reply::refusal(
                    507,
                    "XMinioStorageFull",
                    "Storage backend has reached its minimum free drive threshold.",
                )
            },
            3,
            &["no room left"],
        ),
        (|_| Reply::refusal(503, "SlowDown", "Please reduce your request rate."), 3, &["try again", "SlowDown"]),
        (|_| Reply::refusal(500, "InternalError", "We encountered an internal error."), 3, &["try again"]),
        (|_| Reply::new(200, "").cut(0), 3, &["try again"]),
    ];
    for (answers, code, parts) in cases {
        let server = Scripted::start(answers);
        all_say(dataset.path(), &server.endpoint, STORE, code, parts, |_| {});
        assert!(server.count() > 0);
    }
    let server = Scripted::start(move |_| region(Reply::refusal(301, "PermanentRedirect", "elsewhere")));
    all_say(dataset.path(), &server.endpoint, STORE, 1, &["set AWS_REGION=eu-west-3"], |_| {});
    let elsewhere = Scripted::start(|_| Reply::refusal(403, "AccessDenied", "Access Denied"));
    let target = elsewhere.endpoint.clone();
    let server = Scripted::start(move |request| {
        Reply::new(307, "").with("location", format!("{target}{}", request.target.replace("bucket", "other")))
    });
    all_say(dataset.path(), &server.endpoint, STORE, 1, &["sends us to", &elsewhere.endpoint], |_| {});
}

#[test]
fn what_is_not_there_or_speaks_otherwise_is_named() {
    let dataset = dataset("s3://bucket/photos");
    let at = dataset.path();
    all_say(at, "http://127.0.0.1:9", STORE, 3, &["can't be reached", "AWS_ENDPOINT_URL"], |_| {});
    all_say(at, "http://no-such-host.invalid", STORE, 3, &["can't be reached"], |_| {});
    let plain = Scripted::start(|_| Reply::page(200));
    let secure = plain.endpoint.replace("http://", "https://");
    all_say(at, &secure, STORE, 1, &["plain http, not https", "http://"], |_| {});
    // What a TLS server says to plain HTTP: an alert.
    let alerts = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = format!("http://{}", alerts.local_addr().unwrap());
    std::thread::spawn(move || {
        for stream in alerts.incoming() {
            let mut stream = stream.unwrap();
            let _ = stream.read(&mut [0; 4096]);
            let _ = std::io::Write::write_all(&mut stream, b"\x15\x03\x01\x00\x02\x02\x46");
        }
    });
    all_say(at, &endpoint, STORE, 1, &["https://", "AWS_ENDPOINT_URL"], |_| {});
    for (endpoint, part) in [
        ("127.0.0.1:9000", "expected http://HOST:PORT"),
        ("minio:9000", "expected http://HOST:PORT"),
        ("ftp://host", "expected http://HOST:PORT"),
        ("http://", "expected http://HOST:PORT"),
        ("http://a b", "expected http://HOST:PORT"),
        ("http://key:hunter2hunter2@host", "holds credentials"),
        ("http://host:99999", "expected http://HOST:PORT"),
        ("http://host:80:80", "expected http://HOST:PORT"),
        ("http://[::1", "expected http://HOST:PORT"),
        ("http://256.256.256.256", "expected http://HOST:PORT"),
        ("http://xn--a", "expected http://HOST:PORT"),
        ("HTTP://127.0.0.1:9", "S3"),
        ("http://a..b:1", "S3"),
        ("http:///x", "expected http://HOST:PORT"),
        ("http://host/a?b", "expected http://HOST:PORT"),
        ("http://h\u{f6}st", "expected http://HOST:PORT"),
    ] {
        let (code, said) = ends(&mut forebay(at, endpoint, &["ls", STORE]), 30);
        assert!(matches!(code, 1 | 3) && said.contains(part), "{endpoint}: {said}");
    }
    for (name, value, part) in [
        ("AWS_REGION", "eu west 1", "no region"),
        ("AWS_REGION", "eu-west-1/", "no region"),
        ("AWS_ACCESS_KEY_ID", "AKIA\n", "AWS_ACCESS_KEY_ID has"),
        ("AWS_SECRET_ACCESS_KEY", "hunter2hunter2 ", "AWS_SECRET_ACCESS_KEY has"),
        ("AWS_SESSION_TOKEN", "session-kept\r", "AWS_SESSION_TOKEN has"),
        ("AWS_SKIP_SIGNATURE", "perhaps", "check AWS_* and --storage-option"),
        ("AWS_PROXY_URL", "::", "check AWS_* and --storage-option"),
    ] {
        let (code, said) = ends(forebay(at, &plain.endpoint, &["ls", STORE]).env(name, value), 30);
        assert!(code == 1 && said.contains(part), "{name}={value:?}: {code} {said}");
    }
    // Without anything said of retrying, what never was there isn't waited for longer than some seconds.
    let begun = Instant::now();
    let (code, said) = ends(&mut forebay(at, "http://127.0.0.1:9", &["ls", STORE]), 30);
    assert_eq!(code, 3, "{said}");
    assert!(begun.elapsed() > Duration::from_secs(2), "a server that is just starting is waited for");
}

#[test]
fn permissions_that_are_missing_are_named() {
    let server = Server::start("seaweedfs");
    let store = &server.prefix("permissions");
    let dataset = dataset(&format!("{store}/photos"));
    let at = dataset.path();
    succeed(&server, at, &["materialize", "pipeline.yaml", "--store", store, "--stage", "resize"]);
    let access = crate::s3::access(&server, &at.join("scratch"));
    Storage::open(store, &access).unwrap().put(b"x", "photos/cat/1.jpg", true).unwrap();
    let listing = "listing (s3:ListBucket)";
    let reading = "reading (s3:GetObject)";
    let writing = "writing (s3:PutObject)";
    // Who may do what, and what each command lacks; `None`: it works.
    let other = store.replace("permissions", "other");
    let cases: [(&str, &str, Option<&str>); 19] = [
        ("reads", "materialize pipeline.yaml --store OTHER", Some(writing)),
        ("reads", "snapshot pipeline.yaml --store OTHER", Some(writing)),
        ("reads", "gc STORE", Some(writing)),
        ("reads", "read pipeline.yaml --split train --limit 1 --store STORE", None),
        ("reads", "ls STORE", None),
        ("reads", "verify STORE", None),
        ("reads", "snapshot bucket.yaml", None),
        ("lists", "ls STORE", Some(reading)),
        ("lists", "verify STORE", Some(reading)),
        ("lists", "verify STORE --repair", Some(reading)),
        ("lists", "read pipeline.yaml --split train --limit 1 --store STORE", Some(reading)),
        ("gets", "ls STORE", Some(listing)),
        ("gets", "verify STORE", Some(listing)),
        ("gets", "materialize pipeline.yaml --store STORE", Some(listing)),
        ("gets", "snapshot bucket.yaml", Some(listing)),
        ("writes", "materialize pipeline.yaml --store OTHER", Some(reading)),
        ("writes", "verify STORE --repair", Some(reading)),
        ("nothing", "gc STORE", Some(listing)),
        ("nothing", "snapshot bucket.yaml", Some(listing)),
    ];
    for (who, line, lacks) in cases {
        let line = line.replace("STORE", store).replace("OTHER", &other);
        let mut command = command(&server, at, &line.split(' ').collect::<Vec<_>>());
        command.env("AWS_ACCESS_KEY_ID", format!("{}{who}", server.access_key));
        let (code, said) = ends(&mut command, 30);
        assert_eq!(code, i32::from(lacks.is_some()), "{who}: {line}: {said}");
        if let Some(lacks) = lacks {
            assert!(said.contains(lacks), "{who}: {line} lacks {lacks:?}: {said}");
        }
        assert!(!said.contains(&server.secret_key), "{said}");
    }
    assert!(succeed(&server, at, &["verify", store]).contains("all good"), "nothing was repaired that is good");
    let left = Storage::open(&other, &access).unwrap().list("").unwrap();
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn keys_that_are_wrong_are_told_apart_where_nothing_but_a_head_is_asked() {
    for name in ["seaweedfs", "juicefs"] {
        let server = Server::start(name);
        let scratch = tempfile::tempdir().unwrap();
        let open = |key: &str, secret: &str| {
            let mut access = crate::s3::access(&server, scratch.path());
            access.given.insert("aws_access_key_id".into(), key.into());
            access.given.insert("aws_secret_access_key".into(), secret.into());
            Storage::open(&server.prefix("heads"), &access).unwrap()
        };
        for (storage, part) in [
            (open("nobody", &server.secret_key), "AWS_ACCESS_KEY_ID"),
            (open(&server.access_key, "wrong"), "the secret key is wrong"),
        ] {
            let error = storage.stat("v1/x").unwrap_err();
            assert_eq!(error.kind(), Kind::Invalid, "{name}");
            assert!(error.message().contains(part) && error.is_refused(), "{name}: {}", error.chain());
        }
    }
}

fn storage(server: &Scripted, patience: Duration) -> (Storage, tempfile::TempDir) {
    let scratch = tempfile::tempdir().unwrap();
    let given = [
        ("aws_endpoint_url", server.endpoint.as_str()),
        ("aws_access_key_id", "key"),
        ("aws_secret_access_key", "secret"),
    ];
    let given = given.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
    let first_pause = Duration::from_millis(1);
    let access = Access { given, scratch: scratch.path().to_owned(), patience, first_pause, ..Access::default() };
    (Storage::open("s3://bucket/store", &access).unwrap(), scratch)
}

/// Fails the first `failures` requests, and then serves.
fn failing(failures: usize, fail: impl Fn() -> Reply + Send + Sync + 'static) -> Scripted {
    let asked = AtomicUsize::new(0);
    bucket(move |_| (asked.fetch_add(1, Ordering::Relaxed) < failures).then(&fail))
}

#[test]
fn each_status_is_tried_again_or_not() {
    let long = Duration::from_secs(60);
    let again: [(u16, &str); 8] = [
        (400, "RequestTimeout"),
        (408, ""),
        (409, "OperationAborted"),
        (429, ""),
        (500, "InternalError"),
        (502, ""),
        (503, "SlowDown"),
        (504, ""),
    ];
    for (status, code) in again {
        let server = failing(3, move || Reply::refusal(status, code, "not now"));
        let (storage, _scratch) = storage(&server, long);
        assert_eq!(storage.get("x", 9).unwrap(), None, "{status} {code}");
        // What isn't there takes one request.
        assert_eq!(server.count(), 4, "{status} {code}");
        let server = failing(3, move || Reply::refusal(status, code, "not now"));
        let (storage, _scratch) = self::storage(&server, long);
        assert_eq!(storage.put(b"body", "x", false).unwrap(), Put::Created, "{status} {code}");
        assert_eq!(server.count(), 4, "{status} {code}");
    }
    for fail in [|| Reply::new(200, "").cut(0), || Reply::page(502), || Reply::page(503)] {
        let server = failing(3, fail);
        let (storage, _scratch) = storage(&server, long);
        assert!(storage.list("").unwrap().is_empty());
        assert_eq!(server.count(), 4);
    }
    let never: [(u16, &str, Kind, usize); 9] = [
        (400, "", Kind::Invalid, 1),
        (401, "", Kind::Invalid, 1),
        (403, "AccessDenied", Kind::Invalid, 1),
        (403, "RequestTimeTooSkewed", Kind::Invalid, 1),
        (409, "", Kind::Conflict, 1),
        (412, "", Kind::Conflict, 1),
        (416, "InvalidRange", Kind::Corrupt, 1),
        (501, "NotImplemented", Kind::Invalid, 1),
        (507, "XMinioStorageFull", Kind::Unavailable, 1),
    ];
    for (status, code, kind, requests) in never {
        let server = failing(usize::MAX, move || Reply::refusal(status, code, "never"));
        let (storage, _scratch) = storage(&server, long);
        let error = storage.get("x", 9).unwrap_err();
        assert_eq!((error.kind(), server.count()), (kind, requests), "{status} {code}: {}", error.chain());
    }
    let server = failing(usize::MAX, || Reply::refusal(404, "NoSuchKey", "never"));
    let (storage, _scratch) = storage(&server, long);
    assert_eq!((storage.get("x", 9).unwrap(), server.count()), (None, 1));
}

#[test]
fn a_body_that_ends_early_is_fetched_again() {
    let body: Vec<u8> = (0..100_000u32).map(|i| (i % 251) as u8).collect();
    let cuts = AtomicUsize::new(0);
    let server = bucket(move |request| {
        let cut = request.method == "GET" && !request.lists() && cuts.fetch_add(1, Ordering::Relaxed) % 3 != 2;
        cut.then(|| {
            let reply = Reply::new(200, vec![0; 100_000]).with("etag", "\"x\"");
            reply.with("last-modified", "Mon, 07 Dec 2026 11:44:32 GMT").cut(50_000)
        })
    });
    let (storage, _scratch) = storage(&server, Duration::from_secs(60));
    storage.put(&body, "x", true).unwrap();
    assert!(storage.get("x", 1 << 20).unwrap().unwrap() == body);
    assert_eq!(server.seen.lock().unwrap().iter().filter(|seen| seen.starts_with("GET")).count(), 3);
}

#[test]
fn trying_again_ends_in_time_and_waits_as_long_as_it_is_asked_to() {
    let server = failing(usize::MAX, || Reply::refusal(503, "SlowDown", "not now"));
    let (storage, _scratch) = storage(&server, Duration::from_secs(2));
    let begun = Instant::now();
    assert_eq!(storage.get("x", 9).unwrap_err().kind(), Kind::Unavailable);
    let took = begun.elapsed();
    assert!((Duration::from_millis(500)..Duration::from_secs(4)).contains(&took), "{took:?}");
    assert!((5..100).contains(&server.count()), "{} requests", server.count());

    let server = failing(1, || Reply::refusal(503, "SlowDown", "in a second").with("retry-after", "1"));
    let (storage, _scratch) = self::storage(&server, Duration::from_secs(20));
    let begun = Instant::now();
    assert_eq!(storage.get("x", 9).unwrap(), None);
    assert!(begun.elapsed() >= Duration::from_secs(1) && server.count() == 2);
    // More than there is time for: given up at once.
    let server = failing(1, || Reply::refusal(503, "SlowDown", "in an hour").with("retry-after", "3600"));
    let (storage, _scratch) = self::storage(&server, Duration::from_secs(20));
    let begun = Instant::now();
    assert_eq!(storage.get("x", 9).unwrap_err().kind(), Kind::Unavailable);
    assert!(begun.elapsed() < Duration::from_secs(5) && server.count() == 1);
}

/// What refuses in mid-course says nothing of what is stored.
#[test]
fn credentials_that_expire_condemn_nothing() {
    let expired = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    let now = expired.clone();
    let server = bucket(move |request| {
        let refused = now.load(Ordering::Relaxed) && !request.lists();
        refused.then(|| Reply::refusal(400, "ExpiredToken", "The provided token has expired."))
    });
    let dataset = dataset("s3://bucket/photos");
    let at = dataset.path();
    let run = |arguments: &[&str]| ends(&mut forebay(at, &server.endpoint, arguments), 60);
    let (code, said) = run(&["materialize", "pipeline.yaml", "--store", STORE, "--stage", "resize"]);
    assert_eq!(code, 0, "{said}");
    let (storage, _scratch) = storage(&server, Duration::from_secs(1));
    let before = storage.list("").unwrap();
    expired.store(true, Ordering::Relaxed);
    for arguments in [&["verify", STORE][..], &["verify", STORE, "--repair"], &["gc", STORE]] {
        let (code, said) = run(arguments);
        assert_eq!(code, 1, "{said}");
        assert!(said.contains("have expired"), "{said}");
    }
    expired.store(false, Ordering::Relaxed);
    assert_eq!(storage.list("").unwrap(), before);
    let (code, said) = run(&["verify", STORE]);
    assert!(code == 0 && said.contains("all good"), "{said}");
}

/// No endpoint: what there is of keys decides before anything is asked.
#[test]
fn profiles_are_refused_by_name_and_without_keys_there_is_an_answer_soon() {
    let dataset = dataset("s3://bucket/photos");
    let at = dataset.path();
    let metadata = Scripted::start(|_| {
        // As behind a network that drops what comes back.
        std::thread::sleep(Duration::from_secs(60));
        Reply::new(200, "")
    });
    let none = |command: &mut Command| {
        for name in ["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"] {
            command.env_remove(name);
        }
        command.env("AWS_METADATA_ENDPOINT", &metadata.endpoint);
    };
    let service = bucket(|request| {
        let signed = request.headers.contains_key("authorization");
        signed.then(|| Reply::refusal(403, "AccessDenied", "Access Denied"))
    });
    let endpoint = service.endpoint.as_str();
    let export = "eval \"$(aws configure export-credentials --format env)\"";
    all_say(at, endpoint, STORE, 1, &["AWS_PROFILE=work", "aren't read", export], |command| {
        none(command);
        command.env("AWS_PROFILE", "work");
    });
    all_say(at, endpoint, STORE, 1, &["aws_skip_signature=true", "AWS_ACCESS_KEY_ID"], |command| {
        none(command);
        command.env("AWS_EC2_METADATA_DISABLED", "true");
    });
    assert_eq!((metadata.count(), service.count()), (0, 0), "nothing was asked");
    all_say(at, endpoint, STORE, 1, &["AWS_PROFILE=work", "aren't read"], |command| {
        command.args(["--storage-option", "aws_profile=work"]);
    });
    for (name, missing) in [
        ("AWS_SECRET_ACCESS_KEY", "AWS_ACCESS_KEY_ID is given, but not AWS_SECRET_ACCESS_KEY"),
        ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY is given, but not AWS_ACCESS_KEY_ID"),
    ] {
        all_say(at, endpoint, STORE, 1, &[missing], |command| {
            command.env_remove(name);
        });
    }
    // The instance's metadata never come.
    let begun = Instant::now();
    let mut command = forebay(at, endpoint, &["ls", STORE]);
    none(&mut command);
    let (code, said) = ends(&mut command, 15);
    assert_eq!(code, 1, "{said}");
    assert!(said.contains("there are no keys for S3") && said.contains("aws_skip_signature=true"), "{said}");
    assert!(metadata.count() >= 1 && begun.elapsed() < Duration::from_secs(10));
    // Many requests at once wait once.
    let begun = Instant::now();
    let mut command = forebay(at, endpoint, &["materialize", "pipeline.yaml", "--store", STORE]);
    none(&mut command);
    assert_eq!(ends(&mut command, 15).0, 1);
    assert!(begun.elapsed() < Duration::from_secs(10));

    // A file of profiles that is there and isn't read; with keys, and where nothing is signed, it doesn't matter.
    std::fs::create_dir(at.join(".aws")).unwrap();
    std::fs::write(at.join(".aws/config"), "[default]\nregion = eu-west-1\n").unwrap();
    let mut command = forebay(at, endpoint, &["ls", STORE]);
    none(&mut command);
    let (code, said) = ends(&mut command, 15);
    assert!(code == 1 && said.contains(".aws/config isn't read"), "{said}");
    std::fs::write(at.join(".aws/credentials"), "[default]\naws_secret_access_key = hunter2hunter2\n").unwrap();
    let asked = metadata.count();
    all_say(at, endpoint, STORE, 1, &[".aws/credentials isn't read", export], none);
    assert_eq!(metadata.count(), asked);
    let mut command = forebay(at, endpoint, &["ls", STORE, "--storage-option", "aws_skip_signature=true"]);
    none(&mut command);
    let (code, said) = ends(&mut command, 15);
    assert!(code == 1 && said.contains("there is no store"), "{said}");
    let mut command = forebay(at, endpoint, &["ls", STORE]);
    let (code, said) = ends(command.env("AWS_PROFILE", "work"), 15);
    assert!(code == 1 && said.contains("AccessDenied"), "keys go before profiles: {said}");
}

#[test]
fn rclone_is_refused_before_anything_is_written_and_at_the_first_read() {
    let server = Server::start("rclone");
    let store = &server.prefix("ranges");
    let dataset = dataset(&format!("{store}/photos"));
    let access = crate::s3::access(&server, &dataset.path().join("scratch"));
    let storage = Storage::open(store, &access).unwrap();
    for line in ["materialize pipeline.yaml --store STORE", "snapshot pipeline.yaml --store STORE", "gc STORE"] {
        let line = line.replace("STORE", store);
        let (code, said) = ends(&mut command(&server, dataset.path(), &line.split(' ').collect::<Vec<_>>()), 30);
        assert_eq!(code, 1, "{line}: {said}");
        if !line.starts_with("gc") {
            assert!(said.contains("ranged reads") && said.contains("rclone serve s3"), "{line}: {said}");
        }
        assert!(storage.list("").unwrap().is_empty(), "{line}: {:?}", storage.list("").unwrap());
    }
    // A store that was copied there by other means.
    succeed(&server, dataset.path(), &["materialize", "pipeline.yaml", "--stage", "resize"]);
    let local = Storage::open(dataset.store().to_str().unwrap(), &Access::default()).unwrap();
    for object in local.list("").unwrap() {
        storage.put(&local.get(&object.name, 1 << 30).unwrap().unwrap(), &object.name, true).unwrap();
    }
    for line in ["read pipeline.yaml --split train --limit 1 --store STORE", "verify STORE", "gc STORE"] {
        let line = line.replace("STORE", store);
        let (code, said) = ends(&mut command(&server, dataset.path(), &line.split(' ').collect::<Vec<_>>()), 30);
        assert_eq!(code, 1, "{line}: {said}");
        assert!(said.contains("ranged reads") && said.contains("rclone serve s3"), "{line}: {said}");
    }
}

#[test]
fn a_refused_error_keeps_saying_so() {
    let error = Error::invalid("no").refused().during("reading");
    assert!(error.is_refused() && !Error::invalid("no").is_refused());
}

/// Nor does what refuses while a source is read make samples that failed.
#[test]
fn credentials_that_expire_fail_no_samples() {
    let refuses = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    let now = refuses.clone();
    let server = bucket(move |request| {
        let refused = now.load(Ordering::Relaxed) && request.target.contains("/photos/") && request.method == "GET";
        refused.then(|| Reply::refusal(403, "AccessDenied", "Access Denied"))
    });
    let dataset = dataset("s3://bucket/photos");
    let at = dataset.path();
    let file = at.join("bucket.yaml");
    let pipeline = std::fs::read_to_string(&file).unwrap() + "on_error: keep\n";
    std::fs::write(&file, pipeline).unwrap();
    let (storage, _scratch) = storage(&server, Duration::from_secs(1));
    let photos = Storage::open("s3://bucket/photos", &{
        let given = [
            ("aws_endpoint_url", server.endpoint.as_str()),
            ("aws_access_key_id", "key"),
            ("aws_secret_access_key", "secret"),
        ];
        let given = given.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
        Access { given, scratch: at.join("scratch"), ..Access::default() }
    })
    .unwrap();
    for number in 0..20 {
        photos.put(&crate::fixture::photo(number, 60, 80), &format!("cat/{number:04}.jpg"), true).unwrap();
    }
    let run = |line: &str| ends(&mut forebay(at, &server.endpoint, &line.split(' ').collect::<Vec<_>>()), 60);
    let (code, said) = run(&format!("snapshot bucket.yaml --store {STORE}"));
    assert_eq!(code, 0, "{said}");
    refuses.store(true, Ordering::Relaxed);
    for line in [
        format!("materialize bucket.yaml --store {STORE} --stage resize"),
        format!("materialize bucket.yaml --store {STORE} --stage resize --worker 0/1"),
        format!("read bucket.yaml --store {STORE} --split train --limit 1"),
    ] {
        let (code, said) = run(&line);
        assert_eq!(code, 1, "{line}: {said}");
        assert!(said.contains("don't allow reading (s3:GetObject)"), "{line}: {said}");
    }
    let records = storage.list("").unwrap().into_iter().filter(|object| object.name.contains("/shards/")).count();
    assert_eq!(records, 0);
    refuses.store(false, Ordering::Relaxed);
    let (code, said) = run(&format!("materialize bucket.yaml --store {STORE} --stage resize"));
    assert!(code == 0 && !said.contains("failed"), "{said}");
}
