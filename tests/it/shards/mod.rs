//! The shard codec from outside: every type in every encoding comes back equal, bytes are a function of values, damage is
//! found wherever it is, and other tools read the same values.

mod damage;
mod peers;
mod round_trip;

use arrow::array::*;
use arrow::buffer::Buffer;
use arrow::datatypes::*;
use forebay::format::encoding::Encoding;
use forebay::format::record::Part;
use forebay::format::shard::tensor::{self, DType, FixedBuilder, VariableBuilder};
use forebay::format::shard::{Encoder, PartReader};
use half::f16;
use std::sync::Arc;

pub const ENCODINGS: [&str; 10] = [
    "arrow-none",
    "arrow-lz4",
    "arrow-zstd-1",
    "arrow-zstd-19",
    "parquet-none",
    "parquet-lz4",
    "parquet-zstd-3",
    "parquet-zstd-22",
    "parquet-snappy",
    "parquet-gzip-6",
];

pub fn encoding(text: &str) -> Encoding {
    text.parse().unwrap()
}

/// A whole part of these chunks.
pub fn write(schema: &SchemaRef, chunks: &[RecordBatch], encoding: Encoding) -> (Vec<u8>, Part) {
    let encoder = Encoder::new(schema.clone(), encoding).unwrap();
    let mut part = encoder.part(Vec::new()).unwrap();
    for chunk in chunks {
        part.append(encoder.encode(chunk).unwrap()).unwrap();
    }
    part.finish().unwrap()
}

pub fn open(bytes: &[u8], part: &Part, schema: &SchemaRef, encoding: Encoding) -> PartReader {
    PartReader::open(Buffer::from(bytes), part, schema.clone(), encoding).unwrap()
}

pub fn batch(columns: Vec<(Field, ArrayRef)>) -> RecordBatch {
    let (fields, arrays): (Vec<_>, Vec<_>) = columns.into_iter().unzip();
    RecordBatch::try_new(Arc::new(Schema::new(fields)), arrays).unwrap()
}

pub fn keys(rows: usize) -> Vec<(Field, ArrayRef)> {
    let keys = LargeStringArray::from_iter_values((0..rows).map(|row| format!("class/{row:05}.jpg")));
    let errors = LargeStringArray::from_iter((0..rows).map(|row| (row % 4 == 1).then_some("cut short")));
    vec![
        (Field::new("_key", DataType::LargeUtf8, false), Arc::new(keys) as ArrayRef),
        (Field::new("_error", DataType::LargeUtf8, true), Arc::new(errors)),
    ]
}

/// Pseudo-random bytes that compress a little.
pub fn noise(count: usize, mut seed: u64) -> Vec<u8> {
    let mut next = || {
        seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (seed >> 58) as u8
    };
    (0..count).map(|_| next()).collect()
}

/// Tensors of three types, with nulls where `_error` is set, ragged ones among them empty ones.
pub fn tensors(rows: usize) -> Vec<(Field, ArrayRef)> {
    let mut image = FixedBuilder::new(DType::U8, &[4, 5, 3], rows).unwrap();
    let mut feature = FixedBuilder::new(DType::F32, &[2, 2], rows).unwrap();
    let mut narrow = FixedBuilder::new(DType::F16, &[3], rows).unwrap();
    let uniform = [None, None, Some(3)];
    let mut ragged = VariableBuilder::new(DType::I16, &uniform).unwrap();
    for row in 0..rows {
        let value = row as f32;
        feature.append_slot::<f32>().copy_from_slice(&[value, 0.5, -value, 1e-30]);
        narrow.append_slot::<f16>().fill(f16::from_f32(value / 4.0));
        if row % 4 == 1 {
            image.append_null();
            ragged.append_null();
        } else {
            image.append(&noise(60, row as u64)).unwrap();
            let slot = ragged.append_slot::<i16>(&[row % 3, 2, 3]).unwrap();
            slot.iter_mut().zip(-2i16..).for_each(|(slot, value)| *slot = value.wrapping_mul(row as i16));
        }
    }
    vec![
        (tensor::fixed_field("image", DType::U8, &[4, 5, 3]).unwrap(), image.finish().unwrap()),
        (tensor::fixed_field("feature", DType::F32, &[2, 2]).unwrap(), feature.finish().unwrap()),
        (tensor::fixed_field("narrow", DType::F16, &[3]).unwrap(), narrow.finish().unwrap()),
        (tensor::variable_field("ragged", DType::I16, &uniform).unwrap(), ragged.finish().unwrap()),
    ]
}

/// Seven rows of every other kind of column.
pub fn kinds() -> RecordBatch {
    let item = |data_type| Arc::new(Field::new_list_field(data_type, true));
    let pair = DataType::Struct(
        vec![Field::new("a", DataType::Int32, true), Field::new("b", DataType::LargeUtf8, true)].into(),
    );
    let nested = DataType::Struct(vec![Field::new("in", pair.clone(), true)].into());
    let fields = vec![
        Field::new("flag", DataType::Boolean, true),
        Field::new("count", DataType::Int64, true),
        Field::new("small", DataType::UInt8, false),
        Field::new("ratio", DataType::Float64, true),
        Field::new("price", DataType::Decimal128(20, 3), true),
        Field::new("wide", DataType::Decimal256(50, 2), true),
        Field::new("second", DataType::Timestamp(TimeUnit::Second, None), true),
        Field::new("day", DataType::Date32, true),
        Field::new("date", DataType::Date64, true),
        Field::new("time", DataType::Time64(TimeUnit::Nanosecond), true),
        Field::new("clock", DataType::Time32(TimeUnit::Second), true),
        Field::new("text", DataType::Utf8, true),
        Field::new("title", DataType::LargeUtf8, true),
        Field::new("pairs", DataType::List(item(pair.clone())), true),
        Field::new("deep", DataType::LargeList(item(DataType::List(item(DataType::Int32)))), true),
        Field::new("nested", nested, true),
        Field::new("two", DataType::FixedSizeList(item(DataType::Float64), 2), true),
        Field::new("nothing", DataType::Null, true),
    ];
    let lines = r#"
        {"flag":true,"count":1,"small":0,"ratio":0.25,"price":"12.345","wide":"-1.25","second":"1969-12-31T23:59:59","day":"2024-02-29","date":"2024-02-29","time":"23:59:59.123456789","clock":"00:00:01","text":"ä","title":"one","pairs":[{"a":1,"b":"x"},null,{"a":null,"b":""}],"deep":[[1,null],null,[]],"nested":{"in":{"a":5,"b":"y"}},"two":[1.5,2.5],"nothing":null}
        {"small":1}
        {"flag":false,"count":-9223372036854775808,"small":255,"ratio":-0.0,"price":"-99999999999999999.999","wide":"123456789012345678901234567890.12","title":"one","pairs":[],"deep":[],"nested":{"in":null},"two":[null,0]}
        {"small":3,"text":"","title":"","pairs":[{"a":7}],"deep":[[2],[3,4]],"nested":{},"two":null}
        {"small":4,"title":"three","pairs":null,"deep":null,"nested":null}
        {"small":5,"flag":null,"count":9223372036854775807}
        {"small":6,"flag":true,"text":"last","pairs":[{"b":"z"}],"deep":[[null]],"nested":{"in":{"a":1}}}
    "#;
    let mut reader =
        arrow::json::ReaderBuilder::new(Arc::new(Schema::new(fields))).build(std::io::Cursor::new(lines)).unwrap();
    let rows = reader.next().unwrap().unwrap();
    let count = rows.num_rows();
    assert_eq!(count, 7);
    let mut columns = keys(count);
    columns.push((Field::new("_row", DataType::UInt32, false), Arc::new(UInt32Array::from_iter_values(0..7))));
    let schema = rows.schema();
    columns.extend(schema.fields().iter().map(|field| field.as_ref().clone()).zip(rows.columns().to_vec()));
    let some = |row: usize| row % 3 != 2;
    let blob = LargeBinaryArray::from_iter((0..7).map(|row| some(row).then(|| vec![row as u8; row * 3])));
    columns.push((Field::new("blob", DataType::LargeBinary, true), Arc::new(blob)));
    let fixed =
        FixedSizeBinaryArray::try_from_sparse_iter_with_size((0..7).map(|row| some(row).then_some([row as u8; 3])), 3);
    columns.push((Field::new("code", DataType::FixedSizeBinary(3), true), Arc::new(fixed.unwrap())));
    let duration = DurationMillisecondArray::from_iter((0..7).map(|row| some(row).then_some(row as i64 * 1000)));
    columns.push((Field::new("took", DataType::Duration(TimeUnit::Millisecond), true), Arc::new(duration)));
    let zoned =
        TimestampMicrosecondArray::from_iter((0..7).map(|row| some(row).then_some(row as i64 * 1_234_567_890_123)));
    let zoned = zoned.with_timezone("Europe/Berlin");
    columns.push((Field::new("zoned", zoned.data_type().clone(), true), Arc::new(zoned)));
    let half = Float16Array::from_iter((0..7).map(|row| some(row).then_some(f16::from_f32(row as f32))));
    columns.push((Field::new("half", DataType::Float16, true), Arc::new(half)));
    let label: DictionaryArray<Int8Type> = (0..7).map(|row| some(row).then_some(["cat", "dog"][row % 2])).collect();
    columns.push((Field::new("label", label.data_type().clone(), true), Arc::new(label.clone())));
    let offsets = arrow::buffer::OffsetBuffer::from_lengths([2, 0, 1, 1, 3, 0, 0]);
    let labels = ListArray::new(item(label.data_type().clone()), offsets, Arc::new(label), None);
    columns.push((Field::new("labels", labels.data_type().clone(), true), Arc::new(labels)));
    let mut map = MapBuilder::new(None, StringBuilder::new(), Int32Builder::new());
    for row in 0..7 {
        for entry in 0..row % 3 {
            map.keys().append_value(format!("k{entry}"));
            map.values().append_option(some(row).then_some(row as i32));
        }
        map.append(some(row)).unwrap();
    }
    let map = map.finish();
    columns.push((Field::new("map", map.data_type().clone(), true), Arc::new(map)));
    columns.extend(tensors(7));
    batch(columns)
}
