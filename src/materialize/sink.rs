//! Rows of one stage of one partition to the parts of a shard: chunks are encoded on the pool, written in order.

use crate::engine::chunk::Chunker;
use crate::engine::pool::{Pending, Pool};
use crate::engine::rows::Rows;
use crate::error::Result;
use crate::format::encoding::Encoding;
use crate::format::record::{Part, Record};
use crate::format::shard::{CHUNK_BYTES, EncodedChunk, Encoder, PART_BYTES, PartWriter};
use crate::id::{RecipeKey, ShardKey};
use crate::io::Spool;
use crate::store::Store;
use arrow::array::{Array, RecordBatch};
use arrow::datatypes::SchemaRef;
use std::collections::VecDeque;
use std::sync::Arc;

pub struct Sink {
    schema: SchemaRef,
    encoder: Arc<Encoder>,
    chunker: Chunker,
    encoding: VecDeque<Pending<EncodedChunk>>,
    writer: Option<PartWriter<Spool>>,
    /// Finished parts, not yet published: a shard that is given up leaves nothing behind.
    parts: Vec<(Spool, Part)>,
    rows: u64,
    failed_rows: u64,
    pub seconds: f64,
}

impl Sink {
    pub fn new(schema: SchemaRef, encoding: Encoding) -> Result<Sink> {
        Ok(Sink {
            encoder: Arc::new(Encoder::new(schema.clone(), encoding)?),
            chunker: Chunker::new(CHUNK_BYTES),
            schema,
            encoding: VecDeque::new(),
            writer: None,
            parts: Vec::new(),
            rows: 0,
            failed_rows: 0,
            seconds: 0.0,
        })
    }

    pub fn failed_rows(&self) -> u64 {
        self.failed_rows
    }

    /// Counts rows without storing them, once the shard is known not to be published.
    pub fn count(&mut self, rows: &Rows) -> Result<()> {
        let errors = rows.errors()?;
        self.rows += rows.len() as u64;
        self.failed_rows += (errors.len() - errors.null_count()) as u64;
        Ok(())
    }

    pub fn push(&mut self, rows: &Rows, pool: &Pool, store: &Store) -> Result<()> {
        self.count(rows)?;
        for chunk in self.chunker.push(rows.to_stored(&self.schema)?) {
            self.encode(chunk, pool);
        }
        while self.encoding.len() > pool.threads() + 1 {
            self.write_next(store)?;
        }
        Ok(())
    }

    /// Publishes the shard: its blobs, then its record. Returns the record in force.
    pub fn publish(mut self, pool: &Pool, store: &Store, recipe: RecipeKey, shard: ShardKey) -> Result<Record> {
        if let Some(chunk) = self.chunker.finish() {
            self.encode(chunk, pool);
        }
        while !self.encoding.is_empty() {
            self.write_next(store)?;
        }
        if self.writer.is_some() || self.parts.is_empty() {
            self.writer(store)?;
            self.close_part()?;
        }
        let encoding = self.encoder.encoding;
        let mut parts = Vec::with_capacity(self.parts.len());
        for (spool, part) in self.parts {
            store.put_part(spool, &part, encoding.container)?;
            parts.push(part);
        }
        let record = Record {
            version: crate::format::VERSION,
            shard,
            recipe,
            encoding,
            rows: self.rows,
            bytes: parts.iter().map(|p| p.bytes).sum(),
            failed_rows: self.failed_rows,
            parts,
            seconds: self.seconds,
        };
        store.put_record(&record)
    }

    fn encode(&mut self, chunk: Vec<RecordBatch>, pool: &Pool) {
        let encoder = self.encoder.clone();
        self.encoding.push_back(pool.start(move || encoder.encode_parts(&chunk)));
    }

    fn write_next(&mut self, store: &Store) -> Result<()> {
        let Some(pending) = self.encoding.pop_front() else { return Ok(()) };
        let chunk = pending.wait()?;
        let writer = self.writer(store)?;
        writer.append(chunk)?;
        if writer.bytes() >= PART_BYTES {
            self.close_part()?;
        }
        Ok(())
    }

    fn writer(&mut self, store: &Store) -> Result<&mut PartWriter<Spool>> {
        if self.writer.is_none() {
            self.writer = Some(self.encoder.part(store.spool()?)?);
        }
        Ok(self.writer.as_mut().expect("set above"))
    }

    fn close_part(&mut self) -> Result<()> {
        if let Some(writer) = self.writer.take() {
            self.parts.push(writer.finish()?);
        }
        Ok(())
    }
}
