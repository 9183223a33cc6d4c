//! A shard's record: the parts (blobs) it consists of, with a digest for every chunk, so that a ranged read of some
//! columns is verified by its chunks.

use crate::error::Result;
use crate::format::document::{Document, at_most, corrupt, equal};
use crate::format::encoding::{Container, Encoding};
use crate::id::{Digest, RecipeKey, ShardKey};
use serde::{Deserialize, Serialize};
use std::ops::Range;

/// Contents of `v1/stages/<recipe>/<encoding>/shards/<hh>/<shard-key>.json`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Record {
    pub version: u32,
    pub shard: ShardKey,
    pub recipe: RecipeKey,
    pub encoding: Encoding,
    pub rows: u64,
    /// Bytes of all parts.
    pub bytes: u64,
    /// Rows with a reason in `_error`.
    pub failed_rows: u64,
    pub parts: Vec<Part>,
    /// Wall seconds times threads that computing this stage from its source took, measured; what eviction weighs. Finite and not
    /// negative.
    pub seconds: f64,
}

/// One blob of a shard: a whole Arrow IPC or Parquet file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Part {
    pub blob: Digest,
    pub bytes: u64,
    pub rows: u64,
    /// Row groups or record batches in file order.
    pub chunks: Vec<Chunk>,
    /// Parquet: the footer (metadata, its length, magic). Arrow: everything that is not in a chunk's head or columns
    /// after the last chunk (end-of-stream, footer, length, magic).
    pub footer: Span,
}

/// One row group or record batch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Chunk {
    pub rows: u64,
    /// Arrow: the record batch's message metadata. Parquet: absent.
    pub head: Option<Span>,
    /// One span for each top-level column of the schema, in order.
    pub columns: Vec<Span>,
}

/// A range of a blob and the digest of its bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Span {
    pub offset: u64,
    pub bytes: u64,
    pub digest: Digest,
}

impl Span {
    pub fn range(&self) -> Range<u64> {
        self.offset..self.offset.saturating_add(self.bytes)
    }
}

impl Document for Record {
    const WHAT: &'static str = "shard record";
    const MAX_BYTES: u64 = 64 << 20;

    fn check(&self) -> Result<()> {
        at_most::<Self>("failed rows", self.rows, self.failed_rows)?;
        sums("parts' rows", self.rows, self.parts.iter().map(|p| p.rows))?;
        sums("parts' bytes", self.bytes, self.parts.iter().map(|p| p.bytes))?;
        if !self.seconds.is_finite() || self.seconds < 0.0 {
            return Err(corrupt::<Self>(format!("finite seconds from 0 on, found {}", self.seconds)));
        }
        let columns = self.parts.iter().flat_map(|p| &p.chunks).map(|c| c.columns.len()).next().unwrap_or(0);
        for (index, part) in self.parts.iter().enumerate() {
            part.check(self.encoding.container, columns).map_err(|e| e.during(format!("part {index}")))?;
        }
        Ok(())
    }
}

impl Part {
    fn check(&self, container: Container, columns: usize) -> Result<()> {
        sums("chunks' rows", self.rows, self.chunks.iter().map(|c| c.rows))?;
        equal::<Record, _>("a footer that ends with the part at", u128::from(self.bytes), self.footer.end())?;
        for chunk in &self.chunks {
            equal::<Record, _>("as many columns in every chunk,", columns, chunk.columns.len())?;
            if chunk.head.is_some() != (container == Container::Arrow) {
                return Err(corrupt::<Record>("a head in each chunk of Arrow and in no other"));
            }
            for span in chunk.head.iter().chain(&chunk.columns) {
                at_most::<Record>("spans within their part: an end", self.bytes, span.end())?;
            }
        }
        Ok(())
    }
}

impl Span {
    fn end(&self) -> u128 {
        u128::from(self.offset) + u128::from(self.bytes)
    }
}

fn sums(what: &str, expected: u64, values: impl Iterator<Item = u64>) -> Result<()> {
    let sum: u128 = values.map(u128::from).sum();
    equal::<Record, _>(&format!("{what} to add up to"), expected.into(), sum)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn span(offset: u64, bytes: u64) -> Span {
        Span { offset, bytes, digest: Digest::of(&offset.to_le_bytes()) }
    }

    fn record() -> Record {
        let chunk =
            |rows, at| Chunk { rows, head: Some(span(at, 8)), columns: vec![span(at + 8, 16), span(at + 24, 0)] };
        let part = |name: &str| Part {
            blob: Digest::of(name.as_bytes()),
            bytes: 100,
            rows: 5,
            chunks: vec![chunk(3, 8), chunk(2, 40)],
            footer: span(80, 20),
        };
        Record {
            version: 1,
            shard: ShardKey::from_bytes([1; 32]),
            recipe: RecipeKey::from_bytes([2; 32]),
            encoding: "arrow-none".parse().unwrap(),
            rows: 10,
            bytes: 200,
            failed_rows: 1,
            parts: vec![part("a"), part("b")],
            seconds: 1.25,
        }
    }

    #[test]
    fn records_round_trip() {
        let bytes = record().to_json();
        assert_eq!(Record::from_json(&bytes).unwrap(), record());
        assert!(bytes.ends_with(b"\n}\n"));
    }

    #[test]
    fn what_does_not_add_up_is_named() {
        let error = |change: fn(&mut Record)| {
            let mut record = record();
            change(&mut record);
            Record::from_json(&record.to_json()).unwrap_err().chain()
        };
        assert!(error(|r| r.rows = 11).contains("parts' rows to add up to 11, found 10"));
        assert!(error(|r| r.bytes = 1).contains("parts' bytes to add up to 1, found 200"));
        assert!(error(|r| r.failed_rows = 11).contains("failed rows of at most 10, found 11"));
        assert!(error(|r| r.seconds = -1.0).contains("found -1"));
        assert!(error(|r| r.seconds = f64::INFINITY).contains("its JSON fields"));
        assert!(error(|r| r.version = 0).contains("found 0"));
        assert!(error(|r| r.version = 2).contains("written by a newer Forebay: version 2, this one reads up to 1"));
        assert!(
            error(|r| r.encoding = "parquet-none".parse().unwrap())
                .contains("part 0: bad shard record: expected a head")
        );
        let chunk = |change: fn(&mut Chunk)| {
            let mut record = record();
            change(&mut record.parts[1].chunks[1]);
            Record::from_json(&record.to_json()).unwrap_err().chain()
        };
        assert!(
            chunk(|c| c.rows = 3).contains("part 1: bad shard record: expected chunks' rows to add up to 5, found 6")
        );
        assert!(chunk(|c| c.rows = u64::MAX).contains("add up to 5, found 18446744073709551618"));
        assert!(chunk(|c| c.head = None).contains("expected a head"));
        assert!(chunk(|c| c.columns.truncate(1)).contains("as many columns in every chunk, 2, found 1"));
        assert!(
            chunk(|c| c.columns[0].offset = u64::MAX).contains("an end of at most 100, found 18446744073709551631")
        );
        assert!(chunk(|c| c.columns[0].bytes = 90).contains("an end of at most 100, found 138"));
        assert!(error(|r| r.parts[0].footer.bytes = 19).contains("a footer that ends with the part"));
        assert!(error(|r| r.parts[0].footer.offset = u64::MAX).contains("a footer that ends with the part"));
    }

    #[test]
    fn damaged_bytes_never_panic() {
        crate::format::document::tests::damage(&record());
    }
}
