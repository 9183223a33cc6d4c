//! The one integration test binary.

mod formats;
mod pipeline_file;
mod structure;
