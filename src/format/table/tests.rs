//! Tables: round trips, what is refused, damage, and speed.

use super::*;
use crate::error::Kind;
use crate::format::entry::{Identity, Range};
use arrow::array::{ArrayRef, DictionaryArray, StringArray, StructArray, TimestampMillisecondArray};
use arrow::datatypes::{Int32Type, Schema};

fn entry(n: u32) -> Entry {
    let digest = Digest::of(&n.to_le_bytes());
    let (identity, range) = match n % 5 {
        0 => (Identity::Content(digest), None),
        1 => (Identity::Etag { etag: "\"x:y\"".into(), bytes: 7 }, Some(Range::Group(3))),
        2 => {
            let stat = Identity::Stat { root: "file:///a:b".into(), bytes: u64::MAX, modified_ns: i64::MIN };
            (stat, Some(Range::Rows { start: 0, end: u64::MAX }))
        }
        3 => (Identity::Row(digest), Some(Range::Bytes { start: 5, end: 5 })),
        _ => (Identity::Absent, None),
    };
    Entry {
        key: format!("class {}/ä{n}.jpg", n % 3),
        file: n.is_multiple_of(2).then(|| "a.tar".into()),
        identity,
        range,
        bytes: u64::from(n) << 40,
        rows: 1,
        partition: n / 4,
    }
}

fn entries(n: u32) -> Entries {
    Entries { entries: (0..n).map(entry).collect(), carried: None }
}

fn carried(n: usize) -> RecordBatch {
    let labels: DictionaryArray<Int32Type> = (0..n).map(|i| (i % 3 > 0).then_some("cat")).collect();
    let text: StringArray = (0..n).map(|i| (i % 2 > 0).then(|| format!("row {i}"))).collect();
    let time = TimestampMillisecondArray::from_iter_values(0..n as i64).with_timezone("Europe/Berlin");
    let inner: StructArray = vec![(Arc::new(Field::new("t", DataType::Utf8, true)), Arc::new(text) as ArrayRef)].into();
    RecordBatch::try_from_iter_with_nullable([
        ("label", Arc::new(labels) as ArrayRef, true),
        ("time", Arc::new(time), false),
        ("inner", Arc::new(inner), true),
    ])
    .unwrap()
}

fn shards(n: u32) -> Vec<ShardRow> {
    (0..n)
        .map(|partition| ShardRow {
            partition,
            shard: ShardKey::from_bytes([partition as u8; 32]),
            rows: 10,
            bytes: 1 << 30,
            failed_rows: 1,
            blobs: (0..partition % 3).map(|b| Digest::of(&[b as u8])).collect(),
        })
        .collect()
}

fn orders(n: u32) -> Vec<OrderRow> {
    let row_map = |p: u32| (!p.is_multiple_of(4)).then(|| (0..p % 5).map(|i| i / 2).collect::<Vec<_>>());
    (0..n)
        .map(|partition| {
            let row_map = row_map(partition);
            OrderRow { partition, rows: row_map.as_ref().map_or(9, Vec::len) as u64, row_map }
        })
        .collect()
}

fn buffer(bytes: Vec<u8>) -> Buffer {
    Buffer::from_vec(bytes)
}

#[test]
fn tables_round_trip_and_bytes_are_a_function_of_rows() {
    for n in [0, 1, 5, 40_000] {
        let without = entries(n);
        let with = Entries { carried: Some(carried(n as usize)), ..entries(n) };
        for table in [without, with] {
            let bytes = table.encode().unwrap();
            assert_eq!(Entries::decode(&buffer(bytes.clone())).unwrap(), table);
            assert_eq!(table.encode().unwrap(), bytes);
        }
        let bytes = encode_shards(&shards(n)).unwrap();
        assert_eq!(decode_shards(&buffer(bytes.clone())).unwrap(), shards(n));
        assert_eq!(encode_shards(&shards(n)).unwrap(), bytes);
        let bytes = encode_order(&orders(n)).unwrap();
        assert_eq!(decode_order(&buffer(bytes.clone())).unwrap(), orders(n));
        assert_eq!(encode_order(&orders(n)).unwrap(), bytes);
        let names: Vec<String> = shards(n).iter().map(|row| row.shard.to_string()).collect();
        assert_eq!(decode_names(&buffer(encode_names(&names).unwrap())).unwrap(), names);
    }
}

#[test]
fn unsound_entries_say_what_is_wrong() {
    let error = |change: fn(&mut Vec<Entry>)| {
        let mut table = entries(8);
        change(&mut table.entries);
        let error = Entries::decode(&buffer(table.encode().unwrap())).unwrap_err();
        assert_eq!(error.kind(), Kind::Corrupt);
        error.chain()
    };
    assert!(error(|e| e[7].key = e[0].key.clone()).contains("every key once, found \"class 0/ä0.jpg\" twice"));
    assert!(error(|e| e.iter_mut().for_each(|e| e.partition += 1)).contains("found 1 behind None"));
    assert!(error(|e| e[7].partition = 3).contains("found 3 behind Some(1)"));
    assert!(error(|e| e[7].partition = 0).contains("found 0 behind Some(1)"));
    assert!(
        error(|e| e[0].range = Some(Range::Bytes { start: 2, end: 1 })).contains("(Some(\"bytes\"), Some(2), Some(1))")
    );
    let carried = Some(carried(3));
    assert_eq!(Entries { carried, ..entries(8) }.encode().unwrap_err().kind(), Kind::Internal);
}

#[test]
fn unsound_shards_and_orders_say_what_is_wrong() {
    let mut rows = shards(3);
    rows[2].failed_rows = 11;
    let error = decode_shards(&buffer(encode_shards(&rows).unwrap())).unwrap_err();
    assert!(error.to_string().contains("at most 10 failed rows, found 11"), "{error}");
    rows[2].partition = 1;
    let error = decode_shards(&buffer(encode_shards(&rows).unwrap())).unwrap_err();
    assert!(error.to_string().contains("expected partition 2, found 1"), "{error}");

    let order = |rows, row_map: &[u32]| {
        let row = OrderRow { partition: 0, rows, row_map: Some(row_map.to_vec()) };
        decode_order(&buffer(encode_order(&[row]).unwrap()))
    };
    assert!(order(3, &[0, 0, 2]).is_ok());
    assert!(order(3, &[0, 0]).unwrap_err().to_string().contains("an ascending row map of 3 rows, found 2"));
    assert!(order(2, &[1, 0]).is_err());
}

#[test]
fn other_files_are_refused_by_name() {
    let error = |bytes: Vec<u8>| decode_order(&buffer(bytes)).unwrap_err();
    assert!(error(encode_shards(&[]).unwrap()).to_string().contains("expected that kind, found \"shards\""));
    assert!(error(vec![]).to_string().contains("expected a Parquet file"));
    let plain = |fields: Vec<Field>, columns: Vec<ArrayRef>, mark: Option<&str>| {
        let batch = RecordBatch::try_new(Arc::new(Schema::new(fields)), columns).unwrap();
        let mark = mark.map(|m| vec![parquet::file::metadata::KeyValue::new("forebay".into(), m.to_owned())]);
        let properties = parquet::file::properties::WriterProperties::builder().set_key_value_metadata(mark).build();
        let mut bytes = Vec::new();
        let mut writer = parquet::arrow::ArrowWriter::try_new(&mut bytes, batch.schema(), Some(properties)).unwrap();
        writer.write(&batch).unwrap();
        writer.close().unwrap();
        bytes
    };
    let numbers = || Arc::new(UInt64Array::from(vec![Some(0), None])) as ArrayRef;
    let field = |name: &str| Field::new(name, DataType::UInt64, true);
    let one = |mark| error(plain(vec![field("partition")], vec![numbers()], mark));
    assert!(one(None).to_string().contains("metadata under the key \"forebay\""));
    assert!(one(Some("{}")).to_string().contains("kind and version"));
    assert!(one(Some(r#"{"kind":"order","version":1}"#)).to_string().contains("the columns partition, rows, row_map"));
    let newer = one(Some(r#"{"kind":"order","version":2}"#));
    assert_eq!(newer.kind(), Kind::Invalid);
    assert!(newer.to_string().contains("written by a newer Forebay: version 2"), "{newer}");
    let mark = Some(r#"{"kind":"order","version":1}"#);
    let fields = vec![field("partition"), field("rows"), field("row_map")];
    let nulls = error(plain(fields.clone(), vec![numbers(), numbers(), numbers()], mark));
    assert!(nulls.to_string().contains("no null in column partition, found 1"), "{nulls}");
    let full = || Arc::new(UInt64Array::from(vec![0, 1])) as ArrayRef;
    let types = error(plain(fields, vec![full(), full(), full()], mark));
    assert!(types.to_string().contains("another type of column partition, found UInt64"), "{types}");
}

#[test]
fn damage_never_panics() {
    fn damage<T: PartialEq>(bytes: Vec<u8>, decode: impl Fn(&Buffer) -> Result<T>) {
        for end in 0..bytes.len() {
            assert!(decode(&buffer(bytes[..end].to_vec())).is_err(), "cut at {end}");
        }
        for at in 0..bytes.len() {
            for change in [1, 128, 255] {
                let mut changed = bytes.clone();
                changed[at] ^= change;
                let _ = decode(&buffer(changed));
            }
        }
    }
    damage(Entries { carried: Some(carried(6)), ..entries(6) }.encode().unwrap(), Entries::decode);
    damage(encode_shards(&shards(4)).unwrap(), decode_shards);
    damage(encode_order(&orders(6)).unwrap(), decode_order);
}
