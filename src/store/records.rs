//! Records: which blobs a shard consists of in one encoding, and what is stored of a recipe.

use super::kept::Moment;
use super::{Placed, Store};
use crate::error::{Error, Result};
use crate::format::encoding::Encoding;
use crate::format::name::{self, Name};
use crate::format::record::Record;
use crate::format::table::ShardRow;
use crate::id::{RecipeKey, ShardKey};

impl Placed for Record {
    fn is_at(&self, name: &Name, _bytes: &[u8]) -> bool {
        *name == record_name(self)
    }
}

impl Store {
    /// Publishes a record once its blobs are there. Where another is there: adopted if it is sound (parses, same shard and recipe, every
    /// blob there with its length, none reported) and doesn't contradict this one, which was just computed; else replaced. Returns the
    /// record in force.
    pub fn put_record(&self, record: &Record) -> Result<Record> {
        self.await_clear(&record_name(record).to_string())?;
        if !self.sound(record)? {
            return Err(Error::unavailable(format!(
                "cannot publish {}: a blob of it is gone, was reported bad or is about to be removed since it was written; try again",
                record_name(record)
            )));
        }
        let (begun, pace) = (Moment::now(), self.pace());
        let found = self.put(&record_name(record), record, |found| Ok(agree(found, record) && self.sound(found)?))?;
        // A disk or service that took its time: a collection may have begun and ended meanwhile.
        if pace.is_some_and(|pace| begun.elapsed() > pace.look) && !self.sound(&found)? {
            return Err(Error::unavailable(format!(
                "{} was published so slowly that a collection has removed a blob of it meanwhile; try again",
                record_name(record)
            )));
        }
        Ok(found)
    }

    /// `None` where there is none; a bad one is `Corrupt`.
    pub fn record(&self, recipe: RecipeKey, encoding: Encoding, shard: ShardKey) -> Result<Option<Record>> {
        self.read(&Name::Shard { recipe, encoding, shard })
    }

    /// Whether every part is there with its length, none is reported bad, and nothing of it is about to be removed.
    pub fn sound(&self, record: &Record) -> Result<bool> {
        if self.is_doomed(&record_name(record).to_string())? {
            return Ok(false);
        }
        for part in &record.parts {
            if !self.part_is_sound(part, record.encoding.container)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Shards of which there is a record, by key, without looking into any.
    pub fn records(&self, recipe: RecipeKey, encoding: Encoding) -> Result<Vec<ShardKey>> {
        let objects = self.storage.list(&name::shards(recipe, encoding))?;
        Ok(objects
            .iter()
            .filter_map(|object| match object.name.parse() {
                Ok(Name::Shard { shard, .. }) => Some(shard),
                _ => None,
            })
            .collect())
    }

    /// Encodings in which anything of a recipe is stored.
    pub fn encodings(&self, recipe: RecipeKey) -> Result<Vec<Encoding>> {
        let directories = self.storage.list_directories(&name::stage(recipe))?;
        Ok(directories.iter().filter_map(|d| d.parse().ok()).collect())
    }
}

/// Whether two records of one shard may both be true: equal keys mean equal rows, and of the same blobs there is one thing to say.
fn agree(a: &Record, b: &Record) -> bool {
    let blobs = |record: &Record| record.parts.iter().map(|part| part.blob).collect::<Vec<_>>();
    (a.rows, a.failed_rows) == (b.rows, b.failed_rows) && (a.parts == b.parts || blobs(a) != blobs(b))
}

/// What a manifest says of a shard.
pub fn shard_row(partition: u32, record: &Record) -> ShardRow {
    ShardRow {
        partition,
        shard: record.shard,
        rows: record.rows,
        bytes: record.bytes,
        failed_rows: record.failed_rows,
        blobs: record.parts.iter().map(|part| part.blob).collect(),
    }
}

fn record_name(record: &Record) -> Name {
    Name::Shard { recipe: record.recipe, encoding: record.encoding, shard: record.shard }
}
