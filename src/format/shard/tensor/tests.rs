//! Fields, arrays and views of tensors.

use super::*;
use arrow::array::Array;

#[test]
fn fields_say_what_they_were_made_of() {
    for dtype in DType::ALL {
        let fixed = fixed_field("x", dtype, &[4, 5, 3]).unwrap();
        assert_eq!(kind(&fixed).unwrap(), Kind::Fixed { dtype, shape: vec![4, 5, 3] });
        let uniform = vec![None, None, Some(3)];
        let variable = variable_field("x", dtype, &uniform).unwrap();
        assert_eq!(kind(&variable).unwrap(), Kind::Variable { dtype, ndim: 3, uniform });
        assert_eq!(DType::from_name(dtype.name()), Some(dtype));
    }
    assert_eq!(kind(&Field::new("n", DataType::Int64, true)).unwrap(), Kind::NotTensor);
    assert_eq!(
        fixed_field("x", DType::U8, &[2, 3]).unwrap().metadata()[EXTENSION_TYPE_METADATA_KEY],
        r#"{"shape":[2,3]}"#
    );
}

#[test]
fn metadata_from_outside_is_checked_against_the_storage() {
    let with = |text: &str, field: Field| {
        let name = field.metadata()[EXTENSION_TYPE_NAME_KEY].clone();
        extension(field, &name, text.to_owned())
    };
    let fixed = || fixed_field("x", DType::U8, &[2, 3]).unwrap();
    for text in [
        "",
        "{}",
        "[",
        r#"{"shape":[2,4]}"#,
        r#"{"shape":[-6]}"#,
        r#"{"shape":[]}"#,
        r#"{"shape":[18446744073709551615,2]}"#,
    ] {
        assert!(kind(&with(text, fixed())).is_err(), "{text}");
    }
    assert!(kind(&with(r#"{"shape":[2,3],"permutation":[1,0]}"#, fixed())).is_err());
    assert!(kind(&with(r#"{"shape":[2,3],"permutation":null,"dim_names":["a","b"]}"#, fixed())).is_ok());
    let variable = || variable_field("x", DType::F16, &[None, Some(2)]).unwrap();
    assert!(kind(&with(r#"{"uniform_shape":[null]}"#, variable())).is_err());
    assert!(kind(&with("", variable())).is_ok());
    assert!(kind(&extension(Field::new("x", DataType::Utf8, true), FIXED_SHAPE, "{\"shape\":[1]}".into())).is_err());
    assert!(fixed_field("x", DType::U8, &[0, 3]).is_err());
    assert!(fixed_field("x", DType::U8, &[1 << 16, 1 << 16]).is_err());
    assert!(variable_field("x", DType::U8, &[]).is_err());
}

#[test]
fn fixed_rows_come_back_also_from_slices() {
    let field = fixed_field("x", DType::U16, &[1, 2]).unwrap();
    let mut builder = FixedBuilder::new(DType::U16, &[1, 2], 3).unwrap();
    builder.append(&[1, 0, 2, 0]).unwrap();
    builder.append_null();
    builder.append_slot::<u16>().copy_from_slice(&[5, 6]);
    assert!(builder.append(&[1]).is_err());
    let array = builder.finish().unwrap();
    assert_eq!(array.data_type(), field.data_type());
    let view = View::new(&field, &array).unwrap();
    assert_eq!(view.rows(), 3);
    assert_eq!(view.row(0).unwrap(), Some(Row { bytes: &[1, 0, 2, 0], shape: &[1, 2] }));
    assert_eq!(view.row(1).unwrap(), None);
    assert_eq!(view.contiguous().unwrap(), [1, 0, 2, 0, 0, 0, 0, 0, 5, 0, 6, 0]);
    let view = View::new(&field, &array.slice(1, 2)).unwrap();
    assert_eq!((view.row(0).unwrap(), view.rows()), (None, 2));
    assert_eq!(view.row(1).unwrap(), Some(Row { bytes: &[5, 0, 6, 0], shape: &[1, 2] }));
    assert_eq!(view.row(2).unwrap(), None);
}

#[test]
fn ragged_rows_come_back_also_from_slices() {
    let uniform = [None, Some(2)];
    let field = variable_field("x", DType::I8, &uniform).unwrap();
    let mut builder = VariableBuilder::new(DType::I8, &uniform).unwrap();
    builder.append(&[1, 2], &[1, 2]).unwrap();
    builder.append_null();
    builder.append_slot::<i8>(&[2, 2]).unwrap().copy_from_slice(&[3, 4, 5, -1]);
    builder.append(&[0, 2], &[]).unwrap();
    assert!(builder.append_slot::<u8>(&[2, 3]).is_err());
    let array = builder.finish().unwrap();
    assert_eq!(array.data_type(), field.data_type());
    for (from, len) in [(0, 4), (1, 3), (2, 2), (4, 0)] {
        let view = View::new(&field, &array.slice(from, len)).unwrap();
        let want = [
            Some(Row { bytes: &[1, 2], shape: &[1, 2] }),
            None,
            Some(Row { bytes: &[3, 4, 5, 255], shape: &[2, 2] }),
            Some(Row { bytes: &[], shape: &[0, 2] }),
        ];
        assert_eq!(view.rows(), len);
        for row in 0..len {
            assert_eq!(view.row(row).unwrap(), want[from + row]);
        }
    }
}

#[test]
fn a_shape_that_is_not_its_rows_is_refused() {
    let field = variable_field("x", DType::U8, &[None, None]).unwrap();
    for shape in [vec![2, 2], vec![-1, -3], vec![i32::MAX, i32::MAX]] {
        let array = variable_array(DType::U8, 2, vec![1u8, 2, 3].into(), [3], shape, None).unwrap();
        assert!(View::new(&field, &array).unwrap().row(0).is_err());
    }
}
