//! Pins: snapshots that are kept, whatever is current.

use super::{Placed, Store};
use crate::error::{Error, Result};
use crate::format::name::{self, Name};
use crate::format::root::Pin;

impl Placed for Pin {
    fn is_at(&self, name: &Name, _bytes: &[u8]) -> bool {
        matches!(name, Name::Pin { pin } if pin.as_str() == self.name)
    }
}

impl Store {
    /// Publishes a pin. One of that name that keeps something else is a `Conflict`.
    pub fn pin(&self, pin: &Pin) -> Result<()> {
        let name = Name::Pin { pin: pin.name.parse()? };
        let found = self.put(&name, pin, |_| Ok(true))?;
        if found == *pin {
            return Ok(());
        }
        Err(Error::conflict(format!(
            "the name {:?} pins snapshot {} of pipeline {:?} already: give another name, or `forebay unpin` it first",
            pin.name,
            found.snapshot.short(),
            found.pipeline
        )))
    }

    /// False where there is no such pin.
    pub fn unpin(&self, pin: &str) -> Result<bool> {
        let object = Name::Pin { pin: pin.parse()? }.to_string();
        // One that is damaged goes as well.
        let there = super::heads::sound(self.storage.bytes(&object))?.is_none_or(|bytes| bytes.is_some());
        self.storage.delete(&object)?;
        Ok(there)
    }

    /// By name. One that is damaged is an error: what it keeps isn't known.
    pub fn pins(&self) -> Result<Vec<Pin>> {
        let objects = self.storage.list(&name::pins())?;
        let names = objects.iter().filter_map(|object| object.name.parse().ok());
        names.filter_map(|name| self.read(&name).transpose()).collect()
    }
}
