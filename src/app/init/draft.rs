//! The text of a starter pipeline: what the survey found, written so that a newcomer can go on from it.

use super::survey::{Kind, Survey};
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
    splits(&mut out, main, survey);
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
    if !survey.single && main == Kind::Image && !survey.splits.is_empty() {
        let _ = writeln!(
            out,
            "  root: {}    # keys begin with the split: {}",
            quoted(&shown(path)),
            survey.splits.join(", ")
        );
    }
    if !survey.classes.is_empty() && field == "files" {
        let _ = writeln!(
            out,
            "  fields: {{ label: \"{{parent}}\" }}    # the directory's name: {} and {} more",
            comment(survey.classes.first().map_or("", String::as_str)),
            survey.classes.len() - 1
        );
    } else if let Some((file, columns)) = &survey.labels {
        let on = columns.first().map_or("", String::as_str);
        let values: Vec<String> = columns.iter().skip(1).map(|c| quoted(c)).collect();
        let (on, file) = (quoted(on), quoted(&shown(file)));
        out.push_str("  # Labels from the table beside the files: `matching` is the key whose row is looked up.\n");
        let _ = writeln!(
            out,
            "  # join: {{ table: {file}, on: {on}, matching: \"{{name}}\", columns: [ {} ] }}",
            comment(&values.join(", "))
        );
    }
    if !survey.columns.is_empty() {
        let what = if main == Kind::Tar { "members of the first file" } else { "columns of the first file" };
        let _ = writeln!(out, "  # {what}: {}", comment(&survey.columns.join(", ")));
    }
    out.push('\n');
}

/// Whether there are images to decode, and in which column where that must be said.
fn image(main: Kind, survey: &Survey) -> Option<Option<&str>> {
    match main {
        Kind::Image => Some(None),
        _ => survey.image.as_deref().map(Some),
    }
}

/// The column that has class names to be numbered.
fn label(main: Kind, survey: &Survey) -> Option<&str> {
    match main {
        Kind::Image | Kind::Audio | Kind::Text => (!survey.classes.is_empty()).then_some("label"),
        Kind::Tar => None,
        _ => survey.label.as_deref(),
    }
}

fn steps(out: &mut String, main: Kind, survey: &Survey) {
    let (image, label) = (image(main, survey), label(main, survey));
    if image.is_none() && label.is_none() {
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

fn splits(out: &mut String, main: Kind, survey: &Survey) {
    let train = "[ image.random_crop: { size: [224, 224] }, image.random_flip ]";
    let other = "[ image.center_crop: { size: [224, 224] } ]";
    let (train, other) = match image(main, survey) {
        Some(_) => (format!(", steps: {train}"), format!(", steps: {other}")),
        None => (String::new(), String::new()),
    };
    if main == Kind::Image && !survey.splits.is_empty() {
        out.push_str("\n# Splits by the directory that the key begins with; they share every stage above.\nsplits:\n");
        for split in &survey.splits {
            let steps = if split.to_ascii_lowercase().starts_with("train") { &train } else { &other };
            let shuffle = if split.to_ascii_lowercase().starts_with("train") { "" } else { ", shuffle: false" };
            let condition = quoted(&format!("starts_with(key, '{split}/')"));
            let _ = writeln!(out, "  {}: {{ where: {condition}{steps}{shuffle} }}", quoted(split));
        }
        return;
    }
    out.push_str(
        "\n# Splits share every stage above. The hash of a key never changes, so neither does its split.\nsplits:\n",
    );
    let _ = writeln!(out, "  train: {{ where: \"hash(key) % 20 != 0\"{train} }}");
    let _ = writeln!(out, "  val:   {{ where: \"hash(key) % 20 == 0\"{other}, shuffle: false }}");
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
