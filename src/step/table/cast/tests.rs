//! Tests of `table.cast`: which values change, which rows fail, lists and tensors.

use crate::format::shard::tensor::{DType, fixed_array, fixed_field, variable_array, variable_field};
use crate::step::table::tests::{batch, build, failures, golden, refused, run, texts};
use arrow::array::*;
use arrow::buffer::Buffer;
use arrow::datatypes::*;
use half::f16;
use std::sync::Arc;

/// Casts the column `x`; the column and the reasons of failed rows.
fn cast(column: ArrayRef, dtype: &str) -> (ArrayRef, Vec<Option<String>>) {
    let input = batch(&[("x", column)], &[]);
    let step = build("table.cast", &format!("{{ columns: {{ x: {dtype} }} }}"), &input.schema());
    let output = run(&*step, &input).batch;
    (output["x"].clone(), failures(&output))
}

fn check<A: Array + 'static>(column: impl Array + 'static, dtype: &str, expected: A, bad: &[usize]) {
    let (found, failed) = cast(Arc::new(column), dtype);
    assert_eq!(found.as_ref(), &expected as &dyn Array, "to {dtype}");
    let rows: Vec<usize> = failed.iter().enumerate().filter(|(_, f)| f.is_some()).map(|(i, _)| i).collect();
    assert_eq!(rows, bad, "to {dtype}: {failed:?}");
}

#[test]
fn integers_never_wrap() {
    check(
        Int32Array::from(vec![0, 255, 256, -1]),
        "uint8",
        UInt8Array::from(vec![Some(0), Some(255), None, None]),
        &[2, 3],
    );
    check(
        UInt64Array::from(vec![0, i64::MAX as u64, i64::MAX as u64 + 1]),
        "int64",
        Int64Array::from(vec![Some(0), Some(i64::MAX), None]),
        &[2],
    );
    check(Int8Array::from(vec![Some(-128), None]), "int16", Int16Array::from(vec![Some(-128), None]), &[]);
}

#[test]
fn floats_become_integers_only_when_whole() {
    check(
        Float64Array::from(vec![1.0, -0.0, 1.5, f64::NAN, f64::INFINITY, 2e19, 18446744073709551616.0]),
        "uint64",
        UInt64Array::from(vec![Some(1), Some(0), None, None, None, None, None]),
        &[2, 3, 4, 5, 6],
    );
    check(
        Float32Array::from(vec![-9223372036854775808.0, 9223372036854775808.0]),
        "int64",
        Int64Array::from(vec![Some(i64::MIN), None]),
        &[1],
    );
    check(Float16Array::from(vec![f16::from_f32(3.0)]), "int8", Int8Array::from(vec![3]), &[]);
}

#[test]
fn floats_round_to_nearest_even_and_never_overflow() {
    check(
        Int64Array::from(vec![16_777_217, 16_777_219]),
        "float32",
        Float32Array::from(vec![16_777_216.0, 16_777_220.0]),
        &[],
    );
    check(
        Float64Array::from(vec![0.1, 1e39, f64::INFINITY, f64::NEG_INFINITY]),
        "float32",
        Float32Array::from(vec![Some(0.1), None, Some(f32::INFINITY), Some(f32::NEG_INFINITY)]),
        &[1],
    );
    check(
        Int32Array::from(vec![65_504, 65_519, 65_520, 2049, 2051]),
        "float16",
        Float16Array::from(vec![
            Some(f16::MAX),
            Some(f16::MAX),
            None,
            Some(f16::from_f32(2048.0)),
            Some(f16::from_f32(2052.0)),
        ]),
        &[2],
    );
    let (found, _) = cast(Arc::new(Float64Array::from(vec![f64::from_bits(0xfff8_0000_0000_1234)])), "float32");
    assert_eq!(found.as_primitive::<Float32Type>().value(0).to_bits(), f32::NAN.to_bits());
}

#[test]
fn bool_is_zero_or_one() {
    check(
        BooleanArray::from(vec![Some(true), Some(false), None]),
        "float32",
        Float32Array::from(vec![Some(1.0), Some(0.0), None]),
        &[],
    );
    check(Int32Array::from(vec![0, 1, 2]), "bool", BooleanArray::from(vec![Some(false), Some(true), None]), &[2]);
}

#[test]
fn texts_are_read_and_written() {
    let column = StringArray::from(vec!["12", "-1", " 3", "", "1.0", "300", "+7"]);
    check(column, "uint8", UInt8Array::from(vec![Some(12), None, None, None, None, None, Some(7)]), &[1, 2, 3, 4, 5]);
    let column = LargeStringArray::from(vec!["0.1", "-1e3", "inf", "1e39", "x"]);
    check(
        column,
        "float32",
        Float32Array::from(vec![Some(0.1), Some(-1000.0), Some(f32::INFINITY), None, None]),
        &[3, 4],
    );
    check(
        StringArray::from(vec!["true", "False", "yes"]),
        "bool",
        BooleanArray::from(vec![Some(true), Some(false), None]),
        &[2],
    );
    check(
        Float32Array::from(vec![Some(0.1), Some(1.0), Some(1e30), None]),
        "string",
        LargeStringArray::from(vec![Some("0.1"), Some("1.0"), Some("1e30"), None]),
        &[],
    );
    check(Int8Array::from(vec![-5]), "large_utf8", LargeStringArray::from(vec!["-5"]), &[]);
    check(BooleanArray::from(vec![true]), "string", LargeStringArray::from(vec!["true"]), &[]);
    let dictionary: DictionaryArray<Int32Type> = [Some("5"), None].into_iter().collect();
    check(dictionary, "int8", Int8Array::from(vec![Some(5), None]), &[]);
    let (_, failed) = cast(texts(&[Some("twelve")]), "int8");
    assert_eq!(failed[0].as_deref(), Some("x: \"twelve\" is no Int8"));
}

#[test]
fn a_row_that_fails_has_nulls_in_every_column_written() {
    let x: ArrayRef = Arc::new(Int32Array::from(vec![1, 300, 3, 4]));
    let y: ArrayRef = Arc::new(Float32Array::from(vec![1.0, 2.0, 3.5, 4.0]));
    let z: ArrayRef = Arc::new(Int32Array::from(vec![1, 2, 3, 4]));
    let input = batch(&[("x", x), ("y", y), ("z", z.clone())], &[3]);
    let step = build("table.cast", "{ columns: { x: uint8, y: int8 } }", &input.schema());
    let output = run(&*step, &input).batch;
    assert_eq!(output["x"].as_ref(), &UInt8Array::from(vec![Some(1), None, None, None]) as &dyn Array);
    assert_eq!(output["y"].as_ref(), &Int8Array::from(vec![Some(1), None, None, None]) as &dyn Array);
    assert_eq!(output["z"].as_ref(), z.as_ref());
    let reasons =
        [None, Some("x: 300 is no UInt8".into()), Some("y: 3.5 is no Int8".into()), Some("undecodable".into())];
    assert_eq!(failures(&output), reasons);
    assert_eq!(golden(&output), "dc5a2b0420df");
}

#[test]
fn lists_and_tensors_keep_their_shape() {
    // A list: its own nulls stay, a bad element fails the row, what a null row hides is not looked at.
    let lists = ListArray::from_iter_primitive::<Int64Type, _, _>(vec![
        Some(vec![Some(1), None]),
        None,
        Some(vec![Some(2), Some(1 << 40), Some(1 << 41)]),
        Some(vec![]),
    ]);
    let (found, failed) = cast(Arc::new(lists), "int32");
    let expected =
        ListArray::from_iter_primitive::<Int32Type, _, _>(vec![Some(vec![Some(1), None]), None, None, Some(vec![])]);
    assert_eq!(found.as_ref(), &expected as &dyn Array);
    assert_eq!(failed[2].as_deref(), Some("x: 1099511627776 is no Int32"));

    // A tensor of fixed shape.
    let nulls = Some(vec![true, false, true].into());
    let tensor = fixed_array(DType::U8, &[2, 2], Buffer::from_vec((0..12_u8).collect()), nulls).unwrap();
    let field = fixed_field("x", DType::U8, &[2, 2]).unwrap();
    let input = with_field(batch(&[("x", tensor)], &[]), field);
    let step = build("table.cast", "{ columns: { x: float16 } }", &input.schema());
    assert_eq!(step.output_schema().field(2), &fixed_field("x", DType::F16, &[2, 2]).unwrap());
    let output = run(&*step, &input).batch;
    let row = output["x"].as_fixed_size_list().value(2);
    let halves: Vec<f32> = row.as_primitive::<Float16Type>().values().iter().map(|v| v.to_f32()).collect();
    assert_eq!(halves, [8.0, 9.0, 10.0, 11.0]);
    assert!(output["x"].is_null(1));
    assert_eq!(golden(&output), "16d0b260f27e");
}

#[test]
fn tensors_of_variable_shape() {
    let values = Buffer::from_vec(vec![1.0_f32, 2.0, 3.0, 4.5]);
    let tensor = variable_array(DType::F32, 2, values, [1, 2, 1], vec![1, 1, 1, 2, 1, 1], None).unwrap();
    let field = variable_field("x", DType::F32, &[Some(1), None]).unwrap();
    let input = with_field(batch(&[("x", tensor)], &[]), field);
    let step = build("table.cast", "{ columns: { x: int16 } }", &input.schema());
    assert_eq!(step.output_schema().field(2), &variable_field("x", DType::I16, &[Some(1), None]).unwrap());
    let output = run(&*step, &input).batch;
    let lists = output["x"].as_struct().column(0).as_list::<i32>();
    assert_eq!(lists.value(1).as_ref(), &Int16Array::from(vec![2, 3]) as &dyn Array);
    assert_eq!(failures(&output), [None, None, Some("x: 4.5 is no Int16".into())]);
    assert!(output["x"].is_null(2));
}

fn with_field(batch: RecordBatch, field: Field) -> RecordBatch {
    let mut fields: Vec<FieldRef> = batch.schema().fields().iter().cloned().collect();
    fields[2] = Arc::new(field);
    batch.with_schema(Arc::new(Schema::new(fields))).unwrap()
}

#[test]
fn what_cannot_be_cast_is_refused() {
    let input = batch(
        &[
            ("bytes", Arc::new(LargeBinaryArray::from(vec![&b"a"[..]]))),
            ("list", Arc::new(ListArray::from_iter_primitive::<Int8Type, _, _>([Some([Some(1)])]))),
        ],
        &[],
    );
    for (params, expected) in [
        (
            "{ columns: { bytes: int8 } }",
            "t.yaml:1:27: step.columns.bytes: can't cast the column \"bytes\" of type bytes to int8",
        ),
        ("{ columns: { list: string } }", "can't cast the column \"list\""),
        ("{ columns: { lits: int8 } }", "did you mean \"list\"?"),
        ("{ columns: { list: int31 } }", "int3"),
        ("{ columns: { _error: string } }", "begins with `_`"),
        ("{ columns: {} }", "expected at least one column"),
        ("{}", "columns"),
    ] {
        let found = refused("table.cast", params, &input.schema());
        assert!(found.contains(expected), "{params}: {found}");
    }
}
