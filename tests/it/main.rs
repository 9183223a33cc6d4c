//! The one integration test binary.

mod pipeline_file;
mod plan;
mod structure;
