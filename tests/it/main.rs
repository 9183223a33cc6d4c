//! The one integration test binary.

mod image;
mod structure;
