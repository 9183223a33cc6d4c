//! A snapshot in memory: the source's entries in partition order, and where each partition begins.

use crate::error::{Error, Result};
use crate::format::entry::Entry;
use crate::format::table::Entries;
use crate::id::{RecipeKey, ShardKey, SnapshotId};
use crate::plan::key;
use crate::plan::partition::{Layout, partition};
use crate::source::Listing;
use crate::spec::pipeline::Partition;
use arrow::array::UInt64Array;
use std::ops::Range;

#[derive(Debug, Clone)]
pub struct Snapshot {
    pub id: SnapshotId,
    pub entries: Entries,
    /// Index of each partition's first entry, and the number of entries.
    starts: Vec<usize>,
}

impl Snapshot {
    /// Puts a listing in partition order.
    pub fn new(listing: Listing, layout: Layout, limits: Partition) -> Result<Self> {
        let partitioned = partition(&listing.entries, layout, limits);
        let mut listed: Vec<Option<Entry>> = listing.entries.into_iter().map(Some).collect();
        let mut entries = Vec::with_capacity(listed.len());
        for (&index, &partition) in partitioned.order.iter().zip(&partitioned.partition) {
            let entry = listed.get_mut(index).and_then(Option::take);
            let entry = entry.ok_or_else(|| Error::internal("partitioning is no permutation"))?;
            entries.push(Entry { partition, ..entry });
        }
        let carried = match listing.carried {
            Some(batch) => {
                let order = UInt64Array::from_iter_values(partitioned.order.iter().map(|i| *i as u64));
                Some(arrow::compute::take_record_batch(&batch, &order)?)
            }
            None => None,
        };
        Self::of(Entries { entries, carried })
    }

    /// From a table in partition order.
    pub fn of(entries: Entries) -> Result<Self> {
        let mut starts = Vec::new();
        for (index, entry) in entries.entries.iter().enumerate() {
            match (entry.partition as usize + 1).checked_sub(starts.len()) {
                Some(0) if index > 0 => {}
                Some(1) => starts.push(index),
                _ => return Err(Error::corrupt("the entries table is not in partition order")),
            }
        }
        starts.push(entries.entries.len());
        Ok(Snapshot { id: key::snapshot_id(&entries), entries, starts })
    }

    pub fn partitions(&self) -> usize {
        self.starts.len() - 1
    }

    /// Indices of a partition's entries.
    pub fn range(&self, partition: usize) -> Range<usize> {
        self.starts[partition]..self.starts[partition + 1]
    }

    pub fn partition(&self, partition: usize) -> &[Entry] {
        &self.entries.entries[self.range(partition)]
    }

    pub fn shard_key(&self, recipe: RecipeKey, partition: usize) -> ShardKey {
        key::shard_key(recipe, self.partition(partition))
    }

    /// Samples that the source yields for a partition.
    pub fn source_rows(&self, partition: usize) -> u64 {
        self.partition(partition).iter().map(|e| e.rows).sum()
    }

    pub fn rows(&self) -> u64 {
        self.entries.entries.iter().map(|e| e.rows).sum()
    }

    /// Bytes as listed.
    pub fn bytes(&self) -> u64 {
        self.entries.entries.iter().map(|e| e.bytes).sum()
    }
}
