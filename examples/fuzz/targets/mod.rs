//! What is fuzzed: every reader of bytes that come from outside. A target gets any bytes and may return what it likes; a
//! panic, an abort, memory or time without bound is a finding. Where values are read, they must survive being written and
//! read again.

mod documents;
mod images;
mod shards;
mod sources;
mod text;

use forebay::spec::node::Node;
use forebay::step::registry::{self, Build};
use forebay::step::{Context, Step};
use std::path::{Path, PathBuf};
use std::sync::Arc;

#[derive(Clone, Copy)]
pub struct Target {
    pub name: &'static str,
    /// Sound inputs to begin with.
    pub corpus: fn() -> Vec<Vec<u8>>,
    pub tokens: &'static [&'static str],
    /// Makes what is kept between inputs, and from it the function that takes one.
    pub open: fn() -> Run,
}

pub type Run = Box<dyn FnMut(&[u8])>;

pub fn all() -> Vec<Target> {
    [documents::TARGETS, text::TARGETS, images::TARGETS, shards::TARGETS, sources::TARGETS]
        .into_iter()
        .flatten()
        .copied()
        .collect()
}

/// A file of the repository.
fn repository(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

/// The contents of the files of a directory of the repository whose names end in one of `endings`, by name.
fn files(directory: &str, endings: &[&str]) -> Vec<Vec<u8>> {
    let mut paths: Vec<PathBuf> =
        std::fs::read_dir(repository(directory)).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.retain(|path| endings.iter().any(|ending| path.to_string_lossy().ends_with(ending)));
    paths.sort();
    assert!(!paths.is_empty(), "there is no corpus in {directory}");
    paths.iter().map(|path| std::fs::read(path).unwrap()).collect()
}

const CONTEXT: Context = Context { seed: 1, epoch: 2, occurrence: 0 };

/// A built-in step over columns; its parameters are `None` where they are no node.
fn step(name: &str, params: &str, input: &arrow::datatypes::SchemaRef) -> Option<Arc<dyn Step>> {
    let params = Node::read(params, "fuzz.yaml").ok()?;
    let span = params.span.clone();
    let base = Path::new("/nonexistent");
    registry::build(name, &Build { params: &params, span: &span, input, base }).ok()
}
