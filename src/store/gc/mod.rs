//! Removes what nothing needs any more, beside running writers and readers: mark, publish the list of candidates, give those
//! who don't know it yet time to see it, mark again, remove what leads to something before what it leads to.
//!
//! Whoever publishes or relies upon something says so first (its intent) and looks at lists afterwards; a collection publishes
//! its list first and looks at intents afterwards. So either it sees the intent, or its list is seen: see `formats/store.md`.

mod mark;

use super::Store;
use super::kept::{Kept, Moment, Pace};
use super::lease::random_id;
use crate::error::{Error, Result};
use crate::format::VERSION;
use crate::format::document::Document;
use crate::format::head::TableRef;
use crate::format::name::{self, Name, PipelineName};
use crate::format::root::Candidates;
use crate::format::table::encode_names;
pub use mark::{Plan, Victim};
use rayon::prelude::*;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

pub struct Options<'a> {
    /// What was current, and manifests that were published, within this time are kept.
    pub keep_within: Duration,
    /// Pipelines that aren't needed any more.
    pub forget: Vec<PipelineName>,
    /// What is kept only for `keep_within` gives way where the store would hold more bytes.
    pub max_bytes: Option<u64>,
    pub dry_run: bool,
    pub pace: Pace,
    /// Set to stop; what was removed by then stays removed, and what is left is whole.
    pub stop: &'a AtomicBool,
    pub progress: &'a (dyn Fn(Event) + Sync),
}

/// What happens, for people who wait.
#[derive(Debug, Clone, Copy)]
pub enum Event {
    /// Others use the store: what is to be removed is looked at again after the wait.
    Waiting {
        others: usize,
        wait: Duration,
    },
    Removed {
        objects: usize,
        of: usize,
    },
}

/// What a collection did, or would do.
#[derive(Debug, Default)]
pub struct Collected {
    /// Removed objects and their bytes, by kind.
    pub removed: BTreeMap<&'static str, (u64, u64)>,
    /// Temporary files of killed processes that were removed.
    pub swept: u64,
    pub kept_objects: u64,
    pub kept_bytes: u64,
    pub recent_bytes: u64,
    /// Processes that use the store now.
    pub in_use: usize,
    pub notes: Vec<String>,
}

/// Objects are removed by so many requests at a time.
const REQUESTS: usize = 16;
/// So many are removed before it is looked whether to go on.
const AT_ONCE: usize = 1024;
/// Temporary files are removed when nobody can be at work on them any more.
const SWEEP_AFTER: Duration = Duration::from_secs(86_400);

pub fn collect(store: &Store, options: &Options) -> Result<Collected> {
    let plan = mark::plan(store, options)?;
    if options.dry_run {
        return collected(&plan, &plan.remove, store, options);
    }
    if plan.remove.is_empty() {
        let mut collected = collected(&plan, &[], store, options)?;
        collected.swept = store.storage.sweep(SWEEP_AFTER)?;
        return Ok(collected);
    }
    let list = List::publish(store, &plan.remove, options)?;
    let others = store.intents_within(options.pace.lifetime)?;
    let asked = others.iter().map(|intent| Duration::from_millis(intent.grace_ms)).max();
    if let Some(wait) = asked {
        (options.progress)(Event::Waiting { others: others.len(), wait });
        sleep(wait, options);
    }
    // Again, as others published until they saw the list.
    let again = mark::plan(store, options)?;
    let mut still = plan.remove;
    let doomed: std::collections::HashMap<&Name, &Victim> = again.remove.iter().map(|v| (&v.name, v)).collect();
    still.retain(|victim| doomed.get(&victim.name) == Some(&victim));
    list.shrink(&still)?;
    let removed = remove(store, &still, &list, options)?;
    drop(list);
    for directory in [name::stages(), name::pipelines(), name::reports(), name::intents(), name::candidates()] {
        store.storage.prune(&directory)?;
    }
    let mut collected = collected(&again, removed, store, options)?;
    collected.swept = store.storage.sweep(SWEEP_AFTER)?;
    if removed.len() < still.len() {
        return Err(Error::unavailable(format!(
            "stopped: {} of {} objects were removed; the same command goes on",
            removed.len(),
            still.len()
        )));
    }
    Ok(collected)
}

fn sleep(wait: Duration, options: &Options) {
    let begun = Moment::now();
    while begun.elapsed() < wait && !options.stop.load(Ordering::Relaxed) {
        std::thread::sleep(options.pace.poll.min(wait));
    }
}

/// In order, each kind when the one before is gone; those that were.
fn remove<'v>(store: &Store, victims: &'v [Victim], list: &List, options: &Options) -> Result<&'v [Victim]> {
    let pool = rayon::ThreadPoolBuilder::new().num_threads(REQUESTS).build();
    let pool = pool.map_err(|e| Error::unavailable("cannot start threads: lower their number").caused_by(e))?;
    let mut done = 0;
    for kind in victims.chunk_by(|a, b| mark::turn(&a.name) == mark::turn(&b.name)) {
        for some in kind.chunks(AT_ONCE) {
            if options.stop.load(Ordering::Relaxed) {
                return Ok(&victims[..done]);
            }
            // A list that lapsed keeps nobody from publishing what is about to be removed.
            list.kept.check()?;
            let one = |victim: &Victim| store.storage.delete(&victim.name.to_string());
            pool.install(|| some.par_iter().try_for_each(one))?;
            done += some.len();
            (options.progress)(Event::Removed { objects: done, of: victims.len() });
        }
    }
    Ok(victims)
}

fn collected(plan: &Plan, removed: &[Victim], store: &Store, options: &Options) -> Result<Collected> {
    let mut collected = Collected {
        kept_objects: plan.kept_objects,
        kept_bytes: plan.kept_bytes,
        recent_bytes: plan.recent_bytes,
        in_use: store.intents_within(options.pace.lifetime)?.len(),
        notes: plan.notes.clone(),
        ..Collected::default()
    };
    for victim in removed {
        let (objects, bytes) = collected.removed.entry(kind(&victim.name)).or_default();
        *objects += 1;
        *bytes += victim.seen.bytes;
    }
    Ok(collected)
}

fn kind(name: &Name) -> &'static str {
    match name {
        Name::Blob { .. } => "blobs",
        Name::Shard { .. } => "records",
        Name::Manifest { .. } => "manifests",
        Name::Snapshot { .. } => "snapshots",
        Name::Pipeline { .. } | Name::Recipe { .. } | Name::Order { .. } => "heads",
        Name::Report { .. } | Name::Pin { .. } | Name::Intent { .. } | Name::Candidates { .. } => "others",
    }
}

/// The published list of candidates; removed, with its tables, when it is dropped.
struct List<'a> {
    store: &'a Store,
    id: crate::id::Digest,
    tables: std::cell::RefCell<Vec<TableRef>>,
    kept: Kept,
}

impl<'a> List<'a> {
    fn publish(store: &'a Store, victims: &[Victim], options: &Options) -> Result<List<'a>> {
        let id = random_id();
        let table = table(store, victims)?;
        let head = Candidates { version: VERSION, id, table };
        let kept = Kept::new(store, &Name::Candidates { id }, head.to_json(), options.pace)?;
        Ok(List { store, id, tables: vec![table].into(), kept })
    }

    /// What isn't removed after all is free for everyone again.
    fn shrink(&self, victims: &[Victim]) -> Result<()> {
        let table = table(self.store, victims)?;
        self.tables.borrow_mut().push(table);
        self.kept.replace(Candidates { version: VERSION, id: self.id, table }.to_json())
    }
}

impl Drop for List<'_> {
    fn drop(&mut self) {
        for table in self.tables.borrow().iter() {
            // One that stays behind is removed by the next collection.
            let _ = self.store.storage.delete(&Name::table(table.blob).to_string());
        }
    }
}

fn table(store: &Store, victims: &[Victim]) -> Result<TableRef> {
    let names: Vec<String> = victims.iter().map(|victim| victim.name.to_string()).collect();
    store.put_table(encode_names(&names)?, names.len() as u64)
}
