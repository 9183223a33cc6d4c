//! Pinning a snapshot of a pipeline, beside a collection that may be running.

use crate::app::catalog;
use crate::app::open::find_snapshot;
use crate::error::{Error, Result};
use crate::format::VERSION;
use crate::format::root::Pin;
use crate::id::SnapshotId;
use crate::store::{Store, Uses};

/// Pins the given or current snapshot with all stages of the pipeline. Errors: `NotFound` where there is no such snapshot or it
/// is about to be removed, `Conflict` where the name is taken.
pub fn pin(store: &Store, name: &str, pipeline: Option<&str>, snapshot: Option<SnapshotId>) -> Result<Pin> {
    let head = catalog::pipeline(store, pipeline)?;
    let current = || -> Result<SnapshotId> {
        let none = || Error::not_found(format!("pipeline {:?} has no snapshot yet; run `forebay snapshot`", head.name));
        Ok(store.current_snapshot(&head.name)?.ok_or_else(none)?.snapshot)
    };
    let snapshot = snapshot.map_or_else(current, Ok)?;
    let recipes: Vec<_> = head.stages.iter().map(|stage| stage.recipe).collect();
    let uses = Uses { purpose: "pin", pipeline: &head.name, snapshots: &[snapshot], recipes: &recipes };
    // Till the pin is there.
    let held = store.hold(&uses)?;
    find_snapshot(&held, &head.name, snapshot)?;
    let pin = Pin { version: VERSION, name: name.to_owned(), pipeline: head.name, snapshot, recipes };
    held.pin(&pin)?;
    Ok(pin)
}
