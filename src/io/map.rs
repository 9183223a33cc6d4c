//! Mapping a file read-only as a buffer that keeps the mapping alive: the one place in `io` with `unsafe`.
#![expect(unsafe_code, reason = "a mapping is memory that the compiler cannot know to be constant")]

use arrow::alloc::Allocation;
use arrow::buffer::Buffer;
use memmap2::MmapOptions;
use std::fs::File;
use std::io;
use std::ptr::NonNull;
use std::sync::Arc;

/// The first `bytes` bytes of `file`, which must have at least as many. The buffer is aligned to a page.
pub(super) fn map(file: &File, bytes: usize) -> io::Result<Buffer> {
    if bytes == 0 {
        // A mapping can't be empty.
        return Ok(Buffer::default());
    }
    // SAFETY: objects never change once they have a name: they are published whole, and replaced only by renaming another
    // file over the name, which leaves this one as it is for as long as it is mapped. Only another program that writes
    // into or truncates a store's files could break that, as with every mapped file.
    let mapping = Arc::new(unsafe { MmapOptions::new().len(bytes).map(file)? });
    let start = NonNull::new(mapping.as_ptr().cast_mut()).ok_or(io::ErrorKind::OutOfMemory)?;
    // SAFETY: `start..start + bytes` is the mapping, which the buffer owns a share of and never writes to.
    Ok(unsafe { Buffer::from_custom_allocation(start, bytes, mapping) })
}

/// The same bytes, which keep `owner` alive.
pub(super) fn owned(buffer: &Buffer, owner: Arc<impl Allocation + 'static>) -> Buffer {
    let Some(start) = NonNull::new(buffer.as_ptr().cast_mut()) else { return buffer.clone() };
    // SAFETY: `start..start + len` is what `buffer` points to, which the new buffer owns a share of and never writes to.
    unsafe { Buffer::from_custom_allocation(start, buffer.len(), Arc::new((buffer.clone(), owner))) }
}
