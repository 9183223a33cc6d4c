//! A dataset, opened: the chains of a pipeline bound to their source (where there is one) and store.

use crate::error::{Error, Result};
use crate::id::{RecipeKey, SnapshotId};
use crate::plan::chain::Chain;
use crate::source::Source;
use crate::spec::node::suggest;
use crate::store::{Store, Uses};
use std::collections::BTreeSet;
use std::sync::Arc;

#[derive(Clone)]
pub struct Dataset {
    pub name: String,
    /// Absent where the dataset was opened from the store alone.
    pub source: Option<Arc<Source>>,
    /// In file order; a pipeline without splits has one without a name.
    pub splits: Vec<Split>,
    pub store: Store,
}

#[derive(Debug, Clone)]
pub struct Split {
    pub name: Option<String>,
    pub chain: Chain,
    /// The split's own default for shuffling.
    pub shuffle: Option<bool>,
}

impl Dataset {
    pub fn chains(&self) -> Vec<Chain> {
        self.splits.iter().map(|s| s.chain.clone()).collect()
    }

    /// Says that this process, for that purpose, uses a snapshot and the stages that may be stored of it: until it ends, no
    /// collection removes them. Errors are those of a store that can't be written.
    pub fn hold(&mut self, purpose: &str, snapshot: SnapshotId) -> Result<()> {
        let stages = self.splits.iter().flat_map(|split| &split.chain.stages).filter(|stage| stage.deterministic);
        let recipes: BTreeSet<RecipeKey> = stages.map(|stage| stage.recipe).collect();
        let recipes: Vec<RecipeKey> = recipes.into_iter().collect();
        self.store =
            self.store.hold(&Uses { purpose, pipeline: &self.name, snapshots: &[snapshot], recipes: &recipes })?;
        Ok(())
    }

    /// The split of that name; without a name the only one.
    pub fn split(&self, name: Option<&str>) -> Result<&Split> {
        let names = || self.splits.iter().filter_map(|s| s.name.as_deref());
        let list = || names().collect::<Vec<_>>().join(", ");
        match (name, self.splits.as_slice()) {
            (None, [only]) => Ok(only),
            (None, _) => Err(Error::invalid(format!("{} has the splits {}: name one", self.name, list()))),
            (Some(name), splits) => splits.iter().find(|s| s.name.as_deref() == Some(name)).ok_or_else(|| {
                let hint = suggest(name, "expected", names());
                Error::not_found(format!("{} has no split {name:?}; {hint}", self.name))
            }),
        }
    }
}
