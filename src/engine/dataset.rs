//! A dataset, opened: the chains of a pipeline bound to their source (where there is one) and store.

use crate::error::{Error, Result};
use crate::id::RecipeKey;
use crate::plan::chain::Chain;
use crate::source::Source;
use crate::spec::node::nearest;
use crate::store::Store;
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

    /// The split that alone has the stage of that recipe, where it is a split's own.
    pub fn owner(&self, recipe: RecipeKey) -> Option<&str> {
        let own = |split: &&Split| split.chain.stages.iter().any(|stage| stage.own && stage.recipe == recipe);
        self.splits.iter().find(own)?.name.as_deref()
    }

    /// The split of that name; without a name the only one.
    pub fn split(&self, name: Option<&str>) -> Result<&Split> {
        let names = || self.splits.iter().filter_map(|s| s.name.as_deref());
        let list = || names().collect::<Vec<_>>().join(", ");
        match (name, self.splits.as_slice()) {
            (None, [only]) => Ok(only),
            (None, _) => Err(Error::invalid(format!("{} has the splits {}: name one", self.name, list()))),
            (Some(name), splits) => splits.iter().find(|s| s.name.as_deref() == Some(name)).ok_or_else(|| {
                let hint = match nearest(name, names()) {
                    Some(near) => format!("did you mean {near:?}?"),
                    None if names().next().is_none() => "it has no splits".to_owned(),
                    None => format!("it has {}", list()),
                };
                Error::not_found(format!("{} has no split {name:?}; {hint}", self.name))
            }),
        }
    }
}
