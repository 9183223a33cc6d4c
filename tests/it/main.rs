//! The one integration test binary.

mod commands;
mod consumers;
mod documents;
mod fixture;
mod formats;
mod fuzzing;
mod image;
mod newcomer;
mod pipeline_file;
mod plan;
mod reading;
mod shards;
mod sources;
mod store;
mod structure;
