//! What a store holds of a pipeline, looked up by names: for people, for other consumers of the shards, and for export.

use crate::error::{Error, Result};
use crate::format::encoding::Container;
use crate::format::head::{ManifestHead, PipelineHead, SnapshotHead, StageHead};
use crate::format::name::Name;
use crate::format::table::ShardRow;
use crate::plan::cut;
use crate::spec::node::{nearest, suggest};
use crate::store::Store;
use std::path::PathBuf;

/// A stage that is stored whole for the current snapshot, in one encoding.
#[derive(Debug, Clone)]
pub struct StoredStage {
    pub stage: StageHead,
    pub snapshot: SnapshotHead,
    pub manifest: ManifestHead,
    /// In partition order.
    pub shards: Vec<ShardRow>,
}

/// A stage in one encoding, as far as it is stored for the current snapshot.
#[derive(Debug, Clone)]
pub struct StageStatus {
    pub stage: StageHead,
    /// Whole in these encodings.
    pub manifests: Vec<ManifestHead>,
}

/// The only pipeline of a store, or the one named.
pub fn pipeline(store: &Store, name: Option<&str>) -> Result<PipelineHead> {
    let names = store.pipelines()?;
    let name = match (name, names.as_slice()) {
        (Some(name), _) => name.to_owned(),
        (None, [only]) => only.clone(),
        (None, []) => return Err(Error::not_found("the store holds no pipeline yet; run `forebay materialize` first")),
        (None, _) => {
            return Err(Error::invalid(format!(
                "the store holds several pipelines: {}; name one with --pipeline",
                names.join(", ")
            )));
        }
    };
    store.pipeline(&name)?.ok_or_else(|| {
        let hint = suggest(&name, "expected", names.iter().map(String::as_str));
        Error::not_found(format!("the store holds no pipeline {name:?}; {hint}"))
    })
}

/// Every stage of a pipeline that may be stored, with its manifests for the current snapshot.
pub fn stages(store: &Store, pipeline: &PipelineHead) -> Result<Vec<StageStatus>> {
    let snapshot = current(store, &pipeline.name)?;
    let mut found = Vec::new();
    for stage in &pipeline.stages {
        let mut manifests = Vec::new();
        for encoding in store.encodings(stage.recipe)? {
            manifests.extend(store.manifest(stage.recipe, encoding, snapshot.snapshot)?.map(|(head, _)| head));
        }
        found.push(StageStatus { stage: stage.clone(), manifests });
    }
    Ok(found)
}

/// The stage of that name (the latest one stored whole where none is named), in the encoding that is cheapest to read
/// among those of `container`.
pub fn stored_stage(
    store: &Store,
    pipeline: &PipelineHead,
    stage: Option<&str>,
    split: Option<&str>,
    container: Option<Container>,
) -> Result<StoredStage> {
    let snapshot = current(store, &pipeline.name)?;
    let all = stages(store, pipeline)?;
    if let Some(name) = stage
        && !all.iter().any(|s| s.stage.name == name)
    {
        let hint = suggest(name, "expected", all.iter().map(|s| s.stage.name.as_str()));
        return Err(Error::not_found(format!("pipeline {:?} has no stage {name:?}; {hint}", pipeline.name)));
    }
    // Splits without steps of their own have no stage that names them.
    let splits = || all.iter().filter_map(|s| s.stage.split.as_deref());
    if let Some(name) = split
        && !splits().any(|split| split == name)
        && let Some(near) = nearest(name, splits())
    {
        let pipeline = &pipeline.name;
        return Err(Error::not_found(format!("pipeline {pipeline:?} has no split {name:?}; did you mean {near:?}?")));
    }
    let fits = |s: &&StageStatus| {
        stage.is_none_or(|name| s.stage.name == name)
            && (split.is_none() || s.stage.split.is_none() || s.stage.split.as_deref() == split)
    };
    for status in all.iter().rev().filter(fits) {
        let stored: Vec<cut::Stored> = status
            .manifests
            .iter()
            .filter(|m| container.is_none_or(|c| m.encoding.container == c))
            .map(|m| (0, m.encoding))
            .collect();
        let Some((_, encoding)) = cut::nearest(&stored) else { continue };
        if let Some((manifest, shards)) = store.manifest(status.stage.recipe, encoding, snapshot.snapshot)? {
            return Ok(StoredStage { stage: status.stage.clone(), snapshot, manifest, shards });
        }
    }
    let what = stage.map_or("no stage is".to_owned(), |s| format!("stage {s:?} is not"));
    let format = container.map_or(String::new(), |c| format!(" as {c}"));
    let asked = [stage.map(|s| format!(" --stage {s}")), container.map(|c| format!(" --format {c}"))];
    let asked: String = asked.into_iter().flatten().collect();
    let with = if asked.is_empty() { "" } else { " with" };
    Err(Error::not_found(format!(
        "{what} stored whole{format} for the current snapshot of pipeline {:?}; run `forebay materialize`{with}{asked}",
        pipeline.name
    )))
}

impl StoredStage {
    /// The files of the shards in partition order, as paths or URLs. Their bytes aren't verified, but
    /// one that was found bad already is given to nobody: `Corrupt`.
    pub fn paths(&self, store: &Store) -> Result<Vec<PathBuf>> {
        let root = PathBuf::from(store.storage().location());
        let container = self.manifest.encoding.container;
        let reported = store.reported_blobs()?;
        let blobs = self.shards.iter().flat_map(|s| &s.blobs);
        let bad = blobs.clone().filter(|blob| reported.contains(blob)).count();
        if bad > 0 {
            return Err(Error::corrupt(format!(
                "{bad} of the {} files of stage {} ({}) were found bad; `forebay materialize` computes them anew",
                blobs.count(),
                self.stage.name,
                self.manifest.encoding
            )));
        }
        Ok(blobs.map(|digest| root.join(Name::Blob { digest: *digest, container }.to_string())).collect())
    }
}

fn current(store: &Store, name: &str) -> Result<SnapshotHead> {
    store.current_snapshot(name)?.ok_or_else(|| {
        Error::not_found(format!(
            "pipeline {name:?} has no snapshot yet; run `forebay snapshot` or `forebay materialize`"
        ))
    })
}
