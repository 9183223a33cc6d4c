//! The `source:` of a pipeline file: one kind, its patterns, and the fields that this kind takes.

use crate::error::Result;
use crate::spec::fields::{check, given, is_remote, one_or_more, place, required, text, texts};
use crate::spec::node::{Node, Span, Value, one_of, quote, suggest};
use crate::spec::pipeline::{Field, IdentityMode, Missing, Source, SourceKind};
use crate::spec::steps::read_filter;
use crate::spec::template::{KEY_PLACES, Template};
use std::collections::BTreeMap;

use SourceKind::{Arrow, Csv, Files, Hdf5, Jsonl, Parquet, Table, Tar};

const ROWS: &[SourceKind] = &[Table, Parquet, Arrow, Jsonl, Csv, Hdf5];
const CONTAINERS: &[SourceKind] = &[Table, Tar, Parquet, Arrow, Jsonl, Csv, Hdf5];

/// Every field of a source beside its kind, with the kinds that take it and what it means.
pub(super) const FIELDS: [(&str, &[SourceKind], &str); 9] = [
    (
        "root",
        &SourceKind::ALL,
        "What keys are relative to; default: the longest prefix of the patterns without a glob.",
    ),
    ("columns", CONTAINERS, "Columns carried; default: all."),
    ("where", &SourceKind::ALL, "An expression that keeps the rows for which it is true, such as hash(key) % 20 != 0."),
    ("key", ROWS, "A column that gives rows a stable key; default: the row's number."),
    ("fields", &SourceKind::ALL, "Extra columns, made from the key or joined from a table."),
    ("join", &SourceKind::ALL, "Extra columns of a CSV or Parquet file, taken from the row that matches the key."),
    (
        "load",
        &[Table],
        "Columns read from files: output column to a path in which {column} stands for the row's value.",
    ),
    ("missing", &SourceKind::ALL, "What becomes of a sample whose object, member or joined row isn't there."),
    (
        "identity",
        &SourceKind::ALL,
        "What entries are known by: content, the digest of their bytes (default for files), etag, what a service tells of objects (default in a bucket), or stat, a file's size and time.",
    ),
];

impl SourceKind {
    pub const ALL: [SourceKind; 8] = [Files, Table, Tar, Parquet, Arrow, Jsonl, Csv, Hdf5];

    /// The field that names it: `files`.
    pub const fn name(self) -> &'static str {
        match self {
            Files => "files",
            Table => "table",
            Tar => "tar",
            Parquet => "parquet",
            Arrow => "arrow",
            Jsonl => "jsonl",
            Csv => "csv",
            Hdf5 => "hdf5",
        }
    }
}

/// `node` with its variables expanded.
pub fn read(node: &Node) -> Result<Source> {
    let kinds = || SourceKind::ALL.iter().map(|kind| kind.name());
    let Value::Map(pairs) = &node.value else {
        return Err(node.expected("a source, such as {files: ./photos/**/*.jpg}"));
    };
    let mut kind = None;
    for (key, value) in pairs {
        if let Some(found) = SourceKind::ALL.into_iter().find(|kind| kind.name() == key.name) {
            if let Some((earlier, _, _)) = kind {
                let earlier: SourceKind = earlier;
                return Err(key.span.error(format_args!(
                    "expected one kind of source, found {} after {}; join: brings columns of a second table",
                    found.name(),
                    earlier.name()
                )));
            }
            kind = Some((found, key, value));
        } else if !FIELDS.iter().any(|(name, _, _)| *name == key.name) {
            let all = kinds().chain(FIELDS.iter().map(|f| f.0));
            let hint = suggest(&key.name, "expected", all);
            return Err(key.span.error(format_args!("unknown field {}; {hint}", quote(&key.name))));
        }
    }
    let Some((kind, kind_key, patterns)) = kind else {
        return Err(node.span.error(format_args!("expected one of the fields {}", one_of(kinds()))));
    };
    for (key, _) in pairs {
        if let Some((name, allowed, _)) = FIELDS.iter().find(|f| f.0 == key.name && !f.1.contains(&kind)) {
            return Err(key.span.error(format_args!(
                "{name:?} is no field of a {} source; it belongs to {}",
                kind.name(),
                one_of(allowed.iter().map(|kind| kind.name()))
            )));
        }
    }

    let patterns = one_or_more(patterns, "paths or patterns")?.iter().map(read_path).collect::<Result<Vec<_>>>()?;
    let mut places = BTreeMap::new();
    let load = given(node, "load").map(|load| read_load(load, &mut places)).transpose()?.unwrap_or_default();
    let identity = read_identity(node, &patterns, &load)?;
    let source = Source {
        kind,
        span: kind_key.span.clone(),
        patterns,
        root: given(node, "root").map(read_path).transpose()?,
        columns: given(node, "columns").map(read_columns).transpose()?,
        filter: read_filter(node)?,
        key: given(node, "key").map(|node| text(node).map(str::to_owned)).transpose()?,
        fields: read_fields(node, &mut places)?,
        load,
        places,
        missing: read_missing(node)?,
        identity,
    };
    if kind == Hdf5 {
        let expected = one_of(kinds().filter(|name| *name != "hdf5"));
        return Err(kind_key.span.error(format_args!("hdf5 sources are not built yet; expected {expected}")));
    }
    Ok(source)
}

fn read_path(node: &Node) -> Result<String> {
    place(text(node)?).map_err(|problem| node.span.error(problem))
}

fn read_columns(node: &Node) -> Result<Vec<String>> {
    match &node.value {
        Value::List(_) => texts(one_or_more(node, "names of columns")?),
        _ => Err(node.expected("a list of columns")),
    }
}

fn read_missing(source: &Node) -> Result<Missing> {
    match source.get("missing") {
        None => Ok(Missing::Fail),
        // YAML reads the word null as no value.
        Some(node) if node.value == Value::Null => Ok(Missing::Null),
        Some(node) => node.parse(),
    }
}

/// The default is what costs least and is sound: what a service tells of objects, else the digest of files. Entries of a
/// table with `load:` are known by the objects that rows refer to.
fn read_identity(node: &Node, patterns: &[String], load: &BTreeMap<String, String>) -> Result<IdentityMode> {
    let by_patterns = patterns.iter().all(|pattern| is_remote(pattern));
    let (all_remote, any_remote) = match load.is_empty() {
        true => (by_patterns, by_patterns),
        false => (
            by_patterns || load.values().all(|path| is_remote(path)),
            by_patterns || load.values().any(|path| is_remote(path)),
        ),
    };
    let Some(node) = given(node, "identity") else {
        return Ok(if all_remote { IdentityMode::Etag } else { IdentityMode::Content });
    };
    match node.parse()? {
        IdentityMode::Etag if !all_remote => Err(node
            .span
            .error("etag is what a service tells of objects, and there are local files; expected content or stat")),
        IdentityMode::Stat if any_remote => Err(node
            .span
            .error("stat is for files, and there are objects of a bucket; expected etag (the default) or content")),
        mode => Ok(mode),
    }
}

/// `fields:` and `join:` together.
fn read_fields(source: &Node, places: &mut BTreeMap<String, Span>) -> Result<BTreeMap<String, Field>> {
    let mut fields = BTreeMap::new();
    if let Some(node) = given(source, "fields") {
        let Value::Map(pairs) = &node.value else {
            return Err(node.expected("a map of columns, such as {label: \"{parent}\"}"));
        };
        for (key, value) in pairs {
            check_column(&key.name).map_err(|problem| key.span.error(problem))?;
            fields.insert(key.name.clone(), read_field(value)?);
            let place = value.get("join").map_or(&key.span, |table| &table.span);
            places.insert(key.name.clone(), place.clone());
        }
    }
    let Some(node) = given(source, "join") else { return Ok(fields) };
    for join in one_or_more(node, "a join")? {
        check(
            join,
            "a join, such as {table: labels.csv, on: file, columns: [label]}",
            &["table", "on", "matching", "columns"],
        )?;
        let columns = required(join, "columns")?;
        let (table, on, matching) = read_match(join, "table")?;
        for (name, column) in read_columns(columns)?.into_iter().zip(one_or_more(columns, "names of columns")?) {
            check_column(&name).map_err(|problem| column.span.error(problem))?;
            let field =
                Field::Join { table: table.clone(), on: on.clone(), matching: matching.clone(), column: name.clone() };
            if fields.insert(name.clone(), field).is_some() {
                return Err(column
                    .span
                    .error(format_args!("the column {name:?} is already made by another field or join")));
            }
            places.insert(name, join.span_of("table").clone());
        }
    }
    Ok(fields)
}

fn check_column(name: &str) -> Result<(), String> {
    if name.is_empty() || name.starts_with('_') {
        return Err(format!("{name:?} can't name a column; names that begin with _ are Forebay's own"));
    }
    Ok(())
}

fn read_field(node: &Node) -> Result<Field> {
    const WHAT: &str = "a template such as \"{parent}\", {regex: ...} or {join: labels.csv, on: file, column: label}";
    let pairs = match &node.value {
        Value::Map(pairs) => pairs,
        Value::Str(_) => return Ok(Field::Template(read_template(node)?)),
        _ => return Err(node.expected(WHAT)),
    };
    if let [(key, value)] = pairs.as_slice()
        && value.value == Value::Null
        && KEY_PLACES.contains(&key.name.as_str())
    {
        return Err(node.span.error(format_args!("expected text, found a map; quote it: \"{{{}}}\"", key.name)));
    }
    check(node, WHAT, &["regex", "join", "on", "matching", "column"])?;
    if let Some(regex) = given(node, "regex") {
        check(node, WHAT, &["regex"])?;
        let pattern = text(regex)?;
        regex::Regex::new(pattern).map_err(|error| {
            // The last line says what is wrong; those before it draw the pattern.
            let problem = error.to_string();
            let problem = problem.lines().last().unwrap_or_default().trim_start_matches("error: ").to_owned();
            regex.span.error(format_args!("expected a regular expression, found {}: {problem}", quote(pattern)))
        })?;
        return Ok(Field::Regex(pattern.to_owned()));
    }
    let column = required(node, "column");
    let (table, on, matching) = read_match(node, "join")?;
    Ok(Field::Join { table, on, matching, column: text(column?)?.to_owned() })
}

/// Table, column of the table, template of the value that this column must have.
fn read_match(node: &Node, table: &str) -> Result<(String, String, String)> {
    let matching = given(node, "matching").map(read_template).transpose()?.unwrap_or_else(|| "{key}".to_owned());
    Ok((read_path(required(node, table)?)?, text(required(node, "on")?)?.to_owned(), matching))
}

fn read_template(node: &Node) -> Result<String> {
    let text = text(node)?;
    Template::of_key(text).map_err(|problem| node.span.error(problem))?;
    Ok(text.to_owned())
}

fn read_load(node: &Node, places: &mut BTreeMap<String, Span>) -> Result<BTreeMap<String, String>> {
    let Value::Map(pairs) = &node.value else {
        return Err(node.expected("a map of columns to paths, such as {image: \"images/{file}\"}"));
    };
    let mut load = BTreeMap::new();
    for (key, value) in pairs {
        check_column(&key.name).map_err(|problem| key.span.error(problem))?;
        let path = read_path(value)?;
        let template = Template::parse(&path).map_err(|problem| value.span.error(problem))?;
        if template.places().next().is_none() {
            return Err(value.expected("a path with the name of a column in braces, such as \"images/{file}\""));
        }
        load.insert(key.name.clone(), path);
        places.insert(key.name.clone(), key.span.clone());
    }
    Ok(load)
}
