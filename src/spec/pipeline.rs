//! The settings of a pipeline file, as data.

use crate::format::encoding::Codec;
use crate::format::encoding::Container;
use crate::spec::node::{Node, Span};
use std::collections::BTreeMap;

#[derive(Debug, Clone)]
pub struct Pipeline {
    pub name: String,
    pub source: Source,
    pub steps: Vec<Step>,
    /// In file order; a pipeline without `splits:` has none.
    pub splits: Vec<Split>,
    pub materialize: Materialize,
    /// As written, variables expanded.
    pub store: Option<String>,
    pub order: Order,
    pub partition: Partition,
    pub on_error: OnError,
    /// The text it was read from, variables as written.
    pub text: String,
    pub file: std::path::PathBuf,
}

#[derive(Debug, Clone)]
pub struct Step {
    /// Registered name, `image.resize`.
    pub name: String,
    /// `as:`; the stage is called this instead of the part after the last dot of `name`.
    pub alias: Option<String>,
    /// The parameters, `as:` taken out; `Value::Null` where there are none.
    pub params: Node,
    /// Of the step's name.
    pub span: Span,
}

#[derive(Debug, Clone)]
pub struct Split {
    pub name: String,
    /// A filter at the head of the split.
    pub filter: Option<(String, Span)>,
    pub steps: Vec<Step>,
    pub shuffle: Option<bool>,
    pub span: Span,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum SourceKind {
    Files,
    Table,
    Tar,
    Parquet,
    Arrow,
    Jsonl,
    Csv,
    Hdf5,
}

/// One source; which fields may be set depends on `kind` and is checked when the file is read.
#[derive(Debug, Clone)]
pub struct Source {
    pub kind: SourceKind,
    pub span: Span,
    /// Paths or URLs with globs and `{000..099}` ranges, variables expanded, relative to the pipeline file.
    pub patterns: Vec<String>,
    /// What keys are relative to; default: the longest prefix of the patterns without a glob.
    pub root: Option<String>,
    /// Columns carried; `None`: all. Never inferred.
    pub columns: Option<Vec<String>>,
    /// A filter step at the head of the chain.
    pub filter: Option<(String, Span)>,
    /// A column that gives rows a stable key.
    pub key: Option<String>,
    /// Extra columns, made from the key or joined.
    pub fields: BTreeMap<String, Field>,
    /// Output column to a template of paths, `{column}` standing for the row's value.
    pub load: BTreeMap<String, String>,
    pub missing: Missing,
    pub identity: IdentityMode,
}

#[derive(Debug, Clone, PartialEq)]
pub enum Field {
    /// `{key}`, `{name}`, `{stem}`, `{ext}`, `{parent}`, `{parent[1]}` and text.
    Template(String),
    /// The first group (or the whole match) of a regular expression in the key.
    Regex(String),
    /// The value of `column` in the row of the CSV or Parquet file `table` whose `on` column equals `matching` (a
    /// template, default `{key}`).
    Join { table: String, on: String, matching: String, column: String },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Missing {
    Null,
    Skip,
    Fail,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IdentityMode {
    Content,
    Etag,
    Stat,
}

#[derive(Debug, Clone, Default)]
pub struct Materialize {
    /// Stage names; empty: the default stage. `all` and `auto` are spelled as such.
    pub stages: Vec<String>,
    pub container: Option<Container>,
    pub codec: Option<Codec>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Order {
    /// L; default 16.
    pub lanes: Option<u32>,
    /// K; see DESIGN of the order for the default.
    pub block: Option<u32>,
    pub by: EntryOrder,
}

/// How entries of `files` are laid out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum EntryOrder {
    #[default]
    Hash,
    Key,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Partition {
    /// Most entries in a partition.
    pub entries: u64,
    /// Most bytes, as listed, in a partition.
    pub bytes: u64,
}

impl Default for Partition {
    fn default() -> Self {
        Partition { entries: 8192, bytes: 64 << 20 }
    }
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub enum OnError {
    Fail,
    /// Keep failed rows while their share stays at or below this (0.001 for `0.1%`).
    Keep {
        max_errors: f64,
    },
}
