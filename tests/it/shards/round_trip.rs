//! Values come back equal and bytes are a function of values.

use super::*;
use arrow::buffer::OffsetBuffer;
use forebay::error::Kind;

fn check(chunks: &[RecordBatch], encoding_text: &str) {
    let encoding = encoding(encoding_text);
    let schema = chunks[0].schema();
    let (bytes, part) = write(&schema, chunks, encoding);
    assert_eq!(part.bytes, bytes.len() as u64);
    assert_eq!(part.rows, chunks.iter().map(|chunk| chunk.num_rows() as u64).sum::<u64>());
    let reader = open(&bytes, &part, &schema, encoding);
    assert_eq!(reader.verify().len(), 0);
    assert_eq!(reader.chunks(), chunks.len());
    for (index, chunk) in chunks.iter().enumerate() {
        let found = reader.chunk(index, None).unwrap();
        for (field, (found, want)) in schema.fields().iter().zip(found.columns().iter().zip(chunk.columns())) {
            assert_eq!(found, want, "{encoding_text}: {}", field.name());
        }
        assert_eq!(&found, chunk, "{encoding_text}");
        for column in 0..schema.fields().len() {
            assert_eq!(reader.chunk(index, Some(&[column])).unwrap(), chunk.project(&[column]).unwrap());
        }
        let some: Vec<usize> = (0..schema.fields().len()).step_by(3).collect();
        assert_eq!(reader.chunk(index, Some(&some)).unwrap(), chunk.project(&some).unwrap());
        assert_eq!(reader.chunk(index, Some(&[])).unwrap().num_rows(), chunk.num_rows());
    }
    let again = write(&schema, chunks, encoding);
    assert!(again == (bytes, part), "{encoding_text}: other bytes when written again");
}

#[test]
fn every_kind_of_column_in_every_encoding() {
    let all = kinds();
    for encoding in ENCODINGS {
        check(&[all.clone(), all.slice(1, 4), all.slice(3, 0), all.slice(6, 1)], encoding);
    }
}

#[test]
fn a_slice_is_written_as_if_it_were_built_alone() {
    // Through take every array is built anew.
    let all = kinds();
    let slice = all.slice(2, 4);
    let alone = arrow::compute::take_record_batch(&all, &UInt32Array::from(vec![2, 3, 4, 5])).unwrap();
    for text in ["arrow-none", "parquet-none"] {
        let encoding = encoding(text);
        let schema = all.schema();
        assert!(
            write(&schema, std::slice::from_ref(&slice), encoding)
                == write(&schema, std::slice::from_ref(&alone), encoding),
            "{text}"
        );
    }
}

#[test]
fn many_rows_fill_several_pages_and_all_null_columns_are_kept() {
    let rows = 50_000;
    let mut columns = keys(rows);
    columns.extend(tensors(rows));
    let missing = new_null_array(&DataType::LargeUtf8, rows);
    columns.push((Field::new("missing", DataType::LargeUtf8, true), missing));
    let image = tensor::fixed_field("gone", DType::U8, &[2]).unwrap();
    let gone = new_null_array(image.data_type(), rows);
    columns.push((image, gone));
    let chunk = batch(columns);
    for encoding in ["arrow-zstd-1", "parquet-zstd-1", "parquet-none"] {
        check(std::slice::from_ref(&chunk), encoding);
    }
}

#[test]
fn a_part_without_chunks_and_one_without_columns() {
    for text in ENCODINGS {
        let encoding = encoding(text);
        let schema = kinds().schema();
        let (bytes, part) = write(&schema, &[], encoding);
        let reader = open(&bytes, &part, &schema, encoding);
        assert_eq!((reader.chunks(), part.rows, reader.verify().len()), (0, 0, 0));
    }
}

#[test]
fn without_a_codec_arrow_arrays_lie_in_the_parts_bytes() {
    let encoding = encoding("arrow-none");
    let mut columns = keys(9);
    columns.extend(tensors(9));
    let chunk = batch(columns);
    let (bytes, part) = write(&chunk.schema(), std::slice::from_ref(&chunk), encoding);
    let bytes = Buffer::from(bytes.as_slice());
    let range = bytes.as_ptr_range();
    let reader = PartReader::open(bytes.clone(), &part, chunk.schema(), encoding).unwrap();
    let found = reader.chunk(0, None).unwrap();
    for (index, span) in part.chunks[0].columns.iter().enumerate() {
        assert_eq!(span.offset % 64, 0, "column {index}");
    }
    for name in ["image", "feature", "narrow"] {
        let values = found.column_by_name(name).unwrap().as_fixed_size_list().values().to_data();
        assert!(range.contains(&values.buffers()[0].as_ptr()), "{name} was copied");
    }
    assert!(range.contains(&found.column(0).as_string::<i64>().values().as_ptr()));
}

#[test]
fn one_value_of_300_mb() {
    let huge = noise(300 << 20, 3);
    let value = LargeBinaryArray::try_new(OffsetBuffer::from_lengths([huge.len()]), huge.into(), None).unwrap();
    let mut columns = keys(1);
    columns.push((Field::new("video", DataType::LargeBinary, true), Arc::new(value)));
    let chunk = batch(columns);
    for text in ["arrow-none", "arrow-lz4", "parquet-lz4"] {
        let encoding = encoding(text);
        let (bytes, part) = write(&chunk.schema(), std::slice::from_ref(&chunk), encoding);
        let reader = open(&bytes, &part, &chunk.schema(), encoding);
        assert!(reader.chunk(0, None).unwrap() == chunk, "{text}");
    }
}

#[test]
fn what_cannot_be_stored_is_refused_by_name() {
    let item = Arc::new(Field::new_list_field(DataType::Int32, true));
    let refused = [
        DataType::Utf8View,
        DataType::List(Arc::new(Field::new_list_field(DataType::BinaryView, true))),
        DataType::Interval(IntervalUnit::DayTime),
        DataType::ListView(item.clone()),
        DataType::FixedSizeList(item, 0),
        DataType::Struct(Fields::empty()),
    ];
    for data_type in refused {
        for text in ["arrow-none", "parquet-none"] {
            let schema = Schema::new(vec![Field::new("odd", data_type.clone(), true)]);
            let error = Encoder::new(Arc::new(schema), encoding(text)).unwrap_err();
            assert_eq!(error.kind(), Kind::Invalid);
            assert!(error.message().contains("\"odd\""), "{}", error.message());
        }
    }
    let clash = Schema::new(vec![
        tensor::variable_field("x", DType::U8, &[None]).unwrap(),
        Field::new("x_shape", DataType::Int32, true),
    ]);
    let error = Encoder::new(Arc::new(clash), encoding("parquet-none")).unwrap_err();
    assert!(error.message().contains("\"x_shape\""), "{}", error.message());

    let (field, array) = tensors(1).swap_remove(1);
    let values = Float32Array::from(vec![Some(1.0), None, None, None]);
    let holes =
        FixedSizeListArray::new(Arc::new(Field::new_list_field(DataType::Float32, true)), 4, Arc::new(values), None);
    assert_eq!(holes.data_type(), array.data_type());
    let chunk = batch(vec![(field, Arc::new(holes))]);
    let encoder = Encoder::new(chunk.schema(), encoding("parquet-none")).unwrap();
    assert_eq!(encoder.encode(&chunk).err().unwrap().kind(), Kind::Invalid);
}

#[test]
fn another_schema_is_corrupt() {
    let mut columns = keys(3);
    columns.extend(tensors(3));
    let chunk = batch(columns);
    for text in ENCODINGS {
        let encoding = encoding(text);
        let (bytes, part) = write(&chunk.schema(), std::slice::from_ref(&chunk), encoding);
        let mut fields: Vec<_> = chunk.schema().fields().to_vec();
        fields[1] = Arc::new(Field::new("_error", DataType::Utf8, true));
        // Arrow strings of another width are other columns; Parquet's are the same bytes under another name.
        let renamed = Arc::new(Field::new("other", DataType::LargeUtf8, true));
        for field in [fields[1].clone(), renamed] {
            fields[1] = field;
            let other = Arc::new(Schema::new(fields.clone()));
            let opened = PartReader::open(Buffer::from(bytes.as_slice()), &part, other, encoding);
            if text.starts_with("arrow") || fields[1].name() == "other" {
                assert_eq!(opened.unwrap_err().kind(), Kind::Corrupt, "{text}");
            }
        }
    }
}

#[test]
fn a_chunk_in_parts_is_written_as_if_joined() {
    // Large rows stay where they are, small ones are joined first: both ways.
    for row_bytes in [10, 200_000] {
        let kinds = kinds();
        let payload = LargeBinaryArray::from_iter_values((0..7).map(|row| noise(row_bytes, row)));
        let item = Arc::new(Field::new_list_field(DataType::UInt8, true));
        let lists = FixedSizeBinaryArray::try_from_iter((0..7u8).map(|row| [row, 1, 2])).unwrap();
        let bytes = FixedSizeListArray::new(item.clone(), 2, Arc::new(UInt8Array::from_iter_values(0..14)), None);
        let mut columns: Vec<(Field, ArrayRef)> =
            vec![(Field::new("own_payload", DataType::LargeBinary, true), Arc::new(payload))];
        columns.push((Field::new("own_three", DataType::FixedSizeBinary(3), true), Arc::new(lists)));
        columns.push((Field::new("own_bytes", DataType::FixedSizeList(item, 2), true), Arc::new(bytes)));
        let fields = kinds.schema().fields().iter().map(|field| field.as_ref().clone()).collect::<Vec<_>>();
        columns.extend(fields.into_iter().zip(kinds.columns().iter().cloned()));
        let whole = batch(columns);
        for text in ENCODINGS {
            let encoder = Encoder::new(whole.schema(), encoding(text)).unwrap();
            let written = |chunk| {
                let mut part = encoder.part(Vec::new()).unwrap();
                part.append(chunk).unwrap();
                part.finish().unwrap()
            };
            let joined = written(encoder.encode(&whole).unwrap());
            for cuts in [vec![0, 7], vec![0, 1, 2, 3, 4, 5, 6, 7], vec![0, 0, 3, 3, 7, 7]] {
                let parts: Vec<_> = cuts.windows(2).map(|cut| whole.slice(cut[0], cut[1] - cut[0])).collect();
                assert!(written(encoder.encode_parts(&parts).unwrap()) == joined, "{text}, cut at {cuts:?}");
            }
            let read = open(&joined.0, &joined.1, &whole.schema(), encoding(text)).chunk(0, None).unwrap();
            assert_eq!(read, whole, "{text}");
        }
    }
}
