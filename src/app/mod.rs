//! Level 9: what the command line and Python share: a pipeline file opened (`project`), what to store (`targets`), a
//! dataset opened for reading (`open`), starter pipelines (`init`), class names (`classes`).

pub mod labels;
pub mod open;
pub mod project;
pub mod store_stages;
pub mod targets;
