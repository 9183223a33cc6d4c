//! Text to nodes: the part of YAML 1.2 that settings need. Anchors, aliases, tags and several documents are refused,
//! as are duplicate keys; text, depth and the number of nodes are bounded, so that no file exhausts memory or stack.

use crate::error::Result;
use crate::spec::node::{Key, Node, Span, Value, quote};
use saphyr_parser::{Event, Marker, Parser, ScalarStyle, ScanError, StrInput};
use std::collections::HashMap;
use std::sync::Arc;

/// Most bytes of text.
pub const MAX_BYTES: usize = 4 << 20;
/// Most maps and lists within each other.
pub const MAX_DEPTH: usize = 64;
/// Most values, maps and lists included.
pub const MAX_NODES: usize = 200_000;
/// Most bytes of a key, and of the path of keys that errors show: a path is kept with each node.
const MAX_KEY_BYTES: usize = 256;

impl Node {
    /// Reads one YAML document; `file` is what errors call it. An empty text is `Null`. Plain scalars follow the core
    /// schema: `yes`, `on` and dates are text.
    pub fn read(text: &str, file: &str) -> Result<Node> {
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        let file: Arc<str> = file.into();
        let top = Span { file: file.clone(), line: 1, column: 1, field: "".into() };
        if text.len() > MAX_BYTES {
            return Err(top.error(format_args!("expected at most {MAX_BYTES} bytes of YAML, found {}", text.len())));
        }
        refuse_control_characters(text, &top)?;
        let mut reader = Reader { parser: Parser::new_from_str(text), file, nodes: 0 };
        let mut root = None;
        loop {
            let (event, mark) = reader.next(&top.field)?;
            match event {
                Event::StreamEnd => break,
                Event::DocumentStart(_) if root.is_some() => {
                    let span = reader.span(mark, &top.field);
                    return Err(span.error("a second document begins here; expected one document in a file"));
                }
                Event::DocumentStart(_) => {
                    let (event, mark) = reader.next(&top.field)?;
                    root = Some(reader.node(event, mark, 0, &top.field)?);
                }
                Event::StreamStart | Event::DocumentEnd | Event::Nothing => {}
                _ => return Err(reader.span(mark, &top.field).error("expected the end of the document")),
            }
        }
        Ok(root.unwrap_or(Node { span: top, value: Value::Null }))
    }
}

/// The scanner takes a zero byte for the end of the text; what follows must not be ignored silently.
fn refuse_control_characters(text: &str, top: &Span) -> Result<()> {
    let allowed = |c: char| matches!(c, '\t' | '\n' | '\r' | '\u{85}') || !c.is_control();
    let Some((at, found)) = text.char_indices().find(|(_, c)| !allowed(*c)) else { return Ok(()) };
    let before = text.get(..at).unwrap_or("");
    let line = before.matches('\n').count() + 1;
    let column = before.rsplit('\n').next().unwrap_or("").chars().count() + 1;
    let span = Span { line, column, ..top.clone() };
    Err(span
        .error(format_args!("the control character {:?} can't stand in YAML; write it as an escape in quotes", found)))
}

struct Reader<'a> {
    parser: Parser<'a, StrInput<'a>>,
    file: Arc<str>,
    nodes: usize,
}

impl<'a> Reader<'a> {
    fn span(&self, mark: Marker, field: &Arc<str>) -> Span {
        Span { file: self.file.clone(), line: mark.line().max(1), column: mark.col() + 1, field: field.clone() }
    }

    fn next(&mut self, field: &Arc<str>) -> Result<(Event<'a>, Marker)> {
        match self.parser.next_event() {
            Some(Ok((event, span))) => Ok((event, span.start)),
            Some(Err(error)) => Err(self.span(*error.marker(), field).error(explain(&error))),
            None => Ok((Event::StreamEnd, Marker::new(0, 1, 0))),
        }
    }

    fn node(&mut self, event: Event<'a>, mark: Marker, depth: usize, field: &Arc<str>) -> Result<Node> {
        let span = self.span(mark, field);
        self.nodes += 1;
        if self.nodes > MAX_NODES {
            return Err(span.error(format_args!("expected at most {MAX_NODES} values in a file")));
        }
        if depth > MAX_DEPTH {
            return Err(span.error(format_args!("expected at most {MAX_DEPTH} maps and lists within each other")));
        }
        let value = match event {
            Event::Scalar(text, style, anchor, tag) => {
                refuse(&span, anchor, tag.is_some())?;
                scalar(&text, style, &span)?
            }
            Event::SequenceStart(anchor, tag) => {
                refuse(&span, anchor, tag.is_some())?;
                self.list(depth, field)?
            }
            Event::MappingStart(anchor, tag) => {
                refuse(&span, anchor, tag.is_some())?;
                self.map(depth, field)?
            }
            Event::Alias(_) => return Err(span.error("aliases (*name) aren't supported; write the value again")),
            _ => return Err(span.error("expected a value")),
        };
        Ok(Node { span, value })
    }

    fn list(&mut self, depth: usize, field: &Arc<str>) -> Result<Value> {
        let mut items = Vec::new();
        loop {
            match self.next(field)? {
                (Event::SequenceEnd, _) => return Ok(Value::List(items)),
                (event, mark) => items.push(self.node(event, mark, depth + 1, field)?),
            }
        }
    }

    fn map(&mut self, depth: usize, field: &Arc<str>) -> Result<Value> {
        let mut pairs: Vec<(Key, Node)> = Vec::new();
        let mut places: HashMap<String, usize> = HashMap::new();
        loop {
            let key = match self.next(field)? {
                (Event::MappingEnd, _) => return Ok(Value::Map(pairs)),
                (event, mark) => self.key(event, mark, field)?,
            };
            if let Some(first) = places.insert(key.name.clone(), pairs.len()).and_then(|at| pairs.get(at)) {
                let (line, column) = (first.0.span.line, first.0.span.column);
                let name = quote(&key.name);
                return Err(key.span.error(format_args!(
                    "{name} stands here a second time; the first is at line {line}, column {column}"
                )));
            }
            let inner = join(field, &key.name);
            let (event, mark) = self.next(&inner)?;
            let empty = matches!(&event, Event::Scalar(text, ScalarStyle::Plain, 0, None) if text.is_empty());
            let mut node = self.node(event, mark, depth + 1, &inner)?;
            if empty {
                // The parser places an absent value wherever it noticed; the key is where a reader looks.
                node.span = Span { field: inner, ..key.span.clone() };
            }
            pairs.push((key, node));
        }
    }

    fn key(&mut self, event: Event<'a>, mark: Marker, field: &Arc<str>) -> Result<Key> {
        let span = self.span(mark, field);
        match event {
            Event::Scalar(text, style, anchor, tag) => {
                refuse(&span, anchor, tag.is_some())?;
                if text.is_empty() && style == ScalarStyle::Plain {
                    return Err(span.error("expected a name before the colon"));
                }
                if text.len() > MAX_KEY_BYTES {
                    return Err(span.error(format_args!("expected a name of at most {MAX_KEY_BYTES} bytes")));
                }
                Ok(Key { span, name: text.into_owned() })
            }
            Event::Alias(_) => Err(span.error("aliases (*name) aren't supported; write the name again")),
            _ => Err(span.error(
                "expected a name as the key of a map, found a map or list; quote text with braces, such as \"{key}\"",
            )),
        }
    }
}

fn refuse(span: &Span, anchor: usize, tag: bool) -> Result<()> {
    if anchor != 0 {
        return Err(span.error("anchors (&name) aren't supported; write the value where it is used"));
    }
    if tag {
        return Err(span.error("tags (!name) aren't supported; quote a value that is meant as text"));
    }
    Ok(())
}

fn join(field: &Arc<str>, name: &str) -> Arc<str> {
    if field.is_empty() {
        return name.into();
    }
    if field.len() + name.len() > MAX_KEY_BYTES {
        format!("...{name}").into()
    } else {
        format!("{field}.{name}").into()
    }
}

fn explain(error: &ScanError) -> String {
    let info = error.info();
    if info.contains("tab") {
        return "tabs can't indent YAML; use spaces".to_owned();
    }
    if info.contains("unknown anchor") {
        return "aliases (*name) aren't supported; write the value again".to_owned();
    }
    if info.contains("mapping values are not allowed") {
        return format!(
            "this isn't valid YAML: {info}; quote text that contains a colon and a space, or begins with a brace"
        );
    }
    format!("this isn't valid YAML: {info}")
}

/// The core schema of YAML 1.2.2, section 10.3.2.
fn scalar(text: &str, style: ScalarStyle, span: &Span) -> Result<Value> {
    if style != ScalarStyle::Plain {
        return Ok(Value::Str(text.to_owned()));
    }
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    let unsigned = text.strip_prefix(['-', '+']).unwrap_or(text);
    let integer = if let Some(octal) =
        text.strip_prefix("0o").filter(|t| t.bytes().all(|b| (b'0'..=b'7').contains(&b)) && !t.is_empty())
    {
        Some(i64::from_str_radix(octal, 8))
    } else if let Some(hex) =
        text.strip_prefix("0x").filter(|t| t.bytes().all(|b| b.is_ascii_hexdigit()) && !t.is_empty())
    {
        Some(i64::from_str_radix(hex, 16))
    } else if digits(unsigned) {
        Some(text.parse())
    } else {
        None
    };
    if let Some(integer) = integer {
        return integer
            .map(Value::Int)
            .map_err(|_| span.error(format_args!("the integer {text} is too large; quote it if it is meant as text")));
    }
    Ok(match text {
        "" | "~" | "null" | "Null" | "NULL" => Value::Null,
        "true" | "True" | "TRUE" => Value::Bool(true),
        "false" | "False" | "FALSE" => Value::Bool(false),
        ".nan" | ".NaN" | ".NAN" => Value::Float(f64::NAN),
        _ => match unsigned {
            ".inf" | ".Inf" | ".INF" if text.starts_with('-') => Value::Float(f64::NEG_INFINITY),
            ".inf" | ".Inf" | ".INF" => Value::Float(f64::INFINITY),
            _ if is_float(unsigned) => text.parse().map_or_else(|_| Value::Str(text.to_owned()), Value::Float),
            _ => Value::Str(text.to_owned()),
        },
    })
}

/// `( \. [0-9]+ | [0-9]+ ( \. [0-9]* )? ) ( [eE] [-+]? [0-9]+ )?`, the sign taken off.
fn is_float(text: &str) -> bool {
    let digits = |text: &str| text.bytes().all(|b| b.is_ascii_digit());
    let (mantissa, exponent) = match text.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, Some(exponent)),
        None => (text, None),
    };
    let whole = match mantissa.split_once('.') {
        Some((whole, fraction)) => digits(whole) && digits(fraction) && !(whole.is_empty() && fraction.is_empty()),
        None => digits(mantissa) && !mantissa.is_empty(),
    };
    whole
        && exponent.is_none_or(|e| {
            e.strip_prefix(['-', '+']).map_or(digits(e) && !e.is_empty(), |e| digits(e) && !e.is_empty())
        })
}
