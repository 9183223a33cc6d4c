//! Other tools.
