//! Columns made from keys, and paths made from rows: templates such as `{parent}` or `imgs/{file}`, and regular expressions.

use crate::error::{Error, Result};
use crate::spec::node::nearest;

/// Text with names in braces; `{{` and `}}` stand for braces.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Template {
    parts: Vec<Part>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Part {
    Text(String),
    Name { name: String, index: usize },
}

/// What templates over keys may name.
const KEY_NAMES: [&str; 5] = ["key", "name", "stem", "ext", "parent"];

impl Template {
    pub fn parse(text: &str) -> Result<Template> {
        let bad =
            |why: &str| Error::invalid(format!("the template {text:?} {why}; expected text and names such as {{key}}"));
        let mut parts = vec![Part::Text(String::new())];
        let mut chars = text.chars().peekable();
        while let Some(c) = chars.next() {
            match c {
                '{' | '}' if chars.peek() == Some(&c) => {
                    chars.next();
                    push(&mut parts, c);
                }
                '}' => return Err(bad("closes a brace that is not open")),
                '{' => {
                    let mut inside = String::new();
                    loop {
                        match chars.next() {
                            Some('}') => break,
                            Some(c) => inside.push(c),
                            None => return Err(bad("leaves a brace open")),
                        }
                    }
                    let (name, index) = match inside.strip_suffix(']').and_then(|i| i.rsplit_once('[')) {
                        Some((name, index)) => {
                            (name, index.parse().map_err(|_| bad("has an index that is no number"))?)
                        }
                        None => (inside.as_str(), 0),
                    };
                    if name.is_empty() {
                        return Err(bad("has a name without letters"));
                    }
                    parts.push(Part::Name { name: name.to_owned(), index });
                }
                c => push(&mut parts, c),
            }
        }
        parts.retain(|part| *part != Part::Text(String::new()));
        Ok(Template { parts })
    }

    /// A template over a key.
    pub fn of_key(text: &str) -> Result<Template> {
        let template = Self::parse(text)?;
        for part in &template.parts {
            if let Part::Name { name, index } = part
                && (!KEY_NAMES.contains(&name.as_str()) || (*index > 0 && name != "parent"))
            {
                let hint = match nearest(name, KEY_NAMES.into_iter()) {
                    Some(near) if near != name => format!("did you mean {{{near}}}?"),
                    _ => "expected {key}, {name}, {stem}, {ext}, {parent} or {parent[1]}".to_owned(),
                };
                return Err(Error::invalid(format!("the template {text:?} names {name:?}; {hint}")));
            }
        }
        Ok(template)
    }

    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.parts.iter().filter_map(|part| match part {
            Part::Name { name, .. } => Some(name.as_str()),
            Part::Text(_) => None,
        })
    }

    /// The text that it begins or ends with tells an extension.
    pub fn ending(&self) -> &str {
        match self.parts.last() {
            Some(Part::Text(text)) => text,
            _ => "",
        }
    }

    /// `None` where a value is missing.
    pub fn fill<S: AsRef<str>>(&self, value: impl Fn(&str, usize) -> Option<S>) -> Option<String> {
        let mut out = String::new();
        for part in &self.parts {
            match part {
                Part::Text(text) => out.push_str(text),
                Part::Name { name, index } => out.push_str(value(name, *index)?.as_ref()),
            }
        }
        Some(out)
    }

    pub fn fill_from_key(&self, key: &str) -> Option<String> {
        self.fill(|name, index| part_of_key(key, name, index))
    }
}

fn push(parts: &mut Vec<Part>, c: char) {
    match parts.last_mut() {
        Some(Part::Text(text)) => text.push(c),
        _ => parts.push(Part::Text(c.to_string())),
    }
}

fn part_of_key<'a>(key: &'a str, part: &str, index: usize) -> Option<&'a str> {
    let (above, name) = key.rsplit_once('/').map_or((None, key), |(above, name)| (Some(above), name));
    // A leading dot begins a name, not an extension.
    let (stem, ext) = match name.rsplit_once('.') {
        Some((stem, ext)) if !stem.is_empty() => (stem, ext),
        _ => (name, ""),
    };
    match part {
        "key" => Some(key),
        "name" => Some(name),
        "stem" => Some(stem),
        "ext" => Some(ext),
        _ => above?.rsplit('/').nth(index),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn templates_over_keys() {
        let check = |template: &str, key: &str, expect: Option<&str>| {
            let template = Template::of_key(template).unwrap();
            assert_eq!(template.fill_from_key(key).as_deref(), expect, "{template:?} {key}");
        };
        check("{parent}", "train/cat/a.b.jpg", Some("cat"));
        check("{parent[1]}:{stem}.{ext}", "train/cat/a.b.jpg", Some("train:a.b.jpg"));
        check("{parent[2]}", "train/cat/a.jpg", None);
        check("{parent}", "a.jpg", None);
        check("{name}/{key}", "x/.hidden", Some(".hidden/x/.hidden"));
        check("{stem}|{ext}", "x/.hidden", Some(".hidden|"));
        check("{{{stem}}}", "a.jpg", Some("{a}"));
        check("fixed", "a", Some("fixed"));
    }

    #[test]
    fn wrong_templates_say_what_is_expected() {
        for (text, hint) in [
            ("{parnt}", "did you mean {parent}"),
            ("{stem[1]}", "expected {key}"),
            ("{a", "open"),
            ("a}", "not open"),
            ("{parent[x]}", "no number"),
            ("{}", "without letters"),
        ] {
            let error = Template::of_key(text).unwrap_err();
            assert!(error.message().contains(hint), "{text}: {error}");
        }
    }
}
