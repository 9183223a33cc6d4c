//! Verifying a store against itself: every document belongs to its name, every blob has the digest that is its name and,
//! chunk by chunk, those of its record, and what refers to something finds it. Repairing reports bad blobs, so that the
//! next writer replaces them, and removes only what was proved bad.
//!
//! Others may publish and delete meanwhile: what was listed and is gone is no finding, and what seems to be missing is
//! looked for once more before it is one.

mod part;

use super::blobs::part_name;
use super::{Placed, Store, shard_row};
use crate::error::{Error, Kind, Result};
use crate::format::VERSION;
use crate::format::encoding::{Container, Encoding};
use crate::format::head::{ManifestHead, OrderHead, PipelineHead, RecipeHead, Report, SnapshotHead, TableRef};
use crate::format::name::{self, Name};
use crate::format::record::{Part, Record};
use crate::format::table::{Entries, ShardRow};
use crate::id::{Digest, RecipeKey, ShardKey, SnapshotId};
use crate::plan::key::snapshot_id;
use part::State;
use rayon::prelude::*;
use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicU64, Ordering};

pub struct Options<'a> {
    /// The share of the parts whose bytes are read, from 0 to 1; of the others the lengths are checked. Documents, tables
    /// and reported parts are always read.
    pub share: f64,
    /// Chooses which parts a share below 1 means.
    pub seed: u64,
    pub threads: usize,
    pub repair: bool,
    /// Called after each record with (records done, records in all).
    pub progress: &'a (dyn Fn(u64, u64) + Sync),
}

/// Something that is not as it should be.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Finding {
    /// The object that is bad, by name.
    pub object: String,
    pub expected: String,
    pub found: String,
    /// What was done about it.
    pub repaired: Option<&'static str>,
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Verified {
    /// By object.
    pub findings: Vec<Finding>,
    pub heads: u64,
    pub records: u64,
    /// Parts whose bytes were read, and how many bytes.
    pub parts_read: u64,
    pub bytes_read: u64,
    /// Blobs that nothing refers to, such as interrupted writers leave. No finding.
    pub orphans: u64,
    pub orphan_bytes: u64,
    /// Files whose names are no object's. No finding.
    pub strangers: u64,
}

type Shard = (RecipeKey, Encoding, ShardKey);

struct Verifier<'a> {
    store: &'a Store,
    options: &'a Options<'a>,
    /// Blobs with a report.
    reported: HashSet<Digest>,
}

/// What a document turned out to be.
#[derive(Default)]
struct Outcome {
    findings: Vec<Finding>,
    /// Blobs that it refers to, whether they are there or not.
    refers_to: Vec<(Digest, Container)>,
    /// Of these, the ones whose bytes were read and are good.
    good: Vec<Digest>,
    /// A record in force.
    row: Option<(Shard, ShardRow)>,
    bytes_read: u64,
    parts_read: u64,
}

/// Errors: what prevents verifying, such as a directory that can't be listed. What is wrong with the store is a finding.
pub fn verify(store: &Store, options: &Options) -> Result<Verified> {
    let mut verified = Verified::default();
    let mut orphans = HashMap::new();
    let (mut heads, mut records, mut reports) = (Vec::new(), Vec::new(), Vec::new());
    for object in store.storage.list(name::ROOT)? {
        match object.name.parse() {
            Ok(Name::Blob { digest, container }) => drop(orphans.insert((digest, container), object.bytes)),
            Ok(name @ Name::Shard { .. }) => records.push(name),
            Ok(Name::Report { blob }) => reports.push(blob),
            Ok(name) => heads.push(name),
            Err(_) => verified.strangers += 1,
        }
    }
    let verifier = Verifier { store, options, reported: reports.iter().copied().collect() };
    let pool = rayon::ThreadPoolBuilder::new()
        .num_threads(options.threads.max(1))
        .build()
        .map_err(|e| Error::unavailable("cannot start threads: lower their number").caused_by(e))?;
    let (done, total) = (AtomicU64::new(0), records.len() as u64);
    let examined = pool.install(|| {
        let record = |name: &Name| {
            let outcome = verifier.record(name);
            (options.progress)(done.fetch_add(1, Ordering::Relaxed) + 1, total);
            outcome
        };
        records.par_iter().map(record).collect::<Result<Vec<Outcome>>>()
    })?;
    (verified.heads, verified.records) = (heads.len() as u64, total);

    let mut good = HashSet::new();
    let mut rows = HashMap::new();
    let mut settle = |outcome: Outcome, rows: &mut HashMap<Shard, ShardRow>| {
        for blob in &outcome.refers_to {
            orphans.remove(blob);
        }
        verified.findings.extend(outcome.findings);
        verified.bytes_read += outcome.bytes_read;
        verified.parts_read += outcome.parts_read;
        good.extend(outcome.good);
        rows.extend(outcome.row);
    };
    examined.into_iter().for_each(|outcome| settle(outcome, &mut rows));
    for name in &heads {
        let outcome = verifier.head(name, &rows)?;
        settle(outcome, &mut rows);
    }
    verified.orphans = orphans.len() as u64;
    verified.orphan_bytes = orphans.values().sum();
    for blob in reports {
        verified.findings.extend(verifier.report(blob, good.contains(&blob))?);
    }
    verified.findings.sort();
    Ok(verified)
}

impl Options<'_> {
    fn chooses(&self, blob: Digest) -> bool {
        let mut hasher = blake3::Hasher::new();
        hasher.update(&self.seed.to_le_bytes()).update(blob.as_bytes());
        let mut first = [0; 4];
        hasher.finalize_xof().fill(&mut first);
        f64::from(u32::from_le_bytes(first)) < self.share * 2f64.powi(32)
    }
}

impl Verifier<'_> {
    /// A sound document, or why it isn't one. One that is gone since it was listed is neither.
    fn read<T: Placed>(&self, name: &Name, outcome: &mut Outcome) -> Result<Option<T>> {
        let error = match self.store.read::<T>(name) {
            Ok(document) => return Ok(document),
            Err(error) => error,
        };
        let repaired = match error.kind() {
            Kind::Corrupt => self.remove(name)?,
            // Of a newer version: not ours to judge.
            Kind::Invalid => None,
            _ => return Err(error),
        };
        outcome.findings.push(Finding {
            object: name.to_string(),
            expected: format!("a {} that belongs there", T::WHAT),
            found: error.chain(),
            repaired,
        });
        Ok(None)
    }

    fn remove(&self, name: &Name) -> Result<Option<&'static str>> {
        if !self.options.repair {
            return Ok(None);
        }
        self.store.storage.delete(&name.to_string())?;
        Ok(Some("removed"))
    }

    /// A record and its parts.
    fn record(&self, name: &Name) -> Result<Outcome> {
        let mut outcome = Outcome::default();
        let Some(record) = self.read::<Record>(name, &mut outcome)? else { return Ok(outcome) };
        let mut in_force = true;
        for part in &record.parts {
            in_force &= self.part(name, &record, part, &mut outcome)?;
        }
        if in_force {
            let shard = (record.recipe, record.encoding, record.shard);
            outcome.row = Some((shard, shard_row(0, &record)));
        }
        Ok(outcome)
    }

    /// False where the record was removed, as it is itself proved bad.
    fn part(&self, name: &Name, record: &Record, part: &Part, outcome: &mut Outcome) -> Result<bool> {
        let container = record.encoding.container;
        let object = part_name(part, container);
        outcome.refers_to.push((part.blob, container));
        let read = self.options.chooses(part.blob) || self.reported.contains(&part.blob);
        let state = State::of(self.store, &object, part, read)?;
        if read && !matches!(state, State::Missing | State::Length(_)) {
            outcome.parts_read += 1;
            outcome.bytes_read += part.bytes;
        }
        let (object, expected, found) = match state {
            State::Good => {
                if read {
                    outcome.good.push(part.blob);
                }
                return Ok(true);
            }
            // The record may have been replaced or removed since it was read.
            State::Missing | State::Spans(_) if self.store.read::<Record>(name)?.as_ref() != Some(record) => {
                return Ok(true);
            }
            State::Missing => (name.to_string(), format!("its part {object}"), "no such blob".to_owned()),
            State::Spans(spans) => {
                outcome.good.push(part.blob);
                let expected = format!("the digests of the chunks of {object}, which is good");
                (name.to_string(), expected, format!("others: {spans}"))
            }
            State::Length(bytes) => (object, format!("{} bytes", part.bytes), format!("{bytes} bytes")),
            State::Digest { found, spans } => {
                (object, format!("bytes whose digest is {}", part.blob), format!("{found}; not as recorded: {spans}"))
            }
            State::Unreadable(error) => (object, format!("{} readable bytes", part.bytes), error.chain()),
        };
        let record_is_bad = object == name.to_string();
        let repaired = match (self.options.repair, record_is_bad) {
            (false, _) => None,
            (true, true) => self.remove(name)?,
            (true, false) => {
                let report =
                    Report { version: VERSION, blob: part.blob, record: name.to_string(), found: found.clone() };
                self.store.report(&report)?;
                Some("reported: the next materialize replaces it")
            }
        };
        outcome.findings.push(Finding { object, expected, found, repaired });
        Ok(!(record_is_bad && repaired.is_some()))
    }

    /// A head and its table; of a manifest also that its rows say what the records say.
    fn head(&self, name: &Name, rows: &HashMap<Shard, ShardRow>) -> Result<Outcome> {
        let mut outcome = Outcome::default();
        match name {
            Name::Recipe { .. } => drop(self.read::<RecipeHead>(name, &mut outcome)?),
            Name::Pipeline { .. } => drop(self.read::<PipelineHead>(name, &mut outcome)?),
            Name::Snapshot { .. } => {
                if let Some(head) = self.read::<SnapshotHead>(name, &mut outcome)? {
                    // Kept: the next `snapshot` publishes the table again.
                    let entries = self.store.entries(&head);
                    if let Some(entries) = self.table(name, &head.table, entries, false, &mut outcome)? {
                        self.snapshot(name, head.snapshot, &entries, &mut outcome)?;
                    }
                }
            }
            Name::Order { recipe, snapshot } => {
                if let Some(head) = self.read::<OrderHead>(name, &mut outcome)? {
                    let order = self.store.order(*recipe, *snapshot);
                    self.table(name, &head.table, order, true, &mut outcome)?;
                }
            }
            Name::Manifest { recipe, encoding, .. } => {
                if let Some(head) = self.read::<ManifestHead>(name, &mut outcome)? {
                    let table = self.store.shard_rows(&head);
                    if let Some(table) = self.table(name, &head.table, table, true, &mut outcome)? {
                        self.manifest(name, (*recipe, *encoding), &head, &table, rows, &mut outcome)?;
                    }
                }
            }
            // Looked at elsewhere.
            Name::Blob { .. } | Name::Shard { .. } | Name::Report { .. } => {}
        }
        Ok(outcome)
    }

    /// What a head's table holds, or what is wrong with it.
    fn table<T>(
        &self,
        name: &Name,
        table: &TableRef,
        read: Result<T>,
        derived: bool,
        outcome: &mut Outcome,
    ) -> Result<Option<T>> {
        outcome.refers_to.push((table.blob, Container::Parquet));
        let error = match read {
            Ok(found) => return Ok(Some(found)),
            Err(error) => error,
        };
        let object = match error.kind() {
            Kind::NotFound => name.to_string(),
            Kind::Corrupt | Kind::Invalid => Name::table(table.blob).to_string(),
            _ => return Err(error),
        };
        let expected = format!("a table of {} bytes and {} rows, named by {name}", table.bytes, table.rows);
        let repaired = if derived && error.kind() != Kind::Invalid { self.remove(name)? } else { None };
        outcome.findings.push(Finding { object, expected, found: error.chain(), repaired });
        Ok(None)
    }

    /// A snapshot's id is the digest of its entries.
    fn snapshot(&self, name: &Name, id: SnapshotId, entries: &Entries, outcome: &mut Outcome) -> Result<()> {
        let found = snapshot_id(entries);
        if found != id {
            outcome.findings.push(Finding {
                object: name.to_string(),
                expected: format!("a table of entries whose id is {id}"),
                found: format!("one whose id is {found}"),
                repaired: self.remove(name)?,
            });
        }
        Ok(())
    }

    fn manifest(
        &self,
        name: &Name,
        (recipe, encoding): (RecipeKey, Encoding),
        head: &ManifestHead,
        table: &[ShardRow],
        rows: &HashMap<Shard, ShardRow>,
        outcome: &mut Outcome,
    ) -> Result<()> {
        let mut sums = [0u64; 3];
        let mut stale = Vec::new();
        for row in table {
            for (sum, value) in sums.iter_mut().zip([row.rows, row.bytes, row.failed_rows]) {
                *sum = sum.saturating_add(value);
            }
            let recorded = rows.get(&(recipe, encoding, row.shard)).cloned();
            let matches = recorded.is_some_and(|found| ShardRow { partition: row.partition, ..found } == *row);
            // Records published or removed since they were listed count as they are now.
            let in_force = || match self.store.is_in_force(recipe, encoding, row) {
                Err(error) if error.kind() == Kind::Invalid => Ok(true),
                result => result,
            };
            if !matches && !in_force()? {
                stale.push(row);
            }
        }
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
            None if sums != [head.rows, head.bytes, head.failed_rows] => (
                format!("the sums of its table: {} rows, {} bytes, {} failed rows", sums[0], sums[1], sums[2]),
                format!("{} rows, {} bytes, {} failed rows", head.rows, head.bytes, head.failed_rows),
            ),
            None => return Ok(()),
        };
        let repaired = self.remove(name)?;
        outcome.findings.push(Finding { object: name.to_string(), expected, found, repaired });
        Ok(())
    }

    /// A report: of use until its blob is known to be good or gone.
    fn report(&self, blob: Digest, good: bool) -> Result<Vec<Finding>> {
        let name = Name::Report { blob };
        let mut outcome = Outcome::default();
        if self.read::<Report>(&name, &mut outcome)?.is_none() {
            return Ok(outcome.findings);
        }
        let gone = || -> Result<bool> {
            for container in [Container::Arrow, Container::Parquet] {
                if self.store.storage.bytes(&Name::Blob { digest: blob, container }.to_string())?.is_some() {
                    return Ok(false);
                }
            }
            Ok(true)
        };
        let found = match good {
            true => "the blob is good",
            false if gone()? => "there is no such blob",
            false => return Ok(Vec::new()),
        };
        Ok(vec![Finding {
            object: name.to_string(),
            expected: "a report of a blob that is bad".to_owned(),
            found: found.to_owned(),
            repaired: self.remove(&name)?,
        }])
    }
}
