//! What snapshots take in a store: by stage, encoding and snapshot, found from one listing and what heads lead to.

use super::Store;
use super::heads::sound;
use super::reach::{Index, Reach, table_of};
use crate::error::Result;
use crate::format::encoding::Encoding;
use crate::format::head::{PipelineHead, SnapshotHead, StageHead};
use crate::format::name::Name;
use crate::id::{RecipeKey, SnapshotId};
use std::collections::{BTreeMap, HashMap, HashSet};

#[derive(Debug, Default)]
pub struct Holdings {
    /// Newest first within each pipeline.
    pub snapshots: Vec<HeldSnapshot>,
    /// By pipeline, each stage once for each encoding; what several snapshots share counts once.
    pub stages: Vec<HeldStage>,
    /// Objects that no head leads to, and their bytes.
    pub unreferenced: (u64, u64),
    pub objects: u64,
    pub bytes: u64,
}

#[derive(Debug)]
pub struct HeldSnapshot {
    pub pipeline: String,
    pub snapshot: SnapshotId,
    pub current: bool,
    /// With entries, orders and manifests.
    pub bytes: u64,
    /// Of objects that no other snapshot leads to.
    pub own_bytes: u64,
    pub stages: Vec<HeldStage>,
}

#[derive(Debug, Clone)]
pub struct HeldStage {
    pub pipeline: String,
    pub stage: String,
    pub split: Option<String>,
    pub recipe: RecipeKey,
    pub encoding: Encoding,
    /// The pipeline as it is now has no such stage.
    pub former: bool,
    pub shards: u64,
    pub bytes: u64,
}

/// A pipeline's stages, those of former heads marked.
type Stages = BTreeMap<RecipeKey, (StageHead, bool)>;

impl Store {
    /// Reads records that no manifest sums up. Snapshots whose head or entries are damaged are left out.
    pub fn holdings(&self) -> Result<Holdings> {
        let index = Index::new(self)?;
        let reach = Reach::new(self, &index)?;
        let mut found = Vec::new();
        let mut pipelines: HashSet<Name> = HashSet::new();
        for pipeline in self.pipelines()? {
            let stages = self.all_stages(&pipeline, &index, &mut pipelines)?;
            let mut seen = HashSet::new();
            for (id, head) in self.snapshots(&pipeline)? {
                let Some(head) = sound(head)?.filter(|_| seen.insert(id)) else { continue };
                let current = seen.len() == 1;
                found.extend(held(&reach, &stages, &pipeline, &head, current)?);
            }
        }
        let mut times: HashMap<&Name, u64> = HashMap::new();
        for (_, names, _) in &found {
            names.iter().for_each(|name| *times.entry(name).or_default() += 1);
        }
        let mut holdings = Holdings::default();
        let mut stages: BTreeMap<(String, RecipeKey, Encoding), (HeldStage, HashSet<&Name>)> = BTreeMap::new();
        for (snapshot, names, by_stage) in &found {
            let own = names.iter().filter(|name| times[name] == 1);
            holdings.snapshots.push(HeldSnapshot {
                bytes: index.bytes(names),
                own_bytes: index.bytes(own),
                pipeline: snapshot.pipeline.clone(),
                stages: by_stage.iter().map(|(stage, names)| summed(stage, names.iter(), &index)).collect(),
                ..*snapshot
            });
            for (stage, names) in by_stage {
                let key = (stage.pipeline.clone(), stage.recipe, stage.encoding);
                stages.entry(key).or_insert_with(|| (stage.clone(), HashSet::new())).1.extend(names);
            }
        }
        holdings.stages = stages.values().map(|(stage, names)| summed(stage, names.iter().copied(), &index)).collect();
        for (name, seen) in index.iter() {
            holdings.objects += 1;
            holdings.bytes += seen.bytes;
            let of_gc =
                matches!(name, Name::Pin { .. } | Name::Intent { .. } | Name::Candidates { .. } | Name::Report { .. });
            if !of_gc && !times.contains_key(name) && !pipelines.contains(name) {
                holdings.unreferenced.0 += 1;
                holdings.unreferenced.1 += seen.bytes;
            }
        }
        Ok(holdings)
    }

    /// The stages of all heads of a pipeline that can be read; the newest head's win. Notes the heads and their recipes.
    fn all_stages(&self, pipeline: &str, index: &Index, names: &mut HashSet<Name>) -> Result<Stages> {
        let of = |name: &&Name| matches!(name, Name::Pipeline { pipeline: of, .. } if of.as_str() == pipeline);
        let heads: Vec<&Name> = index.iter().map(|(name, _)| name).filter(of).collect();
        let newest = sound(self.pipeline(pipeline))?.flatten();
        let mut stages = Stages::new();
        let mut add = |head: &PipelineHead, former| {
            for stage in &head.stages {
                stages.entry(stage.recipe).or_insert_with(|| (stage.clone(), former));
            }
        };
        newest.iter().for_each(|head| add(head, false));
        for name in heads {
            names.insert(name.clone());
            if let Some(head) = sound(self.read::<PipelineHead>(name))?.flatten() {
                add(&head, true);
            }
        }
        names.extend(stages.keys().map(|recipe| Name::Recipe { recipe: *recipe }));
        Ok(stages)
    }
}

type Found = (HeldSnapshot, HashSet<Name>, Vec<(HeldStage, Vec<Name>)>);

fn held(reach: &Reach, stages: &Stages, pipeline: &str, head: &SnapshotHead, current: bool) -> Result<Option<Found>> {
    let Some(snapshot) = sound(reach.snapshot(head))? else { return Ok(None) };
    let heads = reach.index.iter().map(|(name, _)| name);
    let own = heads.filter(|name| matches!(name, Name::Snapshot { pipeline: of, snapshot, .. } if of.as_str() == pipeline && *snapshot == head.snapshot));
    let mut names: HashSet<Name> = own.cloned().chain([table_of(&head.table)]).collect();
    let mut by_stage = Vec::new();
    for (stage, former) in stages.values() {
        names.extend(reach.order(stage.recipe, head.snapshot)?);
        for encoding in reach.index.encodings(stage.recipe) {
            let found = reach.stage(stage.recipe, encoding, &snapshot)?;
            if found.is_empty() {
                continue;
            }
            names.extend(found.iter().cloned());
            let stage = HeldStage {
                pipeline: pipeline.to_owned(),
                stage: stage.name.clone(),
                split: stage.split.clone(),
                recipe: stage.recipe,
                encoding,
                former: *former,
                shards: 0,
                bytes: 0,
            };
            by_stage.push((stage, found));
        }
    }
    let snapshot = HeldSnapshot {
        pipeline: pipeline.to_owned(),
        snapshot: head.snapshot,
        current,
        bytes: 0,
        own_bytes: 0,
        stages: Vec::new(),
    };
    Ok(Some((snapshot, names, by_stage)))
}

fn summed<'n>(stage: &HeldStage, names: impl Iterator<Item = &'n Name>, index: &Index) -> HeldStage {
    let names: HashSet<&Name> = names.collect();
    let shards = names.iter().filter(|name| matches!(name, Name::Shard { .. })).count() as u64;
    HeldStage { shards, bytes: index.bytes(names), ..stage.clone() }
}
