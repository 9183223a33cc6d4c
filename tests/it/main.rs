//! The one integration test binary.

mod store;
mod structure;
