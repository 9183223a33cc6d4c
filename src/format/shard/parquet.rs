//! Shards as parquet files.
