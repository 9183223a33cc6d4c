//! Folders as users have them, and the drafts made of them, which must be read by the pipeline's own reader.

use super::*;
use crate::error::Kind as ErrorKind;
use crate::spec::pipeline::{Field, Pipeline, SourceKind};
use std::fs;

fn put(root: &Path, files: &[(&str, &[u8])]) {
    for (name, bytes) in files {
        let path = root.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
    }
}

/// A folder called `name` in a new directory.
fn folder(name: &str, files: &[(&str, &[u8])]) -> (tempfile::TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join(name);
    put(&root, files);
    (dir, root)
}

/// Drafts, and reads what was drafted.
fn drafted(path: &Path) -> (Draft, Pipeline) {
    let draft = init(path).unwrap();
    let pipeline =
        Pipeline::read(&draft.text, &draft.file, &|_| None).unwrap_or_else(|e| panic!("{}\n{}", e.chain(), draft.text));
    assert_eq!(pipeline.name, draft.name);
    assert_eq!(draft.next.len(), 3);
    (draft, pipeline)
}

fn step_names(pipeline: &Pipeline) -> Vec<&str> {
    pipeline.steps.iter().map(|s| s.name.as_str()).collect()
}

fn split_counts(draft: &Draft) -> Vec<(&str, u64)> {
    draft.survey.splits.iter().map(|s| (s.name.as_str(), s.count)).collect()
}

#[test]
fn a_folder_of_class_directories() {
    let (_dir, root) = folder(
        "photos",
        &[
            ("cat/1.jpg", b"abc"),
            ("cat/2.JPG", b"abcde"),
            ("dog/3.png", b"abcdefg"),
            ("dog/empty.jpg", b""),
            ("dog/notes.docx", b"x"),
            (".git/config", b"x"),
            ("README.md", b"x"),
        ],
    );
    let (draft, pipeline) = drafted(&root);
    assert_eq!((draft.name.as_str(), draft.file.to_str().unwrap()), ("photos", "photos.yaml"));
    let survey = &draft.survey;
    assert_eq!(survey.counts[&Kind::Image], 4);
    assert_eq!((survey.bytes, survey.median_bytes), (15, 5));
    assert_eq!(survey.classes, ["cat", "dog"]);
    let odd: Vec<_> = survey.odd.iter().map(|o| (o.path.to_str().unwrap(), o.reason.as_str())).collect();
    assert_eq!(
        odd,
        [
            (".git", "hidden, so left out"),
            ("dog/empty.jpg", "empty"),
            ("dog/notes.docx", "an extension that no source reads")
        ]
    );
    let shown = root.to_str().unwrap();
    assert_eq!(pipeline.source.kind, SourceKind::Files);
    assert_eq!(pipeline.source.patterns, ["JPG", "jpg", "png"].map(|e| format!("{shown}/**/*.{e}")));
    assert_eq!(pipeline.source.fields["label"], Field::Template("{parent}".into()));
    assert_eq!(step_names(&pipeline), ["image.decode", "image.resize", "label.index"]);
    let splits: Vec<_> = pipeline.splits.iter().map(|s| (s.name.as_str(), s.shuffle)).collect();
    assert_eq!(splits, [("train", Some(true)), ("val", Some(false))]);
    assert_eq!(
        draft.next,
        [
            "forebay check photos.yaml",
            "forebay materialize photos.yaml",
            "forebay read photos.yaml --split train --bench"
        ]
    );
}

#[test]
fn the_draft_as_people_see_it() {
    let (_dir, root) = folder("photos", &[("cat/1.jpg", b"abc"), ("dog/3.jpg", b"abc")]);
    let draft = init(&root).unwrap();
    insta::assert_snapshot!(draft.text.replace(root.to_str().unwrap(), "./photos"), @r##"
    # A starter pipeline for 2 image files.
    name: photos

    source:
      files: ./photos/**/*.jpg
      fields: { label: "{parent}" }    # the directory's name: cat and 1 more

    # Steps run in order; each one's output is a stage that can be stored.
    steps:
      - image.decode    # to HWC uint8, turned as EXIF says
      - image.resize: { shorter_side: 256 }
      - label.index: { column: label, classes: auto }    # found once and written to classes.txt

    # Splits share every stage above. The hash of a key never changes, so neither does its split.
    splits:
      train: { where: "hash(key) % 20 != 0", steps: [ image.random_crop: { size: [224, 224] }, image.random_flip ], shuffle: true }
      val:   { where: "hash(key) % 20 == 0", steps: [ image.center_crop: { size: [224, 224] } ], shuffle: false }

    # Where stages are stored; `--store` and FOREBAY_STORE win.
    store: ./.forebay
    "##);
}

#[test]
fn an_image_folder_with_splits() {
    let (_dir, root) = folder("pets", &[("train/cat/1.jpg", b"a"), ("train/dog/2.jpg", b"a"), ("val/cat/3.jpg", b"a")]);
    let (draft, pipeline) = drafted(&root);
    assert_eq!(split_counts(&draft), [("train", 2), ("val", 1)]);
    assert_eq!(draft.survey.classes, ["cat", "dog"]);
    assert_eq!(pipeline.source.root.as_deref(), root.to_str());
    let filters: Vec<_> = pipeline.splits.iter().map(|s| s.filter.as_ref().unwrap().0.as_str()).collect();
    assert_eq!(filters, ["starts_with(key, 'train/')", "starts_with(key, 'val/')"]);
    assert_eq!(pipeline.splits[1].steps[0].name, "image.center_crop");

    // What lies beside the splits is in none, and has no say in the classes.
    put(&root, &[("extra/unknown/4.jpg", b"a")]);
    let (draft, pipeline) = drafted(&root);
    assert_eq!((draft.survey.unsplit, pipeline.splits.len()), (1, 2));
    assert_eq!(draft.survey.classes, ["cat", "dog"]);
    assert!(draft.text.contains("# 1 file is in none of them"), "{}", draft.text);

    // Splits without classes below them are no classes themselves.
    let (_dir, root) = folder("pets", &[("train/1.jpg", b"a"), ("test/2.jpg", b"a")]);
    let (draft, pipeline) = drafted(&root);
    assert!(draft.survey.classes.is_empty() && pipeline.source.fields.is_empty());
    assert_eq!(step_names(&pipeline), ["image.decode", "image.resize"]);
    // The first split is the one to train on, whatever it is called.
    assert_eq!(split_counts(&draft), [("train", 1), ("test", 1)]);
    assert_eq!(draft.next[2], "forebay read pets.yaml --split train --bench");
    assert_eq!(pipeline.splits.iter().map(|s| s.shuffle).collect::<Vec<_>>(), [Some(true), Some(false)]);
}

#[test]
fn a_flat_folder_with_a_table_of_labels() {
    let (_dir, root) = folder("x", &[("1.jpg", b"a"), ("2.jpg", b"a"), ("labels.csv", b"file,label\n1.jpg,cat\n")]);
    let (draft, pipeline) = drafted(&root);
    let labels = draft.survey.labels.unwrap();
    assert!(labels.file.ends_with("labels.csv"));
    assert_eq!(labels.columns, ["file", "label"]);
    assert!(!labels.join.unwrap().complete && pipeline.source.fields.is_empty());
    assert_eq!(pipeline.source.patterns, [format!("{}/*.jpg", root.display())]);
    // The join that is offered is right once its mark is taken away.
    let text = draft.text.replace("# join:", "join:");
    let pipeline = Pipeline::read(&text, &draft.file, &|_| None).unwrap_or_else(|e| panic!("{}\n{text}", e.chain()));
    assert!(matches!(&pipeline.source.fields["label"], Field::Join { on, .. } if on == "file"));
}

#[test]
fn a_table_beside_files_says_their_splits() {
    for (columns, rows, label) in [
        ("file,label,split", "1.jpg,cat,train\n2.jpg,dog,test\n3.jpg,dog,unused", false),
        ("file,subset", "1.jpg,train\n2.jpg,test\n3.jpg,unused", true),
    ] {
        let table = format!("{columns}\n{rows}\n");
        let files = [("a/1.jpg", &b"a"[..]), ("b/2.jpg", b"a"), ("b/3.jpg", b"a"), ("t.csv", table.as_bytes())];
        let (_dir, root) = folder("x", &files);
        let (draft, pipeline) = drafted(&root);
        assert_eq!((split_counts(&draft), draft.survey.unsplit), (vec![("train", 1), ("test", 1)], 1));
        let column = columns.rsplit(',').next().unwrap();
        let filters: Vec<_> = pipeline.splits.iter().map(|s| s.filter.as_ref().unwrap().0.clone()).collect();
        assert_eq!(filters, [format!("`{column}` = 'train'"), format!("`{column}` = 'test'")]);
        assert!(
            draft.text.contains("# 1 row is in none of them") && draft.text.contains("  join: {"),
            "{}",
            draft.text
        );
        // Class names come from the table where it has them, else from the directories.
        assert_eq!(matches!(pipeline.source.fields["label"], Field::Join { .. }), !label);
        assert_eq!(step_names(&pipeline), ["image.decode", "image.resize", "label.index"]);
    }
}

/// The join of a folder of `a/1.jpg` and `a/2.jpg` with this table: what must equal what, if any column will do.
fn joined(table: &str) -> Option<(String, String)> {
    let (_dir, root) = folder("x", &[("a/1.jpg", b"a"), ("a/2.jpg", b"a"), ("labels.csv", table.as_bytes())]);
    let (draft, pipeline) = drafted(&root);
    assert_eq!(pipeline.steps.len(), if pipeline.source.fields.is_empty() { 2 } else { 3 }, "{}", draft.text);
    match pipeline.source.fields.get("label") {
        Some(Field::Join { on, matching, .. }) => Some((on.clone(), matching.clone())),
        _ => None,
    }
}

#[test]
fn a_table_is_joined_by_the_column_that_names_the_files() {
    let by = |on: &str, matching: &str| Some((on.to_owned(), matching.to_owned()));
    assert_eq!(joined("n,file,label\n7,1.jpg,cat\n8,2.jpg,dog\n"), by("file", "{name}"));
    assert_eq!(joined("label,id\ncat,1\ndog,2\ndog,3\n"), by("id", "{stem}"));
    assert_eq!(joined("label,path,image\ncat,a/1.jpg,x\ndog,a/2.jpg,y\n"), by("path", "{key}"));
    // A name that stands twice, or doesn't stand there, is no way to find a row.
    assert_eq!(joined("file,label\n1.jpg,cat\n2.jpg,dog\n2.jpg,dog\n"), None);
    assert_eq!(joined("file,label\n3.jpg,cat\n"), None);
}

#[test]
fn names_like_splits_that_are_not_kept_are_pointed_out() {
    let (_dir, root) = folder("photos", &[("trainset/a.jpg", b"x"), ("TestData/b.jpg", b"x"), ("other/c.jpg", b"x")]);
    let (draft, _) = drafted(&root);
    assert!(draft.survey.splits.is_empty());
    let odd: Vec<_> = draft.survey.odd.iter().map(|odd| odd.path.to_str().unwrap()).collect();
    assert_eq!(odd, ["TestData", "trainset"]);
    assert!(draft.survey.odd[0].reason.contains("mend `splits:` first"));
    // Classes of any other kind are none.
    let (_dir, root) = folder("photos", &[("train_a/a.jpg", b"x"), ("trainer/b.jpg", b"x"), ("cat/c.jpg", b"x")]);
    assert_eq!(drafted(&root).0.survey.odd.len(), 0);

    let (_dir, root) = folder("rows", &[("a.jsonl", b"{\"split\": \"test\", \"n\": 1}\n")]);
    let (draft, _) = drafted(&root.join("a.jsonl"));
    assert!(draft.survey.odd[0].reason.contains("its column \"split\" is called as splits are"));
}

#[test]
fn a_table_that_names_files_loads_them() {
    let (_dir, root) = folder(
        "set",
        &[
            ("labels.csv", b"id,split,label\n1,train,cat\n2,test,dog\n3,train,cat\n"),
            ("files.tsv", b"image\tn\npictures/1.jpg\t5\npictures/2.jpg\t5\n"),
            ("plain.csv", b"id,label\nx,cat\n"),
            ("pictures/1.jpg", b"a"),
            ("pictures/2.jpg", b"a"),
            ("pictures/3.jpg", b"a"),
        ],
    );
    let (draft, pipeline) = drafted(&root.join("labels.csv"));
    assert_eq!((pipeline.source.kind, pipeline.source.key.as_deref()), (SourceKind::Table, Some("id")));
    assert_eq!(pipeline.source.load, [("image".to_owned(), "pictures/{id}.jpg".to_owned())].into());
    assert_eq!(step_names(&pipeline), ["image.decode", "image.resize", "label.index"]);
    assert_eq!(split_counts(&draft), [("train", 2), ("test", 1)]);
    let filters: Vec<_> = pipeline.splits.iter().map(|s| s.filter.as_ref().unwrap().0.as_str()).collect();
    assert_eq!(filters, ["`split` = 'train'", "`split` = 'test'"]);

    let (_, pipeline) = drafted(&root.join("files.tsv"));
    assert_eq!(pipeline.source.load, [("pixels".to_owned(), "{image}".to_owned())].into());
    let (_, pipeline) = drafted(&root.join("plain.csv"));
    assert_eq!(pipeline.source.kind, SourceKind::Csv);
}

#[test]
fn webdataset_tars() {
    let mut tar = tar::Builder::new(Vec::new());
    for name in ["a/1.jpg", "a/1.cls", "a/2.jpg"] {
        let mut header = tar::Header::new_gnu();
        header.set_size(1);
        tar.append_data(&mut header, name, &b"x"[..]).unwrap();
    }
    let bytes = tar.into_inner().unwrap();
    let (_dir, root) = folder("web", &[("000.tar", &bytes), ("001.tar", &bytes)]);
    let (draft, pipeline) = drafted(&root);
    assert_eq!(draft.survey.columns, ["jpg", "cls"]);
    assert_eq!(pipeline.source.kind, SourceKind::Tar);
    assert_eq!(step_names(&pipeline), ["image.decode", "image.resize"]);
    let (draft, pipeline) = drafted(&root.join("000.tar"));
    assert_eq!(draft.name, "000");
    assert_eq!(pipeline.source.patterns, [root.join("000.tar").to_str().unwrap()]);
    // A broken one is odd, and still a draft.
    put(&root, &[("000.tar", b"no tar")]);
    let (draft, _) = drafted(&root.join("000.tar"));
    assert_eq!(draft.survey.odd_files, 1);
}

#[test]
fn tables() {
    use arrow::array::*;
    let (_dir, root) = folder(
        "t",
        &[
            ("a.csv", b"text,label\nx,y\n"),
            ("b.jsonl", b"{\"text\": \"x\", \"category\": 1}\n"),
            ("c/d.tsv", b"a\tb\n1\t2\n"),
        ],
    );
    let (draft, pipeline) = drafted(&root.join("a.csv"));
    assert_eq!(
        (draft.survey.columns.as_slice(), pipeline.source.kind),
        (&["text", "label"].map(str::to_owned)[..], SourceKind::Csv)
    );
    assert_eq!(step_names(&pipeline), ["label.index"]);
    let (draft, pipeline) = drafted(&root.join("b.jsonl"));
    assert_eq!((draft.survey.columns.len(), pipeline.source.kind), (2, SourceKind::Jsonl));
    let (draft, _) = drafted(&root.join("c"));
    assert_eq!(draft.survey.columns, ["a", "b"]);
    // Nothing of it is worth storing by default, so the command names what is stored.
    assert_eq!(draft.next[1], "forebay materialize c.yaml --stage concatenated");

    let column: ArrayRef = std::sync::Arc::new(LargeBinaryArray::from(vec![&b"x"[..]]));
    let batch = RecordBatch::try_from_iter([("image", column.clone()), ("label", column)]).unwrap();
    let mut bytes = Vec::new();
    let mut writer = parquet::arrow::ArrowWriter::try_new(&mut bytes, batch.schema(), None).unwrap();
    writer.write(&batch).unwrap();
    writer.close().unwrap();
    let (_dir, root) = folder("hub", &[("data/train-00000-of-00001.parquet", &bytes), ("README.md", b"x")]);
    let (draft, pipeline) = drafted(&root);
    assert_eq!((draft.survey.image.as_deref(), pipeline.source.kind), (Some("image"), SourceKind::Parquet));
    assert_eq!(step_names(&pipeline), ["image.decode", "image.resize", "label.index"]);

    let mut bytes = Vec::new();
    let mut writer = arrow::ipc::writer::StreamWriter::try_new(&mut bytes, &batch.schema()).unwrap();
    writer.write(&batch).unwrap();
    writer.finish().unwrap();
    drop(writer);
    let (_dir, root) =
        folder("saved", &[("data-00000-of-00001.arrow", &bytes), ("dataset_info.json", b"{}"), ("state.json", b"{}")]);
    let (draft, pipeline) = drafted(&root);
    assert_eq!((draft.survey.columns.len(), pipeline.source.kind, draft.survey.odd_files), (2, SourceKind::Arrow, 0));
}

#[test]
fn odd_names_are_quoted() {
    let files: &[(&str, &[u8])] = &[("it's: #1/a b.jpg", b"a"), ("{x}/ü.jpg", b"a")];
    for name in
        ["with space", "br[ack]{et}s", "colon: x", "${HOME}", "- dash", "ünï", "true", "quote\"s", "back\\slash"]
    {
        let (_dir, root) = folder(name, files);
        let (draft, pipeline) = drafted(&root);
        assert_eq!(draft.survey.classes.len(), 2, "{name}");
        assert_eq!(pipeline.source.patterns.len(), 1, "{name}");
        assert!(!pipeline.source.patterns[0].contains("$$"), "{name}");
    }
}

#[test]
fn relative_paths_stay_relative() {
    let cases = [
        ("photos", "./photos"),
        ("photos/", "./photos"),
        ("./a/b", "./a/b"),
        ("../x", "../x"),
        (".", "."),
        ("/data/x/", "/data/x"),
    ];
    for (written, expected) in cases {
        let survey = Survey { main: Some(Kind::Image), extensions: ["jpg".to_owned()].into(), ..Survey::default() };
        let text = draft::text("x", Path::new(written), &survey);
        assert!(text.contains(&format!("files: {expected}/*.jpg\n")), "{text}");
    }
}

#[test]
fn nothing_to_read() {
    let (_dir, root) = folder("empty", &[("notes.docx", b"x")]);
    let error = init(&root).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert!(error.message().contains("notes.docx: an extension that no source reads; expected files"), "{error}");
    let (_dir, root) = folder("packed", &[("a.jsonl.gz", b"x")]);
    let message = init(&root).unwrap_err().message().to_owned();
    assert!(message.contains("a.jsonl.gz: compressed with gzip: only archives (tar) are read compressed"), "{message}");
    put(&root, &[("b.jsonl", b"{}\n")]);
    assert_eq!(drafted(&root).0.survey.odd[0].path.to_str(), Some("a.jsonl.gz"));
    assert_eq!(init(&root.join("none")).unwrap_err().kind(), ErrorKind::NotFound);
}
