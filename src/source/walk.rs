//! Finds the files that patterns match on disk: directories level by level and files' metadata on all threads of the current
//! rayon pool, then sorted by key, so that the order of directory entries can't matter. `bucket` does so in a bucket.

use crate::error::{Error, Result};
use crate::source::compression;
use crate::source::pattern::{Globs, Patterns, Search};
use crate::source::validator::Validator;
use rayon::prelude::*;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// A file below the root.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Found {
    pub key: String,
    pub validator: Validator,
}

/// The paths that the patterns match, in no order, without a look at what they are.
pub(super) fn paths(patterns: &Patterns, note: &dyn Fn(String)) -> Result<Vec<PathBuf>> {
    let mut matched = vec![false; patterns.written.len()];
    let mut compressed = vec![None; patterns.written.len()];
    let mut paths: Vec<PathBuf> = Vec::new();
    for search in &patterns.searches {
        match search {
            Search::File { written, path } => {
                if !path.is_file() {
                    return Err(nothing(patterns, *written, Some(path), compressed_beside(path)));
                }
                matched[*written] = true;
                paths.push(path.clone());
            }
            Search::Below { directory, globs } => {
                if directory.is_dir() {
                    let mut seen = Seen { matched: &mut matched, compressed: &mut compressed, paths: &mut paths };
                    below(directory, globs, &mut seen)?;
                }
            }
        }
    }
    if let Some(written) = matched.iter().position(|m| !m) {
        return Err(nothing(patterns, written, None, compressed[written].take()));
    }
    for path in compressed.into_iter().flatten() {
        if let Some(advice) = path.to_str().and_then(compression::advice) {
            let name = path.strip_prefix(&patterns.root).unwrap_or(&path).display();
            note(format!("{name}, and what else is compressed like it, is passed over: {advice}"));
        }
    }
    Ok(paths)
}

/// Every file that the patterns match, sorted by key. A path that isn't there and a pattern that matches nothing are errors.
pub(super) fn walk(patterns: &Patterns, note: &(dyn Fn(String) + Sync)) -> Result<Vec<Found>> {
    let mut found = paths(patterns, note)?
        .into_par_iter()
        .map(|path| -> Result<Option<Found>> {
            let key = key(&patterns.root, &path)?;
            let metadata =
                std::fs::metadata(&path).map_err(|e| Error::io(format!("cannot look at {}", path.display()), e))?;
            if !metadata.is_file() {
                // Nobody's sample, and reading one could wait for ever.
                note(format!("{key} is passed over: it is a pipe, socket or device, not a file"));
                return Ok(None);
            }
            Ok(Some(Found { key, validator: Validator::of(&metadata) }))
        })
        .filter_map(Result::transpose)
        .collect::<Result<Vec<_>>>()?;
    found.par_sort_unstable_by(|a, b| a.key.cmp(&b.key));
    found.dedup_by(|a, b| a.key == b.key);
    Ok(found)
}

/// The path below the root with `/` between names.
fn key(root: &Path, path: &Path) -> Result<String> {
    let relative = path.strip_prefix(root).unwrap_or(path);
    match relative.to_str() {
        Some(key) => Ok(key.to_owned()),
        None => Err(Error::invalid(format!(
            "the file name {relative:?} below {} is not UTF-8, so it can't be a sample key; rename it",
            root.display()
        ))),
    }
}

/// What a search adds to.
struct Seen<'a> {
    /// By written pattern: whether it matched a file.
    matched: &'a mut [bool],
    /// By written pattern: the first file that it would match if it were not compressed.
    compressed: &'a mut [Option<PathBuf>],
    paths: &'a mut Vec<PathBuf>,
}

struct Level {
    matched: Vec<usize>,
    compressed: Vec<(usize, PathBuf)>,
    paths: Vec<PathBuf>,
    directories: Vec<PathBuf>,
}

fn below(base: &Path, globs: &Globs, seen: &mut Seen) -> Result<()> {
    let mut frontier = vec![base.to_owned()];
    let mut depth = 0;
    while !frontier.is_empty() && globs.depth.is_none_or(|most| depth < most) {
        let levels = frontier.par_iter().map(|d| read(base, d, globs)).collect::<Result<Vec<_>>>()?;
        frontier.clear();
        for level in levels {
            level.matched.into_iter().for_each(|written| seen.matched[written] = true);
            seen.paths.extend(level.paths);
            for (written, path) in level.compressed {
                let first = &mut seen.compressed[written];
                if first.as_ref().is_none_or(|first| path < *first) {
                    *first = Some(path);
                }
            }
            frontier.extend(level.directories);
        }
        depth += 1;
    }
    Ok(())
}

fn read(base: &Path, directory: &Path, globs: &Globs) -> Result<Level> {
    let fail = |e| Error::io(format!("cannot list {}", directory.display()), e);
    let mut level = Level { matched: Vec::new(), compressed: Vec::new(), paths: Vec::new(), directories: Vec::new() };
    for entry in std::fs::read_dir(directory).map_err(fail)? {
        let entry = entry.map_err(fail)?;
        if !globs.hidden && entry.file_name().as_encoded_bytes().starts_with(b".") {
            continue;
        }
        let path = entry.path();
        let kind = entry.file_type().map_err(fail)?;
        let link = kind.is_symlink();
        if kind.is_dir() || (link && path.is_dir()) {
            if !link || !loops(&path)? {
                level.directories.push(path);
            }
            continue;
        }
        let relative = path.strip_prefix(base).unwrap_or(&path);
        let before = level.matched.len();
        level.matched.extend(globs.matches(relative));
        if level.matched.len() > before {
            // Few patterns, many files: which ones matched is all that is kept.
            level.matched.sort_unstable();
            level.matched.dedup();
            level.paths.push(path);
        } else if let Some((plain, _)) = relative.to_str().and_then(compression::by_name) {
            level.compressed.extend(globs.matches(Path::new(plain)).map(|written| (written, path.clone())));
        }
    }
    Ok(level)
}

/// Whether a link to a directory leads to one that it lies in.
fn loops(link: &Path) -> Result<bool> {
    let id = |path: &Path| {
        let metadata =
            std::fs::metadata(path).map_err(|e| Error::io(format!("cannot look at {}", path.display()), e))?;
        Ok::<_, Error>((metadata.dev(), metadata.ino()))
    };
    let target = id(link)?;
    for above in link.ancestors().skip(1) {
        if id(above)? == target {
            return Ok(true);
        }
    }
    Ok(false)
}

/// The first file in the same directory that is this one, compressed.
fn compressed_beside(path: &Path) -> Option<PathBuf> {
    let entries = std::fs::read_dir(path.parent()?).ok()?;
    let packed =
        |p: &PathBuf| p.to_str().and_then(compression::by_name).is_some_and(|(plain, _)| Path::new(plain) == path);
    entries.filter_map(|entry| Some(entry.ok()?.path())).filter(packed).min()
}

/// `compressed`: a file that would do if it were not.
fn nothing(patterns: &Patterns, written: usize, missing: Option<&Path>, compressed: Option<PathBuf>) -> Error {
    let pattern = &patterns.written[written];
    let sought = missing.map(Path::to_owned).or_else(|| {
        patterns.searches.iter().find_map(|search| match search {
            Search::Below { directory, globs } if globs.wanted_by(written) => Some(directory.clone()),
            _ => None,
        })
    });
    let sought = sought.unwrap_or_else(|| patterns.root.clone());
    let nearest = sought.ancestors().find(|a| a.is_dir()).unwrap_or(&sought);
    let what = match (missing, nearest == sought) {
        (Some(path), _) => format!("{pattern:?} asks for {}, which is not a file", path.display()),
        (None, true) => format!("{pattern:?} matches no file: looked below {}", sought.display()),
        (None, false) => format!("{pattern:?} matches no file: there is no directory {}", sought.display()),
    };
    let packed = compressed.as_deref().and_then(Path::file_name).and_then(|name| name.to_str());
    if let Some((name, advice)) = packed.and_then(|name| Some((name, compression::advice(name)?))) {
        return Error::not_found(format!("{what}; {name} is {advice}"));
    }
    let held = std::fs::read_dir(nearest).map_or(0, Iterator::count);
    Error::not_found(format!("{what}; the nearest directory, {}, holds {held} names", nearest.display()))
}
