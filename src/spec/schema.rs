//! The JSON Schema of pipeline files, for editors. It says what can be said without the data: names, types, ranges and
//! what belongs together; `Pipeline::read` checks the rest.

use crate::spec::pipeline::{FIELDS, Pipeline, SourceKind};
use crate::spec::settings::MAX_ORDER;
use crate::spec::source;
use serde_json::{Map, Value, json};

/// A name of a pipeline, split or stage: the rule of `fields::name_problem`.
pub(super) const NAME: &str = "^[A-Za-z0-9_-][A-Za-z0-9._-]{0,99}$";

impl Pipeline {
    /// JSON Schema, draft 2020-12. `steps`: name, summary and schema of the parameters of each step that can be named.
    pub fn schema(steps: &[(&str, &str, Value)]) -> Value {
        let mut definitions = Map::new();
        let step = step(steps, &mut definitions);
        definitions.insert("step".to_owned(), step);
        definitions.insert("split".to_owned(), split());
        for kind in SourceKind::ALL.into_iter().filter(|kind| *kind != SourceKind::Hdf5) {
            definitions.insert(format!("source.{}", kind.name()), source_of(kind));
        }
        let properties: Map<String, Value> =
            FIELDS.iter().map(|(name, about)| ((*name).to_owned(), described(field(name), about))).collect();
        json!({
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            "title": "Forebay pipeline",
            "description": "A source and an ordered chain of steps.",
            "type": "object",
            "required": ["source"],
            "properties": properties,
            "additionalProperties": false,
            "dependentSchemas": { "max_errors": { "required": ["on_error"], "properties": { "on_error": { "const": "keep" } } } },
            "$defs": definitions,
        })
    }
}

fn described(mut schema: Value, about: &str) -> Value {
    if let Value::Object(fields) = &mut schema {
        fields.insert("description".to_owned(), about.into());
    }
    schema
}

fn text() -> Value {
    json!({ "type": "string", "minLength": 1 })
}

fn names() -> Value {
    json!({ "type": "array", "items": text(), "minItems": 1, "uniqueItems": true })
}

/// A field at the top.
fn field(name: &str) -> Value {
    let count = json!({ "type": "integer", "minimum": 1, "maximum": MAX_ORDER });
    let by = json!({ "enum": ["hash", "key"] });
    match name {
        "name" => json!({ "type": "string", "pattern": NAME }),
        "source" => {
            let kinds = SourceKind::ALL.iter().filter(|kind| **kind != SourceKind::Hdf5);
            let one: Vec<Value> =
                kinds.map(|kind| json!({ "$ref": format!("#/$defs/source.{}", kind.name()) })).collect();
            json!({ "oneOf": one })
        }
        "steps" => json!({ "type": ["array", "null"], "items": { "$ref": "#/$defs/step" } }),
        "splits" => json!({
            "type": "object",
            "minProperties": 1,
            "propertyNames": { "pattern": NAME },
            "additionalProperties": { "$ref": "#/$defs/split" },
        }),
        "materialize" => json!({
            "type": "object",
            "properties": {
                "stages": described(json!({ "anyOf": [text(), names()] }), "Names of stages, all, or auto (the default)."),
                "format": described(json!({ "enum": ["arrow", "parquet"] }), "Default: arrow for tensors, else parquet."),
                "compression": described(
                    json!({ "type": "string", "pattern": "^(none|lz4|snappy|zstd(:([1-9]|1[0-9]|2[0-2]))?|gzip(:[0-9])?)$" }),
                    "none, lz4 or zstd:1 to zstd:22; with parquet also snappy or gzip:0 to gzip:9.",
                ),
            },
            "additionalProperties": false,
            "if": { "required": ["format"], "properties": { "format": { "const": "arrow" } } },
            "then": { "properties": { "compression": { "not": { "pattern": "^(snappy|gzip)" } } } },
        }),
        "order" => json!({ "anyOf": [by, {
            "type": "object",
            "properties": {
                "lanes": described(count.clone(), "Ranges of the dataset that are read side by side; default: 16."),
                "block": described(count, "Rows that are shuffled together within a lane."),
                "by": described(by, "How entries of files are laid out in shards; default: hash, a random mixture."),
            },
            "additionalProperties": false,
        }] }),
        "partition" => json!({
            "type": "object",
            "properties": {
                "entries": { "type": "integer", "minimum": 1, "description": "Most entries; default: 8192." },
                "bytes": {
                    "anyOf": [
                        { "type": "integer", "minimum": 1 },
                        { "type": "string", "pattern": "^ *[0-9]+(\\.[0-9]+)? *(([kKmMgGtTpPeE][iI]?)?[bB])? *$" },
                    ],
                    "description": "Most bytes as listed, such as 64MiB (the default).",
                },
            },
            "additionalProperties": false,
        }),
        "storage" => json!({ "type": "object", "additionalProperties": { "type": ["string", "integer", "boolean"] } }),
        "on_error" => json!({ "enum": ["fail", "keep"] }),
        "max_errors" => json!({ "anyOf": [
            { "type": "number", "minimum": 0, "exclusiveMaximum": 1 },
            { "type": "string", "pattern": "^ *[0-9]+(\\.[0-9]+)? *% *$" },
        ] }),
        _ => text(),
    }
}

fn split() -> Value {
    json!({
        "type": ["object", "null"],
        "properties": {
            "where": described(text(), "An expression that keeps the rows for which it is true, such as hash(key) % 20 != 0."),
            "steps": { "type": ["array", "null"], "items": { "$ref": "#/$defs/step" }, "minItems": 1,
                       "description": "Steps behind the shared ones." },
            "shuffle": { "type": "boolean", "description": "Whether readers shuffle this split unless told otherwise." },
        },
        "additionalProperties": false,
    })
}

fn source_of(kind: SourceKind) -> Value {
    let about = match kind {
        SourceKind::Files => "Files, each a sample: paths with globs such as ./photos/**/*.{jpg,png}.",
        SourceKind::Table => "CSV or Parquet files whose rows refer to files, which load: names.",
        SourceKind::Tar => "Tar files in the layout of WebDataset: .tar, .tar.gz, .tar.zst.",
        SourceKind::Parquet => "Parquet files.",
        SourceKind::Arrow => "Arrow IPC files or streams.",
        SourceKind::Jsonl => "Files with a JSON object on each line.",
        SourceKind::Csv => "CSV files with a header.",
        SourceKind::Hdf5 => "HDF5 files.",
    };
    let mut properties = Map::new();
    properties.insert(kind.name().to_owned(), described(json!({ "anyOf": [text(), names()] }), about));
    for (name, kinds, about) in source::FIELDS {
        if kinds.contains(&kind) {
            properties.insert(name.to_owned(), described(source_field(name), about));
        }
    }
    json!({ "type": "object", "required": [kind.name()], "properties": properties, "additionalProperties": false })
}

fn source_field(name: &str) -> Value {
    let matching = described(text(), "What the column must equal, made from the key; default: \"{key}\".");
    let join = json!({
        "type": "object",
        "required": ["table", "on", "columns"],
        "properties": { "table": text(), "on": text(), "matching": matching, "columns": names() },
        "additionalProperties": false,
    });
    match name {
        "columns" => names(),
        "fields" => json!({ "type": "object", "additionalProperties": { "anyOf": [
            described(text(), "A template with {key}, {name}, {stem}, {ext}, {parent} and {parent[1]}."),
            {
                "type": "object",
                "required": ["regex"],
                "properties": { "regex": described(text(), "The first group, or else the whole match, in the key.") },
                "additionalProperties": false,
            },
            {
                "type": "object",
                "required": ["join", "on", "column"],
                "properties": { "join": text(), "on": text(), "matching": matching, "column": text() },
                "additionalProperties": false,
            },
        ] } }),
        "join" => json!({ "anyOf": [join, { "type": "array", "items": join, "minItems": 1 }] }),
        "load" => json!({ "type": "object", "additionalProperties": { "type": "string", "pattern": "\\{[^{}]+\\}" } }),
        "missing" => json!({ "enum": [null, "skip", "fail"] }),
        "identity" => json!({ "enum": ["content", "etag", "stat"] }),
        _ => text(),
    }
}

/// A step: its name, or a map with its name as the only key.
fn step(steps: &[(&str, &str, Value)], definitions: &mut Map<String, Value>) -> Value {
    let mut properties = Map::new();
    let mut plain = Vec::new();
    for (name, summary, params) in steps {
        plain.push(json!({ "const": name, "description": summary }));
        let definition = params_of(name, params.clone(), definitions);
        properties.insert((*name).to_owned(), json!({ "$ref": format!("#/$defs/{name}"), "description": summary }));
        definitions.insert((*name).to_owned(), definition);
    }
    json!({ "anyOf": [
        { "oneOf": plain },
        {
            "type": "object",
            "properties": properties,
            "additionalProperties": false,
            "minProperties": 1,
            "maxProperties": 1,
        },
    ] })
}

/// The parameters of a step, with `as:` added and their own definitions moved to the schema's.
fn params_of(name: &str, mut params: Value, definitions: &mut Map<String, Value>) -> Value {
    rename_references(&mut params, name);
    let Value::Object(fields) = &mut params else { return params };
    for heading in ["$schema", "title"] {
        fields.remove(heading);
    }
    if let Some(Value::Object(own)) = fields.remove("$defs") {
        definitions.extend(own.into_iter().map(|(inner, schema)| (format!("{name}.{inner}"), schema)));
    }
    if fields.get("type").is_some_and(|kind| kind == "object") {
        fields.insert("type".to_owned(), json!(["object", "null"]));
    }
    if let Value::Object(properties) = fields.entry("properties").or_insert_with(|| json!({})) {
        let alias =
            json!({ "type": "string", "pattern": NAME, "description": "The name of the stage behind this step." });
        properties.insert("as".to_owned(), alias);
    }
    params
}

fn rename_references(schema: &mut Value, step: &str) {
    match schema {
        Value::Object(fields) => {
            for (key, value) in fields {
                match value {
                    Value::String(target) if key == "$ref" => {
                        if let Some(inner) = target.strip_prefix("#/$defs/") {
                            *target = format!("#/$defs/{step}.{inner}");
                        }
                    }
                    value => rename_references(value, step),
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| rename_references(item, step)),
        _ => {}
    }
}
