//! Patterns: what `files: ./photos/**/*.{jpg,png}` looks for and where, and the root that keys are relative to. Nothing
//! here lists a directory; see `walk`.
//!
//! `*` and `?` stay within one name, `**` crosses directories, `[a-z]` is one character, `{a,b}` and `{000..099}` are
//! written out first. A wildcard finds hidden names only in a pattern of which a part begins with a dot. A pattern that
//! names something that exists on disk, whatever characters it has, means just that.

use crate::error::{Error, Result};
use crate::source::place::{Buckets, Place};
use globset::{GlobBuilder, GlobSet, GlobSetBuilder};
use std::path::{Component, Path, PathBuf};

/// Most names that the braces of one pattern may stand for.
const MOST_EXPANSIONS: usize = 100_000;

#[derive(Debug)]
pub(super) struct Patterns {
    pub place: Place,
    /// Absolute; every match lies below it.
    pub root: PathBuf,
    pub written: Vec<String>,
    pub searches: Vec<Search>,
}

/// One thing to look for. `written` is the index of the pattern that it came from.
#[derive(Debug)]
pub(super) enum Search {
    File { written: usize, path: PathBuf },
    Below { directory: PathBuf, globs: Globs },
}

/// What is wanted below a directory.
#[derive(Debug, Default)]
pub(super) struct Globs {
    set: GlobSet,
    written: Vec<usize>,
    pub hidden: bool,
    /// Levels of directories worth entering; `None`: all.
    pub depth: Option<usize>,
}

impl Globs {
    fn new(globs: &[(usize, String)]) -> Result<Self> {
        let mut set = GlobSetBuilder::new();
        for (_, glob) in globs {
            let built = GlobBuilder::new(glob).literal_separator(true).backslash_escape(true).build();
            set.add(
                built.map_err(|e| Error::invalid(format!("the pattern {glob:?} can't be understood")).caused_by(e))?,
            );
        }
        Ok(Globs {
            set: set.build().map_err(|e| Error::invalid("the patterns are too large").caused_by(e))?,
            written: globs.iter().map(|(written, _)| *written).collect(),
            hidden: globs.iter().any(|(_, glob)| glob.split('/').any(|part| part.starts_with('.'))),
            depth: match globs.iter().any(|(_, glob)| glob.contains("**")) {
                true => None,
                false => globs.iter().map(|(_, glob)| glob.split('/').count()).max(),
            },
        })
    }
    pub fn wanted_by(&self, written: usize) -> bool {
        self.written.contains(&written)
    }
    /// The written patterns that a path relative to the directory matches.
    pub fn matches(&self, relative: &Path) -> impl Iterator<Item = usize> {
        self.set.matches(relative).into_iter().filter_map(|glob| self.written.get(glob).copied())
    }
}

impl Patterns {
    /// `within`: the globs that a directory alone stands for.
    pub fn new(written: &[String], root: Option<&str>, base: &Path, within: &[&str], buckets: Buckets) -> Result<Self> {
        let base = std::path::absolute(base).map_err(|e| Error::io(format!("cannot resolve {}", base.display()), e))?;
        let (place, mut paths) =
            Place::of(&written.iter().map(String::as_str).chain(root).collect::<Vec<_>>(), buckets)?;
        let root = root.and_then(|_| paths.pop());
        let mut files = Vec::new();
        let mut below: Vec<(PathBuf, Vec<(usize, String)>)> = Vec::new();
        let mut prefix: Option<PathBuf> = None;
        for (index, path) in paths.iter().enumerate() {
            let literal = place.names_something(&normal(&base.join(path)));
            let expanded = if literal { vec![escape(path)] } else { expand(path)? };
            // In a bucket the first of many names tells for all: each would be asked for.
            let mut plain = None;
            for one in expanded {
                let (directory, glob) = split(&one);
                let directory = normal(&base.join(directory));
                let narrowed = match glob {
                    Some(glob) => {
                        group(&mut below, &directory).push((index, glob));
                        directory
                    }
                    None if is_directory(&place, &mut plain, &directory, &one)? => {
                        group(&mut below, &directory).extend(within.iter().map(|glob| (index, (*glob).to_owned())));
                        directory
                    }
                    None => {
                        let parent = directory.parent().unwrap_or(&directory).to_owned();
                        files.push(Search::File { written: index, path: directory });
                        parent
                    }
                };
                prefix = Some(prefix.map_or(narrowed.clone(), |so_far| common(&so_far, &narrowed)));
            }
        }
        let Some(prefix) = prefix else { return Err(Error::invalid("no pattern is given; expected a path or a glob")) };
        let root = match root {
            None => prefix,
            Some(path) => {
                let root = normal(&base.join(path));
                if !prefix.starts_with(&root) {
                    return Err(Error::invalid(format!(
                        "the patterns reach {}, which is not below root: {}",
                        place.shown(&prefix),
                        place.shown(&root)
                    )));
                }
                root
            }
        };
        let below = below
            .into_iter()
            .map(|(directory, globs)| Ok(Search::Below { directory, globs: Globs::new(&globs)? }))
            .collect::<Result<Vec<_>>>()?;
        files.extend(below);
        Ok(Patterns { place, root, written: written.to_vec(), searches: files })
    }
}

fn group<'a>(below: &'a mut Vec<(PathBuf, Vec<(usize, String)>)>, directory: &Path) -> &'a mut Vec<(usize, String)> {
    let at = below.iter().position(|(d, _)| d == directory).unwrap_or_else(|| {
        below.push((directory.to_owned(), Vec::new()));
        below.len() - 1
    });
    &mut below[at].1
}

/// Whether a path without wildcards, as `text` has it, is a directory. `known`: what was found for the pattern's first name.
fn is_directory(place: &Place, known: &mut Option<bool>, path: &Path, text: &str) -> Result<bool> {
    match (place, *known) {
        (Place::Bucket(_), _) if text.ends_with('/') => Ok(true),
        (Place::Bucket(_), Some(known)) => Ok(known),
        _ => place.is_directory(path).inspect(|found| *known = Some(*found)),
    }
}

/// Without `.` and `..`, by spelling alone.
pub(super) fn normal(path: &Path) -> PathBuf {
    let mut out = PathBuf::new();
    for part in path.components() {
        match part {
            Component::CurDir => {}
            Component::ParentDir => {
                out.pop();
            }
            other => out.push(other),
        }
    }
    out
}

fn common(a: &Path, b: &Path) -> PathBuf {
    a.components().zip(b.components()).take_while(|(x, y)| x == y).map(|(x, _)| x).collect()
}

fn escape(literal: &str) -> String {
    literal.chars().flat_map(|c| "\\*?[]{}".contains(c).then_some('\\').into_iter().chain([c])).collect()
}

/// The directory before the first wildcard and the glob from there on; without a wildcard the path alone, unescaped.
fn split(pattern: &str) -> (String, Option<String>) {
    let parts: Vec<&str> = pattern.split('/').collect();
    let wild = parts.iter().position(|part| {
        let mut escaped = false;
        part.chars().any(|c| {
            let wild = !escaped && "*?[".contains(c);
            escaped = !escaped && c == '\\';
            wild
        })
    });
    let plain = |parts: &[&str]| {
        let mut text = String::new();
        let joined = parts.join("/");
        let mut chars = joined.chars();
        while let Some(c) = chars.next() {
            text.push(if c == '\\' { chars.next().unwrap_or(c) } else { c });
        }
        text
    };
    match wild {
        None => (plain(&parts), None),
        Some(0) => (String::new(), Some(pattern.to_owned())),
        Some(at) => (format!("{}/", plain(&parts[..at])), Some(parts[at..].join("/"))),
    }
}

/// Writes braces out, leftmost first.
fn expand(pattern: &str) -> Result<Vec<String>> {
    let mut done = Vec::new();
    let mut open = vec![pattern.to_owned()];
    while let Some(next) = open.pop() {
        match first_braces(&next) {
            None => done.push(next),
            Some((start, end)) => {
                for choice in choices(&next[start + 1..end], pattern)?.into_iter().rev() {
                    open.push(format!("{}{choice}{}", &next[..start], &next[end + 1..]));
                }
            }
        }
        if done.len() + open.len() > MOST_EXPANSIONS {
            return Err(Error::invalid(format!(
                "the braces of {pattern:?} stand for more than {MOST_EXPANSIONS} names; use * instead"
            )));
        }
    }
    Ok(done)
}

/// Byte positions of the first unescaped `{` that has a partner, and of the partner.
fn first_braces(text: &str) -> Option<(usize, usize)> {
    let (mut depth, mut start, mut escaped) = (0, 0, false);
    for (at, c) in text.char_indices() {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '{' => {
                if depth == 0 {
                    start = at;
                }
                depth += 1;
            }
            '}' if depth > 0 => {
                depth -= 1;
                if depth == 0 {
                    return Some((start, at));
                }
            }
            _ => {}
        }
    }
    None
}

fn choices(inside: &str, pattern: &str) -> Result<Vec<String>> {
    let (mut parts, mut depth, mut escaped) = (vec![String::new()], 0, false);
    for c in inside.chars() {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 0 => {
                parts.push(String::new());
                continue;
            }
            _ => {}
        }
        if let Some(last) = parts.last_mut() {
            last.push(c);
        }
    }
    if parts.len() > 1 {
        return Ok(parts);
    }
    let number = |text: &str| text.bytes().all(|b| b.is_ascii_digit()).then(|| text.parse::<u64>().ok()).flatten();
    match inside.split_once("..").map(|(a, b)| (a, b, number(a), number(b))) {
        Some((a, b, Some(low), Some(high))) if low <= high => {
            if high - low >= MOST_EXPANSIONS as u64 {
                return Err(Error::invalid(format!(
                    "{{{inside}}} in {pattern:?} stands for more than {MOST_EXPANSIONS} names; use * instead"
                )));
            }
            let padded = (a.len() > 1 && a.starts_with('0')) || (b.len() > 1 && b.starts_with('0'));
            let width = if padded { a.len().max(b.len()) } else { 0 };
            Ok((low..=high).map(|n| format!("{n:0width$}")).collect())
        }
        _ => Err(Error::invalid(format!(
            "{{{inside}}} in {pattern:?} is neither a choice such as {{jpg,png}} nor a range such as {{000..099}}"
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn braces_are_written_out() {
        let check = |pattern: &str, expect: &[&str]| assert_eq!(expand(pattern).unwrap(), expect, "{pattern}");
        check("a", &["a"]);
        check("s-{098..101}.tar", &["s-098.tar", "s-099.tar", "s-100.tar", "s-101.tar"]);
        check("s-{8..11}", &["s-8", "s-9", "s-10", "s-11"]);
        check("{a,b{1,2}}/*.{x,y}", &["a/*.x", "a/*.y", "b1/*.x", "b1/*.y", "b2/*.x", "b2/*.y"]);
        check(r"a\{b\}", &[r"a\{b\}"]);
        for bad in ["{x}", "{3..1}", "{0..99999999999}", "{a..c}", "{}"] {
            assert!(expand(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn the_directory_ends_before_the_first_wildcard() {
        let check = |pattern: &str, directory: &str, glob: Option<&str>| {
            assert_eq!(split(pattern), (directory.to_owned(), glob.map(str::to_owned)), "{pattern}");
        };
        check("a/b/**/*.jpg", "a/b/", Some("**/*.jpg"));
        check("*.jpg", "", Some("*.jpg"));
        check("/x/[ab]/c", "/x/", Some("[ab]/c"));
        check(r"a/\[b\].jpg", "a/[b].jpg", None);
        check(r"a/\*/c*", "a/*/", Some("c*"));
    }
}
