//! The chain of each split: its steps bound to the schemas that reach them, or, for a dataset opened from its store alone,
//! the stages as the pipeline's head records them, of which only those that must be run need a step of this build.

use crate::app::explain::sentence;
use crate::engine::dataset::Split;
use crate::error::{Error, Result};
use crate::format::canonical::Value;
use crate::format::head::{PipelineHead, StageHead};
use crate::format::{ROW, schema};
use crate::plan::chain::{Chain, Named, Stage};
use crate::plan::explain::first_difference;
use crate::plan::key::{document_steps, longer_document, recipe_key};
use crate::spec::node::Span;
use crate::spec::pipeline::{self, Pipeline};
use crate::step::registry::{self, Build};
use crate::step::{Info, Step, table};
use crate::store::Store;
use arrow::datatypes::SchemaRef;
use std::path::Path;
use std::sync::Arc;

/// Versions of a step that are tried to find out which one a store was written with.
const VERSIONS_TRIED: u32 = 100;

/// Binds every step to the schema that reaches it, for each split.
pub fn bind(pipeline: &Pipeline, source: &Value, input: &SchemaRef, base: &Path) -> Result<Vec<Split>> {
    each_split(pipeline, |_, links| {
        let mut chain = Chain::of_source(source, input.clone())?;
        for link in links {
            let step = link.bind(&chain.last().rows_schema(), base)?;
            chain.push(Named { name: link.name, step, own: link.own })?;
        }
        Ok(chain)
    })
}

/// The stages that the head records, each with a step where this build has the very one. Errors with `Invalid` where the
/// head's text doesn't say what its recipes say.
pub fn recorded(
    store: &Store,
    head: &PipelineHead,
    pipeline: &Pipeline,
    source: &Value,
    input: &SchemaRef,
) -> Result<Vec<Split>> {
    each_split(pipeline, |split, links| {
        let mut chain = Chain::of_source(source, input.clone())?;
        let first = written(head, &chain.last().name, None)?;
        if first.recipe != chain.last().recipe {
            return Err(differs(store, head, first, chain.last()));
        }
        for link in links {
            let split = if link.own { split } else { None };
            let written = written(head, &link.name, split)?;
            let step = link.bind(&chain.last().rows_schema(), Path::new("."));
            if let Ok(step) = &step {
                let mut longer = chain.clone();
                longer.push(Named { name: link.name.clone(), step: step.clone(), own: link.own })?;
                if longer.last().recipe == written.recipe {
                    chain = longer;
                    continue;
                }
            }
            let stage = lacking(store, head, written, &link, step, chain.last())?;
            chain.stages.push(stage);
        }
        Ok(chain)
    })
}

/// A step that stands in a split's chain, not yet bound.
struct Link<'a> {
    name: String,
    own: bool,
    what: What<'a>,
}

enum What<'a> {
    Filter(&'a str, &'a Span),
    Step(&'a pipeline::Step),
}

impl Link<'_> {
    fn bind(&self, input: &SchemaRef, base: &Path) -> Result<Arc<dyn Step>> {
        match self.what {
            What::Filter(text, span) => table::filter_step(text, span, input),
            What::Step(step) => {
                registry::build(&step.name, &Build { params: &step.params, span: &step.span, input, base })
            }
        }
    }
}

/// One chain for each split; without splits, one without a name.
fn each_split(
    pipeline: &Pipeline,
    mut chain: impl FnMut(Option<&str>, Vec<Link>) -> Result<Chain>,
) -> Result<Vec<Split>> {
    if pipeline.splits.is_empty() {
        return Ok(vec![Split { name: None, chain: chain(None, links(pipeline, None)?)?, shuffle: None }]);
    }
    let split = |split: &pipeline::Split| {
        let chain = chain(Some(&split.name), links(pipeline, Some(split))?)?;
        Ok(Split { name: Some(split.name.clone()), chain, shuffle: split.shuffle })
    };
    pipeline.splits.iter().map(split).collect()
}

fn links<'a>(pipeline: &'a Pipeline, split: Option<&'a pipeline::Split>) -> Result<Vec<Link<'a>>> {
    let filter = |(text, span): &'a (String, Span)| What::Filter(text, span);
    let shared = pipeline.source.filter.iter().map(filter).chain(pipeline.steps.iter().map(What::Step));
    let own = split.into_iter().flat_map(|s| s.filter.iter().map(filter).chain(s.steps.iter().map(What::Step)));
    let whats = shared.map(|what| (false, what)).chain(own.map(|what| (true, what)));
    let names = pipeline.stage_names(split)?.into_iter().skip(1);
    Ok(names.zip(whats).map(|(name, (own, what))| Link { name, own, what }).collect())
}

fn written<'a>(head: &'a PipelineHead, name: &str, split: Option<&str>) -> Result<&'a StageHead> {
    let found = head.stages.iter().find(|s| s.name == name && s.split.as_deref() == split);
    found.ok_or_else(|| Error::corrupt(format!("the head of pipeline {:?} records no stage {name:?}", head.name)))
}

/// A stage that this build can't compute, but serve where it is stored. `step`: what this build has in its place.
fn lacking(
    store: &Store,
    head: &PipelineHead,
    written: &StageHead,
    link: &Link,
    step: Result<Arc<dyn Step>>,
    before: &Stage,
) -> Result<Stage> {
    // There is a document for each deterministic stage, and for no other.
    let document = store.recipe(written.recipe)?.map(|h| Value::try_from(&h.document)).transpose()?;
    let deterministic = before.deterministic && document.is_some();
    let info = step.as_ref().ok().map(|step| step.info());
    let document = document.or_else(|| info.and_then(|info| of_another_version(written, info, before)));
    let needed = document.as_ref().and_then(|d| document_steps(d).next_back());
    let name = match link.what {
        What::Filter(..) => "where",
        What::Step(step) => step.name.as_str(),
    };
    let lacking = match (&step, needed) {
        (Ok(step), Some((name, version))) => {
            let info = step.info();
            if name != info.name || version == i128::from(info.version) {
                let mut chain = Chain { stages: vec![before.clone()] };
                chain.push(Named { name: written.name.clone(), step: step.clone(), own: link.own })?;
                return Err(differs(store, head, written, chain.last()));
            }
            format!("this store needs {name} version {version}, this build has version {}", info.version)
        }
        (Ok(step), None) => {
            format!("this store needs another {name} than this build's version {}", step.info().version)
        }
        (Err(error), Some((name, version))) => {
            format!("this store needs {name} version {version}, which this build lacks ({})", error.chain())
        }
        (Err(error), None) => format!("this store needs {name}, which this build lacks ({})", error.chain()),
    };
    let schema = Arc::new(schema::decode(&written.schema)?);
    Ok(Stage {
        name: written.name.clone(),
        step: None,
        lacking: Some(lacking),
        occurrence: 0,
        own: link.own,
        recipe: written.recipe,
        document: document.unwrap_or(Value::Null),
        one_to_one: schema.index_of(ROW).is_err(),
        schema,
        deterministic,
    })
}

/// The document of a stage that differs from this build's in its step's version alone.
fn of_another_version(written: &StageHead, info: &Info, before: &Stage) -> Option<Value> {
    let mut documents =
        (0..VERSIONS_TRIED).map(|version| longer_document(&before.document, &Info { version, ..info.clone() }));
    documents.find(|document| recipe_key(document).is_ok_and(|key| key == written.recipe))
}

/// The error of a head whose text means something else to this build than its recipes say.
fn differs(store: &Store, head: &PipelineHead, written: &StageHead, stage: &Stage) -> Error {
    let document = store.recipe(written.recipe).ok().flatten().and_then(|h| Value::try_from(&h.document).ok());
    let why = document.and_then(|before| first_difference(&before, &stage.document));
    Error::invalid(format!(
        "stage {} of pipeline {:?} has the recipe {} in the store and {} to this Forebay{}; open the pipeline file, or use \
         the Forebay that wrote the store",
        stage.name,
        head.name,
        written.recipe.short(),
        stage.recipe.short(),
        why.map_or(String::new(), |d| format!(" ({})", sentence(&d))),
    ))
}
