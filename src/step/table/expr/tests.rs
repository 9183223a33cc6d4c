//! Tests of the expression language: the normal form, types, values, and text from the wild.

use super::*;
use crate::step::table::tests::{batch, texts};
use arrow::array::*;
use arrow::datatypes::Float32Type;
use proptest::prelude::*;
use std::sync::Arc;

fn span() -> Span {
    Span { file: "t.yaml".into(), line: 3, column: 8, field: "".into() }
}

/// One row of each kind of column and one of nulls.
fn rows() -> RecordBatch {
    let list = FixedSizeListArray::from_iter_primitive::<Float32Type, _, _>(vec![Some(vec![Some(1.0); 2]), None], 2);
    let tokens = ListArray::from_iter_primitive::<Float32Type, _, _>(vec![Some(vec![Some(1.0); 3]), None]);
    let columns: Vec<(&str, ArrayRef)> = vec![
        ("b", Arc::new(BooleanArray::from(vec![Some(true), None]))),
        ("i", Arc::new(Int32Array::from(vec![Some(7), None]))),
        ("u", Arc::new(UInt64Array::from(vec![Some(u64::MAX), None]))),
        ("f", Arc::new(Float64Array::from(vec![Some(2.5), None]))),
        ("h", Arc::new(Float16Array::from(vec![Some(half::f16::from_f32(0.5)), None]))),
        ("nan", Arc::new(Float32Array::from(vec![Some(f32::NAN), None]))),
        ("s", texts(&[Some("Ünï"), None])),
        ("odd name", texts(&[Some("it's"), None])),
        ("key", texts(&[Some("a column"), None])),
        ("bytes", Arc::new(LargeBinaryArray::from(vec![Some(&b"abcd"[..]), None]))),
        ("pixels", Arc::new(list)),
        ("tokens", Arc::new(tokens)),
        ("void", Arc::new(NullArray::new(2))),
    ];
    batch(&columns, &[])
}

fn program(text: &str) -> Result<Program> {
    compile(text, &span(), &rows().schema())
}

fn value(text: &str, row: usize) -> std::result::Result<Option<bool>, String> {
    let program = program(text).unwrap_or_else(|e| panic!("{text}: {e}"));
    let rows = rows();
    let value = program.bind(&rows).unwrap().test(row);
    value.map_err(|reason| reason.into_owned())
}

fn refused(text: &str) -> String {
    program(text).expect_err(text).message().to_owned()
}

#[test]
fn normal_form() {
    for (text, expected) in [
        ("i=1", "(`i` = 1)"),
        ("i == 1 && ! b || not b and b", "(((`i` = 1) and (not `b`)) or ((not `b`) and `b`))"),
        ("b and (b and b) and b", "(`b` and `b` and `b` and `b`)"),
        ("not i = 1", "(not (`i` = 1))"),
        ("i + 2 * i - -3 > 0", "(((`i` + (2 * `i`)) - -3) > 0)"),
        ("-i*2 < 1e3", "(((- `i`) * 2) < 1000.0)"),
        ("i % 20 not in (1, -2, 3.5)", "(not ((`i` % 20) in (1, -2, 3.5)))"),
        ("s IS NOT NULL", "(not (`s` is null))"),
        ("`odd name` = \"it's\"", "(`odd name` = 'it''s')"),
        ("_key = 'a' or KEY = 'b'", "((key = 'a') or (key = 'b'))"),
        ("`key` = 'a'", "(`key` = 'a')"),
        ("Hash(key) % 20 != 0", "((hash(key) % 20) != 0)"),
        ("matches(s, '^\\d+$')", "matches(`s`, '^\\d+$')"),
        (
            "u < 18446744073709551615 and i > -9223372036854775808",
            "((`u` < 18446744073709551615) and (`i` > -9223372036854775808))",
        ),
    ] {
        let program = program(text).unwrap_or_else(|e| panic!("{text}: {e}"));
        assert_eq!(program.text, expected, "{text}");
    }
}

#[test]
fn columns_read() {
    assert_eq!(program("hash(key) % 2 = 0 and i > i and s is null").unwrap().reads, ["_key", "i", "s"]);
    assert_eq!(program("`key` = 'a'").unwrap().reads, ["key"]);
    assert!(program("true").unwrap().reads.is_empty());
}

#[test]
fn values() {
    let (yes, no) = (Ok(Some(true)), Ok(Some(false)));
    for (text, expected) in [
        ("i = 7", yes.clone()),
        ("i = 7.0 and f = 2.5 and h = 0.5", yes.clone()),
        ("u = 18446744073709551615 and u > 9223372036854775807", yes.clone()),
        ("u = 18446744073709551616.0", no.clone()),
        ("u < 18446744073709551616.0 and 18446744073709551616.0 > u", yes.clone()),
        ("i < 7.5 and i > 6.5 and -i > -7.5 and -i < -6.5", yes.clone()),
        ("i / 2 = 3.5 and i % 4 = 3 and -i % 4 = -3 and f % 2 = 0.5", yes.clone()),
        ("1 + 2 * 3 - 4 = 3 and (1 + 2) * 3 = 9", yes.clone()),
        ("nan = nan or nan < 1 or nan >= 1", no.clone()),
        ("nan != 1 and nan != nan", yes.clone()),
        ("s = 'Ünï' and s > 'Z' and length(s) = 3", yes.clone()),
        ("lower(s) = 'ünï' and upper(s) = 'ÜNÏ'", yes.clone()),
        ("starts_with(s, 'Ü') and ends_with(s, 'ï') and contains(s, 'n') and contains(s, '')", yes.clone()),
        ("matches(s, 'n.$') and not matches(s, '^n')", yes.clone()),
        ("length(bytes) = 4 and length(tokens) = 3", yes.clone()),
        ("b and b = true and b != false and !(!b)", yes.clone()),
        ("i in (1, 7) and i in (7.0) and f in (1, 2.5) and f not in (2)", yes.clone()),
        ("s in ('x', 'Ünï') and b in (true)", yes.clone()),
        ("bytes is not null and pixels is not null and void is null", yes.clone()),
        ("key = 'k0' and `key` = 'a column'", yes.clone()),
        ("hash('a') = 0", no.clone()),
        ("i % 0 = 1", Err("division by zero".into())),
        ("i / 0 = 1", Err("division by zero".into())),
        ("f / 0.0 = 1", Err("division by zero".into())),
        ("u + 1 > 0", Err("integer overflow: 18446744073709551616 is outside".into())),
        ("u * u * u > 0", Err("integer overflow: 18446744073709551615 * 18446744073709551615".into())),
        ("-u < 0", Err("integer overflow: -18446744073709551615".into())),
        ("f * 1e308 * 10 > 0", Err("float overflow: ".into())),
        ("f > 100 and i % 0 = 1", no),
        ("i = 7 or i % 0 = 1", yes),
    ] {
        match (value(text, 0), expected) {
            (Err(found), Err(expected)) => assert!(found.starts_with(&expected), "{text}: {found}"),
            (found, expected) => assert_eq!(found, expected, "{text}"),
        }
    }
}

#[test]
fn nulls_are_unknown() {
    for (text, expected) in [
        ("i = 7", None),
        ("i != 7", None),
        ("not b", None),
        ("b and false", Some(false)),
        ("false and b", Some(false)),
        ("b or true", Some(true)),
        ("b or false", None),
        ("b and true", None),
        ("i in (1, 2)", None),
        ("i not in (1, 2)", None),
        ("i + 1 > 0", None),
        ("i % 0 = 1", None),
        ("length(s) = 0", None),
        ("length(tokens) = 0", None),
        ("hash(s) = 0", None),
        ("contains(s, 'a')", None),
        ("i is null and s is null and pixels is null and bytes is null and (i + 1) is null", Some(true)),
        ("key is null", Some(false)),
    ] {
        assert_eq!(value(text, 1), Ok(expected), "{text}");
    }
}

#[test]
fn the_hash_of_a_key_never_changes() {
    // As `formats/expression.md` lists them.
    for (text, expected) in [
        ("", 2736444966269303403),
        ("a.jpg", 4367173055498473269),
        ("cat/0001.jpg", 12639276634493630649),
        ("ключ", 15020875591770633296),
    ] {
        assert_eq!(eval::hash(text), expected, "{text}");
    }
}

#[test]
fn the_hash_spreads() {
    let mut counts = [0; 20];
    for i in 0..20_000 {
        counts[(eval::hash(&format!("photos/{i:06}.jpg")) % 20) as usize] += 1;
    }
    assert!(counts.iter().all(|c| (880..1120).contains(c)), "{counts:?}");
}

#[test]
fn errors_say_where_and_what() {
    for (text, expected) in [
        ("i = ", "3:12: expected a value, found the end of the expression"),
        ("i = 1 i", "3:14: expected an operator or the end, found \"i\""),
        ("i = 'x", "3:12: `'` is opened here and never closed"),
        ("i = 1 # 2", "3:14: unexpected '#' in the expression"),
        ("labl = 1 and s = 1", "3:8: unknown column \"labl\""),
        ("true and\n  s = 1", "4:7: can't compare a text with an integer; both must be of one kind"),
        ("i", "3:8: a condition must be true or false, found an integer; compare it with something"),
        ("i and b", "3:8: each side of `and` must be true or false, found an integer"),
        ("b < true", "true and false have no order"),
        ("s + 1 = 2", "3:8: `+` takes numbers, found a text"),
        ("1 < i < 5", "3:14: comparisons can't be chained; join two of them with `and`"),
        ("i = null", "3:12: null equals nothing; write `is null` or `is not null`"),
        ("lenght(s) = 1", "3:8: unknown function \"lenght\"; did you mean \"length\"?"),
        ("length(s, s) = 1", "length() takes 1 argument, found 2"),
        ("contains(s) = 1", "contains() takes 2 arguments, found 1"),
        ("length(i) = 1", "3:15: the argument of length() must be a text, found an integer"),
        ("hash(i) = 1", "the argument of hash() must be a text"),
        ("matches(s, s)", "3:19: the pattern of matches() must be a text in quotes"),
        ("matches(s, '(')", "\"(\" is no regular expression: unclosed group"),
        ("matches(s, '(\\w{100}){100}')", "is no regular expression: "),
        ("pixels = 1", "3:8: the column \"pixels\" is of type list of 2 float32"),
        ("bytes = 'a'", "only length() and `is null` take it"),
        ("_error is null", "failed rows stay in the data until the reader"),
        ("_row = 1", "can't be tested"),
        ("i in (1, s)", "3:17: expected a number, a text, true or false in the list of `in`"),
        ("i in (1, 'a')", "3:17: can't compare an integer with a text"),
        ("i in ()", "expected a value, found `)`"),
        ("i is 1", "expected `null`, found the number 1"),
        ("i = 18446744073709551616", "is too large; integers reach from -9223372036854775808 to 18446744073709551615"),
        ("i = -9223372036854775809", "-9223372036854775809 is too small"),
        ("f = 1e999", "1e999 is too large for a float64"),
        ("f = 1.2.3", "\"1.2.3\" is no number"),
        ("f = 12ab", "\"12ab\" is no number"),
        ("in = 1", "a column of that name stands in backquotes: `in`"),
        ("s.x = 1", "unexpected '.'"),
        ("(i = 1", "expected `)`, found the end of the expression"),
        ("", "3:8: expected a value, found the end of the expression"),
    ] {
        let found = refused(text);
        assert!(found.starts_with("t.yaml:") && found.contains(expected), "{text}: {found}");
    }
}

#[test]
fn depth_and_length_are_bounded() {
    let deep = |open: &str, close: &str, n: usize| format!("{}true{}", open.repeat(n), close.repeat(n));
    for text in [deep("(", ")", 10_000), deep("not ", "", 10_000), deep("!", "", 10_000)] {
        assert!(refused(&text).contains("nested more than 100 deep"));
    }
    assert!(refused(&format!("0{} = 1", " + i".repeat(1000))).contains("nested more than 100 deep"));
    assert!(refused(&format!("- {}i = 1", "- ".repeat(1000))).contains("nested more than 100 deep"));
    assert!(refused(&"x".repeat(70_000)).contains("at most 65536 are read"));
    // Long but flat is fine.
    assert_eq!(value(&format!("b{}", " and i = 7".repeat(3000)), 0), Ok(Some(true)));
    let list: Vec<String> = (0..5000).map(|i| i.to_string()).collect();
    assert_eq!(value(&format!("i in ({})", list.join(",")), 0), Ok(Some(true)));
}

proptest! {
    #[test]
    fn any_text_is_read_or_refused(text in "[a-z0-9 =<>!&|()+*/%,.'\"`_éß-]{0,60}") {
        let _ = program(&text);
    }

    /// The normal form means the same and is its own normal form.
    #[test]
    fn the_normal_form_is_a_fixed_point(text in expression()) {
        let first = program(&text).unwrap();
        let second = program(&first.text).unwrap();
        prop_assert_eq!(&first.text, &second.text);
        for row in 0..2 {
            prop_assert_eq!(value(&text, row), value(&second.text, row));
        }
    }
}

/// Texts of conditions over `rows`.
fn expression() -> impl Strategy<Value = String> {
    let number = prop_oneof![
        Just("i".to_owned()),
        Just("u".to_owned()),
        Just("f".to_owned()),
        any::<i32>().prop_map(|i| i.to_string()),
        any::<i32>().prop_map(|i| format!("{:?}", f64::from(i) / 8.0))
    ];
    let number = number.prop_recursive(3, 8, 2, |inner| {
        prop_oneof![
            (inner.clone(), prop::sample::select(vec!["+", "-", "*", "/", "%"]), inner.clone())
                .prop_map(|(a, o, b)| format!("({a} {o} {b})")),
            inner.prop_map(|a| format!("-{a}")),
        ]
    });
    let leaf = prop_oneof![
        (number.clone(), prop::sample::select(vec!["=", "!=", "<", "<=", ">", ">="]), number.clone())
            .prop_map(|(a, o, b)| format!("{a} {o} {b}")),
        number.clone().prop_map(|a| format!("{a} is not null")),
        number.prop_map(|a| format!("{a} not in (1, -2.5, 7)")),
        Just("b".to_owned()),
        Just("s in ('a', 'it''s')".to_owned()),
        Just("hash(key) % 3 = 0".to_owned()),
    ];
    leaf.prop_recursive(3, 12, 3, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 2..4).prop_map(|v| format!("({})", v.join(" or "))),
            prop::collection::vec(inner.clone(), 2..4).prop_map(|v| format!("({})", v.join(" and "))),
            inner.prop_map(|a| format!("(not {a})")),
        ]
    })
}
