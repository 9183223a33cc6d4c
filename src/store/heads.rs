//! Heads: recipes, pipelines and snapshots, and the orders and manifests of snapshots. A table is published before the
//! head that refers to it.

use super::{Placed, Store, shard_row, unusable};
use crate::error::{Error, Kind, Result};
use crate::format::VERSION;
use crate::format::document::Document;
use crate::format::encoding::Encoding;
use crate::format::entry::Entry;
use crate::format::head::{ManifestHead, OrderHead, PipelineHead, RecipeHead, SnapshotHead};
use crate::format::name::{self, Name, PipelineName};
use crate::format::table::{self, Entries, OrderRow, ShardRow};
use crate::id::{Digest, OrderId, RecipeKey, SnapshotId};
use std::cmp::Reverse;

impl Placed for RecipeHead {
    fn is_at(&self, name: &Name, _bytes: &[u8]) -> bool {
        *name == Name::Recipe { recipe: self.recipe }
    }
}

impl Placed for PipelineHead {
    fn is_at(&self, name: &Name, bytes: &[u8]) -> bool {
        matches!(name, Name::Pipeline { pipeline, id, .. } if pipeline.as_str() == self.name && *id == Digest::of(bytes))
    }
}

impl Placed for SnapshotHead {
    fn is_at(&self, name: &Name, _bytes: &[u8]) -> bool {
        matches!(name, Name::Snapshot { pipeline, snapshot, .. }
            if pipeline.as_str() == self.pipeline && *snapshot == self.snapshot)
    }
}

impl Placed for OrderHead {
    fn is_at(&self, name: &Name, _bytes: &[u8]) -> bool {
        *name == Name::Order { recipe: self.recipe, snapshot: self.snapshot }
    }
}

impl Placed for ManifestHead {
    fn is_at(&self, name: &Name, _bytes: &[u8]) -> bool {
        *name == Name::Manifest { recipe: self.recipe, encoding: self.encoding, snapshot: self.snapshot }
    }
}

/// Recipes and what they mean.
impl Store {
    pub fn put_recipe(&self, head: &RecipeHead) -> Result<()> {
        self.put(&Name::Recipe { recipe: head.recipe }, head, |_| Ok(true)).map(drop)
    }

    pub fn recipe(&self, recipe: RecipeKey) -> Result<Option<RecipeHead>> {
        self.read(&Name::Recipe { recipe })
    }

    pub fn recipes(&self) -> Result<Vec<RecipeKey>> {
        let directories = self.storage.list_directories(&name::stages())?;
        Ok(directories.iter().filter_map(|d| d.parse().ok()).collect())
    }
}

/// Pipelines and snapshots: heads with sequence numbers. Two writers may take the same number at the same time: the
/// lower id counts as newer, for everyone.
impl Store {
    /// Appends a pipeline head unless the newest is equal.
    pub fn put_pipeline(&self, head: &PipelineHead) -> Result<()> {
        let pipeline: PipelineName = head.name.parse()?;
        let names = self.settled(|| self.pipeline_names(&pipeline))?;
        let id = Digest::of(&head.to_json());
        let mut seq = next(names.first());
        match self.newest::<PipelineHead>(&names) {
            Ok(Some(newest)) if newest == *head => return Ok(()),
            Ok(_) => {}
            // One that can't be read is replaced where its name says that it was this one, else a later one follows it.
            Err(error) if error.kind() == Kind::Corrupt => {
                if let Some(Name::Pipeline { seq: damaged, id: named, .. }) = names.first()
                    && *named == id
                {
                    seq = Ok(*damaged);
                }
            }
            Err(error) => return Err(error),
        }
        self.put(&Name::Pipeline { pipeline, seq: seq?, id }, head, |_| Ok(false)).map(drop)
    }

    pub fn pipeline(&self, name: &str) -> Result<Option<PipelineHead>> {
        self.newest(&self.pipeline_names(&name.parse()?)?)
    }

    pub fn pipelines(&self) -> Result<Vec<String>> {
        let mut names = self.storage.list_directories(&name::pipelines())?;
        names.retain(|name| name.parse::<PipelineName>().is_ok());
        Ok(names)
    }

    /// Publishes the entries table, then a head with the next sequence number. If the current head says the same nothing is
    /// written, and if it is of the same snapshot and bad it is replaced; if a head whose listing began later is there, a
    /// `Conflict`. `head.table` is set here.
    pub fn put_snapshot(&self, mut head: SnapshotHead, entries: &Entries) -> Result<SnapshotHead> {
        let pipeline: PipelineName = head.pipeline.parse()?;
        let names = self.settled(|| self.snapshot_names(&pipeline))?;
        let mut seq = next(names.first());
        for (index, name) in names.iter().take_while(|n| self::seq(n) == names.first().and_then(self::seq)).enumerate()
        {
            let found = match self.read::<SnapshotHead>(name) {
                Ok(None) => continue,
                Ok(found) => found,
                Err(error) if error.kind() == Kind::Corrupt => None,
                Err(error) => return Err(error),
            };
            let same_id = matches!(name, Name::Snapshot { snapshot, .. } if *snapshot == head.snapshot);
            let sound = match &found {
                Some(found) if same_id => self.says_of_its_entries(found, &head)?,
                found => found.is_some(),
            };
            match found {
                // The same but for when it was listed. The id alone leaves out by which reader.
                Some(found)
                    if index == 0
                        && sound
                        && (SnapshotHead { listed_ms: found.listed_ms, table: found.table, ..head.clone() })
                            == found =>
                {
                    return Ok(found);
                }
                _ if index == 0 && same_id && !sound => {
                    seq = self::seq(name).ok_or_else(|| Error::internal("a head without a number"))
                }
                Some(found) if found.listed_ms > head.listed_ms && !found.is_of_the_future(self.storage.now_ms()?) => {
                    return Err(Error::conflict(format!(
                        "a snapshot of {pipeline} whose listing began later is there ({}, by {} ms): run this command again",
                        found.snapshot.short(),
                        found.listed_ms.abs_diff(head.listed_ms)
                    )));
                }
                _ => {}
            }
        }
        head.table = self.put_table(entries.encode()?, entries.entries.len() as u64)?;
        // Another writer of the same snapshot: its head says the same, listed at another time.
        let name = Name::Snapshot { pipeline, seq: seq?, snapshot: head.snapshot };
        self.put(&name, &head, |found| self.says_of_its_entries(found, &head))
    }

    /// Whether a head of the same snapshot as `ours` says what follows from its entries, has its table, and was listed before now.
    fn says_of_its_entries(&self, found: &SnapshotHead, ours: &SnapshotHead) -> Result<bool> {
        let counts = |head: &SnapshotHead| (head.entries, head.partitions, head.rows, head.bytes);
        Ok(counts(found) == counts(ours)
            && self.table_is_sound(&found.table)?
            && !(found.listed_ms > ours.listed_ms && found.is_of_the_future(self.storage.now_ms()?)))
    }

    /// Highest sequence number, then lowest id.
    pub fn current_snapshot(&self, pipeline: &str) -> Result<Option<SnapshotHead>> {
        self.newest(&self.snapshot_names(&pipeline.parse()?)?)
    }

    /// The newest head that can be read: what one who lists afresh, and so replaces the current one, goes by.
    pub fn readable_snapshot(&self, pipeline: &str) -> Result<Option<SnapshotHead>> {
        let unreadable = |head: &Result<SnapshotHead>| head.as_ref().is_err_and(|error| error.kind() == Kind::Corrupt);
        self.snapshots(pipeline)?.map(|(_, head)| head).find(|head| !unreadable(head)).transpose()
    }

    /// All heads, newest first, each under its id and read when it is asked for, so that a damaged one is in nobody's way; a
    /// snapshot that became current again has several.
    pub fn snapshots(&self, pipeline: &str) -> Result<impl Iterator<Item = (SnapshotId, Result<SnapshotHead>)>> {
        let names = self.snapshot_names(&pipeline.parse()?)?;
        Ok(names.into_iter().filter_map(|name| match name {
            Name::Snapshot { snapshot, .. } => Some((snapshot, self.read(&name).transpose()?)),
            _ => None,
        }))
    }

    /// The table, verified; its rows must hash to the head's id (the caller checks with `plan::key::snapshot_id`).
    pub fn entries(&self, head: &SnapshotHead) -> Result<Entries> {
        self.entries_rows(head).map_err(|e| unusable(e, &Name::table(head.table.blob)))
    }

    pub(super) fn entries_rows(&self, head: &SnapshotHead) -> Result<Entries> {
        let entries = Entries::decode(&self.table(&head.table)?)?;
        count(entries.entries.len(), head.entries)?;
        Ok(entries)
    }

    /// The entries of the verified table, some at a time, for what need not hold them all.
    pub fn entries_stream(&self, head: &SnapshotHead) -> Result<impl Iterator<Item = Result<Vec<Entry>>> + use<>> {
        let name = Name::table(head.table.blob);
        let stream = self.table(&head.table).and_then(|table| Entries::stream(&table));
        let stream = stream.map_err(|e| unusable(e, &name))?;
        Ok(stream.map(move |some| some.map_err(|e| unusable(e, &name))))
    }

    /// Heads that `list` gives, once the newest isn't about to be removed.
    fn settled(&self, list: impl Fn() -> Result<Vec<Name>>) -> Result<Vec<Name>> {
        loop {
            let names = list()?;
            match names.first() {
                Some(newest) if self.await_clear(&newest.to_string())? => {}
                _ => return Ok(names),
            }
        }
    }

    fn pipeline_names(&self, pipeline: &PipelineName) -> Result<Vec<Name>> {
        self.numbered(&name::pipeline(pipeline), |name| matches!(name, Name::Pipeline { .. }))
    }

    fn snapshot_names(&self, pipeline: &PipelineName) -> Result<Vec<Name>> {
        self.numbered(&name::snapshots(pipeline), |name| matches!(name, Name::Snapshot { .. }))
    }

    /// Newest first: by falling sequence number, then by rising id, which is how names of one number sort.
    fn numbered(&self, prefix: &str, wanted: fn(&Name) -> bool) -> Result<Vec<Name>> {
        let objects = self.storage.list(prefix)?;
        let mut names: Vec<Name> = objects.iter().filter_map(|o| o.name.parse().ok()).filter(wanted).collect();
        names.sort_by_key(|name| Reverse(seq(name)));
        Ok(names)
    }

    fn newest<T: Placed>(&self, names: &[Name]) -> Result<Option<T>> {
        // One that was removed since it was listed gives way to the next.
        names.iter().find_map(|name| self.read(name).transpose()).transpose()
    }
}

/// Orders and manifests of a snapshot.
impl Store {
    /// Publishes the order table, then its head. One that is there with another order id is a `Conflict`: some step gave other
    /// counts for the same input.
    pub fn put_order(
        &self,
        recipe: RecipeKey,
        snapshot: SnapshotId,
        order: OrderId,
        rows: &[OrderRow],
    ) -> Result<OrderHead> {
        let table = self.put_table(table::encode_order(rows)?, rows.len() as u64)?;
        let head =
            OrderHead { version: VERSION, recipe, snapshot, order, table, rows: sum(rows.iter().map(|row| row.rows)) };
        let name = Name::Order { recipe, snapshot };
        self.put(&name, &head, |found| match sound(self.order_rows(found))? {
            None => Ok(false),
            // Of the same rows: a head that says something else of them is untrue.
            Some(same) if same == rows => Ok((found.order, found.rows) == (head.order, head.rows)),
            Some(_) => Err(Error::conflict(format!(
                "{name} is the order {} of {} rows, but now {} of {} rows was found for the same input: a step of this \
                 stage gives other row counts from one run to the next, so it can't be deterministic; see `forebay check`",
                found.order.short(),
                found.rows,
                order.short(),
                head.rows
            ))),
        })
    }

    /// The head and its table, whose rows, with the snapshot's entries, must hash to the head's order (the caller checks with
    /// `plan::key::order_id`).
    pub fn order(&self, recipe: RecipeKey, snapshot: SnapshotId) -> Result<Option<(OrderHead, Vec<OrderRow>)>> {
        let Some(head) = self.read::<OrderHead>(&Name::Order { recipe, snapshot })? else { return Ok(None) };
        let rows = self.order_rows(&head).map_err(|e| unusable(e, &Name::table(head.table.blob)))?;
        Ok(Some((head, rows)))
    }

    pub(super) fn order_rows(&self, head: &OrderHead) -> Result<Vec<OrderRow>> {
        let rows = table::decode_order(&self.table(&head.table)?)?;
        count(rows.len(), head.table.rows)?;
        Ok(rows)
    }

    /// Publishes the shard table and then the manifest. One that is there stays if its table is sound and it agrees with the
    /// records in force wherever it differs from `rows`.
    pub fn put_manifest(
        &self,
        recipe: RecipeKey,
        encoding: Encoding,
        snapshot: SnapshotId,
        rows: &[ShardRow],
    ) -> Result<ManifestHead> {
        let table = self.put_table(table::encode_shards(rows)?, rows.len() as u64)?;
        let [sum_rows, bytes, failed_rows] = sums(rows);
        let head =
            ManifestHead { version: VERSION, recipe, encoding, snapshot, table, rows: sum_rows, bytes, failed_rows };
        self.put(&Name::Manifest { recipe, encoding, snapshot }, &head, |found| {
            let Some(table) = sound(self.shard_rows(found))? else { return Ok(false) };
            if table.len() != rows.len() || sums(&table) != [found.rows, found.bytes, found.failed_rows] {
                return Ok(false);
            }
            for (theirs, ours) in table.iter().zip(rows) {
                if theirs != ours && !self.is_in_force(recipe, encoding, theirs)? {
                    return Ok(false);
                }
            }
            Ok(true)
        })
    }

    pub fn manifest(
        &self,
        recipe: RecipeKey,
        encoding: Encoding,
        snapshot: SnapshotId,
    ) -> Result<Option<(ManifestHead, Vec<ShardRow>)>> {
        let name = Name::Manifest { recipe, encoding, snapshot };
        let Some(head) = self.read::<ManifestHead>(&name)? else { return Ok(None) };
        let rows = self.shard_rows(&head).map_err(|e| unusable(e, &Name::table(head.table.blob)))?;
        Ok(Some((head, rows)))
    }

    /// Snapshots with a manifest of a stage, by the names alone.
    pub fn whole_snapshots(&self, recipe: RecipeKey, encoding: Encoding) -> Result<Vec<SnapshotId>> {
        let objects = self.storage.list(&name::manifests(recipe, encoding))?;
        let snapshot = |name: Name| match name {
            Name::Manifest { snapshot, .. } => Some(snapshot),
            _ => None,
        };
        Ok(objects.iter().filter_map(|o| o.name.parse().ok().and_then(snapshot)).collect())
    }

    pub(super) fn shard_rows(&self, head: &ManifestHead) -> Result<Vec<ShardRow>> {
        let rows = table::decode_shards(&self.table(&head.table)?)?;
        count(rows.len(), head.table.rows)?;
        Ok(rows)
    }

    /// Whether a row of a manifest says what the shard's record says.
    pub(super) fn is_in_force(&self, recipe: RecipeKey, encoding: Encoding, row: &ShardRow) -> Result<bool> {
        match self.record(recipe, encoding, row.shard) {
            Ok(record) => Ok(record.is_some_and(|record| shard_row(row.partition, &record) == *row)),
            Err(error) if error.kind() == Kind::Corrupt => Ok(false),
            Err(error) => Err(error),
        }
    }
}

fn seq(name: &Name) -> Option<u32> {
    match name {
        Name::Pipeline { seq, .. } | Name::Snapshot { seq, .. } => Some(*seq),
        _ => None,
    }
}

fn next(newest: Option<&Name>) -> Result<u32> {
    let last = newest.and_then(seq).unwrap_or(0);
    last.checked_add(1).ok_or_else(|| {
        Error::invalid(format!("the sequence number {last} is the last one: no head can follow; use another name"))
    })
}

/// Rows, bytes and failed rows of a shard table.
pub(super) fn sums(rows: &[ShardRow]) -> [u64; 3] {
    [|row: &ShardRow| row.rows, |row: &ShardRow| row.bytes, |row: &ShardRow| row.failed_rows]
        .map(|value| sum(rows.iter().map(value)))
}

/// What was read; `None` where it is damaged or gone.
pub(super) fn sound<T>(read: Result<T>) -> Result<Option<T>> {
    match read {
        Ok(found) => Ok(Some(found)),
        Err(error) if matches!(error.kind(), Kind::Corrupt | Kind::NotFound) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Saturating: a sum that no disk can hold comes from untrue rows, which the comparison with the records shows.
pub(super) fn sum(values: impl Iterator<Item = u64>) -> u64 {
    values.fold(0, u64::saturating_add)
}

fn count(found: usize, expected: u64) -> Result<()> {
    if found as u64 == expected {
        return Ok(());
    }
    Err(Error::corrupt(format!("the table has {found} rows; its head expects {expected}")))
}
