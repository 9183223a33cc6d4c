//! A YAML document as a tree of nodes with source spans; typed settings are read from it through serde.

use crate::error::{Error, Result};
use std::sync::Arc;

/// Where something stands: lines and columns count from 1.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Span {
    /// The file as the user named it.
    pub file: Arc<str>,
    pub line: usize,
    pub column: usize,
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

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Key {
    pub span: Span,
    pub name: String,
}

impl Span {
    /// An `Invalid` error at this place: `photos.yaml:7:5: message`.
    pub fn error(&self, message: impl std::fmt::Display) -> Error {
        Error::invalid(format!("{}:{}:{}: {message}", self.file, self.line, self.column))
    }
}

impl Node {
    /// Reads typed settings; `Null` reads as an empty map. Errors stand at the node that they are about and name the field,
    /// what was expected and, for unknown fields, the nearest valid one.
    pub fn parse<T: serde::de::DeserializeOwned>(&self) -> Result<T> {
        unimplemented!()
    }
}

/// The candidate with the smallest edit distance, if it is near enough to be a slip of the keyboard.
pub fn nearest<'a>(name: &str, candidates: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let limit = (name.chars().count() / 3).max(1);
    candidates.map(|c| (distance(name, c), c)).filter(|(d, _)| *d <= limit).min_by_key(|(d, _)| *d).map(|(_, c)| c)
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
