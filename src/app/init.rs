//! `forebay init`: looks at what is there (`survey`, with `split` and
//! `tables`), and drafts a starter pipeline for it (`draft`). Nothing is
//! printed, written or overwritten here.

mod draft;
mod split;
mod survey;
mod tables;

pub use split::Split;
pub use survey::{Kind, Odd, Survey};

use crate::app::project::refuse_store;
use crate::error::{Error, Result};
use std::path::{Path, PathBuf};

/// A starter pipeline and what it was drafted from.
#[derive(Debug, Clone)]
pub struct Draft {
    /// The pipeline's name.
    pub name: String,
    /// Where the pipeline file belongs, as paths in it are relative to the directory in which `init` runs: `photos.yaml`.
    pub file: PathBuf,
    /// The pipeline file's text.
    pub text: String,
    pub survey: Survey,
    /// The next three commands to run.
    pub next: Vec<String>,
}

/// Looks at a folder or file and drafts a pipeline for it. `path` is as the user wrote it, and so it stands in the
/// draft. Errors: `NotFound`; `Invalid` where nothing is found that a pipeline could read, or a store.
pub fn init(path: &Path) -> Result<Draft> {
    if let Some(url) = path.to_str().filter(|text| text.contains("://")) {
        return Err(Error::invalid(format!(
            "init looks at local folders and files only, found {url:?}; run it on a copy of a few files and put the URL into \
             the pipeline it writes"
        )));
    }
    refuse_store(path, "data")?;
    let survey = survey::look(path)?;
    let name = draft::name(path);
    let file = PathBuf::from(format!("{name}.yaml"));
    let text = draft::text(&name, path, &survey);
    let shown = file.display();
    // Without steps there is no stage that is worth storing by default.
    let stage = if draft::has_steps(&survey) { "" } else { " --stage concatenated" };
    let next = vec![
        format!("forebay check {shown}"),
        format!("forebay materialize {shown}{stage}"),
        format!("forebay read {shown} --split {} --bench", draft::splits(&survey)[0].name),
    ];
    Ok(Draft { name, file, text, survey, next })
}

#[cfg(test)]
mod tests;
