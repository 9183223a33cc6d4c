//! The one integration test binary.

mod commands;
mod consumers;
mod crash;
mod documents;
mod fixture;
mod formats;
mod fuzzing;
mod golden;
mod healing;
mod image;
mod newcomer;
mod other_build;
mod pipeline_file;
mod plan;
mod reading;
mod refusals;
mod servers;
mod shards;
mod sources;
mod store;
mod structure;
mod together;
mod wild;
