//! Level 2, pure: the pipeline file. YAML to nodes that know where they stand (`node`, `yaml`), nodes to typed settings
//! (`de`), and the pipeline's own settings (`pipeline`). Errors point at file, line and column with what was expected
//! and the nearest valid name.

mod de;
pub mod node;
pub mod pipeline;
pub mod yaml;

#[cfg(test)]
mod tests;
