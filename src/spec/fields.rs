//! Reading settings by hand from nodes, where serde's errors would say too little: known fields, names, lists of
//! texts, paths and URLs.

use crate::error::Result;
use crate::spec::node::{Node, Value, quote, suggest};

/// The node as a map with no other fields than `known`; `what` completes "expected ...".
pub fn check(node: &Node, what: &str, known: &[&str]) -> Result<()> {
    let Value::Map(pairs) = &node.value else {
        return Err(node.expected(what));
    };
    match pairs.iter().find(|(key, _)| !known.contains(&key.name.as_str())) {
        Some((key, _)) => {
            let hint = suggest(&key.name, "expected", known.iter().copied());
            Err(key.span.error(format_args!("unknown field {}; {hint}", quote(&key.name))))
        }
        None => Ok(()),
    }
}

/// A field that has a value: one left empty counts as left out.
pub fn given<'a>(node: &'a Node, name: &str) -> Option<&'a Node> {
    node.get(name).filter(|value| value.value != Value::Null)
}

/// A field that must be there, or what is missing: `"on" is missing`.
pub fn required<'a>(node: &'a Node, name: &str) -> Result<&'a Node> {
    given(node, name).ok_or_else(|| node.span.error(format_args!("the field {name:?} is missing")))
}

/// Text that isn't empty.
pub fn text(node: &Node) -> Result<&str> {
    match &node.value {
        Value::Str(text) if !text.is_empty() => Ok(text),
        Value::Str(_) => Err(node.expected("text that isn't empty")),
        Value::Int(_) | Value::Float(_) | Value::Bool(_) => {
            Err(node.span.error(format_args!("expected text, found {0}; quote it: \"{0}\"", node.found())))
        }
        _ => Err(node.expected("text")),
    }
}

/// The items of a list, or the node itself where it is a single value; never empty.
pub fn one_or_more<'a>(node: &'a Node, what: &str) -> Result<&'a [Node]> {
    match &node.value {
        Value::List(items) if items.is_empty() => {
            Err(node.span.error(format_args!("expected {what}, found an empty list")))
        }
        Value::List(items) => Ok(items),
        _ => Ok(std::slice::from_ref(node)),
    }
}

/// A list of different texts that aren't empty.
pub fn texts(nodes: &[Node]) -> Result<Vec<String>> {
    let mut found: Vec<String> = Vec::with_capacity(nodes.len());
    for node in nodes {
        let text = text(node)?;
        if found.iter().any(|earlier| earlier == text) {
            return Err(node.span.error(format_args!("{} stands here a second time", quote(text))));
        }
        found.push(text.to_owned());
    }
    Ok(found)
}

/// What is wrong with a name of a pipeline, split or stage; such names become parts of object names.
pub fn name_problem(name: &str) -> Option<String> {
    let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    if name.is_empty() {
        Some("it is empty".to_owned())
    } else if name.len() > 100 {
        Some(format!("it has {} bytes", name.len()))
    } else if name.starts_with('.') {
        Some("it begins with a dot".to_owned())
    } else {
        name.chars().find(|c| !allowed(*c)).map(|c| format!("it contains {c:?}"))
    }
}

/// What names are made of, for errors.
pub const NAME_RULE: &str = "expected at most 100 letters (a-z, A-Z), digits, '.', '_' or '-', the first not a dot";

/// Whether a text names something in a bucket.
pub fn is_remote(text: &str) -> bool {
    text.split_once("://").is_some_and(|(scheme, _)| matches!(scheme, "s3" | "gs" | "az"))
}

/// A path or `file://` URL as a path, a URL of a service as it is; schemes that this build can't reach are refused by name.
pub fn place(text: &str) -> Result<String, String> {
    let scheme = text.split_once("://").map(|(scheme, _)| scheme).filter(|scheme| {
        scheme.starts_with(|c: char| c.is_ascii_alphabetic())
            && scheme.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'+' | b'-' | b'.'))
    });
    match scheme {
        None => Ok(text.to_owned()),
        Some("s3") => Ok(text.to_owned()),
        Some("gs") if cfg!(feature = "gcs") => Ok(text.to_owned()),
        Some("az") if cfg!(feature = "azure") => Ok(text.to_owned()),
        Some("gs") => Err(unbuilt("gs", "gcs")),
        Some("az") => Err(unbuilt("az", "azure")),
        Some("file") => match text.strip_prefix("file://").filter(|path| path.starts_with('/')) {
            Some(path) => Ok(path.to_owned()),
            None => Err(format!("expected an absolute path after file://, found {}", quote(text))),
        },
        Some(other) => Err(format!(
            "nothing is known of {other}://; expected a local path, file:///path, s3://bucket/prefix, gs://bucket/prefix \
             or az://container/prefix, found {}",
            quote(text)
        )),
    }
}

fn unbuilt(scheme: &str, feature: &str) -> String {
    format!(
        "{scheme}:// needs the feature {feature}, which this Forebay was built without: `cargo install --path . \
         --features {feature}`"
    )
}
