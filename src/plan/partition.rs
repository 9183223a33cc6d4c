//! Entries to partitions, so that a change of one entry touches one partition, two at a split or merge.

use crate::format::entry::Entry;
use crate::spec::pipeline::Partition;

/// How entries are laid out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Layout {
    /// By (H(key), key): every partition is a random mixture. Partitions are hash-prefix buckets.
    Hash,
    /// By key, cut after keys whose hash ends in enough zero bits.
    Key,
    /// As listed, cut from the front within each container (`Entry::file`).
    Front,
    /// As listed, cut within each container after keys whose hash ends in enough zero bits.
    Keyed,
}

/// Sets `Entry::partition` and returns the permutation: element i is the listed index of the i-th entry in partition order.
pub fn partition(_entries: &[Entry], _layout: Layout, _limits: Partition) -> Partitioned {
    unimplemented!()
}

/// The result of partitioning: entry order and where partitions begin.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Partitioned {
    /// Listed index of each entry, in partition order.
    pub order: Vec<usize>,
    /// Partition of each, in partition order; ascending from 0 without gaps.
    pub partition: Vec<u32>,
}
