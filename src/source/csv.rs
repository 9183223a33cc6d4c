//! One record of CSV: its cells, their types, and its end. RFC 4180 with the leniency of common readers: a quote opens only at
//! the beginning of a cell, records end with LF or CRLF outside quotes, an empty cell is null.

use crate::format::schema::words;
use crate::source::json::Shape;
use arrow::datatypes::DataType;
use serde_json::Value;

/// Follows quotes over any number of pieces, so that a line break within quotes ends no record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Scan {
    /// At the beginning of a cell.
    #[default]
    Start,
    Plain,
    Quoted,
    /// Behind a quote within quotes: it was the last one, or half of an escaped one.
    Quote,
}

impl Scan {
    /// The state after a byte. The record ends with a line feed after which the state is `Start`.
    pub fn after(self, byte: u8, delimiter: u8) -> Scan {
        match (self, byte) {
            (Scan::Start, b'"') | (Scan::Quote, b'"') => Scan::Quoted,
            (Scan::Quoted, b'"') => Scan::Quote,
            (Scan::Quoted, _) => Scan::Quoted,
            (_, b'\n') => Scan::Start,
            (_, b) if b == delimiter => Scan::Start,
            _ => Scan::Plain,
        }
    }
}

/// The cells of one record, with or without its line break.
pub(super) fn cells(record: &[u8], delimiter: u8) -> Result<Vec<String>, String> {
    let record = record.strip_suffix(b"\n").unwrap_or(record);
    let record = record.strip_suffix(b"\r").unwrap_or(record);
    let mut cells = Vec::new();
    let mut cell = Vec::new();
    let mut scan = Scan::Start;
    let mut close = |cell: &mut Vec<u8>| match String::from_utf8(std::mem::take(cell)) {
        Ok(text) => {
            cells.push(text);
            Ok(())
        }
        Err(_) => Err(format!("cell {} is not UTF-8; convert the file to UTF-8", cells.len() + 1)),
    };
    for &byte in record {
        let next = scan.after(byte, delimiter);
        match (scan, next) {
            (Scan::Start, Scan::Quoted) | (Scan::Quoted, Scan::Quote) => {}
            (Scan::Start | Scan::Plain | Scan::Quote, Scan::Start) if byte == delimiter => close(&mut cell)?,
            _ => cell.push(byte),
        }
        scan = next;
    }
    if scan == Scan::Quoted {
        return Err("a quote is never closed".to_owned());
    }
    close(&mut cell)?;
    Ok(cells)
}

/// The type of a cell. Numbers with leading zeros, as in postcodes, are text.
pub(super) fn shape(cell: &str) -> Shape {
    match cell {
        "" => Shape::Unknown,
        "true" | "false" | "True" | "False" | "TRUE" | "FALSE" => Shape::Bool,
        _ if is_integer(cell) => {
            if cell.parse::<i64>().is_ok() {
                Shape::Int
            } else {
                Shape::Text
            }
        }
        _ if is_number(cell) => Shape::Float,
        _ => Shape::Text,
    }
}

/// The cell as a value of a column's type, or why it is none.
pub(super) fn value(cell: &str, data_type: &DataType) -> Result<Value, String> {
    if cell.is_empty() {
        return Ok(Value::Null);
    }
    let value = match data_type {
        DataType::LargeUtf8 => Some(Value::from(cell)),
        DataType::Boolean if shape(cell) == Shape::Bool => Some(Value::from(cell.eq_ignore_ascii_case("true"))),
        DataType::Int64 if is_integer(cell) => cell.parse::<i64>().ok().map(Value::from),
        DataType::Float64 if is_integer(cell) || is_number(cell) => cell.parse::<f64>().ok().map(Value::from),
        _ => None,
    };
    value.ok_or_else(|| format!("expected {}, found {:?}", words(data_type), cell.chars().take(60).collect::<String>()))
}

fn is_integer(cell: &str) -> bool {
    let digits = cell.strip_prefix('-').unwrap_or(cell);
    !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit()) && (digits == "0" || !digits.starts_with('0'))
}

fn is_number(cell: &str) -> bool {
    let body = cell.strip_prefix('-').unwrap_or(cell);
    let zeros = body.len() > 1 && body.starts_with('0') && body.as_bytes()[1].is_ascii_digit();
    let plain = body.starts_with(|c: char| c.is_ascii_digit() || c == '.')
        && body.bytes().all(|b| b.is_ascii_digit() || b".eE+-".contains(&b));
    plain && !zeros && cell.parse::<f64>().is_ok_and(f64::is_finite)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_of_a_record() {
        let check =
            |record: &str, expect: &[&str]| assert_eq!(cells(record.as_bytes(), b',').unwrap(), expect, "{record:?}");
        check("a,b\r\n", &["a", "b"]);
        check("\"a,\"\"b\"\"\n\",,c", &["a,\"b\"\n", "", "c"]);
        check("5\" disk,x", &["5\" disk", "x"]);
        check("\"a\"b,c", &["ab", "c"]);
        check("", &[""]);
        check(",", &["", ""]);
        assert!(cells(b"\"open", b',').unwrap_err().contains("never closed"));
        assert!(cells(b"a,caf\xe9", b',').unwrap_err().contains("cell 2"));
    }

    #[test]
    fn types_of_cells() {
        let check = |cell: &str, expect: Shape| assert_eq!(shape(cell), expect, "{cell:?}");
        check("0", Shape::Int);
        check("-12", Shape::Int);
        check("007", Shape::Text);
        check("1e3", Shape::Float);
        check("-0.5", Shape::Float);
        check("99999999999999999999", Shape::Text);
        check("nan", Shape::Text);
        check("1-2", Shape::Text);
        check("True", Shape::Bool);
        check("", Shape::Unknown);
        assert_eq!(value("", &DataType::LargeUtf8).unwrap(), Value::Null);
        assert_eq!(value("2", &DataType::Float64).unwrap(), Value::from(2.0));
        assert!(value("2.5", &DataType::Int64).unwrap_err().contains("expected int64, found \"2.5\""));
    }
}
