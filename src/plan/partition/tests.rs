//! Every entry once and within the limits; and how few partitions an edit touches.

use super::*;
use crate::format::entry::Identity;
use crate::id::Digest;
use arrow::array::{ArrayRef, AsArray, StringArray};
use proptest::prelude::*;
use std::collections::HashSet;
use std::sync::Arc;

const LIMITS: Partition = Partition { entries: 8192, bytes: 64 << 20 };

fn entry(key: impl Into<String>, file: Option<&str>, bytes: u64) -> Entry {
    let identity = Identity::Content(Digest::of(b""));
    Entry { key: key.into(), file: file.map(Into::into), identity, range: None, bytes, rows: 1, partition: 0 }
}

/// Partitions as lists of listed indices.
fn groups(partitioned: &Partitioned) -> Vec<Vec<usize>> {
    let mut groups = vec![Vec::new(); partitioned.partitions() as usize];
    for (index, partition) in partitioned.order.iter().zip(&partitioned.partition) {
        groups[*partition as usize].push(*index);
    }
    assert!(partitioned.partition.is_sorted());
    assert!(groups.iter().all(|g| !g.is_empty()));
    groups
}

fn arb_entries() -> impl Strategy<Value = Vec<Entry>> {
    let entry_of = |(key, file, bytes): (u32, Option<u8>, u64)| {
        let file = file.map(|f| format!("{f}.tar"));
        entry(key.to_string(), file.as_deref(), bytes)
    };
    let bytes = prop_oneof![4 => 0..100_u64, 1 => 0..10_000_u64, 1 => Just(u64::MAX)];
    prop::collection::vec((any::<u32>(), prop::option::of(0..3_u8), bytes).prop_map(entry_of), 0..200)
}

proptest! {
    #[test]
    fn every_entry_once_within_the_limits(entries in arb_entries(), count in 1..40_u64, bytes in 1..3000_u64) {
        let limits = Partition { entries: count, bytes };
        for layout in [Layout::Hash, Layout::Key, Layout::Front, Layout::Keyed] {
            let partitioned = partition(&entries, layout, limits);
            let groups = groups(&partitioned);
            let mut all = partitioned.order.clone();
            all.sort();
            prop_assert_eq!(all, (0..entries.len()).collect::<Vec<_>>());
            for group in &groups {
                let sum = group.iter().fold(0_u64, |sum, i| sum.saturating_add(entries[*i].bytes));
                let same_key = group.iter().all(|i| entries[*i].key == entries[group[0]].key);
                prop_assert!(same_key || (group.len() as u64 <= count && sum <= bytes), "{layout:?}");
                if matches!(layout, Layout::Front | Layout::Keyed) {
                    prop_assert!(group.len() == 1 || group.iter().all(|i| entries[*i].file == entries[group[0]].file));
                }
            }
            match layout {
                Layout::Front | Layout::Keyed => prop_assert!(partitioned.order.is_sorted()),
                Layout::Key => prop_assert!(partitioned.order.is_sorted_by_key(|i| &entries[*i].key)),
                Layout::Hash => {}
            }
        }
    }

    #[test]
    fn listing_order_does_not_matter_by_hash_or_key(keys in prop::collection::hash_set(any::<u16>(), 0..200)) {
        let mut entries: Vec<Entry> = keys.iter().map(|k| entry(k.to_string(), None, u64::from(*k % 50))).collect();
        let limits = Partition { entries: 10, bytes: 300 };
        let contents = |entries: &[Entry], layout| -> Vec<Vec<String>> {
            let partitioned = partition(entries, layout, limits);
            groups(&partitioned).iter().map(|g| g.iter().map(|i| entries[*i].key.clone()).collect()).collect()
        };
        let before = [Layout::Hash, Layout::Key].map(|layout| contents(&entries, layout));
        entries.reverse();
        prop_assert_eq!(before, [Layout::Hash, Layout::Key].map(|layout| contents(&entries, layout)));
    }

    #[test]
    fn appending_changes_the_last_partition_only(sizes in prop::collection::vec(0..500_u64, 1..200), more in 1..20_usize) {
        let limits = Partition { entries: 16, bytes: 2000 };
        let entries: Vec<Entry> =
            sizes.iter().enumerate().map(|(i, bytes)| entry(i.to_string(), Some("a.jsonl"), *bytes)).collect();
        let old = groups(&partition(&entries[..entries.len().saturating_sub(more)], Layout::Front, limits));
        let new = groups(&partition(&entries, Layout::Front, limits));
        let kept = old.len().saturating_sub(1);
        prop_assert_eq!(&old[..kept], &new[..kept]);
    }
}

#[test]
fn nothing_has_no_partitions() {
    for layout in [Layout::Hash, Layout::Key, Layout::Front, Layout::Keyed] {
        assert_eq!(partition(&[], layout, LIMITS).partitions(), 0);
    }
}

#[test]
fn compressed_tars_stand_alone_and_large_entries_too() {
    let tars = ["a.tar.gz", "b.tar.gz"].map(|key| entry(key, None, 10));
    assert_eq!(partition(&tars, Layout::Front, LIMITS).partitions(), 2);
    let mut files: Vec<Entry> = (0..20).map(|i| entry(i.to_string(), None, 1000)).collect();
    files[7].bytes = LIMITS.bytes / 8 + 1;
    let groups = groups(&partition(&files, Layout::Hash, LIMITS));
    assert_eq!(groups.iter().map(Vec::len).collect::<Vec<_>>(), [19, 1]);
    assert_eq!(groups[1], [7]);
}

#[test]
fn carried_values_move_with_their_entries() {
    let entries: Vec<Entry> = (0..50).map(|i| entry(format!("k{i}"), None, 1)).collect();
    let keys: ArrayRef = Arc::new(StringArray::from_iter_values(entries.iter().map(|e| &e.key)));
    let carried = RecordBatch::try_from_iter([("label", keys)]).unwrap();
    let partitioned = partition(&entries, Layout::Hash, Partition { entries: 8, bytes: 100 });
    let table = partitioned.arrange(entries.clone(), Some(&carried)).unwrap();
    let labels = table.carried.unwrap();
    let labels: Vec<&str> = labels.column(0).as_string::<i32>().iter().flatten().collect();
    assert_eq!(labels, table.entries.iter().map(|e| e.key.as_str()).collect::<Vec<_>>());
    assert_eq!(table.entries.iter().map(|e| e.partition).collect::<Vec<_>>(), partitioned.partition);
    assert!(partitioned.arrange(entries[1..].to_vec(), None).is_err());
}

/// A seeded stream of numbers for tests.
struct Draws(u64);

impl Draws {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = self.0;
        word = (word ^ word >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ word >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^ word >> 31
    }
    fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }
}

// Sizes of about a megabyte: some sixty entries in a partition, so that edits often meet a split.

/// Of a mean with which buckets of eleven bits stand at the limit.
fn uniform(draws: &mut Draws) -> u64 {
    200_000 + draws.next() % 2_340_000
}

fn lognormal(draws: &mut Draws) -> u64 {
    let normal: f64 = (0..12).map(|_| draws.unit()).sum::<f64>() - 6.0;
    (600_000.0 * normal.exp()) as u64
}

/// Pareto with a tail index of 1.1: single entries far beyond a partition.
fn heavy_tailed(draws: &mut Draws) -> u64 {
    (250_000.0 / (1.0 - draws.unit()).powf(1.0 / 1.1)) as u64
}

/// Entries by the first bits of their hash: a bucket so large that it always splits, so that each can be recomputed alone.
struct Dataset {
    tops: Vec<Vec<Item>>,
    next_id: usize,
}

const TOP_BITS: u32 = 8;

impl Dataset {
    fn new(entries: usize, sizes: fn(&mut Draws) -> u64, draws: &mut Draws) -> Self {
        let mut dataset = Dataset { tops: vec![Vec::new(); 1 << TOP_BITS], next_id: 0 };
        for _ in 0..entries {
            let item = dataset.item(draws.next(), sizes(draws));
            dataset.tops[top(item.hash)].push(item);
        }
        dataset.tops.iter_mut().for_each(|items| items.sort_by_key(|i| i.hash));
        dataset
    }
    /// Contents are told apart by `index`, which a changed entry gets anew.
    fn item(&mut self, hash: u64, bytes: u64) -> Item {
        self.next_id += 1;
        Item { hash, bytes, index: self.next_id }
    }
    fn cut(&self, top: usize) -> Partitioned {
        let items = &self.tops[top];
        let small = items.iter().filter(|i| i.bytes <= LIMITS.bytes / 8);
        assert!(!within(small, LIMITS), "a bucket of {TOP_BITS} bits must be one that splits");
        let mut out = Partitioned { order: Vec::new(), partition: Vec::new() };
        bucket(items, TOP_BITS, LIMITS, &mut out);
        out
    }
}

fn top(hash: u64) -> usize {
    (hash >> (64 - TOP_BITS)) as usize
}

/// Partitions by content.
fn contents(partitioned: &Partitioned) -> HashSet<&[usize]> {
    let mut rest = partitioned.order.as_slice();
    let parts = partitioned.partition.chunk_by(|a, b| a == b);
    parts.filter_map(|part| rest.split_off(..part.len())).collect()
}

fn check_edits(name: &str, sizes: fn(&mut Draws) -> u64) {
    let draws = &mut Draws(11);
    let mut dataset = Dataset::new(100_000, sizes, draws);
    let mut cuts: Vec<Partitioned> = (0..dataset.tops.len()).map(|top| dataset.cut(top)).collect();
    let mut histogram = [0; 8];
    for edit in 0..9000 {
        let hash = draws.next();
        let items = top(hash);
        let place = dataset.tops[items].partition_point(|i| i.hash < hash).min(dataset.tops[items].len() - 1);
        match edit % 3 {
            0 => {
                let item = dataset.item(hash, sizes(draws));
                let place = dataset.tops[items].partition_point(|i| i.hash < hash);
                dataset.tops[items].insert(place, item);
            }
            1 => drop(dataset.tops[items].remove(place)),
            _ => {
                let old = dataset.tops[items][place];
                dataset.tops[items][place] = dataset.item(old.hash, sizes(draws));
            }
        }
        let after = dataset.cut(items);
        let touched = contents(&after).difference(&contents(&cuts[items])).count();
        histogram[touched.min(7)] += 1;
        cuts[items] = after;
    }
    // The parts are what partitioning the whole gives.
    let mut whole = Partitioned { order: Vec::new(), partition: Vec::new() };
    bucket(&dataset.tops.concat(), 0, LIMITS, &mut whole);
    assert_eq!(whole.order, cuts.iter().flat_map(|c| c.order.clone()).collect::<Vec<_>>());
    assert_eq!(whole.partitions(), cuts.iter().map(Partitioned::partitions).sum::<u32>());
    println!("{name}: {} partitions; edits by partitions touched: {histogram:?}", whole.partitions());
    assert!(histogram[3..].iter().sum::<u32>() <= 9, "{name}: {histogram:?}");
    assert!(histogram[2] < 2250, "{name}: {histogram:?}");
}

#[test]
fn an_edit_touches_two_hash_ordered_partitions_at_most() {
    check_edits("uniform", uniform);
    check_edits("lognormal", lognormal);
    check_edits("heavy-tailed", heavy_tailed);
}

#[test]
fn an_edit_stays_local_by_key() {
    let limits = Partition { entries: 100, bytes: 1 << 40 };
    let cut = |keys: &[u64]| {
        let items: Vec<Item> =
            keys.iter().map(|key| Item { hash: Draws(*key).next(), bytes: 1, index: *key as usize }).collect();
        let mut out = Partitioned { order: Vec::new(), partition: Vec::new() };
        cut_by_hash(&items, limits, &mut out);
        out
    };
    let draws = &mut Draws(5);
    let mut keys: Vec<u64> = (0..4000).map(|_| draws.next() >> 20).collect();
    keys.sort();
    let mut before = cut(&keys);
    let mut histogram = [0; 8];
    for edit in 0..500 {
        let key = draws.next() >> 20;
        let place = keys.partition_point(|k| *k < key).min(keys.len() - 1);
        if edit % 2 == 0 {
            keys.insert(place, key);
        } else {
            keys.remove(place);
        }
        keys.sort();
        let after = cut(&keys);
        histogram[contents(&after).difference(&contents(&before)).count().min(7)] += 1;
        before = after;
    }
    println!("by key: {} partitions; edits by partitions touched: {histogram:?}", before.partitions());
    assert!(histogram[3..].iter().sum::<u32>() <= 5, "{histogram:?}");
}
