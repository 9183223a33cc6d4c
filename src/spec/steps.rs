//! `steps:` and `splits:`: steps with their parameters as nodes (the registry reads those), and the names of stages.

use crate::error::{Error, Result};
use crate::spec::fields::{NAME_RULE, check, given, name_problem, required, text};
use crate::spec::node::{Node, Span, Value, quote};
use crate::spec::pipeline::{Split, Step};

/// Stage 0: the source's samples, packed.
pub const CONCATENATED: &str = "concatenated";
/// The stage of a `where`, of the source or of a split.
pub const FILTER: &str = "where";
/// The stage of a split's `where` where the source has one too.
pub const SECOND_FILTER: &str = "split_where";
/// Names that `as:` may not give: stages that are there anyway, and what commands take for all stages or a good one.
const RESERVED: [&str; 5] = [CONCATENATED, FILTER, SECOND_FILTER, "all", "auto"];

const STEP: &str =
    "a step: a name such as image.decode, or a name with parameters such as {image.resize: {shorter_side: 256}}";

impl Step {
    /// The name of the stage behind this step: `as:`, else the part after the last dot.
    pub fn stage(&self) -> &str {
        match &self.alias {
            Some(alias) => alias,
            None => self.name.rsplit('.').next().unwrap_or(&self.name),
        }
    }
}

/// A list of steps.
pub fn read(node: &Node) -> Result<Vec<Step>> {
    match &node.value {
        Value::List(items) => items.iter().map(read_step).collect(),
        _ => Err(node.expected("a list of steps, each behind a dash")),
    }
}

fn read_step(node: &Node) -> Result<Step> {
    match &node.value {
        Value::Str(name) => {
            let span = below(&node.span, name);
            let params = Node { span: span.clone(), value: Value::Null };
            build(name, span, params)
        }
        Value::Map(pairs) => match pairs.as_slice() {
            [(key, value)] => {
                build(&key.name, Span { field: value.span.field.clone(), ..key.span.clone() }, value.clone())
            }
            [(key, value), (second, _), ..] if value.value == Value::Null => Err(second.span.error(format_args!(
                "{} stands beside the step {}; indent it further to make it one of the step's parameters",
                quote(&second.name),
                key.name
            ))),
            _ => Err(node.expected(STEP)),
        },
        _ => Err(node.expected(STEP)),
    }
}

fn below(span: &Span, name: &str) -> Span {
    let field = if span.field.is_empty() { name.to_owned() } else { format!("{}.{name}", span.field) };
    Span { field: field.into(), ..span.clone() }
}

fn build(name: &str, span: Span, mut params: Node) -> Result<Step> {
    let part = |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
    if !name.split('.').all(part) {
        return Err(span.error(format_args!("expected {STEP}, found {}", quote(name))));
    }
    let mut alias = None;
    if let Value::Map(pairs) = &mut params.value
        && let Some(at) = pairs.iter().position(|(key, _)| key.name == "as")
    {
        let (_, node) = pairs.remove(at);
        alias = Some(read_stage_name(&node)?);
    }
    if name == "python" {
        return Err(refuse_python(&span, &params));
    }
    let step = Step { name: name.to_owned(), alias, params, span };
    if step.alias.is_none() && RESERVED.contains(&step.stage()) {
        return Err(step
            .span
            .error(format_args!("the stage {:?} is there already; name this one with as:", step.stage())));
    }
    Ok(step)
}

fn read_stage_name(node: &Node) -> Result<String> {
    let name = text(node)?;
    if let Some(problem) = name_problem(name) {
        return Err(node.span.error(format_args!("{} can't name a stage: {problem}; {NAME_RULE}", quote(name))));
    }
    if RESERVED.contains(&name) {
        return Err(node
            .span
            .error(format_args!("{name:?} can't name a stage: it has a meaning of its own; expected another name")));
    }
    Ok(name.to_owned())
}

/// Python steps have their place in the file before they run: what is wrong with one is said first.
fn refuse_python(span: &Span, params: &Node) -> Error {
    let shape = || -> Result<()> {
        check(
            params,
            "{fn: module:function, args: {...}}",
            &["fn", "args", "version", "requires", "ignore", "columns", "to"],
        )?;
        let function = required(params, "fn")?;
        let part = |part: &str| {
            part.split('.').all(|name| {
                name.starts_with(|c: char| c.is_alphabetic() || c == '_')
                    && name.chars().all(|c| c.is_alphanumeric() || c == '_')
            })
        };
        match text(function)?.split_once(':') {
            Some((module, name)) if part(module) && part(name) => {}
            _ => return Err(function.expected("a module and a function, such as my_steps:clean")),
        }
        match given(params, "args") {
            Some(args) if !matches!(args.value, Value::Map(_)) => Err(args.expected("a map of arguments")),
            _ => Ok(()),
        }
    };
    match shape() {
        Err(error) => error,
        Ok(()) => span.error("python: steps are not built yet; expected one of the built-in steps"),
    }
}

/// `splits:`, in file order.
pub fn read_splits(node: &Node) -> Result<Vec<Split>> {
    const WHAT: &str = "a map of splits, such as {train: {where: \"hash(key) % 20 != 0\"}}";
    let Value::Map(pairs) = &node.value else { return Err(node.expected(WHAT)) };
    if pairs.is_empty() {
        return Err(node.span.error(format_args!("expected {WHAT}, found an empty map")));
    }
    let mut splits = Vec::with_capacity(pairs.len());
    for (key, value) in pairs {
        if let Some(problem) = name_problem(&key.name) {
            let name = quote(&key.name);
            return Err(key.span.error(format_args!("{name} can't name a split: {problem}; {NAME_RULE}")));
        }
        let mut split = Split {
            name: key.name.clone(),
            filter: None,
            steps: Vec::new(),
            shuffle: None,
            span: Span { field: value.span.field.clone(), ..key.span.clone() },
        };
        if value.value != Value::Null {
            check(value, "a split, such as {where: ..., steps: [...]}", &["where", "steps", "shuffle"])?;
            split.filter = read_filter(value)?;
            split.shuffle = given(value, "shuffle").map(Node::parse).transpose()?;
            if let Some(steps) = given(value, "steps") {
                split.steps = read(steps)?;
                if split.steps.is_empty() {
                    return Err(steps
                        .span
                        .error("expected at least one step; leave steps: out for a split without its own"));
                }
            }
        }
        splits.push(split);
    }
    Ok(splits)
}

/// The text of `where:`; what it means is read elsewhere.
pub fn read_filter(node: &Node) -> Result<Option<(String, Span)>> {
    given(node, "where").map(|node| Ok((text(node)?.to_owned(), node.span.clone()))).transpose()
}

/// Names of the stages of one chain, in order: the shared stages and those of one split. Two of one name are an error.
pub fn stage_names(filter: bool, steps: &[Step], split: Option<&Split>) -> Result<Vec<String>> {
    let mut names = vec![CONCATENATED.to_owned()];
    if filter {
        names.push(FILTER.to_owned());
    }
    let add = |steps: &[Step], names: &mut Vec<String>| -> Result<()> {
        for step in steps {
            if names.iter().any(|name| name == step.stage()) {
                return Err(step.span.error(format_args!(
                    "a second stage named {0:?}; name one of them with as:, such as {{{1}: {{as: {0}_2}}}}",
                    step.stage(),
                    step.name
                )));
            }
            names.push(step.stage().to_owned());
        }
        Ok(())
    };
    add(steps, &mut names)?;
    if let Some(split) = split {
        if split.filter.is_some() {
            names.push(if filter { SECOND_FILTER } else { FILTER }.to_owned());
        }
        add(&split.steps, &mut names)?;
    }
    Ok(names)
}
