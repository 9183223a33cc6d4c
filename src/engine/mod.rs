//! Level 6: runs steps i..j over one partition with bounded memory: the one executor under materialize, reader and
//! profile. A partition's input (`input`) comes in pieces; a piece goes through a tree of steps (`tree`) on one of the
//! pool's threads (`pool`); results come back in order. `stored` opens shards, `chunk` cuts rows into chunks, `count` finds
//! out which rows the last deterministic stage has.
//!
//! Nothing here knows which stages are worth storing, and nothing here writes to a store.

pub mod chunk;
pub mod count;
pub mod dataset;
pub mod input;
pub mod known;
pub mod pool;
pub mod rows;
pub mod stored;
pub mod tree;
