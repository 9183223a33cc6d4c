//! The one integration test binary.

mod plan;
mod structure;
