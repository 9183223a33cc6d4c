//! Where a pipeline says `classes:` of `label.index`: finding those to be resolved and putting names in.

use crate::spec::node::{Key, Node, Value};
use crate::spec::pipeline::{Pipeline, Step};
use std::collections::BTreeMap;

/// Columns that `label.index` steps read.
pub fn columns(pipeline: &Pipeline) -> Vec<String> {
    steps(pipeline).filter_map(column).collect()
}

/// Columns of `label.index` steps whose classes are `auto`.
pub fn auto_columns(pipeline: &Pipeline) -> Vec<String> {
    let mut columns: Vec<String> = Vec::new();
    for step in steps(pipeline) {
        let is_auto =
            matches!(field(&step.params, "classes").map(|n| &n.value), Some(Value::Str(text)) if text == "auto");
        if let (true, Some(column)) = (is_auto, column(step))
            && !columns.contains(&column)
        {
            columns.push(column);
        }
    }
    columns
}

/// Puts a file's path in place of `auto` for one column.
pub fn use_file(pipeline: &mut Pipeline, of: &str, file: &str) {
    replace(pipeline, |step, classes| {
        if column(step).as_deref() == Some(of) && classes.value == Value::Str("auto".to_owned()) {
            return Some(Value::Str(file.to_owned()));
        }
        None
    });
}

/// Puts names in place of files and `auto`, for a dataset that is opened without its pipeline's directory: by the column
/// that the step writes.
pub fn fill_in(pipeline: &mut Pipeline, classes: &BTreeMap<String, Vec<String>>) {
    fill(pipeline, classes, |_| true);
}

/// As `fill_in`, in place of `auto` alone.
pub fn fill_in_auto(pipeline: &mut Pipeline, classes: &BTreeMap<String, Vec<String>>) {
    fill(pipeline, classes, |text| text == "auto");
}

fn fill(pipeline: &mut Pipeline, classes: &BTreeMap<String, Vec<String>>, wanted: fn(&str) -> bool) {
    replace(pipeline, |step, node| {
        let Value::Str(text) = &node.value else { return None };
        let output = match field(&step.params, "to").map(|n| &n.value) {
            Some(Value::Str(to)) => to.clone(),
            _ => column(step)?,
        };
        let name = |name: &String| Node { span: node.span.clone(), value: Value::Str(name.clone()) };
        let names = classes.get(&output).filter(|_| wanted(text))?;
        Some(Value::List(names.iter().map(name).collect()))
    });
}

fn steps(pipeline: &Pipeline) -> impl Iterator<Item = &Step> {
    let own = pipeline.splits.iter().flat_map(|s| &s.steps);
    pipeline.steps.iter().chain(own).filter(|s| s.name == "label.index")
}

fn replace(pipeline: &mut Pipeline, by: impl Fn(&Step, &Node) -> Option<Value>) {
    let own = pipeline.splits.iter_mut().flat_map(|s| &mut s.steps);
    for step in pipeline.steps.iter_mut().chain(own).filter(|s| s.name == "label.index") {
        let Some(value) = field(&step.params, "classes").and_then(|node| by(step, node)) else { continue };
        if let Value::Map(fields) = &mut step.params.value
            && let Some((_, node)) = fields.iter_mut().find(|(Key { name, .. }, _)| name == "classes")
        {
            node.value = value;
        }
    }
}

fn field<'a>(node: &'a Node, name: &str) -> Option<&'a Node> {
    match &node.value {
        Value::Map(fields) => fields.iter().find(|(key, _)| key.name == name).map(|(_, node)| node),
        _ => None,
    }
}

fn column(step: &Step) -> Option<String> {
    match field(&step.params, "column").map(|n| &n.value) {
        Some(Value::Str(column)) => Some(column.clone()),
        _ => None,
    }
}
