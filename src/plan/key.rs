//! Keys of meaning: recipes, shards, snapshots and orders.

use crate::format::canonical::Value;
use crate::format::entry::Entry;
use crate::format::table::{Entries, OrderRow};
use crate::id::{OrderId, RecipeKey, ShardKey, SnapshotId};
use crate::step;
use arrow::datatypes::Schema;

/// The recipe's document; its hash is the key. `source`: `Source::describe`; `input`: the resolved input schema.
pub fn recipe_document(_source: &Value, _input: &Schema, _steps: &[&step::Info]) -> Value {
    unimplemented!()
}
pub fn recipe_key(_document: &Value) -> RecipeKey {
    unimplemented!()
}
/// `entries`: those of one partition, in order.
pub fn shard_key(_recipe: RecipeKey, _entries: &[Entry]) -> ShardKey {
    unimplemented!()
}
pub fn snapshot_id(_entries: &Entries) -> SnapshotId {
    unimplemented!()
}
pub fn order_id(_entries: &[Entry], _rows: &[OrderRow]) -> OrderId {
    unimplemented!()
}
