//! Level 2, pure: the pipeline file. YAML to nodes that know where they stand (`node`, `yaml`), nodes to typed settings
//! (`de`), and the pipeline's own settings (`pipeline`). Errors point at file, line and column with what was expected
//! and the nearest valid name.

mod de;
pub mod duration;
mod fields;
pub mod node;
pub mod pipeline;
mod schema;
mod settings;
pub mod size;
mod source;
pub mod steps;
pub mod template;
mod variables;
pub mod yaml;

#[cfg(test)]
mod tests;
