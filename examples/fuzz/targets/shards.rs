//! Parts of shards whose record agrees with the damage: the digests are taken anew, so that the decoders see it.

use super::{Run, Target};
use arrow::array::*;
use arrow::buffer::Buffer;
use arrow::datatypes::{DataType, Field, Int8Type, Schema, SchemaRef};
use forebay::format::encoding::Encoding;
use forebay::format::record::{Part, Span};
use forebay::format::shard::tensor::{self, DType, FixedBuilder, VariableBuilder};
use forebay::format::shard::{Encoder, PartReader};
use forebay::id::Digest;
use std::sync::Arc;

pub const TARGETS: &[Target] = &[
    Target {
        name: "shards",
        corpus: || cases().iter().map(Case::input).collect(),
        tokens: &["PAR1", "ARROW1"],
        open: shards,
    },
    Target {
        name: "hostile-shards",
        corpus: || cases().iter().map(|case| [vec![case.number], case.bytes.clone()].concat()).collect(),
        tokens: &["PAR1", "ARROW1", "\u{ff}\u{ff}"],
        open: hostile_shards,
    },
];

const ENCODINGS: [&str; 8] = [
    "arrow-none",
    "arrow-lz4",
    "arrow-zstd-1",
    "parquet-none",
    "parquet-lz4",
    "parquet-zstd-3",
    "parquet-snappy",
    "parquet-gzip-6",
];

/// A sound part.
struct Case {
    number: u8,
    encoding: Encoding,
    schema: SchemaRef,
    bytes: Vec<u8>,
    part: Part,
}

impl Case {
    /// Its number, the numbers of its record, its bytes.
    fn input(&self) -> Vec<u8> {
        let mut part = self.part.clone();
        let mut input = vec![self.number];
        numbers(&mut part).iter().for_each(|number| input.extend((**number as u32).to_le_bytes()));
        input.extend(&self.bytes);
        input
    }
}

/// Every number of a record but for the part's own length.
fn numbers(part: &mut Part) -> Vec<&mut u64> {
    fn span(span: &mut Span) -> [&mut u64; 2] {
        [&mut span.offset, &mut span.bytes]
    }
    let mut numbers: Vec<&mut u64> = span(&mut part.footer).into();
    for chunk in &mut part.chunks {
        numbers.push(&mut chunk.rows);
        numbers.extend(chunk.head.iter_mut().flat_map(span));
        numbers.extend(chunk.columns.iter_mut().flat_map(span));
    }
    numbers
}

fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for batch in [images(), kinds()] {
        for encoding in ENCODINGS {
            let encoding = encoding.parse().unwrap();
            let encoder = Encoder::new(batch.schema(), encoding).unwrap();
            let mut writer = encoder.part(Vec::new()).unwrap();
            writer.append(encoder.encode(&batch).unwrap()).unwrap();
            writer.append(encoder.encode(&batch.slice(1, 2)).unwrap()).unwrap();
            let (bytes, part) = writer.finish().unwrap();
            cases.push(Case { number: cases.len() as u8, encoding, schema: batch.schema(), bytes, part });
        }
    }
    cases
}

fn own() -> Vec<(Field, ArrayRef)> {
    vec![
        (
            Field::new("_key", DataType::LargeUtf8, false),
            Arc::new(LargeStringArray::from(vec!["a/1.jpg", "a/2.jpg", "b/3.jpg"])),
        ),
        (
            Field::new("_error", DataType::LargeUtf8, true),
            Arc::new(LargeStringArray::from(vec![None, Some("cut short"), None])),
        ),
    ]
}

fn batch(columns: Vec<(Field, ArrayRef)>) -> RecordBatch {
    let (fields, arrays): (Vec<_>, Vec<_>) = columns.into_iter().unzip();
    RecordBatch::try_new(Arc::new(Schema::new(fields)), arrays).unwrap()
}

fn images() -> RecordBatch {
    let mut fixed = FixedBuilder::new(DType::U8, &[2, 3, 3], 3).unwrap();
    let mut ragged = VariableBuilder::new(DType::I16, &[None, None, Some(3)]).unwrap();
    for row in 0..3u8 {
        if row == 1 {
            fixed.append_null();
            ragged.append_null();
        } else {
            fixed.append(&[row; 18]).unwrap();
            ragged.append_slot::<i16>(&[1, usize::from(row), 3]).unwrap().fill(i16::from(row));
        }
    }
    let mut columns = own();
    columns.push((tensor::fixed_field("image", DType::U8, &[2, 3, 3]).unwrap(), fixed.finish().unwrap()));
    let field = tensor::variable_field("ragged", DType::I16, &[None, None, Some(3)]).unwrap();
    columns.push((field, ragged.finish().unwrap()));
    batch(columns)
}

fn kinds() -> RecordBatch {
    let label: DictionaryArray<Int8Type> = [Some("cat"), None, Some("dog")].into_iter().collect();
    let mut lists = ListBuilder::new(Int32Builder::new());
    let mut map = MapBuilder::new(None, StringBuilder::new(), Int32Builder::new());
    for row in 0..3 {
        lists.append_option((row != 1).then(|| (0..row).map(Some)));
        map.keys().append_value(format!("k{row}"));
        map.values().append_option((row > 0).then_some(row));
        map.append(row != 1).unwrap();
    }
    let (lists, map) = (lists.finish(), map.finish());
    let inner = Arc::new(Field::new("t", DataType::LargeUtf8, true));
    let text = Arc::new(LargeStringArray::from(vec![Some("x"), None, Some("")])) as ArrayRef;
    let nested = StructArray::from(vec![(inner, text)]);
    let mut columns = own();
    let arrays: [(&str, ArrayRef); 7] = [
        ("label", Arc::new(label)),
        ("lists", Arc::new(lists)),
        ("map", Arc::new(map)),
        ("nested", Arc::new(nested)),
        ("flag", Arc::new(BooleanArray::from(vec![Some(true), None, Some(false)]))),
        ("bytes", Arc::new(LargeBinaryArray::from(vec![Some(&b"abc"[..]), None, Some(b"")]))),
        ("price", Arc::new(Decimal128Array::from(vec![Some(-7), None, Some(i128::from(u64::MAX))]))),
    ];
    columns.extend(arrays.map(|(name, array)| (Field::new(name, array.data_type().clone(), true), array)));
    batch(columns)
}

/// Damage of the bytes, and of any number of the record, which then passes its own checks or not.
fn shards() -> Run {
    let cases = cases();
    Box::new(move |input| {
        let Some((number, mut rest)) = input.split_first() else { return };
        let case = &cases[usize::from(*number) % cases.len()];
        let mut part = case.part.clone();
        for number in numbers(&mut part) {
            let Some((four, after)) = rest.split_first_chunk::<4>() else { return };
            *number = u32::from_le_bytes(*four).into();
            rest = after;
        }
        read(case, rest, part);
    })
}

/// Damage of the bytes alone, under a record that fits them as far as it can.
fn hostile_shards() -> Run {
    let cases = cases();
    Box::new(move |input| {
        let Some((number, bytes)) = input.split_first() else { return };
        let case = &cases[usize::from(*number) % cases.len()];
        let mut part = case.part.clone();
        // What was inserted or removed is taken to lie in the footer.
        part.footer.bytes = (bytes.len() as u64).saturating_sub(part.footer.offset);
        read(case, bytes, part);
    })
}

fn read(case: &Case, bytes: &[u8], mut part: Part) {
    part.bytes = bytes.len() as u64;
    part.blob = Digest::of(bytes);
    part.rows = part.chunks.iter().map(|chunk| chunk.rows).sum();
    let renew = |span: &mut Span| {
        let (from, to) = (span.offset as usize, span.offset.saturating_add(span.bytes) as usize);
        span.digest = Digest::of(bytes.get(from..to).unwrap_or_default());
    };
    renew(&mut part.footer);
    for chunk in &mut part.chunks {
        chunk.head.iter_mut().for_each(renew);
        chunk.columns.iter_mut().for_each(renew);
    }
    let Ok(reader) = PartReader::open(Buffer::from(bytes), &part, case.schema.clone(), case.encoding) else { return };
    for chunk in 0..reader.chunks() {
        let some = reader.chunk(chunk, Some(&[1, 3]));
        let all = reader.chunk(chunk, None);
        if let Ok(all) = &all {
            // Whoever uses the rows must find them whole.
            assert_eq!(all.num_rows() as u64, part.chunks[chunk].rows);
            all.columns().iter().for_each(|column| column.to_data().validate_full().unwrap());
        }
        if let (Ok(some), Ok(all)) = (some, all) {
            assert_eq!(some, all.project(&[1, 3]).unwrap());
        }
    }
}
