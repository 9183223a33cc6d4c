//! What a newcomer does first: from a folder of photographs to batches from a stored stage, with the binary alone; and
//! the demo, which does the same by itself.

use crate::fixture::{forebay, photo, photos, succeed};
use serde_json::Value;
use std::path::Path;
use std::process::Command;

fn json(directory: &Path, arguments: &[&str]) -> Value {
    let text = succeed(directory, arguments);
    serde_json::from_str(&text).unwrap_or_else(|e| panic!("forebay {arguments:?}: {e}\n{text}"))
}

/// Rows by the stage that they come from; `null` is the source.
fn origins(bench: &Value) -> Vec<(Option<&str>, u64)> {
    let origins = bench["origins"].as_array().unwrap();
    origins.iter().map(|o| (o["stage"].as_str(), o["rows"].as_u64().unwrap())).collect()
}

fn check_bench(bench: &Value, rows: u64) {
    assert_eq!(bench["rows"], rows);
    assert_eq!(bench["batches"], rows.div_ceil(8));
    // Crops of 224 x 224 in three channels, with key and label.
    assert!(bench["bytes"].as_u64().unwrap() > rows * 224 * 224 * 3, "{bench}");
    for number in ["seconds", "rows_per_second", "first_batch_seconds"] {
        assert!(bench[number].as_f64().unwrap() > 0.0, "{number}: {bench}");
    }
}

#[test]
fn from_a_folder_of_photographs_to_batches_of_a_stored_stage() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    photos(at, 24);

    let begun = json(at, &["init", "./photos", "--json"]);
    assert_eq!((&begun["pipeline"], &begun["file"]), (&"photos".into(), &"photos.yaml".into()));
    assert_eq!(begun["files"], serde_json::json!({ "image": 24 }));
    assert_eq!(begun["classes"], serde_json::json!(["cat", "dog", "owl"]));
    assert_eq!(begun["odd_files"], 0);

    // The three commands that it names are what comes next, and each works as it stands.
    let next: Vec<&str> = begun["next"].as_array().unwrap().iter().map(|n| n.as_str().unwrap()).collect();
    let words = |line: &'static str| line.split(' ').skip(1).collect::<Vec<_>>();
    assert_eq!(
        next,
        [
            "forebay check photos.yaml",
            "forebay materialize photos.yaml",
            "forebay read photos.yaml --split train --bench"
        ]
    );
    succeed(at, &words("forebay check photos.yaml"));
    let read = forebay(at, &words("forebay read photos.yaml --split train --bench"));
    let notes = String::from_utf8(read.stderr).unwrap();
    assert!(notes.contains("1 shard: 1 from the source"), "{notes}");

    let bench = ["read", "photos.yaml", "--split", "train", "--bench", "--batch-size", "8", "--json"];
    let before = json(at, &bench);
    let rows = json(at, &["read", "photos.yaml", "--split", "train", "--count", "--json"])["rows"].as_u64().unwrap();
    check_bench(&before, rows);
    assert_eq!(origins(&before), [(None, rows)]);

    let stored = json(at, &["materialize", "photos.yaml", "--json"]);
    assert_eq!((&stored["computed_shards"], &stored["failed_rows"]), (&1.into(), &0.into()));
    assert_eq!(stored["stages"][0]["stage"], "index");
    assert_eq!((&stored["stages"][0]["rows"], &stored["stages"][0]["complete"]), (&24.into(), &true.into()));
    assert_eq!(std::fs::read_to_string(at.join("classes.txt")).unwrap(), "cat\ndog\nowl\n");

    let after = json(at, &bench);
    check_bench(&after, rows);
    assert_eq!(origins(&after), [(Some("index"), rows)]);
    assert_eq!(before["bytes"], after["bytes"]);
}

/// `init` and then every key of each split, sorted.
fn split_keys(at: &Path, folder: &str) -> Vec<(String, Vec<String>)> {
    let begun = json(at, &["init", folder, "--json"]);
    let file = begun["file"].as_str().unwrap();
    let splits = begun["splits"].as_object().unwrap().keys();
    let keys = |split: &String| {
        let rows = json(at, &["read", file, "--split", split, "--limit", "1000", "--json", "-q"]);
        let mut keys: Vec<String> =
            rows.as_array().unwrap().iter().map(|row| row["_key"].as_str().unwrap().to_owned()).collect();
        keys.sort();
        (split.clone(), keys)
    };
    splits.map(keys).collect()
}

#[test]
fn splits_that_a_folder_has_are_kept() {
    use arrow::array::{ArrayRef, LargeBinaryArray, RecordBatch};
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    let put = |path: &str, bytes: &[u8]| {
        let path = at.join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, bytes).unwrap();
    };
    let parquet = |rows: usize| {
        let images: Vec<Vec<u8>> = (0..rows).map(|row| photo(row, 240, 260)).collect();
        let images: ArrayRef = std::sync::Arc::new(LargeBinaryArray::from_iter_values(images));
        let batch = RecordBatch::try_from_iter([("image", images)]).unwrap();
        let mut writer = parquet::arrow::ArrowWriter::try_new(Vec::new(), batch.schema(), None).unwrap();
        writer.write(&batch).unwrap();
        writer.into_inner().unwrap()
    };
    let rows = |file: &str, rows: usize| (0..rows).map(|row| format!("{file}#{row}")).collect::<Vec<_>>();

    // As the Hub has them: in one folder, or in `data`, or a folder for each.
    put("flat/train-00000-of-00001.parquet", &parquet(3));
    put("flat/test-00000-of-00001.parquet", &parquet(2));
    put("hub/README.md", b"x");
    put("hub/data/train-00000-of-00002.parquet", &parquet(3));
    put("hub/data/train-00001-of-00002.parquet", &parquet(2));
    put("hub/data/validation-00000-of-00001.parquet", &parquet(1));
    put("folders/train/0.parquet", &parquet(2));
    put("folders/test/0.parquet", &parquet(1));
    let train = [rows("data/train-00000-of-00002.parquet", 3), rows("data/train-00001-of-00002.parquet", 2)].concat();
    for (folder, expect) in [
        (
            "flat",
            [("test", rows("test-00000-of-00001.parquet", 2)), ("train", rows("train-00000-of-00001.parquet", 3))],
        ),
        ("hub", [("train", train), ("validation", rows("data/validation-00000-of-00001.parquet", 1))]),
        ("folders", [("test", rows("test/0.parquet", 1)), ("train", rows("train/0.parquet", 2))]),
    ] {
        assert_eq!(split_keys(at, folder), expect.map(|(split, keys)| (split.to_owned(), keys)), "{folder}");
    }

    // As ImageFolder has them, and below another directory.
    for below in ["", "images/"] {
        let folder = format!("pets{}", below.len());
        let mut expect = Vec::new();
        for (split, count) in [("test", 2), ("train", 4), ("val", 1)] {
            let keys: Vec<String> =
                (0..count).map(|n| format!("{below}{split}/{}/{n}.jpg", ["cat", "dog"][n % 2])).collect();
            keys.iter().enumerate().for_each(|(n, key)| put(&format!("{folder}/{key}"), &photo(n, 240, 260)));
            let mut keys = keys;
            keys.sort();
            expect.push((split.to_owned(), keys));
        }
        assert_eq!(split_keys(at, &folder), expect, "{folder}");
    }
}

#[test]
fn the_demo_says_what_happened() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    photos(at, 12);
    let demo = || {
        let output = Command::new(concat!(env!("CARGO_MANIFEST_DIR"), "/scripts/demo"))
            .arg("12")
            .arg(at)
            .env("FOREBAY_BIN", env!("CARGO_BIN_EXE_forebay"))
            .env("FOREBAY_CACHE", at.join("cache"))
            .output()
            .unwrap();
        let (out, err) = (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap());
        (output.status.code(), out, err)
    };
    // The second run begins anew.
    for _ in 0..2 {
        let (code, out, err) = demo();
        assert_eq!(code, Some(0), "{out}\n{err}");
        for words in ["found 12 image files", "all from the files", "all from stage 'index'", "times as fast"] {
            assert!(out.contains(words), "{words} in:\n{out}");
        }
        assert!(at.join("look").read_dir().unwrap().count() >= 8);
    }
    std::fs::remove_file(at.join(".demo")).unwrap();
    let (code, _, err) = demo();
    assert_eq!((code, err.contains("name another directory")), (Some(1), true), "{err}");
}
