//! Every command as users and scripts meet it: JSON, help, exit codes, what goes where, and what is refused.

mod check;
mod explain;
mod look;

use crate::fixture::{Dataset, PHOTOS, forebay, photo, succeed};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const FILE: &str = "pipeline.yaml";

fn parse(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|e| panic!("{e}:\n{text}"))
}

/// The document of a command that must succeed.
fn json(at: &Path, arguments: &[&str]) -> Value {
    parse(&succeed(at, &[arguments, &["--json"]].concat()))
}

/// Exit code, standard output and standard error.
fn run(at: &Path, arguments: &[&str]) -> (i32, String, String) {
    let output = forebay(at, arguments);
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (output.status.code().unwrap(), text(output.stdout), text(output.stderr))
}

fn has(value: &Value, fields: &[&str]) {
    let found: BTreeSet<&str> =
        value.as_object().unwrap_or_else(|| panic!("{value}")).keys().map(String::as_str).collect();
    assert_eq!(found, fields.iter().copied().collect(), "{value}");
}

fn strings(value: &Value) -> Vec<&str> {
    value.as_array().unwrap().iter().map(|v| v.as_str().unwrap()).collect()
}

fn edit(dataset: &Dataset, from: &str, to: &str) {
    let text = std::fs::read_to_string(&dataset.file).unwrap();
    assert!(text.contains(from));
    std::fs::write(&dataset.file, text.replace(from, to)).unwrap();
}

fn blobs(at: &Path) -> Vec<PathBuf> {
    let files = json(at, &["files", FILE, "--stage", "resize"]);
    strings(&files).into_iter().map(PathBuf::from).collect()
}

fn flip(path: &Path) {
    let mut bytes = std::fs::read(path).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    // Blobs are read-only and may be linked.
    std::fs::remove_file(path).unwrap();
    std::fs::write(path, bytes).unwrap();
}

#[test]
fn every_command_speaks_json() {
    let dataset = Dataset::with_photos(PHOTOS, 24);
    let at = dataset.path();

    let begun = json(at, &["init", "photos"]);
    has(
        &begun,
        &[
            "pipeline",
            "file",
            "text",
            "files",
            "bytes",
            "median_bytes",
            "classes",
            "splits",
            "odd",
            "odd_files",
            "next",
        ],
    );
    assert_eq!(begun["text"], std::fs::read_to_string(at.join("photos.yaml")).unwrap());

    let checked = json(at, &["check", FILE]);
    let fields =
        ["stages", "entries", "rows", "bytes", "partitions", "lanes", "block", "open_bytes", "failed", "advice"];
    has(&checked, &fields);
    let fields = ["stage", "split", "purity", "storable", "reason", "encoding", "estimated_bytes", "columns"];
    checked["stages"].as_array().unwrap().iter().for_each(|stage| has(stage, &fields));

    let snapshot = json(at, &["snapshot", FILE]);
    has(&snapshot, &["pipeline", "snapshot", "entries", "partitions", "rows", "bytes"]);
    assert_eq!((&snapshot["entries"], &snapshot["rows"]), (&24.into(), &24.into()));

    let planned = json(at, &["materialize", FILE, "--stage", "resize", "--dry-run"]);
    has(&planned, &["dry_run", "snapshot", "stages"]);
    assert_eq!(planned["snapshot"], snapshot["snapshot"]);
    let fields = [
        "stage",
        "split",
        "encoding",
        "recipe",
        "shards_to_compute",
        "shards_reused",
        "estimated_bytes",
        "estimated_seconds",
    ];
    has(&planned["stages"][0], &fields);

    let stored = json(at, &["materialize", FILE, "--stage", "resize"]);
    has(
        &stored,
        &[
            "error",
            "worker",
            "stages",
            "computed_shards",
            "computed_rows",
            "found_shards",
            "failed_rows",
            "failures",
            "errors",
            "seconds",
        ],
    );
    let fields = ["stage", "split", "encoding", "recipe", "shards", "rows", "bytes", "failed_rows", "complete"];
    has(&stored["stages"][0], &fields);
    assert_eq!(stored["stages"][0]["recipe"], planned["stages"][0]["recipe"]);

    let bench = json(at, &["read", FILE, "--split", "val", "--bench"]);
    let fields = [
        "rows",
        "failed_rows",
        "batches",
        "bytes",
        "seconds",
        "rows_per_second",
        "first_batch_seconds",
        "threads",
        "origins",
    ];
    has(&bench, &fields);
    has(&json(at, &["read", FILE, "--split", "val", "--count"]), &["rows", "batches"]);

    let listed = json(at, &["ls", FILE]);
    has(&listed, &["pipelines", "blobs", "blob_bytes"]);
    has(&listed["pipelines"][0], &["pipeline", "snapshots", "stages"]);
    has(&listed["pipelines"][0]["snapshots"][0], &["snapshot", "entries", "rows", "bytes", "partitions", "pins"]);
    let fields = ["stage", "split", "recipe", "encoding", "shards", "rows", "bytes", "failed_rows", "complete"];
    has(&listed["pipelines"][0]["stages"][0], &fields);

    let shown = json(at, &["show", FILE]);
    let fields = [
        "pipeline",
        "stage",
        "split",
        "recipe",
        "encoding",
        "snapshot",
        "shards",
        "rows",
        "bytes",
        "failed_rows",
        "columns",
        "imports",
        "classes",
    ];
    has(&shown, &fields);
    has(&shown["columns"][0], &["name", "type", "decode"]);
    assert_eq!(shown["classes"], json!({ "label": ["cat", "dog", "owl"] }));

    let explained = json(at, &["explain", FILE]);
    let names: Vec<&str> = explained.as_array().unwrap().iter().map(|e| e["stage"].as_str().unwrap()).collect();
    assert_eq!(names[..4], ["concatenated", "decode", "resize", "index"]);
    has(&explained[2], &["stage", "split", "recipe", "document", "stored", "others"]);
    assert_eq!(explained[2]["stored"], json!(["arrow-none"]));
    assert!(succeed(at, &["show", FILE]).contains("\n  import numpy as np, pyarrow as pa\n"));

    assert_eq!(json(at, &["files", FILE]).as_array().unwrap().len() as u64, shown["shards"]);
    let exported = json(at, &["export", FILE, "--to", "out"]);
    has(&exported, &["stage", "encoding", "rows", "directory", "files", "linked", "copied"]);
    assert_eq!(strings(&exported["files"]).len() as u64, shown["shards"]);

    let verified = json(at, &["verify", FILE]);
    let fields = ["error", "findings", "heads", "records", "parts_read", "bytes_read", "orphans", "orphan_bytes"];
    has(&verified, &fields);
    assert_eq!((&verified["findings"], &verified["records"]), (&json!([]), &shown["shards"]));

    let held = json(at, &["du", FILE]);
    has(&held, &["stages", "snapshots", "unreferenced_objects", "unreferenced_bytes", "objects", "bytes"]);
    has(&held["snapshots"][0], &["pipeline", "snapshot", "current", "bytes", "own_bytes", "stages"]);
    has(&held["stages"][0], &["pipeline", "stage", "split", "recipe", "encoding", "former", "shards", "bytes"]);
    has(&json(at, &["pin", "first", FILE]), &["pin", "pipeline", "snapshot"]);
    assert_eq!(json(at, &["ls", FILE])["pipelines"][0]["snapshots"][0]["pins"], json!(["first"]));
    assert_eq!(json(at, &["unpin", "first", FILE]), json!({ "unpinned": "first" }));
    let collected = json(at, &["gc", FILE, "--dry-run"]);
    let fields = ["dry_run", "removed", "removed_objects", "removed_bytes", "swept", "kept_objects", "kept_bytes"];
    has(&collected, &[&fields[..], &["recent_bytes", "in_use", "notes"]].concat());
    let copied = json(at, &["cp", FILE, "copy"]);
    has(&copied, &["snapshots", "shards", "bytes", "reused_shards", "notes"]);
    assert_eq!(copied["shards"], shown["shards"]);

    // A failure is a document as well, and the sentence for people goes where it always goes.
    let (code, out, err) = run(at, &["show", FILE, "--stage", "resise", "--json"]);
    let error = &parse(&out)["error"];
    has(error, &["kind", "message", "causes"]);
    assert_eq!((code, &error["kind"]), (1, &"not_found".into()));
    assert!(err.starts_with("error: ") && err.contains(error["message"].as_str().unwrap()), "{err}");

    has(&json(at, &["completions", "bash"]), &["shell", "script"]);
    let steps = json(at, &["steps"]);
    assert_eq!(steps.as_array().unwrap().len(), 14);
    let fields = ["step", "summary", "purity", "cardinality", "reads", "writes", "fails", "parameters", "notes"];
    has(&steps[0], &fields);
    has(&steps[0]["parameters"][0], &["name", "type", "required", "default", "about"]);
}

#[test]
fn steps_are_listed_and_shown() {
    let at = tempfile::tempdir().unwrap();
    let at = at.path();
    let listed = succeed(at, &["steps"]);
    assert_eq!(listed.lines().count(), 14);
    assert!(listed.contains("image.resize                Resize images to a shorter side"), "{listed}");
    let shown = succeed(at, &["steps", "image.resize"]);
    let page = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/formats/steps.md")).unwrap();
    assert!(page.contains(&shown) && shown.starts_with("## image.resize\n"), "{shown}");
    assert_eq!(json(at, &["steps", "image.resize"])[0]["parameters"][0]["name"], "column");
    let (code, out, err) = run(at, &["steps", "image.resise"]);
    assert_eq!((code, out.as_str()), (1, ""));
    assert!(err.contains("unknown step \"image.resise\"; did you mean \"image.resize\"?"), "{err}");
}

#[test]
fn a_command_line_that_is_wrong_is_a_document_too() {
    let at = tempfile::tempdir().unwrap();
    let at = at.path();
    for (arguments, words) in [
        (&["read", FILE, "--no-such-flag"][..], "--no-such-flag"),
        (&["read", FILE, "--count", "--bench"], "--bench"),
        (&["read", FILE, "--batch-size", "0"], "--batch-size"),
        (&["read", FILE, "--save", "look"], "--key <KEY>|--random <N>"),
        (&["read", FILE, "--jobs", "1025"], "--jobs"),
        (&["materialize", FILE, "--worker", "4/4"], "--worker <I/N>': expected I/N, worker I of N counted from 0"),
        (&["materialize", FILE, "--worker", "0/2", "--replace"], "--replace"),
        (&["materialize", FILE, "--snapshot", "0"], "--snapshot"),
        (&["materialise"], "materialize"),
        (&[], "requires a subcommand"),
        (&["completions", "tcsh"], "tcsh"),
        (&["ls", "--store", ""], "--store has an empty value"),
        (&["ls", "--store="], "--store has an empty value"),
        (&["read", FILE, "--split", ""], "--split has an empty value"),
        (&["check", ""], "argument 2 has an empty value"),
    ] {
        let (code, plain, told) = run(at, arguments);
        assert_eq!((code, plain.as_str()), (2, ""), "{arguments:?}: {told}");
        let (code, out, err) = run(at, &[arguments, &["--json"]].concat());
        let error = &parse(&out)["error"];
        has(error, &["kind", "message", "causes"]);
        assert_eq!((code, &error["kind"]), (2, &"usage".into()), "{arguments:?}");
        let message = error["message"].as_str().unwrap();
        assert!(message.contains(words) && !message.starts_with("error"), "{arguments:?}: {message}");
        assert!(!err.is_empty() && (arguments.is_empty() || err.contains(words)), "{arguments:?}: {err}");
    }
    // A variable that is set and empty is a mistake as well; an option wins over it.
    let with_store = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_forebay"));
        let output = command.args(arguments).current_dir(at).env("FOREBAY_STORE", "").output().unwrap();
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    };
    let (code, err) = with_store(&["ls"]);
    assert!(code == Some(2) && err.contains("FOREBAY_STORE is set and has an empty value"), "{err}");
    let (code, err) = with_store(&["ls", "--store", "there"]);
    assert!(code == Some(1) && err.contains("no store at there"), "{err}");
    // What is asked for is no failure.
    let (code, out, _) = run(at, &["--version", "--json"]);
    assert!(code == 0 && out.starts_with("forebay "), "{out}");
}

#[test]
fn exit_codes_say_what_to_do() {
    let dataset = Dataset::with_photos(PHOTOS, 16);
    let at = dataset.path();
    let fails = |arguments: &[&str], expected: i32, words: &[&str]| {
        let (code, out, err) = run(at, arguments);
        assert_eq!((code, out.as_str()), (expected, ""), "{arguments:?}: {err}");
        words.iter().for_each(|w| assert!(err.contains(w), "{arguments:?}: no {w:?} in {err}"));
        err
    };
    // Mistakes in what was asked: the nearest name is offered.
    fails(&["materialize", FILE, "--stage", "resise"], 1, &["no stage \"resise\"", "did you mean \"resize\"?"]);
    fails(&["materialize", FILE, "--stage", "random_crop"], 1, &["is random", "The last stage that can be is"]);
    fails(&["read", FILE, "--split", "trian"], 1, &["no split \"trian\"", "did you mean \"train\"?"]);
    fails(&["read", FILE, "--split", "val", "--key", "cat/0001.jpg"], 1, &["did you mean \"cat/000"]);
    fails(&["explain", FILE, "--stage", "resise"], 1, &["did you mean \"resize\"?"]);
    fails(&["explain", FILE, "--stage", "random_crop"], 1, &["stage random_crop is never stored", "is random"]);
    fails(&["ls", "nowhere.yaml"], 1, &["cannot read the pipeline file nowhere.yaml", "\n  because: "]);
    for command in ["check", "ls"] {
        std::fs::write(at.join("wide.yaml"), b"\xff\xfes\0o\0").unwrap();
        fails(&[command, "wide.yaml"], 1, &["wide.yaml: the text is not UTF-8 at byte 0; it looks like UTF-16"]);
        std::fs::write(at.join("long.yaml"), vec![b' '; (4 << 20) + 1]).unwrap();
        fails(&[command, "long.yaml"], 1, &["long.yaml has more than 4194304 bytes"]);
    }
    fails(
        &["check", "photos"],
        1,
        &["photos is a directory, expected a pipeline file; `forebay init photos` writes one"],
    );
    fails(
        &["read", FILE, "--split", "val", "--stage", "resise"],
        1,
        &["no stage \"resise\"", "did you mean \"resize\"?"],
    );
    let missing = fails(&["check", "nowhere.yaml"], 1, &["`forebay init` writes one", "\n  because: "]);
    assert!(missing.starts_with("error: "), "{missing}");
    std::fs::write(at.join("bad.yaml"), "source: { files: ./photos/**/*.jpg }\nsteps:\n  - image.resise: 3\n").unwrap();
    fails(&["check", "bad.yaml"], 1, &["bad.yaml:3:", "did you mean \"image.resize\"?"]);

    fails(&["read", FILE, "--no-such-flag"], 2, &["--no-such-flag"]);
    fails(&["read", FILE, "--count", "--bench"], 2, &["--count", "--bench"]);
    fails(&["materialize", FILE, "--compression", "lzma"], 2, &["lzma"]);
    fails(&["materialise"], 2, &["materialize"]);
    fails(&[], 2, &[]);

    // A damaged store, and the way back.
    succeed(at, &["materialize", FILE, "--stage", "resize"]);
    let blob = &blobs(at)[0];
    flip(blob);
    let (code, out, err) = run(at, &["verify", FILE]);
    assert_eq!(code, 4);
    assert!(out.contains(blob.file_name().unwrap().to_str().unwrap()) && out.contains("1 finding"), "{out}");
    assert!(err.contains("--repair"), "{err}");
    let (code, out, _) = run(at, &["verify", FILE, "--json"]);
    let found = parse(&out);
    assert_eq!((code, found["findings"].as_array().unwrap().len(), &found["error"]["kind"]), (4, 1, &"corrupt".into()));
    succeed(at, &["verify", FILE, "--repair"]);
    assert_eq!(json(at, &["materialize", FILE, "--stage", "resize"])["computed_shards"], 1);
    assert!(succeed(at, &["verify", FILE]).contains("all good"));

    for arguments in [&["--help"][..], &["--version"], &["read", "--help"]] {
        let (code, out, err) = run(at, arguments);
        assert!(code == 0 && !out.is_empty() && err.is_empty(), "{arguments:?}");
    }
}

#[test]
fn completions_are_there_for_each_shell() {
    let at = tempfile::tempdir().unwrap();
    for (shell, word) in [("bash", "complete"), ("zsh", "#compdef forebay"), ("fish", "complete -c forebay")] {
        let script = succeed(at.path(), &["completions", shell]);
        assert!(script.contains(word) && script.contains("materialize"), "{shell}");
        let Ok(checked) = Command::new(shell).arg("-n").stdin(Stdio::piped()).stderr(Stdio::piped()).spawn() else {
            // A shell that isn't installed can't judge.
            continue;
        };
        std::io::Write::write_all(&mut checked.stdin.as_ref().unwrap(), script.as_bytes()).unwrap();
        let output = checked.wait_with_output().unwrap();
        assert!(output.status.success(), "{shell}: {}", String::from_utf8_lossy(&output.stderr));
    }
}

#[test]
fn quiet_leaves_results_and_nothing_is_coloured_in_a_pipe() {
    let dataset = Dataset::with_photos(PHOTOS, 16);
    let at = dataset.path();
    let (code, out, err) = run(at, &["read", FILE, "--limit", "2"]);
    assert_eq!((code, out.lines().count()), (0, 2));
    assert!(err.contains("no snapshot was stored: one was taken now"), "{err}");
    assert!(err.contains("reading split train, the first of train, val"), "{err}");
    let (code, out, err) = run(at, &["read", FILE, "--limit", "2", "-q"]);
    assert_eq!((code, out.lines().count(), err.as_str()), (0, 2, ""));
    let (_, out, err) = run(at, &["materialize", FILE, "-q"]);
    assert!(out.contains("computed") && err.is_empty(), "{err}");
    let (_, _, err) = run(at, &["materialize", FILE, "--stage", "decode", "--verbose"]);
    assert!(err.contains("stored shard 0 of stage decode"), "{err}");

    for no_color in ["", "1"] {
        let output = Command::new(env!("CARGO_BIN_EXE_forebay"))
            .args(["show", FILE, "--stage", "x"])
            .current_dir(at)
            .env("NO_COLOR", no_color)
            .output()
            .unwrap();
        assert!(!output.stderr.contains(&0x1b) && output.stderr.starts_with(b"error: "));
    }
}

#[test]
fn a_terminal_gets_colours_unless_told_otherwise() {
    // `script` gives the command a terminal; where it isn't installed, there is nothing to try.
    let at = tempfile::tempdir().unwrap();
    let run = |no_color: &str| {
        let command = format!("{} ls 2>&1", env!("CARGO_BIN_EXE_forebay"));
        let output = Command::new("script")
            .args(["-qec", &command, "/dev/null"])
            .current_dir(at.path())
            .env("NO_COLOR", no_color)
            .stdin(Stdio::null())
            .output();
        output.ok().map(|o| String::from_utf8_lossy(&o.stdout).into_owned())
    };
    let (Some(coloured), Some(plain)) = (run(""), run("1")) else { return };
    assert!(coloured.contains("\u{1b}[31merror:\u{1b}[0m there is no store"), "{coloured:?}");
    assert!(plain.contains("error: there is no store") && !plain.contains('\u{1b}'), "{plain:?}");
}

#[test]
fn progress_fits_in_a_terminal_and_is_left_out_where_it_cannot_be_drawn() {
    let dataset = Dataset::with_photos(PHOTOS, 24);
    let run = |store: &str, term: &str| {
        let command = format!("{} materialize {FILE} --verbose --store {store}", env!("CARGO_BIN_EXE_forebay"));
        let output = Command::new("script")
            .args(["-qec", &command, "/dev/null"])
            .current_dir(dataset.path())
            .env("FOREBAY_CACHE", dataset.path().join("cache"))
            .env("TERM", term)
            .stdin(Stdio::null())
            .output();
        output.ok().map(|o| String::from_utf8_lossy(&o.stdout).into_owned())
    };
    let (Some(drawn), Some(dumb)) = (run("one", "xterm"), run("two", "dumb")) else { return };
    let escapes = regex::Regex::new("\u{1b}\\[[0-9;]*[A-Za-z]").unwrap();
    let bars: Vec<String> = drawn
        .split(['\r', '\n'])
        .filter(|line| line.contains("% "))
        .map(|line| escapes.replace_all(line, "").into_owned())
        .collect();
    assert!(bars.iter().any(|bar| bar.contains("24 of 24 rows, 0.0 s left")), "{drawn:?}");
    let long = bars.iter().find(|bar| bar.chars().count() > 80);
    assert_eq!(long, None);
    // A line beside the bar begins where the bar was taken away.
    let shards = drawn.matches("stored shard ").count();
    assert!(shards >= 3, "{drawn:?}");
    assert_eq!(drawn.matches("\r\u{1b}[2Kstored shard ").count(), shards, "{drawn:?}");
    assert!(!dumb.contains('\u{1b}') && dumb.contains("stored shard "), "{dumb:?}");
}

#[test]
fn a_dry_run_counts_and_stores_nothing() {
    let dataset = Dataset::with_photos(PHOTOS, 24);
    let at = dataset.path();
    let plan = json(at, &["materialize", FILE, "--dry-run", "--stage", "all"]);
    assert!(dataset.files().is_empty(), "{:?}", dataset.files().keys());
    let shards = json(at, &["check", FILE])["partitions"].as_u64().unwrap();
    assert!(dataset.files().is_empty(), "check stores nothing either");
    let stages = plan["stages"].as_array().unwrap();
    assert!(stages.len() >= 5, "{plan}");
    for stage in stages {
        assert_eq!((&stage["shards_to_compute"], &stage["shards_reused"]), (&shards.into(), &0.into()), "{stage}");
        assert!(stage["estimated_bytes"].as_u64().unwrap() > 0, "{stage}");
    }

    let stored = json(at, &["materialize", FILE, "--stage", "resize"]);
    assert_eq!((&stored["computed_shards"], &stored["computed_rows"]), (&shards.into(), &24.into()));
    // The estimate is from the whole of so small a set; its chunks may be cut otherwise.
    let resize = stages.iter().find(|s| s["stage"] == "resize").unwrap()["estimated_bytes"].as_f64().unwrap();
    let bytes = stored["stages"][0]["bytes"].as_f64().unwrap();
    assert!((resize / bytes - 1.0).abs() < 0.5, "estimated {resize}, stored {bytes}");

    // Nothing changed: nothing is computed, and the store's bytes stay as they are.
    let before = dataset.files();
    let again = json(at, &["materialize", FILE, "--stage", "resize"]);
    assert_eq!((&again["computed_shards"], &again["computed_rows"]), (&0.into(), &0.into()));
    assert_eq!(again["stages"], stored["stages"]);
    assert_eq!(dataset.files(), before);
    let text = succeed(at, &["materialize", FILE, "--stage", "resize", "--dry-run"]);
    assert_eq!(text, format!("resize (arrow-none): 0 shards to compute, {shards} shards reused\n"));
    assert_eq!(dataset.files(), before);
}

#[test]
fn stores_that_are_empty_or_missing() {
    let at = tempfile::tempdir().unwrap();
    let at = at.path();
    let (code, out, err) = run(at, &["ls"]);
    assert_eq!((code, out.as_str()), (1, ""));
    assert!(err.contains("there is no store at .forebay") && err.contains("forebay materialize"), "{err}");
    std::fs::create_dir(at.join(".forebay")).unwrap();
    assert_eq!(json(at, &["ls"]), json!({ "pipelines": [], "blobs": 0, "blob_bytes": 0 }));
    assert_eq!(json(at, &["ls", ".forebay"])["blobs"], 0);
    let (code, _, err) = run(at, &["show"]);
    assert!(code == 1 && err.contains("holds no pipeline yet"), "{err}");
    assert_eq!(json(at, &["verify"])["findings"], json!([]));

    let dataset = Dataset::with_photos(PHOTOS, 4);
    let (code, _, err) = run(dataset.path(), &["ls", FILE]);
    assert!(code == 1 && err.contains("there is no store at"), "{err}");
    succeed(dataset.path(), &["snapshot", FILE]);
    assert!(succeed(dataset.path(), &["ls", FILE]).contains("nothing stored yet"));
    let (code, _, err) = run(dataset.path(), &["show", FILE]);
    assert!(code == 1 && err.contains("no stage is stored whole for the current snapshot"), "{err}");
    // --store wins over the file, and the variable over the default.
    succeed(dataset.path(), &["materialize", FILE, "--store", "other"]);
    assert!(succeed(dataset.path(), &["ls", "--store", "other"]).contains("index (arrow-none)"));
    let output = Command::new(env!("CARGO_BIN_EXE_forebay"))
        .arg("ls")
        .current_dir(dataset.path())
        .env("FOREBAY_STORE", "other")
        .output()
        .unwrap();
    assert!(String::from_utf8_lossy(&output.stdout).contains("index (arrow-none)"));
}

#[test]
fn a_changed_parameter_is_named_and_never_silently_slow() {
    let dataset = Dataset::with_photos(PHOTOS, 16);
    let at = dataset.path();
    succeed(at, &["materialize", FILE]);
    let read = ["read", FILE, "--split", "train", "--limit", "1"];
    let with = |more: &[&str]| run(at, &[&read[..], more].concat());
    let (_, _, err) = with(&[]);
    assert!(err.contains(" from index (arrow-none)") && !err.contains("warning"), "{err}");

    edit(&dataset, "shorter_side: 40", "shorter_side: 36");
    let term = "step 2 (image.resize).params.shorter_side was 40 and is 36";
    let explained = json(at, &["explain", FILE, "--stage", "index"]);
    assert_eq!(explained[0]["stored"], json!([]));
    let other = &explained[0]["others"][0];
    assert_eq!(other["term"], "step 2 (image.resize).params.shorter_side");
    assert_eq!((&other["before"], &other["after"]), (&40.into(), &36.into()));
    assert!(succeed(at, &["explain", FILE]).contains(term));

    let (code, out, err) = with(&[]);
    assert_eq!((code, out.lines().count()), (0, 1));
    assert!(
        err.contains("from the source") && err.contains("warning: a stage index is stored under another recipe"),
        "{err}"
    );
    assert!(err.contains(term), "{err}");
    let (code, _, err) = with(&["--on-missing", "compute"]);
    assert!(code == 0 && !err.contains("warning"), "{err}");
    let (code, out, err) = with(&["--on-missing", "error"]);
    assert_eq!((code, out.as_str()), (1, ""));
    assert!(err.contains("shards aren't stored at any stage") && err.contains(term), "{err}");
    // A stage that is named is wanted as stored, unless it never is.
    let (code, _, err) = with(&["--stage", "index"]);
    assert!(code == 1 && err.contains("shards aren't stored at stage index") && err.contains(term), "{err}");
    assert_eq!(with(&["--stage", "index", "--on-missing", "warn"]).0, 0);
    assert_eq!(with(&["--stage", "random_crop"]).0, 0);
    let (code, _, err) = with(&["--stage", "decode"]);
    assert!(code == 1 && err.contains("run `forebay materialize` first"), "{err}");

    // A nearer stage of the new recipe is stored, and the one behind it is still the old one's.
    succeed(at, &["materialize", FILE, "--stage", "resize"]);
    let (_, _, err) = with(&[]);
    assert!(
        err.contains(" from resize (arrow-none)") && err.contains("a stage index is stored under another"),
        "{err}"
    );
    succeed(at, &["materialize", FILE]);
    let (_, _, err) = with(&["--stage", "index"]);
    assert!(err.contains(" from index (arrow-none)") && !err.contains("warning"), "{err}");
}

#[test]
fn a_listing_that_loses_most_keys_is_refused() {
    let dataset = Dataset::with_photos(PHOTOS, 24);
    let at = dataset.path();
    succeed(at, &["materialize", FILE]);
    let before = dataset.files();
    std::fs::remove_dir_all(at.join("photos/cat")).unwrap();
    std::fs::remove_dir_all(at.join("photos/dog")).unwrap();
    for command in ["snapshot", "materialize"] {
        let (code, _, err) = run(at, &[command, FILE]);
        assert_eq!(code, 1);
        assert!(err.contains("of the 24 entries of pipeline \"photos\", 16 are gone and 0 have changed"), "{err}");
        assert!(err.contains("--replace"), "{err}");
        assert_eq!(dataset.files(), before, "nothing was published");
    }
    // What is stored is still read as it was.
    assert_eq!(json(at, &["ls", FILE])["pipelines"][0]["snapshots"][0]["entries"], 24);
    assert_eq!(json(at, &["snapshot", FILE, "--replace"])["entries"], 8);
    let stored = json(at, &["materialize", FILE]);
    assert_eq!(stored["stages"][0]["rows"], 8);
}

#[test]
fn init_never_overwrites() {
    let dataset = Dataset::with_photos(PHOTOS, 4);
    let at = dataset.path();
    succeed(at, &["init", "./photos"]);
    std::fs::write(at.join("photos.yaml"), "mine").unwrap();
    let (code, out, err) = run(at, &["init", "./photos"]);
    assert_eq!((code, out.as_str()), (1, ""));
    assert!(err.contains("photos.yaml is there already and is left as it is"), "{err}");
    assert_eq!(std::fs::read_to_string(at.join("photos.yaml")).unwrap(), "mine");
    let printed = succeed(at, &["init", "./photos", "--print"]);
    assert!(printed.contains("files: ./photos/**/*.jpg"), "{printed}");
    // A store's own files are no data.
    succeed(at, &["materialize", FILE, "--stage", "resize", "--store", "kept"]);
    let (code, _, err) = run(at, &["init", "kept"]);
    assert!(code == 1 && err.contains("kept is a store, expected data; `forebay ls kept`"), "{err}");
    let (code, _, err) = run(at, &["init", "./nowhere"]);
    assert!(code == 1 && err.contains("because: "), "{err}");
}

#[test]
fn interrupted_it_keeps_finished_shards_and_goes_on() {
    // Slow enough to be interrupted after its first shard.
    let dataset = Dataset::new(
        "name: slow\nsource: { files: \"photos/*.jpg\" }\n\
         steps: [ image.decode, image.resize: { size: [400, 500] }, image.encode: { format: webp } ]\n\
         partition: { entries: 2, bytes: 1gb }\n",
    );
    let at = dataset.path();
    std::fs::create_dir(at.join("photos")).unwrap();
    for number in 0..24 {
        std::fs::write(at.join(format!("photos/{number}.jpg")), photo(number, 30, 40)).unwrap();
    }
    let mut child = Command::new(env!("CARGO_BIN_EXE_forebay"))
        .args(["materialize", FILE, "--verbose", "--jobs", "1"])
        .current_dir(at)
        .env("FOREBAY_CACHE", at.join("cache"))
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines().map(Result::unwrap);
    assert!(lines.any(|line| line.starts_with("stored shard ")), "no shard was stored");
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    let rest: Vec<String> = lines.collect();
    assert_eq!(child.wait().unwrap().code(), Some(130), "{rest:?}");
    assert!(rest.iter().any(|l| l.contains("finished shards are kept")), "{rest:?}");

    let partitions = json(at, &["check", FILE])["partitions"].as_u64().unwrap();
    let listed = json(at, &["ls", FILE]);
    let stage = &listed["pipelines"][0]["stages"][0];
    let kept = stage["shards"].as_u64().unwrap();
    assert!(kept >= 1 && kept < partitions, "{kept} of {partitions}");
    assert_eq!(stage["complete"], false);
    let done = json(at, &["materialize", FILE]);
    assert_eq!(done["computed_shards"], partitions - kept);
    assert_eq!((&done["stages"][0]["complete"], &done["stages"][0]["rows"]), (&true.into(), &24.into()));
}
