//! A pipeline file as one of several workers opens it: nothing is listed or inferred. The snapshot, the schema and the
//! classes found by `auto` are the store's, and the steps must be those that the store knows, so that all workers agree.

use crate::app::explain::sentence;
use crate::app::labels;
use crate::app::open::{Which, find_snapshot, load};
use crate::app::project::{Project, Surroundings, base, open_store, read_pipeline};
use crate::error::{Error, Result};
use crate::format::canonical::Value;
use crate::format::head::{PipelineHead, SnapshotHead};
use crate::format::schema;
use crate::id::RecipeKey;
use crate::io::Objects;
use crate::plan::chain::Stage;
use crate::plan::explain::first_difference;
use crate::plan::snapshot::Snapshot;
use crate::source::Source;
use crate::store::Store;
use std::path::Path;
use std::sync::Arc;

/// Opens the project with the given or current snapshot of its store. Errors: `NotFound` where there is none, `Conflict`
/// where the pipeline file says something else than when the snapshot was published.
pub fn open(path: &Path, which: Which, surroundings: &Surroundings) -> Result<(Project, Arc<Snapshot>)> {
    let pipeline = read_pipeline(path, surroundings.variables)?;
    let base = base(path);
    let store = open_store(&pipeline, &base, surroundings.store.as_deref(), surroundings.access)?;
    let (known, head) = published(&store, &pipeline.name, which)?;
    let recorded = Arc::new(schema::decode(&head.input_schema)?);
    let access = surroundings.access.clone().with_defaults(&pipeline.storage);
    let buckets = |bucket: &str| Objects::open(bucket, &access);
    let source = Source::open(&pipeline.source, &base, Some(recorded), surroundings.cache.clone(), &buckets)?;
    if source.describe().to_json() != head.reader {
        return Err(disagree(&format!("snapshot {} was listed by another reader", head.snapshot.short())));
    }
    let mut resolved = pipeline.clone();
    labels::fill_in_auto(&mut resolved, &known.classes);
    if let [column, ..] = labels::auto_columns(&resolved).as_slice() {
        return Err(disagree(&format!("the store knows no classes of the column {column:?}")));
    }
    let snapshot = Arc::new(load(&store, &head)?);
    let project = Project::bind(pipeline, &resolved, source, store, &base, surroundings.threads)?;
    check_stages(&project, &known)?;
    Ok((project, snapshot))
}

/// What `forebay snapshot` published: the pipeline, and the snapshot that is meant.
fn published(store: &Store, name: &str, which: Which) -> Result<(PipelineHead, SnapshotHead)> {
    let head = match which {
        Which::Current => store.current_snapshot(name)?,
        Which::Id(id) => Some(find_snapshot(store, name, id)?),
    };
    store.pipeline(name)?.zip(head).ok_or_else(|| {
        Error::not_found(format!(
            "the store holds no snapshot of pipeline {name:?}, and workers list nothing: run `forebay snapshot` first"
        ))
    })
}

/// Refuses a pipeline file of which a stage that may be stored isn't the store's.
fn check_stages(project: &Project, known: &PipelineHead) -> Result<()> {
    let ours = project.head()?;
    for ours in &ours.stages {
        let mut stages = project.dataset.splits.iter().flat_map(|s| &s.chain.stages);
        let Some(stage) = stages.find(|s| s.recipe == ours.recipe && s.deterministic) else { continue };
        let theirs = known.stages.iter().find(|s| s.name == ours.name && s.split == ours.split);
        match theirs {
            Some(theirs) if theirs.recipe == ours.recipe => {}
            Some(theirs) => {
                let why = difference(project, theirs.recipe, stage)?;
                return Err(disagree(&format!("stage {} is another in the store{why}", ours.name)));
            }
            None => return Err(disagree(&format!("the store knows no stage {}", ours.name))),
        }
    }
    Ok(())
}

/// ` (step 2 (image.resize).params.shorter_side was 40 and is 36)`, where the store still says what it was.
fn difference(project: &Project, before: RecipeKey, stage: &Stage) -> Result<String> {
    let Some(head) = project.dataset.store.recipe(before)? else { return Ok(String::new()) };
    let difference = first_difference(&Value::try_from(&head.document)?, &stage.document);
    Ok(difference.map_or(String::new(), |d| format!(" ({})", sentence(&d))))
}

fn disagree(what: &str) -> Error {
    Error::conflict(format!(
        "{what}, and all workers must agree: run `forebay snapshot`, which publishes the pipeline as it is now, then start \
         the workers anew"
    ))
}
