//! Level 4, pure: keys, partitions, the chain of stages and where it may be cut, the order of samples, and what snapshots
//! differ in. No I/O, no clock, no randomness: everything is a function of its arguments.

pub mod chain;
pub mod changes;
pub mod cut;
pub mod explain;
pub mod key;
pub mod order;
pub mod partition;
pub mod snapshot;
