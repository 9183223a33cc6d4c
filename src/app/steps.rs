//! The steps for people: what each does, its parameters, what it reads and writes. `formats/steps.md` and `forebay steps`
//! are made here, from the registry alone.

use crate::error::{Error, Result};
use crate::step::registry::{Definition, definitions, unknown};
use crate::step::{Cardinality, Purity};
use serde_json::{Value, json};
use std::fmt::Write;

const HEAD: &str = "\
# Steps

Every step that a pipeline can name, with its parameters; `forebay steps NAME` prints the same, and
[pipeline.md](pipeline.md) says where steps stand. This page is written by the code (`FOREBAY_BLESS=1 cargo test
--test it pipeline_file::schema`). `as`, the name of the stage behind a step, belongs to every step and isn't repeated.

Where an image step leaves out `column`, it takes the only one that fits; with `to` the output stands beside the input,
else in its place. Sizes are `[height, width]` in pixels. A row that fails keeps its place, with nulls in what would be
written and the reason in `_error`; `on_error` of the pipeline decides what becomes of it. A row that had failed before
passes through.
";

/// A parameter of a step.
pub struct Parameter {
    pub name: String,
    /// In words: `integer`, `text or list of texts`.
    pub kind: String,
    pub required: bool,
    /// As it stands in a pipeline file; `None` also where the description says what happens without it.
    pub default: Option<Value>,
    pub about: String,
}

/// The steps of that name or all.
pub fn named(name: Option<&str>) -> Result<Vec<&'static Definition>> {
    let found: Vec<_> = definitions().filter(|d| name.is_none_or(|name| d.name == name)).collect();
    match name.filter(|_| found.is_empty()) {
        Some(name) => Err(Error::not_found(unknown(name))),
        None => Ok(found),
    }
}

/// The whole page.
pub fn page() -> String {
    definitions().fold(HEAD.to_owned(), |page, definition| page + "\n" + &section(definition))
}

/// One step's part of the page.
pub fn section(definition: &Definition) -> String {
    let mut out = format!("## {}\n\n{}\n\n", definition.name, wrapped("", &format!("{}.", definition.summary)));
    for (name, text) in [
        ("Purity", purity(definition.purity)),
        ("Cardinality", cardinality(definition.cardinality)),
        ("Reads", definition.reads),
        ("Writes", definition.writes),
        ("A row fails", definition.fails),
    ] {
        let because = if name == "A row fails" && text != "never" { " where" } else { "" };
        // Writing to a String can't fail.
        let _ = writeln!(out, "{}", wrapped("- ", &format!("{name}{because}: {text}").replace("where: ", "where ")));
    }
    out.push_str("\nParameters:\n\n");
    for parameter in parameters(definition) {
        let default = match (&parameter.default, parameter.required) {
            (_, true) => ", required".to_owned(),
            (Some(default), false) => format!(", default `{}`", plain(default)),
            (None, false) => String::new(),
        };
        let Parameter { name, kind, about, .. } = parameter;
        let _ = writeln!(out, "{}", wrapped("- ", &format!("`{name}`: {kind}{default}. {about}")));
    }
    if let Some(notes) = notes(definition) {
        let _ = writeln!(out, "\n{notes}");
    }
    out
}

/// As `--json` prints it.
pub fn document(definition: &Definition) -> Value {
    let parameters: Vec<Value> = parameters(definition)
        .into_iter()
        .map(|p| json!({ "name": p.name, "type": p.kind, "required": p.required, "default": p.default, "about": p.about }))
        .collect();
    json!({
        "step": definition.name, "summary": definition.summary, "purity": format!("{:?}", definition.purity).to_lowercase(),
        "cardinality": cardinality(definition.cardinality), "reads": definition.reads, "writes": definition.writes,
        "fails": definition.fails, "parameters": parameters, "notes": notes(definition),
    })
}

/// In the order of their names, those that must be given first.
pub fn parameters(definition: &Definition) -> Vec<Parameter> {
    let root = (definition.schema)().to_value();
    let required = |name: &str| root["required"].as_array().is_some_and(|names| names.iter().any(|n| n == name));
    let mut found: Vec<Parameter> = root["properties"]
        .as_object()
        .into_iter()
        .flatten()
        .map(|(name, schema)| Parameter {
            name: name.clone(),
            kind: kind(&root, schema),
            required: required(name),
            default: schema.get("default").filter(|default| !default.is_null()).cloned(),
            about: about(&root, schema),
        })
        .collect();
    // A map whose keys the user chooses.
    if root["additionalProperties"].is_object() {
        let kind = kind(&root, &root["additionalProperties"]);
        let about = "Any column's name.".to_owned();
        found.push(Parameter { name: "COLUMN".to_owned(), kind, required: true, default: None, about });
    }
    found.sort_by_key(|parameter| !parameter.required);
    found
}

fn purity(purity: Purity) -> &'static str {
    match purity {
        Purity::Deterministic => "deterministic, so its output can be stored",
        Purity::Random => "random: differs in each epoch, so neither its output nor what follows is stored",
        Purity::Stateful => "stateful: depends on what came before, so it may only end a chain",
    }
}

fn cardinality(cardinality: Cardinality) -> &'static str {
    match cardinality {
        Cardinality::OneToOne => "one-to-one",
        Cardinality::Filter => "filter",
        Cardinality::OneToMany => "one-to-many",
        Cardinality::Partition => "partition",
    }
}

/// What the step's own description says beyond the summary, in paragraphs.
fn notes(definition: &Definition) -> Option<String> {
    let root = (definition.schema)().to_value();
    let text = root["description"].as_str()?.trim();
    let lines: Vec<String> = text
        .split("\n\n")
        .map(|paragraph| match paragraph.starts_with("* ") {
            // A list keeps its lines.
            true => paragraph.to_owned(),
            false => wrapped("", &paragraph.replace('\n', " ")),
        })
        .collect();
    Some(lines.join("\n\n"))
}

/// A schema that another refers to stands in its place.
fn resolved<'a>(root: &'a Value, schema: &'a Value) -> &'a Value {
    let target = schema["$ref"].as_str().and_then(|name| name.strip_prefix("#/$defs/"));
    target.map_or(schema, |name| &root["$defs"][name])
}

/// A type in words.
fn kind(root: &Value, schema: &Value) -> String {
    let schema = resolved(root, schema);
    for choice in ["anyOf", "oneOf"] {
        if let Some(choices) = schema[choice].as_array() {
            let kinds: Vec<String> =
                choices.iter().map(|one| kind(root, one)).filter(|kind| kind != "nothing").collect();
            return either(&kinds);
        }
    }
    if let Some(values) = schema["enum"].as_array() {
        return either(&values.iter().map(|value| format!("`{}`", plain(value))).collect::<Vec<_>>());
    }
    if schema.get("const").is_some() {
        return format!("`{}`", plain(&schema["const"]));
    }
    let types: Vec<&str> = match &schema["type"] {
        Value::Array(types) => types.iter().filter_map(Value::as_str).collect(),
        one => one.as_str().into_iter().collect(),
    };
    let words = |name: &&str| match *name {
        "string" => "text".to_owned(),
        "boolean" => "`true` or `false`".to_owned(),
        "array" => {
            let items = kind(root, &schema["items"]);
            match (schema["minItems"].as_u64(), schema["maxItems"].as_u64()) {
                (Some(least), Some(most)) if least == most => format!("list of {least} {items}s"),
                _ => format!("list of {items}s"),
            }
        }
        "object" => format!("map of names to {}", kind(root, &schema["additionalProperties"])),
        other => other.to_owned(),
    };
    either(&types.iter().filter(|name| **name != "null").map(words).collect::<Vec<_>>())
}

/// `a, b or c`.
fn either(kinds: &[String]) -> String {
    match kinds {
        [] => "nothing".to_owned(),
        [one] => one.clone(),
        [before @ .., last] => format!("{} or {last}", before.join(", ")),
    }
}

/// What a parameter is for: its own description, else its type's, and what each of its values means.
fn about(root: &Value, schema: &Value) -> String {
    let of = resolved(root, schema);
    let own = schema["description"].as_str().or_else(|| of["description"].as_str()).unwrap_or_default();
    let mut text = own.replace('\n', " ");
    for choice in of["oneOf"].as_array().into_iter().flatten() {
        if let (Some(value), Some(meaning)) = (choice.get("const"), choice["description"].as_str()) {
            let _ = write!(text, " `{}`: {}", plain(value), meaning.replace('\n', " "));
        }
    }
    text
}

/// A value as a pipeline file has it.
fn plain(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Array(items) => format!("[{}]", items.iter().map(plain).collect::<Vec<_>>().join(", ")),
        other => other.to_string(),
    }
}

/// A paragraph in lines of at most 118 characters, those after the first below the text of the first.
fn wrapped(mark: &str, text: &str) -> String {
    const WIDTH: usize = 118;
    let mut lines = vec![mark.to_owned()];
    for word in text.split_whitespace() {
        let last = lines.len() - 1;
        let line = &mut lines[last];
        if line.chars().count() + 1 + word.chars().count() > WIDTH {
            lines.push(format!("{}{word}", " ".repeat(mark.len())));
        } else {
            if line.len() > mark.len() {
                line.push(' ');
            }
            line.push_str(word);
        }
    }
    lines.join("\n")
}
