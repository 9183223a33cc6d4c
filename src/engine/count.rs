//! The order table of a chain: how many rows its last deterministic stage has in each partition, and where steps on the
//! way drop or add rows, from which source row each came.

use crate::engine::dataset::{Dataset, Split};
use crate::engine::input;
use crate::engine::pool::Pool;
use crate::engine::rows::Rows;
use crate::engine::stored::StoredShard;
use crate::error::{Error, Kind, Result};
use crate::format::record::Record;
use crate::format::table::OrderRow;
use crate::format::{KEY, ROW};
use crate::plan::chain::{Chain, Counting, Stage};
use crate::plan::key;
use crate::plan::snapshot::Snapshot;
use crate::source::Source;
use arrow::array::{Array, ArrayRef, AsArray, LargeStringArray, RecordBatch, new_null_array};
use arrow::datatypes::{FieldRef, Schema, SchemaRef, UInt32Type};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The order table of a split: as stored, else, or where that is damaged, from the snapshot's keys, from the records of its last deterministic stage,
/// or, where there is a `pool` to do it on, by running the steps that counts depend on. `None`: it would have to be counted.
pub fn order(
    dataset: &Dataset,
    snapshot: &Arc<Snapshot>,
    split: &Split,
    records: Option<&BTreeMap<usize, Record>>,
    pool: Option<&Pool>,
) -> Result<Option<Vec<OrderRow>>> {
    let chain = &split.chain;
    let stage = &chain.stages[chain.last_deterministic()];
    let damage = match stored(dataset, snapshot, stage) {
        Ok(Some(rows)) => return Ok(Some(rows)),
        Ok(None) => None,
        Err(error) if matches!(error.kind(), Kind::Corrupt | Kind::NotFound) => Some(error),
        Err(error) => return Err(error),
    };
    let partitions = 0..snapshot.partitions();
    if stage.one_to_one {
        let row = |p: usize| OrderRow { partition: p as u32, rows: snapshot.source_rows(p), row_map: None };
        return Ok(Some(partitions.map(row).collect()));
    }
    let counting = chain.counting();
    let source = dataset.source.as_ref();
    if let Some(source) = source.filter(|s| !counting.source && s.entries_are_samples()) {
        return partitions.map(|p| by_keys(source, snapshot, chain, &counting, p)).collect::<Result<_>>().map(Some);
    }
    if let Some(records) = records.filter(|r| r.len() == snapshot.partitions()) {
        let row = |(partition, record): (&usize, &Record)| {
            let shard = StoredShard::open(&dataset.store, record.clone(), &stage.schema)?;
            from_shard(&shard, &stage.schema, *partition)
        };
        return records.iter().map(row).collect::<Result<_>>().map(Some);
    }
    let Some(pool) = pool else { return Ok(None) };
    let source = source.ok_or_else(|| {
        damage.unwrap_or_else(|| Error::invalid("this split's rows were never counted and there is no source to count them from; run `forebay materialize` where the source is"))
    })?;
    partitions.map(|p| by_running(pool, source, snapshot, chain, &counting, p)).collect::<Result<_>>().map(Some)
}

/// The stored order table, of this snapshot's entries.
fn stored(dataset: &Dataset, snapshot: &Snapshot, stage: &Stage) -> Result<Option<Vec<OrderRow>>> {
    let Some((head, rows)) = dataset.store.order(stage.recipe, snapshot.id)? else { return Ok(None) };
    let found = key::order_id(&snapshot.entries.entries, &rows);
    if found != head.order || rows.len() != snapshot.partitions() {
        return Err(Error::corrupt(format!(
            "the order table of stage {} has the order {found}, expected {}; run `forebay materialize`",
            stage.name, head.order
        )));
    }
    Ok(Some(rows))
}

/// Publishes an order table.
pub fn publish_order(dataset: &Dataset, snapshot: &Snapshot, split: &Split, rows: &[OrderRow]) -> Result<()> {
    let recipe = split.chain.stages[split.chain.last_deterministic()].recipe;
    let order = key::order_id(&snapshot.entries.entries, rows);
    dataset.store.put_order(recipe, snapshot.id, order, rows).map(|_| ())
}

/// From the last deterministic stage's shard, by its `_row` column.
fn from_shard(shard: &StoredShard, schema: &Schema, partition: usize) -> Result<OrderRow> {
    let column = schema.index_of(ROW)?;
    let mut map = Vec::new();
    for chunk in 0..shard.chunks() {
        let batch = shard.chunk(chunk, Some(&[column]))?;
        let rows = batch.column_by_name(ROW).and_then(|c| c.as_primitive_opt::<UInt32Type>());
        map.extend_from_slice(rows.ok_or_else(|| Error::corrupt(format!("a shard without {ROW}")))?.values());
    }
    Ok(mapped(partition, map))
}

/// From the entries' keys alone, where counts depend on nothing else.
fn by_keys(
    source: &Source,
    snapshot: &Snapshot,
    chain: &Chain,
    counting: &Counting,
    partition: usize,
) -> Result<OrderRow> {
    let keys = snapshot.partition(partition).iter().map(|e| e.key.as_str());
    let keys: ArrayRef = Arc::new(LargeStringArray::from_iter_values(keys));
    let only_keys = RecordBatch::try_from_iter([(KEY, keys)])?;
    let rows = Rows::from_source(conform(&only_keys, &source.schema()?)?, 0)?;
    Ok(mapped(partition, counted(chain, counting, rows)?))
}

/// By reading the source and running the steps that counts depend on.
fn by_running(
    pool: &Pool,
    source: &Arc<Source>,
    snapshot: &Arc<Snapshot>,
    chain: &Chain,
    counting: &Counting,
    partition: usize,
) -> Result<OrderRow> {
    let (chain, counting) = (chain.clone(), counting.clone());
    let run = move |piece: Result<input::Piece>| counted(&chain, &counting, piece?.read()?);
    let mut map = Vec::new();
    for rows in pool.map(input::from_source(source, snapshot, partition)?, 2 * pool.threads(), run) {
        map.extend(rows?);
    }
    Ok(mapped(partition, map))
}

fn mapped(partition: usize, map: Vec<u32>) -> OrderRow {
    OrderRow { partition: partition as u32, rows: map.len() as u64, row_map: Some(map) }
}

/// The source rows of what comes out of the steps that counts depend on; the others are left out, and nulls stand in
/// for what they would have written. Too much for one batch is counted in halves.
fn counted(chain: &Chain, counting: &Counting, rows: Rows) -> Result<Vec<u32>> {
    match counted_together(chain, counting, rows.clone()) {
        Err(error) if error.kind() == Kind::Invalid && rows.len() > 1 => {
            let half = rows.len() / 2;
            let mut first = counted(chain, counting, rows.slice(0, half))?;
            first.extend(counted(chain, counting, rows.slice(half, rows.len() - half))?);
            Ok(first)
        }
        done => done,
    }
}

fn counted_together(chain: &Chain, counting: &Counting, mut rows: Rows) -> Result<Vec<u32>> {
    for &index in &counting.stages {
        let before = &chain.stages[index - 1];
        rows.batch = conform(&rows.batch, &before.rows_schema())?;
        rows = rows.apply(&chain.stages[index], chain.context(index, 0, 0))?;
    }
    Ok(rows.source.values().to_vec())
}

/// The columns of a schema, by name and type; nulls where the batch has none.
fn conform(batch: &RecordBatch, schema: &SchemaRef) -> Result<RecordBatch> {
    let column = |field: &FieldRef| match batch.column_by_name(field.name()) {
        Some(column) if column.data_type() == field.data_type() => column.clone(),
        _ => new_null_array(field.data_type(), batch.num_rows()),
    };
    Ok(RecordBatch::try_new(schema.clone(), schema.fields().iter().map(column).collect())?)
}
