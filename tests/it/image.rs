//! Image steps on real files, through the registry, as pipelines use them.

mod golden;
mod pillow;
mod steps;

use arrow::array::{Array, ArrayRef, AsArray, LargeBinaryArray, LargeStringArray, RecordBatch};
use arrow::datatypes::{DataType, Field, Schema};
use forebay::error::Result;
use forebay::format::shard::tensor::{DType, FixedBuilder, VariableBuilder, View, fixed_field, variable_field};
use forebay::spec::node::Node;
use forebay::step::registry::{self, Build};
use forebay::step::{Context, Step};
use std::path::Path;
use std::sync::Arc;

/// A row's dimensions and bytes, or why it failed; `Ok(None)` is null.
type Outcome = std::result::Result<Option<(Vec<i32>, Vec<u8>)>, String>;

fn context() -> Context {
    Context { seed: 7, epoch: 3, occurrence: 0 }
}

/// Keys `a0`, `a1`, and so on, no errors, and the columns given.
fn batch(columns: Vec<(Field, ArrayRef)>) -> RecordBatch {
    let rows = columns[0].1.len();
    let keys: LargeStringArray = (0..rows).map(|row| Some(format!("a{row}"))).collect();
    let mut fields =
        vec![Field::new("_key", DataType::LargeUtf8, false), Field::new("_error", DataType::LargeUtf8, true)];
    let mut arrays: Vec<ArrayRef> = vec![Arc::new(keys), Arc::new(LargeStringArray::new_null(rows))];
    for (field, array) in columns {
        fields.push(field);
        arrays.push(array);
    }
    RecordBatch::try_new(Arc::new(Schema::new(fields)), arrays).unwrap()
}

fn files<T: AsRef<[u8]>>(name: &str, files: &[T]) -> (Field, ArrayRef) {
    let array: LargeBinaryArray = files.iter().map(|file| Some(file.as_ref())).collect();
    (Field::new(name, DataType::LargeBinary, true), Arc::new(array))
}

/// Ragged images; `None` is null.
fn ragged(name: &str, channels: usize, images: &[Option<(usize, usize, Vec<u8>)>]) -> (Field, ArrayRef) {
    let dims = [None, None, Some(channels)];
    let mut builder = VariableBuilder::new(DType::U8, &dims).unwrap();
    for image in images {
        match image {
            Some((height, width, bytes)) => builder.append(&[*height, *width, channels], bytes).unwrap(),
            None => builder.append_null(),
        }
    }
    (variable_field(name, DType::U8, &dims).unwrap(), builder.finish().unwrap())
}

/// Images of one shape.
fn fixed(name: &str, dtype: DType, shape: [usize; 3], images: &[Vec<u8>]) -> (Field, ArrayRef) {
    let mut builder = FixedBuilder::new(dtype, &shape, images.len()).unwrap();
    images.iter().for_each(|image| builder.append(image).unwrap());
    (fixed_field(name, dtype, &shape).unwrap(), builder.finish().unwrap())
}

/// Bytes that look like nothing, the same everywhere.
fn noise(len: usize) -> Vec<u8> {
    let mut state = 1u32;
    (0..len)
        .map(|_| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 24) as u8
        })
        .collect()
}

fn build(step: &str, params: &str, batch: &RecordBatch) -> Result<Arc<dyn Step>> {
    let params = Node::read(params, "test.yaml")?;
    let span = params.span.clone();
    registry::build(step, &Build { params: &params, span: &span, input: &batch.schema(), base: Path::new(".") })
}

fn apply(step: &str, params: &str, batch: &RecordBatch) -> RecordBatch {
    let step = build(step, params, batch).unwrap();
    let output = step.apply(batch, context()).unwrap();
    assert!(output.rows.is_none());
    assert_eq!(output.batch.schema(), *step.output_schema());
    output.batch
}

fn outcomes(batch: &RecordBatch, column: &str) -> Vec<Outcome> {
    let errors = batch.column_by_name("_error").unwrap().as_string::<i64>();
    let schema = batch.schema();
    let field = schema.field_with_name(column).unwrap();
    let array = batch.column_by_name(column).unwrap();
    let view = (*field.data_type() != DataType::LargeBinary).then(|| View::new(field, array).unwrap());
    (0..batch.num_rows())
        .map(|row| {
            if errors.is_valid(row) {
                assert!(array.is_null(row), "a failed row holds a value");
                return Err(errors.value(row).to_owned());
            }
            Ok(match &view {
                Some(view) => view.row(row).unwrap().map(|r| (r.shape.to_vec(), r.bytes.to_vec())),
                None => array.is_valid(row).then(|| (Vec::new(), array.as_binary::<i64>().value(row).to_vec())),
            })
        })
        .collect()
}

/// The one row's value.
fn single(batch: &RecordBatch, column: &str) -> (Vec<i32>, Vec<u8>) {
    outcomes(batch, column).remove(0).unwrap().unwrap()
}
