//! Texts with places in braces: `{parent}/{stem}`. `{{` and `}}` are braces themselves.

use crate::spec::node::suggest;

/// A text with named places, checked for its shape; which names mean something is the user's to say.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Template(Vec<Part>);

#[derive(Debug, Clone, PartialEq, Eq)]
enum Part {
    Text(String),
    Place(String),
}

/// Places that a key fills; `parent[1]` is the directory above `parent`, and so on.
pub const KEY_PLACES: [&str; 6] = ["key", "name", "stem", "ext", "parent", "parent[1]"];

impl Template {
    /// The error says what is wrong, without its place.
    pub fn parse(text: &str) -> Result<Template, String> {
        let mut parts = Vec::new();
        let mut literal = String::new();
        let mut rest = text;
        while let Some(at) = rest.find(['{', '}']) {
            let (before, brace) = rest.split_at(at);
            literal.push_str(before);
            if let Some(after) = brace.strip_prefix("{{") {
                literal.push('{');
                rest = after;
            } else if let Some(after) = brace.strip_prefix("}}") {
                literal.push('}');
                rest = after;
            } else if let Some((name, after)) = brace.strip_prefix('{').and_then(|inner| inner.split_once('}')) {
                if name.is_empty() || name.contains('{') {
                    return Err(format!("expected a name between the braces in {text:?}"));
                }
                if !literal.is_empty() {
                    parts.push(Part::Text(std::mem::take(&mut literal)));
                }
                parts.push(Part::Place(name.to_owned()));
                rest = after;
            } else {
                return Err(format!("expected braces in pairs in {text:?}; write {{{{ or }}}} for a brace itself"));
            }
        }
        literal.push_str(rest);
        if !literal.is_empty() {
            parts.push(Part::Text(literal));
        }
        Ok(Template(parts))
    }

    /// A template whose places a key fills.
    pub fn of_key(text: &str) -> Result<Template, String> {
        let template = Template::parse(text)?;
        if let Some(name) = template.places().find(|name| !KEY_PLACES.contains(name) && parent(name).is_none()) {
            return Err(format!("unknown place {{{name}}}; {}", suggest(name, "expected", KEY_PLACES.into_iter())));
        }
        Ok(template)
    }

    /// The names in braces, in order.
    pub fn places(&self) -> impl Iterator<Item = &str> {
        self.0.iter().filter_map(|part| match part {
            Part::Place(name) => Some(name.as_str()),
            Part::Text(_) => None,
        })
    }

    /// The text with each place filled; `None` where `value` has none for a place.
    pub fn fill<S: AsRef<str>>(&self, value: impl Fn(&str) -> Option<S>) -> Option<String> {
        let mut text = String::new();
        for part in &self.0 {
            match part {
                Part::Text(literal) => text.push_str(literal),
                Part::Place(name) => text.push_str(value(name)?.as_ref()),
            }
        }
        Some(text)
    }

    /// The text for a key such as `dogs/rex.jpg`; `None` where the key has no such part, as `{parent}` of one without a `/`.
    pub fn fill_from_key(&self, key: &str) -> Option<String> {
        self.fill(|name| key_place(key, name))
    }

    /// The text that it ends with, which may tell an extension.
    pub fn ending(&self) -> &str {
        match self.0.last() {
            Some(Part::Text(text)) => text,
            _ => "",
        }
    }
}

/// The number of a place such as `parent[1]`; `parent` is `parent[0]`.
fn parent(place: &str) -> Option<usize> {
    let rest = place.strip_prefix("parent")?;
    if rest.is_empty() {
        return Some(0);
    }
    let number = rest.strip_prefix('[')?.strip_suffix(']')?;
    number.parse::<usize>().ok().filter(|n| n.to_string() == number)
}

/// What a place is for a key.
fn key_place<'a>(key: &'a str, place: &str) -> Option<&'a str> {
    let (above, name) = key.rsplit_once('/').map_or((None, key), |(above, name)| (Some(above), name));
    // As in paths: a leading dot begins no extension.
    let (stem, ext) = match name.rsplit_once('.') {
        Some((stem, ext)) if !stem.is_empty() => (stem, ext),
        _ => (name, ""),
    };
    match place {
        "key" => Some(key),
        "name" => Some(name),
        "stem" => Some(stem),
        "ext" => Some(ext),
        _ => above?.rsplit('/').nth(parent(place)?),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_fill_templates() {
        let cases = [
            ("{parent}", "a/b/x.tar.gz", Some("b")),
            ("{parent[0]}-{parent[1]}", "a/b/x.tar.gz", Some("b-a")),
            ("{parent[2]}", "a/b/x.tar.gz", None),
            ("{parent}", "x.jpg", None),
            ("{name}|{stem}|{ext}", "a/b/x.tar.gz", Some("x.tar.gz|x.tar|gz")),
            ("{stem}|{ext}|{parent}", "a/.hidden", Some(".hidden||a")),
            ("masks/{key}.png", "a/é.jpg", Some("masks/a/é.jpg.png")),
            ("{{{stem}}}", "x", Some("{x}")),
            ("plain", "x", Some("plain")),
            ("", "x", Some("")),
        ];
        for (template, key, expected) in cases {
            assert_eq!(Template::of_key(template).unwrap().fill_from_key(key).as_deref(), expected, "{template} {key}");
        }
        assert_eq!(Template::parse("a/{x}.jpg").unwrap().ending(), ".jpg");
    }

    #[test]
    fn wrong_templates_are_refused() {
        let cases = [
            ("{parnet}", "unknown place {parnet}; did you mean \"parent\"?"),
            ("{column}", "unknown place {column}; expected key, name, stem, ext, parent or parent[1]"),
            ("{parent[01]}", "unknown place {parent[01]}; did you mean \"parent[1]\"?"),
            ("{stem", "expected braces in pairs in \"{stem\"; write {{ or }} for a brace itself"),
            ("stem}", "expected braces in pairs in \"stem}\"; write {{ or }} for a brace itself"),
            ("{}", "expected a name between the braces in \"{}\""),
        ];
        for (template, expected) in cases {
            assert_eq!(Template::of_key(template).unwrap_err(), expected);
        }
    }
}
