//! The cursor: where an epoch stands, as plain data of less than 1 KB. It counts samples over all ranks, so it resumes at
//! another batch or world size; it names what the order depends on, so it is refused where that differs.

use super::Params;
use crate::error::{Error, Result};
use crate::id::{OrderId, RecipeKey, SnapshotId};
use serde::{Deserialize, Serialize};
use std::fmt::Display;

/// The version written; older ones are understood, newer ones refused by name.
pub const VERSION: u32 = 1;

/// A cursor is far shorter; what is longer is none.
const MOST_BYTES: usize = 64 << 10;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cursor {
    pub version: u32,
    pub seed: u64,
    pub shuffle: bool,
    /// L and K; both 1 where `shuffle` is false.
    pub lanes: u32,
    pub block: u32,
    /// Exactly one until datasets can be mixed.
    pub datasets: Vec<Place>,
}

/// A dataset and the place in it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Place {
    /// Of the last deterministic stage.
    pub recipe: RecipeKey,
    pub snapshot: SnapshotId,
    pub order: OrderId,
    /// 1 until datasets can be mixed.
    pub weight: f64,
    pub epoch: u64,
    /// Samples delivered in this epoch, padding aside; from 0 to N.
    pub position: u64,
}

/// How a cursor that may be resumed relates to the dataset that is open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Resumable {
    Exactly,
    /// The same rows in the same order, but some entries' contents changed: worth a warning.
    OtherContents,
}

impl Cursor {
    pub fn new(params: &Params, recipe: RecipeKey, snapshot: SnapshotId, order: OrderId, position: u64) -> Self {
        let (lanes, block) = if params.shuffle { (params.lanes, params.block) } else { (1, 1) };
        Cursor {
            version: VERSION,
            seed: params.seed,
            shuffle: params.shuffle,
            lanes,
            block,
            datasets: vec![Place { recipe, snapshot, order, weight: 1.0, epoch: params.epoch, position }],
        }
    }

    /// The one dataset and its place.
    pub fn place(&self) -> Result<&Place> {
        match self.datasets.as_slice() {
            [place] if place.weight == 1.0 => Ok(place),
            [place] => Err(Error::invalid(format!("cursor: weight: expected 1, found {}", place.weight))),
            places => Err(Error::invalid(format!("cursor: datasets: expected 1, found {}", places.len()))),
        }
    }

    /// What the epoch at the cursor depends on.
    pub fn params(&self) -> Result<Params> {
        let epoch = self.place()?.epoch;
        Ok(Params { seed: self.seed, epoch, lanes: self.lanes, block: self.block, shuffle: self.shuffle })
    }

    pub fn to_json(&self) -> Result<String> {
        serde_json::to_string(self).map_err(|e| Error::internal("cannot write the cursor as JSON").caused_by(e))
    }

    /// Errors with `Invalid` on what isn't a cursor, and by name on one of a newer version.
    pub fn parse(json: &str) -> Result<Self> {
        let foreign = "this state is no cursor of Forebay; expected the JSON that state_dict gave";
        if json.len() > MOST_BYTES {
            return Err(Error::invalid(format!("{foreign}, found {} bytes", json.len())));
        }
        let value: serde_json::Value = serde_json::from_str(json).map_err(|e| Error::invalid(foreign).caused_by(e))?;
        match value.get("version").and_then(serde_json::Value::as_u64) {
            Some(version) if version > VERSION.into() => {
                return Err(Error::invalid(format!(
                    "cursor: version: expected at most {VERSION}, found {version}; a newer Forebay wrote it: upgrade"
                )));
            }
            _ => {}
        }
        let cursor: Cursor = serde_json::from_value(value).map_err(|e| Error::invalid(foreign).caused_by(e))?;
        cursor.place()?;
        Ok(cursor)
    }

    /// Whether this state can be resumed where `open` is what is open now and has `rows` rows. The epoch and position
    /// may differ; any other difference that the order or random steps depend on is an `Invalid` error that names the
    /// first term, what was expected and what was found.
    pub fn check(&self, open: &Cursor, rows: u64) -> Result<Resumable> {
        let (saved, here) = (self.place()?, open.place()?);
        same("version", open.version, self.version, "use the version of Forebay that wrote it")?;
        same("recipe", here.recipe, saved.recipe, "the source or a step changed: restore it, or start the epoch anew")?;
        same(
            "order",
            here.order,
            saved.order,
            "keys or row counts of the dataset changed: open the cursor's snapshot",
        )?;
        same("seed", open.seed, self.seed, "pass the seed of the saved run")?;
        same("shuffle", open.shuffle, self.shuffle, "pass shuffle as in the saved run")?;
        same("lanes", open.lanes, self.lanes, "set `order: {lanes}` as in the saved run")?;
        same("block", open.block, self.block, "set `order: {block}` as in the saved run")?;
        if saved.position > rows {
            return Err(Error::invalid(format!("cursor: position: expected at most {rows}, found {}", saved.position)));
        }
        Ok(if saved.snapshot == here.snapshot { Resumable::Exactly } else { Resumable::OtherContents })
    }
}

fn same<T: PartialEq + Display>(term: &str, expected: T, found: T, advice: &str) -> Result<()> {
    if expected == found {
        return Ok(());
    }
    Err(Error::invalid(format!(
        "cannot resume: {term}: expected {expected}, found {found} in the saved state; {advice}"
    )))
}
