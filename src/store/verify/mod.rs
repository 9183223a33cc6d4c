//! Verifying a store against itself: every document belongs to its name, every blob has the digest that is its name and,
//! chunk by chunk, those of its record, and what refers to something finds it. Repairing reports bad blobs, so that the
//! next writer replaces them, and removes only what was proved bad.
//!
//! Others may publish and delete meanwhile: what was listed and is gone is no finding, and what seems to be missing is
//! looked for once more before it is one.

mod head;
mod part;

use super::blobs::part_name;
use super::{Placed, Store, shard_row};
use crate::error::{Error, Kind, Result};
use crate::format::VERSION;
use crate::format::encoding::{Container, Encoding};
use crate::format::head::{Report, SnapshotHead};
use crate::format::name::{self, Name};
use crate::format::record::{Part, Record};
use crate::format::table::ShardRow;
use crate::id::{Digest, RecipeKey, ShardKey, SnapshotId};
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
    /// A snapshot with its table.
    snapshot: Option<SnapshotHead>,
    bytes_read: u64,
    parts_read: u64,
}

/// What later objects are compared with.
#[derive(Default)]
struct Seen {
    rows: HashMap<Shard, ShardRow>,
    snapshots: HashMap<SnapshotId, SnapshotHead>,
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
    let mut seen = Seen::default();
    let mut settle = |outcome: Outcome, seen: &mut Seen| {
        for blob in &outcome.refers_to {
            orphans.remove(blob);
        }
        verified.findings.extend(outcome.findings);
        verified.bytes_read += outcome.bytes_read;
        verified.parts_read += outcome.parts_read;
        good.extend(outcome.good);
        seen.rows.extend(outcome.row);
        seen.snapshots.extend(outcome.snapshot.map(|head| (head.snapshot, head)));
    };
    examined.into_iter().for_each(|outcome| settle(outcome, &mut seen));
    // By name, so that snapshots come before the orders of their entries.
    for name in &heads {
        let outcome = verifier.head(name, &seen)?;
        settle(outcome, &mut seen);
    }
    verified.orphans = orphans.len() as u64;
    verified.orphan_bytes = orphans.values().sum();
    for blob in reports {
        verified.findings.extend(verifier.report(blob, good.contains(&blob))?);
    }
    for name in store.storage.list_no_files(name::ROOT)?.iter().filter_map(|name| name.parse().ok()) {
        verified.findings.extend(verifier.no_file(&name, &verified.findings)?);
    }
    verified.findings.sort();
    verified.findings.dedup();
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
        let error = match self.store.document::<T>(name) {
            Ok(document) => return Ok(document),
            Err(error) => error,
        };
        let repaired = match error.kind() {
            Kind::Corrupt => self.remove(name)?,
            // Of a newer version: not ours to judge.
            Kind::Invalid if !error.is_refused() => None,
            _ => return Err(error),
        };
        outcome.findings.push(Finding {
            object: name.to_string(),
            expected: format!("the {} of that name", T::WHAT),
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
            State::Missing | State::Spans(_) if self.store.document::<Record>(name)?.as_ref() != Some(record) => {
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

    /// Something that is no file where an object should be, unless it was found to be missing there.
    fn no_file(&self, name: &Name, findings: &[Finding]) -> Result<Option<Finding>> {
        let object = name.to_string();
        if findings.iter().any(|finding| finding.object == object) {
            return Ok(None);
        }
        let (expected, found) =
            ("a file, or nothing".into(), "a directory, a pipe, or a link that leads nowhere".into());
        Ok(Some(Finding { object, expected, found, repaired: self.remove(name)? }))
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
