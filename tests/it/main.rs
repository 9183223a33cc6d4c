//! The one integration test binary.

mod image;
mod fixture;
mod formats;
mod pipeline_file;
mod plan;
mod reading;
mod shards;
mod sources;
mod store;
mod structure;
