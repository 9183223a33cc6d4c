//! `${VAR}` in the texts of a node and below it, filled from what the caller says the environment holds. `$${` stands for
//! the characters `${`.

use crate::error::Result;
use crate::spec::node::{Node, Span, Value};

pub type Variables<'a> = &'a dyn Fn(&str) -> Option<String>;

/// The node with variables filled in; keys stay as they are.
pub fn expand(node: &Node, variables: Variables) -> Result<Node> {
    let value = match &node.value {
        Value::Str(text) => Value::Str(expand_text(text, &node.span, variables)?),
        Value::List(items) => Value::List(items.iter().map(|item| expand(item, variables)).collect::<Result<_>>()?),
        Value::Map(pairs) => Value::Map(
            pairs.iter().map(|(key, value)| Ok((key.clone(), expand(value, variables)?))).collect::<Result<_>>()?,
        ),
        other => other.clone(),
    };
    Ok(Node { span: node.span.clone(), value })
}

fn expand_text(text: &str, span: &Span, variables: Variables) -> Result<String> {
    let mut expanded = String::new();
    let mut rest = text;
    while let Some(at) = rest.find("${") {
        let (before, opening) = rest.split_at(at);
        let inner = opening.strip_prefix("${").unwrap_or_default();
        if let Some(before) = before.strip_suffix('$') {
            expanded.push_str(before);
            expanded.push_str("${");
            rest = inner;
            continue;
        }
        expanded.push_str(before);
        let Some((name, after)) = inner.split_once('}').filter(|(name, _)| is_name(name)) else {
            return Err(span.error(
                "expected the name of a variable and a brace after ${; write $${ for the characters themselves",
            ));
        };
        let Some(value) = variables(name) else {
            return Err(span.error(format_args!(
                "the environment variable {name} isn't set; set it, or write $${{ for the characters themselves"
            )));
        };
        expanded.push_str(&value);
        rest = after;
    }
    expanded.push_str(rest);
    Ok(expanded)
}

fn is_name(name: &str) -> bool {
    name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
}
