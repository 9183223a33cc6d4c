//! Memory for batches and decoded chunks, used again once nobody holds them: fresh memory costs the system more than
//! filling it does.

use crate::error::{Error, Result};
use arrow::buffer::Buffer;
use bytes::Bytes;
use std::sync::{Arc, Mutex, PoisonError};

/// Buffers kept for later at most.
const KEPT: usize = 8;
/// Smaller ones are not worth keeping.
const LEAST: usize = 256 << 10;

#[derive(Debug, Clone, Default)]
pub struct Recycler {
    free: Arc<Mutex<Vec<Vec<u8>>>>,
}

impl Recycler {
    /// An empty vector with room for `bytes`. `Invalid` where there is no such memory.
    pub fn take(&self, bytes: usize) -> Result<Vec<u8>> {
        let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        // The last one used is the likeliest to be in a cache; one that is far too large stays for others.
        let fits = |buffer: &Vec<u8>| buffer.capacity() >= bytes && buffer.capacity() / 2 <= bytes;
        if let Some(found) = free.iter().rposition(fits) {
            return Ok(free.remove(found));
        }
        drop(free);
        let mut buffer = Vec::new();
        // The next one may be a little larger.
        let room = if bytes < LEAST { bytes } else { bytes.next_multiple_of(LEAST) };
        buffer.try_reserve_exact(room).map_err(|e| {
            Error::invalid(format!("there is no memory for a column of {bytes} bytes; lower the batch size"))
                .caused_by(e)
        })?;
        Ok(buffer)
    }

    /// The bytes as a buffer whose memory comes back when it is dropped.
    pub fn lend(&self, bytes: Vec<u8>) -> Buffer {
        if bytes.capacity() < LEAST {
            return Buffer::from_vec(bytes);
        }
        Buffer::from(Bytes::from_owner(Lent { bytes, free: self.free.clone() }))
    }
}

struct Lent {
    bytes: Vec<u8>,
    free: Arc<Mutex<Vec<Vec<u8>>>>,
}

impl AsRef<[u8]> for Lent {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        let mut bytes = std::mem::take(&mut self.bytes);
        bytes.clear();
        let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        if free.len() == KEPT {
            free.remove(0);
        }
        free.push(bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_comes_back_once_nobody_holds_it() {
        let recycler = Recycler::default();
        let mut bytes = recycler.take(LEAST).unwrap();
        bytes.resize(LEAST, 7);
        let (at, buffer) = (bytes.as_ptr(), recycler.lend(bytes));
        assert_eq!(buffer.as_ptr(), at);
        let slice = buffer.slice(10);
        drop(buffer);
        assert!(recycler.free.lock().unwrap().is_empty());
        assert_eq!(slice[0], 7);
        drop(slice);
        let again = recycler.take(LEAST - 5).unwrap();
        assert!(again.is_empty() && again.as_ptr() == at);
        // Nothing that was asked for twice over, and no more than a few.
        drop(recycler.lend(again));
        let small = recycler.take(10).unwrap();
        assert_ne!(small.as_ptr(), at);
        let many: Vec<_> = (0..20).map(|_| recycler.lend(recycler.take(LEAST).unwrap())).collect();
        drop(many);
        assert_eq!(recycler.free.lock().unwrap().len(), KEPT);
    }
}
