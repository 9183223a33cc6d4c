//! The order table of a chain: how many rows its last deterministic stage has in each partition, and where steps on the
//! way drop or add rows, from which source row each came.

use crate::engine::dataset::{Dataset, Split};
use crate::engine::input;
use crate::engine::pool::Pool;
use crate::engine::rows::Rows;
use crate::engine::stored::StoredShard;
use crate::engine::tree::Tree;
use crate::error::{Error, Result};
use crate::format::ROW;
use crate::format::record::Record;
use crate::format::table::OrderRow;
use crate::plan::chain::Chain;
use crate::plan::key;
use crate::plan::snapshot::Snapshot;
use crate::source::Source;
use arrow::array::AsArray;
use arrow::datatypes::{Schema, UInt32Type};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The order table of a split: as stored, else from the snapshot, from the records of its last deterministic stage, or,
/// where `count` says so, by running the steps.
pub fn order(
    dataset: &Dataset,
    snapshot: &Arc<Snapshot>,
    split: &Split,
    records: Option<&BTreeMap<usize, Record>>,
    pool: Option<&Pool>,
) -> Result<Option<Vec<OrderRow>>> {
    let chain = &split.chain;
    let stage = &chain.stages[chain.last_deterministic()];
    if let Some((_, rows)) = dataset.store.order(stage.recipe, snapshot.id)? {
        return Ok(Some(rows));
    }
    let rows = match one_to_one(chain, snapshot) {
        Some(rows) => rows,
        None => {
            let whole = records.filter(|r| r.len() == snapshot.partitions());
            let mut rows = Vec::with_capacity(snapshot.partitions());
            for partition in 0..snapshot.partitions() {
                rows.push(match (whole.and_then(|r| r.get(&partition)), pool) {
                    (Some(record), _) => {
                        let shard = StoredShard::open(&dataset.store, record.clone(), &stage.schema)?;
                        from_shard(&shard, &stage.schema, partition)?
                    }
                    (None, Some(pool)) => {
                        let source = dataset.source.as_ref().ok_or_else(|| {
                            Error::invalid(
                                "this split's rows were never counted and there is no source to count them from",
                            )
                        })?;
                        by_running(pool, source, snapshot, chain, partition)?
                    }
                    (None, None) => return Ok(None),
                });
            }
            rows
        }
    };
    Ok(Some(rows))
}

/// Publishes an order table.
pub fn publish_order(dataset: &Dataset, snapshot: &Snapshot, split: &Split, rows: &[OrderRow]) -> Result<()> {
    let recipe = split.chain.stages[split.chain.last_deterministic()].recipe;
    let order = key::order_id(&snapshot.entries.entries, rows);
    dataset.store.put_order(recipe, snapshot.id, order, rows).map(|_| ())
}

/// The rows of the order table where they follow from the snapshot alone; `None` where steps must be run or stored shards read.
fn one_to_one(chain: &Chain, snapshot: &Snapshot) -> Option<Vec<OrderRow>> {
    chain.stages[chain.last_deterministic()].one_to_one.then(|| {
        (0..snapshot.partitions())
            .map(|p| OrderRow { partition: p as u32, rows: snapshot.source_rows(p), row_map: None })
            .collect()
    })
}

/// The order table of one partition from the last deterministic stage's shard, by its `_row` column.
fn from_shard(shard: &StoredShard, schema: &Schema, partition: usize) -> Result<OrderRow> {
    let column = schema.index_of(ROW)?;
    let mut map = Vec::new();
    for chunk in 0..shard.chunks() {
        let batch = shard.chunk(chunk, Some(&[column]))?;
        let rows = batch.column_by_name(ROW).and_then(|c| c.as_primitive_opt::<UInt32Type>());
        map.extend_from_slice(rows.ok_or_else(|| Error::corrupt(format!("a shard without {ROW}")))?.values());
    }
    Ok(OrderRow { partition: partition as u32, rows: map.len() as u64, row_map: Some(map) })
}

/// The order table of one partition by running the chain from the source up to its last deterministic stage.
fn by_running(
    pool: &Pool,
    source: &Arc<Source>,
    snapshot: &Arc<Snapshot>,
    chain: &Chain,
    partition: usize,
) -> Result<OrderRow> {
    let target = chain.stages[chain.last_deterministic()].recipe;
    let tree = Arc::new(Tree::new(std::slice::from_ref(chain), chain.stages[0].recipe, &[target])?);
    let mut map = Vec::new();
    let run = move |piece: Result<input::Piece>| {
        let mut source_rows = Vec::new();
        tree.run(piece?.read()?, 0, 0, &mut |_, rows: Rows| source_rows.extend_from_slice(rows.source.values()))?;
        Ok(source_rows)
    };
    for rows in pool.map(input::from_source(source, snapshot, partition)?, 2 * pool.threads(), run) {
        map.extend(rows?);
    }
    Ok(OrderRow { partition: partition as u32, rows: map.len() as u64, row_map: Some(map) })
}
