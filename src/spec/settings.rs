//! The smaller settings of a pipeline file: `order`, `partition`, `materialize`, `storage`, `on_error` and `max_errors`.

use crate::error::{Error, Result};
use crate::format::encoding::{Codec, Container, Encoding};
use crate::spec::fields::{check, given, one_or_more, text, texts};
use crate::spec::node::{Node, Value, nearest, quote};
use crate::spec::pipeline::{EntryOrder, Materialize, OnError, Order, Partition, SourceKind};
use crate::spec::size;
use crate::spec::variables::{Variables, expand};
use std::collections::BTreeMap;

/// The share of samples that may fail where `on_error: keep` names none.
const MAX_ERRORS: f64 = 0.001;
/// Most lanes, and most rows of a block.
pub(super) const MAX_ORDER: u32 = 65_536;

/// `order: key`, or a map of `lanes`, `block` and `by`.
pub fn read_order(root: &Node, kind: SourceKind) -> Result<Order> {
    let Some(node) = given(root, "order") else { return Ok(Order::default()) };
    let mut order = Order::default();
    let by = match &node.value {
        Value::Map(_) => {
            check(node, "key, hash or a map", &["lanes", "block", "by"])?;
            order.lanes = given(node, "lanes").map(read_count).transpose()?;
            order.block = given(node, "block").map(read_count).transpose()?;
            given(node, "by")
        }
        Value::Str(_) => Some(node),
        _ => return Err(node.expected("key, hash or a map, such as {lanes: 16, block: 64}")),
    };
    if let Some(by) = by {
        order.by = by.parse::<EntryOrder>()?;
        if kind != SourceKind::Files {
            return Err(by.span.error(format_args!(
                "only the entries of files are laid out by key or hash; {} keeps its own order, and key: in the source keeps cuts local",
                kind.name()
            )));
        }
    }
    Ok(order)
}

fn read_count(node: &Node) -> Result<u32> {
    match node.value {
        Value::Int(value) => u32::try_from(value).ok().filter(|n| (1..=MAX_ORDER).contains(n)),
        _ => None,
    }
    .ok_or_else(|| node.expected(format_args!("an integer from 1 to {MAX_ORDER}")))
}

/// What names of options that hold secrets have in them: the file's text is published with the store, so none may stand there.
const SECRETS: [&str; 8] =
    ["access_key", "account_key", "secret", "token", "password", "customer_key", "credential", "sas_key"];

pub fn read_storage(root: &Node, variables: Variables) -> Result<BTreeMap<String, String>> {
    let Some(node) = given(root, "storage") else { return Ok(BTreeMap::new()) };
    let expected = "a map of options, such as {aws_region: eu-west-1}";
    let Value::Map(pairs) = &node.value else { return Err(node.expected(expected)) };
    let mut options = BTreeMap::new();
    for (key, value) in pairs {
        let name = key.name.to_ascii_lowercase();
        if let Value::Str(text) = &value.value
            && SECRETS.iter().any(|secret| name.contains(secret))
            && !(text.starts_with("${") && text.find('}') == Some(text.len() - 1))
        {
            return Err(value.span.error(format_args!(
                "a pipeline file is published with its store, so {} can't stand in it; write ${{VARIABLE}}, or leave it out and set the variable of AWS",
                quote(&name)
            )));
        }
        let text = match expand(value, variables)?.value {
            Value::Str(text) => text,
            Value::Bool(value) => value.to_string(),
            Value::Int(value) => value.to_string(),
            _ => return Err(value.expected("text, a whole number, true or false")),
        };
        options.insert(name, text);
    }
    Ok(options)
}

pub fn read_partition(root: &Node) -> Result<Partition> {
    let mut partition = Partition::default();
    let Some(node) = given(root, "partition") else { return Ok(partition) };
    check(node, "a map, such as {entries: 8192, bytes: 64MiB}", &["entries", "bytes"])?;
    if let Some(entries) = given(node, "entries") {
        partition.entries = match entries.value {
            Value::Int(value) => u64::try_from(value).ok().filter(|n| *n > 0),
            _ => None,
        }
        .ok_or_else(|| entries.expected("an integer of at least 1"))?;
    }
    if let Some(bytes) = given(node, "bytes") {
        partition.bytes = match &bytes.value {
            Value::Int(value) => u64::try_from(*value).ok(),
            Value::Str(text) => Some(size::parse(text).map_err(|problem| bytes.span.error(problem))?),
            _ => None,
        }
        .filter(|n| *n > 0)
        .ok_or_else(|| bytes.expected("a size of at least 1 byte, such as 64MiB"))?;
    }
    Ok(partition)
}

/// Whether the stages are there is checked once all steps are known.
pub fn read_materialize(root: &Node) -> Result<Materialize> {
    let mut materialize = Materialize::default();
    let Some(node) = given(root, "materialize") else { return Ok(materialize) };
    check(node, "a map, such as {stages: [resize], format: parquet}", &["stages", "format", "compression"])?;
    if let Some(stages) = given(node, "stages") {
        let items = one_or_more(stages, "names of stages")?;
        let spans = items.iter().map(|item| item.span.clone());
        materialize.stages = texts(items)?.into_iter().zip(spans).collect();
        let word = |item: &&Node| matches!(&item.value, Value::Str(name) if matches!(name.as_str(), "all" | "auto"));
        if let Some(item) = items.iter().find(word).filter(|_| items.len() > 1) {
            return Err(item
                .span
                .error(format_args!("expected {} alone, found it among names of stages", item.found())));
        }
    }
    if let Some(format) = given(node, "format") {
        let name = text(format)?;
        let wrong = |_| format.unknown(name, ["arrow", "parquet"]);
        materialize.container = Some(name.parse::<Container>().map_err(wrong)?);
    }
    if let Some(compression) = given(node, "compression") {
        let wrong = |error: Error| compression.span.error(error.message());
        let written = text(compression)?;
        let codec = written.parse::<Codec>().map_err(|error| {
            let (name, level) = written.split_at(written.find(':').unwrap_or(written.len()));
            match nearest(name, ["none", "lz4", "zstd", "snappy", "gzip"].into_iter()) {
                Some(near) if near != name => {
                    let found = quote(written);
                    compression.span.error(format_args!("unknown compression {found}; did you mean \"{near}{level}\"?"))
                }
                _ => wrong(error),
            }
        })?;
        // Parquet takes every codec that there is: where no format is given, it says whether the level is right.
        Encoding::new(materialize.container.unwrap_or(Container::Parquet), codec).map_err(wrong)?;
        materialize.codec = Some(codec);
    }
    Ok(materialize)
}

pub fn read_on_error(root: &Node) -> Result<OnError> {
    let keep = match given(root, "on_error") {
        None => false,
        Some(node) => match &node.value {
            Value::Str(word) if word == "fail" => false,
            Value::Str(word) if word == "keep" => true,
            Value::Str(word) => return Err(node.unknown(word, ["fail", "keep"])),
            _ => return Err(node.expected("fail or keep")),
        },
    };
    match given(root, "max_errors") {
        None if keep => Ok(OnError::Keep { max_errors: MAX_ERRORS }),
        None => Ok(OnError::Fail),
        Some(node) if keep => Ok(OnError::Keep { max_errors: read_share(node)? }),
        Some(node) => Err(node.span.error("expected on_error: keep beside it")),
    }
}

/// A percentage or a fraction below 1; 1 itself could be meant as either.
fn read_share(node: &Node) -> Result<f64> {
    let share = match &node.value {
        Value::Int(0) => Some(0.0),
        Value::Float(value) => Some(*value).filter(|share| *share < 1.0),
        Value::Str(text) => text
            .trim()
            .strip_suffix('%')
            .and_then(|percent| percent.trim().parse::<f64>().ok())
            .map(|percent| percent / 100.0),
        _ => None,
    };
    share
        .filter(|share| (0.0..=1.0).contains(share))
        .ok_or_else(|| node.expected("a percentage such as 0.1%, or a fraction below 1"))
}
