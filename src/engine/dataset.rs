//! A dataset, opened: the chains of a pipeline bound to their source (where there is one) and store.

use crate::error::{Error, Result};
use crate::plan::chain::Chain;
use crate::source::Source;
use crate::spec::node::suggest;
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
