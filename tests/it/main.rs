//! The one integration test binary.

mod pipeline_file;
mod store;
mod structure;
