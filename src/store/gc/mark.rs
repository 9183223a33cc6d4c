//! What a collection keeps and why, found from one listing: plain data, printed by a dry run.
//!
//! Firm roots are kept whatever happens: of each pipeline the current head and snapshot, pins, and what running processes say
//! that they use. Recent ones, kept for a while after they were current, give way where the store would be too large.

use super::Options;
use crate::error::{Error, Result};
use crate::format::encoding::Encoding;
use crate::format::head::{PipelineHead, SnapshotHead};
use crate::format::name::{Name, PipelineName};
use crate::format::root::{Intent, Pin};
use crate::id::{Digest, RecipeKey, SnapshotId};
use crate::plan::snapshot::Snapshot;
use crate::store::Store;
use crate::store::lease::{COARSE_MS, ms};
use crate::store::reach::{Index, Reach, Seen, is_damaged, table_of};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashSet};

/// An object that is to be removed, as it was listed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Victim {
    pub name: Name,
    pub seen: Seen,
}

#[derive(Debug, Default)]
pub struct Plan {
    /// In the order in which they are removed: what leads to something before what it leads to.
    pub remove: Vec<Victim>,
    pub kept_objects: u64,
    pub kept_bytes: u64,
    /// Bytes of what is kept only as it was current a while ago.
    pub recent_bytes: u64,
    /// Things that the user may want to know.
    pub notes: Vec<String>,
}

impl Plan {
    pub fn bytes(&self) -> u64 {
        self.remove.iter().map(|victim| victim.seen.bytes).sum()
    }
}

/// What is kept of a pipeline.
#[derive(Debug, Default)]
struct Root {
    snapshots: BTreeSet<SnapshotId>,
    recipes: BTreeSet<RecipeKey>,
}

/// A head with its number.
type Numbered = (u32, Name, Seen);

/// A stage of a snapshot in one encoding.
type Stage = (RecipeKey, Encoding, SnapshotId);

struct Marking<'a> {
    options: &'a Options<'a>,
    reach: Reach<'a>,
    /// Older objects are not recent.
    cutoff_ms: i64,
    kept: HashSet<Name>,
    /// Stages of snapshots that are to be kept.
    firm: BTreeSet<Stage>,
    recent: BTreeSet<Stage>,
    heads: BTreeMap<SnapshotId, SnapshotHead>,
    notes: Vec<String>,
}

pub fn plan(store: &Store, options: &Options) -> Result<Plan> {
    // Intents first: a process that ends meanwhile has published what the listing shows.
    let intents = store.intents_within(options.pace.lifetime)?;
    let (lists, pins) = (store.candidates_within(options.pace.lifetime)?, store.pins()?);
    let now_ms = store.storage().now_ms()?;
    let index = Index::new(store)?;
    let mut marking = Marking {
        options,
        reach: Reach::new(store, &index)?,
        cutoff_ms: if options.keep_within.is_zero() {
            i64::MAX
        } else {
            now_ms.saturating_sub(ms(options.keep_within))
        },
        kept: HashSet::new(),
        firm: BTreeSet::new(),
        recent: BTreeSet::new(),
        heads: BTreeMap::new(),
        notes: Vec::new(),
    };
    marking.pipelines()?;
    marking.pins(&pins)?;
    marking.intents(&intents)?;
    marking.manifests()?;
    let firm = marking.firm.clone();
    for names in marking.stages(&firm)?.into_values() {
        marking.kept.extend(names);
    }
    let firm_bytes = index.bytes(&marking.kept);
    marking.recent()?;
    let recent_bytes = index.bytes(&marking.kept) - firm_bytes;

    // Where only whole seconds are kept, what was published anew within one looks unchanged: it has to be older than that.
    let coarse = index.iter().all(|(_, seen)| seen.modified_ms % 1_000 == 0);
    let settled_ms = if coarse { now_ms.saturating_sub(COARSE_MS) } else { i64::MAX };
    // A running process publishes blobs before what leads to them.
    let begun = intents.iter().map(|intent| intent.began_ms).min().unwrap_or(i64::MAX);
    for (name, seen) in index.iter() {
        let young = match name {
            Name::Blob { .. } => seen.modified_ms >= begun,
            Name::Recipe { recipe } => seen.modified_ms >= begun || marking.recent_recipe(*recipe, seen),
            Name::Pipeline { .. } | Name::Snapshot { .. } | Name::Order { .. } | Name::Manifest { .. } => {
                seen.modified_ms >= begun
            }
            _ => false,
        };
        if young || seen.modified_ms >= settled_ms {
            marking.kept.insert(name.clone());
        }
    }
    let kept = &marking.kept;
    let reported = |blob: Digest| {
        use crate::format::encoding::Container::{Arrow, Parquet};
        [Arrow, Parquet].into_iter().any(|container| kept.contains(&Name::Blob { digest: blob, container }))
    };
    let stays = |name: &Name| match name {
        Name::Report { blob } => reported(*blob),
        Name::Pin { .. } => true,
        Name::Intent { id } => intents.iter().any(|intent| intent.id == *id),
        name => kept.contains(name),
    };
    let mut plan = Plan { recent_bytes, notes: marking.notes.clone(), ..Plan::default() };
    let passing: HashSet<Name> =
        lists.iter().flat_map(|list| [Name::Candidates { id: list.id }, table_of(&list.table)]).collect();
    for (name, seen) in index.iter().filter(|(name, _)| !passing.contains(name)) {
        if stays(name) {
            plan.kept_objects += 1;
            plan.kept_bytes += seen.bytes;
        } else {
            plan.remove.push(Victim { name: name.clone(), seen });
        }
    }
    plan.remove.sort_by_cached_key(|victim| (turn(&victim.name), victim.name.to_string()));
    Ok(plan)
}

/// What leads to something goes first.
pub fn turn(name: &Name) -> u8 {
    match name {
        Name::Pipeline { .. } | Name::Snapshot { .. } | Name::Intent { .. } | Name::Candidates { .. } => 0,
        Name::Manifest { .. } | Name::Order { .. } => 1,
        Name::Shard { .. } => 2,
        Name::Recipe { .. } | Name::Pin { .. } => 3,
        Name::Blob { .. } => 4,
        Name::Report { .. } => 5,
    }
}

impl Marking<'_> {
    /// Of each pipeline that isn't to be forgotten: what is current, and what was so a while ago.
    fn pipelines(&mut self) -> Result<()> {
        let mut names: BTreeMap<PipelineName, [Vec<Numbered>; 2]> = BTreeMap::new();
        for (name, seen) in self.reach.index.iter() {
            let (pipeline, seq, which) = match name {
                Name::Pipeline { pipeline, seq, .. } => (pipeline, seq, 0),
                Name::Snapshot { pipeline, seq, .. } => (pipeline, seq, 1),
                _ => continue,
            };
            names.entry(pipeline.clone()).or_default()[which].push((*seq, name.clone(), seen));
        }
        for pipeline in &self.options.forget {
            if !names.contains_key(pipeline) {
                return Err(Error::not_found(format!("the store has no pipeline {pipeline}; `forebay ls` names them")));
            }
        }
        for (pipeline, [heads, snapshots]) in names {
            if self.options.forget.contains(&pipeline) {
                continue;
            }
            let (mut firm, mut recent) = (Root::default(), Root::default());
            for (index, name) in self.in_force(heads).into_iter().enumerate() {
                let read = self.reach.pipeline_head(&name).map_err(|e| known_to_none(e, &pipeline));
                let Some(head) = self.read_or_keep(read, index, &name)? else { continue };
                self.kept.insert(name);
                let recipes = recipes(&head);
                recent.recipes.extend(&recipes);
                if index == 0 {
                    firm.recipes.extend(recipes);
                }
            }
            for (index, name) in self.in_force(snapshots).into_iter().enumerate() {
                let read = self.reach.snapshot_head(&name).map_err(|e| known_to_none(e, &pipeline));
                let Some(head) = self.read_or_keep(read, index, &name)? else { continue };
                self.kept.extend([name, table_of(&head.table)]);
                recent.snapshots.insert(head.snapshot);
                if index == 0 {
                    firm.snapshots.insert(head.snapshot);
                }
                self.heads.insert(head.snapshot, head);
            }
            self.keep_recipes(&recent)?;
            let stages = |root: &Root| self.stages_of(root);
            let (firm, recent) = (stages(&firm), stages(&recent));
            self.firm.extend(firm);
            self.recent.extend(recent);
        }
        Ok(())
    }

    /// The current head, then those that were current within the time that is kept, newest first.
    fn in_force(&self, mut heads: Vec<Numbered>) -> Vec<Name> {
        heads.sort_by_cached_key(|(seq, name, _)| (Reverse(*seq), name.to_string()));
        let mut since = i64::MAX;
        let mut kept = Vec::new();
        for (index, (_, name, seen)) in heads.into_iter().enumerate() {
            // It was current until the next was published.
            if index == 0 || since >= self.cutoff_ms || seen.modified_ms >= self.cutoff_ms {
                kept.push(name);
            }
            since = seen.modified_ms;
        }
        kept
    }

    /// The current head has to be readable. Another that isn't keeps only itself.
    fn read_or_keep<T>(&mut self, read: Result<Option<T>>, index: usize, name: &Name) -> Result<Option<T>> {
        match read {
            Err(error) if index > 0 && is_damaged(&error) => {
                self.notes.push(format!("{name} is damaged: what it leads to isn't known, and not kept for its sake"));
                self.kept.insert(name.clone());
                Ok(None)
            }
            read => read,
        }
    }

    /// Heads of recipes and orders, which are small.
    fn keep_recipes(&mut self, root: &Root) -> Result<()> {
        for &recipe in &root.recipes {
            self.kept.insert(Name::Recipe { recipe });
            for &snapshot in &root.snapshots {
                self.kept.extend(self.reach.order(recipe, snapshot)?);
            }
        }
        Ok(())
    }

    /// What is stored of a root's snapshots.
    fn stages_of(&self, root: &Root) -> BTreeSet<Stage> {
        let mut stages = BTreeSet::new();
        for &recipe in &root.recipes {
            for encoding in self.reach.index.encodings(recipe) {
                stages.extend(root.snapshots.iter().map(|snapshot| (recipe, encoding, *snapshot)));
            }
        }
        stages
    }

    fn pins(&mut self, pins: &[Pin]) -> Result<()> {
        for pin in pins {
            if !self.snapshots(&[pin.snapshot])? {
                let note = format!("pin {:?} is of snapshot {}, which is gone", pin.name, pin.snapshot.short());
                self.notes.push(note);
                continue;
            }
            self.newest_head(&pin.pipeline)?;
            let root = Root { snapshots: [pin.snapshot].into(), recipes: pin.recipes.iter().copied().collect() };
            self.keep_recipes(&root)?;
            self.firm.extend(self.stages_of(&root));
        }
        Ok(())
    }

    fn intents(&mut self, intents: &[Intent]) -> Result<()> {
        for intent in intents {
            self.snapshots(&intent.snapshots)?;
            self.newest_head(&intent.pipeline)?;
            for &recipe in &intent.recipes {
                self.kept.extend(self.reach.recipe(recipe)?);
            }
        }
        Ok(())
    }

    /// The head by which a dataset is opened from the store alone.
    fn newest_head(&mut self, pipeline: &str) -> Result<()> {
        let of = |name: &&Name| matches!(name, Name::Pipeline { pipeline: of, .. } if of.as_str() == pipeline);
        let names = self.reach.index.iter().map(|(name, _)| name).filter(of);
        let newest = names.min_by_key(|name| match name {
            Name::Pipeline { seq, .. } => (Reverse(*seq), name.to_string()),
            _ => (Reverse(0), String::new()),
        });
        self.kept.extend(newest.cloned());
        Ok(())
    }

    /// Heads of snapshots by id, with their tables; false where one of them has none.
    fn snapshots(&mut self, wanted: &[SnapshotId]) -> Result<bool> {
        let index = self.reach.index;
        let mut found = BTreeSet::new();
        for (name, _) in index.iter() {
            let Name::Snapshot { snapshot, .. } = name else { continue };
            if wanted.contains(snapshot)
                && let Some(head) = self.reach.snapshot_head(name)?
            {
                self.kept.extend([name.clone(), table_of(&head.table)]);
                self.heads.insert(head.snapshot, head);
                found.insert(*snapshot);
            }
        }
        Ok(wanted.iter().all(|snapshot| found.contains(snapshot)))
    }

    /// Manifests that were published within the time that is kept, but for those of pipelines that are forgotten.
    fn manifests(&mut self) -> Result<()> {
        let index = self.reach.index;
        let mut forgotten = BTreeSet::new();
        for (name, _) in index.iter() {
            if let Name::Pipeline { pipeline, .. } = name
                && self.options.forget.contains(pipeline)
                && let Ok(Some(head)) = self.reach.pipeline_head(name)
            {
                forgotten.extend(recipes(&head));
            }
        }
        let mut recent = BTreeSet::new();
        for (name, seen) in index.iter() {
            if let Name::Manifest { recipe, encoding, snapshot } = *name
                && seen.modified_ms >= self.cutoff_ms
                && !forgotten.contains(&recipe)
            {
                recent.insert((recipe, encoding, snapshot));
            }
        }
        for (recipe, encoding, snapshot) in recent {
            if self.snapshots(&[snapshot])? {
                self.kept.insert(Name::Recipe { recipe });
                self.kept.extend(self.reach.order(recipe, snapshot)?);
                self.recent.insert((recipe, encoding, snapshot));
            }
        }
        Ok(())
    }

    /// What stages of snapshots lead to; a snapshot's entries are read once.
    fn stages(&self, stages: &BTreeSet<Stage>) -> Result<BTreeMap<Stage, Vec<Name>>> {
        let mut by_snapshot: BTreeMap<SnapshotId, Vec<(RecipeKey, Encoding)>> = BTreeMap::new();
        for &(recipe, encoding, snapshot) in stages {
            by_snapshot.entry(snapshot).or_default().push((recipe, encoding));
        }
        let mut found = BTreeMap::new();
        for (id, stages) in by_snapshot {
            let head = self.heads.get(&id).ok_or_else(|| Error::internal(format!("snapshot {id} has no head")))?;
            let snapshot: Snapshot = self.reach.snapshot(head)?;
            for (recipe, encoding) in stages {
                found.insert((recipe, encoding, id), self.reach.stage(recipe, encoding, &snapshot)?);
            }
        }
        Ok(found)
    }

    /// Keeps what was current a while ago, as far as there is room: what took longest to compute for its bytes first.
    fn recent(&mut self) -> Result<()> {
        let stages: BTreeSet<Stage> = self.recent.difference(&self.firm).copied().collect();
        let mut found: Vec<(Stage, Vec<Name>)> = self.stages(&stages)?.into_iter().collect();
        let index = self.reach.index;
        let Some(most) = self.options.max_bytes else {
            self.kept.extend(found.into_iter().flat_map(|(_, names)| names));
            return Ok(());
        };
        let firm: u64 = index.bytes(&self.kept);
        if firm > most {
            self.notes.push(format!(
                "what is current, pinned or in use takes {firm} bytes, more than the {most} allowed: `--forget` or `forebay unpin` what isn't needed"
            ));
        }
        let mut worth = BTreeMap::new();
        for (stage, names) in &found {
            let new: Vec<&Name> = names.iter().filter(|name| !self.kept.contains(*name)).collect();
            let bytes = index.bytes(new.iter().copied());
            worth.insert(*stage, self.reach.seconds(new)? / bytes.max(1) as f64);
        }
        found.sort_by(|(a, _), (b, _)| worth[b].total_cmp(&worth[a]));
        let mut room = most.saturating_sub(firm);
        for (_, names) in found {
            let new: HashSet<Name> = names.into_iter().filter(|name| !self.kept.contains(name)).collect();
            let bytes = index.bytes(&new);
            if bytes <= room {
                room -= bytes;
                self.kept.extend(new);
            }
        }
        Ok(())
    }

    /// What a stage was is told for a while, and as long as anything of it is stored.
    fn recent_recipe(&self, recipe: RecipeKey, seen: Seen) -> bool {
        seen.modified_ms >= self.cutoff_ms && self.options.forget.is_empty()
            || self.firm.iter().chain(&self.recent).any(|(of, ..)| *of == recipe)
    }
}

fn recipes(head: &PipelineHead) -> Vec<RecipeKey> {
    head.stages.iter().map(|stage| stage.recipe).collect()
}

fn known_to_none(error: Error, pipeline: &PipelineName) -> Error {
    error.during(format!("cannot tell what pipeline {pipeline} needs, so nothing is removed"))
}
