//! What two snapshots differ in: which entries were added, changed and removed, and which partitions stay as they are.
//! Entries come as streams that can be begun again, so that memory is bounded however many there are.

use crate::error::Result;
use crate::format::entry::Entry;
use crate::id::{Digest, RecipeKey, ShardKey};
use crate::plan::key;
use std::collections::{BTreeSet, HashMap};

/// Keys of a kind that are named; all are counted.
pub const NAMED: usize = 1000;
/// Entries of the older snapshot that are held at a time, as two digests of 16 bytes each.
const HELD: u64 = 1 << 20;

/// Entries of a snapshot in partition order, some at a time.
pub type Stream = Box<dyn Iterator<Item = Result<Vec<Entry>>>>;

#[derive(Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// Entries that both have with the same identity, wherever they are by now.
    pub same: u64,
    pub added: Changed,
    pub changed: Changed,
    pub removed: Changed,
}

/// Entries of one kind of change.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Changed {
    pub entries: u64,
    /// As listed: those of the newer snapshot unless removed.
    pub bytes: u64,
    /// The first `NAMED`, in the order of keys.
    pub keys: BTreeSet<String>,
}

impl Changed {
    fn note(&mut self, entry: Entry) {
        self.entries += 1;
        self.bytes = self.bytes.saturating_add(entry.bytes);
        self.keys.insert(entry.key);
        if self.keys.len() > NAMED {
            self.keys.pop_last();
        }
    }
}

/// Compares entries. `entries`: how many the older snapshot has; the streams are begun anew for every `HELD` of them.
pub fn changes(
    entries: u64,
    before: impl Fn() -> Result<Stream>,
    after: impl Fn() -> Result<Stream>,
) -> Result<Changes> {
    changes_holding(entries, HELD, before, after)
}

fn changes_holding(
    entries: u64,
    held: u64,
    before: impl Fn() -> Result<Stream>,
    after: impl Fn() -> Result<Stream>,
) -> Result<Changes> {
    let mut changes = Changes::default();
    let slices = entries.div_ceil(held).max(1) as u128;
    for slice in 0..slices {
        let mut held: HashMap<u128, u128> = HashMap::new();
        each(before()?, |entry| {
            let key = short(entry.key.as_bytes());
            if key % slices == slice {
                held.insert(key, meaning(&entry));
            }
        })?;
        each(after()?, |entry| {
            let key = short(entry.key.as_bytes());
            match held.remove(&key) {
                _ if key % slices != slice => {}
                None => changes.added.note(entry),
                Some(before) if before == meaning(&entry) => changes.same += 1,
                Some(_) => changes.changed.note(entry),
            }
        })?;
        if !held.is_empty() {
            each(before()?, |entry| {
                if held.contains_key(&short(entry.key.as_bytes())) {
                    changes.removed.note(entry);
                }
            })?;
        }
    }
    Ok(changes)
}

fn each(entries: Stream, mut body: impl FnMut(Entry)) -> Result<()> {
    for some in entries {
        some?.into_iter().for_each(&mut body);
    }
    Ok(())
}

fn meaning(entry: &Entry) -> u128 {
    let (identity, range) = entry.meaning();
    short(format!("{identity} {range:?}").as_bytes())
}

fn short(bytes: &[u8]) -> u128 {
    let mut half = [0; 16];
    half.copy_from_slice(&Digest::of(bytes).as_bytes()[..16]);
    u128::from_be_bytes(half)
}

/// Calls `body` with every partition's number and entries. Memory holds one partition.
pub fn each_partition(entries: Stream, mut body: impl FnMut(usize, &[Entry]) -> Result<()>) -> Result<()> {
    let (mut partition, mut number) = (Vec::<Entry>::new(), 0);
    for some in entries {
        for entry in some? {
            if partition.first().is_some_and(|first| first.partition != entry.partition) {
                body(number, &partition)?;
                partition.clear();
                number += 1;
            }
            partition.push(entry);
        }
    }
    if partition.is_empty() { Ok(()) } else { body(number, &partition) }
}

/// Which partitions two snapshots share. Shards stay, whatever their stage, where partitions do.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Partitions {
    /// By partition of the newer snapshot: the one of the older that has the same entries.
    pub before: Vec<Option<usize>>,
    /// Partitions of the older snapshot that the newer doesn't have, ascending.
    pub gone: Vec<usize>,
}

impl Partitions {
    pub fn new(before: Stream, after: Stream) -> Result<Partitions> {
        // Any recipe tells partitions apart.
        let recipe = RecipeKey::from_bytes([0; 32]);
        let mut held: HashMap<ShardKey, usize> = HashMap::new();
        each_partition(before, |number, entries| {
            held.insert(key::shard_key(recipe, entries), number);
            Ok(())
        })?;
        let mut partitions = Partitions::default();
        each_partition(after, |_, entries| {
            partitions.before.push(held.remove(&key::shard_key(recipe, entries)));
            Ok(())
        })?;
        partitions.gone = held.into_values().collect();
        partitions.gone.sort_unstable();
        Ok(partitions)
    }

    pub fn stay(&self) -> usize {
        self.before.iter().flatten().count()
    }

    pub fn new_ones(&self) -> usize {
        self.before.len() - self.stay()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Error;
    use crate::format::entry::{Identity, Range};

    /// `a1 b2 | c3`: keys with contents, in partitions.
    fn entries(text: &str) -> Vec<Entry> {
        let mut entries = Vec::new();
        for (partition, words) in (0..).zip(text.split('|')) {
            for word in words.split_whitespace() {
                let (key, content) = word.split_at(1);
                let identity = Identity::Content(Digest::of(content.as_bytes()));
                entries.push(Entry {
                    key: key.to_owned(),
                    file: None,
                    identity,
                    range: None,
                    bytes: content.parse().unwrap(),
                    rows: 1,
                    partition,
                });
            }
        }
        entries
    }

    fn stream(entries: &[Entry], some: usize) -> Stream {
        Box::new(entries.chunks(some).map(|chunk| Ok(chunk.to_vec())).collect::<Vec<_>>().into_iter())
    }

    fn keys(changed: &Changed) -> String {
        changed.keys.iter().map(String::as_str).collect()
    }

    #[test]
    fn every_entry_is_of_one_kind_however_few_are_held() {
        let (before, after) = (entries("a1 b2 c3 | d4 e5 f6"), entries("g7 a1 | c9 d4 | h8 f6"));
        for held in 1..=7 {
            for some in [1, 2, 100] {
                let count = before.len() as u64;
                let found =
                    changes_holding(count, held, || Ok(stream(&before, some)), || Ok(stream(&after, some))).unwrap();
                assert_eq!((found.same, keys(&found.added), found.added.bytes), (3, "gh".to_owned(), 15));
                assert_eq!((keys(&found.changed), found.changed.bytes), ("c".to_owned(), 9));
                assert_eq!((keys(&found.removed), found.removed.entries, found.removed.bytes), ("be".to_owned(), 2, 7));
            }
        }
        let nothing = || Ok(stream(&[], 1));
        assert_eq!(changes(0, nothing, nothing).unwrap(), Changes::default());
        assert_eq!(changes(0, nothing, || Ok(stream(&after, 2))).unwrap().added.entries, 6);
        assert_eq!(changes(6, || Ok(stream(&before, 2)), nothing).unwrap().removed.entries, 6);
    }

    #[test]
    fn the_place_of_a_range_matters_only_where_its_bytes_have_no_digest() {
        let change = |identity: Identity| {
            let at = |start| {
                let range = Some(Range::Bytes { start, end: start + 1 });
                vec![Entry { identity: identity.clone(), range, ..entries("a1").remove(0) }]
            };
            let (before, after) = (at(0), at(5));
            changes(1, || Ok(stream(&before, 1)), || Ok(stream(&after, 1))).unwrap().changed.entries
        };
        assert_eq!(change(Identity::Content(Digest::of(b"x"))), 0);
        assert_eq!(change(Identity::Etag { etag: "\"x\"".into(), bytes: 1 }), 1);
    }

    #[test]
    fn no_more_keys_are_named_than_can_be_held() {
        let many: Vec<Entry> = (0..3 * NAMED)
            .rev()
            .map(|number| Entry { key: format!("{number:05}"), ..entries("a1").remove(0) })
            .collect();
        let found = changes(0, || Ok(stream(&[], 1)), || Ok(stream(&many, 100))).unwrap();
        assert_eq!((found.added.entries, found.added.keys.len()), (3 * NAMED as u64, NAMED));
        assert_eq!(found.added.keys.last().unwrap(), &format!("{:05}", NAMED - 1));
    }

    #[test]
    fn partitions_stay_wherever_they_move() {
        let (before, after) = (entries("a1 b2 | c3 | d4 e5"), entries("c3 | a1 b2 | d4 | e5"));
        for some in [1, 2, 100] {
            let found = Partitions::new(stream(&before, some), stream(&after, some)).unwrap();
            assert_eq!(found, Partitions { before: vec![Some(1), Some(0), None, None], gone: vec![2] });
            assert_eq!((found.stay(), found.new_ones()), (2, 2));
        }
    }

    #[test]
    fn an_error_of_a_stream_ends_all() {
        let bad = || -> Result<Stream> { Ok(Box::new(std::iter::once(Err(Error::corrupt("bad"))))) };
        let good = entries("a1");
        assert_eq!(changes(1, bad, || Ok(stream(&good, 1))).unwrap_err().message(), "bad");
        assert_eq!(changes(1, || Ok(stream(&good, 1)), bad).unwrap_err().message(), "bad");
        assert_eq!(Partitions::new(bad().unwrap(), stream(&good, 1)).unwrap_err().message(), "bad");
    }
}
