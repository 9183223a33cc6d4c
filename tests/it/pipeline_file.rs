//! The pipeline file: what is read, what is refused and with which words, and that `formats/pipeline.md` and
//! `formats/pipeline.schema.json` say the same.

mod schema;

use forebay::error::{Kind, Result};
use forebay::format::encoding::{Codec, Container};
use forebay::spec::node::Value;
use forebay::spec::pipeline::{EntryOrder, Field, IdentityMode, Missing, OnError, Partition, Pipeline, SourceKind};
use proptest::prelude::*;
use std::path::Path;

/// DESIGN's example, as far as it is built.
const PHOTOS: &str = r#"
name: photos
source:
  files: ./photos/**/*.jpg            # braces {000..099}; root: sets what keys are relative to
  fields: { label: "{parent}" }
steps:
  - image.decode
  - image.resize: { shorter_side: 256 }
  - label.index: { column: label, classes: auto }
splits:
  train: { where: "hash(key) % 20 != 0", steps: [ image.random_crop: { size: [224, 224] } ] }
  val:   { where: "hash(key) % 20 == 0", steps: [ image.center_crop: { size: [224, 224] } ], shuffle: false }
materialize: { stages: [resize], format: parquet, compression: "zstd:3" }
store: ./.forebay
"#;

fn variables(name: &str) -> Option<String> {
    match name {
        "DATA" => Some("/data".to_owned()),
        "BUCKET" => Some("s3://bkt".to_owned()),
        _ => None,
    }
}

fn read(text: &str) -> Result<Pipeline> {
    Pipeline::read(text, Path::new("dir/photos.yaml"), &variables)
}

/// The message, without the file that each must begin with.
fn refused(text: &str) -> String {
    match read(text) {
        Ok(_) => panic!("accepted: {text}"),
        Err(error) => {
            assert_eq!(error.kind(), Kind::Invalid);
            error.message().strip_prefix("dir/photos.yaml:").unwrap_or_else(|| panic!("{}", error.message())).to_owned()
        }
    }
}

#[test]
fn the_main_example_is_read() {
    let pipeline = read(PHOTOS).unwrap();
    assert_eq!(pipeline.name, "photos");
    assert_eq!(pipeline.source.kind, SourceKind::Files);
    assert_eq!(pipeline.source.patterns, ["./photos/**/*.jpg"]);
    assert_eq!(pipeline.source.fields["label"], Field::Template("{parent}".into()));
    assert_eq!((pipeline.source.missing, pipeline.source.identity), (Missing::Fail, IdentityMode::Content));
    let names: Vec<_> = pipeline.steps.iter().map(|s| (s.name.as_str(), s.stage())).collect();
    assert_eq!(names, [("image.decode", "decode"), ("image.resize", "resize"), ("label.index", "index")]);
    assert_eq!(pipeline.steps[0].params.value, Value::Null);
    assert_eq!(pipeline.steps[1].params.get("shorter_side").unwrap().value, Value::Int(256));
    let span = &pipeline.steps[1].params.get("shorter_side").unwrap().span;
    assert_eq!((span.line, span.column, &*span.field), (8, 35, "steps.image.resize.shorter_side"));
    assert_eq!((pipeline.steps[0].span.line, pipeline.steps[0].span.column), (7, 5));

    let [train, val] = pipeline.splits.as_slice() else { panic!() };
    assert_eq!((train.name.as_str(), train.shuffle, val.shuffle), ("train", None, Some(false)));
    assert_eq!(train.filter.as_ref().unwrap().0, "hash(key) % 20 != 0");
    assert_eq!(
        pipeline.stage_names(Some(train)).unwrap(),
        ["concatenated", "decode", "resize", "index", "where", "random_crop"]
    );
    let [(stage, span)] = pipeline.materialize.stages.as_slice() else { panic!() };
    assert_eq!(
        (stage.as_str(), span.line),
        ("resize", PHOTOS.lines().position(|l| l.contains("stages:")).unwrap() + 1)
    );
    assert_eq!(
        (pipeline.materialize.container, pipeline.materialize.codec),
        (Some(Container::Parquet), Some(Codec::Zstd(3)))
    );
    assert_eq!(pipeline.store.as_deref(), Some("./.forebay"));
    assert_eq!(pipeline.partition, Partition::default());
    assert_eq!(pipeline.on_error, OnError::Fail);
    assert_eq!(pipeline.text, PHOTOS);
}

#[test]
fn a_source_alone_is_a_pipeline_named_after_its_file() {
    let pipeline = read("source: {files: a/*.jpg}").unwrap();
    assert_eq!(pipeline.name, "photos");
    assert!(pipeline.steps.is_empty() && pipeline.splits.is_empty() && pipeline.store.is_none());
    assert_eq!(pipeline.stage_names(None).unwrap(), ["concatenated"]);
}

#[test]
fn every_kind_of_source_is_read() {
    let source = read(
        "source: {table: [a.csv, file:///b.parquet], load: {image: 'file:///img/{file}'}, key: id, columns: [id, file], missing: skip}",
    )
    .unwrap()
    .source;
    assert_eq!(source.kind, SourceKind::Table);
    assert_eq!(source.patterns, ["a.csv", "/b.parquet"]);
    assert_eq!(source.load["image"], "/img/{file}");
    assert_eq!(source.key.as_deref(), Some("id"));
    assert_eq!(source.columns.unwrap(), ["id", "file"]);
    assert_eq!(source.missing, Missing::Skip);

    for kind in ["tar", "parquet", "arrow", "jsonl", "csv"] {
        let text = format!(
            "source:\n  {kind}: '${{DATA}}/$${{x}}/*'\n  root: ${{DATA}}\n  where: a > 1\n  missing: null\n  identity: stat\n"
        );
        let source = read(&text).unwrap().source;
        assert_eq!(source.kind.name(), kind);
        assert_eq!(source.patterns, ["/data/${x}/*"]);
        assert_eq!(source.root.as_deref(), Some("/data"));
        assert_eq!((source.missing, source.identity), (Missing::Null, IdentityMode::Stat));
        assert_eq!(source.filter.unwrap().0, "a > 1");
    }

    let fields = read(
        r#"
source:
  files: a/*.jpg
  fields:
    digits: { regex: "([0-9]+)" }
    label: { join: labels.csv, on: file, column: class }
  join:
    - { table: "${DATA}/boxes.parquet", on: image, matching: "{stem}", columns: [x, y] }
"#,
    )
    .unwrap()
    .source
    .fields;
    let join = |table: &str, on: &str, matching: &str, column: &str| Field::Join {
        table: table.into(),
        on: on.into(),
        matching: matching.into(),
        column: column.into(),
    };
    assert_eq!(fields["digits"], Field::Regex("([0-9]+)".into()));
    assert_eq!(fields["label"], join("labels.csv", "file", "{key}", "class"));
    assert_eq!(fields["x"], join("/data/boxes.parquet", "image", "{stem}", "x"));
    assert_eq!(fields["y"], join("/data/boxes.parquet", "image", "{stem}", "y"));
    assert_eq!(fields.len(), 4);
}

#[test]
fn settings_take_their_short_forms() {
    let with = |settings: &str| read(&format!("source: {{files: a}}\n{settings}")).unwrap();
    assert_eq!(with("order: key").order.by, EntryOrder::Key);
    let order = with("order: {lanes: 8, block: 100, by: hash}").order;
    assert_eq!((order.lanes, order.block, order.by), (Some(8), Some(100), EntryOrder::Hash));
    assert_eq!(with("partition: {entries: 10, bytes: 64mb}").partition, Partition { entries: 10, bytes: 64_000_000 });
    assert_eq!(with("partition: {bytes: 64 MiB}").partition, Partition { entries: 8192, bytes: 64 << 20 });
    assert_eq!(with("partition: {bytes: 1000}").partition.bytes, 1000);
    assert_eq!(with("on_error: keep").on_error, OnError::Keep { max_errors: 0.001 });
    for (written, share) in [("0.5%", 0.005), ("100%", 1.0), ("0", 0.0), ("0.25", 0.25)] {
        assert_eq!(
            with(&format!("on_error: keep\nmax_errors: {written}")).on_error,
            OnError::Keep { max_errors: share }
        );
    }
    assert_eq!(with("materialize: {stages: all}").materialize.stages[0].0, "all");
    assert_eq!(with("materialize: {compression: gzip:9}").materialize.codec, Some(Codec::Gzip(9)));
    let step = &with("steps: [image.resize: {as: small, size: [1, 2]}]").steps[0];
    assert_eq!((step.stage(), step.params.get("as")), ("small", None));
    let filters = with("steps: [image.decode]\nsplits: {a: {where: x}}");
    assert_eq!(filters.stage_names(filters.splits.first()).unwrap(), ["concatenated", "decode", "where"]);
    let both = read("source: {files: a, where: y}\nsplits: {a: {where: x}}").unwrap();
    assert_eq!(both.stage_names(both.splits.first()).unwrap(), ["concatenated", "where", "split_where"]);
}

/// Mistakes, each with what is said after the file's name.
const MISTAKES: &[(&str, &str)] = &[
    // The file as a whole.
    ("", "1:1: expected a pipeline, such as {source: {files: ./photos/**/*.jpg}}, found nothing"),
    ("- a", "1:1: expected a pipeline, such as {source: {files: ./photos/**/*.jpg}}, found a list of 1 item"),
    ("steps: []", "1:1: the field \"source\" is missing"),
    ("sorce: {files: a}", "1:1: unknown field \"sorce\"; did you mean \"source\"?"),
    (
        "source: {files: a}\nshards: 3",
        "2:1: unknown field \"shards\"; expected name, source, steps, splits, materialize, store, storage, order, partition, on_error or max_errors",
    ),
    (
        "source: {files: a}\nsource: {tar: b}",
        "2:1: \"source\" stands here a second time; the first is at line 1, column 1",
    ),
    (
        "name: my photos\nsource: {files: a}",
        "1:7: name: \"my photos\" can't name a pipeline: it contains ' '; expected at most 100 letters (a-z, A-Z), digits, '.', '_' or '-', the first not a dot",
    ),
    ("name: 3\nsource: {files: a}", "1:7: name: expected text, found 3; quote it: \"3\""),
    // The source.
    ("source: ./a/*.jpg", "1:9: source: expected a source, such as {files: ./photos/**/*.jpg}, found \"./a/*.jpg\""),
    ("source: {file: a}", "1:10: source: unknown field \"file\"; did you mean \"files\"?"),
    (
        "source: {root: a}",
        "1:9: source: expected one of the fields files, table, tar, parquet, arrow, jsonl, csv or hdf5",
    ),
    (
        "source: {files: a, tar: b}",
        "1:20: source: expected one kind of source, found tar after files; join: brings columns of a second table",
    ),
    ("source: {files: []}", "1:17: source.files: expected paths or patterns, found an empty list"),
    ("source: {files: [a, 3]}", "1:21: source.files: expected text, found 3; quote it: \"3\""),
    ("source: {files: {a: b}}", "1:17: source.files: expected text, found a map"),
    ("source: {files: ''}", "1:17: source.files: expected text that isn't empty, found \"\""),
    (
        "source: {files: ftp://bkt/**}",
        "1:17: source.files: nothing is known of ftp://; expected a local path, file:///path, s3://bucket/prefix, gs://bucket/prefix or az://container/prefix, found \"ftp://bkt/**\"",
    ),
    (
        "source: {files: '${BUCKET}/x', identity: stat}",
        "1:42: source.identity: stat is for files, and there are objects of a bucket; expected etag (the default) or content",
    ),
    ("source: {files: file://a}", "1:17: source.files: expected an absolute path after file://, found \"file://a\""),
    (
        "source: {files: '${PHOTOS}/x'}",
        "1:17: source.files: the environment variable PHOTOS isn't set; set it, or write $${ for the characters themselves",
    ),
    (
        "source: {files: '${DATA/x'}",
        "1:17: source.files: expected the name of a variable and a brace after ${; write $${ for the characters themselves",
    ),
    (
        "source: {hdf5: a.h5, columns: [x]}",
        "1:10: source: hdf5 sources are not built yet; expected files, table, tar, parquet, arrow, jsonl or csv",
    ),
    ("source: {hdf5: a.h5, columns: x}", "1:31: source.columns: expected a list of columns, found \"x\""),
    (
        "source: {files: a, columns: [x]}",
        "1:20: source: \"columns\" is no field of a files source; it belongs to table, tar, parquet, arrow, jsonl, csv or hdf5",
    ),
    ("source: {csv: a, load: {x: 'y/{f}'}}", "1:18: source: \"load\" is no field of a csv source; it belongs to table"),
    (
        "source: {tar: a, key: x}",
        "1:18: source: \"key\" is no field of a tar source; it belongs to table, parquet, arrow, jsonl, csv or hdf5",
    ),
    ("source: {csv: a, columns: [x, x]}", "1:31: source.columns: \"x\" stands here a second time"),
    ("source: {csv: a, columns: []}", "1:27: source.columns: expected names of columns, found an empty list"),
    (
        "source: {csv: a, missing: skipp}",
        "1:27: source.missing: expected null, skip or fail, found \"skipp\"; did you mean \"skip\"?",
    ),
    (
        "source: {csv: a, identity: etag}",
        "1:28: source.identity: etag is what a service tells of objects, and there are local files; expected content or stat",
    ),
    ("source: {csv: a, where: true}", "1:25: source.where: expected text, found true; quote it: \"true\""),
    // Extra columns.
    (
        "source: {files: a, fields: {label: {parent}}}",
        "1:36: source.fields.label: expected text, found a map; quote it: \"{parent}\"",
    ),
    (
        "source: {files: a, fields: {label: '{parnet}'}}",
        "1:36: source.fields.label: unknown place {parnet}; did you mean \"parent\"?",
    ),
    (
        "source: {files: a, fields: {label: '{class}'}}",
        "1:36: source.fields.label: unknown place {class}; expected key, name, stem, ext, parent or parent[1]",
    ),
    (
        "source: {files: a, fields: {label: '{stem'}}",
        "1:36: source.fields.label: expected braces in pairs in \"{stem\"; write {{ or }} for a brace itself",
    ),
    (
        "source: {files: a, fields: {_x: '{stem}'}}",
        "1:29: source.fields: \"_x\" can't name a column; names that begin with _ are Forebay's own",
    ),
    (
        "source: {files: a, fields: '{stem}'}",
        "1:28: source.fields: expected a map of columns, such as {label: \"{parent}\"}, found \"{stem}\"",
    ),
    (
        "source: {files: a, fields: {x: {regex: '(a'}}}",
        "1:40: source.fields.x.regex: expected a regular expression, found \"(a\": unclosed group",
    ),
    (
        "source: {files: a, fields: {x: {regx: a}}}",
        "1:33: source.fields.x: unknown field \"regx\"; did you mean \"regex\"?",
    ),
    (
        "source: {files: a, fields: {x: {regex: a, on: b}}}",
        "1:43: source.fields.x: unknown field \"on\"; expected regex",
    ),
    ("source: {files: a, fields: {x: {join: a.csv, on: b}}}", "1:32: source.fields.x: the field \"column\" is missing"),
    ("source: {files: a, fields: {x: {join: a.csv, column: b}}}", "1:32: source.fields.x: the field \"on\" is missing"),
    ("source: {files: a, join: {table: a.csv, on: b}}", "1:26: source.join: the field \"columns\" is missing"),
    (
        "source: {files: a, join: {table: a.csv, on: b, columns: [c], matching: '{row}'}}",
        "1:72: source.join.matching: unknown place {row}; expected key, name, stem, ext, parent or parent[1]",
    ),
    (
        "source: {files: a, fields: {c: '{stem}'}, join: [{table: a.csv, on: b, columns: [c]}]}",
        "1:82: source.join.columns: the column \"c\" is already made by another field or join",
    ),
    (
        "source: {table: a.csv, load: {image: img.jpg}}",
        "1:38: source.load.image: expected a path with the name of a column in braces, such as \"images/{file}\", found \"img.jpg\"",
    ),
    (
        "source: {table: a.csv, load: {image: 'ftp://bkt/{file}'}}",
        "1:38: source.load.image: nothing is known of ftp://; expected a local path, file:///path, s3://bucket/prefix, gs://bucket/prefix or az://container/prefix, found \"ftp://bkt/{file}\"",
    ),
    (
        "source: {table: a.csv, load: {image: 's3://bkt/{file}', mask: '{mask}'}, identity: etag}",
        "1:84: source.identity: etag is what a service tells of objects, and there are local files; expected content or stat",
    ),
    // Steps.
    (
        "source: {files: a}\nsteps: image.decode",
        "2:8: steps: expected a list of steps, each behind a dash, found \"image.decode\"",
    ),
    (
        "source: {files: a}\nsteps:\n  - 3",
        "3:5: steps: expected a step: a name such as image.decode, or a name with parameters such as {image.resize: {shorter_side: 256}}, found 3",
    ),
    (
        "source: {files: a}\nsteps:\n  - image.resize:\n    shorter_side: 256",
        "4:5: steps: \"shorter_side\" stands beside the step image.resize; indent it further to make it one of the step's parameters",
    ),
    (
        "source: {files: a}\nsteps:\n  - image resize",
        "3:5: steps.image resize: expected a step: a name such as image.decode, or a name with parameters such as {image.resize: {shorter_side: 256}}, found \"image resize\"",
    ),
    (
        "source: {files: a}\nsteps:\n  - image.decode\n  - image.decode",
        "4:5: steps.image.decode: a second stage named \"decode\"; name one of them with as:, such as {image.decode: {as: decode_2}}",
    ),
    (
        "source: {files: a}\nsteps: [image.pad: {as: x}]\nsplits: {t: {steps: [image.resize: {as: x}]}}",
        "3:22: splits.t.steps.image.resize: a second stage named \"x\"; name one of them with as:, such as {image.resize: {as: x_2}}",
    ),
    (
        "source: {files: a}\nsteps: [image.pad: {as: auto}]",
        "2:25: steps.image.pad.as: \"auto\" can't name a stage: it has a meaning of its own; expected another name",
    ),
    (
        "source: {files: a}\nsteps: [image.pad: {as: a/b}]",
        "2:25: steps.image.pad.as: \"a/b\" can't name a stage: it contains '/'; expected at most 100 letters (a-z, A-Z), digits, '.', '_' or '-', the first not a dot",
    ),
    (
        "source: {files: a}\nsteps:\n  - python: {fn: my_steps:clean, args: {strength: 2}}",
        "3:5: steps.python: python: steps are not built yet; expected one of the built-in steps",
    ),
    (
        "source: {files: a}\nsteps:\n  - python: {fn: clean}",
        "3:18: steps.python.fn: expected a module and a function, such as my_steps:clean, found \"clean\"",
    ),
    (
        "source: {files: a}\nsteps:\n  - python: {func: a:b}",
        "3:14: steps.python: unknown field \"func\"; expected fn, args, version, requires, ignore, columns or to",
    ),
    (
        "source: {files: a}\nsteps:\n  - python: {fn: a:b, args: [1]}",
        "3:29: steps.python.args: expected a map of arguments, found a list of 1 item",
    ),
    // Splits.
    (
        "source: {files: a}\nsplits: [train]",
        "2:9: splits: expected a map of splits, such as {train: {where: \"hash(key) % 20 != 0\"}}, found a list of 1 item",
    ),
    (
        "source: {files: a}\nsplits: {}",
        "2:9: splits: expected a map of splits, such as {train: {where: \"hash(key) % 20 != 0\"}}, found an empty map",
    ),
    (
        "source: {files: a}\nsplits: {train: {steps: []}}",
        "2:25: splits.train.steps: expected at least one step; leave steps: out for a split without its own",
    ),
    (
        "source: {files: a}\nsplits: {train: {when: x}}",
        "2:18: splits.train: unknown field \"when\"; expected where, steps or shuffle",
    ),
    (
        "source: {files: a}\nsplits: {train: {shuffle: 1}}",
        "2:27: splits.train.shuffle: expected true or false, found 1",
    ),
    (
        "source: {files: a}\nsplits: {a b: {}}",
        "2:10: splits: \"a b\" can't name a split: it contains ' '; expected at most 100 letters (a-z, A-Z), digits, '.', '_' or '-', the first not a dot",
    ),
    // Settings.
    (
        "source: {files: a}\nsteps: [image.resize]\nmaterialize: {stages: [resize, rezise]}",
        "3:32: materialize.stages: no stage is named \"rezise\"; did you mean \"resize\"?",
    ),
    (
        "source: {files: a}\nsteps: [image.resize]\nmaterialize: {stages: blur}",
        "3:23: materialize.stages: no stage is named \"blur\"; expected concatenated or resize",
    ),
    (
        "source: {files: a}\nsteps: [image.resize]\nmaterialize: {stages: [resize, all]}",
        "3:32: materialize.stages: expected \"all\" alone, found it among names of stages",
    ),
    (
        "source: {files: a}\nmaterialize: {format: parqet}",
        "2:23: materialize.format: expected arrow or parquet, found \"parqet\"; did you mean \"parquet\"?",
    ),
    (
        "source: {files: a}\nmaterialize: {compression: brotli}",
        "2:28: materialize.compression: unknown compression \"brotli\"; expected none, lz4, zstd:LEVEL, snappy or gzip:LEVEL",
    ),
    (
        "source: {files: a}\nmaterialize: {compression: ztsd:5}",
        "2:28: materialize.compression: unknown compression \"ztsd:5\"; did you mean \"zstd:5\"?",
    ),
    (
        "source: {files: a}\nmaterialize: {compression: zstd:x}",
        "2:28: materialize.compression: unknown compression \"zstd:x\"; expected none, lz4, zstd:LEVEL, snappy or gzip:LEVEL",
    ),
    (
        "source: {files: a}\non_error: kep",
        "2:11: on_error: expected fail or keep, found \"kep\"; did you mean \"keep\"?",
    ),
    (
        "source: {files: a, identity: contents}",
        "1:30: source.identity: expected content, etag or stat, found \"contents\"; did you mean \"content\"?",
    ),
    (
        "source: {files: a}\nmaterialize: {format: arrow, compression: snappy}",
        "2:43: materialize.compression: arrow can't be compressed with snappy; arrow takes none, lz4, zstd:1 to zstd:22; parquet also snappy, gzip:0 to gzip:9",
    ),
    (
        "source: {files: a}\nstore: ftp://bkt/x",
        "2:8: store: nothing is known of ftp://; expected a local path, file:///path, s3://bucket/prefix, gs://bucket/prefix or az://container/prefix, found \"ftp://bkt/x\"",
    ),
    ("source: {files: a}\nstore: [a]", "2:8: store: expected text, found a list of 1 item"),
    ("source: {files: a}\norder: keys", "2:8: order: expected hash or key, found \"keys\"; did you mean \"key\"?"),
    (
        "source: {files: a}\norder: 3",
        "2:8: order: expected key, hash or a map, such as {lanes: 16, block: 64}, found 3",
    ),
    ("source: {files: a}\norder: {lanes: 0}", "2:16: order.lanes: expected an integer from 1 to 65536, found 0"),
    ("source: {files: a}\norder: {lane: 4}", "2:9: order: unknown field \"lane\"; did you mean \"lanes\"?"),
    (
        "source: {tar: a}\norder: key",
        "2:8: order: only the entries of files are laid out by key or hash; tar keeps its own order, and key: in the source keeps cuts local",
    ),
    (
        "source: {files: a}\npartition: {bytes: 64g}",
        "2:20: partition.bytes: expected a size such as 64mb, 64MiB or 67108864, found \"64g\"; \"g\" could be either of gb (thousands) and gib (1,024s)",
    ),
    (
        "source: {files: a}\npartition: {bytes: 0}",
        "2:20: partition.bytes: expected a size of at least 1 byte, such as 64MiB, found 0",
    ),
    (
        "source: {files: a}\npartition: {entries: many}",
        "2:22: partition.entries: expected an integer of at least 1, found \"many\"",
    ),
    ("source: {files: a}\npartition: {rows: 3}", "2:13: partition: unknown field \"rows\"; expected entries or bytes"),
    ("source: {files: a}\non_error: skip", "2:11: on_error: expected fail or keep, found \"skip\""),
    ("source: {files: a}\nmax_errors: 1%", "2:13: max_errors: expected on_error: keep beside it"),
    (
        "source: {files: a}\non_error: keep\nmax_errors: 1",
        "3:13: max_errors: expected a percentage such as 0.1%, or a fraction below 1, found 1",
    ),
    (
        "source: {files: a}\non_error: keep\nmax_errors: 101%",
        "3:13: max_errors: expected a percentage such as 0.1%, or a fraction below 1, found \"101%\"",
    ),
];

#[test]
fn mistakes_are_refused_at_their_place_with_what_to_try() {
    let mut wrong = Vec::new();
    for (text, expected) in MISTAKES {
        let found = refused(text);
        if found != *expected {
            wrong.push(format!("{text}\n  expected {expected}\n  found    {found}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn a_file_whose_name_is_no_pipeline_name_asks_for_one() {
    let error = Pipeline::read("source: {files: a}", Path::new("my photos.yaml"), &variables).unwrap_err();
    assert!(error.message().contains("\"my photos\" can't name a pipeline, so name: must be given: it contains ' '"));
}

#[test]
fn nothing_that_is_cut_short_panics() {
    for (end, _) in PHOTOS.char_indices() {
        let _ = read(&PHOTOS[..end]);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn no_text_panics(text in "(?s)[\\PC\\n\\t:{}\\[\\],&*!|>'\"#%@`?-]{0,200}") {
        let _ = read(&text);
    }

    #[test]
    fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let _ = read(&String::from_utf8_lossy(&bytes));
    }

    /// A valid file with parts cut out, doubled, replaced by YAML's own characters.
    #[test]
    fn no_mutation_panics(edits in proptest::collection::vec((any::<u16>(), 0..20u16, "[-:{}\\[\\],&*!|>'\"#%?~ \\n\\t0a$]{0,3}"), 1..8)) {
        let mut text: Vec<char> = PHOTOS.chars().collect();
        for (at, length, with) in edits {
            let at = usize::from(at) % (text.len() + 1);
            let end = (at + usize::from(length)).min(text.len());
            text.splice(at..end, with.chars());
        }
        let _ = read(&text.into_iter().collect::<String>());
    }
}
