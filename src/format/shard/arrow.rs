//! Shards as arrow files.
