//! The one integration test binary.

mod sources;
mod structure;
