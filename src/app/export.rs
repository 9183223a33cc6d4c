//! A stored stage as a plain directory, for consumers that want a glob: hard links where possible, copies elsewhere.

use crate::app::catalog::StoredStage;
use crate::error::{Error, Kind, Result};
use crate::store::Store;
use std::path::{Path, PathBuf};

/// What an export wrote.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Exported {
    pub files: Vec<PathBuf>,
    pub linked: u64,
    pub copied: u64,
}

/// Writes `part-00000-of-00812.parquet`, … into `directory`, which must be empty or not there. The directory appears whole: files are
/// gathered beside it first.
pub fn export(store: &Store, stage: &StoredStage, directory: &Path) -> Result<Exported> {
    let occupied = std::fs::read_dir(directory).is_ok_and(|mut entries| entries.next().is_some());
    if occupied || directory.is_file() {
        return Err(Error::invalid(format!(
            "{} is there and not empty; export into a new directory",
            directory.display()
        )));
    }
    let sources = stage.paths(store)?;
    let name =
        directory.file_name().ok_or_else(|| Error::invalid(format!("{} names no directory", directory.display())))?;
    let gathered = directory.with_file_name(format!(".{}.{}", name.to_string_lossy(), std::process::id()));
    let result = gather(&sources, stage.manifest.encoding.extension(), &gathered).and_then(|counts| {
        // An empty directory that was there already makes way.
        let _ = std::fs::remove_dir(directory);
        std::fs::rename(&gathered, directory)
            .map_err(|e| Error::io(format!("cannot make {}", directory.display()), e))?;
        Ok(counts)
    });
    if result.is_err() {
        let _ = std::fs::remove_dir_all(&gathered);
    }
    let (names, linked, copied) = result?;
    Ok(Exported { files: names.into_iter().map(|n| directory.join(n)).collect(), linked, copied })
}

fn gather(sources: &[PathBuf], extension: &str, into: &Path) -> Result<(Vec<String>, u64, u64)> {
    std::fs::create_dir_all(into).map_err(|e| Error::io(format!("cannot make {}", into.display()), e))?;
    let mut names = Vec::with_capacity(sources.len());
    let (mut linked, mut copied) = (0, 0);
    for (index, source) in sources.iter().enumerate() {
        let name = format!("part-{index:05}-of-{:05}.{extension}", sources.len());
        let target = into.join(&name);
        if std::fs::hard_link(source, &target).is_ok() {
            linked += 1;
        } else {
            std::fs::copy(source, &target).map_err(|e| {
                let error = Error::io(format!("cannot copy {} to {}", source.display(), target.display()), e);
                if error.kind() == Kind::NotFound {
                    error.during("a blob is gone; `forebay verify` finds out more")
                } else {
                    error
                }
            })?;
            copied += 1;
        }
        names.push(name);
    }
    Ok((names, linked, copied))
}
