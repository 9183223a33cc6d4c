//! Why a stage is not served from what is stored: the first term in which its recipe differs from one of the same name.

use crate::engine::dataset::Dataset;
use crate::error::{Kind, Result};
use crate::format::canonical::Value;
use crate::id::RecipeKey;
use crate::plan::chain::{Chain, Stage};
use crate::plan::explain::{Difference, first_difference, text};
use crate::store::Store;

/// A stage and what the store has of it.
#[derive(Debug, Clone)]
pub struct Explained {
    pub split: Option<String>,
    pub stage: String,
    pub recipe: RecipeKey,
    pub document: Value,
    /// Encodings in which any shard is stored under this recipe.
    pub stored: Vec<crate::format::encoding::Encoding>,
    /// Stages of the same name that are stored under other recipes, with the first term that differs.
    pub others: Vec<(RecipeKey, Difference)>,
}

/// Every stage that may be stored; stages that splits share appear once.
pub fn explain(dataset: &Dataset) -> Result<Vec<Explained>> {
    let mut explained: Vec<Explained> = Vec::new();
    for split in &dataset.splits {
        for stage in split.chain.stages.iter().filter(|s| s.deterministic) {
            if explained.iter().any(|e| e.recipe == stage.recipe) {
                continue;
            }
            explained.push(Explained {
                split: stage.own.then(|| split.name.clone()).flatten(),
                stage: stage.name.clone(),
                recipe: stage.recipe,
                document: stage.document.clone(),
                stored: dataset.store.encodings(stage.recipe)?,
                others: others(&dataset.store, stage)?,
            });
        }
    }
    Ok(explained)
}

/// One sentence about the latest stage of a chain behind `served` (an index) that is stored under another recipe;
/// `None` where there is none.
pub fn near_miss(store: &Store, chain: &Chain, served: usize) -> Result<Option<String>> {
    for stage in chain.stages.iter().skip(served + 1).rev().filter(|s| s.deterministic) {
        if let Some((recipe, difference)) = others(store, stage)?.into_iter().next() {
            return Ok(Some(format!(
                "a stage {} is stored under another recipe ({}): {}; materialize again, or restore what changed",
                stage.name,
                recipe.short(),
                sentence(&difference),
            )));
        }
    }
    Ok(None)
}

/// `step 2 (image.resize).params.shorter_side was 256 and is 224`.
pub fn sentence(difference: &Difference) -> String {
    let value = |v: &Option<Value>| v.as_ref().map_or("absent".to_owned(), text);
    format!("{} was {} and is {}", difference.term, value(&difference.before), value(&difference.after))
}

/// Stored stages of the same name, those that differ latest in the chain first.
fn others(store: &Store, stage: &Stage) -> Result<Vec<(RecipeKey, Difference)>> {
    let mut found = Vec::new();
    for recipe in store.recipes()?.into_iter().filter(|r| *r != stage.recipe) {
        let head = match store.recipe(recipe) {
            // What can't be read explains nothing, and is in nobody's way.
            Err(error) if matches!(error.kind(), Kind::Corrupt | Kind::Invalid) && !error.is_refused() => continue,
            head => head?,
        };
        let Some(head) = head.filter(|h| h.stage == stage.name) else { continue };
        if store.encodings(recipe)?.is_empty() {
            continue;
        }
        if let Some(difference) = first_difference(&Value::try_from(&head.document)?, &stage.document) {
            found.push((recipe, difference));
        }
    }
    found.sort_by(|(_, a), (_, b)| b.term.cmp(&a.term));
    Ok(found)
}
