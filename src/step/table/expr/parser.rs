//! Tokens to a tree by recursive descent, loosest first: or, and, not, one comparison, sums, products, signs, atoms.

use super::lexer::{Token, tokens};
use super::{Arithmetic, Comparison, Expr, Fault, Function, Kind, MAX_HEIGHT};
use crate::format::KEY;
use crate::spec::node::suggest;

type Parsed = Result<Expr, Fault>;

pub(super) fn parse(text: &str) -> Parsed {
    let mut parser = Parser { tokens: tokens(text)?, next: 0, depth: 0 };
    let tree = parser.or()?;
    match parser.peek() {
        Token::End => Ok(tree),
        other => Err(parser.fault(format!("expected an operator or the end, found {}", other.describe()))),
    }
}

struct Parser {
    tokens: Vec<(usize, Token)>,
    next: usize,
    /// Open recursions, so that the text can't exhaust the stack.
    depth: usize,
}

/// Words that are no columns unless they stand in backquotes.
const KEYWORDS: [&str; 9] = ["and", "or", "not", "in", "is", "null", "true", "false", "key"];

impl Parser {
    fn peek(&self) -> &Token {
        self.tokens.get(self.next).map_or(&Token::End, |(_, token)| token)
    }
    fn at(&self) -> usize {
        self.tokens.get(self.next).or(self.tokens.last()).map_or(0, |(at, _)| *at)
    }
    fn fault(&self, message: impl Into<String>) -> Fault {
        Fault::new(self.at(), message)
    }
    fn symbol(&mut self, symbols: &[&'static str]) -> Option<&'static str> {
        match self.peek() {
            Token::Symbol(symbol) if symbols.contains(symbol) => {
                let symbol = *symbol;
                self.next += 1;
                Some(symbol)
            }
            _ => None,
        }
    }
    fn keyword(&mut self, keyword: &str) -> bool {
        let found = matches!(self.peek(), Token::Word(word) if word.eq_ignore_ascii_case(keyword));
        self.next += usize::from(found);
        found
    }
    fn expect(&mut self, symbol: &'static str) -> Result<(), Fault> {
        match self.symbol(&[symbol]) {
            Some(_) => Ok(()),
            None => Err(self.fault(format!("expected `{symbol}`, found {}", self.peek().describe()))),
        }
    }

    fn or(&mut self) -> Parsed {
        self.chain("or", "||", Self::and, Kind::Or, |kind| match kind {
            Kind::Or(operands) => Ok(operands),
            other => Err(other),
        })
    }
    fn and(&mut self) -> Parsed {
        self.chain("and", "&&", Self::not, Kind::And, |kind| match kind {
            Kind::And(operands) => Ok(operands),
            other => Err(other),
        })
    }
    /// Operands joined by `word` or `symbol`, in one flat node however they were grouped.
    fn chain(
        &mut self,
        word: &str,
        symbol: &'static str,
        operand: impl Fn(&mut Self) -> Parsed,
        make: impl Fn(Vec<Expr>) -> Kind,
        flat: impl Fn(Kind) -> Result<Vec<Expr>, Kind>,
    ) -> Parsed {
        let first = operand(self)?;
        let at = first.at;
        let mut operands = vec![first];
        while self.keyword(word) || self.symbol(&[symbol]).is_some() {
            operands.push(operand(self)?);
        }
        if operands.len() == 1 {
            return operands.pop().ok_or_else(|| self.fault("expected an operand"));
        }
        let mut joined = Vec::with_capacity(operands.len());
        for Expr { at, height, kind } in operands {
            match flat(kind) {
                Ok(inner) => joined.extend(inner),
                Err(kind) => joined.push(Expr { at, height, kind }),
            }
        }
        let height = joined.iter().map(|e| e.height).max().unwrap_or(0);
        self.grown(at, height, make(joined))
    }
    /// A node over operands of at most this height.
    fn grown(&self, at: usize, height: usize, kind: Kind) -> Parsed {
        if height >= MAX_HEIGHT {
            return Err(Fault::new(at, format!("the expression is nested more than {MAX_HEIGHT} deep here")));
        }
        Ok(Expr { at, height: height + 1, kind })
    }
    /// Runs a part of the grammar that leads back to itself.
    fn deeper(&mut self, part: impl FnOnce(&mut Self) -> Parsed) -> Parsed {
        if self.depth >= MAX_HEIGHT {
            return Err(self.fault(format!("the expression is nested more than {MAX_HEIGHT} deep here")));
        }
        self.depth += 1;
        let parsed = part(self);
        self.depth -= 1;
        parsed
    }
    fn negated(&self, at: usize, inner: Expr) -> Parsed {
        self.grown(at, inner.height, Kind::Not(Box::new(inner)))
    }

    fn not(&mut self) -> Parsed {
        let at = self.at();
        if self.keyword("not") {
            let inner = self.deeper(Self::not)?;
            return self.negated(at, inner);
        }
        self.comparison()
    }

    fn comparison(&mut self) -> Parsed {
        let left = self.sum()?;
        let at = left.at;
        if self.keyword("is") {
            let not = self.keyword("not");
            if !self.keyword("null") {
                return Err(self.fault(format!("expected `null`, found {}", self.peek().describe())));
            }
            let test = self.grown(at, left.height, Kind::IsNull(Box::new(left)))?;
            return if not { self.negated(at, test) } else { Ok(test) };
        }
        if self.keyword("not") {
            if !self.keyword("in") {
                return Err(self.fault(format!("expected `in`, found {}", self.peek().describe())));
            }
            let test = self.list(left)?;
            return self.negated(at, test);
        }
        if self.keyword("in") {
            return self.list(left);
        }
        let Some(operator) = self.comparator() else { return Ok(left) };
        let right = self.sum()?;
        if self.comparator().is_some() {
            self.next -= 1;
            return Err(self.fault("comparisons can't be chained; join two of them with `and`"));
        }
        let height = left.height.max(right.height);
        self.grown(at, height, Kind::Compare(operator, Box::new(left), Box::new(right)))
    }
    fn comparator(&mut self) -> Option<Comparison> {
        Some(match self.symbol(&["=", "==", "!=", "<", "<=", ">", ">="])? {
            "=" | "==" => Comparison::Equal,
            "!=" => Comparison::NotEqual,
            "<" => Comparison::Less,
            "<=" => Comparison::LessOrEqual,
            ">" => Comparison::Greater,
            _ => Comparison::GreaterOrEqual,
        })
    }
    fn list(&mut self, value: Expr) -> Parsed {
        self.expect("(")?;
        let mut items = Vec::new();
        loop {
            let item = self.sign()?;
            if !matches!(item.kind, Kind::Bool(_) | Kind::Int(_) | Kind::Float(_) | Kind::Str(_)) {
                return Err(Fault::new(item.at, "expected a number, a text, true or false in the list of `in`"));
            }
            items.push(item);
            if self.symbol(&[","]).is_none() {
                break;
            }
        }
        self.expect(")")?;
        self.grown(value.at, value.height, Kind::In(Box::new(value), items))
    }

    fn sum(&mut self) -> Parsed {
        let mut left = self.product()?;
        while let Some(symbol) = self.symbol(&["+", "-"]) {
            let operator = if symbol == "+" { Arithmetic::Add } else { Arithmetic::Subtract };
            let right = self.product()?;
            left = self.compute(operator, left, right)?;
        }
        Ok(left)
    }
    fn product(&mut self) -> Parsed {
        let mut left = self.sign()?;
        while let Some(symbol) = self.symbol(&["*", "/", "%"]) {
            let operator = match symbol {
                "*" => Arithmetic::Multiply,
                "/" => Arithmetic::Divide,
                _ => Arithmetic::Remainder,
            };
            let right = self.sign()?;
            left = self.compute(operator, left, right)?;
        }
        Ok(left)
    }
    fn compute(&self, operator: Arithmetic, left: Expr, right: Expr) -> Parsed {
        let height = left.height.max(right.height);
        self.grown(left.at, height, Kind::Compute(operator, Box::new(left), Box::new(right)))
    }

    fn sign(&mut self) -> Parsed {
        let at = self.at();
        match self.symbol(&["-", "!"]) {
            Some("-") => {
                let inner = self.deeper(Self::sign)?;
                match inner.kind {
                    Kind::Int(value) if value > -i128::from(i64::MIN) => {
                        Err(Fault::new(at, format!("-{value} is too small; integers begin at {}", i64::MIN)))
                    }
                    Kind::Int(value) => Ok(Expr::leaf(at, Kind::Int(-value))),
                    Kind::Float(value) => Ok(Expr::leaf(at, Kind::Float(-value))),
                    _ => self.grown(at, inner.height, Kind::Negate(Box::new(inner))),
                }
            }
            Some(_) => {
                let inner = self.deeper(Self::sign)?;
                self.negated(at, inner)
            }
            None => self.atom(),
        }
    }

    fn atom(&mut self) -> Parsed {
        let at = self.at();
        let token = self.peek().clone();
        self.next += usize::from(token != Token::End);
        match token {
            Token::Int(value) => Ok(Expr::leaf(at, Kind::Int(value.into()))),
            Token::Float(value) => Ok(Expr::leaf(at, Kind::Float(value))),
            Token::Str(value) => Ok(Expr::leaf(at, Kind::Str(value))),
            Token::Column(name) => Ok(Expr::leaf(at, column(name))),
            Token::Symbol("(") => {
                let inner = self.deeper(Self::or)?;
                self.expect(")")?;
                Ok(inner)
            }
            Token::Word(word) => self.word(at, word),
            other => Err(Fault::new(at, format!("expected a value, found {}", other.describe()))),
        }
    }
    fn word(&mut self, at: usize, word: String) -> Parsed {
        let lower = word.to_ascii_lowercase();
        match lower.as_str() {
            "true" => return Ok(Expr::leaf(at, Kind::Bool(true))),
            "false" => return Ok(Expr::leaf(at, Kind::Bool(false))),
            "null" => return Err(Fault::new(at, "null equals nothing; write `is null` or `is not null`")),
            "key" => return Ok(Expr::leaf(at, Kind::Key)),
            reserved if KEYWORDS.contains(&reserved) => {
                let hint = format!("a column of that name stands in backquotes: `{word}`");
                return Err(Fault::new(at, format!("expected a value, found {word:?}; {hint}")));
            }
            _ => {}
        }
        if self.symbol(&["("]).is_none() {
            return Ok(Expr::leaf(at, column(word)));
        }
        let Some(function) = Function::ALL.into_iter().find(|f| f.name() == lower) else {
            let hint = suggest(&lower, "the functions are", Function::ALL.into_iter().map(Function::name));
            return Err(Fault::new(at, format!("unknown function {word:?}; {hint}")));
        };
        let mut arguments = Vec::new();
        if self.symbol(&[")"]).is_none() {
            loop {
                arguments.push(self.deeper(Self::or)?);
                if self.symbol(&[","]).is_none() {
                    break;
                }
            }
            self.expect(")")?;
        }
        let (name, expected) = (function.name(), function.arguments());
        if arguments.len() != expected {
            let s = if expected == 1 { "" } else { "s" };
            return Err(Fault::new(at, format!("{name}() takes {expected} argument{s}, found {}", arguments.len())));
        }
        let height = arguments.iter().map(|e| e.height).max().unwrap_or(0);
        self.grown(at, height, Kind::Call(function, arguments))
    }
}

/// A column; the sample key has one form, however it is written.
fn column(name: String) -> Kind {
    if name == KEY { Kind::Key } else { Kind::Column(name) }
}
