//! README, the help texts and the examples say what is so: their commands, pipelines and snippets are run.

use crate::consumers::python;
use crate::fixture::{photo, succeed};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

const ROOT: &str = env!("CARGO_MANIFEST_DIR");
const COMMANDS: [&str; 13] = [
    "init",
    "check",
    "snapshot",
    "materialize",
    "read",
    "ls",
    "show",
    "files",
    "explain",
    "export",
    "verify",
    "steps",
    "completions",
];

#[test]
fn scripts_say_what_they_do_and_refuse_what_they_do_not_know() {
    let mut tried = 0;
    for entry in std::fs::read_dir(Path::new(ROOT).join("scripts")).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some() {
            continue;
        }
        let run = |arguments: &[&str]| {
            let output = Command::new(&path).args(arguments).output().unwrap();
            let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
            (output.status.code(), text(output.stdout), text(output.stderr))
        };
        let name = path.file_name().unwrap().to_str().unwrap();
        let (code, out, err) = run(&["--help"]);
        assert_eq!((code, err.as_str()), (Some(0), ""), "{name}");
        assert!(out.contains(&format!("scripts/{name}")) && !out.contains("set -e"), "{name}: {out}");
        for arguments in [&["--no-such"][..], &["1", "2", "3", "4"]] {
            let (code, out, err) = run(arguments);
            assert_eq!((code, out.as_str()), (Some(2), ""), "{name} {arguments:?}: {err}");
            assert!(err.contains(name), "{name}: {err}");
        }
        tried += 1;
    }
    assert!(tried >= 8, "{tried} scripts");
}

/// A directory with `photos`, as README has it, and with `forebay` and `duckdb` for its shell.
fn workshop() -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    for number in 0..24 {
        let folder = at.join("photos").join(["cats", "dogs"][number % 2]);
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join(format!("{}.jpg", number / 2)), photo(number, 60, 80 + number % 3)).unwrap();
    }
    let bin = at.join("bin");
    std::fs::create_dir(&bin).unwrap();
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_forebay"), bin.join("forebay")).unwrap();
    // DuckDB's own command line isn't part of its Python package.
    let duckdb = format!("#!{}\nimport duckdb, sys\nprint(duckdb.sql(sys.argv[2]))\n", python().display());
    std::fs::write(bin.join("duckdb"), duckdb).unwrap();
    let executable = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(bin.join("duckdb"), executable).unwrap();
    directory
}

/// Runs a script in the workshop; the first command that fails ends it.
fn shell(at: &Path, script: &str) -> String {
    let path = format!("{}:{}", at.join("bin").display(), std::env::var("PATH").unwrap());
    let output = Command::new("sh")
        .args(["-e", "-c", script])
        .current_dir(at)
        .env("PATH", path)
        .env("HOME", at)
        .env("FOREBAY_CACHE", at.join("cache"))
        .env_remove("FOREBAY_STORE")
        .output()
        .unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(output.status.success(), "{script}\n{}\n{}", text(&output.stdout), text(&output.stderr));
    text(&output.stdout)
}

/// The fenced blocks of a document: language and text.
fn blocks(document: &str) -> Vec<(String, String)> {
    let mut found = Vec::new();
    let mut lines = document.lines();
    while let Some(line) = lines.next() {
        let Some(language) = line.strip_prefix("```") else { continue };
        let block: Vec<&str> = lines.by_ref().take_while(|l| *l != "```").collect();
        found.push((language.to_owned(), block.join("\n") + "\n"));
    }
    found
}

#[test]
fn readme_does_what_it_says() {
    let directory = workshop();
    let at = directory.path();
    let readme = std::fs::read_to_string(Path::new(ROOT).join("README.md")).unwrap();
    let mut run = 0;
    for (number, (language, text)) in blocks(&readme).into_iter().enumerate() {
        match language.as_str() {
            "sh" => {
                shell(at, &text);
            }
            "yaml" => {
                let file = format!("block-{number}.yaml");
                std::fs::write(at.join(&file), text).unwrap();
                succeed(at, &["check", &file]);
            }
            "python" => {
                let output = Command::new(python()).args(["-c", &text]).current_dir(at).output().unwrap();
                assert!(output.status.success(), "{text}\n{}", String::from_utf8_lossy(&output.stderr));
                assert!(String::from_utf8_lossy(&output.stdout).contains("cats"));
            }
            // The demo, which has a test of its own, and the script that runs this, with a variable before it.
            "text" => {
                for script in text.lines().map(|l| l.split_whitespace().find(|word| !word.contains('=')).unwrap()) {
                    assert!(Path::new(ROOT).join(script).is_file(), "{script}");
                }
            }
            other => panic!("README has a block of {other:?}, which no test runs"),
        }
        run += 1;
    }
    assert!(run >= 8);
}

#[test]
fn files_that_readme_names_are_there() {
    let readme = std::fs::read_to_string(Path::new(ROOT).join("README.md")).unwrap();
    let named =
        readme.split('`').skip(1).step_by(2).filter(|n| n.ends_with(".md") || (n.ends_with('/') && !n.contains(':')));
    let missing: Vec<&str> = named.filter(|n| !Path::new(ROOT).join(n).exists()).collect();
    // Benches are measured, and written up, apart from the tests.
    assert!(missing.iter().all(|n| *n == "benches/README.md"), "{missing:?}");
}

#[test]
fn examples_of_every_help_run() {
    let directory = workshop();
    let at = directory.path();
    std::fs::create_dir(at.join("shards")).unwrap();
    std::fs::create_dir_all(at.join(".local/share/bash-completion/completions")).unwrap();
    tar(&at.join("shards/train-000.tar"), &[("1.jpg", &photo(1, 20, 20)), ("1.cls", b"3")]);
    for command in COMMANDS {
        let help = succeed(at, &[command, "--help"]);
        let (_, examples) = help.split_once("\nExamples:\n").unwrap_or_else(|| panic!("{command}: {help}"));
        // What is behind several spaces says what the command is for.
        let script: String = examples
            .lines()
            .map(|line| line.strip_prefix("  ").unwrap_or_else(|| panic!("{command}: {line:?}")))
            .map(|line| line.split("  ").next().unwrap().to_owned() + "\n")
            .collect();
        assert!(script.contains(&format!("forebay {command}")), "{command}: {script}");
        if command == "explain" {
            // A second snapshot, to compare with the first.
            std::fs::write(at.join("photos/cats/new.jpg"), photo(30, 60, 80)).unwrap();
            succeed(at, &["materialize", "photos.yaml", "--stage", "resize"]);
        }
        shell(at, &script);
    }
    let completions = at.join(".local/share/bash-completion/completions/forebay");
    assert!(std::fs::metadata(completions).unwrap().len() > 1000);
}

fn tar(path: &Path, members: &[(&str, &[u8])]) {
    let mut tar = tar::Builder::new(std::fs::File::create(path).unwrap());
    for (name, bytes) in members {
        let mut header = tar::Header::new_gnu();
        header.set_size(bytes.len() as u64);
        header.set_mode(0o644);
        tar.append_data(&mut header, name, *bytes).unwrap();
    }
    tar.finish().unwrap();
}

/// An example's pipeline in a directory of its own, for its data to be made beside it.
fn example(name: &str) -> (tempfile::TempDir, PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    std::fs::copy(Path::new(ROOT).join("examples").join(name), directory.path().join(name)).unwrap();
    let at = directory.path().to_owned();
    (directory, at)
}

/// Runs the usual commands; returns the rows that are read.
fn run(at: &Path, file: &str, split: &[&str]) -> Vec<serde_json::Value> {
    succeed(at, &["check", file]);
    succeed(at, &["materialize", file]);
    let rows = succeed(at, &[&["read", file, "--limit", "1000", "--json"], split].concat());
    serde_json::from_str(&rows).unwrap()
}

#[test]
fn the_example_of_folders_runs() {
    let (_directory, at) = example("folders.yaml");
    for number in 0..16 {
        let folder = at.join("flowers").join(["rose", "tulip"][number % 2]);
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join(format!("{number}.jpg")), photo(number, 50, 70)).unwrap();
    }
    let train = run(&at, "folders.yaml", &["--split", "train"]);
    let val = run(&at, "folders.yaml", &["--split", "val"]);
    assert_eq!(train.len() + val.len(), 16);
    for row in train.iter().chain(&val) {
        assert_eq!(row["image"], "uint8 [224, 224, 3]");
        let class = u64::from(row["_key"].as_str().unwrap().starts_with("tulip/"));
        assert_eq!(row["label"], class, "{row}");
    }
}

#[test]
fn the_example_of_tars_runs() {
    let (_directory, at) = example("webdataset.yaml");
    std::fs::create_dir(at.join("shards")).unwrap();
    for shard in 0..2 {
        let mut members: Vec<(String, Vec<u8>)> = Vec::new();
        for number in shard * 8..shard * 8 + 8 {
            members.push((format!("{number:04}.jpg"), photo(number, 40, 50)));
            members.push((format!("{number:04}.cls"), (number % 3).to_string().into_bytes()));
            members.push((format!("{number:04}.txt"), format!("picture {number}").into_bytes()));
        }
        let members: Vec<(&str, &[u8])> = members.iter().map(|(n, b)| (n.as_str(), b.as_slice())).collect();
        tar(&at.join(format!("shards/pairs-{shard:03}.tar")), &members);
    }
    let rows = run(&at, "webdataset.yaml", &[]);
    assert_eq!(rows.len(), 16);
    for (number, row) in rows.iter().enumerate() {
        assert_eq!(row["image"], "uint8 [128, 128, 3]", "{row}");
        assert_eq!((&row["cls"], &row["txt"]), (&(number % 3).into(), &format!("picture {number}").into()), "{row}");
    }
}

#[test]
fn the_example_of_a_table_runs() {
    let (_directory, at) = example("table.yaml");
    std::fs::create_dir(at.join("scans")).unwrap();
    let mut table = std::fs::File::create(at.join("scans.csv")).unwrap();
    writeln!(table, "id,file,age,finding").unwrap();
    for number in 0..12 {
        let finding = ["none", "nodule", "mass"][number % 3];
        writeln!(table, "p{number:02},{number}.jpg,{},{finding}", 10 + number * 5).unwrap();
        // The last one is missing and skipped.
        if number < 11 {
            std::fs::write(at.join(format!("scans/{number}.jpg")), photo(number, 80, 100)).unwrap();
        }
    }
    drop(table);
    let mut rows = run(&at, "table.yaml", &[]);
    rows.sort_by_key(|r| r["_key"].as_str().unwrap().to_owned());
    // Those of 18 years and more: from number 2 on.
    let keys: Vec<&str> = rows.iter().map(|r| r["_key"].as_str().unwrap()).collect();
    let expected: Vec<String> = (2..11).map(|n| format!("p{n:02}")).collect();
    assert_eq!(keys, expected);
    for (row, number) in rows.iter().zip(2..) {
        assert_eq!((&row["image"], &row["finding"]), (&"float32 [64, 80, 1]".into(), &(number % 3).into()), "{row}");
    }
}
