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
        if let Some(name) = template.places().find(|name| key_place("", name).is_none()) {
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
    pub fn fill<'a>(&self, value: impl Fn(&str) -> Option<std::borrow::Cow<'a, str>>) -> Option<String> {
        let mut text = String::new();
        for part in &self.0 {
            match part {
                Part::Text(literal) => text.push_str(literal),
                Part::Place(name) => text.push_str(&value(name)?),
            }
        }
        Some(text)
    }

    /// The text for a key such as `dogs/rex.jpg`; places of a template of another kind stay empty.
    pub fn fill_from_key(&self, key: &str) -> String {
        self.fill(|name| Some(key_place(key, name).unwrap_or_default().into())).unwrap_or_default()
    }
}

/// What a place is for a key; `None` for a name that is no place of keys, `""` where the key has no such part.
pub fn key_place<'a>(key: &'a str, place: &str) -> Option<&'a str> {
    let mut directories = key.rsplit('/');
    let name = directories.next().unwrap_or_default();
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
        "parent" => Some(directories.next().unwrap_or_default()),
        _ => {
            let number = place.strip_prefix("parent[")?.strip_suffix(']')?;
            let above = number.parse::<usize>().ok().filter(|n| n.to_string() == number)?;
            Some(directories.nth(above).unwrap_or_default())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_fill_templates() {
        let cases = [
            ("{parent}", "a/b/x.tar.gz", "b"),
            ("{parent[0]}-{parent[1]}-{parent[2]}", "a/b/x.tar.gz", "b-a-"),
            ("{name}|{stem}|{ext}", "a/b/x.tar.gz", "x.tar.gz|x.tar|gz"),
            ("{stem}|{ext}|{parent}", ".hidden", ".hidden||"),
            ("masks/{key}.png", "a/é.jpg", "masks/a/é.jpg.png"),
            ("{{{stem}}}", "x", "{x}"),
            ("plain", "x", "plain"),
            ("", "x", ""),
        ];
        for (template, key, expected) in cases {
            assert_eq!(Template::of_key(template).unwrap().fill_from_key(key), expected, "{template}");
        }
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
