//! Level 9: what the command line and Python share: a pipeline file opened (`project`), its steps bound (`chains`), what to
//! store (`targets`), a dataset opened for reading (`open`), what a store holds (`catalog`), what two snapshots differ in
//! (`compare`), pins (`pin`), plain directories (`export`), starter pipelines (`init`), a pipeline file as one of several workers opens it
//! (`worker`), class names (`labels`, `classes`), the steps in words (`steps`).

pub mod catalog;
pub mod chains;
pub mod check;
pub mod classes;
pub mod compare;
pub mod explain;
pub mod export;
pub mod init;
pub mod labels;
pub mod open;
pub mod pin;
pub mod project;
pub mod steps;
pub mod store_stages;
pub mod targets;
pub mod trace;
pub mod values;
pub mod worker;
