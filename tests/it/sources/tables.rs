//! `table` with `load:`: rows and the objects that they refer to.

use super::*;

fn place() -> Place {
    let mut place = Place::new(SourceKind::Table, "labels.csv");
    place.write("labels.csv", "file,label\na.jpg,1\nb.jpg,2\na.jpg,3\n");
    place.write("imgs/a.jpg", b"aa").write("imgs/b.jpg", b"b");
    place.spec.load.insert("image".to_owned(), "imgs/{file}".to_owned());
    place
}

#[test]
fn rows_carry_their_values_and_load_their_objects() {
    let place = place();
    let listing = place.list();
    assert_eq!(keys(&listing), ["labels.csv#0", "labels.csv#1", "labels.csv#2"]);
    assert_eq!(listing.hashed, 2, "each object once");
    assert_eq!(listing.entries[0].bytes, 2);
    let batch = place.rows();
    assert_eq!(integers(&batch, "label"), [Some(1), Some(2), Some(3)]);
    assert_eq!(bytes(&batch, "image"), [Some(b"aa".to_vec()), Some(b"b".to_vec()), Some(b"aa".to_vec())]);
    let source = place.source();
    let batch = source.read_entries(&entries(listing), &[2, 1]).unwrap();
    assert_eq!(integers(&batch, "label"), [Some(3), Some(2)]);
}

#[test]
fn one_corrected_label_rekeys_one_row() {
    let place = place();
    let before = place.list();
    place.write("labels.csv", "file,label\na.jpg,1\nb.jpg,7\na.jpg,3\n");
    let after = place.list();
    let same: Vec<bool> = identities(&before).iter().zip(identities(&after)).map(|(a, b)| *a == b).collect();
    assert_eq!(same, [true, false, true]);
    let source = place.source();
    let listed = entries(after);
    place.write("imgs/a.jpg", b"AA");
    assert_conflict(source.read_entries(&listed, &[0]).unwrap_err(), "labels.csv#0");
    assert!(source.read_entries(&listed, &[1]).is_ok());
}

#[test]
fn columns_that_are_not_carried_change_nothing() {
    let place = place().columns(&["image"]);
    let before = place.list();
    place.write("labels.csv", "file,label\na.jpg,x\nb.jpg,y\na.jpg,z\n");
    assert_eq!(identities(&place.list()), identities(&before));
    assert_eq!(place.rows().num_columns(), 3);
}

#[test]
fn missing_objects_follow_missing() {
    let mut place = place();
    place.write("labels.csv", "file,label\na.jpg,1\nx.jpg,2\n,3\n");
    for (missing, fails, fate) in
        [(Missing::Fail, vec![1, 2], "they fail"), (Missing::Null, vec![], "their values are null")]
    {
        place.spec.missing = missing;
        let source = place.source();
        let listed = entries(list(&source).unwrap());
        let notes = source.notes();
        assert_eq!(notes.len(), 1);
        for words in ["2 rows refer to", "imgs/x.jpg (labels.csv, row 1)", "no name (labels.csv, row 2)", fate] {
            assert!(notes[0].contains(words), "{words:?} is not in {notes:?}");
        }
        let batch = read(&source, &listed).unwrap();
        assert_eq!(integers(&batch, "label"), [Some(1), Some(2), Some(3)]);
        assert_eq!((bytes(&batch, "image")[1].clone(), failed(&batch)), (None, fails));
        if missing == Missing::Fail {
            assert_eq!(text(&batch, "_error")[1].as_deref(), Some("imgs/x.jpg is not there"));
        }
        // One that has come since is a change.
        place.write("imgs/x.jpg", b"x");
        assert_conflict(source.read_entries(&listed, &[1]).unwrap_err(), "labels.csv#1");
        std::fs::remove_file(place.path("imgs/x.jpg")).unwrap();
    }
    place.spec.missing = Missing::Skip;
    assert_eq!(text(&place.rows(), "_key"), some(&["labels.csv#0"]));
}

#[test]
fn what_is_no_file_is_missing() {
    let mut place = place();
    place.write("labels.csv", "file,label\na.jpg,1\ndirectory,2\na.jpg/b.jpg,3\npipe,4\n");
    place.write("imgs/directory/x.jpg", b"x");
    let made = std::process::Command::new("mkfifo").arg(place.path("imgs/pipe")).status().unwrap();
    assert!(made.success());
    place.spec.missing = Missing::Null;
    let batch = place.rows();
    assert_eq!(bytes(&batch, "image"), [Some(b"aa".to_vec()), None, None, None]);
    assert_eq!(failed(&batch), [0; 0]);
}

#[test]
fn paths_stay_below_the_root() {
    let mut place = place();
    place.write("labels.csv", "file,label\n../labels.csv,1\n");
    assert_says(&place.list_error(), &["labels.csv, row 0", "below the source's root"]);
    place.spec.load.insert("image".to_owned(), "{file}".to_owned());
    place.write("labels.csv", "file,label\n/etc/passwd,1\n");
    assert_says(&place.list_error(), &["absolute"]);
    place.spec.load.insert("image".to_owned(), "{nope}".to_owned());
    assert_says(&place.list_error(), &["no column \"nope\""]);
}

#[test]
fn a_key_column_names_rows_once() {
    let place = place().key("file");
    place.write("labels.csv", "label,file\n1,b.jpg\n2,a.jpg\n");
    assert_eq!(keys(&place.list()), ["b.jpg", "a.jpg"]);
    place.write("labels.csv", "label,file\n1,b.jpg\n2,a.jpg\n3,b.jpg\n");
    assert_says(&place.list_error(), &["\"b.jpg\" stands twice", "row 0", "row 2"]);
    place.write("labels.csv", "label,file\n1\n");
    assert_says(&place.list_error(), &["row 0", "cells"]);
}

#[test]
fn times_of_a_zone_with_a_name_are_values_like_others() {
    use arrow::array::{ArrayRef, StringArray, TimestampSecondArray};
    let rows = |zone: &str, second: i64| {
        let files: ArrayRef = std::sync::Arc::new(StringArray::from(vec!["a.jpg", "b.jpg"]));
        let times = TimestampSecondArray::from(vec![Some(second), None]).with_timezone(zone);
        let batch = RecordBatch::try_from_iter([("file", files), ("at", std::sync::Arc::new(times))]).unwrap();
        super::containers::parquet(&batch, 10)
    };
    let mut place = Place::new(SourceKind::Table, "t.parquet");
    place.write("t.parquet", rows("Europe/Berlin", 0)).write("imgs/a.jpg", b"aa").write("imgs/b.jpg", b"b");
    place.spec.load.insert("image".to_owned(), "imgs/{file}".to_owned());
    let first = place.list();
    for (zone, second, same) in [("Europe/Berlin", 0, true), ("Europe/Berlin", 1, false), ("Asia/Tokyo", 0, false)] {
        place.write("t.parquet", rows(zone, second));
        let again = place.list();
        assert_eq!(identities(&again)[0] == identities(&first)[0], same, "{zone} {second}");
        assert_eq!(identities(&again)[1], identities(&first)[1], "{zone} {second}");
    }
    assert_eq!(bytes(&place.rows(), "image").len(), 2);
}

#[test]
fn tables_may_be_json_lines() {
    let mut place = place();
    place.spec.patterns = vec!["rows.jsonl".to_owned()];
    place.write("rows.jsonl", "{\"file\": \"a.jpg\", \"tags\": [\"x\"]}\n{\"file\": \"b.jpg\", \"tags\": null}\n");
    let batch = place.rows();
    assert_eq!(text(&batch, "file"), some(&["a.jpg", "b.jpg"]));
    assert_eq!(bytes(&batch, "image")[1], Some(b"b".to_vec()));
}
