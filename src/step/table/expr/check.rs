//! The tree against a schema: every type is known before the first row, and what evaluation needs (columns, sets,
//! regular expressions) is found once.

use super::{Arithmetic, Comparison, Expr, Fault, Function, Kind, Program};
use crate::format::KEY;
use crate::format::schema::words;
use crate::spec::node::suggest;
use crate::step::table::names;
use arrow::datatypes::{DataType, Schema, SchemaRef};
use std::collections::{BTreeSet, HashSet};

/// Largest compiled regular expression.
const MAX_REGEX_BYTES: usize = 1 << 20;

#[derive(Debug)]
pub(super) enum Typed {
    Bool(bool),
    Int(i128),
    Float(f64),
    Str(String),
    /// The value of `Program::inputs` at this index.
    Input(usize),
    Not(Box<Typed>),
    Negate(Box<Typed>),
    And(Vec<Typed>),
    Or(Vec<Typed>),
    Compare(Comparison, Box<Typed>, Box<Typed>),
    Compute(Arithmetic, Box<Typed>, Box<Typed>),
    In(Box<Typed>, Set),
    IsNull(Box<Typed>),
    /// Of a text.
    Call(Function, Box<Typed>),
    /// Of two texts.
    Test(Function, Box<Typed>, Box<Typed>),
    Matches(Box<Typed>, regex::Regex),
}

/// The list of `in`.
#[derive(Debug, Default)]
pub(super) struct Set {
    pub bools: HashSet<bool>,
    pub ints: HashSet<i128>,
    pub floats: Vec<f64>,
    pub texts: HashSet<String>,
}

/// A column as the program reads it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Input {
    pub column: usize,
    pub form: Form,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    Bool,
    Int,
    UInt,
    Float,
    Text,
    /// How many bytes or items each value has.
    Length,
    /// Only whether it is null.
    Presence,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Type {
    Bool,
    Int,
    Float,
    Text,
}

impl Type {
    const fn name(self) -> &'static str {
        match self {
            Type::Bool => "true or false",
            Type::Int => "an integer",
            Type::Float => "a float",
            Type::Text => "a text",
        }
    }
    const fn is_number(self) -> bool {
        matches!(self, Type::Int | Type::Float)
    }
}

/// Checks that the tree is a condition on rows of `schema`.
pub(super) fn condition(tree: &Expr, schema: &SchemaRef) -> Result<Program, Fault> {
    let mut check = Check { schema, inputs: Vec::new() };
    let root = check.expect(tree, Type::Bool, "a condition")?;
    let reads: BTreeSet<&str> =
        check.inputs.iter().filter_map(|i| schema.fields().get(i.column)).map(|f| f.name().as_str()).collect();
    Ok(Program {
        text: tree.to_string(),
        reads: reads.into_iter().map(str::to_owned).collect(),
        root,
        inputs: check.inputs,
    })
}

struct Check<'a> {
    schema: &'a Schema,
    inputs: Vec<Input>,
}

impl Check<'_> {
    fn expect(&mut self, tree: &Expr, expected: Type, what: &str) -> Result<Typed, Fault> {
        match self.value(tree)? {
            (typed, found) if found == expected => Ok(typed),
            (_, found) => {
                let hint = if expected == Type::Bool { "; compare it with something" } else { "" };
                let wants = format!("{what} must be {}", expected.name());
                Err(Fault::new(tree.at, format!("{wants}, found {}{hint}", found.name())))
            }
        }
    }
    fn boxed(&mut self, tree: &Expr, expected: Type, what: &str) -> Result<Box<Typed>, Fault> {
        self.expect(tree, expected, what).map(Box::new)
    }
    fn number(&mut self, tree: &Expr, operator: &str) -> Result<(Box<Typed>, Type), Fault> {
        match self.value(tree)? {
            (typed, found) if found.is_number() => Ok((Box::new(typed), found)),
            (_, found) => Err(Fault::new(tree.at, format!("`{operator}` takes numbers, found {}", found.name()))),
        }
    }

    fn value(&mut self, tree: &Expr) -> Result<(Typed, Type), Fault> {
        Ok(match &tree.kind {
            Kind::Bool(value) => (Typed::Bool(*value), Type::Bool),
            Kind::Int(value) => (Typed::Int(*value), Type::Int),
            Kind::Float(value) => (Typed::Float(*value), Type::Float),
            Kind::Str(value) => (Typed::Str(value.clone()), Type::Text),
            Kind::Key => (self.input(tree.at, KEY, Form::Text)?, Type::Text),
            Kind::Column(name) => self.column(tree.at, name)?,
            Kind::Not(inner) => (Typed::Not(self.boxed(inner, Type::Bool, "what `not` negates")?), Type::Bool),
            Kind::Negate(inner) => {
                let (typed, found) = self.number(inner, "-")?;
                (Typed::Negate(typed), found)
            }
            Kind::And(operands) => (Typed::And(self.conditions(operands, "and")?), Type::Bool),
            Kind::Or(operands) => (Typed::Or(self.conditions(operands, "or")?), Type::Bool),
            Kind::Compare(operator, left, right) => (self.compare(*operator, left, right)?, Type::Bool),
            Kind::Compute(operator, left, right) => {
                let (left, a) = self.number(left, operator.symbol())?;
                let (right, b) = self.number(right, operator.symbol())?;
                let whole = a == Type::Int && b == Type::Int && *operator != Arithmetic::Divide;
                (Typed::Compute(*operator, left, right), if whole { Type::Int } else { Type::Float })
            }
            Kind::In(value, items) => (self.member(value, items)?, Type::Bool),
            Kind::IsNull(inner) => (Typed::IsNull(Box::new(self.presence(inner)?)), Type::Bool),
            Kind::Call(function, arguments) => self.call(tree, *function, arguments)?,
        })
    }

    fn conditions(&mut self, operands: &[Expr], operator: &str) -> Result<Vec<Typed>, Fault> {
        operands.iter().map(|o| self.expect(o, Type::Bool, &format!("each side of `{operator}`"))).collect()
    }

    fn compare(&mut self, operator: Comparison, left: &Expr, right: &Expr) -> Result<Typed, Fault> {
        let (a, found) = self.value(left)?;
        let (b, other) = self.value(right)?;
        comparable(right.at, found, other)?;
        if found == Type::Bool && !matches!(operator, Comparison::Equal | Comparison::NotEqual) {
            let message = format!("true and false have no order; `{}` takes numbers or texts", operator.symbol());
            return Err(Fault::new(left.at, message));
        }
        Ok(Typed::Compare(operator, Box::new(a), Box::new(b)))
    }

    fn member(&mut self, value: &Expr, items: &[Expr]) -> Result<Typed, Fault> {
        let (typed, found) = self.value(value)?;
        let mut set = Set::default();
        for item in items {
            let kind = match &item.kind {
                Kind::Bool(value) => {
                    set.bools.insert(*value);
                    Type::Bool
                }
                Kind::Int(value) => {
                    set.ints.insert(*value);
                    Type::Int
                }
                Kind::Float(value) => {
                    set.floats.push(*value);
                    Type::Float
                }
                Kind::Str(value) => {
                    set.texts.insert(value.clone());
                    Type::Text
                }
                _ => return Err(Fault::new(item.at, "expected a constant in the list of `in`")),
            };
            comparable(item.at, found, kind)?;
        }
        Ok(Typed::In(Box::new(typed), set))
    }

    /// A value of which only the presence is asked: a column of any type, or an expression.
    fn presence(&mut self, tree: &Expr) -> Result<Typed, Fault> {
        match &tree.kind {
            Kind::Column(name) => self.input(tree.at, name, Form::Presence),
            _ => Ok(self.value(tree)?.0),
        }
    }

    fn call(&mut self, tree: &Expr, function: Function, arguments: &[Expr]) -> Result<(Typed, Type), Fault> {
        let fault = || Fault::new(tree.at, format!("{}() takes {} arguments", function.name(), function.arguments()));
        let first = arguments.first().ok_or_else(fault)?;
        let what = format!("the argument of {}()", function.name());
        if function == Function::Length
            && let Kind::Column(name) = &first.kind
            && self.schema.field_with_name(name).is_ok_and(|f| has_items(f.data_type()))
        {
            return Ok((self.input(first.at, name, Form::Length)?, Type::Int));
        }
        let text = self.boxed(first, Type::Text, &what)?;
        match function {
            Function::Hash | Function::Length => Ok((Typed::Call(function, text), Type::Int)),
            Function::Lower | Function::Upper => Ok((Typed::Call(function, text), Type::Text)),
            Function::StartsWith | Function::EndsWith | Function::Contains => {
                let part = self.boxed(arguments.get(1).ok_or_else(fault)?, Type::Text, &what)?;
                Ok((Typed::Test(function, text, part), Type::Bool))
            }
            Function::Matches => {
                let pattern = arguments.get(1).ok_or_else(fault)?;
                let Kind::Str(source) = &pattern.kind else {
                    return Err(Fault::new(pattern.at, "the pattern of matches() must be a text in quotes"));
                };
                let regex = regex::RegexBuilder::new(source).size_limit(MAX_REGEX_BYTES).build();
                let regex = regex.map_err(|e| {
                    let reason = e.to_string();
                    let reason = reason.lines().last().unwrap_or_default().trim_start_matches("error: ");
                    Fault::new(pattern.at, format!("{source:?} is no regular expression: {reason}"))
                })?;
                Ok((Typed::Matches(text, regex), Type::Bool))
            }
        }
    }

    fn column(&mut self, at: usize, name: &str) -> Result<(Typed, Type), Fault> {
        let column = self.find(at, name)?;
        let data_type = self.schema.field(column).data_type();
        let (form, found) = match scalar(data_type) {
            Some(known) => known,
            None => {
                let usable = if has_items(data_type) { "length() and `is null` take it" } else { "`is null` takes it" };
                return Err(Fault::new(
                    at,
                    format!("the column {name:?} is of type {}; only {usable}", words(data_type)),
                ));
            }
        };
        Ok((self.input(at, name, form)?, found))
    }

    fn input(&mut self, at: usize, name: &str, form: Form) -> Result<Typed, Fault> {
        let input = Input { column: self.find(at, name)?, form };
        let known = self.inputs.iter().position(|i| *i == input);
        Ok(Typed::Input(known.unwrap_or_else(|| {
            self.inputs.push(input);
            self.inputs.len() - 1
        })))
    }

    fn find(&self, at: usize, name: &str) -> Result<usize, Fault> {
        if name.starts_with('_') && name != KEY {
            let message = format!("{name:?} can't be tested: columns that begin with `_` are Forebay's own");
            return Err(Fault::new(at, format!("{message}, and failed rows stay in the data until the reader")));
        }
        self.schema.index_of(name).map_err(|_| {
            let hint = suggest(name, "a text stands in quotes, and the columns are", names(self.schema));
            Fault::new(at, format!("unknown column {name:?}; {hint}"))
        })
    }
}

fn comparable(at: usize, left: Type, right: Type) -> Result<(), Fault> {
    if left == right || (left.is_number() && right.is_number()) {
        return Ok(());
    }
    Err(Fault::new(at, format!("can't compare {} with {}; both must be of one kind", left.name(), right.name())))
}

fn scalar(data_type: &DataType) -> Option<(Form, Type)> {
    Some(match data_type {
        DataType::Boolean => (Form::Bool, Type::Bool),
        DataType::UInt64 => (Form::UInt, Type::Int),
        t if t.is_integer() => (Form::Int, Type::Int),
        t if t.is_floating() => (Form::Float, Type::Float),
        t if t.is_string() => (Form::Text, Type::Text),
        DataType::Dictionary(_, value) if value.is_string() => (Form::Text, Type::Text),
        _ => return None,
    })
}

fn has_items(data_type: &DataType) -> bool {
    matches!(data_type, DataType::Binary | DataType::LargeBinary | DataType::List(_) | DataType::LargeList(_))
}
