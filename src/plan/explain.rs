//! Why two keys differ: the first term of two documents that is not the same.

use crate::format::canonical::Value;

/// A term that differs; `None`: there is none on that side.
#[derive(Debug, Clone, PartialEq)]
pub struct Difference {
    /// `steps[1] image.resize: params.shorter_side`.
    pub term: String,
    pub before: Option<Value>,
    pub after: Option<Value>,
}

/// The first difference in the order in which a recipe reads: source, input, then step by step.
pub fn first_difference(before: &Value, after: &Value) -> Option<Difference> {
    let (Value::Map(b), Value::Map(a)) = (before, after) else { return walk("recipe", before, after) };
    for term in ["format", "source", "input", "steps"] {
        let found = match (b.get(term), a.get(term)) {
            (Some(b), Some(a)) if term == "steps" => steps(b, a),
            (b, a) => pair(term, b, a),
        };
        if found.is_some() {
            return found;
        }
    }
    walk("recipe", before, after)
}

fn steps(before: &Value, after: &Value) -> Option<Difference> {
    let (Value::List(b), Value::List(a)) = (before, after) else { return walk("steps", before, after) };
    for index in 0..b.len().max(a.len()) {
        let name = |steps: &[Value]| match steps.get(index) {
            Some(Value::Map(step)) => step.get("name").map(text),
            _ => None,
        };
        let label = name(a).or_else(|| name(b)).unwrap_or_default();
        if let Some(found) = pair(&format!("step {} ({label})", index + 1), b.get(index), a.get(index)) {
            return Some(found);
        }
    }
    None
}

fn pair(term: &str, before: Option<&Value>, after: Option<&Value>) -> Option<Difference> {
    match (before, after) {
        (None, None) => None,
        (Some(before), Some(after)) => walk(term, before, after),
        (before, after) => Some(Difference { term: term.to_owned(), before: before.cloned(), after: after.cloned() }),
    }
}

fn walk(term: &str, before: &Value, after: &Value) -> Option<Difference> {
    if before == after {
        return None;
    }
    match (before, after) {
        (Value::Map(b), Value::Map(a)) => {
            let keys: std::collections::BTreeSet<&String> = b.keys().chain(a.keys()).collect();
            keys.into_iter().find_map(|k| pair(&format!("{term}.{k}"), b.get(k), a.get(k)))
        }
        (Value::List(b), Value::List(a)) => {
            (0..b.len().max(a.len())).find_map(|i| pair(&format!("{term}[{i}]"), b.get(i), a.get(i)))
        }
        _ => Some(Difference { term: term.to_owned(), before: Some(before.clone()), after: Some(after.clone()) }),
    }
}

/// A value as JSON text; strings without quotes.
pub fn text(value: &Value) -> String {
    match value {
        Value::Str(text) => text.clone(),
        other => other.to_json().to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn recipe(size: i64, steps: usize) -> Value {
        let step = |i: usize| {
            Value::map([
                ("name", Value::from("image.resize")),
                ("params", Value::map([("size", Value::Int(i as i128 * 1000 + i128::from(size)))])),
            ])
        };
        Value::map([("source", Value::from("files")), ("steps", Value::List((0..steps).map(step).collect()))])
    }

    #[test]
    fn the_first_differing_term_is_named() {
        assert_eq!(first_difference(&recipe(256, 2), &recipe(256, 2)), None);
        let found = first_difference(&recipe(256, 2), &recipe(224, 2)).unwrap();
        assert_eq!(found.term, "step 1 (image.resize).params.size");
        assert_eq!((found.before, found.after), (Some(Value::Int(256)), Some(Value::Int(224))));
        let found = first_difference(&recipe(256, 2), &recipe(256, 1)).unwrap();
        assert_eq!(found.term, "step 2 (image.resize)");
        assert_eq!(found.after, None);
    }
}
