//! What a snapshot, a stage or a recipe leads to, by name: found from one listing of the store, from manifests where they are
//! younger than the records that they sum up, and from records else.

use super::Store;
use super::blobs::part_name;
use super::heads::sound;
use crate::error::{Error, Kind, Result};
use crate::format::encoding::Encoding;
use crate::format::head::{ManifestHead, OrderHead, PipelineHead, SnapshotHead, TableRef};
use crate::format::name::{self, Name};
use crate::format::record::Record;
use crate::format::table::ShardRow;
use crate::id::{RecipeKey, SnapshotId};
use crate::plan::snapshot::Snapshot;
use rayon::prelude::*;
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// All objects of a store whose names this version knows, as one listing showed them.
pub struct Index {
    objects: HashMap<Name, Seen>,
    encodings: BTreeMap<RecipeKey, BTreeSet<Encoding>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Seen {
    pub bytes: u64,
    /// By the store's clock.
    pub modified_ms: i64,
}

/// Records are read by so many requests at a time.
const REQUESTS: usize = 16;

impl Index {
    pub fn new(store: &Store) -> Result<Index> {
        let mut index = Index { objects: HashMap::new(), encodings: BTreeMap::new() };
        for object in store.storage.list(name::ROOT)? {
            let Ok(name) = object.name.parse::<Name>() else { continue };
            if let Name::Shard { recipe, encoding, .. } | Name::Manifest { recipe, encoding, .. } = name {
                index.encodings.entry(recipe).or_default().insert(encoding);
            }
            index.objects.insert(name, Seen { bytes: object.bytes, modified_ms: object.modified_ms });
        }
        Ok(index)
    }

    pub fn get(&self, name: &Name) -> Option<Seen> {
        self.objects.get(name).copied()
    }

    pub fn iter(&self) -> impl Iterator<Item = (&Name, Seen)> {
        self.objects.iter().map(|(name, seen)| (name, *seen))
    }

    pub fn bytes<'a>(&self, names: impl IntoIterator<Item = &'a Name>) -> u64 {
        names.into_iter().filter_map(|name| self.get(name)).map(|seen| seen.bytes).sum()
    }

    /// The encodings in which anything of a recipe is stored.
    pub fn encodings(&self, recipe: RecipeKey) -> impl Iterator<Item = Encoding> {
        self.encodings.get(&recipe).into_iter().flatten().copied()
    }
}

pub struct Reach<'a> {
    store: &'a Store,
    pub index: &'a Index,
    pool: rayon::ThreadPool,
}

impl<'a> Reach<'a> {
    pub fn new(store: &'a Store, index: &'a Index) -> Result<Reach<'a>> {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(REQUESTS).build();
        let pool = pool.map_err(|e| Error::unavailable("cannot start threads: lower their number").caused_by(e))?;
        Ok(Reach { store, index, pool })
    }

    /// A head, and that it is what its name says; `None` where it was removed since it was listed.
    pub fn pipeline_head(&self, name: &Name) -> Result<Option<PipelineHead>> {
        self.store.read(name)
    }

    pub fn snapshot_head(&self, name: &Name) -> Result<Option<SnapshotHead>> {
        self.store.read(name)
    }

    /// The entries of a snapshot, whose head leads to them.
    pub fn snapshot(&self, head: &SnapshotHead) -> Result<Snapshot> {
        let snapshot = Snapshot::of(self.store.entries(head)?)?;
        match snapshot.id == head.snapshot {
            true => Ok(snapshot),
            false => Err(Error::corrupt(format!("the entries of snapshot {} hash to {}", head.snapshot, snapshot.id))),
        }
    }

    /// The order of a snapshot at a stage, with its table.
    pub fn order(&self, recipe: RecipeKey, snapshot: SnapshotId) -> Result<Vec<Name>> {
        let name = Name::Order { recipe, snapshot };
        if self.index.get(&name).is_none() {
            return Ok(Vec::new());
        }
        let head = sound(self.store.read::<OrderHead>(&name))?.flatten();
        Ok(std::iter::once(name).chain(head.map(|head| Name::table(head.table.blob))).collect())
    }

    /// What is stored of a snapshot at a stage in one encoding: manifest, records and blobs.
    pub fn stage(&self, recipe: RecipeKey, encoding: Encoding, snapshot: &Snapshot) -> Result<Vec<Name>> {
        let manifest = Name::Manifest { recipe, encoding, snapshot: snapshot.id };
        let (mut found, rows) = self.manifest(&manifest)?;
        let since = self.index.get(&manifest).map_or(i64::MIN, |seen| seen.modified_ms);
        let rows: HashMap<_, &ShardRow> = rows.iter().map(|row| (row.shard, row)).collect();
        let mut unread = Vec::new();
        for partition in 0..snapshot.partitions() {
            let shard = snapshot.shard_key(recipe, partition);
            let record = Name::Shard { recipe, encoding, shard };
            let Some(seen) = self.index.get(&record) else { continue };
            match rows.get(&shard) {
                // What a manifest sums up isn't changed later without the record being younger.
                Some(row) if seen.modified_ms < since => {
                    let container = encoding.container;
                    found.extend(row.blobs.iter().map(|digest| Name::Blob { digest: *digest, container }));
                    found.push(record);
                }
                _ => unread.push(record),
            }
        }
        found.extend(self.records(unread)?);
        Ok(found)
    }

    /// All that lies below a recipe, and the blobs of which it consists.
    pub fn recipe(&self, recipe: RecipeKey) -> Result<Vec<Name>> {
        let (mut found, mut records) = (Vec::new(), Vec::new());
        for (name, _) in self.index.iter() {
            match name {
                Name::Recipe { recipe: of } if *of == recipe => found.push(name.clone()),
                Name::Order { recipe: of, snapshot } if *of == recipe => found.extend(self.order(recipe, *snapshot)?),
                Name::Manifest { recipe: of, .. } if *of == recipe => found.extend(self.manifest(name)?.0),
                Name::Shard { recipe: of, .. } if *of == recipe => records.push(name.clone()),
                _ => {}
            }
        }
        found.extend(self.records(records)?);
        Ok(found)
    }

    /// A manifest with its table, and the table's rows; none where it isn't there or is damaged.
    fn manifest(&self, name: &Name) -> Result<(Vec<Name>, Vec<ShardRow>)> {
        if self.index.get(name).is_none() {
            return Ok((Vec::new(), Vec::new()));
        }
        let Some(head) = sound(self.store.read::<ManifestHead>(name))?.flatten() else {
            return Ok((vec![name.clone()], Vec::new()));
        };
        let rows = sound(self.store.shard_rows(&head))?.unwrap_or_default();
        Ok((vec![name.clone(), Name::table(head.table.blob)], rows))
    }

    /// Records and their parts. Of one that is damaged nothing is known but its name.
    fn records(&self, names: Vec<Name>) -> Result<Vec<Name>> {
        let read = |name: &Name| -> Result<Vec<Name>> {
            let record = sound(self.store.read::<Record>(name))?.flatten();
            let parts = record.iter().flat_map(|record| {
                let container = record.encoding.container;
                record.parts.iter().filter_map(move |part| part_name(part, container).parse().ok())
            });
            Ok(std::iter::once(name.clone()).chain(parts).collect())
        };
        let found = self.pool.install(|| names.par_iter().map(read).collect::<Result<Vec<_>>>())?;
        Ok(found.into_iter().flatten().collect())
    }

    /// What computing shards took, in seconds.
    pub fn seconds<'n>(&self, names: impl IntoIterator<Item = &'n Name>) -> Result<f64> {
        let records: Vec<&Name> = names.into_iter().filter(|name| matches!(name, Name::Shard { .. })).collect();
        let read = |name: &&Name| Ok(sound(self.store.read::<Record>(name))?.flatten().map_or(0.0, |r| r.seconds));
        self.pool.install(|| records.par_iter().map(read).collect::<Result<Vec<f64>>>()).map(|s| s.iter().sum())
    }
}

/// A table of a head.
pub fn table_of(table: &TableRef) -> Name {
    Name::table(table.blob)
}

/// Whether nothing can be known of an object, as it is damaged.
pub fn is_damaged(error: &Error) -> bool {
    matches!(error.kind(), Kind::Corrupt | Kind::NotFound)
}
