//! What to store: stage names as users give them to targets of `materialize`.

use crate::engine::dataset::{Dataset, Split};
use crate::error::{Error, Result};
use crate::format::encoding::{Codec, Container, Encoding};
use crate::materialize::Target;
use crate::plan::chain::Chain;
use crate::plan::cut;
use crate::spec::node::suggest;
use crate::spec::pipeline::Pipeline;

/// Targets, and in words why these, where the user named none.
#[derive(Debug, Clone)]
pub struct Targets {
    pub targets: Vec<Target>,
    pub reason: Option<String>,
}

/// `stages`: names, or `all`; empty or `auto`: the default stage. `container` and `codec`: as asked for, else by the stage's types.
pub fn resolve(
    dataset: &Dataset,
    stages: &[String],
    container: Option<Container>,
    codec: Option<Codec>,
) -> Result<Targets> {
    let chains = dataset.chains();
    let mut targets: Vec<Target> = Vec::new();
    let mut add = |split: &Split, index: usize| -> Result<()> {
        let chain = &split.chain;
        if targets.iter().any(|t| t.recipe == chain.stages[index].recipe) {
            return Ok(());
        }
        targets.push(Target::new(split, index, encoding(cut::default_encoding(chain, index), container, codec)?));
        Ok(())
    };
    if stages.is_empty() || stages == ["auto"] {
        let (index, reason) = cut::default_stage(&chains);
        if index == 0 {
            return Err(Error::invalid(format!(
                "no stage is worth storing by default: {reason}. --stage concatenated packs the source's bytes into shards"
            )));
        }
        add(&dataset.splits[0], index)?;
        return Ok(Targets { targets, reason: Some(reason) });
    }
    for name in stages {
        match name.as_str() {
            "auto" => {
                return Err(Error::invalid("stage auto is the default and stands alone; name stages, or use it alone"));
            }
            "all" => {
                let mut stored = 0;
                for split in &dataset.splits {
                    for index in (1..split.chain.stages.len()).filter(|i| split.chain.stages[*i].deterministic) {
                        add(split, index)?;
                        stored += 1;
                    }
                }
                if stored == 0 {
                    return Err(Error::invalid(
                        "no step comes out the same in every epoch, so `all` stages are none. --stage concatenated packs the source's bytes into shards",
                    ));
                }
            }
            name => {
                let place = |s: &Split| s.chain.stages.iter().position(|stage| stage.name == name);
                let found: Vec<_> = dataset.splits.iter().filter_map(|s| Some((s, place(s)?))).collect();
                let Some((first, index)) = found.first() else { return Err(unknown(name, &chains)) };
                // A stage of that name may come after a random step in one split and not in another.
                let storable = || found.iter().filter(|(split, index)| split.chain.stages[*index].deterministic);
                if storable().next().is_none() {
                    return Err(cannot_store(&first.chain, *index));
                }
                storable().try_for_each(|(split, index)| add(split, *index))?;
            }
        }
    }
    Ok(Targets { targets, reason: None })
}

fn encoding(default: Encoding, container: Option<Container>, codec: Option<Codec>) -> Result<Encoding> {
    match (container, codec) {
        (None, None) => Ok(default),
        (Some(container), Some(codec)) => Encoding::new(container, codec),
        (Some(container), None) if container == default.container => Ok(default),
        (Some(Container::Arrow), None) => Encoding::new(Container::Arrow, Codec::None),
        (Some(Container::Parquet), None) => Encoding::new(Container::Parquet, Codec::Zstd(3)),
        // Snappy and gzip are Parquet's only.
        (None, Some(codec)) => {
            Encoding::new(default.container, codec).or_else(|_| Encoding::new(Container::Parquet, codec))
        }
    }
}

/// The error of a name that no stage has.
pub fn unknown(name: &str, chains: &[Chain]) -> Error {
    let mut names: Vec<&str> = Vec::new();
    for stage in chains.iter().flat_map(|c| &c.stages) {
        if !names.contains(&stage.name.as_str()) {
            names.push(&stage.name);
        }
    }
    let hint = suggest(name, "expected", names.iter().copied());
    Error::not_found(format!("no stage {name:?}; {hint}"))
}

/// Refuses a pipeline whose `materialize:` names a stage that can't be stored.
pub fn check_named(pipeline: &Pipeline, splits: &[Split]) -> Result<()> {
    for (name, span) in &pipeline.materialize.stages {
        let place = |chain: &Chain| chain.stages.iter().position(|stage| stage.name == *name);
        let found: Vec<_> = splits.iter().filter_map(|s| Some((&s.chain, place(&s.chain)?))).collect();
        match found.first() {
            Some((chain, index)) if !found.iter().any(|(chain, index)| chain.stages[*index].deterministic) => {
                return Err(span.error(cannot_store(chain, *index)));
            }
            _ => {}
        }
    }
    Ok(())
}

fn cannot_store(chain: &Chain, index: usize) -> Error {
    let (name, last) = (&chain.stages[index].name, &chain.stages[chain.last_deterministic()].name);
    let reason = cut::unstorable(chain, index).unwrap_or_default();
    Error::invalid(format!("stage {name:?} can't be stored: it {reason}. The last stage that can be is {last:?}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn asked_for_encodings_win_over_defaults() {
        let arrow = "arrow-none".parse().unwrap();
        let check = |container, codec, expected: &str| {
            assert_eq!(encoding(arrow, container, codec).unwrap().to_string(), expected);
        };
        check(None, None, "arrow-none");
        check(Some(Container::Parquet), None, "parquet-zstd-3");
        check(None, Some(Codec::Lz4), "arrow-lz4");
        check(None, Some(Codec::Snappy), "parquet-snappy");
        check(Some(Container::Parquet), Some(Codec::None), "parquet-none");
        assert!(encoding(arrow, Some(Container::Arrow), Some(Codec::Snappy)).is_err());
    }
}
