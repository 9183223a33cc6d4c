//! The text of a starter pipeline: what the survey found, written so that a newcomer can go on from it.

use super::split::Split;
use super::survey::{Kind, Labels, Survey, is_label};
use std::fmt::Write;
use std::path::Path;

/// The pipeline's name: the folder's or file's, reduced to what a name may hold.
pub(super) fn name(path: &Path) -> String {
    let whole = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let last = if whole.is_dir() { whole.file_name() } else { whole.file_stem() };
    let name: String = last
        .map(|n| n.to_string_lossy().into_owned())
        .unwrap_or_default()
        .trim_end_matches(".tar")
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.') { c } else { '_' })
        .take(100)
        .collect();
    let name = name.trim_start_matches('.');
    if name.is_empty() { "pipeline".to_owned() } else { name.to_owned() }
}

pub(super) fn text(name: &str, path: &Path, survey: &Survey) -> String {
    let mut out = String::new();
    let main = survey.main.unwrap_or(Kind::Image);
    let count = survey.counts.get(&main).copied().unwrap_or(0);
    // Writing to a String can't fail.
    let _ =
        writeln!(out, "# A starter pipeline for {count} {} file{}.", main.name(), if count == 1 { "" } else { "s" });
    let _ = writeln!(out, "name: {}\n", quoted(name));
    source(&mut out, main, path, survey);
    steps(&mut out, main, survey);
    write_splits(&mut out, main, survey);
    out.push_str("\n# Where stages are stored; `--store` and FOREBAY_STORE win.\nstore: ./.forebay\n");
    out
}

fn source(out: &mut String, main: Kind, path: &Path, survey: &Survey) {
    let field = match main {
        Kind::Image | Kind::Audio | Kind::Text => "files",
        Kind::Tar => "tar",
        Kind::Parquet => "parquet",
        Kind::Arrow => "arrow",
        Kind::Jsonl => "jsonl",
        Kind::Csv if survey.load.is_some() => "table",
        Kind::Csv => "csv",
    };
    let patterns: Vec<String> = if survey.single {
        vec![quoted(&escaped(path))]
    } else {
        let below = if survey.nested { "**/" } else { "" };
        survey.extensions.iter().map(|e| quoted(&format!("{}/{below}*.{e}", escaped(path)))).collect()
    };
    let listed = match patterns.as_slice() {
        [one] => one.clone(),
        many => format!("[ {} ]", many.join(", ")),
    };
    let _ = writeln!(out, "source:\n  {field}: {listed}");
    if survey.split_column.is_none() && !survey.splits.is_empty() {
        let _ = writeln!(out, "  root: {}    # what keys are relative to; the splits go by them", quoted(&shown(path)));
    }
    if let Some(load) = &survey.load {
        let _ = writeln!(
            out,
            "  load: {{ {}: {} }}    # the file that a row names",
            loaded(survey),
            quoted(&load.template)
        );
        if load.unique {
            let _ =
                writeln!(out, "  key: {}    # what a row is known by; without it, its number", quoted(&load.column));
        }
    }
    let by_directory = !survey.classes.is_empty() && field == "files";
    if by_directory {
        let _ = writeln!(
            out,
            "  fields: {{ label: \"{{parent}}\" }}    # the directory's name: {} and {} more",
            comment(survey.classes.first().map_or("", String::as_str)),
            survey.classes.len() - 1
        );
    }
    if let Some(labels) = survey.labels.as_ref().filter(|_| !by_directory || survey.split_column.is_some()) {
        labels_beside(out, main, labels);
    }
    if !survey.columns.is_empty() {
        let what = if main == Kind::Tar { "members of the first file" } else { "columns of the first file" };
        let _ = writeln!(out, "  # {what}: {}", comment(&survey.columns.join(", ")));
    }
    out.push('\n');
}

/// The join with a table beside the files; as a comment where not every file has a row there.
fn labels_beside(out: &mut String, main: Kind, labels: &Labels) {
    let file = quoted(&shown(&labels.file));
    let Some(join) = &labels.join else {
        let (file, columns) = (comment(&file), comment(&labels.columns.join(", ")));
        let _ = writeln!(
            out,
            "  # {file} has the columns {columns}; none holds the names of the files, as `join:` needs it."
        );
        return;
    };
    let columns: Vec<String> = joined(main, labels).map(|c| quoted(c)).collect();
    let (on, matching, columns) = (quoted(&join.on), join.matching, columns.join(", "));
    let mark = match join.complete {
        true => "",
        false => {
            out.push_str(
                "  # Not every file has a row in the table beside them. Take the mark away to join it, and have\n",
            );
            out.push_str(
                "  # `missing: skip` leave those files out, or `missing: null` keep them as failed samples.\n",
            );
            "# "
        }
    };
    let join = format!("join: {{ table: {file}, on: {on}, matching: \"{matching}\", columns: [ {columns} ] }}");
    let _ = writeln!(out, "  {mark}{join}");
}

/// The columns of a table beside the files that samples get.
fn joined(main: Kind, labels: &Labels) -> impl Iterator<Item = &String> {
    labels.joined().filter(move |column| column.as_str() != main.name())
}

/// The column of the files that a table's rows name.
fn loaded(survey: &Survey) -> &'static str {
    if survey.columns.iter().any(|column| column == "image") { "pixels" } else { "image" }
}

/// Whether there are images to decode, and in which column where that must be said.
fn image(main: Kind, survey: &Survey) -> Option<Option<&str>> {
    match main {
        Kind::Image => Some(None),
        Kind::Csv if survey.load.is_some() => Some(Some(loaded(survey))),
        _ => survey.image.as_deref().map(Some),
    }
}

/// The column that has class names to be numbered.
fn label(main: Kind, survey: &Survey) -> Option<&str> {
    match main {
        Kind::Image | Kind::Audio | Kind::Text if !survey.classes.is_empty() => Some("label"),
        Kind::Image | Kind::Audio | Kind::Text => {
            let labels = survey.labels.as_ref().filter(|labels| labels.join.as_ref().is_some_and(|j| j.complete))?;
            joined(main, labels).find(|column| is_label(column)).map(String::as_str)
        }
        Kind::Tar => None,
        _ => survey.label.as_deref(),
    }
}

/// Whether the draft has steps.
pub(super) fn has_steps(survey: &Survey) -> bool {
    let main = survey.main.unwrap_or(Kind::Image);
    image(main, survey).is_some() || label(main, survey).is_some()
}

fn steps(out: &mut String, main: Kind, survey: &Survey) {
    let (image, label) = (image(main, survey), label(main, survey));
    if !has_steps(survey) {
        out.push_str(
            "# steps:\n#   - table.select: { columns: [ .. ] }    # or table.filter, table.cast, label.index\n",
        );
        return;
    }
    out.push_str("# Steps run in order; each one's output is a stage that can be stored.\nsteps:\n");
    if let Some(column) = image {
        match column {
            Some(column) => {
                let _ = writeln!(out, "  - image.decode: {{ column: {} }}    # to HWC uint8", quoted(column));
            }
            None => out.push_str("  - image.decode    # to HWC uint8, turned as EXIF says\n"),
        }
        out.push_str("  - image.resize: { shorter_side: 256 }\n");
    }
    if let Some(column) = label {
        let file = "found once and written to classes.txt";
        let _ = writeln!(out, "  - label.index: {{ column: {}, classes: auto }}    # {file}", quoted(column));
    }
}

/// The splits that are there already, else a twentieth set aside.
pub(super) fn splits(survey: &Survey) -> Vec<Split> {
    if !survey.splits.is_empty() {
        return survey.splits.clone();
    }
    let split =
        |name: &str, condition: &str| Split { name: name.to_owned(), condition: condition.to_owned(), count: 0 };
    vec![split("train", "hash(key) % 20 != 0"), split("val", "hash(key) % 20 == 0")]
}

fn write_splits(out: &mut String, main: Kind, survey: &Survey) {
    out.push_str(match (survey.splits.is_empty(), survey.split_column.is_some()) {
        (true, _) => {
            "\n# Splits share every stage above. The hash of a key never changes, so neither does its split.\n"
        }
        (false, true) => "\n# The splits that the table names; they share every stage above.\n",
        (false, false) => "\n# The splits that the names of directories and files say; they share every stage above.\n",
    });
    if survey.unsplit > 0 {
        let what = if survey.split_column.is_some() { "row" } else { "file" };
        let are = if survey.unsplit == 1 { " is" } else { "s are" };
        let _ = writeln!(out, "# {} {what}{are} in none of them, and read by none.", survey.unsplit);
    }
    out.push_str("splits:\n");
    let splits = splits(survey);
    let width = splits.iter().map(|split| split.name.len()).max().unwrap_or(0) + 1;
    for split in splits {
        let steps = match (image(main, survey), split.trains()) {
            (None, _) => "",
            (_, true) => ", steps: [ image.random_crop: { size: [224, 224] }, image.random_flip ]",
            (_, false) => ", steps: [ image.center_crop: { size: [224, 224] } ]",
        };
        let (name, shuffle) = (format!("{}:", split.name), split.trains());
        let condition = serde_json::Value::from(split.condition);
        let _ = writeln!(out, "  {name:<width$} {{ where: {condition}{steps}, shuffle: {shuffle} }}");
    }
}

/// The path as the file should have it: relative ones begin with a dot.
fn dotted(path: &Path) -> String {
    let text = path.to_string_lossy();
    match text.trim_end_matches('/') {
        "" if text.starts_with('/') => "/".to_owned(),
        "" | "." => ".".to_owned(),
        text if text.starts_with(['/', '.']) => text.to_owned(),
        text => format!("./{text}"),
    }
}

/// The path where no pattern is meant; `${` would begin a variable.
fn shown(path: &Path) -> String {
    dotted(path).replace("${", "$${")
}

/// The path with its wildcard characters taken literally, which leaves no `${` either.
fn escaped(path: &Path) -> String {
    let mut out = String::new();
    for c in dotted(path).chars() {
        if matches!(c, '*' | '?' | '[' | ']' | '{' | '}' | '\\') {
            out.push('\\');
        }
        out.push(c);
    }
    if out == "/" { String::new() } else { out }
}

/// A YAML scalar: plain where it is plainly a text, else in double quotes as JSON has them.
fn quoted(text: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.' | '/' | '*');
    let begins = text.starts_with(|c: char| c.is_ascii_alphabetic() || matches!(c, '/'))
        || text.starts_with("./")
        || text.starts_with("../");
    let word = matches!(text.to_ascii_lowercase().as_str(), "true" | "false" | "null");
    if begins && !word && text.chars().all(plain) {
        return text.to_owned();
    }
    serde_json::Value::from(text).to_string()
}

/// Text from outside inside a comment: one line.
fn comment(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).take(200).collect()
}
