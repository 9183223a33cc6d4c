//! `parquet` and `arrow`: types, Hugging Face's conventions, row groups as entries, damaged files.

use super::*;
use arrow::array::*;
use arrow::datatypes::{DataType, Field, Float32Type, Int32Type, Schema, TimeUnit};
use forebay::source::CLASSES;
use parquet::arrow::ArrowWriter;
use parquet::file::properties::WriterProperties;
use std::collections::HashMap;
use std::sync::Arc;

fn sample(from: i64, rows: i64) -> RecordBatch {
    let ids = Int64Array::from_iter_values(from..from + rows);
    let names = StringArray::from_iter((from..from + rows).map(|i| (i % 3 != 0).then(|| format!("n{i}"))));
    RecordBatch::try_from_iter([("id", Arc::new(ids) as ArrayRef), ("name", Arc::new(names))]).unwrap()
}

pub fn parquet(batch: &RecordBatch, group_rows: usize) -> Vec<u8> {
    let properties = WriterProperties::builder().set_max_row_group_row_count(Some(group_rows)).build();
    let mut writer = ArrowWriter::try_new(Vec::new(), batch.schema(), Some(properties)).unwrap();
    writer.write(batch).unwrap();
    writer.into_inner().unwrap()
}

fn stream(batches: &[RecordBatch]) -> Vec<u8> {
    let mut writer = arrow::ipc::writer::StreamWriter::try_new(Vec::new(), &batches[0].schema()).unwrap();
    batches.iter().for_each(|b| writer.write(b).unwrap());
    writer.into_inner().unwrap()
}

fn file(batches: &[RecordBatch]) -> Vec<u8> {
    let mut writer = arrow::ipc::writer::FileWriter::try_new(Vec::new(), &batches[0].schema()).unwrap();
    batches.iter().for_each(|b| writer.write(b).unwrap());
    writer.into_inner().unwrap()
}

/// The same ten rows in each container, as groups of 4, 4 and 2.
fn containers() -> Vec<(SourceKind, &'static str, Vec<u8>)> {
    let groups = [sample(0, 4), sample(4, 4), sample(8, 2)];
    vec![
        (SourceKind::Parquet, "a.parquet", parquet(&sample(0, 10), 4)),
        (SourceKind::Arrow, "a.arrow", file(&groups)),
        (SourceKind::Arrow, "b.arrow", stream(&groups)),
    ]
}

/// Bytes that this thread has asked files for; `None` where the system doesn't tell.
fn bytes_read() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/thread-self/io").ok()?;
    text.lines().find_map(|line| line.strip_prefix("rchar: "))?.parse().ok()
}

#[test]
fn a_file_that_this_machine_knows_is_not_hashed_to_read_some_columns() {
    let Some(_) = bytes_read() else { return println!("NOT TESTED: this system does not say what a thread reads") };
    const WHOLE: usize = 1 << 20;
    let file = |wide: u8| {
        let (ids, wide) =
            (Int64Array::from_iter_values(0..4), LargeBinaryArray::from_iter_values(vec![vec![wide; WHOLE]; 4]));
        let batch = RecordBatch::try_from_iter([("id", Arc::new(ids) as ArrayRef), ("wide", Arc::new(wide))]).unwrap();
        let properties = WriterProperties::builder().set_dictionary_enabled(false).build();
        let mut writer = ArrowWriter::try_new(Vec::new(), batch.schema(), Some(properties)).unwrap();
        writer.write(&batch).unwrap();
        writer.into_inner().unwrap()
    };
    let place = Place::new(SourceKind::Parquet, "*.parquet").columns(&["id"]);
    place.write("a.parquet", file(1));
    std::thread::sleep(std::time::Duration::from_millis(2100));
    let listed = entries(list(&place.source()).unwrap());
    // As a new process would: the source opened, and all rows read.
    let hashed = |source: Source| {
        let before = bytes_read().unwrap();
        assert_eq!(integers(&read(&source, &listed).unwrap(), "id").len(), 4);
        bytes_read().unwrap() - before >= 4 * WHOLE as u64
    };
    assert!(hashed(place.source()) && hashed(place.source()), "without a cache each process hashes");
    assert!(hashed(place.cached()), "the first time");
    assert!(!hashed(place.cached()), "what a reader has hashed is known to the next");
    std::fs::remove_dir_all(place.path("cache")).unwrap();
    list(&place.cached()).unwrap();
    assert!(!hashed(place.cached()), "what a listing has hashed is known to readers");

    place.write("a.parquet", file(2));
    let error = read(&place.cached(), &listed).unwrap_err();
    assert_eq!(error.kind(), Kind::Conflict);
    assert_says(&error, &["a.parquet changed since it was listed"]);
    // Known by now, and still not what was listed.
    std::thread::sleep(std::time::Duration::from_millis(2100));
    list(&place.cached()).unwrap();
    assert_eq!(read(&place.cached(), &listed).unwrap_err().kind(), Kind::Conflict);
}

#[test]
fn an_empty_time_zone_is_none() {
    let times = TimestampSecondArray::from(vec![1, 2]).with_timezone("");
    let batch = RecordBatch::try_from_iter([("time", Arc::new(times) as ArrayRef)]).unwrap();
    let place = Place::new(SourceKind::Arrow, "a.arrow");
    place.write("a.arrow", file(std::slice::from_ref(&batch)));
    let rows = place.rows();
    assert_eq!(*rows.column_by_name("time").unwrap().data_type(), DataType::Timestamp(TimeUnit::Second, None));
}

#[test]
fn row_groups_are_entries_and_rows_are_numbered() {
    for (kind, name, bytes) in containers() {
        let place = Place::new(kind, name);
        place.write(name, bytes);
        let listing = place.list();
        assert_eq!(keys(&listing), [0, 4, 8].map(|row| format!("{name}#{row}")));
        assert_eq!(listing.entries[0].identity, listing.entries[2].identity);
        assert_ne!(listing.entries[0].range, listing.entries[2].range);
        let source = place.source();
        let listed = entries(listing);
        let batch = read(&source, &listed).unwrap();
        assert_eq!(integers(&batch, "id"), (0..10).map(Some).collect::<Vec<_>>());
        assert_eq!(text(&batch, "name")[..3], [None, Some("n1".into()), Some("n2".into())]);
        assert_eq!(text(&batch, "_key")[9], Some(format!("{name}#9")));
        let middle: Vec<_> = source.read_stream(&listed, 1..2).unwrap().map(|b| b.unwrap()).collect();
        assert_eq!(text(&middle[0], "_key"), (4..8).map(|i| Some(format!("{name}#{i}"))).collect::<Vec<_>>());
        assert_eq!(source.locate(&listed.entries, &format!("{name}#7")), Some(1));
        assert!(!source.entries_are_samples());
        let picked = Place { directory: place.directory, spec: place.spec }.columns(&["name", "id"]);
        let batch = picked.rows();
        assert_eq!((batch.schema().field(2).name().as_str(), integers(&batch, "id")[5]), ("name", Some(5)));
    }
}

#[test]
fn a_swapped_file_is_a_conflict_even_for_partial_reads() {
    for stat in [false, true] {
        for (kind, name, bytes) in containers() {
            let mut place = Place::new(kind, name).columns(&["id"]);
            if stat {
                place = place.stat();
            }
            place.write(name, &bytes);
            let listed = entries(place.list());
            // A reader that never listed checks the file itself.
            let source = place.source();
            assert_eq!(read(&source, &listed).unwrap().num_rows(), 10);
            let mut other = bytes.clone();
            let at = other.windows(2).position(|w| w == b"n7").unwrap();
            other[at] = b'm';
            place.write(name, &other);
            let file = std::fs::File::options().write(true).open(place.path(name)).unwrap();
            file.set_modified(std::time::UNIX_EPOCH).unwrap();
            assert_conflict(read(&source, &listed).unwrap_err(), name);
            std::fs::remove_file(place.path(name)).unwrap();
            assert_conflict(read(&source, &listed).unwrap_err(), name);
        }
    }
}

#[test]
fn types_are_carried_as_large_and_dictionaries_unpacked() {
    let dictionary: DictionaryArray<Int32Type> = [Some("x"), None, Some("y"), Some("x")].into_iter().collect();
    let lists = ListArray::from_iter_primitive::<Float32Type, _, _>([
        Some(vec![Some(1.0), None]),
        None,
        Some(vec![]),
        Some(vec![Some(2.0)]),
    ]);
    let fields =
        vec![Arc::new(Field::new("s", DataType::Utf8, true)), Arc::new(Field::new("t", DataType::Binary, true))];
    let nested = StructArray::new(
        fields.into(),
        vec![
            Arc::new(StringArray::from(vec![Some("a"), None, Some("c"), Some("d")])),
            Arc::new(BinaryArray::from(vec![Some(&b"1"[..]), None, None, Some(b"4")])),
        ],
        None,
    );
    let times = TimestampMicrosecondArray::from(vec![Some(1), None, Some(3), Some(4)]).with_timezone("+01:00");
    let decimals =
        Decimal128Array::from(vec![Some(1), None, Some(-3), Some(4)]).with_precision_and_scale(20, 2).unwrap();
    let tensor =
        FixedSizeListArray::from_iter_primitive::<Float32Type, _, _>((0..4).map(|i| Some(vec![Some(i as f32); 6])), 6);
    let metadata = HashMap::from([
        ("ARROW:extension:name".to_owned(), "arrow.fixed_shape_tensor".to_owned()),
        ("ARROW:extension:metadata".to_owned(), "{\"shape\":[2,3]}".to_owned()),
        ("other".to_owned(), "dropped".to_owned()),
    ]);
    let columns: Vec<(Field, ArrayRef)> = vec![
        (Field::new("d", dictionary.data_type().clone(), true), Arc::new(dictionary)),
        (Field::new("l", lists.data_type().clone(), true), Arc::new(lists)),
        (Field::new("n", nested.data_type().clone(), true), Arc::new(nested)),
        (Field::new("ts", times.data_type().clone(), true), Arc::new(times)),
        (Field::new("dec", decimals.data_type().clone(), true), Arc::new(decimals)),
        (Field::new("x", tensor.data_type().clone(), false).with_metadata(metadata), Arc::new(tensor)),
        (
            Field::new("v", DataType::Utf8View, true),
            Arc::new(StringViewArray::from(vec![Some("p"), None, Some("q"), None])),
        ),
    ];
    let (fields, arrays): (Vec<_>, Vec<_>) = columns.into_iter().unzip();
    let batch = RecordBatch::try_new(Arc::new(Schema::new(fields)), arrays).unwrap();
    for (kind, name, bytes) in [
        (SourceKind::Parquet, "a.parquet", parquet(&batch, 3)),
        (SourceKind::Arrow, "a.arrow", file(std::slice::from_ref(&batch))),
        (SourceKind::Arrow, "b.arrow", stream(&[batch.slice(0, 2), batch.slice(2, 2)])),
    ] {
        let place = Place::new(kind, name);
        place.write(name, bytes);
        let rows = place.rows();
        let schema = rows.schema();
        assert_eq!(text(&rows, "d"), [Some("x".into()), None, Some("y".into()), Some("x".into())], "{name}");
        assert_eq!(text(&rows, "v"), [Some("p".into()), None, Some("q".into()), None]);
        for column in ["l", "ts", "dec", "x"] {
            assert_eq!(rows.column_by_name(column), batch.column_by_name(column), "{name} {column}");
        }
        let tensor = schema.field_with_name("x").unwrap();
        assert_eq!((tensor.metadata().len(), tensor.is_nullable()), (2, true));
        let nested = rows.column_by_name("n").unwrap().as_struct();
        assert_eq!(nested.column(0).data_type(), &DataType::LargeUtf8);
        assert_eq!(nested.column(1).as_binary::<i64>().value(3), b"4");
    }
}

fn dataset() -> RecordBatch {
    let info = r#"{"info": {"features": {"image": {"_type": "Image"}, "label": {"names": ["cat", "dog"], "_type": "ClassLabel"}}}}"#;
    let fields =
        vec![Arc::new(Field::new("bytes", DataType::Binary, true)), Arc::new(Field::new("path", DataType::Utf8, true))];
    let image = StructArray::new(
        fields.into(),
        vec![
            Arc::new(BinaryArray::from(vec![Some(&b"A"[..]), Some(b""), None, None])),
            Arc::new(StringArray::from(vec![Some("a.jpg"), None, Some("c.jpg"), None])),
        ],
        Some(vec![true, true, true, false].into()),
    );
    let schema = Schema::new(vec![
        Field::new("image", image.data_type().clone(), true),
        Field::new("label", DataType::Int64, true),
    ]);
    let schema = schema.with_metadata(HashMap::from([("huggingface".to_owned(), info.to_owned())]));
    RecordBatch::try_new(Arc::new(schema), vec![Arc::new(image), Arc::new(Int64Array::from(vec![0, 1, 1, 0]))]).unwrap()
}

#[test]
fn hugging_face_folders_just_work() {
    let check = |place: &Place, prefix: &str| {
        let batch = place.rows();
        assert_eq!(bytes(&batch, "image"), [Some(b"A".to_vec()), Some(vec![]), None, None]);
        assert_eq!(integers(&batch, "label"), [Some(0), Some(1), Some(1), Some(0)]);
        assert_eq!(failed(&batch), [2]);
        assert!(text(&batch, "_error")[2].as_ref().unwrap().contains("c.jpg"));
        assert_eq!(text(&batch, "_key")[3], Some(format!("{prefix}#3")));
        let schema = batch.schema();
        assert_eq!(schema.field_with_name("label").unwrap().metadata()[CLASSES], "[\"cat\",\"dog\"]");
    };
    let saved = Place::new(SourceKind::Arrow, "set");
    saved.write("set/data-00000-of-00001.arrow", stream(&[dataset()]));
    saved.write("set/cache-123.arrow", stream(&[dataset()]));
    saved.write("set/state.json", r#"{"_data_files": [{"filename": "data-00000-of-00001.arrow"}]}"#);
    check(&saved, "data-00000-of-00001.arrow");
    // Older writers keep the features beside the data only.
    let bare = dataset();
    let bare = RecordBatch::try_new(
        Arc::new(bare.schema().as_ref().clone().with_metadata(HashMap::new())),
        bare.columns().to_vec(),
    )
    .unwrap();
    saved.write("set/data-00000-of-00001.arrow", stream(&[bare]));
    saved
        .write("set/dataset_info.json", r#"{"features": {"label": {"names": ["cat", "dog"], "_type": "ClassLabel"}}}"#);
    check(&saved, "data-00000-of-00001.arrow");
    let hub = Place::new(SourceKind::Parquet, "set");
    hub.write("set/data/train-00000-of-00001.parquet", parquet(&dataset(), 100));
    check(&hub, "data/train-00000-of-00001.parquet");
}

#[test]
fn files_that_differ_in_columns_are_named() {
    let place = Place::new(SourceKind::Parquet, "*.parquet");
    place.write("a.parquet", parquet(&sample(0, 3), 10));
    let other = RecordBatch::try_from_iter([("id", Arc::new(StringArray::from(vec!["x"])) as ArrayRef)]).unwrap();
    place.write("b.parquet", parquet(&other, 10));
    assert_says(&place.list_error(), &["b.parquet", "no column \"name\""]);
    let place = place.columns(&["id"]);
    assert_says(&place.list_error(), &["b.parquet", "\"id\" is text, expected int64"]);
}

#[test]
fn a_key_column_names_rows() {
    for (kind, name, bytes) in containers() {
        let place = Place::new(kind, name).key("id").columns(&["name"]);
        place.write(name, bytes);
        let batch = place.rows();
        assert_eq!(text(&batch, "_key")[9], Some("9".to_owned()));
        assert_eq!(batch.num_columns(), 3);
        let place = Place { directory: place.directory, spec: place.spec }.key("name");
        assert_says(&place.list_error(), &[name, "row 0", "no value in the key column"]);
    }
    let place = Place::new(SourceKind::Parquet, "*.parquet").key("id");
    place.write("a.parquet", parquet(&sample(0, 3), 2)).write("b.parquet", parquet(&sample(2, 3), 2));
    assert_says(&place.list_error(), &["\"2\" stands twice", "a.parquet, row 2", "b.parquet, row 0"]);
}

#[test]
fn no_rows_are_no_entries() {
    for (kind, name, bytes) in [
        (SourceKind::Parquet, "a.parquet", parquet(&sample(0, 0), 10)),
        (SourceKind::Arrow, "a.arrow", file(&[sample(0, 0)])),
        (SourceKind::Arrow, "b.arrow", stream(&[sample(0, 0)])),
    ] {
        let place = Place::new(kind, name);
        place.write(name, bytes);
        assert_eq!(place.list().entries.len(), 0);
        assert_eq!(place.rows().num_columns(), 4);
    }
}

#[test]
fn damaged_files_are_errors_that_name_them() {
    for (kind, name, whole) in containers() {
        let place = Place::new(kind, name);
        for cut in [0, 4, 10, whole.len() / 2, whole.len() - 1] {
            place.write(name, &whole[..cut]);
            let source = place.source();
            // A stream that ends at a message's end is whole, so that some cuts are none.
            if let Err(error) = list(&source) {
                assert_says(&error, &[name]);
            }
        }
        place.write(name, b"");
        assert_eq!(place.list_error().kind(), Kind::Invalid);
        let mut state = 7u64;
        for _ in 0..200 {
            let mut bad = whole.clone();
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            let at = (state >> 33) as usize % bad.len();
            bad[at] ^= 1 << (state % 8);
            place.write(name, &bad);
            let source = place.source();
            if let Ok(listing) = list(&source) {
                let _ = read(&source, &entries(listing));
            }
        }
    }
}

#[test]
fn a_codec_that_is_not_supported_is_named() {
    let bytes = std::fs::read(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/brotli.parquet")).unwrap();
    let place = Place::new(SourceKind::Parquet, "a.parquet");
    place.write("a.parquet", &bytes);
    assert_says(&place.list_error(), &["a.parquet", "column \"x\"", "brotli, which is not supported", "zstd, lz4"]);
    assert_eq!(text(&place.columns(&["y"]).rows(), "y"), some(&["a", "b"]));
}

#[test]
fn dates_and_times_keep_their_types() {
    let columns: Vec<(&str, ArrayRef)> = vec![
        ("date64", Arc::new(Date64Array::from(vec![0, 86_400_000]))),
        ("time", Arc::new(Time64MicrosecondArray::from(vec![1, 2]))),
        ("duration", Arc::new(DurationMillisecondArray::from(vec![1, -2]))),
        ("uint", Arc::new(UInt64Array::from(vec![u64::MAX, 0]))),
    ];
    let batch = RecordBatch::try_from_iter(columns).unwrap();
    let place = Place::new(SourceKind::Parquet, "a.parquet");
    place.write("a.parquet", parquet(&batch, 10));
    let rows = place.rows();
    for (field, column) in batch.schema().fields().iter().zip(batch.columns()) {
        assert_eq!(rows.column_by_name(field.name()).unwrap(), column, "{}", field.name());
    }
}

#[test]
fn types_nested_too_deep_are_refused_by_name() {
    let mut deep: ArrayRef = Arc::new(Int64Array::from(vec![1]));
    for _ in 0..40 {
        let field = Arc::new(Field::new("x", deep.data_type().clone(), true));
        deep = Arc::new(StructArray::from(vec![(field, deep)]));
    }
    let batch = RecordBatch::try_from_iter([("deep", deep), ("y", Arc::new(Int64Array::from(vec![1])))]).unwrap();
    let place = Place::new(SourceKind::Parquet, "a.parquet");
    place.write("a.parquet", parquet(&batch, 10));
    assert_says(&place.list_error(), &["\"deep\" is nested 40 levels deep", "at most 32", "columns:"]);
    assert_eq!(integers(&place.columns(&["y"]).rows(), "y"), [Some(1)]);
}
