//! Level 2, pure: the pipeline file. YAML to nodes that know where they stand, nodes to typed settings, and errors that
//! point at file, line and column with what was expected and the nearest valid name.

pub mod node;
pub mod pipeline;
