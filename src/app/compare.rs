//! Two snapshots of a pipeline compared: what changed in the source, and what that means for the shards of each stage.
//! Entries are streamed from the store's tables; the source isn't needed.

use crate::app::open::find_snapshot;
use crate::error::{Error, Kind, Result};
use crate::format::encoding::Encoding;
use crate::format::head::{PipelineHead, SnapshotHead, StageHead};
use crate::id::{RecipeKey, SnapshotId};
use crate::plan::changes::{Changes, Partitions, Stream, changes, each_partition};
use crate::plan::key;
use crate::store::Store;
use std::collections::BTreeMap;
use std::str::FromStr;

/// Which snapshot is meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Which {
    Current,
    /// The one before the current, or before the one that it is compared with.
    Previous,
    Id(SnapshotId),
}

impl FromStr for Which {
    type Err = Error;
    fn from_str(text: &str) -> Result<Which> {
        match text {
            "current" => Ok(Which::Current),
            "previous" => Ok(Which::Previous),
            id => id.parse().map(Which::Id).map_err(|_| {
                Error::invalid(format!(
                    "expected a snapshot's id of 64 hex digits, `current` or `previous`, found {id:?}"
                ))
            }),
        }
    }
}

#[derive(Debug)]
pub struct Comparison {
    pub from: SnapshotHead,
    pub to: SnapshotHead,
    pub entries: Changes,
    pub partitions: Partitions,
    pub stages: Vec<Stage>,
}

/// The shards of a stage in one encoding, by its recipe of now.
#[derive(Debug)]
pub struct Stage {
    pub stage: StageHead,
    pub encoding: Encoding,
    pub stay: Shards,
    /// Of the newer snapshot alone.
    pub new: Shards,
    /// Of the older snapshot alone.
    pub gone: Shards,
}

/// Bytes are those of the shards that are stored.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Shards {
    pub shards: u64,
    pub stored: u64,
    pub bytes: u64,
}

/// Compares two snapshots of a pipeline, for every stage and encoding of which anything is stored.
pub fn compare(store: &Store, pipeline: &PipelineHead, from: Which, to: Which) -> Result<Comparison> {
    let (from, to) = find(store, &pipeline.name, from, to)?;
    let stream = |head: &SnapshotHead| -> Result<Stream> { Ok(Box::new(store.entries_stream(head)?)) };
    let entries = changes(from.entries, || stream(&from), || stream(&to))?;
    let partitions = Partitions::new(stream(&from)?, stream(&to)?)?;
    let mut stages = Vec::new();
    for stage in &pipeline.stages {
        for encoding in store.encodings(stage.recipe)? {
            let bytes = |head: &SnapshotHead| stored(store, stage.recipe, encoding, head);
            stages.push(Stage::new(stage.clone(), encoding, &partitions, &bytes(&from)?, &bytes(&to)?));
        }
    }
    Ok(Comparison { from, to, entries, partitions, stages })
}

impl Stage {
    /// `from`, `to`: bytes of what is stored, by partition.
    fn new(
        stage: StageHead,
        encoding: Encoding,
        partitions: &Partitions,
        from: &BTreeMap<usize, u64>,
        to: &BTreeMap<usize, u64>,
    ) -> Stage {
        let mut found =
            Stage { stage, encoding, stay: Shards::default(), new: Shards::default(), gone: Shards::default() };
        for (partition, before) in partitions.before.iter().enumerate() {
            let shards = if before.is_some() { &mut found.stay } else { &mut found.new };
            shards.note(to.get(&partition));
        }
        partitions.gone.iter().for_each(|partition| found.gone.note(from.get(partition)));
        found
    }
}

impl Shards {
    fn note(&mut self, bytes: Option<&u64>) {
        self.shards += 1;
        self.stored += u64::from(bytes.is_some());
        self.bytes = self.bytes.saturating_add(bytes.copied().unwrap_or(0));
    }
}

/// Bytes of a stage's shards for a snapshot by partition: from the manifest, or, where the stage isn't whole, from the
/// records.
fn stored(store: &Store, recipe: RecipeKey, encoding: Encoding, head: &SnapshotHead) -> Result<BTreeMap<usize, u64>> {
    if let Some((_, rows)) = readable(store.manifest(recipe, encoding, head.snapshot))? {
        return Ok(rows.into_iter().map(|row| (row.partition as usize, row.bytes)).collect());
    }
    let mut stored = BTreeMap::new();
    each_partition(Box::new(store.entries_stream(head)?), |partition, entries| {
        let record = readable(store.record(recipe, encoding, key::shard_key(recipe, entries)))?;
        stored.extend(record.map(|record| (partition, record.bytes)));
        Ok(())
    })?;
    Ok(stored)
}

/// What can't be read counts as not stored: `verify` says more.
fn readable<T>(found: Result<Option<T>>) -> Result<Option<T>> {
    match found {
        Err(error) if matches!(error.kind(), Kind::Corrupt | Kind::NotFound) => Ok(None),
        found => found,
    }
}

/// The heads that are meant.
fn find(store: &Store, name: &str, from: Which, to: Which) -> Result<(SnapshotHead, SnapshotHead)> {
    let mut ids: Vec<SnapshotId> = store.snapshots(name)?.map(|(id, _)| id).collect();
    // Heads of one snapshot may follow each other: two writers, or another reader.
    ids.dedup();
    let place = |which: Which, previous: usize| match which {
        Which::Current => Ok(0),
        Which::Previous => Ok(previous),
        Which::Id(id) => ids.iter().position(|found| *found == id).ok_or_else(|| {
            Error::not_found(format!("pipeline {name:?} has no snapshot {id}; `forebay ls` lists them"))
        }),
    };
    let to = place(to, 1)?;
    let from = place(from, to + 1)?;
    let head = |place: usize| match ids.get(place) {
        Some(id) => find_snapshot(store, name, *id),
        None if ids.is_empty() => Err(Error::not_found(format!(
            "pipeline {name:?} has no snapshot yet; run `forebay snapshot` or `forebay materialize`"
        ))),
        None => Err(Error::not_found(format!(
            "pipeline {name:?} has no snapshot before {}, so there is nothing to compare it with",
            ids[ids.len() - 1].short()
        ))),
    };
    Ok((head(from)?, head(to)?))
}
