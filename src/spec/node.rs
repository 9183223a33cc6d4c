//! A YAML document as a tree of nodes that know where they stand. `yaml.rs` reads text into nodes, `de.rs` reads typed
//! settings from nodes; this file holds the tree, its places and the search for the nearest valid name.

use crate::error::Error;
use std::sync::Arc;

/// Where something stands: lines and columns count from 1, columns in characters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Span {
    /// The file as the user named it.
    pub file: Arc<str>,
    pub line: usize,
    pub column: usize,
    /// The names of the maps that lead here, `splits.train.steps.image.resize.size`; empty at the top. Places in a list
    /// add nothing, as line and column tell them apart.
    pub field: Arc<str>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Node {
    pub span: Span,
    pub value: Value,
}

#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    Null,
    Bool(bool),
    Int(i64),
    Float(f64),
    Str(String),
    List(Vec<Node>),
    /// In file order; keys are unique.
    Map(Vec<(Key, Node)>),
}

/// A key of a map; the `field` of its span is the map's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Key {
    pub span: Span,
    pub name: String,
}

impl Span {
    /// An `Invalid` error at this place: `photos.yaml:7:5: image.resize.size: message`.
    pub fn error(&self, message: impl std::fmt::Display) -> Error {
        let dot = if self.field.is_empty() { "" } else { ": " };
        Error::invalid(format!("{}:{}:{}: {}{dot}{message}", self.file, self.line, self.column, self.field))
    }

    /// An error from elsewhere about what stands here; its kind stays.
    pub fn wrap(&self, what: &str, error: Error) -> Error {
        error.during(self.error(what).message())
    }
}

impl Node {
    /// The value of a map's key; `None` where the node is no map or has no such key.
    pub fn get(&self, name: &str) -> Option<&Node> {
        match &self.value {
            Value::Map(pairs) => pairs.iter().find(|(key, _)| key.name == name).map(|(_, node)| node),
            _ => None,
        }
    }

    /// An item of a list.
    pub fn item(&self, at: usize) -> Option<&Node> {
        match &self.value {
            Value::List(items) => items.get(at),
            _ => None,
        }
    }

    /// Where the value of a map's key stands, or else the node itself: for errors about settings already parsed.
    pub fn span_of(&self, name: &str) -> &Span {
        self.get(name).map_or(&self.span, |node| &node.span)
    }

    /// What stands here, as errors name it: `"big"`, `3`, `a list`, `nothing`.
    pub fn found(&self) -> String {
        match &self.value {
            Value::Null => "nothing".to_owned(),
            Value::Bool(value) => value.to_string(),
            Value::Int(value) => value.to_string(),
            Value::Float(value) => format!("{value:?}"),
            Value::Str(text) => quote(text),
            Value::List(items) if items.len() == 1 => "a list of 1 item".to_owned(),
            Value::List(items) => format!("a list of {} items", items.len()),
            Value::Map(_) => "a map".to_owned(),
        }
    }

    /// A word that is none of a closed set, with the one that may have been meant.
    pub fn unknown<const N: usize>(&self, word: &str, known: [&str; N]) -> Error {
        let hint = nearest(word, known.into_iter()).map(|near| format!("; did you mean {near:?}?"));
        let (known, hint) = (one_of(known), hint.unwrap_or_default());
        self.span.error(format_args!("expected {known}, found {}{hint}", quote(word)))
    }

    /// `expected ..., found ...` at this node.
    pub fn expected(&self, what: impl std::fmt::Display) -> Error {
        self.span.error(format_args!("expected {what}, found {}", self.found()))
    }
}

/// The text in quotes, cut short where it is long.
pub(crate) fn quote(text: &str) -> String {
    match text.char_indices().nth(60) {
        Some((end, _)) => format!("{:?}...", text.get(..end).unwrap_or(text)),
        None => format!("{text:?}"),
    }
}

/// `a`, `a or b`, `a, b or c`.
pub fn one_of<'a>(names: impl IntoIterator<Item = &'a str>) -> String {
    let names: Vec<&str> = names.into_iter().collect();
    match names.split_last() {
        None => "nothing".to_owned(),
        Some((last, [])) => (*last).to_owned(),
        Some((last, rest)) => format!("{} or {last}", rest.join(", ")),
    }
}

/// What to try instead of a name that isn't known: `did you mean "resize"?`, else all there are.
pub fn suggest<'a>(name: &str, what: &str, candidates: impl Iterator<Item = &'a str> + Clone) -> String {
    match nearest(name, candidates.clone()) {
        Some(near) => format!("did you mean {near:?}?"),
        None => {
            let mut told = std::collections::HashSet::new();
            format!("{what} {}", one_of(candidates.filter(|name| told.insert(*name))))
        }
    }
}

/// The candidate with the smallest edit distance, if it is near enough to be a slip of the keyboard.
pub fn nearest<'a>(name: &str, candidates: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let letters = name.chars().count();
    let limit = (letters / 3).max(1);
    // Words of which every letter differs have nothing in common, however short they are.
    let near = |d: usize, c: &str| d <= limit && d < letters.max(c.chars().count());
    candidates.map(|c| (distance(name, c), c)).filter(|(d, c)| near(*d, c)).min_by_key(|(d, _)| *d).map(|(_, c)| c)
}

/// Edits (insert, delete, replace, swap of neighbours) from one word to the other.
fn distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    let mut rows = vec![vec![0; b.len() + 1]; a.len() + 1];
    for i in 0..=a.len() {
        for j in 0..=b.len() {
            rows[i][j] = if i == 0 || j == 0 {
                i + j
            } else {
                let replace = rows[i - 1][j - 1] + usize::from(a[i - 1] != b[j - 1]);
                let mut best = replace.min(rows[i - 1][j] + 1).min(rows[i][j - 1] + 1);
                if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                    best = best.min(rows[i - 2][j - 2] + 1);
                }
                best
            };
        }
    }
    rows[a.len()][b.len()]
}
