//! The expression language of `where:`: text to a tree (`lexer`, `parser`), the tree to a typed program bound to a
//! schema (`check`), and the program's value for each row of a batch (`eval`). Specified in `formats/expression.md`.
//!
//! The tree prints itself in one normal form, fully parenthesised: that is what enters a key, so spacing, redundant
//! parentheses and the choice between `&&` and `and` change nothing.

mod check;
mod eval;
mod lexer;
mod parser;

use crate::error::Result;
use crate::spec::node::Span;
use arrow::datatypes::SchemaRef;
use std::fmt;

/// Longest text, in bytes.
const MAX_BYTES: usize = 64 << 10;
/// Deepest tree.
const MAX_HEIGHT: usize = 100;

/// An expression bound to a schema.
#[derive(Debug)]
pub struct Program {
    /// The normal form.
    pub text: String,
    /// Columns that it reads, sorted; `_key` among them where it does.
    pub reads: Vec<String>,
    root: check::Typed,
    inputs: Vec<check::Input>,
}

/// Reads a condition and checks it against a schema; `span` is where the text stands, and errors point into it.
pub fn compile(text: &str, span: &Span, schema: &SchemaRef) -> Result<Program> {
    let program = parser::parse(text).and_then(|tree| check::condition(&tree, schema));
    program.map_err(|fault| fault.place(text, span).error(fault.message))
}

/// What is wrong with an expression, and at which byte of its text.
#[derive(Debug)]
struct Fault {
    at: usize,
    message: String,
}

impl Fault {
    fn new(at: usize, message: impl Into<String>) -> Fault {
        Fault { at, message: message.into() }
    }

    /// The place in the file, as if the text stood there unquoted.
    fn place(&self, text: &str, span: &Span) -> Span {
        let before = text.get(..self.at).unwrap_or(text);
        let (line, column) = match before.rsplit_once('\n') {
            Some((lines, last)) => (span.line + 1 + lines.matches('\n').count(), 1 + last.chars().count()),
            None => (span.line, span.column + before.chars().count()),
        };
        Span { line, column, ..span.clone() }
    }
}

#[derive(Debug)]
struct Expr {
    at: usize,
    height: usize,
    kind: Kind,
}

#[derive(Debug)]
enum Kind {
    Bool(bool),
    /// From -2^63 to 2^64 - 1.
    Int(i128),
    Float(f64),
    Str(String),
    Column(String),
    Key,
    Not(Box<Expr>),
    Negate(Box<Expr>),
    And(Vec<Expr>),
    Or(Vec<Expr>),
    Compare(Comparison, Box<Expr>, Box<Expr>),
    Compute(Arithmetic, Box<Expr>, Box<Expr>),
    In(Box<Expr>, Vec<Expr>),
    IsNull(Box<Expr>),
    Call(Function, Vec<Expr>),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Comparison {
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Arithmetic {
    Add,
    Subtract,
    Multiply,
    Divide,
    Remainder,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Function {
    Hash,
    Length,
    Lower,
    Upper,
    StartsWith,
    EndsWith,
    Contains,
    Matches,
}

impl Comparison {
    const fn symbol(self) -> &'static str {
        match self {
            Comparison::Equal => "=",
            Comparison::NotEqual => "!=",
            Comparison::Less => "<",
            Comparison::LessOrEqual => "<=",
            Comparison::Greater => ">",
            Comparison::GreaterOrEqual => ">=",
        }
    }
}

impl Arithmetic {
    const fn symbol(self) -> &'static str {
        match self {
            Arithmetic::Add => "+",
            Arithmetic::Subtract => "-",
            Arithmetic::Multiply => "*",
            Arithmetic::Divide => "/",
            Arithmetic::Remainder => "%",
        }
    }
}

impl Function {
    const ALL: [Function; 8] = [
        Function::Hash,
        Function::Length,
        Function::Lower,
        Function::Upper,
        Function::StartsWith,
        Function::EndsWith,
        Function::Contains,
        Function::Matches,
    ];

    const fn name(self) -> &'static str {
        match self {
            Function::Hash => "hash",
            Function::Length => "length",
            Function::Lower => "lower",
            Function::Upper => "upper",
            Function::StartsWith => "starts_with",
            Function::EndsWith => "ends_with",
            Function::Contains => "contains",
            Function::Matches => "matches",
        }
    }

    const fn arguments(self) -> usize {
        match self {
            Function::Hash | Function::Length | Function::Lower | Function::Upper => 1,
            Function::StartsWith | Function::EndsWith | Function::Contains | Function::Matches => 2,
        }
    }
}

impl Expr {
    fn leaf(at: usize, kind: Kind) -> Expr {
        Expr { at, height: 1, kind }
    }
}

impl fmt::Display for Expr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.kind {
            Kind::Bool(value) => write!(f, "{value}"),
            Kind::Int(value) => write!(f, "{value}"),
            Kind::Float(value) => write!(f, "{value:?}"),
            Kind::Str(value) => write!(f, "'{}'", value.replace('\'', "''")),
            Kind::Column(name) => write!(f, "`{}`", name.replace('`', "``")),
            Kind::Key => f.write_str("key"),
            Kind::Not(inner) => write!(f, "(not {inner})"),
            Kind::Negate(inner) => write!(f, "(- {inner})"),
            Kind::And(operands) => list(f, operands, " and "),
            Kind::Or(operands) => list(f, operands, " or "),
            Kind::Compare(operator, left, right) => write!(f, "({left} {} {right})", operator.symbol()),
            Kind::Compute(operator, left, right) => write!(f, "({left} {} {right})", operator.symbol()),
            Kind::In(value, items) => {
                write!(f, "({value} in ")?;
                list(f, items, ", ")?;
                f.write_str(")")
            }
            Kind::IsNull(inner) => write!(f, "({inner} is null)"),
            Kind::Call(function, arguments) => {
                f.write_str(function.name())?;
                list(f, arguments, ", ")
            }
        }
    }
}

fn list(f: &mut fmt::Formatter<'_>, items: &[Expr], separator: &str) -> fmt::Result {
    f.write_str("(")?;
    for (index, item) in items.iter().enumerate() {
        if index > 0 {
            f.write_str(separator)?;
        }
        write!(f, "{item}")?;
    }
    f.write_str(")")
}

#[cfg(test)]
mod tests;
