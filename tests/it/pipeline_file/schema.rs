//! `formats/pipeline.schema.json` is what the code generates, and accepts and refuses what `Pipeline::read` does;
//! `formats/pipeline.md` holds examples that are read and names every field.

use super::{MISTAKES, PHOTOS, read};
use forebay::app::steps::{page, parameters, section};
use forebay::spec::node::Node;
use forebay::spec::pipeline::Pipeline;
use forebay::step::registry::definitions;
use serde_json::Value;
use std::path::PathBuf;

fn formats(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("formats").join(name)
}

fn generated() -> Value {
    let steps: Vec<_> = definitions().map(|d| (d.name, d.summary, (d.schema)().to_value())).collect();
    Pipeline::schema(&steps)
}

/// Compares a file of `formats` with what the code generates, or writes it.
fn check_generated(name: &str, text: String) {
    let path = formats(name);
    if std::env::var_os("FOREBAY_BLESS").is_some() {
        std::fs::write(&path, text).unwrap();
        return;
    }
    let stored = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(stored == text, "{} is out of date: FOREBAY_BLESS=1 cargo test --test it schema writes it", path.display());
}

#[test]
fn the_schema_in_formats_is_what_the_code_says() {
    check_generated("pipeline.schema.json", format!("{}\n", serde_json::to_string_pretty(&generated()).unwrap()));
}

#[test]
fn the_page_of_steps_is_what_the_code_says() {
    check_generated("steps.md", page());
    let long = page().lines().find(|line| line.chars().count() > 120).map(str::to_owned);
    assert_eq!(long, None);
    for definition in definitions() {
        let parameters = parameters(definition);
        assert!(!parameters.is_empty(), "{}", definition.name);
        for parameter in parameters {
            assert!(!parameter.about.is_empty(), "{}.{}", definition.name, parameter.name);
            assert!(!parameter.kind.contains("nothing"), "{}.{}: {}", definition.name, parameter.name, parameter.kind);
        }
    }
    let resize = section(definitions().find(|d| d.name == "image.resize").unwrap());
    for words in [
        "## image.resize\n\nResize images",
        "- Purity: deterministic, so its output can be stored\n",
        "- Cardinality: one-to-one\n",
        "- Reads: images of 1, 3 or 4 channels in uint8 or uint16\n",
        "- A row fails where a side would come out above `max_side`\n",
        "- `shorter_side`: integer. Pixels of the shorter side;",
        "- `filter`: `nearest`, `bilinear`, `bicubic` or `lanczos`, default `bilinear`. How pixels",
        "- `max_side`: integer, default `16384`. The longest side of an output, in pixels.\n",
        "- `size`: integer or list of 2 integers. `[height, width]` in pixels",
    ] {
        assert!(resize.contains(words), "{words:?} in\n{resize}");
    }
}

/// The schema with three steps whose parameters are known here, whatever the registry holds.
fn example() -> Value {
    let side = serde_json::json!({
        "title": "Params", "type": "object", "additionalProperties": false,
        "properties": { "shorter_side": { "type": "integer", "minimum": 1 }, "filter": { "$ref": "#/$defs/Filter" } },
        "$defs": { "Filter": { "enum": ["nearest", "bilinear"] } },
    });
    let size = serde_json::json!({
        "type": "object", "required": ["size"], "additionalProperties": false,
        "properties": { "size": { "type": "array", "items": { "type": "integer" }, "minItems": 2, "maxItems": 2 } },
    });
    let label =
        serde_json::json!({ "type": "object", "properties": { "column": { "type": "string" }, "classes": {} } });
    Pipeline::schema(&[
        ("image.decode", "Decodes.", serde_json::json!({ "type": "object", "additionalProperties": false })),
        ("image.resize", "Resizes.", side),
        ("image.pad", "Pads.", serde_json::json!({ "type": "object" })),
        ("image.random_crop", "Crops.", size.clone()),
        ("image.center_crop", "Crops.", size),
        ("label.index", "Numbers.", label),
    ])
}

fn accepts(schema: &Value, text: &str) -> bool {
    match Node::read(text, "t.yaml").and_then(|node| node.parse::<Value>()) {
        Ok(document) => valid(schema, schema, &document),
        Err(_) => false,
    }
}

#[test]
fn the_schema_accepts_what_is_valid() {
    let schema = example();
    let files = [
        PHOTOS,
        "source: {files: [a, b], identity: stat, missing: null, join: {table: a, on: b, columns: [c]}}",
        "source: {table: a.csv, load: {image: 'x/{file}'}}\norder: {lanes: 4}\npartition: {bytes: 64 MiB, entries: 5}",
        "source: {jsonl: a}\non_error: keep\nmax_errors: 0.1%\nmaterialize: {stages: all, compression: gzip:9}",
        "source: {files: a}\nsteps:\n  - image.resize: {shorter_side: 3, filter: nearest, as: small}\nsplits: {train: }",
        "source: {files: a, fields: {x: {regex: a}, y: '{stem}', z: {join: a, on: b, column: c}}}\norder: key",
    ];
    for text in files {
        assert!(read(text).is_ok(), "{text}");
        assert!(accepts(&schema, text), "{text}");
    }
    assert!(accepts(&generated(), PHOTOS));
}

#[test]
fn the_schema_refuses_wrong_steps() {
    let schema = example();
    let steps = [
        "image.blur",
        "image.resize: {shorter_side: big}",
        "image.resize: {filter: cubic}",
        "image.resize: {zzz: 1}",
        "image.center_crop: {}",
        "{image.decode: {}, image.pad: {}}",
        "image.pad: {as: a/b}",
    ];
    for step in steps {
        assert!(!accepts(&schema, &format!("source: {{files: a}}\nsteps:\n  - {step}\n")), "{step}");
    }
}

/// What a schema can't say: what depends on the environment, on other parts of the file or on what a text means.
const BEYOND: &[&str] = &[
    "PHOTOS",
    "BUCKET",
    "DATA/x",
    "ftp://",
    "identity: etag",
    "identity: stat",
    "file://a",
    "{parnet}",
    "{class}",
    "'{stem'",
    "_x:",
    "(a",
    "{row}",
    "fields: {c:",
    "[image.decode, image.decode]",
    "- image.decode\n  - image.decode",
    "as: x}]",
    "as: auto",
    "rezise",
    "blur",
    "[resize, all]",
    "{tar: a}\norder",
    "101%",
];

#[test]
fn the_schema_refuses_mistakes() {
    let schema = example();
    for (text, message) in MISTAKES {
        let beyond = BEYOND.iter().any(|part| text.contains(part));
        assert_eq!(accepts(&schema, text), beyond, "{text}\n{message}");
    }
}

#[test]
fn the_documentation_names_every_field_and_its_examples_are_read() {
    let text = std::fs::read_to_string(formats("pipeline.md")).unwrap();
    let mut examples = 0;
    for block in text.split("```yaml\n").skip(1) {
        let example = block.split("```").next().unwrap();
        if let Err(error) = read(example) {
            panic!("{}\n{example}", error.message());
        }
        examples += 1;
    }
    assert!(examples >= 8, "{examples} examples");

    fn fields(schema: &Value, found: &mut Vec<String>) {
        match schema {
            Value::Object(map) => {
                if let Some(Value::Object(properties)) = map.get("properties") {
                    found.extend(properties.keys().cloned());
                }
                map.values().for_each(|value| fields(value, found));
            }
            Value::Array(items) => items.iter().for_each(|value| fields(value, found)),
            _ => {}
        }
    }
    let mut found = Vec::new();
    fields(&Pipeline::schema(&[]), &mut found);
    for name in found {
        assert!(text.contains(&format!("`{name}`")), "formats/pipeline.md says nothing of `{name}`");
    }
}

/// The part of JSON Schema that the pipeline's uses; a keyword that it doesn't know fails.
fn valid(root: &Value, schema: &Value, value: &Value) -> bool {
    let Value::Object(rules) = schema else { return schema != &Value::Bool(false) };
    let matches = |pattern: &Value, text: &str| regex::Regex::new(pattern.as_str().unwrap()).unwrap().is_match(text);
    let all = |schemas: &Value| schemas.as_array().unwrap().iter().filter(|s| valid(root, s, value)).count();
    let map = value.as_object();
    let list = value.as_array();
    let no_properties = Value::Object(Default::default());
    let properties = rules.get("properties").unwrap_or(&no_properties).as_object().unwrap();
    rules.iter().all(|(rule, wanted)| {
        let count = wanted.as_u64().unwrap_or(0) as usize;
        match rule.as_str() {
            "$schema" | "$defs" | "title" | "description" | "then" | "default" | "format" => true,
            "$ref" => {
                let name = wanted.as_str().unwrap().strip_prefix("#/$defs/").unwrap();
                valid(root, &root["$defs"][name], value)
            }
            "type" => {
                let is = |name: &Value| match name.as_str().unwrap() {
                    "object" => value.is_object(),
                    "array" => value.is_array(),
                    "string" => value.is_string(),
                    "boolean" => value.is_boolean(),
                    "null" => value.is_null(),
                    "number" => value.is_number(),
                    "integer" => value.is_i64() || value.is_u64(),
                    other => panic!("type {other}"),
                };
                wanted.as_array().map_or_else(|| is(wanted), |names| names.iter().any(is))
            }
            "const" => value == wanted,
            "enum" => wanted.as_array().unwrap().contains(value),
            "anyOf" => all(wanted) > 0,
            "oneOf" => all(wanted) == 1,
            "not" => !valid(root, wanted, value),
            "if" => !valid(root, wanted, value) || rules.get("then").is_none_or(|then| valid(root, then, value)),
            "required" => {
                map.is_none_or(|m| wanted.as_array().unwrap().iter().all(|n| m.contains_key(n.as_str().unwrap())))
            }
            "properties" => {
                map.is_none_or(|m| m.iter().all(|(n, v)| properties.get(n).is_none_or(|s| valid(root, s, v))))
            }
            "additionalProperties" => {
                map.is_none_or(|m| m.iter().all(|(n, v)| properties.contains_key(n) || valid(root, wanted, v)))
            }
            "propertyNames" => map.is_none_or(|m| m.keys().all(|n| valid(root, wanted, &Value::String(n.clone())))),
            "dependentSchemas" => map.is_none_or(|m| {
                wanted.as_object().unwrap().iter().all(|(n, schema)| !m.contains_key(n) || valid(root, schema, value))
            }),
            "minProperties" => map.is_none_or(|m| m.len() >= count),
            "maxProperties" => map.is_none_or(|m| m.len() <= count),
            "items" => list.is_none_or(|items| items.iter().all(|item| valid(root, wanted, item))),
            "minItems" => list.is_none_or(|items| items.len() >= count),
            "maxItems" => list.is_none_or(|items| items.len() <= count),
            "uniqueItems" => list.is_none_or(|items| (1..items.len()).all(|i| !items[..i].contains(&items[i]))),
            "minLength" => value.as_str().is_none_or(|text| text.chars().count() >= count),
            "pattern" => value.as_str().is_none_or(|text| matches(wanted, text)),
            "minimum" => value.as_f64().is_none_or(|n| n >= wanted.as_f64().unwrap()),
            "maximum" => value.as_f64().is_none_or(|n| n <= wanted.as_f64().unwrap()),
            "exclusiveMaximum" => value.as_f64().is_none_or(|n| n < wanted.as_f64().unwrap()),
            other => panic!("the schema uses {other}, which this check doesn't know"),
        }
    })
}
