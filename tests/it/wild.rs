//! Input as it comes: odd files and names, one huge sample, columns of every type; and memory that stays flat.

use crate::fixture::store_at;
use crate::fixture::{Dataset, PHOTOS, forebay, photo, succeed};
use arrow::array::{
    Array, ArrayRef, AsArray, BinaryArray, BooleanArray, Date32Array, Decimal128Array, DictionaryArray,
    FixedSizeBinaryBuilder, Float64Array, Int32Array, Int64Array, Int64Builder, ListBuilder, RecordBatch, StringArray,
    StringBuilder, StructArray, TimestampMicrosecondArray, TimestampNanosecondArray, new_null_array,
};
use arrow::buffer::{NullBuffer, OffsetBuffer};
use arrow::datatypes::{DataType, Field, Fields, Int32Type};
use forebay::app::open::{Reading, Which, from_store};
use forebay::engine::pool::Pool;
use forebay::format::encoding::{Codec, Container};
use forebay::format::shard::tensor::View;
use forebay::plan::order::batch::{Batching, Tail};
use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;

const ENCODINGS: [(Container, Codec); 3] =
    [(Container::Arrow, Codec::None), (Container::Arrow, Codec::Zstd(3)), (Container::Parquet, Codec::Zstd(3))];

/// A PNG's header of that size, with a body of a few bytes.
fn bomb(side: u32) -> Vec<u8> {
    let mut png = b"\x89PNG\r\n\x1a\n".to_vec();
    let mut chunk = |kind: &[u8], body: &[u8]| {
        let bytes = [kind, body].concat();
        let mut crc = flate2::Crc::new();
        crc.update(&bytes);
        png.extend((body.len() as u32).to_be_bytes());
        png.extend(bytes);
        png.extend(crc.sum().to_be_bytes());
    };
    chunk(b"IHDR", &[&side.to_be_bytes()[..], &side.to_be_bytes(), &[8, 2, 0, 0, 0]].concat());
    chunk(b"IDAT", &[0x78, 0x9c, 0x63, 0, 0, 0, 1, 0, 1]);
    chunk(b"IEND", &[]);
    png
}

/// By sample key: (height, width, channels, pixels) or why it failed.
type Decoded = BTreeMap<String, Result<(Vec<usize>, Vec<u8>), String>>;

fn decoded(batches: &[RecordBatch]) -> Decoded {
    let mut found = BTreeMap::new();
    for batch in batches {
        let index = batch.schema_ref().index_of("image").unwrap();
        let images = View::new(batch.schema_ref().field(index), batch.column(index)).unwrap();
        for row in 0..batch.num_rows() {
            let key = batch.column(0).as_string::<i64>().value(row).to_owned();
            let errors = batch.column(1).as_string::<i64>();
            let outcome = match images.row(row).unwrap() {
                Some(image) => {
                    assert!(errors.is_null(row), "{key}");
                    Ok((image.shape.iter().map(|n| *n as usize).collect(), image.bytes.to_vec()))
                }
                None => Err(errors.value(row).to_owned()),
            };
            found.insert(key, outcome);
        }
    }
    found
}

#[test]
fn a_folder_of_odd_files_gives_right_values_or_reasons() {
    let dataset = Dataset::new(
        "name: odd\nsource: { files: [\"./in/**\", \"./in/**/.*\", \"./in/.dir/*\"] }\nsteps: [ image.decode: { column: data } ]\non_error: keep\nmax_errors: 100%\n",
    );
    let pipeline =
        fs::read_to_string(&dataset.file).unwrap().replace("{ column: data }", "{ column: data, to: image }");
    fs::write(&dataset.file, pipeline).unwrap();
    let put = |name: &str, bytes: &[u8]| {
        let path = dataset.path().join("in").join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
    };
    let plain = photo(1, 40, 60);
    let data =
        |name: &str| fs::read(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/images").join(name)).unwrap();
    put("plain.jpg", &plain);
    let long = format!("{}.jpg", "n".repeat(196));
    let names = [
        "with space.jpg",
        "100%.jpg",
        "%41.jpg",
        "a+b.jpg",
        "c#d.jpg",
        "e#1",
        "ünï/日本語 🦉.jpg",
        ".hidden.jpg",
        ".dir/x.jpg",
        "dots.in.the.middle.jpg",
        "quote'\".jpg",
        "back\\slash.jpg",
        "[a]{b}*?.jpg",
        "no extension",
        "tab\tand\nline.jpg",
        &long,
    ];
    names.iter().for_each(|name| put(name, &plain));
    put("trailing.jpg", &[&plain[..], &[7; 100]].concat());
    put("wrong.png", &plain);
    put("wrong.jpg", &data("rgb.png"));
    for name in ["cmyk.jpg", "gray.jpg", "422-progressive.jpg", "palette.png", "animated.gif", "rgb.png"] {
        put(name, &data(name));
    }
    put("bad/zero.jpg", b"");
    put("bad/cut.jpg", &plain[..plain.len() / 2]);
    put("bad/header.jpg", &plain[..20]);
    put("bad/text.jpg", b"<html>404</html>");
    put("bad/bomb.png", &bomb(20_000));
    put("bad/cut.png", &data("rgb.png")[..60]);

    let reference = dataset.read(None, 7, 0);
    let found = decoded(&reference);
    let image = |name: &str| match found.get(name) {
        Some(found) => found.clone().unwrap_or_else(|e| panic!("{name}: {e}")),
        None => panic!("{name} is not in {:?}", found.keys()),
    };
    let pixels = turbojpeg::decompress(&plain, turbojpeg::PixelFormat::RGB).unwrap();
    assert_eq!(image("plain.jpg"), (vec![40, 60, 3], pixels.pixels));
    for name in names.iter().chain(&["trailing.jpg", "wrong.png"]) {
        assert_eq!(image(name), image("plain.jpg"), "{name}");
    }
    assert_eq!(image("wrong.jpg"), image("rgb.png"));
    assert!(image("gray.jpg").1.chunks(3).all(|p| p[0] == p[1] && p[1] == p[2]));
    for name in ["cmyk.jpg", "422-progressive.jpg", "palette.png", "animated.gif"] {
        let (shape, pixels) = image(name);
        assert_eq!((shape.len(), shape[2], shape.iter().product()), (3, 3, pixels.len()), "{name}");
        assert!(pixels.iter().any(|p| *p != pixels[0]), "{name} is no blank");
    }
    for (name, reason) in [
        ("bad/zero.jpg", "the file is empty"),
        ("bad/cut.jpg", "JPEG: "),
        ("bad/header.jpg", "JPEG: "),
        ("bad/text.jpg", "no image: expected JPEG"),
        ("bad/bomb.png", "PNG: "),
        ("bad/cut.png", "PNG: "),
    ] {
        let found = found[name].clone().unwrap_err();
        assert!(found.starts_with("image.decode: ") && found.contains(reason), "{name}: {found}");
    }
    assert_eq!(found.len(), names.len() + 10 + 6);
    assert_eq!(found.values().filter(|v| v.is_err()).count(), 6);

    for encoding in ENCODINGS {
        let _ = fs::remove_dir_all(dataset.store());
        let done = dataset.materialize(&["decode"], Some(encoding)).unwrap();
        assert_eq!((done.outcome.failed_rows, done.outcome.errors.len()), (6, 0));
        assert!(done.manifests[0].is_some());
        assert_eq!(dataset.read(None, 7, 0), reference, "{encoding:?}");
    }
    for name in names {
        let text = succeed(dataset.path(), &["read", "pipeline.yaml", "--json", "--quiet", "--key", name]);
        let shown: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(shown[0]["key"], *name);
    }
}

#[test]
fn keys_of_every_kind_survive_a_run_that_fails_on_one() {
    let dataset = Dataset::with_photos(PHOTOS, 6);
    let name = "cat/it's 100% #1 + ü.jpg";
    fs::write(dataset.path().join("photos").join(name), b"").unwrap();
    let output = forebay(dataset.path(), &["materialize", "pipeline.yaml", "--stage", "decode"]);
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(text.contains(&format!("{name}: image.decode: the file is empty")), "{text}");
    // The command that it prints works as it stands.
    let line = text.lines().find_map(|line| line.trim().strip_prefix("look at one: forebay ")).unwrap();
    let script = format!("exec \"$FOREBAY\" {line}");
    let shown = Command::new("sh")
        .args(["-c", &script])
        .current_dir(dataset.path())
        .env("FOREBAY", env!("CARGO_BIN_EXE_forebay"))
        .env("FOREBAY_CACHE", dataset.path().join("cache"))
        .output()
        .unwrap();
    let shown = (shown.status.success(), String::from_utf8_lossy(&shown.stdout).into_owned());
    assert!(shown.0 && shown.1.contains(name) && shown.1.contains("the file is empty"), "{shown:?}");
}

#[test]
fn one_sample_of_three_hundred_megabytes_goes_through_whole() {
    const BYTES: usize = 300 << 20;
    let dataset = Dataset::new("name: huge\nsource: { files: ./in/*.bin }\n");
    fs::create_dir(dataset.path().join("in")).unwrap();
    let mut file = fs::File::create(dataset.path().join("in/huge.bin")).unwrap();
    file.set_len(BYTES as u64).unwrap();
    file.write_all(b"begins").unwrap();
    fs::write(dataset.path().join("in/small.bin"), b"small").unwrap();
    for encoding in [ENCODINGS[0], ENCODINGS[2]] {
        let done = dataset.materialize(&["concatenated"], Some(encoding)).unwrap();
        assert!(done.manifests[0].is_some(), "{encoding:?}");
        let batches = dataset.read(None, 1, 0);
        let mut lengths = Vec::new();
        for batch in &batches {
            let value = batch.column_by_name("data").unwrap().as_binary::<i64>().value(0);
            lengths.push(value.len());
            assert!(value.starts_with(b"begins") || value == b"small");
            assert!(value.len() == 5 || (value[BYTES - 1] == 0 && value[6] == 0));
        }
        lengths.sort();
        assert_eq!(lengths, [5, BYTES]);
        fs::remove_dir_all(dataset.store()).unwrap();
    }
}

/// Columns of many types, with nulls at every level.
fn types() -> RecordBatch {
    let valid = |bits: &[bool]| Some(NullBuffer::from(bits.to_vec()));
    let fields: Fields = vec![Field::new("a", DataType::Int32, true), Field::new("b", DataType::Utf8, true)].into();
    let members = StructArray::new(
        fields.clone(),
        vec![
            Arc::new(Int32Array::from(vec![Some(1), None, Some(3), Some(4)])),
            Arc::new(StringArray::from(vec![Some("x"), Some(""), None, Some("ü")])),
        ],
        valid(&[true, true, false, true]),
    );
    let structs = arrow::array::ListArray::new(
        Arc::new(Field::new_list_field(DataType::Struct(fields.clone()), true)),
        OffsetBuffer::from_lengths([2, 0, 0, 1, 1]),
        Arc::new(members.clone()),
        valid(&[true, true, false, true, true]),
    );
    let outer: Fields =
        vec![Field::new("inner", DataType::Struct(fields), true), Field::new("flag", DataType::Boolean, false)].into();
    let five = arrow::compute::concat(&[&members, &new_null_array(members.data_type(), 1)]).unwrap();
    let nested = StructArray::new(
        outer,
        vec![five, Arc::new(BooleanArray::from(vec![true, false, true, false, true]))],
        valid(&[true, true, true, false, true]),
    );
    let mut lists = ListBuilder::new(ListBuilder::new(Int64Builder::new()));
    for row in [Some(vec![Some(vec![Some(1), None]), None]), None, Some(vec![]), Some(vec![Some(vec![])])] {
        lists.append_option(row);
    }
    lists.append_value([Some(vec![Some(i64::MIN), Some(i64::MAX)])]);
    let mut texts = ListBuilder::new(StringBuilder::new());
    for row in [Some(vec![Some("a"), None]), Some(vec![]), None, Some(vec![Some("ß")]), Some(vec![None])] {
        texts.append_option(row);
    }
    let mut fixed = FixedSizeBinaryBuilder::new(3);
    for row in [Some(b"abc"), None, Some(b"\0\0\0"), Some(b"xyz"), None] {
        match row {
            Some(value) => fixed.append_value(value).unwrap(),
            None => fixed.append_null(),
        }
    }
    let decimals = Decimal128Array::from(vec![Some(10_i128.pow(19)), None, Some(-1), Some(0), Some(123_456)]);
    let times = TimestampMicrosecondArray::from(vec![Some(1_700_000_000_000_001), None, Some(-1), Some(0), Some(1)]);
    let nanos = TimestampNanosecondArray::from(vec![None, Some(1), Some(-1), Some(i64::MAX), Some(0)]);
    let words: DictionaryArray<Int32Type> =
        vec![Some("red"), None, Some("blue"), Some("red"), Some("red")].into_iter().collect();
    RecordBatch::try_from_iter_with_nullable([
        ("structs", Arc::new(structs) as ArrayRef, true),
        ("nested", Arc::new(nested), true),
        ("lists", Arc::new(lists.finish()), true),
        ("texts", Arc::new(texts.finish()), true),
        ("fixed", Arc::new(fixed.finish()), true),
        ("decimals", Arc::new(decimals.with_precision_and_scale(30, 4).unwrap()), true),
        ("zoned", Arc::new(times.clone().with_timezone("Europe/Zurich")), true),
        ("offset", Arc::new(times.clone().with_timezone("+02:00")), true),
        ("unzoned", Arc::new(times), true),
        ("nanos", Arc::new(nanos), true),
        ("dates", Arc::new(Date32Array::from(vec![Some(0), None, Some(-1), Some(20_000), Some(1)])), true),
        ("words", Arc::new(words), true),
        ("bytes", Arc::new(BinaryArray::from(vec![Some(&b""[..]), None, Some(b"\xff"), Some(b"a"), Some(b"b")])), true),
        (
            "floats",
            Arc::new(Float64Array::from(vec![Some(f64::NEG_INFINITY), None, Some(-0.0), Some(0.1), Some(1e-308)])),
            true,
        ),
        ("numbers", Arc::new(Int64Array::from(vec![Some(i64::MIN), None, Some(0), Some(1), Some(i64::MAX)])), true),
        ("nothing", Arc::new(Int32Array::from(vec![None; 5])), true),
    ])
    .unwrap()
}

#[test]
fn columns_of_every_type_round_trip_through_both_containers() {
    let dataset = Dataset::new("name: types\nsource: { parquet: ./in }\n");
    fs::create_dir(dataset.path().join("in")).unwrap();
    let batch = types();
    let file = fs::File::create(dataset.path().join("in/a.parquet")).unwrap();
    let mut writer = parquet::arrow::ArrowWriter::try_new(file, batch.schema(), None).unwrap();
    writer.write(&batch).unwrap();
    writer.close().unwrap();

    let reference = dataset.read(None, 2, 0);
    assert_eq!(reference.iter().map(RecordBatch::num_rows).collect::<Vec<_>>(), [2, 2, 1]);
    let whole = arrow::compute::concat_batches(&reference[0].schema(), &reference).unwrap();
    for (name, expected) in batch.schema().fields().iter().map(|f| f.name()).zip(batch.columns()) {
        // Text and bytes are large, dictionaries are unpacked; the values are the same.
        let found = whole.column_by_name(name).unwrap();
        let same = arrow::compute::cast(expected, found.data_type()).unwrap();
        assert_eq!(found.to_data(), same.to_data(), "{name}");
    }
    let type_of = |name: &str| whole.column_by_name(name).unwrap().data_type().clone();
    assert_eq!(type_of("words"), DataType::LargeUtf8);
    assert_eq!(type_of("bytes"), DataType::LargeBinary);
    for name in ["decimals", "zoned", "offset", "unzoned", "nanos", "dates", "fixed", "lists", "nothing"] {
        assert_eq!(type_of(name), *batch.column_by_name(name).unwrap().data_type());
    }
    for container in [Container::Arrow, Container::Parquet] {
        for codec in [Codec::None, Codec::Lz4, Codec::Zstd(3)] {
            let done = dataset.materialize(&["concatenated"], Some((container, codec))).unwrap();
            assert_eq!(done.outcome.computed_shards, 1);
            assert_eq!(dataset.read(None, 2, 0), reference, "{container} {codec}");
            let opened = from_store(store_at(dataset.store().to_str().unwrap()), "types", Which::Current).unwrap();
            let batching = Batching::new(2, 0, 1, Tail::Short).unwrap();
            let reading = Reading { split: None, stage: None, batching, shuffle: None, seed: 0, prefetch: 0 };
            let reader = opened.reader(&reading, Pool::new(1).unwrap()).unwrap();
            let alone: Vec<_> = reader.epoch(0, 0).unwrap().map(|b| b.unwrap().rows).collect();
            assert_eq!(alone, reference, "{container} {codec} from the store alone");
            fs::remove_dir_all(dataset.store()).unwrap();
        }
    }
}

#[test]
fn an_archive_too_large_to_hold_is_stored_but_not_read_without_a_stage() {
    let dataset =
        Dataset::new("name: big\nsource: { tar: big.tar.zst }\nsteps: [ table.select: { columns: [cls] } ]\n");
    let mut tar = tar::Builder::new(zstd::stream::write::Encoder::new(Vec::new(), 1).unwrap());
    for name in ["a.bin", "a.cls", "b.bin", "b.cls", "c.bin", "c.cls"] {
        let bytes = if name.ends_with("bin") { 400 << 20 } else { 1 };
        let mut header = tar::Header::new_gnu();
        header.set_size(bytes);
        tar.append_data(&mut header, name, std::io::Read::take(std::io::repeat(b'7'), bytes)).unwrap();
    }
    let bytes = tar.into_inner().unwrap().finish().unwrap();
    fs::write(dataset.path().join("big.tar.zst"), &bytes).unwrap();
    let checked = succeed(dataset.path(), &["check", "pipeline.yaml"]);
    for words in ["at most 2.1 GB of source bytes", "big.tar.zst holds 1.3 GB decompressed"] {
        assert!(checked.contains(words), "{words:?} is not in {checked}");
    }
    let read = || forebay(dataset.path(), &["read", "pipeline.yaml", "--jobs", "1"]);
    let refused = String::from_utf8(read().stderr).unwrap();
    for words in ["no stage of big.tar.zst is stored", "more than 1.1 GB", "forebay materialize"] {
        assert!(refused.contains(words), "{words:?} is not in {refused}");
    }
    succeed(dataset.path(), &["materialize", "pipeline.yaml", "--yes"]);
    assert!(read().status.success());
}

/// Set for the process whose memory is watched: the directory of its dataset.
const WATCHED: &str = "FOREBAY_TEST_MEMORY";

fn resident_kib() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).unwrap();
    line.trim().trim_end_matches("kB").trim().parse().unwrap()
}

/// Not a test but the process whose memory is watched, when it is told where: ten epochs by one reader, and after each
/// how much memory is held.
#[test]
fn reader_of_ten_epochs() {
    let Some(directory) = std::env::var_os(WATCHED) else { return };
    let directory = Path::new(&directory);
    let opened = from_store(store_at(directory.join(".forebay").to_str().unwrap()), "photos", Which::Current).unwrap();
    let batching = Batching::new(32, 0, 1, Tail::Short).unwrap();
    let reading = Reading { split: Some("train"), stage: None, batching, shuffle: Some(true), seed: 0, prefetch: 0 };
    let reader = opened.reader(&reading, Pool::new(2).unwrap()).unwrap();
    let mut report = fs::File::create(directory.join("resident")).unwrap();
    for epoch in 0..10 {
        let rows: usize = reader.epoch(epoch, 0).unwrap().map(|batch| batch.unwrap().rows.num_rows()).sum();
        assert_eq!(rows as u64, reader.rows());
        writeln!(report, "{}", resident_kib()).unwrap();
    }
}

#[test]
fn memory_is_flat_over_ten_epochs() {
    if !Path::new("/proc/self/status").exists() {
        println!("NOT TESTED: this system does not say how much memory a process holds");
        return;
    }
    let dataset = Dataset::with_photos(&PHOTOS.replace("shorter_side: 40", "shorter_side: 128"), 120);
    for encoding in [(Container::Arrow, Codec::None), (Container::Parquet, Codec::Zstd(3))] {
        let _ = fs::remove_dir_all(dataset.store());
        dataset.materialize(&["resize"], Some(encoding)).unwrap();
        let status = Command::new(std::env::current_exe().unwrap())
            .args(["wild::reader_of_ten_epochs", "--exact", "--quiet"])
            .env(WATCHED, dataset.path())
            .stdout(Stdio::null())
            .status()
            .unwrap();
        assert!(status.success());
        let report = fs::read_to_string(dataset.path().join("resident")).unwrap();
        let kib: Vec<u64> = report.lines().map(|line| line.parse().unwrap()).collect();
        assert_eq!(kib.len(), 10);
        println!("{encoding:?}: KiB after each epoch: {kib:?}");
        let early = kib[1..4].iter().max().unwrap();
        let late = kib[7..].iter().min().unwrap();
        assert!(*late <= early + 4096, "memory grows: {kib:?}");
    }
}
