//! Keys of meaning: recipes, shards, snapshots and orders. Each is the hash of a canonical value that `formats/keys.md`
//! specifies; rows are streamed into the hash, so that a million entries need no tree.

use crate::error::Result;
use crate::format::canonical::{self, Domain, Value, Writer};
use crate::format::entry::{Entry, Range};
use crate::format::schema;
use crate::format::table::{Entries, OrderRow};
use crate::id::{OrderId, RecipeKey, ShardKey, SnapshotId};
use crate::step;
use arrow::datatypes::Schema;
use std::fmt::Write;

/// The form of recipe documents; a change of it changes every recipe key.
const RECIPE_FORMAT: u64 = 1;

/// The recipe's document; its hash is the key. `source`: `Source::describe`; `input`: the resolved input schema. Names of
/// stages, spans and the source's URL aren't in it.
pub fn recipe_document(source: &Value, input: &Schema, steps: &[&step::Info]) -> Value {
    Value::map([
        ("format", Value::from(RECIPE_FORMAT)),
        ("source", source.clone()),
        ("input", schema::canonical(input)),
        ("steps", Value::List(steps.iter().copied().map(step_value).collect())),
    ])
}

/// The document of a recipe that is one step longer.
pub fn longer_document(document: &Value, step: &step::Info) -> Value {
    let mut longer = document.clone();
    if let Value::Map(terms) = &mut longer
        && let Some(Value::List(steps)) = terms.get_mut("steps")
    {
        steps.push(step_value(step));
    }
    longer
}

/// Name and version of each step of a document.
pub fn document_steps(document: &Value) -> impl DoubleEndedIterator<Item = (&str, i128)> {
    let steps = match document {
        Value::Map(terms) => terms.get("steps"),
        _ => None,
    };
    let steps = if let Some(Value::List(steps)) = steps { steps.as_slice() } else { &[] };
    steps.iter().filter_map(|step| match step {
        Value::Map(terms) => match (terms.get("name"), terms.get("version")) {
            (Some(Value::Str(name)), Some(Value::Int(version))) => Some((name.as_str(), *version)),
            _ => None,
        },
        _ => None,
    })
}

fn step_value(info: &step::Info) -> Value {
    Value::map([
        ("name", Value::from(info.name)),
        ("version", u64::from(info.version).into()),
        ("params", info.params.clone()),
    ])
}

/// Errors with `Invalid` on a parameter that is NaN or an infinity.
pub fn recipe_key(document: &Value) -> Result<RecipeKey> {
    Ok(RecipeKey::from_bytes(canonical::hash(Domain::Recipe, document)?))
}

/// `entries`: those of one partition, in order.
pub fn shard_key(recipe: RecipeKey, entries: &[Entry]) -> ShardKey {
    let mut rows = Rows::new(Domain::Shard);
    rows.writer.list(2);
    rows.text(recipe);
    rows.writer.list(entries.len());
    for entry in entries {
        rows.writer.list(3);
        let (identity, range) = entry.meaning();
        rows.writer.str(&entry.key);
        rows.text(identity);
        rows.range(range);
    }
    ShardKey::from_bytes(rows.writer.finish())
}

/// Of every row: key, file, identity, range and partition.
pub fn snapshot_id(entries: &Entries) -> SnapshotId {
    let mut rows = Rows::new(Domain::Snapshot);
    rows.writer.list(entries.entries.len());
    for entry in &entries.entries {
        rows.writer.list(5);
        rows.writer.str(&entry.key);
        match &entry.file {
            None => rows.writer.null(),
            Some(file) => rows.writer.str(file),
        }
        rows.text(&entry.identity);
        rows.range(entry.range);
        rows.writer.int(entry.partition.into());
    }
    SnapshotId::from_bytes(rows.writer.finish())
}

/// Key, range and partition of every entry, then the counts and row maps of every partition; no identities, so that the
/// order outlives a change of contents.
pub fn order_id(entries: &[Entry], rows: &[OrderRow]) -> OrderId {
    let mut hash = Rows::new(Domain::Order);
    hash.writer.list(2);
    hash.writer.list(entries.len());
    for entry in entries {
        hash.writer.list(3);
        hash.writer.str(&entry.key);
        hash.range(entry.range);
        hash.writer.int(entry.partition.into());
    }
    hash.writer.list(rows.len());
    for row in rows {
        hash.writer.list(3);
        hash.writer.int(row.partition.into());
        hash.writer.int(row.rows.into());
        match &row.row_map {
            None => hash.writer.null(),
            Some(map) => {
                hash.writer.list(map.len());
                map.iter().for_each(|source| hash.writer.int((*source).into()));
            }
        }
    }
    OrderId::from_bytes(hash.writer.finish())
}

/// A canonical writer and what it needs for the parts of an entry.
struct Rows {
    writer: Writer,
    text: String,
}

impl Rows {
    fn new(domain: Domain) -> Self {
        Rows { writer: Writer::new(domain), text: String::new() }
    }

    /// The text form as a string.
    fn text(&mut self, value: impl std::fmt::Display) {
        self.text.clear();
        // Writing to memory can't fail.
        let _ = write!(self.text, "{value}");
        self.writer.str(&self.text);
    }

    fn range(&mut self, range: Option<Range>) {
        let (kind, from, to) = match range {
            None => return self.writer.null(),
            Some(Range::Bytes { start, end }) => ("bytes", start, Some(end)),
            Some(Range::Group(number)) => ("group", number, None),
            Some(Range::Rows { start, end }) => ("rows", start, Some(end)),
        };
        self.writer.list(if to.is_some() { 3 } else { 2 });
        self.writer.str(kind);
        self.writer.int(from.into());
        if let Some(to) = to {
            self.writer.int(to.into());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::entry::Identity;
    use crate::id::Digest;
    use arrow::datatypes::{DataType, Field};
    use std::collections::HashMap;

    fn entry(key: &str) -> Entry {
        let identity = Identity::Content(Digest::of(key.as_bytes()));
        Entry { key: key.into(), file: None, identity, range: None, bytes: 1, rows: 1, partition: 0 }
    }

    fn changed(change: impl Fn(&mut Entry)) -> Vec<Entry> {
        let mut entries = vec![entry("a"), entry("b")];
        change(&mut entries[1]);
        entries
    }

    fn keys(entries: Vec<Entry>) -> (ShardKey, SnapshotId, OrderId) {
        let rows = [OrderRow { partition: 0, rows: 2, row_map: None }];
        let (shard, order) = (shard_key(RecipeKey::from_bytes([1; 32]), &entries), order_id(&entries, &rows));
        (shard, snapshot_id(&Entries { entries, carried: None }), order)
    }

    #[test]
    fn each_key_changes_with_its_terms_and_with_nothing_else() {
        let base = keys(changed(|_| ()));
        // (shard, snapshot, order) differ?
        let differ = |change: fn(&mut Entry)| {
            let (shard, snapshot, order) = keys(changed(change));
            (shard != base.0, snapshot != base.1, order != base.2)
        };
        assert_eq!(differ(|e| e.key = "c".into()), (true, true, true));
        assert_eq!(differ(|e| e.identity = Identity::Absent), (true, true, false));
        assert_eq!(differ(|e| e.file = Some("f".into())), (false, true, false));
        assert_eq!(differ(|e| e.partition = 1), (false, true, true));
        assert_eq!(differ(|e| e.range = Some(Range::Bytes { start: 0, end: 1 })), (false, true, true));
        assert_eq!(differ(|e| e.range = Some(Range::Rows { start: 0, end: 1 })), (true, true, true));
        assert_eq!(differ(|e| e.range = Some(Range::Group(0))), (true, true, true));
        assert_eq!(differ(|e| (e.bytes, e.rows) = (9, 9)), (false, false, false));
        let etag = |range| {
            let identity = Identity::Etag { etag: "x".into(), bytes: 1 };
            keys(changed(|e| (e.identity, e.range) = (identity.clone(), range))).0
        };
        assert_ne!(etag(None), etag(Some(Range::Bytes { start: 0, end: 1 })));
        assert_ne!(keys(vec![entry("a"), entry("b")]).0, keys(vec![entry("b"), entry("a")]).0);
    }

    #[test]
    fn an_order_changes_with_counts_and_row_maps() {
        let id = |rows, row_map: Option<Vec<u32>>| order_id(&[entry("a")], &[OrderRow { partition: 0, rows, row_map }]);
        let ids = [id(2, None), id(3, None), id(2, Some(vec![0, 1])), id(2, Some(vec![0, 0])), id(0, Some(vec![]))];
        for (i, one) in ids.iter().enumerate() {
            assert!(ids[i + 1..].iter().all(|other| one != other));
        }
    }

    #[test]
    fn a_recipe_is_what_is_done_not_what_it_is_called() {
        let info = |params| step::Info {
            name: "image.resize",
            version: 1,
            purity: step::Purity::Deterministic,
            cardinality: step::Cardinality::OneToOne,
            reads: vec!["image".into()],
            writes: vec!["image".into()],
            params,
        };
        let key = |field: Field, infos: &[step::Info]| {
            let schema = Schema::new(vec![field]);
            recipe_key(&recipe_document(&Value::from("files"), &schema, &infos.iter().collect::<Vec<_>>())).unwrap()
        };
        let field = || Field::new("image", DataType::LargeBinary, true);
        let base = key(field(), &[info(Value::Null)]);
        let metadata = |name: &str| field().with_metadata(HashMap::from([(name.to_owned(), "x".to_owned())]));
        assert_eq!(base, key(metadata("note"), &[info(Value::Null)]));
        assert_eq!(base, key(field(), &[step::Info { reads: vec![], ..info(Value::Null) }]));
        assert_ne!(base, key(metadata("ARROW:extension:name"), &[info(Value::Null)]));
        assert_ne!(base, key(field().with_nullable(false), &[info(Value::Null)]));
        assert_ne!(base, key(field(), &[]));
        assert_ne!(base, key(field(), &[info(Value::from(1u64))]));
        assert_ne!(base, key(field(), &[step::Info { version: 2, ..info(Value::Null) }]));
    }
}
