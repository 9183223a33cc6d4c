//! The one integration test binary.

mod shards;
mod structure;
