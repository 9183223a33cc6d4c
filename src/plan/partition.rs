//! Entries to partitions, so that a change of one entry touches one partition, two at a split or merge. Specified in
//! `formats/partition.md`.

use crate::error::{Error, Result};
use crate::format::canonical::{Domain, Writer};
use crate::format::entry::Entry;
use crate::format::table::Entries;
use crate::spec::pipeline::Partition;
use arrow::array::{RecordBatch, UInt64Array};
use arrow::compute::take_record_batch;

/// How entries are laid out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Layout {
    /// By (H(key), key): every partition is a random mixture. Partitions are hash-prefix buckets.
    Hash,
    /// By key, cut after keys whose hash ends in enough zero bits.
    Key,
    /// As listed, cut from the front within each container (`Entry::file`; without one, the entry is its own container).
    Front,
    /// As listed, cut within each container after keys whose hash ends in enough zero bits.
    Keyed,
}

/// The result of partitioning: entry order and where partitions begin.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Partitioned {
    /// Listed index of each entry, in partition order.
    pub order: Vec<usize>,
    /// Partition of each, in partition order; ascending from 0 without gaps.
    pub partition: Vec<u32>,
}

/// What partitioning sees of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Item {
    hash: u64,
    bytes: u64,
    /// Listed index.
    index: usize,
}

/// Sets the order of entries and the partition of each. `entries` are as listed. No partition exceeds the limits but one of a
/// single entry, or (by hash) of entries whose hashes are equal.
pub fn partition(entries: &[Entry], layout: Layout, limits: Partition) -> Partitioned {
    let mut items: Vec<Item> = (0..)
        .zip(entries)
        // From the front no hash is needed.
        .map(|(index, e)| Item { hash: if layout == Layout::Front { 0 } else { hash(&e.key) }, bytes: e.bytes, index })
        .collect();
    let key = |item: &Item| entries.get(item.index).map(|e| e.key.as_str());
    let mut out = Partitioned { order: Vec::with_capacity(items.len()), partition: Vec::with_capacity(items.len()) };
    match layout {
        Layout::Hash => {
            items.sort_unstable_by(|a, b| a.hash.cmp(&b.hash).then_with(|| key(a).cmp(&key(b))));
            bucket(&items, 0, limits, &mut out);
        }
        Layout::Key => {
            items.sort_unstable_by_key(key);
            cut_by_hash(&items, limits, &mut out);
        }
        Layout::Front | Layout::Keyed => {
            let mut rest = items.as_slice();
            for container in entries.chunk_by(|a, b| a.file.is_some() && a.file == b.file) {
                let (own, others) = rest.split_at(container.len());
                rest = others;
                match layout {
                    Layout::Front => cut_from_front(own, limits, &mut out),
                    _ => cut_by_hash(own, limits, &mut out),
                }
            }
        }
    }
    out
}

impl Partitioned {
    pub fn partitions(&self) -> u32 {
        self.partition.last().map_or(0, |last| last + 1)
    }

    /// The listed entries, and the values that they carry, as a snapshot's table.
    pub fn arrange(&self, entries: Vec<Entry>, carried: Option<&RecordBatch>) -> Result<Entries> {
        let rows = carried.map_or(entries.len(), RecordBatch::num_rows);
        if entries.len() != self.order.len() || rows != self.order.len() {
            return Err(Error::internal(format!(
                "{} entries with {rows} rows of values were partitioned as {}",
                entries.len(),
                self.order.len()
            )));
        }
        let mut listed: Vec<Option<Entry>> = entries.into_iter().map(Some).collect();
        let entries = self
            .order
            .iter()
            .zip(&self.partition)
            .filter_map(|(index, partition)| Some(Entry { partition: *partition, ..listed.get_mut(*index)?.take()? }))
            .collect();
        let indices = UInt64Array::from_iter_values(self.order.iter().map(|index| *index as u64));
        Ok(Entries { entries, carried: carried.map(|batch| take_record_batch(batch, &indices)).transpose()? })
    }

    fn push(&mut self, items: impl IntoIterator<Item = Item>) {
        let next = self.partitions();
        self.order.extend(items.into_iter().map(|item| item.index));
        self.partition.resize(self.order.len(), next);
    }
}

/// The first eight bytes of the key's digest.
fn hash(key: &str) -> u64 {
    let mut writer = Writer::new(Domain::EntryOrder);
    writer.str(key);
    let [a, b, c, d, e, f, g, h, ..] = writer.finish();
    u64::from_be_bytes([a, b, c, d, e, f, g, h])
}

fn within<'a>(items: impl Iterator<Item = &'a Item>, limits: Partition) -> bool {
    let (count, bytes) = items.fold((0_u64, 0_u64), |(count, sum), item| (count + 1, sum.saturating_add(item.bytes)));
    count <= limits.entries && bytes <= limits.bytes
}

/// A bucket of items whose hashes agree in the first `bit` bits, sorted. Large entries are partitions of their own, so that
/// what is left splits evenly; they follow the bucket that they would be in.
fn bucket(items: &[Item], bit: u32, limits: Partition, out: &mut Partitioned) {
    let alone = |item: &&Item| item.bytes > limits.bytes / 8;
    if bit == u64::BITS || within(items.iter().filter(|i| !alone(i)), limits) {
        out.push(items.iter().filter(|i| !alone(i)).copied());
        items.iter().filter(alone).for_each(|item| out.push([*item]));
        return;
    }
    let (zeros, ones) = items.split_at(items.partition_point(|i| i.hash << bit >> 63 == 0));
    bucket(zeros, bit + 1, limits, out);
    bucket(ones, bit + 1, limits, out);
}

/// While a range exceeds the limits it is cut after the key whose hash ends in the most zero bits (bits before these decide
/// between equals). Where a cut lies depends on no other cut beside it, so that an edit stays local: there is no
/// minimum and no cut at a count, either of which would shift all that follows.
fn cut_by_hash(items: &[Item], limits: Partition, out: &mut Partitioned) {
    let mut ranges = vec![items];
    while let Some(range) = ranges.pop() {
        let [before @ .., _] = range else { continue };
        let cut = (1..).zip(before).min_by_key(|(_, item)| item.hash.reverse_bits());
        match cut {
            Some((after, _)) if !within(range.iter(), limits) => {
                let (left, right) = range.split_at(after);
                ranges.extend([right, left]);
            }
            _ => out.push(range.iter().copied()),
        }
    }
}

/// Takes as many as the limits allow, again and again: appending changes the last partition at most.
fn cut_from_front(items: &[Item], limits: Partition, out: &mut Partitioned) {
    let mut rest = items;
    while !rest.is_empty() {
        let mut bytes = 0_u64;
        let fitting = (1..)
            .zip(rest)
            .take_while(|(count, item)| {
                bytes = bytes.saturating_add(item.bytes);
                *count == 1 || (*count <= limits.entries && bytes <= limits.bytes)
            })
            .count();
        let (own, others) = rest.split_at(fitting);
        out.push(own.iter().copied());
        rest = others;
    }
}

#[cfg(test)]
mod tests;
