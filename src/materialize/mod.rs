//! Level 7: plan + engine + store to shards.
