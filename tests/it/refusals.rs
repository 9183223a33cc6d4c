//! What users and scripts see when something goes wrong: one document, a true exit code, no failure left unsaid, and
//! advice that works.

use crate::fixture::{Dataset, PHOTOS, forebay, succeed};
use crate::store::full::Mount;
use serde_json::Value;
use std::fs::{File, OpenOptions};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const FILE: &str = "pipeline.yaml";

/// Exit code, standard output and standard error.
fn run(at: &Path, arguments: &[&str]) -> (i32, String, String) {
    let output = forebay(at, arguments);
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (output.status.code().unwrap(), text(output.stdout), text(output.stderr))
}

/// A dataset in which `cat/bad.jpg` is no image.
fn with_a_bad_image(pipeline: &str) -> Dataset {
    let dataset = Dataset::with_photos(pipeline, 16);
    std::fs::write(dataset.path().join("photos/cat/bad.jpg"), b"no image").unwrap();
    dataset
}

#[test]
fn a_failing_materialize_prints_one_document() {
    let dataset = with_a_bad_image(PHOTOS);
    let (code, out, err) = run(dataset.path(), &["materialize", FILE, "--stage", "resize", "--json"]);
    let document: Value = serde_json::from_str(&out).unwrap();
    assert_eq!((code, &document["error"]["kind"]), (1, &"invalid".into()), "{err}");
    assert_eq!(document["failures"][0]["key"], "cat/bad.jpg");
    assert!(err.contains("error: 1 sample failed; not complete: resize"), "{err}");
    std::fs::remove_file(dataset.path().join("photos/cat/bad.jpg")).unwrap();
    let document: Value =
        serde_json::from_str(&succeed(dataset.path(), &["materialize", FILE, "--stage", "resize", "--json"])).unwrap();
    assert!(document["error"].is_null());
}

#[test]
fn a_reader_says_which_samples_failed_and_how_to_look_at_one() {
    let dataset = with_a_bad_image(PHOTOS);
    let store = ["--store", "elsewhere"];
    let read = |more: &[&str]| run(dataset.path(), &[&["read", FILE, "--split", "train"], more, &store].concat());
    for more in [&["--bench"][..], &["--limit", "100"]] {
        let (code, _, err) = read(more);
        assert!(code == 0 && err.contains("failed and hold nulls, first cat/bad.jpg: image.decode: "), "{code} {err}");
        let command = "forebay read pipeline.yaml --key cat/bad.jpg --split train --store elsewhere";
        assert!(err.contains(command), "{err}");
    }
    let document: Value = serde_json::from_str(&read(&["--bench", "--json"]).1).unwrap();
    assert_eq!(document["failed_rows"], 1);
    let (_, _, err) = run(dataset.path(), &["read", FILE, "--split", "val", "--bench"]);
    assert!(!err.contains("failed"), "{err}");
}

#[test]
fn any_materialize_heals_what_was_reported_of_every_stage_and_encoding() {
    let dataset = Dataset::with_photos(PHOTOS, 24);
    succeed(dataset.path(), &["materialize", FILE]);
    succeed(dataset.path(), &["materialize", FILE, "--stage", "resize", "--format", "parquet"]);
    let files = succeed(dataset.path(), &["files", FILE, "--stage", "resize", "--format", "parquet"]);
    let (blob, others) = (PathBuf::from(files.lines().next().unwrap()), files.lines().count() - 1);
    assert!(others > 0);
    let whole = std::fs::read(&blob).unwrap();
    let mut bytes = whole.clone();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::remove_file(&blob).unwrap();
    std::fs::write(&blob, bytes).unwrap();

    assert_eq!(run(dataset.path(), &["verify", FILE, "--repair"]).0, 0);
    // Other tools would read it without a check.
    for command in [&["files"][..], &["export", "--to", "out"]] {
        let stage = [command, &[FILE, "--stage", "resize", "--format", "parquet"]].concat();
        let (code, _, err) = run(dataset.path(), &stage);
        assert!(
            code == 4 && err.contains("1 of the ") && err.contains("found bad; `forebay materialize`"),
            "{code} {err}"
        );
        assert!(!dataset.path().join("out").exists());
    }
    let (code, out, err) = run(dataset.path(), &["materialize", FILE]);
    assert!(code == 0 && out.contains("computed 1 shard in"), "{out}{err}");
    assert!(err.contains("healing 1 shard reported bad, of resize (parquet-zstd-3)"), "{err}");
    assert!(std::fs::read(&blob).unwrap() == whole);
    assert_eq!(run(dataset.path(), &["verify", FILE]).0, 0);
    assert!(succeed(dataset.path(), &["materialize", FILE]).contains("computed 0 shards"));
}

#[test]
fn an_error_wanted_is_no_weaker_than_a_warning() {
    let dataset = Dataset::with_photos(PHOTOS, 24);
    succeed(dataset.path(), &["materialize", FILE, "--stage", "decode", "--stage", "index"]);
    std::fs::write(&dataset.file, PHOTOS.replace("shorter_side: 40", "shorter_side: 36")).unwrap();
    for what in ["warn", "error"] {
        let (code, _, err) = run(dataset.path(), &["read", FILE, "--split", "train", "--bench", "--on-missing", what]);
        assert!(code == 0 && err.contains("shorter_side was 40 and is 36"), "{what}: {code} {err}");
    }
}

#[test]
fn a_stream_that_cannot_be_written_neither_panics_nor_hides_the_exit_code() {
    let dataset = Dataset::with_photos(PHOTOS, 4);
    let full = || Stdio::from(OpenOptions::new().write(true).open("/dev/full").unwrap());
    // A pipe that nobody reads any more.
    let broken = || Stdio::from(std::io::pipe().unwrap().1);
    let code = |arguments: &[&str], out: Stdio, err: Stdio| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_forebay"));
        command.args(arguments).current_dir(dataset.path()).env("FOREBAY_CACHE", dataset.path().join("cache"));
        command.stdin(File::open("/dev/null").unwrap()).stdout(out).stderr(err).status().unwrap().code()
    };
    let read = ["read", FILE, "--split", "train"];
    assert_eq!(code(&read, Stdio::null(), full()), Some(0));
    assert_eq!(code(&read, Stdio::null(), broken()), Some(0));
    assert_eq!(code(&read, broken(), Stdio::null()), Some(0));
    assert_eq!(code(&read, full(), Stdio::null()), Some(3));
    for out in [full(), broken()] {
        assert_eq!(code(&["materialize", "none.yaml", "--json"], out, Stdio::null()), Some(1));
    }
}

#[test]
fn a_share_is_a_number_from_0_to_1() {
    let dataset = Dataset::with_photos(PHOTOS, 4);
    for share in ["nan", "-1", "2", "x"] {
        let (code, _, err) = run(dataset.path(), &["verify", FILE, &format!("--share={share}")]);
        assert!(code == 2 && err.contains("expected a number from 0 to 1"), "{share}: {code} {err}");
    }
}

#[test]
fn names_that_are_not_there_are_answered_with_the_nearest() {
    let dataset = Dataset::with_photos(PHOTOS, 8);
    succeed(dataset.path(), &["materialize", FILE, "--stage", "all"]);
    for (command, slip, meant) in [
        (&["read", FILE, "--split", "val", "--stage"][..], "resise", "resize"),
        (&["materialize", FILE, "--stage"], "resise", "resize"),
        (&["explain", FILE, "--stage"], "resise", "resize"),
        (&["show", FILE, "--stage"], "resise", "resize"),
        (&["files", FILE, "--stage"], "resise", "resize"),
        (&["export", FILE, "--to", "out", "--stage"], "resise", "resize"),
        (&["read", FILE, "--split"], "vall", "val"),
        (&["show", FILE, "--split"], "vall", "val"),
        (&["files", FILE, "--stage", "center_crop", "--split"], "vall", "val"),
        (&["ls", "--store", ".forebay", "--pipeline"], "photo", "photos"),
        (&["read", FILE, "--split", "val", "--key"], "cats/0000.jpg", "cat/0000.jpg"),
    ] {
        let (code, out, err) = run(dataset.path(), &[command, &[slip]].concat());
        assert_eq!((code, out.as_str()), (1, ""), "{command:?}: {err}");
        assert!(err.contains(&format!("did you mean {meant:?}?")), "{command:?}: {err}");
    }
}

#[test]
fn all_stages_are_told_apart_and_none_is_an_error() {
    let crops = PHOTOS.replace("image.random_crop: { size: [32, 32] }", "image.center_crop: { size: [24, 24] }");
    let dataset = Dataset::with_photos(&crops, 8);
    let out = succeed(dataset.path(), &["materialize", FILE, "--stage", "all", "--dry-run"]);
    let stages: Vec<&str> = out.lines().map(|line| line.split(" (").next().unwrap()).collect();
    assert_eq!(
        stages,
        ["decode", "resize", "index", "where [train]", "center_crop [train]", "where [val]", "center_crop [val]"]
    );
    let done: Value =
        serde_json::from_str(&succeed(dataset.path(), &["materialize", FILE, "--stage", "all", "--json"])).unwrap();
    let split = |name: &str| -> Vec<&Value> {
        done["stages"].as_array().unwrap().iter().filter(|s| s["stage"] == name).map(|s| &s["split"]).collect()
    };
    assert_eq!(split("center_crop"), ["train", "val"]);
    assert_eq!(split("resize"), [&Value::Null]);

    std::fs::write(&dataset.file, "name: photos\nsource: { files: ./photos/**/*.jpg }\n").unwrap();
    let (code, out, err) = run(dataset.path(), &["materialize", FILE, "--stage", "all", "--replace"]);
    assert_eq!((code, out.as_str()), (1, ""), "{err}");
    assert!(err.contains("--stage concatenated"), "{err}");
}

#[test]
fn rows_that_failed_in_an_earlier_run_are_said_to_be_why_a_stage_is_not_whole() {
    let dataset = with_a_bad_image(&format!("{PHOTOS}on_error: keep\nmax_errors: 50%\n"));
    succeed(dataset.path(), &["materialize", FILE, "--stage", "resize"]);
    std::fs::write(&dataset.file, PHOTOS).unwrap();
    let (code, _, err) = run(dataset.path(), &["materialize", FILE, "--stage", "resize"]);
    assert_eq!(code, 1, "{err}");
    assert!(err.contains("resize (arrow-none): 1 of 17 failed when they were stored, with `on_error: keep`"), "{err}");
}

#[test]
fn a_limit_of_file_sizes_is_an_error_and_no_sudden_end() {
    let dataset = Dataset::with_photos(PHOTOS, 24);
    let command = format!("ulimit -f 20; exec {} materialize {FILE} --stage decode", env!("CARGO_BIN_EXE_forebay"));
    let mut shell = Command::new("sh");
    shell.args(["-c", &command]).current_dir(dataset.path()).env("FOREBAY_CACHE", dataset.path().join("cache"));
    let output = shell.output().unwrap();
    let err = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(3), "{err}");
    assert!(err.contains("raise the limit (ulimit -f)"), "{err}");
    assert!(!dataset.files().keys().any(|name| name.contains(".tmp-") || name.contains("/manifests/")));
    assert!(succeed(dataset.path(), &["verify", FILE]).contains("all good"));
    succeed(dataset.path(), &["materialize", FILE, "--stage", "decode"]);
}

#[test]
fn a_damaged_store_that_cannot_be_written_is_read_and_said_to_need_a_repair() {
    let Some(mount) = Mount::new("size=8m") else { return };
    let dataset = Dataset::with_photos(PHOTOS, 16);
    let store = mount.path().join("store");
    let at = |arguments: &[&str]| run(dataset.path(), &[arguments, &["--store", store.to_str().unwrap()]].concat());
    let read = ["read", FILE, "--split", "train", "--limit", "100", "--json"];
    assert_eq!(at(&["materialize", FILE, "--stage", "resize"]).0, 0);
    let sound = at(&read).1;
    let blob = PathBuf::from(at(&["files", FILE]).1.lines().next().unwrap());
    let mut bytes = std::fs::read(&blob).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(&blob, bytes).unwrap();
    mount.remount("ro");
    let (code, out, err) = at(&read);
    assert_eq!((code, out), (0, sound.clone()), "{err}");
    assert!(
        err.contains("run `forebay verify --repair` and `forebay materialize` where the store can be written"),
        "{err}"
    );
    assert_eq!(at(&["verify", FILE]).0, 4);
    let (code, _, err) = at(&["verify", FILE, "--repair"]);
    assert!(code == 1 && err.contains("mounted read-only"), "{code} {err}");
    mount.remount("rw");
    for arguments in [&["verify", FILE, "--repair"][..], &["materialize", FILE, "--stage", "resize"], &["verify", FILE]]
    {
        assert_eq!(at(arguments).0, 0, "{arguments:?}");
    }
    assert_eq!(at(&read).1, sound);
}

#[test]
fn what_is_no_small_file_is_refused_before_it_is_read() {
    let dataset = Dataset::with_photos(PHOTOS, 4);
    let at = dataset.path();
    let check = |file: &str, words: &[&str]| {
        let (code, _, err) = run(at, &["check", file]);
        assert!(code == 1 && words.iter().all(|word| err.contains(word)), "{file}: {code} {err}");
    };
    let utf16 = PHOTOS.encode_utf16().flat_map(u16::to_le_bytes);
    std::fs::write(at.join("utf16.yaml"), [0xff, 0xfe].into_iter().chain(utf16).collect::<Vec<_>>()).unwrap();
    std::fs::create_dir(at.join("folder.yaml")).unwrap();
    File::create(at.join("huge.yaml")).unwrap().set_len(1 << 40).unwrap();
    assert!(Command::new("mkfifo").arg(at.join("pipe.yaml")).status().unwrap().success());
    let cases: [(&str, &[&str]); 6] = [
        ("utf16.yaml", &["utf16.yaml", "UTF-16; convert it to UTF-8"]),
        ("folder.yaml", &["folder.yaml is a directory, expected a pipeline file"]),
        ("huge.yaml", &["huge.yaml has more than 4194304 bytes"]),
        ("pipe.yaml", &["pipe.yaml is a pipe, socket or device"]),
        ("/dev/zero", &["/dev/zero is a pipe, socket or device"]),
        ("none.yaml", &["`forebay init` writes one"]),
    ];
    cases.iter().for_each(|(file, words)| check(file, words));
    let (code, _, err) = run(at, &["show", "pipe.yaml"]);
    assert!(code == 1 && err.contains("pipe.yaml is a pipe"), "{code} {err}");
    // What a pipeline file names, alike.
    for classes in ["pipe.yaml", "/dev/zero", "folder.yaml"] {
        std::fs::write(&dataset.file, PHOTOS.replace("[cat, dog, owl]", classes)).unwrap();
        check(
            FILE,
            &["pipeline.yaml:9:44: ", &format!("can't read the classes in \"{classes}\""), "; expected a file"],
        );
    }
    for table in ["pipe.csv", "/dev/zero.csv"] {
        let _ = std::fs::rename(at.join("pipe.yaml"), at.join("pipe.csv"));
        let join = format!("label: {{ join: {table}, on: file, column: label }}");
        std::fs::write(&dataset.file, PHOTOS.replace("label: \"{parent}\"", &join)).unwrap();
        check(FILE, &["pipeline.yaml:5:", table]);
    }
}

#[test]
fn more_threads_than_any_machine_has_are_refused() {
    let dataset = Dataset::with_photos(PHOTOS, 4);
    for jobs in ["1000000", "-1", "many"] {
        let (code, _, err) = run(dataset.path(), &["check", FILE, &format!("--jobs={jobs}")]);
        assert!(code == 2 && err.contains(&format!("invalid value '{jobs}' for '--jobs <N>'")), "{code} {err}");
    }
}

#[test]
fn what_cannot_be_stored_is_refused_before_anything_is_listed() {
    let dataset = Dataset::with_photos(PHOTOS, 4);
    for arguments in [&["--stage", "reszie"][..], &["--format", "arrow", "--compression", "snappy"]] {
        let (code, ..) = run(dataset.path(), &[&["materialize", FILE], arguments].concat());
        assert_eq!(code, 1, "{arguments:?}");
        assert!(!dataset.path().join(".forebay/v1/pipelines").exists(), "{arguments:?}");
    }
}

#[test]
fn shards_served_from_an_earlier_stage_are_said_to_be() {
    let dataset = Dataset::with_photos(PHOTOS, 16);
    let at = dataset.path();
    succeed(at, &["materialize", FILE, "--stage", "decode", "--stage", "resize"]);
    let (code, _, err) = run(at, &["read", FILE, "--split", "train", "--bench"]);
    assert!(code == 0 && !err.contains("warning"), "{err}");
    let files = succeed(at, &["files", FILE, "--stage", "resize"]);
    std::fs::remove_file(files.lines().next().unwrap()).unwrap();
    let (code, _, err) = run(at, &["read", FILE, "--split", "train", "--bench"]);
    assert!(code == 0 && err.contains("aren't stored at stage resize, or were lost"), "{err}");
    assert!(err.contains("`forebay materialize --stage resize` stores them"), "{err}");
}

#[test]
fn a_stage_behind_a_random_step_in_one_split_only_is_stored_for_the_other() {
    let dataset = Dataset::with_photos(
        "name: photos
source: { files: ./photos/**/*.jpg }
steps: [ image.decode ]
splits:
  train: { steps: [ image.random_crop: { size: [16, 16] }, image.normalize ] }
  val: { steps: [ image.center_crop: { size: [16, 16] }, image.normalize ] }
materialize: { stages: [normalize] }
",
        4,
    );
    let done = succeed(dataset.path(), &["materialize", FILE, "--stage", "normalize", "--json"]);
    let done: Value = serde_json::from_str(&done).unwrap();
    let splits: Vec<&Value> = done["stages"].as_array().unwrap().iter().map(|stage| &stage["split"]).collect();
    assert_eq!(splits, ["val"]);
    let (code, _, err) = run(dataset.path(), &["materialize", FILE, "--stage", "random_crop"]);
    assert!(code == 1 && err.contains("can't be stored"), "{err}");
}
