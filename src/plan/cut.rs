//! Where a chain may be cut, and which stored stage is nearest. Used by writer and reader alike.

use crate::format::encoding::Encoding;
use crate::plan::chain::Chain;

/// The stage that `materialize` stores when none is named, and the reason in words: the last deterministic stage that all splits
/// share, less trailing steps that only cast or scale.
pub fn default_stage(_chains: &[Chain]) -> (usize, String) {
    unimplemented!()
}

/// `arrow`+none for stages with tensors; `parquet`+zstd:3 otherwise, parquet+none where the bytes are mostly encoded already.
pub fn default_encoding(_chain: &Chain, _stage: usize) -> Encoding {
    unimplemented!()
}

/// What is stored of one partition: (stage index, encoding).
pub type Stored = (usize, Encoding);

/// The stored stage to start from: the latest stage not past the last deterministic one; among its encodings the cheapest to decode.
/// `None`: the source.
pub fn nearest(_stored: &[Stored]) -> Option<Stored> {
    unimplemented!()
}
