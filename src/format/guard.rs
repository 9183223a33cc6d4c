//! A wall around decoders of others that panic on some damaged bytes: what comes out is an error, as for all other
//! damage. Bytes that had their digest checked don't come here damaged unless someone meant it.

use crate::error::{Error, Result};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Runs a decoder; a panic in it is a `Corrupt` error. The decoder must not be used again afterwards.
pub(super) fn guard<T>(decode: impl FnOnce() -> T) -> Result<T> {
    catch_unwind(AssertUnwindSafe(decode)).map_err(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str).or_else(|| panic.downcast_ref::<&str>().copied());
        Error::corrupt(format!(
            "expected bytes that can be decoded, found damage: {}",
            text.unwrap_or("no reason given")
        ))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_is_an_error_with_its_message() {
        let zero = std::hint::black_box(0);
        assert_eq!(guard(|| 1).unwrap(), 1);
        assert!(guard(|| 1 / zero).unwrap_err().to_string().contains("divide by zero"));
    }
}
