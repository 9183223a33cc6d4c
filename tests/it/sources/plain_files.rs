//! `files`: keys, patterns, kinds, made and joined columns, the cache of digests.

use super::*;
use forebay::id::Digest;
use forebay::spec::pipeline::Field;

fn photos() -> Place {
    let place = Place::new(SourceKind::Files, "photos/**/*.{jpg,png}");
    place.write("photos/cat/b.jpg", b"b").write("photos/cat/a.png", b"aa").write("photos/dog/c d%+#.jpg", b"");
    place.write("photos/dog/notes.txt", b"no").write("photos/dog/.hidden.jpg", b"no");
    place
}

#[test]
fn files_are_listed_by_key_and_read_back() {
    let place = photos();
    let listing = place.list();
    assert_eq!(keys(&listing), ["cat/a.png", "cat/b.jpg", "dog/c d%+#.jpg"]);
    assert_eq!(listing.hashed, 3);
    assert_eq!(listing.entries[0].identity, Identity::Content(Digest::of(b"aa")));
    assert_eq!((listing.entries[0].bytes, listing.entries[0].rows), (2, 1));
    let source = place.source();
    let listed = entries(listing);
    let batch = source.read_entries(&listed, &[2, 0]).unwrap();
    assert_eq!(batch.schema(), source.schema().unwrap());
    assert_eq!(text(&batch, "_key"), some(&["dog/c d%+#.jpg", "cat/a.png"]));
    assert_eq!(bytes(&batch, "image"), [Some(vec![]), Some(b"aa".to_vec())]);
    assert_eq!(read(&source, &listed).unwrap().num_rows(), 3);
    assert!(source.entries_are_samples());
    assert_eq!(source.locate(&listed.entries, "cat/b.jpg"), Some(1));
}

#[test]
fn awkward_names_are_keys() {
    let place = Place::new(SourceKind::Files, "d/**");
    let mut deep: Vec<String> = (0..4).map(|i| i.to_string().repeat(224)).collect();
    deep.push("end".to_owned());
    let deep = deep.join("/");
    assert!(deep.len() > 900);
    let names = ["#", "%41", "+", "[x].bin", "a b", "ü/日本", deep.as_str(), "{y}"];
    names.iter().for_each(|name| {
        place.write(&format!("d/{name}"), name);
    });
    let mut sorted: Vec<&str> = names.to_vec();
    sorted.sort_unstable();
    assert_eq!(keys(&place.list()), sorted);
    assert_eq!(bytes(&place.rows(), "data"), sorted.iter().map(|n| Some(n.as_bytes().to_vec())).collect::<Vec<_>>());
    // What exists is meant as it stands, wildcards or not.
    let literal = Place::new(SourceKind::Files, "[x]{y}.bin");
    literal.write("[x]{y}.bin", b"1").write("x.bin", b"2");
    assert_eq!(keys(&literal.list()), ["[x]{y}.bin"]);
}

#[test]
fn patterns_choose() {
    let place = photos();
    place.write("photos/s/01.jpg", b"1").write("photos/s/02.jpg", b"2").write("photos/s/10.jpg", b"3");
    let check = |patterns: &[&str], root: Option<&str>, expect: &[&str]| {
        let mut spec = place.spec.clone();
        spec.patterns = patterns.iter().map(|p| p.to_string()).collect();
        spec.root = root.map(str::to_owned);
        let source = Source::open(&spec, place.directory.path(), None, None, &no_buckets).unwrap();
        assert_eq!(keys(&list(&source).unwrap()), expect, "{patterns:?}");
    };
    check(&["photos/s/{01..02}.jpg"], None, &["01.jpg", "02.jpg"]);
    check(&["photos/s/?[1-2].jpg"], None, &["01.jpg", "02.jpg"]);
    check(&["photos/*/*.jpg"], None, &["cat/b.jpg", "dog/c d%+#.jpg", "s/01.jpg", "s/02.jpg", "s/10.jpg"]);
    check(&["photos/s/0*"], Some("photos"), &["s/01.jpg", "s/02.jpg"]);
}

#[test]
fn several_patterns_share_a_root_and_list_each_file_once() {
    let mut place = photos();
    place.spec.patterns =
        vec!["photos/cat/*".to_owned(), "./photos/dog/../cat/b.jpg".to_owned(), "photos/dog".to_owned()];
    assert_eq!(keys(&place.list()), ["cat/a.png", "cat/b.jpg", "dog/c d%+#.jpg", "dog/notes.txt"]);
    place.spec.root = Some(".".to_owned());
    assert_eq!(keys(&place.list())[0], "photos/cat/a.png");
    place.spec.root = Some("photos/cat".to_owned());
    assert_says(&place.list_error(), &["p.yaml:2:3", "not below root"]);
    place.spec.root = None;
    place.spec.patterns = vec!["photos/dog/.*".to_owned()];
    assert_eq!(keys(&place.list()), [".hidden.jpg"]);
}

#[test]
fn nothing_found_says_what_was_sought_and_where() {
    let mut place = photos();
    for (pattern, words) in [
        ("photos/**/*.gif", ["matches no file", "photos", "holds 2 names"]),
        ("fotos/*.jpg", ["there is no directory", "fotos", "nearest directory"]),
        ("photos/cat/x.jpg", ["which is not a file", "x.jpg", "holds 2 names"]),
        ("photos/cat/{a,x}.png", ["which is not a file", "x.png", "holds 2 names"]),
    ] {
        place.spec.patterns = vec![pattern.to_owned()];
        let error = place.list_error();
        assert_eq!(error.kind(), Kind::NotFound, "{error:?}");
        assert_says(&error, &words);
        assert_says(&error, &["p.yaml:2:3"]);
    }
    place.spec.patterns = vec!["gs://bucket/x".to_owned()];
    assert_says(&place.list_error(), &["gs://", "not built yet"]);
}

#[test]
fn links_are_followed_and_loops_end() {
    let place = photos();
    std::os::unix::fs::symlink(place.path("photos"), place.path("photos/cat/loop")).unwrap();
    std::os::unix::fs::symlink(place.path("photos/dog"), place.path("photos/cat/dogs")).unwrap();
    std::os::unix::fs::symlink(place.path("photos/cat"), place.path("photos/dog/cats")).unwrap();
    std::os::unix::fs::symlink(place.path("photos/cat/b.jpg"), place.path("photos/dog/b.jpg")).unwrap();
    let listing = place.list();
    let found = keys(&listing);
    assert!(found.contains(&"dog/b.jpg") && found.contains(&"cat/dogs/c d%+#.jpg"), "{found:?}");
    std::os::unix::fs::symlink(place.path("nowhere"), place.path("photos/dog/gone.jpg")).unwrap();
    assert_says(&place.list_error(), &["gone.jpg"]);
}

#[test]
fn a_name_that_is_not_utf8_is_named() {
    use std::os::unix::ffi::OsStrExt;
    let place = photos();
    std::fs::write(place.path("photos").join(std::ffi::OsStr::from_bytes(b"caf\xe9.jpg")), b"x").unwrap();
    assert_says(&place.list_error(), &["not UTF-8", "caf\\xE9.jpg"]);
}

#[test]
fn what_changed_since_is_a_conflict() {
    for (change, stat) in [("swap", false), ("swap", true), ("grow", false), ("remove", false), ("touch", true)] {
        let place = if stat { photos().stat() } else { photos() };
        let source = place.source();
        let listed = entries(list(&source).unwrap());
        assert!(source.read_entries(&listed, &[0, 1]).is_ok());
        match change {
            "swap" => place.write("photos/cat/b.jpg", b"B"),
            "grow" => place.write("photos/cat/b.jpg", b"bb"),
            "touch" => {
                let file = std::fs::File::options().write(true).open(place.path("photos/cat/b.jpg")).unwrap();
                file.set_modified(std::time::UNIX_EPOCH).unwrap();
                &place
            }
            _ => {
                std::fs::remove_file(place.path("photos/cat/b.jpg")).unwrap();
                &place
            }
        };
        assert_conflict(source.read_entries(&listed, &[0, 1]).unwrap_err(), "cat/b.jpg");
        assert!(source.read_entries(&listed, &[0]).is_ok());
    }
}

#[test]
fn modes_never_match_and_stat_opens_nothing() {
    let (content, stat) = (photos().list(), photos().stat().list());
    assert_eq!(stat.hashed, 0);
    assert!(matches!(stat.entries[0].identity, Identity::Stat { bytes: 2, .. }));
    assert_ne!(content.entries[0].identity, stat.entries[0].identity);
}

#[test]
fn a_key_from_elsewhere_does_not_leave_the_root() {
    let place = photos();
    place.write("secret", b"s");
    let source = place.source();
    let mut listed = entries(place.list());
    for key in ["../secret", "/etc/passwd", "cat/../../secret", "", "a\0b"] {
        listed.entries[0].key = key.to_owned();
        let error = source.read_entries(&listed, &[0]).unwrap_err();
        assert_says(&error, &["below the source's root"]);
    }
}

#[test]
fn digests_are_remembered_once_files_have_settled() {
    let place = photos();
    let cache = place.path("cache");
    let hashed = || list(&place.cached()).unwrap().hashed;
    assert_eq!(hashed(), 3);
    assert_eq!(hashed(), 3, "files of the last two seconds are distrusted");
    std::thread::sleep(std::time::Duration::from_millis(2100));
    assert_eq!(hashed(), 3);
    let first = list(&place.cached()).unwrap();
    assert_eq!(first.hashed, 0);
    assert_eq!(identities(&first), identities(&place.list()));
    place.write("photos/cat/a.png", b"AA");
    assert_eq!(hashed(), 1);
    for file in std::fs::read_dir(&cache).unwrap() {
        std::fs::write(file.unwrap().path(), b"forebay validators 1\nrubbish").unwrap();
    }
    assert_eq!(hashed(), 3, "a damaged cache is no cache");
}

#[test]
fn the_kind_names_the_column() {
    let check = |pattern: &str, column: &str| {
        let place = Place::new(SourceKind::Files, pattern);
        place
            .write("i/a.JPG", b"x")
            .write("s/a.wav", b"x")
            .write("t/a.txt", b"x")
            .write("m/a.txt", b"x")
            .write("m/b.jpg", b"x");
        let schema = place.source().schema().unwrap();
        assert_eq!(schema.field(2).name(), column, "{pattern}");
    };
    check("i", "image");
    check("s/*", "audio");
    check("t", "text");
    check("m", "data");
    check("m/*.jpg", "image");
    check("**/*.wav", "audio");
}

#[test]
fn text_is_utf8_or_a_failed_row() {
    let place = Place::new(SourceKind::Files, "*.txt");
    place.write("a.txt", "\u{feff}grüß").write("b.txt", b"caf\xe9").write("c.txt", b"").write("d.txt", b"\xff\xfea\0");
    let batch = place.rows();
    assert_eq!(text(&batch, "text"), [Some("grüß".to_owned()), None, Some(String::new()), None]);
    assert_eq!(failed(&batch), [1, 3]);
    assert!(text(&batch, "_error")[3].as_ref().unwrap().contains("UTF-16"));
}

#[test]
fn columns_are_made_from_keys() {
    let mut place = photos();
    place.spec.fields.insert("label".to_owned(), Field::Template("{parent}".to_owned()));
    place.spec.fields.insert("first".to_owned(), Field::Regex("/(.)".to_owned()));
    place.spec.fields.insert("digit".to_owned(), Field::Regex("[0-9]".to_owned()));
    let batch = place.rows();
    assert_eq!(text(&batch, "label"), some(&["cat", "cat", "dog"]));
    assert_eq!(text(&batch, "first"), some(&["a", "b", "c"]));
    assert_eq!(text(&batch, "digit"), [None, None, None]);
    let only = Place { directory: place.directory, spec: place.spec.clone() }.columns(&["label"]);
    assert_eq!(only.rows().num_columns(), 3);
    let error = only.columns(&["lable"]).list_error();
    assert_says(&error, &["did you mean \"label\""]);
    let mut clash = photos();
    clash.spec.fields.insert("image".to_owned(), Field::Template("x".to_owned()));
    assert_says(&clash.list_error(), &["two columns \"image\""]);
}

fn joined() -> Place {
    let mut place = photos();
    place.write("labels.csv", "name,label\na,1\nb,2\nc d%+#,3\n");
    let join = |column: &str| Field::Join {
        table: "labels.csv".to_owned(),
        on: "name".to_owned(),
        matching: "{stem}".to_owned(),
        column: column.to_owned(),
    };
    place.spec.fields.insert("label".to_owned(), join("label"));
    place
}

#[test]
fn joined_values_are_part_of_identity() {
    let place = joined();
    let before = place.list();
    assert_eq!(text(&place.rows(), "label"), some(&["1", "2", "3"]));
    place.write("labels.csv", "name,label\nz,9\nb,5\na,1\nc d%+#,3\n");
    let after = place.list();
    let same: Vec<bool> = identities(&before).iter().zip(identities(&after)).map(|(a, b)| *a == b).collect();
    assert_eq!(same, [true, false, true]);
    // Either half that differs from what was listed is a conflict.
    let source = place.source();
    let mut listed = entries(after);
    listed.carried = before.carried.clone();
    assert_conflict(source.read_entries(&listed, &[1]).unwrap_err(), "cat/b.jpg");
    place.write("photos/cat/a.png", b"zz");
    assert_conflict(source.read_entries(&listed, &[0]).unwrap_err(), "cat/a.png");
}

#[test]
fn files_without_a_row_follow_missing() {
    let mut place = joined();
    place.write("labels.csv", "name,label\nb,2\na,\n");
    assert_says(&place.list_error(), &["1 file has no row", "dog/c d%+#.jpg", "missing: skip"]);
    place.spec.missing = Missing::Null;
    assert_eq!(text(&place.rows(), "label"), [None, Some("2".to_owned()), None]);
    place.spec.missing = Missing::Skip;
    assert_eq!(text(&place.rows(), "_key"), some(&["cat/a.png", "cat/b.jpg"]));
    place.write("labels.csv", "name,label\nb,2\na,1\nb,3\n");
    assert_says(&place.list_error(), &["\"b\" in row 0 and in row 2"]);
}

#[test]
fn a_hundred_files_in_any_creation_order_list_alike() {
    let make = |reversed: bool| {
        let place = Place::new(SourceKind::Files, ".");
        let mut order: Vec<usize> = (0..100).collect();
        if reversed {
            order.reverse();
        }
        order.iter().for_each(|i| {
            place.write(&format!("{}/{i}.bin", i % 7), i.to_string());
        });
        place.list()
    };
    let (a, b) = (make(false), make(true));
    assert_eq!(a.entries, b.entries);
}

#[test]
#[ignore = "a measurement: cargo test --release -- --ignored --nocapture a_hundred_thousand"]
fn a_hundred_thousand_files_list_in_seconds() {
    let place = Place::new(SourceKind::Files, "d");
    for i in 0..100_000 {
        if i % 100 == 0 {
            std::fs::create_dir_all(place.path(&format!("d/{}", i / 100))).unwrap();
        }
        std::fs::write(place.path(&format!("d/{}/{i}.jpg", i / 100)), i.to_string()).unwrap();
    }
    std::thread::sleep(std::time::Duration::from_millis(2100));
    for (round, most) in [(0, 10.0), (1, 1.5), (2, 1.5)] {
        let began = std::time::Instant::now();
        let listing = list(&place.cached()).unwrap();
        let seconds = began.elapsed().as_secs_f64();
        println!("listing {round}: {seconds:.2} s, {} hashed", listing.hashed);
        assert_eq!(listing.entries.len(), 100_000);
        assert!(seconds < most, "{seconds}");
    }
}

#[test]
fn a_large_read_keeps_to_bounded_batches() {
    let place = Place::new(SourceKind::Files, "*.bin");
    (0..6).for_each(|i: u8| {
        place.write(&format!("{i}.bin"), vec![i; 3 << 20]);
    });
    let source = place.source();
    let listed = entries(place.list());
    let rows: Vec<usize> = source.read_stream(&listed, 1..6).unwrap().map(|b| b.unwrap().num_rows()).collect();
    assert_eq!(rows, [2, 2, 1]);
}

#[test]
fn links_that_lead_round_are_no_matter() {
    let place = Place::new(SourceKind::Files, "in/**/*.jpg");
    place.write("in/a.jpg", b"a").write("b.jpg", b"b");
    let link = |to: &str, name: &str| std::os::unix::fs::symlink(to, place.path(name)).unwrap();
    link("self", "in/self");
    link("two", "in/one");
    link("one", "in/two");
    link("..", "in/above");
    link("/", "in/top");
    assert_eq!(keys(&place.list()), ["a.jpg"]);
    link("round.jpg", "in/round.jpg");
    assert_says(&place.list_error(), &["round.jpg"]);
}

#[test]
fn what_is_passed_over_is_named() {
    let notes = |kind: SourceKind, pattern: &str, files: &[&str]| {
        let place = Place::new(kind, pattern);
        files.iter().for_each(|name| {
            place.write(name, b"{\"x\": 1}\n");
        });
        let pipe = place.path("in/pipe.jpg");
        std::fs::create_dir_all(pipe.parent().unwrap()).unwrap();
        assert!(std::process::Command::new("mkfifo").arg(pipe).status().unwrap().success());
        let source = place.source();
        assert_eq!(list(&source).unwrap().entries.len(), 1);
        source.notes()
    };
    let pipe = ["in/pipe.jpg is passed over: it is a pipe, socket or device, not a file"];
    assert_eq!(notes(SourceKind::Files, "**/*.jpg", &["in/a.jpg"]), pipe);
    let mixed = notes(SourceKind::Jsonl, "in", &["in/a.jsonl", "in/b.jsonl.gz", "in/c.jsonl.gz"]);
    let [only] = mixed.as_slice() else { panic!("{mixed:?}") };
    assert!(only.starts_with("b.jsonl.gz, and what else is compressed like it, is passed over: compressed with gzip"));
}

#[test]
fn a_join_or_field_that_cannot_be_is_an_error_at_its_place() {
    let mut place = Place::new(SourceKind::Files, "*.jpg");
    place.write("a.jpg", b"a");
    let at = |line: usize| Span { file: "p.yaml".into(), line, column: 9, field: "source.fields".into() };
    let join = |table: &str| pipeline::Field::Join {
        table: table.to_owned(),
        on: "file".to_owned(),
        matching: "{key}".to_owned(),
        column: "label".to_owned(),
    };
    place.spec.fields.insert("label".to_owned(), join("none.csv"));
    place.spec.places.insert("label".to_owned(), at(4));
    let error = place.list_error();
    assert_eq!(error.kind(), Kind::NotFound);
    assert_says(&error, &["p.yaml:4:9: source.fields: the table to join can't be read", "none.csv"]);
    std::fs::File::create(place.path("none.csv")).unwrap().set_len(1 << 40).unwrap();
    assert_says(&place.list_error(), &["p.yaml:4:9: ", "none.csv holds 1.1 TB", "at most 1.1 GB"]);
    place.spec.fields = BTreeMap::from([("image".to_owned(), pipeline::Field::Template("{stem}".to_owned()))]);
    place.spec.places = BTreeMap::from([("image".to_owned(), at(5))]);
    assert_says(&place.list_error(), &["p.yaml:5:9: source.fields: the files themselves are the column \"image\""]);
    let mut table = Place::new(SourceKind::Table, "t.csv");
    table.write("t.csv", b"file,image\na.jpg,1\n");
    table.spec.load.insert("image".to_owned(), "{file}".to_owned());
    table.spec.places = BTreeMap::from([("image".to_owned(), at(6))]);
    assert_says(&table.list_error(), &["p.yaml:6:9: source.fields: t.csv has a column \"image\" already"]);
}
