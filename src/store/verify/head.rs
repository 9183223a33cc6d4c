//! Verifying heads: each belongs to its name and has its table, and what it says follows from that and from what else is
//! there: a snapshot's counts from its entries, an order's id from entries and rows, a manifest's rows from the records.

use super::{Finding, Outcome, Seen, Verifier};
use crate::error::{Kind, Result};
use crate::format::encoding::{Container, Encoding};
use crate::format::head::{ManifestHead, OrderHead, PipelineHead, RecipeHead, SnapshotHead, TableRef};
use crate::format::name::Name;
use crate::format::root::{Candidates, Intent, Pin};
use crate::format::table::{Entries, OrderRow, ShardRow};
use crate::id::{Digest, RecipeKey};
use crate::plan::key::order_id;
use crate::plan::snapshot::Snapshot;
use crate::store::heads::{sound, sum, sums};

impl Verifier<'_> {
    pub(super) fn head(&self, name: &Name, seen: &Seen) -> Result<Outcome> {
        let mut outcome = Outcome::default();
        match name {
            Name::Recipe { .. } => drop(self.read::<RecipeHead>(name, &mut outcome)?),
            Name::Pipeline { .. } => drop(self.read::<PipelineHead>(name, &mut outcome)?),
            Name::Snapshot { .. } => {
                if let Some(head) = self.read::<SnapshotHead>(name, &mut outcome)? {
                    let entries = self.store.entries_rows(&head);
                    if let Some(entries) = self.table(name, &head.table, entries, &mut outcome)? {
                        self.snapshot(name, head, entries, &mut outcome)?;
                    }
                }
            }
            Name::Order { .. } => {
                if let Some(head) = self.read::<OrderHead>(name, &mut outcome)? {
                    let order = self.store.order_rows(&head);
                    if let Some(order) = self.table(name, &head.table, order, &mut outcome)? {
                        self.order(name, &head, &order, seen, &mut outcome)?;
                    }
                }
            }
            Name::Manifest { recipe, encoding, .. } => {
                if let Some(head) = self.read::<ManifestHead>(name, &mut outcome)? {
                    let table = self.store.shard_rows(&head);
                    if let Some(table) = self.table(name, &head.table, table, &mut outcome)? {
                        self.manifest(name, (*recipe, *encoding), &head, &table, seen, &mut outcome)?;
                    }
                }
            }
            Name::Pin { .. } => drop(self.read::<Pin>(name, &mut outcome)?),
            Name::Intent { .. } => drop(self.read::<Intent>(name, &mut outcome)?),
            // Its table may be gone from one moment to the next, with the list itself.
            Name::Candidates { .. } => {
                let list = self.read::<Candidates>(name, &mut outcome)?;
                outcome.refers_to.extend(list.map(|list| (list.table.blob, Container::Parquet)));
            }
            // Looked at elsewhere.
            Name::Blob { .. } | Name::Shard { .. } | Name::Report { .. } => {}
        }
        Ok(outcome)
    }

    /// What a head's table holds, or what is wrong with it; without its table a head is of no use and removed.
    fn table<T>(&self, name: &Name, table: &TableRef, read: Result<T>, outcome: &mut Outcome) -> Result<Option<T>> {
        outcome.refers_to.push((table.blob, Container::Parquet));
        let error = match read {
            Ok(found) => return Ok(Some(found)),
            Err(error) => error,
        };
        let object = match error.kind() {
            Kind::NotFound => name.to_string(),
            // The blob is what its name says: the head says something else of it.
            Kind::Corrupt if self.is_good(table.blob)? => name.to_string(),
            Kind::Invalid if error.is_refused() => return Err(error),
            Kind::Corrupt | Kind::Invalid => Name::table(table.blob).to_string(),
            _ => return Err(error),
        };
        let expected = format!("a table of {} bytes and {} rows, named by {name}", table.bytes, table.rows);
        let repaired = if error.kind() != Kind::Invalid { self.remove(name)? } else { None };
        outcome.findings.push(Finding { object, expected, found: error.chain(), repaired });
        Ok(None)
    }

    /// Whether a table's bytes have the digest that is its name.
    fn is_good(&self, blob: Digest) -> Result<bool> {
        let storage = &self.store.storage;
        let name = Name::table(blob).to_string();
        let Some(bytes) = sound(storage.bytes(&name))?.flatten() else { return Ok(false) };
        Ok(sound(storage.map(&name, bytes))?.is_some_and(|found| Digest::of(&found) == blob))
    }

    /// A head that says what isn't so.
    fn untrue(&self, name: &Name, expected: String, found: String, outcome: &mut Outcome) -> Result<()> {
        let repaired = self.remove(name)?;
        outcome.findings.push(Finding { object: name.to_string(), expected, found, repaired });
        Ok(())
    }

    /// Id and counts of a snapshot follow from its entries, and it was listed before now.
    fn snapshot(&self, name: &Name, head: SnapshotHead, entries: Entries, outcome: &mut Outcome) -> Result<()> {
        let snapshot = match Snapshot::of(entries) {
            Ok(snapshot) => snapshot,
            Err(error) => return self.untrue(name, "entries in order".to_owned(), error.chain(), outcome),
        };
        if snapshot.id != head.snapshot {
            let expected = format!("a table of entries whose id is {}", head.snapshot);
            return self.untrue(name, expected, format!("one whose id is {}", snapshot.id), outcome);
        }
        let said =
            |partitions: u64, rows: u64, bytes: u64| format!("{partitions} partitions, {rows} rows, {bytes} bytes");
        let expected = said(snapshot.partitions() as u64, snapshot.rows(), snapshot.bytes());
        let found = said(head.partitions, head.rows, head.bytes);
        if expected != found {
            return self.untrue(name, format!("what its entries add up to: {expected}"), found, outcome);
        }
        // Where nothing may be written the store's clock can't be read.
        if self.store.storage.now_ms().is_ok_and(|now| head.is_of_the_future(now)) {
            let found = format!("listed_ms: {}", head.listed_ms);
            return self.untrue(name, "a listing that began before now".to_owned(), found, outcome);
        }
        outcome.snapshot = Some(head);
        Ok(())
    }

    /// An order's rows add up, and with the snapshot's entries, where these are there, hash to its id.
    fn order(
        &self,
        name: &Name,
        head: &OrderHead,
        rows: &[OrderRow],
        seen: &Seen,
        outcome: &mut Outcome,
    ) -> Result<()> {
        let total = sum(rows.iter().map(|row| row.rows));
        if total != head.rows {
            let expected = format!("what its table adds up to: {total} rows");
            return self.untrue(name, expected, format!("{} rows", head.rows), outcome);
        }
        let Some(snapshot) = seen.snapshots.get(&head.snapshot) else { return Ok(()) };
        let Some(entries) = sound(self.store.entries_rows(snapshot))? else { return Ok(()) };
        let order = order_id(&entries.entries, rows);
        if order == head.order {
            return Ok(());
        }
        self.untrue(name, format!("the order {order} of its table"), format!("the order {}", head.order), outcome)
    }

    /// A manifest's rows are what the records say. Where a record says something else of the same blobs, one of the two is
    /// untrue, and as it can't be told which, neither is kept.
    fn manifest(
        &self,
        name: &Name,
        (recipe, encoding): (RecipeKey, Encoding),
        head: &ManifestHead,
        table: &[ShardRow],
        seen: &Seen,
        outcome: &mut Outcome,
    ) -> Result<()> {
        let mut stale = Vec::new();
        for row in table {
            let recorded = seen.rows.get(&(recipe, encoding, row.shard));
            let recorded = recorded.map(|found| ShardRow { partition: row.partition, ..found.clone() });
            // Records published or removed since they were listed count as they are now.
            let in_force = || match self.store.is_in_force(recipe, encoding, row) {
                Err(error) if error.kind() == Kind::Invalid && !error.is_refused() => Ok(true),
                result => result,
            };
            if recorded.as_ref() == Some(row) || in_force()? {
                continue;
            }
            stale.push(row);
            if let Some(recorded) = recorded.filter(|recorded| recorded.blobs == row.blobs) {
                let record = Name::Shard { recipe, encoding, shard: row.shard };
                let expected =
                    format!("what a manifest says of the same blobs: {}", numbers(&sums(std::slice::from_ref(row))));
                self.untrue(&record, expected, numbers(&sums(&[recorded])), outcome)?;
            }
        }
        let (said, sums) = ([head.rows, head.bytes, head.failed_rows], sums(table));
        let (expected, found) = match stale.first() {
            Some(first) => (
                format!("of each of its {} shards a record that says the same", table.len()),
                format!(
                    "{} of them without, the first partition {}, {}",
                    stale.len(),
                    first.partition,
                    Name::Shard { recipe, encoding, shard: first.shard }
                ),
            ),
            None if sums != said => (format!("the sums of its table: {}", numbers(&sums)), numbers(&said)),
            None => return Ok(()),
        };
        self.untrue(name, expected, found, outcome)
    }
}

fn numbers([rows, bytes, failed]: &[u64; 3]) -> String {
    format!("{rows} rows, {bytes} bytes, {failed} failed rows")
}
