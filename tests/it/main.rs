//! The one integration test binary.

mod structure;
