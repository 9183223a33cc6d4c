//! `jsonl` and `csv`: blocks from the front, inferred types, rows that don't fit, keys.

use super::*;

fn lines(range: std::ops::Range<usize>) -> String {
    range.map(|i| format!("{{\"id\": {i}, \"text\": \"t{i}\"}}\n")).collect()
}

#[test]
fn appending_rekeys_the_last_block_only() {
    for (kind, name, header) in [(SourceKind::Jsonl, "a.jsonl", ""), (SourceKind::Csv, "a.csv", "id,text\n")] {
        let row = |i: usize| match kind {
            SourceKind::Csv => format!("{i},\"t,{i}\n\"\n"),
            _ => lines(i..i + 1),
        };
        let place = Place::new(kind, name);
        place.write(name, header.to_owned() + &(0..2500).map(row).collect::<String>());
        let before = place.list();
        assert_eq!(keys(&before), [0, 1000, 2000].map(|row| format!("{name}#{row}")));
        assert_eq!(before.entries.iter().map(|e| e.rows).collect::<Vec<_>>(), [1000, 1000, 500]);
        place.append(name, (2500..3100).map(row).collect::<String>().as_bytes());
        let after = place.list();
        assert_eq!(after.entries[..2], before.entries[..2]);
        assert_ne!(after.entries[2].identity, before.entries[2].identity);
        assert_eq!(after.entries.iter().map(|e| e.rows).collect::<Vec<_>>(), [1000, 1000, 1000, 100]);
        // What was listed before and isn't the tail is still there to be read.
        let source = place.source();
        let listed = entries(before);
        assert!(source.read_stream(&listed, 0..2).unwrap().all(|b| b.is_ok()));
        let batch = place.rows();
        assert_eq!(text(&batch, "_key")[2017], Some(format!("{name}#2017")));
        assert_eq!(integers(&batch, "id"), (0..3100).map(Some).collect::<Vec<_>>());
        assert_eq!(source.locate(&after.entries, &format!("{name}#2017")), Some(2));
        assert_eq!(source.locate(&after.entries, &format!("{name}#3100")), None);
    }
}

#[test]
fn long_lines_and_blank_lines() {
    let place = Place::new(SourceKind::Jsonl, "a.jsonl");
    let long = format!("{{\"text\": \"{}\"}}\r\n", "x".repeat(5 << 20));
    place.write("a.jsonl", format!("\u{feff}{{\"text\": \"a\"}}\n\n  \n{long}{{\"text\": \"b\"}}"));
    let listing = place.list();
    assert_eq!(keys(&listing), ["a.jsonl#0", "a.jsonl#1", "a.jsonl#2"]);
    let batch = place.rows();
    let lengths: Vec<usize> = text(&batch, "text").iter().map(|t| t.as_ref().unwrap().len()).collect();
    assert_eq!(lengths, [1, 5 << 20, 1]);
    let empty = Place::new(SourceKind::Jsonl, "a.jsonl");
    empty.write("a.jsonl", b"\n\n");
    assert_says(&empty.list_error(), &["no row"]);
    let headed = Place::new(SourceKind::Csv, "a.csv");
    headed.write("a.csv", b"x,y\n");
    assert_eq!((headed.list().entries.len(), headed.rows().num_rows()), (0, 0));
}

#[test]
fn compressed_files_are_refused_by_name() {
    let gzip = [0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 3].as_slice();
    let zstd = [0x28, 0xb5, 0x2f, 0xfd, 0, 0].as_slice();
    for (kind, name, bytes, compression) in [
        (SourceKind::Jsonl, "a.jsonl.gz", gzip, "gzip"),
        (SourceKind::Csv, "a.csv.zst", zstd, "zstd"),
        (SourceKind::Csv, "a.csv", b"BZh91AY&SY\0", "bzip2"),
        (SourceKind::Table, "a.csv", gzip, "gzip"),
    ] {
        let place = Place::new(kind, name);
        place.write(name, bytes);
        assert_says(&place.list_error(), &[name, &format!("compressed with {compression}"), "decompress it"]);
    }
    let place = Place::new(SourceKind::Csv, "a.csv");
    place.write("a.csv", b"BZh9,x\n1,2\n");
    assert_eq!(place.rows().num_rows(), 1);
}

#[test]
fn a_folder_of_compressed_files_says_what_they_are() {
    for (kind, pattern, name, words) in [
        (SourceKind::Jsonl, "data", "data/x/a.jsonl.gz", ["a.jsonl.gz is compressed with gzip", "decompress it"]),
        (SourceKind::Csv, "data", "data/a.csv.zst", ["a.csv.zst is compressed with zstd", "decompress it"]),
        (SourceKind::Csv, "data/*.csv", "data/a.csv.xz", ["a.csv.xz is compressed with xz", "Parquet"]),
        (SourceKind::Csv, "data/a.csv", "data/a.csv.zip", ["a.csv.zip is compressed with zip", "decompress it"]),
        (SourceKind::Table, "data", "data/a.tsv.gz", ["a.tsv.gz is compressed with gzip", "decompress it"]),
        (SourceKind::Parquet, "data", "data/a.parquet.gz", ["a.parquet.gz is compressed with gzip", "decompress it"]),
        (SourceKind::Arrow, "data", "data/a.arrow.lz4", ["a.arrow.lz4 is compressed with lz4", "decompress it"]),
        (SourceKind::Tar, "data", "data/a.tar.xz", ["a.tar.xz is compressed with xz", "gzip or zstd"]),
        (SourceKind::Tar, "data/*.tar", "data/a.tar.gz", ["a.tar.gz is compressed with gzip", "in the pattern"]),
    ] {
        let place = Place::new(kind, pattern);
        place.write(name, b"x").write(&format!("{name}.notes"), b"x");
        assert_says(&place.list_error(), &words);
    }
    for kind in [SourceKind::Parquet, SourceKind::Arrow] {
        let place = Place::new(kind, "a.gz");
        place.write("a.gz", [0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 3]);
        assert_says(&place.list_error(), &["a.gz", "compressed with gzip", "decompress it"]);
    }
}

#[test]
fn rows_that_do_not_fit_fail_alone() {
    let place = Place::new(SourceKind::Jsonl, "*.jsonl");
    place.write("a.jsonl", "{\"id\":1,\"x\":[1.5],\"o\":{\"k\":true}}\n{\"id\":2}\n");
    place.write("b.jsonl", "{\"id\":2.5}\nnot json\n[1]\n{\"id\":3,\"more\":0}\n{\"id\":null,\"x\":\"no\"}\n");
    let batch = place.rows();
    assert_eq!(integers(&batch, "id"), [Some(1), Some(2), None, None, None, Some(3), None]);
    assert_eq!(failed(&batch), [2, 3, 4, 6]);
    let reasons = text(&batch, "_error");
    assert!(reasons[2].as_ref().unwrap().contains("column \"id\": expected int64, found 2.5"), "{reasons:?}");
    assert!(reasons[4].as_ref().unwrap().contains("not an object"), "{reasons:?}");
    let place = Place::new(SourceKind::Csv, "*.csv");
    place
        .write("a.csv", b"id,n,zip\n1,2.5,01234\n2,,x\n")
        .write("b.csv", b"zip,id,n\nq,7\n99,oops,1\n\xe9,1,1\n\"\"\"q\"\"\",3,4\n");
    let batch = place.rows();
    assert_eq!(integers(&batch, "id"), [Some(1), Some(2), None, None, None, Some(3)]);
    assert_eq!(text(&batch, "zip"), [Some("01234".into()), Some("x".into()), None, None, None, Some("\"q\"".into())]);
    assert_eq!(failed(&batch), [2, 3, 4]);
    assert!(text(&batch, "_error")[2].as_ref().unwrap().contains("expected 3 cells, found 2"));
}

#[test]
fn a_renamed_column_is_another_identity() {
    let place = Place::new(SourceKind::Csv, "a.csv");
    place.write("a.csv", b"a,b\n1,2\n");
    let before = place.list();
    let source = place.source();
    place.write("a.csv", b"b,a\n1,2\n");
    assert_ne!(place.list().entries[0].identity, before.entries[0].identity);
    assert_conflict(read(&source, &entries(before)).unwrap_err(), "a.csv");
    place.write("b.csv", b"a,c\n1,2\n");
    let mut both = place;
    both.spec.patterns = vec!["*.csv".to_owned()];
    assert_says(&both.list_error(), &["b.csv has no column \"b\"", "a, c"]);
}

#[test]
fn the_recorded_schema_wins() {
    let place = Place::new(SourceKind::Csv, "a.csv");
    place.write("a.csv", b"n\n1\n2\n");
    let recorded = place.source().schema().unwrap();
    place.write("a.csv", b"n\nx\n2\n");
    assert_eq!(text(&place.rows(), "n"), some(&["x", "2"]));
    let source = Source::open(&place.spec, place.directory.path(), Some(recorded), None, &no_buckets).unwrap();
    let batch = read(&source, &entries(list(&source).unwrap())).unwrap();
    assert_eq!((integers(&batch, "n"), failed(&batch)), (vec![None, Some(2)], vec![0]));
}

#[test]
fn keyed_rows_are_entries_of_their_own() {
    for (kind, name, header) in [(SourceKind::Jsonl, "a.jsonl", ""), (SourceKind::Csv, "a.csv", "id,text\n")] {
        let row = |i: usize| match kind {
            SourceKind::Csv => format!("{i},t{i}\n"),
            _ => lines(i..i + 1),
        };
        let place = Place::new(kind, name).key("id").columns(&["text"]);
        place.write(name, header.to_owned() + &(0..5).map(row).collect::<String>());
        let before = place.list();
        assert_eq!(keys(&before), ["0", "1", "2", "3", "4"]);
        let source = place.source();
        assert!(source.entries_are_samples());
        let batch = source.read_entries(&entries(before.clone()), &[3, 1]).unwrap();
        assert_eq!((text(&batch, "_key"), text(&batch, "text")), (some(&["3", "1"]), some(&["t3", "t1"])));
        place.write(name, header.to_owned() + &[9, 0, 1, 2, 4].map(row).concat());
        let after = place.list();
        for key in ["0", "1", "2", "4"] {
            assert_eq!(entry(&after, key).identity, entry(&before, key).identity);
        }
        place.append(name, row(2).as_bytes());
        assert_says(&place.list_error(), &["\"2\" stands twice", "row 3", "row 5"]);
        place.write(
            name,
            header.to_owned() + if kind == SourceKind::Csv { ",x\n" } else { "{\"id\": null, \"text\": 1}\n" },
        );
        assert_says(&place.list_error(), &["row 0", "no value in the key column \"id\""]);
    }
}

#[test]
fn headers_are_checked() {
    let check = |header: &[u8], word: &str| {
        let place = Place::new(SourceKind::Csv, "a.csv");
        place.write("a.csv", header);
        assert_says(&place.list_error(), &[word, "a.csv"]);
    };
    check(b"a,a\n1,2\n", "names \"a\" twice");
    check(b"a,\xe9\n1,2\n", "not UTF-8");
    check(&[b'a'; 2 << 20], "does not end within 1 MiB");
    let place = Place::new(SourceKind::Csv, "a.tsv");
    place.write("a.tsv", b"\xef\xbb\xbfx\t\n1\ta,b\n");
    assert_eq!(text(&place.rows(), "column_1"), some(&["a,b"]));
    assert_eq!(integers(&place.rows(), "x"), [Some(1)]);
}

#[test]
fn what_is_nested_too_deep_is_refused_with_its_row() {
    let nested = |levels: usize| format!("{{\"x\": {}1{}, \"y\": 1}}\n", "[".repeat(levels), "]".repeat(levels));
    let place = Place::new(SourceKind::Jsonl, "a.jsonl");
    place.write("a.jsonl", nested(1) + &nested(80));
    let words = ["a.jsonl, row 1", "column \"x\"", "nested 80 deep", "at most 32 levels"];
    assert_says(&place.list_error(), &words);
    place.write("a.jsonl", nested(32));
    assert_eq!(place.rows().num_rows(), 1);
    let schema = place.source().schema().unwrap();
    let text = forebay::format::schema::encode(&schema);
    assert_eq!(forebay::format::schema::decode(&text).unwrap(), *schema);
    place.write("a.jsonl", nested(80));
    assert_eq!(integers(&place.columns(&["y"]).rows(), "y"), [Some(1)]);
    // What the parser itself doesn't follow is a failed row.
    let place = Place::new(SourceKind::Jsonl, "a.jsonl");
    place.write("a.jsonl", nested(1) + &nested(1000));
    assert_eq!(failed(&place.rows()), [1]);
}

#[test]
fn integers_of_any_length_keep_their_digits() {
    let place = Place::new(SourceKind::Jsonl, "a.jsonl");
    let long = ["-9223372036854775809", "18446744073709551616", "123456789012345678901234567890"];
    let line = |value: &str| format!("{{\"id\": {value}, \"x\": \"\\\"99999999999999999999\", \"n\": 1e30}}\n");
    place.write("a.jsonl", ["1", long[0], "18446744073709551615"].map(line).concat());
    let batch = place.rows();
    assert_eq!(text(&batch, "id"), some(&["1", long[0], "18446744073709551615"]));
    assert_eq!(text(&batch, "x")[0].as_deref(), Some("\"99999999999999999999"));
    // In a column of numbers they would lose digits.
    for (first, numbers) in [("1", "int64"), ("1.5", "float64")] {
        place.write("a.jsonl", line(first).repeat(1000) + &line(long[1]) + &line(long[2]));
        let batch = place.rows();
        assert_eq!(failed(&batch), [1000, 1001]);
        let reason = text(&batch, "_error")[1001].clone().unwrap();
        assert_eq!(reason, format!("column \"id\": expected {numbers}, found \"{}\"", long[2]));
    }
}

#[test]
fn what_is_no_header_is_refused() {
    let check = |bytes: &[u8], words: &[&str]| {
        let place = Place::new(SourceKind::Csv, "a.csv");
        place.write("a.csv", bytes);
        assert_says(&place.list_error(), &["a.csv, line 1"]);
        assert_says(&place.list_error(), words);
        let mut table = Place::new(SourceKind::Table, "a.csv");
        table.write("a.csv", bytes);
        table.spec.load.insert("image".to_owned(), "{a}".to_owned());
        assert_says(&table.list_error(), words);
    };
    check(b"a,b\r1,2\r3,4\r", &["carriage return alone, at byte 3", "line feed"]);
    check(b"a,\"b\"\r1,2\n3,4\n", &["carriage return alone, at byte 5"]);
    check(b"", &["names the columns", "found nothing"]);
    check(b"\xef\xbb\xbf\r\na,b\n", &["found nothing"]);
    check(b"\xff\xfea\0,\0b\0\n\0", &["UTF-16", "convert it"]);
    check(b"a\0,\0b\0\n\0", &["UTF-16"]);
    let quoted = Place::new(SourceKind::Csv, "a.csv");
    quoted.write("a.csv", b"\"a\rb\",c\r\n1,2\r\n");
    assert_eq!(integers(&quoted.rows(), "a\rb"), [Some(1)]);
}
