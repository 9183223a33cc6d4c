//! Tests of select, rename, filter and label.index, and what the tests of the other table steps share.

use super::*;
use crate::id::Digest;
use crate::spec::node::Node;
use crate::step::registry::{self, Build};
use crate::step::{Cardinality, Context, Output, Step};
use arrow::array::*;
use arrow::datatypes::{Field, Int32Type, Schema};
use std::path::Path;

const CONTEXT: Context = Context { seed: 0, epoch: 0, occurrence: 0 };

/// A batch of rows `k0`, `k1`, ..; those whose number is in `failed` have failed before.
pub(super) fn batch(columns: &[(&str, ArrayRef)], failed: &[usize]) -> RecordBatch {
    let rows = columns[0].1.len();
    let keys: LargeStringArray = (0..rows).map(|i| Some(format!("k{i}"))).collect();
    let errors: LargeStringArray = (0..rows).map(|i| failed.contains(&i).then_some("undecodable")).collect();
    let mut fields =
        vec![Field::new("_key", DataType::LargeUtf8, false), Field::new("_error", DataType::LargeUtf8, true)];
    let mut arrays: Vec<ArrayRef> = vec![Arc::new(keys), Arc::new(errors)];
    for (name, array) in columns {
        fields.push(Field::new(*name, array.data_type().clone(), true));
        arrays.push(array.clone());
    }
    RecordBatch::try_new(Arc::new(Schema::new(fields)), arrays).unwrap()
}

pub(super) fn try_build(name: &str, params: &str, input: &SchemaRef, base: &Path) -> Result<Arc<dyn Step>> {
    let node = Node::read(&format!("step: {params}\n"), "t.yaml").unwrap();
    let params = node.get("step").unwrap();
    registry::build(name, &Build { params, span: &node.span, input, base })
}

pub(super) fn build(name: &str, params: &str, input: &SchemaRef) -> Arc<dyn Step> {
    try_build(name, params, input, Path::new(".")).unwrap()
}

pub(super) fn refused(name: &str, params: &str, input: &SchemaRef) -> String {
    try_build(name, params, input, Path::new(".")).unwrap_err().message().to_owned()
}

/// Applies a step and checks what every step promises: its schema, one batch or many, rows in order.
pub(super) fn run(step: &dyn Step, batch: &RecordBatch) -> Output {
    let whole = step.apply(batch, CONTEXT).unwrap();
    assert_eq!(&whole.batch.schema(), step.output_schema());
    let empty = step.apply(&batch.slice(0, 0), CONTEXT).unwrap();
    assert_eq!((empty.batch.num_rows(), &empty.batch.schema()), (0, step.output_schema()));
    let parts: Vec<_> = (0..batch.num_rows()).map(|i| step.apply(&batch.slice(i, 1), CONTEXT).unwrap().batch).collect();
    let joined = arrow::compute::concat_batches(step.output_schema(), &parts).unwrap();
    assert_eq!(joined, whole.batch, "row by row it must be the same");
    if let Some(rows) = &whole.rows {
        assert_eq!(rows.len(), whole.batch.num_rows());
        assert!(rows.values().windows(2).all(|w| w[0] < w[1]));
    } else {
        assert_eq!(step.info().cardinality, Cardinality::OneToOne);
    }
    whole
}

/// Pins a step's output: its schema and its values, as JSON has them.
pub(super) fn golden(batch: &RecordBatch) -> String {
    let mut text = Vec::new();
    for field in batch.schema().fields() {
        text.extend(format!("{} {} {}\n", field.name(), field.data_type(), field.is_nullable()).bytes());
    }
    let mut writer = arrow::json::LineDelimitedWriter::new(&mut text);
    writer.write(batch).unwrap();
    writer.finish().unwrap();
    Digest::of(&text).short()
}

pub(super) fn texts(values: &[Option<&str>]) -> ArrayRef {
    Arc::new(values.iter().copied().collect::<LargeStringArray>())
}

pub(super) fn failures(batch: &RecordBatch) -> Vec<Option<String>> {
    errors(batch).unwrap().iter().map(|e| e.map(str::to_owned)).collect()
}

fn animals() -> RecordBatch {
    let labels = texts(&[Some("cat"), Some("dog"), None, Some("dgo"), Some("cat")]);
    let sizes: ArrayRef = Arc::new(Int32Array::from(vec![Some(1), Some(0), Some(3), None, Some(5)]));
    batch(&[("label", labels), ("size", sizes), ("weight", Arc::new(Float32Array::from(vec![0.5; 5])))], &[4])
}

fn columns(step: &dyn Step) -> Vec<&str> {
    step.output_schema().fields().iter().map(|f| f.name().as_str()).collect()
}

#[test]
fn select_keeps_the_columns_in_the_order_given() {
    let input = animals();
    let schema = input.schema();
    let step = build("table.select", "{ columns: [weight, label] }", &schema);
    assert_eq!(columns(&*step), ["_key", "_error", "weight", "label"]);
    assert_eq!(step.info().writes, ["size"]);
    let output = run(&*step, &input).batch;
    assert_eq!(output.column(3), input.column(2));
    assert_eq!(golden(&output), "a69347fcee79");

    let other = build("table.select", "{ except: [size] }", &schema);
    assert_eq!(columns(&*other), ["_key", "_error", "label", "weight"]);
    let same = build("table.select", "{ columns: [label, weight] }", &schema);
    assert_eq!(other.info().params, same.info().params);
    assert_eq!(columns(&*build("table.select", "{ columns: [] }", &schema)), ["_key", "_error"]);
}

#[test]
fn select_says_what_is_wrong() {
    let schema = animals().schema();
    for (params, expected) in [
        (
            "{ columns: [label, wieght] }",
            "t.yaml:1:26: step.columns: unknown column \"wieght\"; did you mean \"weight\"?",
        ),
        ("{ columns: [label, label] }", "t.yaml:1:26: step.columns: the column \"label\" is named twice"),
        ("{ columns: [x], except: [y] }", "t.yaml:1:1: expected either `columns:` or `except:`, with a list of names"),
        ("{ except: [_key] }", "\"_key\" begins with `_`: those columns are Forebay's own and always kept"),
        ("{ column: [x] }", "columns"),
    ] {
        let found = refused("table.select", params, &schema);
        assert!(found.contains(expected), "{params}: {found}");
    }
}

#[test]
fn rename_changes_names_alone() {
    let input = animals();
    let step = build("table.rename", "{ label: size, size: label }", &input.schema());
    assert_eq!(columns(&*step), ["_key", "_error", "size", "label", "weight"]);
    let output = run(&*step, &input).batch;
    assert_eq!(output.columns(), input.columns());
    assert_eq!(golden(&output), "b09760b1016f");
}

#[test]
fn rename_says_what_is_wrong() {
    let schema = animals().schema();
    for (params, expected) in [
        ("{ lable: x }", "t.yaml:1:9: step: unknown column \"lable\"; did you mean \"label\"?"),
        ("{ label: size }", "t.yaml:1:16: step.label: two columns would be called \"size\""),
        ("{ label: x, size: x }", "two columns would be called \"x\""),
        ("{ label: _label }", "\"_label\" begins with `_`"),
        ("{ label: _key }", "\"_key\" begins with `_`"),
        ("{ _error: why }", "\"_error\" begins with `_`"),
        ("{ label: '' }", "the new name of \"label\" is empty"),
        ("{}", "expected at least one column"),
    ] {
        let found = refused("table.rename", params, &schema);
        assert!(found.contains(expected), "{params}: {found}");
    }
}

#[test]
fn filter_keeps_true_rows_and_says_where_they_came_from() {
    let input = animals();
    let step = build("table.filter", "{ where: \"label = 'cat' or size > 2\" }", &input.schema());
    assert_eq!(step.info().reads, ["label", "size"]);
    assert_eq!(step.info().cardinality, Cardinality::Filter);
    let output = run(&*step, &input);
    assert_eq!(output.rows.unwrap().values(), &[0, 2, 4]);
    assert_eq!(golden(&output.batch), "8146c3e98b6a");
}

#[test]
fn filter_params_are_the_normal_form() {
    let schema = animals().schema();
    let params = |text: &str| build("table.filter", &format!("{{ where: \"{text}\" }}"), &schema).info().params.clone();
    assert_eq!(params("size>2&&label=='cat'"), params("( size  >  2 )  AND  `label` = 'cat'"));
    assert_ne!(params("size > 2"), params("size >= 2"));
}

#[test]
fn filter_keeps_failed_rows_only_where_they_lack_what_it_reads() {
    let sizes: ArrayRef = Arc::new(Int32Array::from(vec![Some(1), None, Some(1), None]));
    let other: ArrayRef = Arc::new(Int32Array::from(vec![None, Some(1), None, None]));
    let input = batch(&[("size", sizes), ("other", other)], &[0, 1]);
    let rows = |condition: &str| {
        let step = build("table.filter", &format!("{{ where: \"{condition}\" }}"), &input.schema());
        run(&*step, &input).rows.unwrap().values().to_vec()
    };
    assert_eq!(rows("size = 1"), [0, 1, 2]);
    assert_eq!(rows("size != 1"), [1]);
    assert_eq!(rows("size is not null"), [0, 1, 2]);
    assert_eq!(rows("other = 2"), [0]);
    assert_eq!(rows("key = 'k3'"), [3]);
}

#[test]
fn filter_fails_rows_whose_condition_has_no_value() {
    let sizes: ArrayRef = Arc::new(Int64Array::from(vec![0, 5, i64::MIN]));
    let input = batch(&[("size", sizes)], &[]);
    let step = build("table.filter", "{ where: '10 % size = 0' }", &input.schema());
    let output = run(&*step, &input);
    assert_eq!(output.rows.unwrap().values(), &[0, 1]);
    assert_eq!(failures(&output.batch), [Some("where: division by zero".to_owned()), None]);
    let guarded = build("table.filter", "{ where: 'size != 0 and 10 % size = 0' }", &input.schema());
    assert_eq!(failures(&run(&*guarded, &input).batch), [None]);
}

#[test]
fn filter_errors_point_into_the_expression() {
    let schema = animals().schema();
    let found = refused("table.filter", "{ where: label = 'cat' and siez > 2 }", &schema);
    assert_eq!(found, "t.yaml:1:34: step.where: unknown column \"siez\"; did you mean \"size\"?");
}

#[test]
fn label_index_numbers_the_names() {
    let input = animals();
    let step = build("label.index", "{ column: label, classes: [cat, dog] }", &input.schema());
    let field = step.output_schema().field_with_name("label").unwrap();
    assert_eq!(field.data_type(), &DataType::Int64);
    assert_eq!(field.metadata()["forebay.classes"], r#"["cat","dog"]"#);
    let output = run(&*step, &input).batch;
    let expected = Int64Array::from(vec![Some(0), Some(1), None, None, None]);
    assert_eq!(output.column_by_name("label").unwrap().as_ref(), &expected as &dyn Array);
    let unknown = "label: \"dgo\" is none of the 2 classes; did you mean \"dog\"?".to_owned();
    assert_eq!(failures(&output), [None, None, None, Some(unknown), Some("undecodable".into())]);
    assert_eq!(golden(&output), "309a6180b384");

    let beside = build("label.index", "{ column: label, classes: [cat, dog], to: class }", &input.schema());
    assert_eq!(columns(&*beside), ["_key", "_error", "label", "size", "weight", "class"]);
    assert_eq!(run(&*beside, &input).batch.column(2), input.column(2));
}

#[test]
fn label_index_reads_a_file_and_keys_its_contents() {
    let input = animals();
    let dir = tempfile::tempdir().unwrap();
    let params = |name: &str, text: &[u8]| {
        std::fs::write(dir.path().join(name), text).unwrap();
        let step =
            try_build("label.index", &format!("{{ column: label, classes: {name} }}"), &input.schema(), dir.path());
        step.map(|s| s.info().params.clone()).map_err(|e| e.message().to_owned())
    };
    let named = build("label.index", "{ column: label, classes: [cat, dog] }", &input.schema()).info().params.clone();
    assert_eq!(params("a.txt", b"cat\ndog\n").unwrap(), named);
    assert_eq!(params("b.txt", b"\xef\xbb\xbfcat\r\ndog").unwrap(), named);
    assert_ne!(params("a.txt", b"dog\ncat\n").unwrap(), named);
    assert_eq!(named.to_json()["classes"], Digest::of(b"cat\ndog\n").to_string());
    for (text, expected) in [
        (
            &b"cat\n\ndog\n"[..],
            "t.yaml:1:33: step.classes: bad.txt: line 2: a class name must be one line of text, found \"\"",
        ),
        (b"cat\n\xff\n", "line 2 is not UTF-8"),
        (b"cat\ndog\ncat\n", "line 3: the class \"cat\" stands twice"),
        (b"", "expected at least one class name"),
    ] {
        let found = params("bad.txt", text).unwrap_err();
        assert!(found.contains(expected), "{found}");
    }
}

#[test]
fn label_index_takes_integers() {
    let numbers = |values: Vec<Option<u64>>| -> ArrayRef { Arc::new(UInt64Array::from(values)) };
    let input = batch(&[("label", numbers(vec![Some(0), Some(2), None, Some(u64::MAX), Some(1)]))], &[]);
    let step = build("label.index", "{ column: label, classes: [a, b] }", &input.schema());
    let output = run(&*step, &input).batch;
    assert_eq!(output["label"].as_ref(), &Int64Array::from(vec![Some(0), None, None, None, Some(1)]) as &dyn Array);
    assert_eq!(failures(&output)[1].as_deref(), Some("label: 2 is no number of one of 2 classes"));
    assert!(failures(&output)[2].is_none() && failures(&output)[3].is_some());

    // With names of its own, a number means its name.
    let field = input.schema().field(2).clone();
    let named = field.with_metadata([(index::CLASSES.to_owned(), r#"["b","zebra","a"]"#.to_owned())]);
    let mut fields: Vec<_> = input.schema().fields().iter().cloned().collect();
    fields[2] = Arc::new(named);
    let input = input.with_schema(Arc::new(Schema::new(fields))).unwrap();
    let step = build("label.index", "{ column: label, classes: [a, b] }", &input.schema());
    let output = run(&*step, &input).batch;
    assert_eq!(output["label"].as_ref(), &Int64Array::from(vec![Some(1), Some(0), None, None, None]) as &dyn Array);
    assert_eq!(failures(&output)[4].as_deref(), Some("label: \"zebra\" is none of the 2 classes"));
}

#[test]
fn label_index_reads_dictionaries_and_says_what_is_wrong() {
    let dictionary: DictionaryArray<Int32Type> = [Some("dog"), None, Some("cat")].into_iter().collect();
    let input = batch(&[("label", Arc::new(dictionary)), ("x", Arc::new(Float32Array::from(vec![0.0; 3])))], &[]);
    let schema = input.schema();
    let step = build("label.index", "{ column: label, classes: [cat, dog] }", &schema);
    let output = run(&*step, &input).batch;
    assert_eq!(output["label"].as_ref(), &Int64Array::from(vec![Some(1), None, Some(0)]) as &dyn Array);
    for (params, expected) in [
        ("{ column: label, classes: auto }", "`classes: auto` has not been resolved yet"),
        ("{ column: lable, classes: [a] }", "did you mean \"label\"?"),
        ("{ column: x, classes: [a] }", "is of type float32; expected texts or integers"),
        ("{ column: label, classes: [a], to: x }", "there is a column \"x\" already"),
        ("{ column: label, classes: [a], to: _x }", "begins with `_`"),
        ("{ column: label, classes: [a, b, a] }", "t.yaml:1:40: step.classes: the class \"a\" stands twice"),
        ("{ column: label, classes: 7 }", "a list of names, the path of a file with one name a line, or `auto`"),
        ("{ column: label, classes: none.txt }", "can't read the classes in \"none.txt\""),
    ] {
        let found = refused("label.index", params, &schema);
        assert!(found.contains(expected), "{params}: {found}");
    }
}
