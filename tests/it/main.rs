//! The one integration test binary.

mod crash;
mod fixture;
mod formats;
mod golden;
mod image;
mod pipeline_file;
mod plan;
mod reading;
mod shards;
mod sources;
mod store;
mod structure;
mod together;
mod wild;
