//! Copies what pipelines' heads lead to from one store to another: only what is missing there, each byte checked against its
//! digest on the way, and what leads to something after what it leads to. Killed, the next run goes on.

use super::blobs::part_name;
use super::heads::sound;
use super::reach::{Index, Reach};
use super::records::shard_row;
use super::{Store, Uses};
use crate::error::{Error, Kind, Result};
use crate::format::encoding::Encoding;
use crate::format::head::{PipelineHead, SnapshotHead};
use crate::format::record::{Part, Record};
use crate::id::{Digest, RecipeKey, SnapshotId};
use crate::plan::snapshot::Snapshot;
use rayon::prelude::*;
use std::io::{Read, Write};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

pub struct Options<'a> {
    /// All of the source's where none is named.
    pub pipelines: Vec<String>,
    /// Instead of all snapshots.
    pub snapshot: Option<SnapshotId>,
    /// Names of stages, instead of all that are stored.
    pub stages: Vec<String>,
    pub stop: &'a AtomicBool,
    /// Called with shards and bytes copied so far.
    pub progress: &'a (dyn Fn(u64, u64) + Sync),
}

#[derive(Debug, Default)]
pub struct Copied {
    pub snapshots: u64,
    pub shards: u64,
    pub bytes: u64,
    /// Shards that were there.
    pub reused_shards: u64,
    /// What was left out and why.
    pub notes: Vec<String>,
}

/// Shards are copied by so many threads.
const REQUESTS: usize = 16;
const PIECE: usize = 1 << 20;

struct Copy<'a> {
    from: &'a Store,
    to: Store,
    options: &'a Options<'a>,
    pool: rayon::ThreadPool,
    shards: AtomicU64,
    bytes: AtomicU64,
    reused: AtomicU64,
}

/// What becomes of a shard.
enum Fate {
    /// The record in force there.
    There(Record),
    Missing,
    Damaged(String),
}

/// Copies into `to`. Errors name the object; what was copied by then stays.
pub fn copy(from: &Store, to: &Store, options: &Options) -> Result<Copied> {
    let names = match options.pipelines.as_slice() {
        [] => from.pipelines()?,
        names => names.to_vec(),
    };
    let mut copied = Copied::default();
    for name in names {
        let head = from.pipeline(&name)?.ok_or_else(|| {
            let there = from.pipelines().unwrap_or_default().join(", ");
            Error::not_found(format!("the store {} has no pipeline {name:?}; it has: {there}", from.storage.location()))
        })?;
        if let Some(stage) = options.stages.iter().find(|s| !head.stages.iter().any(|stage| stage.name == **s)) {
            let there: Vec<&str> = head.stages.iter().map(|stage| stage.name.as_str()).collect();
            return Err(Error::not_found(format!(
                "pipeline {name:?} has no stage {stage:?}; it has: {}",
                there.join(", ")
            )));
        }
        pipeline(from, to, &head, options, &mut copied)?;
    }
    Ok(copied)
}

fn pipeline(from: &Store, to: &Store, head: &PipelineHead, options: &Options, copied: &mut Copied) -> Result<()> {
    // Oldest first, so that the newest becomes current; of several heads of one snapshot the newest.
    let mut heads: Vec<SnapshotHead> = Vec::new();
    for (id, found) in from.snapshots(&head.name)? {
        if options.snapshot.is_some_and(|wanted| wanted != id) || heads.iter().any(|head| head.snapshot == id) {
            continue;
        }
        match sound(found)? {
            Some(found) => heads.push(found),
            None => copied.notes.push(format!("snapshot {} of {} is damaged and left out", id.short(), head.name)),
        }
    }
    heads.reverse();
    if let (Some(wanted), []) = (options.snapshot, heads.as_slice()) {
        return Err(Error::not_found(format!(
            "pipeline {:?} has no snapshot {wanted}; `forebay ls` lists them",
            head.name
        )));
    }
    let snapshots: Vec<SnapshotId> = heads.iter().map(|head| head.snapshot).collect();
    let recipes: Vec<RecipeKey> = head.stages.iter().map(|stage| stage.recipe).collect();
    let uses = Uses { purpose: "cp", pipeline: &head.name, snapshots: &snapshots, recipes: &recipes };
    // A source that can't be written is read without saying so.
    let held = from.hold(&uses);
    let from = held.as_ref().unwrap_or(from);
    let pool = rayon::ThreadPoolBuilder::new().num_threads(REQUESTS).build();
    let pool = pool.map_err(|e| Error::unavailable("cannot start threads: lower their number").caused_by(e))?;
    let copy = Copy {
        from,
        to: to.hold(&uses)?,
        options,
        pool,
        shards: AtomicU64::new(0),
        bytes: AtomicU64::new(0),
        reused: AtomicU64::new(0),
    };
    let result = copy.all(head, &heads, &mut copied.notes);
    copied.shards += copy.shards.into_inner();
    copied.bytes += copy.bytes.into_inner();
    copied.reused_shards += copy.reused.into_inner();
    copied.snapshots += snapshots.len() as u64;
    result
}

impl Copy<'_> {
    fn all(&self, head: &PipelineHead, heads: &[SnapshotHead], notes: &mut Vec<String>) -> Result<()> {
        let index = Index::new(self.from)?;
        let reach = Reach::new(self.from, &index)?;
        for stage in &head.stages {
            // A stage that isn't deterministic has no recipe in the store.
            if let Some(recipe) = self.from.recipe(stage.recipe)? {
                self.to.put_recipe(&recipe)?;
            }
        }
        for snapshot_head in heads {
            let snapshot = reach.snapshot(snapshot_head)?;
            for stage in &head.stages {
                if !self.options.stages.is_empty() && !self.options.stages.contains(&stage.name) {
                    continue;
                }
                for encoding in index.encodings(stage.recipe) {
                    self.stage(stage.recipe, encoding, &snapshot, notes)?;
                }
            }
            for stage in &head.stages {
                if let Some((order, rows)) = sound(self.from.order(stage.recipe, snapshot.id))?.flatten() {
                    self.to.put_order(stage.recipe, snapshot.id, order.order, &rows)?;
                }
            }
            match self.to.put_snapshot(snapshot_head.clone(), &snapshot.entries) {
                Ok(_) => {}
                Err(error) if error.kind() == Kind::Conflict => {
                    let id = snapshot.id.short();
                    notes.push(format!(
                        "snapshot {id} of {} was listed before the current one there, which stays current",
                        head.name
                    ));
                }
                Err(error) => return Err(error),
            }
        }
        self.to.put_pipeline(head)
    }

    /// The shards of a snapshot at a stage, then its manifest where it is whole.
    fn stage(&self, recipe: RecipeKey, encoding: Encoding, snapshot: &Snapshot, notes: &mut Vec<String>) -> Result<()> {
        let one = |partition: usize| match self.options.stop.load(Ordering::Relaxed) {
            true => Err(Error::unavailable("stopped; the same command goes on")),
            false => self.shard(recipe, encoding, snapshot, partition),
        };
        let fates =
            self.pool.install(|| (0..snapshot.partitions()).into_par_iter().map(one).collect::<Result<Vec<_>>>())?;
        let mut rows = Vec::new();
        for (partition, fate) in fates.iter().enumerate() {
            match fate {
                Fate::There(record) => rows.push(shard_row(u32::try_from(partition).unwrap_or(u32::MAX), record)),
                Fate::Missing => {}
                Fate::Damaged(why) => notes.push(why.clone()),
            }
        }
        if rows.len() == fates.len() && self.from.whole_snapshots(recipe, encoding)?.contains(&snapshot.id) {
            self.to.put_manifest(recipe, encoding, snapshot.id, &rows)?;
        }
        Ok(())
    }

    fn shard(&self, recipe: RecipeKey, encoding: Encoding, snapshot: &Snapshot, partition: usize) -> Result<Fate> {
        let shard = snapshot.shard_key(recipe, partition);
        if let Some(there) = sound(self.to.record(recipe, encoding, shard))?.flatten()
            && self.to.sound(&there)?
        {
            self.reused.fetch_add(1, Ordering::Relaxed);
            return Ok(Fate::There(there));
        }
        let record = match self.from.record(recipe, encoding, shard) {
            Ok(Some(record)) => record,
            Ok(None) => return Ok(Fate::Missing),
            Err(error) if error.kind() == Kind::Corrupt => return Ok(Fate::Damaged(error.chain())),
            Err(error) => return Err(error),
        };
        if !self.from.sound(&record)? {
            return Ok(Fate::Damaged(format!(
                "shard {} ({encoding}) is reported bad or has lost a blob: left out",
                shard.short()
            )));
        }
        for part in &record.parts {
            match self.part(part, encoding) {
                Err(error) if error.kind() == Kind::Corrupt => return Ok(Fate::Damaged(error.chain())),
                copied => copied?,
            }
        }
        let record = self.to.put_record(&record)?;
        let shards = self.shards.fetch_add(1, Ordering::Relaxed) + 1;
        (self.options.progress)(shards, self.bytes.load(Ordering::Relaxed));
        Ok(Fate::There(record))
    }

    /// Copies a blob. `Corrupt` where its bytes aren't what its name says; then nothing is published.
    fn part(&self, part: &Part, encoding: Encoding) -> Result<()> {
        let object = part_name(part, encoding.container);
        let gone = || Error::corrupt(format!("{object} is gone: `forebay materialize` computes it anew"));
        let mut reader = self.from.storage.reader(&object)?.ok_or_else(gone)?;
        let (mut spool, mut hasher) = (self.to.spool()?, blake3::Hasher::new());
        let mut piece = vec![0; PIECE];
        let mut bytes = 0u64;
        loop {
            let read = reader.read(&mut piece).map_err(|e| Error::io(format!("cannot read {object}"), e))?;
            if read == 0 {
                break;
            }
            bytes += read as u64;
            if bytes > part.bytes {
                break;
            }
            hasher.update(&piece[..read]);
            spool.write_all(&piece[..read]).map_err(|e| Error::io(format!("cannot write {object}"), e))?;
        }
        let found = Digest::from_bytes(hasher.finalize().into());
        if bytes != part.bytes || found != part.blob {
            return Err(Error::corrupt(format!(
                "{object} doesn't hold what its name says (expected {} bytes, found {bytes} with the digest {found}): left out; \
                 `forebay verify --repair` and `forebay materialize` mend it",
                part.bytes
            )));
        }
        self.to.put_part(spool, part, encoding.container)?;
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        Ok(())
    }
}
