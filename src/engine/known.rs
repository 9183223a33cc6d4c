//! What is stored of a chain: looked up shard by shard, when a shard is first needed, in the encodings that one listing
//! per stage shows.

use crate::error::{Error, Kind, Result};
use crate::format::VERSION;
use crate::format::encoding::Encoding;
use crate::format::head::Report;
use crate::format::name::Name;
use crate::format::record::{Part, Record};
use crate::id::{Digest, RecipeKey, ShardKey};
use crate::plan::chain::Chain;
use crate::plan::cut;
use crate::plan::snapshot::Snapshot;
use crate::store::Store;
use std::collections::{BTreeMap, BTreeSet};

/// The encodings in which stages are stored, at one time. Records are looked up, and reports of bad blobs heeded, as they
/// are when a shard is asked for.
pub struct Known {
    store: Store,
    encodings: BTreeMap<RecipeKey, Vec<Encoding>>,
}

impl Known {
    pub fn new(store: &Store, chains: &[Chain]) -> Result<Known> {
        let mut encodings = BTreeMap::new();
        for stage in chains.iter().flat_map(|c| &c.stages).filter(|s| s.deterministic) {
            if let std::collections::btree_map::Entry::Vacant(vacant) = encodings.entry(stage.recipe) {
                vacant.insert(store.encodings(stage.recipe)?);
            }
        }
        Ok(Known { store: store.clone(), encodings })
    }

    /// The record of a shard if all of it is there and none of it reported; one that is bad counts as missing.
    pub fn record(&self, recipe: RecipeKey, encoding: Encoding, shard: ShardKey) -> Result<Option<Record>> {
        let record = match self.store.record(recipe, encoding, shard) {
            Ok(Some(record)) => record,
            Ok(None) => return Ok(None),
            Err(error) if error.kind() == Kind::Corrupt => return Ok(None),
            Err(error) => return Err(error),
        };
        Ok(self.store.sound(&record)?.then_some(record))
    }

    /// The nearest stored stage of a partition among the chain's stages `0..end`, with its record, leaving `bad` blobs
    /// out; `None`: the source is nearest.
    pub fn nearest(
        &self,
        chain: &Chain,
        end: usize,
        snapshot: &Snapshot,
        partition: usize,
        bad: &BTreeSet<Digest>,
    ) -> Result<Option<(usize, Record)>> {
        for (index, stage) in chain.stages[..end].iter().enumerate().rev() {
            let encodings = self.encodings.get(&stage.recipe).map_or(&[][..], Vec::as_slice);
            if encodings.is_empty() {
                continue;
            }
            let shard = snapshot.shard_key(stage.recipe, partition);
            let mut records = Vec::new();
            for encoding in encodings {
                let record = self.record(stage.recipe, *encoding, shard)?;
                records.extend(record.filter(|r| !r.parts.iter().any(|p| bad.contains(&p.blob))));
            }
            let stored: Vec<cut::Stored> = records.iter().map(|r| (index, r.encoding)).collect();
            if let Some(best) = cut::nearest(&stored) {
                return Ok(records.into_iter().find(|r| r.encoding == best.1).map(|r| (index, r)));
            }
        }
        Ok(None)
    }
}

/// Reports of the parts of a shard that an error names; of all where it names none.
pub fn reports(record: &Record, error: &Error) -> Vec<Report> {
    let found = error.chain();
    let named: Vec<&Part> = record.parts.iter().filter(|p| found.contains(&p.blob.to_string())).collect();
    let blamed = if named.is_empty() { record.parts.iter().collect() } else { named };
    let name = Name::Shard { recipe: record.recipe, encoding: record.encoding, shard: record.shard }.to_string();
    let report = |part: &Part| Report { version: VERSION, blob: part.blob, record: name.clone(), found: found.clone() };
    blamed.into_iter().map(report).collect()
}
