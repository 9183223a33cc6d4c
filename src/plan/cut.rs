//! Where a chain may be cut, and which stored stage is nearest. Used by writer and reader alike.

use crate::format::encoding::{Codec, Container, Encoding};
use crate::format::shard::tensor::{FIXED_SHAPE, VARIABLE_SHAPE};
use crate::plan::chain::{Chain, Stage};
use crate::step::Purity;
use arrow::datatypes::DataType;
use std::cmp::Reverse;

/// Steps that are cheaper to run again than to read their wider output.
const CAST_OR_SCALE: [&str; 2] = ["table.cast", "image.normalize"];

/// The stage that `materialize` stores when none is named, and the reason in words: the last deterministic stage that all splits
/// share, less trailing steps that only cast or scale. 0 where there is none: then nothing is worth storing.
pub fn default_stage(chains: &[Chain]) -> (usize, String) {
    let Some((first, others)) = chains.split_first() else {
        return (0, "there is no chain".to_owned());
    };
    let shared = |index: usize, stage: &Stage| {
        others.iter().all(|chain| chain.stages.get(index).is_some_and(|other| other.recipe == stage.recipe))
    };
    let common = first.stages.iter().enumerate().take_while(|(i, s)| s.deterministic && shared(*i, s)).count();
    let last = common.saturating_sub(1);
    let only_scales = |stage: &Stage| stage.step.as_ref().is_some_and(|s| CAST_OR_SCALE.contains(&s.info().name));
    let chosen = first.stages[..common].iter().rposition(|stage| !only_scales(stage)).unwrap_or(0);

    let splits = if others.is_empty() { "" } else { " that all splits share" };
    let mut reason = match chosen {
        0 => format!("there is no deterministic step{splits} that does more than cast or scale"),
        _ if chosen == last => format!("the last deterministic stage{splits}"),
        _ => {
            let left_out: Vec<&str> = first.stages[chosen + 1..common].iter().map(|s| s.name.as_str()).collect();
            format!("the last deterministic stage{splits}, less what only casts or scales ({})", left_out.join(", "))
        }
    };
    if let Some(next) = first.stages.get(common) {
        let why = if next.deterministic { None } else { describe(next) };
        let why = why.unwrap_or_else(|| "is not the same in all splits".to_owned());
        reason.push_str(&format!("; {}, which follows, {why}", next.name));
    }
    (chosen, reason)
}

/// Why a stage can't be stored; `None`: it can.
pub fn unstorable(chain: &Chain, stage: usize) -> Option<String> {
    let stage = chain.stages.get(stage).filter(|stage| !stage.deterministic)?;
    let first = chain.stages.iter().find(|s| s.purity() != Purity::Deterministic)?;
    if first.name == stage.name {
        return describe(stage);
    }
    let kind = if first.purity() == Purity::Random { "random" } else { "stateful" };
    Some(format!("comes after the {kind} step {}", first.name))
}

fn describe(stage: &Stage) -> Option<String> {
    match stage.purity() {
        Purity::Deterministic => None,
        Purity::Random => Some("is random: it differs in each epoch".to_owned()),
        Purity::Stateful => Some("is stateful: it depends on what came before".to_owned()),
    }
}

/// `arrow`+none for stages with tensors; `parquet`+zstd:3 otherwise, parquet+none where the bytes are mostly encoded already.
pub fn default_encoding(chain: &Chain, stage: usize) -> Encoding {
    let fields = || chain.stages.get(stage).into_iter().flat_map(|stage| stage.schema.fields());
    let tensor = |name| matches!(name, Some(FIXED_SHAPE | VARIABLE_SHAPE));
    if fields().any(|field| tensor(field.extension_type_name())) {
        return Encoding { container: Container::Arrow, codec: Codec::None };
    }
    // Binary values are files or what an encoder made: images, audio, archives.
    let encoded = fields().any(|field| matches!(field.data_type(), DataType::Binary | DataType::LargeBinary));
    let codec = if encoded { Codec::None } else { Codec::Zstd(3) };
    Encoding { container: Container::Parquet, codec }
}

/// What is stored of one partition: (stage index, encoding).
pub type Stored = (usize, Encoding);

/// The stored stage to start from: the latest stage not past the last deterministic one; among its encodings the cheapest to decode.
/// `None`: the source.
pub fn nearest(stored: &[Stored]) -> Option<Stored> {
    stored.iter().copied().min_by_key(|(stage, encoding)| (Reverse(*stage), decoding_cost(*encoding)))
}

/// Codecs by the time that they take to decode, then containers, then (so that the choice is one) levels.
fn decoding_cost(encoding: Encoding) -> (u32, Container, u32) {
    let (codec, level) = match encoding.codec {
        Codec::None => (0, 0),
        Codec::Lz4 => (1, 0),
        Codec::Snappy => (2, 0),
        Codec::Zstd(level) => (3, level.unsigned_abs()),
        Codec::Gzip(level) => (4, level),
    };
    (codec, encoding.container, level)
}

#[cfg(test)]
mod tests;
