//! Level 6: runs steps i..j over one partition with bounded memory: the one executor.
