//! The one integration test binary.

mod commands;
mod consumers;
mod crash;
mod documents;
mod faults;
mod fixture;
mod formats;
mod fuzzing;
mod golden;
mod growth;
mod healing;
mod image;
mod newcomer;
mod other_build;
mod pipeline_file;
mod plan;
mod reading;
mod refusals;
mod shards;
mod sources;
mod store;
mod structure;
mod together;
mod unreliable;
mod wild;
mod workers;
