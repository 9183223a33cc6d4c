//! Names to steps: builds a bound step from its parameters and input schema, and knows every step's documentation.

use crate::error::Result;
use crate::spec::node::{Node, Span, nearest};
use crate::step::{Cardinality, Purity, Step, image, table};
use arrow::datatypes::SchemaRef;
use std::path::Path;
use std::sync::Arc;

/// A step that pipelines can name.
pub struct Definition {
    /// `image.resize`
    pub name: &'static str,
    /// One line for `--help`, the JSON Schema and error messages.
    pub summary: &'static str,
    pub purity: Purity,
    pub cardinality: Cardinality,
    /// What it reads, what it writes, and why a row fails: half a sentence each, as `formats/steps.md` has them.
    pub reads: &'static str,
    pub writes: &'static str,
    pub fails: &'static str,
    /// JSON Schema of the parameters.
    pub schema: fn() -> schemars::Schema,
    pub build: fn(&Build) -> Result<Arc<dyn Step>>,
}

/// What a step is bound to.
pub struct Build<'a> {
    /// `Value::Null` where the pipeline gives no parameters; read it with `Node::parse`.
    pub params: &'a Node,
    /// Of the step's name: where errors about the step as a whole point.
    pub span: &'a Span,
    pub input: &'a SchemaRef,
    /// What files named by parameters are relative to.
    pub base: &'a Path,
}

/// Every step, by module.
pub fn definitions() -> impl Iterator<Item = &'static Definition> {
    image::DEFINITIONS.iter().chain(table::DEFINITIONS)
}

/// Builds the step `name`; an unknown name is an error at its place that suggests the nearest.
pub fn build(name: &str, request: &Build) -> Result<Arc<dyn Step>> {
    if let Some(definition) = definitions().find(|d| d.name == name) {
        return (definition.build)(request);
    }
    if name == "python" || name.starts_with("python.") {
        return Err(request.span.error("python: steps are not built yet; expected one of the built-in steps"));
    }
    Err(request.span.error(unknown(name)))
}

/// What is wrong with a name that no step has.
pub fn unknown(name: &str) -> String {
    let names = || definitions().map(|d| d.name);
    let hint = match nearest(name, names()) {
        Some(near) => format!("did you mean {near:?}?"),
        None => format!("the steps are {}", names().collect::<Vec<_>>().join(", ")),
    };
    format!("unknown step {name:?}; {hint}")
}
