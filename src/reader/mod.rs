//! Level 7: batches rebuilt from the nearest stored stage of each shard.
