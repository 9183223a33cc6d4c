//! Finds the objects that patterns match in a bucket: names are looked up side by side, what is below a directory is listed.
//! `walk` does so on disk.

use crate::error::{Error, Result};
use crate::io::{Listed, Objects};
use crate::source::compression;
use crate::source::pattern::{Globs, Patterns, Search};
use crate::source::place::name;
use crate::source::validator::Validator;
use crate::source::walk::Found;
use std::path::Path;

/// Every object that the patterns match, sorted by key. A name that isn't there and a pattern that matches nothing are errors.
pub(super) fn walk(objects: &Objects, patterns: &Patterns, note: &dyn Fn(String)) -> Result<Vec<Found>> {
    let mut matched = vec![false; patterns.written.len()];
    let mut found = named(objects, patterns, &mut matched)?;
    let mut looked = 0;
    for search in &patterns.searches {
        let Search::Below { directory, globs } = search else { continue };
        let listed = objects.list(name(directory)?)?;
        looked += listed.len();
        let mut compressed: Option<&str> = None;
        for object in &listed {
            let Some(relative) = below(directory, object)? else { continue };
            if !globs.hidden && relative.split('/').any(|part| part.starts_with('.')) {
                continue;
            }
            let before = found.len();
            for written in globs.matches(Path::new(relative)) {
                matched[written] = true;
                if found.len() == before {
                    found.push(object.clone());
                }
            }
            if found.len() == before && compressed.is_none() && is_packed(relative, globs) {
                compressed = Some(relative);
            }
        }
        if let Some((packed, advice)) = compressed.and_then(|packed| Some((packed, compression::advice(packed)?))) {
            note(format!("{packed}, and what else is compressed like it, is passed over: {advice}"));
        }
    }
    if let Some(written) = matched.iter().position(|matched| !matched) {
        let (pattern, url) = (&patterns.written[written], objects.url());
        return Err(Error::not_found(format!(
            "{pattern:?} matches no object: looked at {looked} objects of {url}; check its spelling, upper and lower case \
             included"
        )));
    }
    let mut found = found
        .into_iter()
        .map(|object| {
            let path = format!("/{}", object.name);
            let key = Path::new(&path).strip_prefix(&patterns.root).ok().and_then(Path::to_str).map(str::to_owned);
            let key = key.ok_or_else(|| Error::internal(format!("{path} is not below the source's root")))?;
            Ok(Found { key, validator: Validator::of_object(&object) })
        })
        .collect::<Result<Vec<_>>>()?;
    found.sort_unstable_by(|a, b| a.key.cmp(&b.key));
    found.dedup_by(|a, b| a.key == b.key);
    Ok(found)
}

/// What patterns without wildcards name.
fn named(objects: &Objects, patterns: &Patterns, matched: &mut [bool]) -> Result<Vec<Listed>> {
    let mut wanted = Vec::new();
    for search in &patterns.searches {
        if let Search::File { written, path } = search {
            matched[*written] = true;
            wanted.push((*written, name(path)?));
        }
    }
    let names: Vec<&str> = wanted.iter().map(|(_, name)| *name).collect();
    let mut found = Vec::with_capacity(names.len());
    for (object, (written, name)) in objects.look(&names)?.into_iter().zip(wanted) {
        let pattern = &patterns.written[written];
        let none = || Error::not_found(format!("{pattern:?} asks for {}/{name}, which is no object", objects.url()));
        found.push(object.ok_or_else(none)?);
    }
    Ok(found)
}

/// The name of an object below a directory.
fn below<'a>(directory: &Path, object: &'a Listed) -> Result<Option<&'a str>> {
    let rest = object.name.strip_prefix(name(directory)?);
    Ok(rest.map(|rest| rest.trim_start_matches('/')).filter(|rest| !rest.is_empty()))
}

/// Whether it would match if it were not compressed.
fn is_packed(relative: &str, globs: &Globs) -> bool {
    compression::by_name(relative).is_some_and(|(plain, _)| globs.matches(Path::new(plain)).next().is_some())
}
