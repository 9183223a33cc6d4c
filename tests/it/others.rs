//! GCS and Azure: refused by name where they aren't built; where they are, what they refuse is answered with what to do.
//! What holds on S3 is tried on Azurite by the tests of `s3`.

use crate::fixture::{Dataset, PHOTOS, forebay};
use crate::s3::text;

#[test]
fn what_is_not_built_is_refused_by_name() {
    let dataset = Dataset::with_photos(PHOTOS, 2);
    let run = |arguments: &[&str]| {
        let output = forebay(dataset.path(), arguments);
        (output.status.code(), text(&output))
    };
    for (url, feature, built) in
        [("gs://bucket/x", "gcs", cfg!(feature = "gcs")), ("az://container/x", "azure", cfg!(feature = "azure"))]
    {
        if built {
            continue;
        }
        let scheme = &url[..5];
        let file = format!("{feature}.yaml");
        let pipeline = PHOTOS.replace("./photos/**/*.jpg", &format!("{url}/**/*.jpg"));
        std::fs::write(dataset.path().join(&file), pipeline).unwrap();
        for arguments in [&["ls", url][..], &["materialize", "pipeline.yaml", "--store", url], &["check", &file]] {
            let (code, said) = run(arguments);
            assert_eq!(code, Some(1), "{said}");
            assert!(said.contains(scheme) && said.contains(&format!("--features {feature}")), "{said}");
        }
        assert!(run(&["check", &file]).1.contains(&format!("{file}:4:10")), "{}", run(&["check", &file]).1);
    }
    for url in ["abfs://container/x", "ftp://x/y"] {
        let (code, said) = run(&["ls", url]);
        assert!(code == Some(1) && said.contains("az://container/prefix"), "{said}");
    }
}

#[cfg(feature = "azure")]
mod azure {
    use super::*;
    use crate::s3::command;
    use crate::servers::Server;

    #[test]
    fn what_azure_refuses_is_answered_with_what_to_do() {
        let server = Server::start("azurite");
        let store = &server.prefix("refused");
        let dataset = Dataset::with_photos(PHOTOS, 2);
        let missing = "az://no-such-container/x";
        let secure = server.endpoint.replace("http://", "https://");
        let (account, key, endpoint) =
            ("AZURE_STORAGE_ACCOUNT_NAME", "AZURE_STORAGE_ACCOUNT_KEY", "AZURE_STORAGE_ENDPOINT");
        let cases: [(&str, &str, &str, i32, &str); 10] = [
            (key, "AAAA", store, 1, "the keys are wrong"),
            (key, "AA%A", store, 1, "check AZURE_*"),
            (key, "", store, 1, "no credentials for Azure: set AZURE_STORAGE_ACCOUNT_KEY"),
            (account, "", store, 1, "set AZURE_STORAGE_ACCOUNT_NAME"),
            (endpoint, "http://127.0.0.1:9/x", store, 3, "AZURE_STORAGE_ENDPOINT"),
            (endpoint, &secure, store, 1, "write http:// in AZURE_STORAGE_ENDPOINT"),
            (endpoint, "azurite:1000", store, 1, "is no endpoint"),
            ("X", "x", missing, 1, "the container doesn't exist"),
            ("X", "x", "az://account@container/x", 1, "AZURE_STORAGE_ACCOUNT_NAME"),
            ("X", "x", "az://", 1, "names no bucket"),
        ];
        for (name, value, url, code, part) in cases {
            for arguments in [&["ls", url][..], &["materialize", "pipeline.yaml", "--store", url]] {
                let mut command = command(&server, dataset.path(), arguments);
                command.args(["--storage-option", "retry_seconds=1"]).env(name, value);
                let output = command.output().unwrap();
                let said = text(&output);
                assert_eq!(output.status.code(), Some(code), "{name}={value} {url}: {said}");
                assert!(said.contains(part) && !said.contains(&server.secret_key), "{name}={value} {url}: {said}");
                assert!(!said.contains("AWS_") && !said.contains("s3:"), "{said}");
            }
        }
        let option = ["ls", store, "--storage-option", "azure_regoin=x"];
        let output = command(&server, dataset.path(), &option).output().unwrap();
        assert!(text(&output).contains("is no option of Azure"), "{}", text(&output));
    }
}

#[cfg(feature = "gcs")]
mod gcs {
    use crate::scripted::{Reply, bucket};
    use forebay::io::{Access, Put, Storage};

    /// Only what was read of its protocol: no service was tried.
    #[test]
    fn a_bucket_of_gcs_is_asked_as_its_protocol_says() {
        let server = bucket(|request| {
            assert_eq!(request.headers["authorization"], "Bearer kept");
            let there = request.headers.contains_key("x-goog-if-generation-match") && request.target.contains("taken");
            (there && request.method == "PUT").then(|| Reply::refusal(412, "PreconditionFailed", "it is there"))
        });
        let scratch = tempfile::tempdir().unwrap();
        let given =
            [("google_base_url", server.endpoint.as_str()), ("google_bearer_token", "kept"), ("aws_region", "x")];
        let given = given.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
        let access = Access { given, scratch: scratch.path().to_owned(), ..Access::default() };
        let storage = Storage::open("gs://bucket/store", &access).unwrap();
        assert_eq!(storage.put(b"body", "v1/x", false).unwrap(), Put::Created);
        storage.put(b"body", "v1/taken", true).unwrap();
        assert_eq!(storage.put(b"body", "v1/taken", false).unwrap(), Put::Exists { bytes: 4 });
        assert_eq!(storage.get("v1/x", 9).unwrap().unwrap(), b"body");
        assert_eq!(storage.get("v1/y", 9).unwrap(), None);
        assert_eq!(storage.map("v1/x", 4).unwrap().as_slice(), b"body");
        let names: Vec<String> = storage.list("").unwrap().into_iter().map(|object| object.name).collect();
        assert_eq!(names, ["v1/taken", "v1/x"], "{:?}", server.seen.lock().unwrap());
        storage.now_ms().unwrap();
        storage.delete("v1/x").unwrap();
        assert_eq!(storage.list("").unwrap().len(), 1);
        let unknown = Access { given: [("google_x".to_owned(), "y".to_owned())].into(), ..access };
        let error = Storage::open("gs://bucket/store", &unknown).unwrap_err();
        assert!(error.message().contains("is no option of GCS"), "{error}");
    }
}
