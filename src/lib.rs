//! Forebay keeps training jobs fed: it stores the right stage of a preprocessing pipeline as open, content-addressed
//! shards and rebuilds batches from the nearest stored stage. `ARCHITECTURE.md` is the map; the modules below are in
//! the order of their levels, and a module uses only those above it (`tests/it/structure.rs` checks).

pub mod error;
pub mod id;

pub mod format;

pub mod io;
pub mod spec;

pub mod source;
pub mod step;

pub mod plan;

pub mod store;

pub mod engine;

pub mod materialize;
pub mod reader;

pub mod app;

pub mod cli;
