//! The settings of a pipeline file, as data, and how the file is read: `formats/pipeline.md` describes every field. The
//! source, the steps and the smaller settings are read in `source`, `steps` and `settings`.

use crate::error::Result;
use crate::format::encoding::{Codec, Container};
use crate::spec::fields::{NAME_RULE, check, given, name_problem, place, required, text};
use crate::spec::node::{Node, Span, quote, suggest};
use crate::spec::variables::{Variables, expand};
use crate::spec::{settings, source, steps};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::Path;

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
    /// Options of a remote store or source, variables expanded.
    pub storage: BTreeMap<String, String>,
    pub order: Order,
    pub partition: Partition,
    pub on_error: OnError,
    /// The text it was read from, variables as written.
    pub text: String,
    pub file: std::path::PathBuf,
}

/// The fields at the top, with what they are for.
pub(super) const FIELDS: [(&str, &str); 11] = [
    ("name", "What the store calls this pipeline; default: the file's name without its extension."),
    ("source", "Where samples come from: one of files, table, tar, parquet, arrow, jsonl or csv."),
    ("steps", "The steps that all splits share, in order."),
    ("splits", "Named parts of the dataset; each has every shared stage before its own steps."),
    ("materialize", "Defaults of the command materialize."),
    (
        "store",
        "The store: a directory or s3://bucket/prefix; default: .forebay beside this file. ${VAR} stands for a variable.",
    ),
    ("storage", "Options of a remote store or source, such as aws_region; credentials only as ${VAR}."),
    ("order", "How samples are shuffled, or how entries of files are laid out."),
    ("partition", "The largest partition, the unit of work and of reuse."),
    ("on_error", "What becomes of samples that can't be processed: fail (default) or keep."),
    ("max_errors", "With on_error: keep, the largest share of failed samples, such as 0.1% (the default)."),
];

impl Pipeline {
    /// Reads a pipeline file's text. `file` names it in errors and gives the default name; nothing is opened.
    /// `variables` fills `${VAR}` in `source` and `store`.
    pub fn read(text: &str, file: &Path, variables: Variables) -> Result<Pipeline> {
        let root = Node::read(text, &file.display().to_string())?;
        check(&root, "a pipeline, such as {source: {files: ./photos/**/*.jpg}}", &FIELDS.map(|(name, _)| name))?;
        let source = source::read(&expand(required(&root, "source")?, variables)?)?;
        let list = |node| steps::read(node);
        let pipeline = Pipeline {
            name: read_name(&root, file)?,
            order: settings::read_order(&root, source.kind)?,
            partition: settings::read_partition(&root)?,
            on_error: settings::read_on_error(&root)?,
            materialize: settings::read_materialize(&root)?,
            steps: given(&root, "steps").map(list).transpose()?.unwrap_or_default(),
            splits: given(&root, "splits").map(steps::read_splits).transpose()?.unwrap_or_default(),
            store: given(&root, "store").map(|node| read_store(&expand(node, variables)?)).transpose()?,
            storage: settings::read_storage(&root, variables)?,
            source,
            text: text.to_owned(),
            file: file.to_owned(),
        };
        pipeline.check_stages()?;
        Ok(pipeline)
    }

    /// The names of the stages of one chain in order, `concatenated` first: the shared stages and a split's own.
    pub fn stage_names(&self, split: Option<&Split>) -> Result<Vec<String>> {
        steps::stage_names(self.source.filter.is_some(), &self.steps, split)
    }

    fn check_stages(&self) -> Result<()> {
        let mut names = self.stage_names(None)?;
        for split in &self.splits {
            for name in self.stage_names(Some(split))? {
                if !names.contains(&name) {
                    names.push(name);
                }
            }
        }
        let known = |name: &str| matches!(name, "all" | "auto") || names.iter().any(|known| known == name);
        match self.materialize.stages.iter().find(|(name, _)| !known(name)) {
            Some((name, span)) => {
                let hint = suggest(name, "expected", names.iter().map(String::as_str));
                Err(span.error(format_args!("no stage is named {}; {hint}", quote(name))))
            }
            None => Ok(()),
        }
    }
}

fn read_name(root: &Node, file: &Path) -> Result<String> {
    let (name, span, hint) = match given(root, "name") {
        Some(node) => (text(node)?.to_owned(), &node.span, ""),
        None => {
            let stem = file.file_stem().unwrap_or_default().to_string_lossy().into_owned();
            (stem, &root.span, ", so name: must be given")
        }
    };
    match name_problem(&name) {
        Some(problem) => {
            Err(span.error(format_args!("{} can't name a pipeline{hint}: {problem}; {NAME_RULE}", quote(&name))))
        }
        None => Ok(name),
    }
}

/// The store is opened elsewhere, by the text as written; only what can't be opened at all is refused here.
fn read_store(node: &Node) -> Result<String> {
    let store = text(node)?;
    place(store).map_err(|problem| node.span.error(problem))?;
    Ok(store.to_owned())
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
    /// Paths with globs and `{000..099}` ranges, variables expanded, relative to the pipeline file.
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
    /// Where each of them, and of `load`, stands; those made by hand may stand nowhere.
    pub places: BTreeMap<String, Span>,
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

/// What becomes of a sample whose object, member or joined row isn't there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Missing {
    /// A null in its place.
    Null,
    /// No sample.
    Skip,
    /// A failed row, which `on_error` decides about.
    Fail,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum IdentityMode {
    Content,
    Etag,
    Stat,
}

#[derive(Debug, Clone, Default)]
pub struct Materialize {
    /// Stage names and where they stand; empty: the default stage. `all` and `auto` stand alone and are spelled as such.
    pub stages: Vec<(String, Span)>,
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
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
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
