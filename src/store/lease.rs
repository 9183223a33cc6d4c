//! What a process says that it uses, and what it heeds in return: names that a running collection is about to remove count
//! as absent, and nothing is published under them until the collection is over. `formats/store.md` says why that is safe.

use super::kept::{Kept, Moment, Pace};
use super::{Placed, Store};
use crate::error::{Error, Kind, Result};
use crate::format::VERSION;
use crate::format::document::Document;
use crate::format::name::{self, Name};
use crate::format::root::{Candidates, Intent};
use crate::format::table::decode_names;
use crate::id::{Digest, RecipeKey, SnapshotId};
use std::collections::HashSet;
use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

impl Placed for Intent {
    fn is_at(&self, name: &Name, _bytes: &[u8]) -> bool {
        *name == Name::Intent { id: self.id }
    }
}

impl Placed for Candidates {
    fn is_at(&self, name: &Name, _bytes: &[u8]) -> bool {
        *name == Name::Candidates { id: self.id }
    }
}

/// Services that keep whole seconds, and clocks read from them, are off by less.
pub(super) const COARSE_MS: i64 = 2_000;

/// What a process is about to use.
#[derive(Debug, Clone, Copy)]
pub struct Uses<'a> {
    /// Which command, for people.
    pub purpose: &'a str,
    pub pipeline: &'a str,
    pub snapshots: &'a [SnapshotId],
    pub recipes: &'a [RecipeKey],
}

#[derive(Debug)]
pub(super) struct Lease {
    kept: Kept,
    pub began_ms: i64,
    pace: Pace,
    view: Mutex<View>,
}

/// What was known of lists of candidates when they were last looked at.
#[derive(Debug)]
struct View {
    looked: Option<Moment>,
    tables: Vec<(Digest, Arc<HashSet<String>>)>,
}

impl Store {
    /// This store for a process that says what it uses, until the last clone of what is returned is dropped.
    pub fn hold(&self, uses: &Uses) -> Result<Store> {
        self.hold_at(uses, Pace::usual(self.storage.local_path().is_some()))
    }

    /// As `hold`, at another pace than the usual.
    pub fn hold_at(&self, uses: &Uses, pace: Pace) -> Result<Store> {
        let grace = pace.look + self.storage.longest_request().min(pace.lifetime / 4);
        let intent = Intent {
            version: VERSION,
            id: random_id(),
            purpose: uses.purpose.to_owned(),
            pipeline: uses.pipeline.to_owned(),
            snapshots: uses.snapshots.to_vec(),
            recipes: uses.recipes.to_vec(),
            began_ms: self.storage.now_ms()?.saturating_sub(COARSE_MS),
            grace_ms: u64::try_from(grace.as_millis()).unwrap_or(u64::MAX),
        };
        intent.check()?;
        let kept = Kept::new(self, &Name::Intent { id: intent.id }, intent.to_json(), pace)?;
        let view = Mutex::new(View { looked: None, tables: Vec::new() });
        let lease = Lease { kept, began_ms: intent.began_ms, pace, view };
        let store = Store { storage: self.storage.clone(), lease: Some(Arc::new(lease)) };
        // The intent is there first, so that a collection knows of it, or its list is seen.
        store.look(true)?;
        Ok(store)
    }

    /// Intents that count, but for those that can't be read; when each was last written.
    pub fn intents(&self) -> Result<Vec<Intent>> {
        let live = self.young(&name::intents(), Pace::LIFETIME)?;
        self.documents(live)
    }

    pub(super) fn intents_within(&self, lifetime: Duration) -> Result<Vec<Intent>> {
        let live = self.young(&name::intents(), lifetime)?;
        self.documents(live)
    }

    /// Lists of candidates that count.
    pub(super) fn candidates_within(&self, lifetime: Duration) -> Result<Vec<Candidates>> {
        let live = self.young(&name::candidates(), lifetime)?;
        self.documents(live)
    }

    /// Those that are there still.
    fn documents<T: Placed>(&self, names: Vec<Name>) -> Result<Vec<T>> {
        names.iter().filter_map(|name| self.read(name).transpose()).collect()
    }

    /// Names below a directory of objects that were written within `lifetime`.
    fn young(&self, directory: &str, lifetime: Duration) -> Result<Vec<Name>> {
        let objects = self.storage.list(directory)?;
        if objects.is_empty() {
            return Ok(Vec::new());
        }
        let oldest = self.storage.now_ms()?.saturating_sub(ms(lifetime));
        Ok(objects.iter().filter(|o| o.modified_ms >= oldest).filter_map(|o| o.name.parse().ok()).collect())
    }

    /// Whether a collection is about to remove an object, as far as this process has to know.
    pub(super) fn is_doomed(&self, object: &str) -> Result<bool> {
        Ok(self.look(false)?.iter().any(|names| names.contains(object)))
    }

    /// Waits until no collection is about to remove an object, and sees to it that what this process relies upon is kept.
    /// True if it had to wait.
    pub(super) fn await_clear(&self, object: &str) -> Result<bool> {
        let Some(lease) = &self.lease else { return Ok(false) };
        lease.kept.check()?;
        let doomed = self.is_doomed(object)?;
        let mut still = doomed;
        while still {
            std::thread::sleep(lease.pace.poll);
            lease.kept.check()?;
            still = self.look(true)?.iter().any(|names| names.contains(object));
        }
        Ok(doomed)
    }

    pub(super) fn pace(&self) -> Option<Pace> {
        self.lease.as_ref().map(|lease| lease.pace)
    }

    /// Whether an object is so young that it was surely published after this process said what it uses.
    pub(super) fn is_ours(&self, modified_ms: i64) -> bool {
        self.lease.as_ref().is_none_or(|lease| modified_ms >= lease.began_ms + 2 * COARSE_MS)
    }

    /// The names that collections are about to remove, as they were `pace.look` ago at most.
    fn look(&self, anew: bool) -> Result<Vec<Arc<HashSet<String>>>> {
        let Some(lease) = &self.lease else { return Ok(Vec::new()) };
        let mut view = lease.view.lock().unwrap_or_else(PoisonError::into_inner);
        let old = view.looked.is_none_or(|looked| looked.elapsed() > lease.pace.look);
        if anew || old {
            let looked = Moment::now();
            let mut tables = Vec::new();
            // What is read here isn't looked up in what is known so far.
            let bare = Store { storage: self.storage.clone(), lease: None };
            for list in bare.candidates_within(lease.pace.lifetime)? {
                let known = view.tables.iter().find(|(table, _)| *table == list.table.blob);
                match known.cloned().map_or_else(|| bare.names(&list), |known| Ok(Some(known))) {
                    Ok(found) => tables.extend(found),
                    Err(error) => {
                        return Err(error.during("cannot read what `forebay gc`, which is running, is about to remove"));
                    }
                }
            }
            *view = View { looked: Some(looked), tables };
        }
        Ok(view.tables.iter().map(|(_, names)| names.clone()).collect())
    }

    /// What a list names; `None` where it is gone by now.
    fn names(&self, list: &Candidates) -> Result<Option<(Digest, Arc<HashSet<String>>)>> {
        match self.table(&list.table) {
            Ok(bytes) => Ok(Some((list.table.blob, Arc::new(decode_names(&bytes)?.into_iter().collect())))),
            Err(error) if error.kind() == Kind::NotFound => {
                match self.read::<Candidates>(&Name::Candidates { id: list.id })? {
                    Some(now) if now.table == list.table => {
                        Err(Error::unavailable("its table is gone").caused_by(error))
                    }
                    Some(now) => self.names(&now),
                    None => Ok(None),
                }
            }
            Err(error) => Err(error),
        }
    }
}

pub(super) fn ms(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}

/// Two processes never draw the same.
pub(super) fn random_id() -> Digest {
    let drawn: Vec<u8> = (0..4).flat_map(|n: u64| RandomState::new().hash_one(n).to_le_bytes()).collect();
    Digest::of(&[&drawn, std::process::id().to_le_bytes().as_slice()].concat())
}
