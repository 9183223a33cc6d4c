//! A pipeline file, opened: its source, its chains and its store, ready for every command.

use crate::app::{chains, classes, labels, targets};
use crate::engine::dataset::Dataset;
use crate::error::{Error, Kind, Result};
use crate::format::head::{PipelineHead, RecipeHead, SnapshotHead, StageHead, TableRef};
use crate::format::table::Entries;
use crate::format::{VERSION, schema};
use crate::id::Digest;
use crate::io::{Access, Objects, read_small_text};
use crate::plan::order::{DEFAULT_LANES, default_block};
use crate::plan::partition::Layout;
use crate::plan::snapshot::Snapshot;
use crate::source::{ListOptions, Source};
use crate::spec::pipeline::{EntryOrder, IdentityMode, Pipeline, SourceKind};
use crate::spec::yaml::MAX_BYTES;
use crate::step::table;
use crate::store::Store;
use arrow::datatypes::SchemaRef;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// What surrounds a pipeline file.
pub struct Surroundings<'a> {
    /// Wins over the file's `store:`.
    pub store: Option<String>,
    /// What reaching a remote store or source takes; the file's `storage:` adds what is missing.
    pub access: &'a Access,
    /// `${VAR}` of the pipeline file.
    pub variables: &'a dyn Fn(&str) -> Option<String>,
    /// Where digests of source files are kept by their validators.
    pub cache: Option<PathBuf>,
    pub threads: usize,
    /// Called with (entries listed, bytes hashed) while listing.
    pub progress: &'a (dyn Fn(u64, u64) + Sync),
}

pub struct Project {
    pub pipeline: Pipeline,
    pub dataset: Dataset,
    pub source: Arc<Source>,
    /// The resolved schema of the source's batches.
    pub input: SchemaRef,
    notes: Vec<String>,
    threads: usize,
}

impl Project {
    pub fn open(path: &Path, surroundings: &Surroundings) -> Result<Project> {
        let pipeline = read_pipeline(path, surroundings.variables)?;
        let base = base(path);
        let store = open_store(&pipeline, &base, surroundings.store.as_deref(), surroundings.access)?;
        let source = open_source(&pipeline, &base, &store, surroundings)?;
        let input = source.schema()?;
        let mut notes = Vec::new();
        let resolved = resolve_classes(&pipeline, &source, &input, &base, surroundings, &mut notes)?;
        let mut project = Project::bind(pipeline, &resolved, source, store, &base, surroundings.threads)?;
        project.notes = notes;
        Ok(project)
    }

    /// Binds the steps of `resolved`, which is `pipeline` but for the names of classes, to a source whose schema is known.
    pub(super) fn bind(
        pipeline: Pipeline,
        resolved: &Pipeline,
        source: Source,
        store: Store,
        base: &Path,
        threads: usize,
    ) -> Result<Project> {
        let input = source.schema()?;
        let splits = chains::bind(resolved, &source.describe(), &input, base)?;
        targets::check_named(&pipeline, &splits)?;
        let source = Arc::new(source);
        Ok(Project {
            dataset: Dataset { name: pipeline.name.clone(), source: Some(source.clone()), splits, store },
            pipeline,
            source,
            input,
            notes: Vec::new(),
            threads,
        })
    }

    /// Things worth saying once, such as a classes file that was written and what the last listing passed over.
    pub fn notes(&self) -> Vec<String> {
        self.notes.iter().cloned().chain(self.source.notes()).collect()
    }

    /// Lists the source afresh and puts its entries into partitions; publishes nothing.
    pub fn list(&self, progress: &(dyn Fn(u64, u64) + Sync)) -> Result<Snapshot> {
        let listing = self.source.list(&ListOptions { threads: self.threads, progress })?;
        Snapshot::new(listing, layout(&self.pipeline), self.pipeline.partition)
    }

    /// Publishes a snapshot, the pipeline's head and its recipes. A listing that loses or changes more than half of the
    /// current keys is refused unless `replace`.
    pub fn publish(&self, snapshot: &Snapshot, listed_ms: i64, replace: bool) -> Result<SnapshotHead> {
        let store = &self.dataset.store;
        if let Some(before) = store.readable_snapshot(&self.pipeline.name)?
            && !replace
            && before.snapshot != snapshot.id
        {
            match store.entries(&before) {
                Ok(before) => refuse_half_gone(&self.pipeline.name, &before.entries, &snapshot.entries.entries)?,
                // Nothing is left to compare with; the new snapshot takes its place.
                Err(error) if matches!(error.kind(), Kind::Corrupt | Kind::NotFound) => {}
                Err(error) => return Err(error),
            }
        }
        for split in &self.dataset.splits {
            for stage in split.chain.stages.iter().filter(|s| s.deterministic) {
                let (stage, recipe, document) = (stage.name.clone(), stage.recipe, stage.document.to_json());
                store.put_recipe(&RecipeHead { version: VERSION, recipe, stage, document })?;
            }
        }
        store.put_pipeline(&self.head()?)?;
        let nothing = TableRef { blob: Digest::of(&[]), bytes: 0, rows: 0 };
        let head = SnapshotHead {
            version: VERSION,
            pipeline: self.pipeline.name.clone(),
            snapshot: snapshot.id,
            listed_ms,
            table: nothing,
            entries: snapshot.entries.entries.len() as u64,
            partitions: snapshot.partitions() as u64,
            rows: snapshot.rows(),
            bytes: snapshot.bytes(),
            identity: identity_name(self.pipeline.source.identity).to_owned(),
            reader: self.source.describe().to_json(),
            input_schema: schema::encode(&self.input),
        };
        store.put_snapshot(head, &snapshot.entries)
    }

    /// L and K: as the pipeline sets them, else the defaults for this snapshot.
    pub fn order_parameters(&self, snapshot: &Snapshot) -> (u32, u32) {
        order_parameters(&self.pipeline, snapshot)
    }

    /// What the store is to know of the pipeline.
    pub(super) fn head(&self) -> Result<PipelineHead> {
        let mut stages = Vec::new();
        let mut classes = BTreeMap::new();
        for split in &self.dataset.splits {
            for stage in &split.chain.stages {
                let own = stage.own.then(|| split.name.clone()).flatten();
                if !stages.iter().any(|s: &StageHead| s.recipe == stage.recipe && s.split == own) {
                    stages.push(StageHead {
                        name: stage.name.clone(),
                        split: own,
                        recipe: stage.recipe,
                        schema: schema::encode(&stage.schema),
                    });
                }
                for field in stage.schema.fields() {
                    if let Some(names) = field.metadata().get(table::CLASSES).and_then(|n| serde_json::from_str(n).ok())
                    {
                        classes.insert(field.name().clone(), names);
                    }
                }
            }
        }
        let (name, text) = (self.pipeline.name.clone(), self.pipeline.text.clone());
        Ok(PipelineHead { version: VERSION, name, text, stages, classes })
    }
}

/// Refuses a store where something else is `expected`.
pub fn refuse_store(path: &Path, expected: &str) -> Result<()> {
    let shown = path.display();
    match path.join("v1/blobs").is_dir() {
        true => Err(Error::invalid(format!(
            "{shown} is a store, expected {expected}; `forebay ls {shown}` lists what it holds"
        ))),
        false => Ok(()),
    }
}

/// Reads a pipeline file.
pub fn read_pipeline(path: &Path, variables: &dyn Fn(&str) -> Option<String>) -> Result<Pipeline> {
    let shown = path.display();
    refuse_store(path, "a pipeline file")?;
    if path.is_dir() {
        return Err(Error::invalid(format!(
            "{shown} is a directory, expected a pipeline file; `forebay init {shown}` writes one for the data in it"
        )));
    }
    let text = read_small_text(path, MAX_BYTES as u64).map_err(|e| {
        let hint = if e.kind() == Kind::NotFound { "; `forebay init` writes one" } else { "" };
        e.during(format!("cannot read the pipeline file {shown}{hint}"))
    })?;
    Pipeline::read(&text, path, variables)
}

/// Puts a file of names in place of `classes: auto`: the one beside the pipeline file, written from the source's labels
/// where there is none yet.
fn resolve_classes(
    pipeline: &Pipeline,
    source: &Source,
    input: &SchemaRef,
    base: &Path,
    surroundings: &Surroundings,
    notes: &mut Vec<String>,
) -> Result<Pipeline> {
    let columns = labels::auto_columns(pipeline);
    let mut resolved = pipeline.clone();
    for column in &columns {
        let file = if columns.len() == 1 { "classes.txt".to_owned() } else { format!("classes-{column}.txt") };
        let found = || {
            let field = input.field_with_name(column).map_err(|_| {
                Error::invalid(format!(
                    "`classes: auto` finds the names in the source, which has no column {column:?}; list the classes, or name a file with one a line"
                ))
            })?;
            let (threads, progress) = (surroundings.threads, surroundings.progress);
            let listing = source.list(&ListOptions { threads, progress })?;
            let entries = Entries { entries: listing.entries, carried: listing.carried };
            classes::collect(field, source.column(&entries, column)?)
        };
        let resolved_now = classes::resolve(base, &file, column, found)?;
        if resolved_now.written {
            notes.push(resolved_now.note);
        }
        labels::use_file(&mut resolved, column, &file);
    }
    Ok(resolved)
}

/// The directory that paths in a pipeline file are relative to.
pub fn base(path: &Path) -> PathBuf {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent.to_owned(),
        _ => PathBuf::from("."),
    }
}

/// Where the store is: as given, else the file's `store:`, else `.forebay` beside the file.
pub fn store_url(pipeline: &Pipeline, base: &Path, given: Option<&str>) -> String {
    match (given, &pipeline.store) {
        (Some(url), _) => url.to_owned(),
        (None, Some(url)) if url.contains("://") => url.clone(),
        (None, Some(path)) => base.join(path).to_string_lossy().into_owned(),
        (None, None) => base.join(".forebay").to_string_lossy().into_owned(),
    }
}

/// Opens the store that `store_url` names.
pub fn open_store(pipeline: &Pipeline, base: &Path, given: Option<&str>, access: &Access) -> Result<Store> {
    Store::open(&store_url(pipeline, base, given), &access.clone().with_defaults(&pipeline.storage))
}

pub fn layout(pipeline: &Pipeline) -> Layout {
    match (pipeline.source.kind, pipeline.order.by, &pipeline.source.key) {
        (SourceKind::Files, EntryOrder::Hash, _) => Layout::Hash,
        (SourceKind::Files, EntryOrder::Key, _) => Layout::Key,
        (_, _, Some(_)) => Layout::Keyed,
        (_, _, None) => Layout::Front,
    }
}

pub fn order_parameters(pipeline: &Pipeline, snapshot: &Snapshot) -> (u32, u32) {
    let lanes = pipeline.order.lanes.unwrap_or(DEFAULT_LANES);
    let mean = snapshot.bytes().checked_div(snapshot.rows()).unwrap_or(0);
    let block = pipeline.order.block.unwrap_or_else(|| default_block(layout(pipeline) == Layout::Hash, mean, lanes));
    (lanes, block)
}

/// Opens the source with the input schema that an earlier listing by the same reader recorded, if there is one.
fn open_source(pipeline: &Pipeline, base: &Path, store: &Store, surroundings: &Surroundings) -> Result<Source> {
    let access = surroundings.access.clone().with_defaults(&pipeline.storage);
    let buckets = |bucket: &str| Objects::open(bucket, &access);
    let open = |recorded| Source::open(&pipeline.source, base, recorded, surroundings.cache.clone(), &buckets);
    let source = open(None)?;
    match store.readable_snapshot(&pipeline.name)? {
        Some(head) if head.reader == source.describe().to_json() => {
            open(Some(Arc::new(schema::decode(&head.input_schema)?)))
        }
        _ => Ok(source),
    }
}

fn identity_name(mode: IdentityMode) -> &'static str {
    match mode {
        IdentityMode::Content => "content",
        IdentityMode::Etag => "etag",
        IdentityMode::Stat => "stat",
    }
}

fn refuse_half_gone(
    name: &str,
    before: &[crate::format::entry::Entry],
    after: &[crate::format::entry::Entry],
) -> Result<()> {
    let there: BTreeMap<&str, _> = after.iter().map(|e| (e.key.as_str(), &e.identity)).collect();
    let kept = before.iter().filter(|e| there.get(e.key.as_str()) == Some(&&e.identity)).count();
    if before.is_empty() || kept * 2 >= before.len() {
        return Ok(());
    }
    let keys: BTreeSet<&str> = before.iter().map(|e| e.key.as_str()).collect();
    let lost = keys.iter().filter(|k| !there.contains_key(*k)).count();
    Err(Error::conflict(format!(
        "of the {} entries of pipeline {name:?}, {lost} are gone and {} have changed since the last snapshot: is a disk not mounted, or is this \
         another project of the same name? Use --replace if it is meant",
        before.len(),
        before.len() - kept - lost,
    )))
}
