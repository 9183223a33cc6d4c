//! A dataset opened for reading: which snapshot, which order table, and the words that say from where it is served.

use crate::app::chains;
use crate::app::explain::near_miss;
use crate::app::project::{Project, Surroundings, order_parameters};
use crate::engine::count;
use crate::engine::dataset::{Dataset, Split};
use crate::engine::pool::Pool;
use crate::error::{Error, Kind, Result};
use crate::format::canonical;
use crate::format::{head, schema};
use crate::id::SnapshotId;
use crate::plan::chain::{Chain, SOURCE};
use crate::plan::order::batch::Batching;
use crate::plan::snapshot::Snapshot;
use crate::reader::{Options, Origin, Reader};
use crate::spec::pipeline::Pipeline;
use crate::store::Store;
use std::path::Path;
use std::sync::Arc;

/// What is done about shards that are not stored at the stage that was hoped for: the one that was named, else any.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnMissing {
    /// They are computed, with a warning where a later stage is stored under another recipe.
    Warn,
    /// Nothing is read.
    Error,
    /// They are computed.
    Compute,
}

/// A dataset with one snapshot of it.
pub struct Opened {
    pub pipeline: Pipeline,
    pub dataset: Dataset,
    pub snapshot: Arc<Snapshot>,
    /// The snapshot was taken now and is held in memory or newly published.
    pub fresh: bool,
    pub notes: Vec<String>,
}

/// Which snapshot to read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Which {
    /// The current one; where there is none, one is taken.
    Current,
    Id(SnapshotId),
}

pub struct Reading<'a> {
    pub split: Option<&'a str>,
    /// Read this stage's rows instead of the chain's last.
    pub stage: Option<&'a str>,
    pub batching: Batching,
    /// `None`: as the split says, else in order.
    pub shuffle: Option<bool>,
    pub seed: u64,
    pub prefetch: usize,
}

/// Opens a pipeline file with the given or current snapshot.
pub fn from_file(path: &Path, which: Which, listed_ms: i64, surroundings: &Surroundings) -> Result<Opened> {
    let mut project = Project::open(path, surroundings)?;
    let store = &project.dataset.store;
    let head = match which {
        Which::Current => store.current_snapshot(&project.pipeline.name)?,
        Which::Id(id) => Some(find_snapshot(store, &project.pipeline.name, id)?),
    };
    let (snapshot, fresh, mut notes) = match head {
        // Another reader (columns, kind, fields) lists other entries: its snapshot would not fit this chain.
        Some(head) if which != Which::Current || head.reader == project.source.describe().to_json() => {
            (load(store, &head)?, false, held(&mut project.dataset, head.snapshot)?)
        }
        _ => {
            let snapshot = project.list(surroundings.progress)?;
            let held = project.dataset.hold(READ, snapshot.id);
            let note = match held.and_then(|()| project.publish(&snapshot, listed_ms, false)) {
                Ok(_) => "no snapshot was stored: one was taken now".to_owned(),
                Err(error) => {
                    format!("no snapshot was stored: one was taken now and is held in memory ({})", error.chain())
                }
            };
            (snapshot, true, vec![note])
        }
    };
    notes.extend(project.notes());
    Ok(Opened { pipeline: project.pipeline, dataset: project.dataset, snapshot: Arc::new(snapshot), fresh, notes })
}

/// Opens a dataset from its store alone: no pipeline file, no source. Stages are served under the recipe keys that the
/// pipeline's head records; only a step that must be run has to be in this build as it was when the store was written.
pub fn from_store(store: Store, name: &str, which: Which) -> Result<Opened> {
    let url = store.storage().location();
    let head = store.pipeline(name)?.ok_or_else(|| {
        let names = store.pipelines().unwrap_or_default().join(", ");
        Error::not_found(format!("the store {url} has no pipeline {name:?}; it has: {names}"))
    })?;
    // Variables stand in `source` and `store` only, neither of which is used here: any value will do that reads as a path.
    let mut pipeline =
        Pipeline::read(&head.text, Path::new(&format!("{name}.yaml")), &|variable: &str| Some(variable.to_owned()))?;
    crate::app::labels::fill_in(&mut pipeline, &head.classes);
    let snapshot_head = match which {
        Which::Id(id) => find_snapshot(&store, name, id)?,
        Which::Current => newest_with_manifest(&store, name, &head)?,
    };
    let input = Arc::new(schema::decode(&snapshot_head.input_schema)?);
    let reader = canonical::Value::try_from(&snapshot_head.reader)?;
    let splits = chains::recorded(&store, &head, &pipeline, &reader, &input)?;
    let snapshot = load(&store, &snapshot_head)?;
    let mut dataset = Dataset { name: name.to_owned(), source: None, splits, store };
    let notes = held(&mut dataset, snapshot.id)?;
    Ok(Opened { pipeline, dataset, snapshot: Arc::new(snapshot), fresh: false, notes })
}

impl Opened {
    /// Opens a reader; the order table is counted, and stored, where it never was.
    pub fn reader(&self, reading: &Reading, pool: Pool) -> Result<Reader> {
        let split = self.split(reading)?;
        self.runnable(&split.chain)?;
        let order = count::order(&self.dataset, &self.snapshot, &split, None, Some(&pool))?;
        let order = order.ok_or_else(|| Error::internal("no order table was counted"))?;
        // A store that can't be written keeps no order table; it is counted again next time.
        let _ = count::publish_order(&self.dataset, &self.snapshot, &split, &order);
        let (lanes, block) = order_parameters(&self.pipeline, &self.snapshot);
        let options = Options {
            batching: reading.batching,
            shuffle: reading.shuffle.or(split.shuffle).unwrap_or(false),
            seed: reading.seed,
            lanes,
            block,
            prefetch: reading.prefetch,
        };
        Reader::open(&self.dataset, &split, self.snapshot.clone(), order, pool, options)
    }

    /// What to say about shards that have to be computed, given from where a reader's shards are served: a warning or
    /// nothing, or, with `OnMissing::Error`, a `NotFound` error. `None` is `Error` where a stage is named that can be
    /// stored, else `Warn`.
    pub fn missing(
        &self,
        reading: &Reading,
        origins: &[Origin],
        on_missing: Option<OnMissing>,
    ) -> Result<Option<String>> {
        let chain = self.split(reading)?.chain;
        let named = reading.stage.filter(|name| chain.stages.iter().any(|s| s.name == **name && s.deterministic));
        let default = if named.is_some_and(|name| name != SOURCE) { OnMissing::Error } else { OnMissing::Warn };
        let on_missing = on_missing.unwrap_or(default);
        let hoped_for = |o: &&Origin| o.stage.is_some() && (named.is_none() || o.stage.as_deref() == named);
        let shards: u64 = origins.iter().map(|o| o.shards).sum();
        let missing = shards - origins.iter().filter(hoped_for).map(|o| o.shards).sum::<u64>();
        if on_missing == OnMissing::Compute {
            return Ok(None);
        }
        let served = origins.iter().filter_map(|o| chain.stages.iter().position(|s| Some(&s.name) == o.stage.as_ref()));
        let near = near_miss(&self.dataset.store, &chain, served.max().unwrap_or(0))?;
        if on_missing == OnMissing::Warn || missing == 0 {
            return Ok(near.or_else(|| behind(origins)));
        }
        let what = named.map_or("at any stage".to_owned(), |name| format!("at stage {name}"));
        let advice = near.unwrap_or_else(|| "run `forebay materialize` first".to_owned());
        Err(Error::not_found(format!(
            "{missing} of {shards} shards aren't stored {what}: {advice}, or use `--on-missing compute`"
        )))
    }

    /// Refuses a chain in which a step that must be run, as no stage behind it has a stored shard, isn't in this build.
    fn runnable(&self, chain: &Chain) -> Result<()> {
        let Some(lacking) = chain.stages.iter().rposition(|stage| stage.lacking.is_some()) else { return Ok(()) };
        for stage in chain.stages[lacking..].iter().filter(|stage| stage.deterministic) {
            if !self.dataset.store.encodings(stage.recipe)?.is_empty() {
                return Ok(());
            }
        }
        Err(chain.stages[lacking].cannot_compute())
    }

    /// The split that is read, up to the stage that is named.
    fn split(&self, reading: &Reading) -> Result<Split> {
        let mut split = self.dataset.split(reading.split)?.clone();
        if let Some(stage) = reading.stage {
            let end = split.chain.stage(stage)?;
            split.chain = Chain { stages: split.chain.stages[..=end].to_vec() };
        }
        Ok(split)
    }
}

/// Shards that are served from an earlier stage than the others: never stored, lost or damaged.
fn behind(origins: &[Origin]) -> Option<String> {
    let [best, earlier @ ..] = origins else { return None };
    let stage = best.stage.as_ref()?;
    let late: u64 = earlier.iter().filter(|o| o.stage.as_ref() != Some(stage)).map(|o| o.shards).sum();
    let shards: u64 = origins.iter().map(|o| o.shards).sum();
    let stores = format!("`forebay materialize --stage {stage}` stores them");
    (late > 0).then(|| format!("{late} of {shards} shards aren't stored at stage {stage}, or were lost: {stores}"))
}

/// One line on from where shards are served: `812 shards: 800 from resize (arrow-none), 12 from the source`.
pub fn describe(origins: &[Origin]) -> String {
    let shards: u64 = origins.iter().map(|o| o.shards).sum();
    let parts: Vec<String> = origins
        .iter()
        .map(|o| match (&o.stage, o.encoding) {
            (Some(stage), Some(encoding)) => format!("{} from {stage} ({encoding})", o.shards),
            _ => format!("{} from the source", o.shards),
        })
        .collect();
    format!("{shards} shard{}: {}", if shards == 1 { "" } else { "s" }, parts.join(", "))
}

const READ: &str = "read";

/// Says that this process uses a snapshot that the store holds. Errors: `NotFound` where a collection has removed it, or is
/// about to; those of a store that can't be written.
pub fn hold(dataset: &mut Dataset, purpose: &str, snapshot: SnapshotId) -> Result<()> {
    dataset.hold(purpose, snapshot)?;
    find_snapshot(&dataset.store, &dataset.name, snapshot).map(drop)
}

/// As `hold`, for a reader, who may do without: then a note.
fn held(dataset: &mut Dataset, snapshot: SnapshotId) -> Result<Vec<String>> {
    match hold(dataset, READ, snapshot) {
        Ok(()) => Ok(Vec::new()),
        Err(error) if error.kind() == Kind::NotFound => Err(error),
        Err(error) => Ok(vec![format!(
            "the store can't be told that it is read: only `--keep-within` keeps a `forebay gc` meanwhile from removing what is read ({})",
            error.chain()
        )]),
    }
}

/// The snapshot of that id of a pipeline.
pub fn find_snapshot(store: &Store, name: &str, id: SnapshotId) -> Result<head::SnapshotHead> {
    let found = store.snapshots(name)?.find(|(found, _)| *found == id).map(|(_, head)| head).transpose()?;
    found.ok_or_else(|| Error::not_found(format!("pipeline {name:?} has no snapshot {id}; `forebay ls` lists them")))
}

/// Loads a snapshot's entries and checks that they are what the head names.
pub fn load(store: &Store, head: &head::SnapshotHead) -> Result<Snapshot> {
    let snapshot = Snapshot::of(store.entries(head)?)?;
    if snapshot.id != head.snapshot {
        return Err(Error::corrupt(format!(
            "the entries table of snapshot {} hashes to {}",
            head.snapshot, snapshot.id
        )));
    }
    Ok(snapshot)
}

/// By the manifests' names alone: one that is damaged must not keep the shards, each of which has its own record, from
/// being read.
fn newest_with_manifest(store: &Store, name: &str, pipeline: &head::PipelineHead) -> Result<head::SnapshotHead> {
    let mut whole = std::collections::BTreeSet::new();
    for stage in &pipeline.stages {
        for encoding in store.encodings(stage.recipe)? {
            whole.extend(store.whole_snapshots(stage.recipe, encoding)?);
        }
    }
    let found = store.snapshots(name)?.find(|(id, _)| whole.contains(id)).map(|(_, head)| head).transpose()?;
    found.ok_or_else(|| {
        Error::not_found(format!(
            "no stage of pipeline {name:?} is stored whole; run `forebay materialize` where its source is"
        ))
    })
}
