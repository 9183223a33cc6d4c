//! Blobs (parts of shards, and tables) and the reports that a blob is bad.

use super::heads::sound;
use super::{Placed, Store};
use crate::error::{Error, Kind, Result};
use crate::format::encoding::Container;
use crate::format::head::{Report, TableRef};
use crate::format::name::{self, Name};
use crate::format::record::Part;
use crate::format::shard::PartBytes;
use crate::id::Digest;
use crate::io::{Object, Put, Spool};
use arrow::buffer::Buffer;

impl Placed for Report {
    fn is_at(&self, name: &Name, _bytes: &[u8]) -> bool {
        *name == Name::Report { blob: self.blob }
    }
}

impl Store {
    /// Publishes a part's blob. One that exists with another length, or is reported bad, is replaced; a report goes once the
    /// new blob was read back.
    pub fn put_part(&self, spool: Spool, part: &Part, container: Container) -> Result<()> {
        let object = part_name(part, container);
        if spool.bytes() != part.bytes {
            return Err(Error::internal(format!(
                "{object} should have {} bytes, but {} were written",
                part.bytes,
                spool.bytes()
            )));
        }
        self.await_clear(&object)?;
        let reported = self.reported(part.blob)?;
        // What a killed writer left is made young, so that a collection sees that it is used again.
        let unfit = |found: Object| found.bytes != part.bytes || !self.is_ours(found.modified_ms);
        let bad = reported || sound(self.storage.stat(&object))?.flatten().is_some_and(unfit);
        match self.storage.publish(spool, &object, bad)? {
            Put::Exists { bytes } if bytes != part.bytes => {
                return Err(Error::conflict(format!(
                    "{object} was just published with {bytes} bytes, expected {}: try again",
                    part.bytes
                )));
            }
            Put::Created | Put::Exists { .. } => {}
        }
        if !reported {
            return Ok(());
        }
        let found = Digest::of(&self.storage.map(&object, part.bytes)?);
        if found != part.blob {
            return Err(Error::corrupt(format!(
                "{object} was just replaced, but its bytes have the digest {found}: the disk doesn't keep what is written"
            )));
        }
        self.clear_report(part.blob)
    }

    /// A part's blob, mapped, or to be fetched as it is used. `NotFound`, or `Corrupt` where the length differs, now or then.
    pub fn part(&self, part: &Part, container: Container) -> Result<PartBytes> {
        self.storage.part(&part_name(part, container), part.bytes)
    }

    /// Whether a part's blob is there with its length, not reported bad and not about to be removed.
    pub(super) fn part_is_sound(&self, part: &Part, container: Container) -> Result<bool> {
        let object = part_name(part, container);
        let bytes = sound(self.storage.bytes(&object))?.flatten();
        Ok(bytes == Some(part.bytes) && !self.is_doomed(&object)? && !self.reported(part.blob)?)
    }

    /// Publishes a table's bytes. Tables are small enough to be read again: one that is there under the same name with
    /// other bytes is replaced.
    pub fn put_table(&self, bytes: Vec<u8>, rows: u64) -> Result<TableRef> {
        let table = TableRef { blob: Digest::of(&bytes), bytes: bytes.len() as u64, rows };
        let object = Name::table(table.blob).to_string();
        self.await_clear(&object)?;
        let young =
            || -> Result<bool> { Ok(self.storage.stat(&object)?.is_some_and(|found| self.is_ours(found.modified_ms))) };
        if self.storage.put(&bytes, &object, false)? != Put::Created && !(young()? && self.table_is_sound(&table)?) {
            self.storage.put(&bytes, &object, true)?;
        }
        Ok(table)
    }

    /// A table's bytes, verified. `NotFound`, or `Corrupt` where length or digest differ.
    pub fn table(&self, table: &TableRef) -> Result<Buffer> {
        let object = Name::table(table.blob).to_string();
        let bytes = self.storage.map(&object, table.bytes)?;
        let found = Digest::of(&bytes);
        if found != table.blob {
            return Err(Error::corrupt(format!("its bytes have the digest {found}")));
        }
        Ok(bytes)
    }

    pub(super) fn table_is_sound(&self, table: &TableRef) -> Result<bool> {
        Ok(sound(self.table(table))?.is_some())
    }

    /// Says that a blob is bad, so that the next writer replaces it.
    pub fn report(&self, report: &Report) -> Result<()> {
        self.put(&Name::Report { blob: report.blob }, report, |_| Ok(true)).map(drop)
    }

    /// Reports that can be read, by blob. One that can't still counts: its name alone says which blob is bad, and `sound`
    /// goes by names.
    pub fn reports(&self) -> Result<Vec<Report>> {
        let mut reports = Vec::new();
        for blob in self.reported_blobs()? {
            match self.read(&Name::Report { blob }) {
                Ok(report) => reports.extend(report),
                Err(error) if error.kind() == Kind::Corrupt => {}
                Err(error) => return Err(error),
            }
        }
        Ok(reports)
    }

    pub fn clear_report(&self, blob: Digest) -> Result<()> {
        self.storage.delete(&Name::Report { blob }.to_string())
    }

    pub fn reported_blobs(&self) -> Result<Vec<Digest>> {
        let objects = self.storage.list(&name::reports())?;
        Ok(objects
            .iter()
            .filter_map(|object| match object.name.parse() {
                Ok(Name::Report { blob }) => Some(blob),
                _ => None,
            })
            .collect())
    }

    fn reported(&self, blob: Digest) -> Result<bool> {
        match self.storage.bytes(&Name::Report { blob }.to_string()) {
            Err(error) if error.kind() == Kind::Corrupt => Ok(true),
            bytes => Ok(bytes?.is_some()),
        }
    }
}

pub(super) fn part_name(part: &Part, container: Container) -> String {
    Name::Blob { digest: part.blob, container }.to_string()
}
