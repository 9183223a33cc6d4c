//! Which store a command is about: given by a pipeline file, by a path, or by `--store`; and which stored stage.

use crate::app::catalog;
use crate::app::project::{base, read_pipeline, store_url};
use crate::cli::Context;
use crate::error::{Error, Result};
use crate::format::encoding::Container;
use crate::format::head::PipelineHead;
use crate::io::Access;
use crate::store::Store;
use clap::Args;
use std::path::Path;

#[derive(Args, Clone)]
pub struct Place {
    /// A pipeline file, or a store [default: --store, else ./.forebay]
    #[arg(value_name = "PIPELINE|STORE")]
    place: Option<String>,
    /// A pipeline's name, where the store holds several
    #[arg(long, value_name = "NAME")]
    pipeline: Option<String>,
}

/// A stage that is stored whole.
#[derive(Args, Clone)]
pub struct StoredStage {
    #[command(flatten)]
    place: Place,
    /// A stage's name [default: the latest that is stored whole]
    #[arg(long)]
    stage: Option<String>,
    /// Which split's stage, where splits differ
    #[arg(long)]
    split: Option<String>,
    /// `arrow` or `parquet`, where the stage is stored as both
    #[arg(long, value_name = "FORMAT")]
    pub format: Option<Container>,
}

/// What the options of `StoredStage` mean.
pub struct Found {
    pub store: Store,
    pub pipeline: PipelineHead,
    pub stored: catalog::StoredStage,
}

impl StoredStage {
    pub fn open(&self, context: &Context) -> Result<Found> {
        let (store, name) = self.place.open(context)?;
        let pipeline = catalog::pipeline(&store, name.as_deref())?;
        let (stage, split) = (self.stage.as_deref(), self.split.as_deref());
        let stored = catalog::stored_stage(&store, &pipeline, stage, split, self.format)?;
        Ok(Found { store, pipeline, stored })
    }
}

impl Place {
    /// As if this had been given.
    pub fn at(place: String) -> Place {
        Place { place: Some(place), pipeline: None }
    }

    /// The pipeline file, where that is what was given.
    pub fn file(&self) -> Option<&Path> {
        self.place.as_deref().map(Path::new).filter(|path| is_pipeline_file(path))
    }

    /// The store, and the name of the pipeline if one is meant.
    pub fn open(&self, context: &Context) -> Result<(Store, Option<String>)> {
        let given = context.common.store.as_deref();
        let Some(place) = &self.place else {
            let url = given.unwrap_or(".forebay");
            return Ok((existing(url, &context.access)?, self.pipeline.clone()));
        };
        let path = Path::new(place);
        if !is_pipeline_file(path) {
            return Ok((existing(place, &context.access)?, self.pipeline.clone()));
        }
        let pipeline = read_pipeline(path, &|name| std::env::var(name).ok())?;
        let access = context.access.clone().with_defaults(&pipeline.storage);
        let store = existing(&store_url(&pipeline, &base(path), given), &access)?;
        Ok((store, self.pipeline.clone().or(Some(pipeline.name))))
    }
}

fn is_pipeline_file(path: &Path) -> bool {
    let yaml = path.extension().is_some_and(|e| e.eq_ignore_ascii_case("yaml") || e.eq_ignore_ascii_case("yml"));
    path.is_file() || (yaml && !path.is_dir())
}

/// Opens a store to be looked at: one that isn't there is an error, not an empty store.
fn existing(url: &str, access: &Access) -> Result<Store> {
    let store = Store::open(url, access)?;
    match store.is_there()? {
        true => Ok(store),
        false => Err(Error::not_found(format!(
            "there is no store at {url}; name one with --store, or run `forebay materialize` first"
        ))),
    }
}
