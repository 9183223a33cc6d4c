//! The one integration test binary.

mod fixture;
mod formats;
mod pipeline_file;
mod reading;
mod shards;
mod store;
mod plan;
mod formats;
mod pipeline_file;
mod sources;
mod structure;
