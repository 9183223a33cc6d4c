//! The one integration test binary.

mod fixture;
mod formats;
mod fuzzing;
mod image;
mod pipeline_file;
mod plan;
mod reading;
mod shards;
mod sources;
mod store;
mod structure;
