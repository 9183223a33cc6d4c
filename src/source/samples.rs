//! The samples of an archive in WebDataset's layout: which members are one sample, and what is refused: samples torn apart,
//! too large, or too many.

use crate::error::{Error, Result};
use crate::id::Digest;
use crate::source::tar::{Input, Member, Tar};
use crate::source::too_large;
use std::collections::HashSet;

/// Names are kept while an archive is looked through.
const MOST_SAMPLES: usize = 1 << 22;

/// A sample's name, and the extensions and bytes of its members.
pub(super) type Sample = (String, Vec<(String, Vec<u8>)>);

/// The sample that a member belongs to and its extension; `None` for names without one and hidden files.
pub(super) fn split(name: &str) -> Option<(&str, String)> {
    let base = name.rfind('/').map_or(0, |slash| slash + 1);
    let dot = base + name[base..].find('.').filter(|dot| *dot > 0)?;
    let extension = &name[dot + 1..];
    (!extension.is_empty()).then(|| (&name[..dot], extension.to_ascii_lowercase()))
}

/// Follows the samples of an archive and refuses those that are torn apart, name a column twice or are too large.
#[derive(Default)]
pub(super) struct Grouper {
    stem: Option<String>,
    extensions: HashSet<String>,
    bytes: u64,
    /// Digests of names: an archive may hold many, and long ones.
    done: HashSet<Digest>,
}

impl Grouper {
    /// Takes the next member, before its data is read; true where a new sample begins with it.
    pub fn begins(&mut self, archive: &str, stem: &str, extension: &str, member: &Member) -> Result<bool> {
        let bad = |why: &str| Error::invalid(format!("{archive}: sample {stem:?}, at byte {}, {why}", member.start));
        let begins = self.stem.as_deref() != Some(stem);
        if begins {
            self.end();
            if self.done.contains(&Digest::of(stem.as_bytes())) {
                return Err(bad(
                    "has members that do not stand next to each other; write the archive in the order of names (tar --sort=name)",
                ));
            }
            if self.done.len() == MOST_SAMPLES {
                return Err(Error::invalid(format!(
                    "{archive} holds more than {MOST_SAMPLES} samples; split it into several archives"
                )));
            }
            self.stem = Some(stem.to_owned());
        }
        if !self.extensions.insert(extension.to_owned()) {
            return Err(bad(&format!("has two members .{extension}")));
        }
        self.bytes = self.bytes.saturating_add(member.bytes);
        if let Some(reason) = too_large(self.bytes) {
            return Err(bad(&format!("{reason}, its member .{extension} included")));
        }
        Ok(begins)
    }
    pub fn end(&mut self) {
        self.done.extend(self.stem.take().map(|stem| Digest::of(stem.as_bytes())));
        self.extensions.clear();
        self.bytes = 0;
    }
}

/// The samples of an archive in order, one at a time in memory.
pub(super) struct Samples<R> {
    tar: Tar<R>,
    pub archive: String,
    grouper: Grouper,
    /// The sample and extension of the member that `tar` is at.
    next: Option<(String, String)>,
    ended: bool,
}

impl<R: Input> Samples<R> {
    pub fn new(tar: Tar<R>, archive: &str) -> Self {
        Samples { tar, archive: archive.to_owned(), grouper: Grouper::default(), next: None, ended: false }
    }

    pub fn next(&mut self) -> Result<Option<Sample>> {
        let mut sample: Option<Sample> = None;
        loop {
            if let Some((stem, extension)) = self.next.take() {
                let mut bytes = Vec::new();
                self.tar.data(&mut bytes)?;
                sample.get_or_insert_with(|| (stem, Vec::new())).1.push((extension, bytes));
            }
            let member = if self.ended { None } else { self.tar.next(&mut false)? };
            let Some(member) = member else {
                self.ended = true;
                return Ok(sample);
            };
            let Some((stem, extension)) = split(&member.name) else { continue };
            let begins = self.grouper.begins(&self.archive, stem, &extension, &member)?;
            self.next = Some((stem.to_owned(), extension));
            if begins && sample.is_some() {
                return Ok(sample);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_split_at_the_first_dot_of_its_last_part() {
        let check = |name: &str, expect: Option<(&str, &str)>| {
            assert_eq!(split(name), expect.map(|(stem, ext)| (stem, ext.to_owned())), "{name}");
        };
        check("a/b.c/d.seg.PNG", Some(("a/b.c/d", "seg.png")));
        check("d.jpg", Some(("d", "jpg")));
        check("README", None);
        check("x/._d.jpg", None);
        check("d.", None);
    }
}
