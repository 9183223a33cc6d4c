//! Text to tokens. Strings stand in '..' or "..", odd column names in backquotes; in each, the closing mark is written
//! doubled to mean itself, and nothing else is an escape, so that regular expressions need no second layer of them.

use super::{Fault, MAX_BYTES};

#[derive(Debug, Clone, PartialEq)]
pub(super) enum Token {
    /// A word: keyword, function or column.
    Word(String),
    /// A column's name in backquotes.
    Column(String),
    Int(u64),
    Float(f64),
    Str(String),
    Symbol(&'static str),
    End,
}

impl Token {
    /// As an error shows it.
    pub(super) fn describe(&self) -> String {
        match self {
            Token::Word(word) => format!("{word:?}"),
            Token::Column(name) => format!("the column {name:?}"),
            Token::Int(value) => format!("the number {value}"),
            Token::Float(value) => format!("the number {value:?}"),
            Token::Str(value) => format!("the text {value:?}"),
            Token::Symbol(symbol) => format!("`{symbol}`"),
            Token::End => "the end of the expression".to_owned(),
        }
    }
}

/// Longer symbols stand before their prefixes.
const SYMBOLS: [&str; 17] = ["==", "!=", "<=", ">=", "&&", "||", "=", "<", ">", "!", "+", "-", "*", "/", "%", "(", ")"];

/// The tokens with the bytes at which they begin; the last is `End`.
pub(super) fn tokens(text: &str) -> Result<Vec<(usize, Token)>, Fault> {
    if text.len() > MAX_BYTES {
        return Err(Fault::new(0, format!("an expression of {} bytes; at most {MAX_BYTES} are read", text.len())));
    }
    let mut found = Vec::new();
    let mut at = 0;
    while let Some(next) = rest(text, at).chars().next() {
        let begin = at;
        let token = match next {
            c if c.is_whitespace() => {
                at += c.len_utf8();
                continue;
            }
            '\'' | '"' => Token::Str(quoted(text, &mut at, next)?),
            '`' => Token::Column(quoted(text, &mut at, next)?),
            c if c.is_ascii_digit() => number(text, &mut at)?,
            c if c.is_alphabetic() || c == '_' => {
                let word = prefix(rest(text, at), |c| c.is_alphanumeric() || c == '_');
                at += word.len();
                Token::Word(word.to_owned())
            }
            ',' => {
                at += 1;
                Token::Symbol(",")
            }
            other => match SYMBOLS.into_iter().find(|s| rest(text, at).starts_with(s)) {
                Some(symbol) => {
                    at += symbol.len();
                    Token::Symbol(symbol)
                }
                None => return Err(Fault::new(at, format!("unexpected {other:?} in the expression"))),
            },
        };
        found.push((begin, token));
    }
    found.push((text.len(), Token::End));
    Ok(found)
}

fn rest(text: &str, at: usize) -> &str {
    text.get(at..).unwrap_or_default()
}

fn prefix(text: &str, belongs: impl Fn(char) -> bool) -> &str {
    text.split(|c| !belongs(c)).next().unwrap_or_default()
}

fn quoted(text: &str, at: &mut usize, mark: char) -> Result<String, Fault> {
    let begin = *at;
    let mut value = String::new();
    let mut chars = rest(text, begin + 1).char_indices().peekable();
    while let Some((offset, c)) = chars.next() {
        if c != mark {
            value.push(c);
        } else if chars.next_if(|(_, next)| *next == mark).is_some() {
            value.push(mark);
        } else {
            *at = begin + 1 + offset + 1;
            return Ok(value);
        }
    }
    Err(Fault::new(begin, format!("`{mark}` is opened here and never closed")))
}

fn number(text: &str, at: &mut usize) -> Result<Token, Fault> {
    let begin = *at;
    let digits = |from: usize| prefix(rest(text, from), |c| c.is_ascii_digit()).len();
    let mut end = begin + digits(begin);
    let mut whole = true;
    if rest(text, end).starts_with('.') {
        whole = false;
        end += 1 + digits(end + 1);
    }
    if rest(text, end).starts_with(['e', 'E']) {
        let sign = usize::from(rest(text, end + 1).starts_with(['+', '-']));
        let exponent = digits(end + 1 + sign);
        if exponent > 0 {
            whole = false;
            end += 1 + sign + exponent;
        }
    }
    let more = prefix(rest(text, end), |c| c.is_alphanumeric() || c == '_' || c == '.');
    let written = text.get(begin..end).unwrap_or_default();
    if !more.is_empty() {
        return Err(Fault::new(begin, format!("\"{written}{more}\" is no number")));
    }
    *at = end;
    if whole {
        let value = written.parse();
        return value.map(Token::Int).map_err(|_| {
            Fault::new(begin, format!("{written} is too large; integers reach from {} to {}", i64::MIN, u64::MAX))
        });
    }
    match written.parse::<f64>() {
        Ok(value) if value.is_finite() => Ok(Token::Float(value)),
        _ => Err(Fault::new(begin, format!("{written} is too large for a float64"))),
    }
}
