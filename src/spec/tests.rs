//! Tests of nodes and of typed settings read from them.

use crate::format::name::PipelineName;
use crate::spec::fields::name_problem;
use crate::spec::node::{Node, Value, nearest};
use crate::spec::schema::NAME;
use serde::Deserialize;
use std::collections::BTreeMap;

fn read(text: &str) -> Node {
    Node::read(text, "t.yaml").unwrap()
}

/// The message of the error, which must begin with the file's name.
fn refused(text: &str) -> String {
    let error = Node::read(text, "t.yaml").unwrap_err();
    error.message().strip_prefix("t.yaml:").unwrap().to_owned()
}

#[test]
fn plain_scalars_follow_the_core_schema() {
    let cases: &[(&str, Value)] = &[
        ("", Value::Null),
        ("~", Value::Null),
        ("null", Value::Null),
        ("true", Value::Bool(true)),
        ("False", Value::Bool(false)),
        ("yes", Value::Str("yes".into())),
        ("12", Value::Int(12)),
        ("+12", Value::Int(12)),
        ("-0", Value::Int(0)),
        ("012", Value::Int(12)),
        ("0x1F", Value::Int(31)),
        ("0o17", Value::Int(15)),
        ("0x", Value::Str("0x".into())),
        ("-9223372036854775808", Value::Int(i64::MIN)),
        ("1.", Value::Float(1.0)),
        (".5", Value::Float(0.5)),
        ("-1.5e3", Value::Float(-1500.0)),
        ("1e5", Value::Float(1e5)),
        ("-.inf", Value::Float(f64::NEG_INFINITY)),
        ("1e", Value::Str("1e".into())),
        (".", Value::Str(".".into())),
        (".e1", Value::Str(".e1".into())),
        ("1_000", Value::Str("1_000".into())),
        ("12:30", Value::Str("12:30".into())),
        ("2024-01-01", Value::Str("2024-01-01".into())),
        ("'12'", Value::Str("12".into())),
        ("\"a\\u00e9\"", Value::Str("aé".into())),
    ];
    for (text, expected) in cases {
        let document = format!("a: {text}\n");
        assert_eq!(&read(&document).get("a").unwrap().value, expected, "{text}");
    }
    assert!(matches!(read("a: .nan").get("a").unwrap().value, Value::Float(f) if f.is_nan()));
}

#[test]
fn nodes_know_where_they_stand() {
    let root = read("\u{feff}# é\na:\n  - x\n  - éé: {b: [1, 22]}\nempty:\n");
    let place = |node: &Node| (node.span.line, node.span.column, node.span.field.to_string());
    let Value::List(items) = &root.get("a").unwrap().value else { panic!() };
    assert_eq!(place(&items[0]), (3, 5, "a".into()));
    let inner = items[1].get("éé").unwrap();
    assert_eq!(place(inner), (4, 9, "a.éé".into()));
    let Value::List(numbers) = &inner.get("b").unwrap().value else { panic!() };
    assert_eq!(place(&numbers[1]), (4, 17, "a.éé.b".into()));
    assert_eq!(place(root.get("empty").unwrap()), (5, 1, "empty".into()));
    assert_eq!(root.span_of("missing"), &root.span);
}

#[test]
fn yaml_beyond_settings_is_refused_at_its_place() {
    let cases = [
        ("a: 1\nb: 2\na: 3\n", "3:1: \"a\" stands here a second time; the first is at line 1, column 1"),
        ("x: {a: 1, a: 2}", "1:11: x: \"a\" stands here a second time; the first is at line 1, column 5"),
        ("a: &x 1\nb: *x\n", "1:4: a: anchors (&name) aren't supported; write the value where it is used"),
        ("a: *x\n", "1:4: a: aliases (*name) aren't supported; write the value again"),
        ("a: !!str 1\n", "1:4: a: tags (!name) aren't supported; quote a value that is meant as text"),
        ("a: 1\n---\nb: 2\n", "2:1: a second document begins here; expected one document in a file"),
        ("a:\n\t- b\n", "2:2: a: tabs can't indent YAML; use spaces"),
        ("a: \"\u{0}\"\n", "1:5: the control character '\\0' can't stand in YAML; write it as an escape in quotes"),
        (
            "a: 9223372036854775808",
            "1:4: a: the integer 9223372036854775808 is too large; quote it if it is meant as text",
        ),
        (
            "label: {parent}: x",
            "1:16: this isn't valid YAML: mapping values are not allowed in this context; quote text that contains a colon and a space, or begins with a brace",
        ),
        (
            "{a: b}: 1",
            "1:1: expected a name as the key of a map, found a map or list; quote text with braces, such as \"{key}\"",
        ),
        (": 1", "1:1: expected a name before the colon"),
        ("a: [1, 2", "2:1: a: this isn't valid YAML: while parsing a flow sequence, expected ',' or ']'"),
    ];
    let found = cases.map(|(text, _)| (text, refused(text)));
    assert_eq!(found, cases.map(|(text, expected)| (text, expected.to_owned())));
}

#[test]
fn depth_and_nodes_are_bounded() {
    for open in ["[", "{a: ", "- ", "? "] {
        assert!(Node::read(&open.repeat(5000), "t.yaml").is_err(), "{open}");
    }
    assert!(refused(&"- ".repeat(5000)).contains("at most 64 maps and lists within each other"));
    assert!(refused(&format!("[{}]", "1,".repeat(300_000))).contains("at most 200000 values"));
    assert!(refused(&" ".repeat(5 << 20)).contains("bytes of YAML"));
    assert!(refused(&format!("{}: 1", "k".repeat(300))).contains("a name of at most 256 bytes"));
}

/// A megabyte of what costs a scanner most: whatever becomes of it, soon.
#[test]
fn time_is_bounded() {
    for part in [
        "[", "{", "- ", "? ", "a: ", "a\n", "'", "\"", "\\", "#", "!", "&", "*", "|\n", ">\n", "\n", "\t", "{a: ",
        "[a, ", ": ", "%", ",", "é",
    ] {
        let started = std::time::Instant::now();
        let _ = Node::read(&part.repeat((1 << 20) / part.len()), "t.yaml");
        // A tenth of a second each, were the machine idle; what grows with the square takes hours.
        assert!(started.elapsed().as_secs() < 60, "{part:?}");
    }
}

#[derive(Debug, Deserialize, PartialEq)]
#[serde(deny_unknown_fields)]
struct Resize {
    shorter_side: Option<u32>,
    size: Option<[u32; 2]>,
    #[serde(default)]
    filter: Filter,
    #[serde(default)]
    scale: f32,
    #[serde(default)]
    names: BTreeMap<String, String>,
    #[serde(default)]
    fill: Option<Fill>,
    #[serde(default)]
    classes: Option<Classes>,
    #[serde(default)]
    flag: bool,
}

#[derive(Debug, Deserialize, PartialEq, Default)]
#[serde(rename_all = "snake_case")]
enum Filter {
    #[default]
    Bilinear,
    Nearest,
    Lanczos3,
}

#[derive(Debug, Deserialize, PartialEq)]
#[serde(untagged, expecting = "expected an integer or a list of 3 integers")]
enum Fill {
    Gray(u8),
    Rgb([u8; 3]),
}

#[derive(Debug, Deserialize, PartialEq)]
#[serde(rename_all = "snake_case")]
enum Classes {
    Auto,
    List(Vec<String>),
    File { path: String },
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Select {
    columns: Vec<String>,
}

#[test]
fn typed_settings_are_read() {
    let node = read(
        "{shorter_side: 256, filter: lanczos3, scale: 2, names: {a: b}, fill: [1, 2, 3], classes: {file: {path: x}}, flag: true}",
    );
    let resize: Resize = node.parse().unwrap();
    assert_eq!(
        resize,
        Resize {
            shorter_side: Some(256),
            size: None,
            filter: Filter::Lanczos3,
            scale: 2.0,
            names: BTreeMap::from([("a".into(), "b".into())]),
            fill: Some(Fill::Rgb([1, 2, 3])),
            classes: Some(Classes::File { path: "x".into() }),
            flag: true,
        }
    );
    assert_eq!(read("").parse::<Resize>().unwrap().filter, Filter::Bilinear);
    let resize: Resize = read("{size: [4, 5], shorter_side: null, fill: 7, classes: auto}").parse().unwrap();
    assert_eq!((resize.size, resize.fill), (Some([4, 5]), Some(Fill::Gray(7))));
    assert_eq!(read("{list: [a]}").parse::<Classes>().unwrap(), Classes::List(vec!["a".into()]));
    assert_eq!(
        read("{a: [1, x, 2.5, null]}").parse::<serde_json::Value>().unwrap().to_string(),
        r#"{"a":[1,"x",2.5,null]}"#
    );
}

#[test]
fn errors_of_typed_settings_stand_at_their_node() {
    let cases = [
        ("shorter_side: big", "1:15: shorter_side: expected an integer, found \"big\""),
        ("shorter_side: 2.0", "1:15: shorter_side: expected an integer, found 2.0"),
        ("shorter_side: -1", "1:15: shorter_side: expected an integer from 0 to 4294967295, found -1"),
        ("\nshorter_sid: 2", "2:1: unknown field \"shorter_sid\"; did you mean \"shorter_side\"?"),
        (
            "zzz: 2",
            "1:1: unknown field \"zzz\"; expected shorter_side, size, filter, scale, names, fill, classes or flag",
        ),
        ("size: [1]", "1:7: size: expected a list of 2 items, found a list of 1 item"),
        ("size: [1, 2, 3]", "1:7: size: expected a list of 2 items, found a list of 3 items"),
        ("size:\n  - 1\n  - x", "3:5: size: expected an integer, found \"x\""),
        (
            "filter: lanczos",
            "1:9: filter: expected bilinear, nearest or lanczos3, found \"lanczos\"; did you mean \"lanczos3\"?",
        ),
        ("filter: [a]", "1:9: filter: expected bilinear, nearest or lanczos3, found a list of 1 item"),
        ("scale: .inf", "1:8: scale: expected a finite number, found inf"),
        ("scale: 1e39", "1:8: scale: expected a number within ±3.4e38, found 1e39"),
        ("names: {a: 1}", "1:12: names.a: expected text, found 1; quote it: \"1\""),
        ("names: [a]", "1:8: names: expected a map, found a list of 1 item"),
        ("fill: .nan", "1:7: fill: expected a finite number, found NaN"),
        ("fill: 300", "1:7: fill: expected an integer or a list of 3 integers, found 300"),
        ("classes: list", "1:10: classes: list needs settings: expected {list: ...}"),
        ("classes: {file: {path: 3}}", "1:24: classes.file.path: expected text, found 3; quote it: \"3\""),
        ("classes: {a: 1, b: 2}", "1:10: classes: expected auto, list or file as the only key, found a map"),
        ("classes: {auto: 1}", "1:17: classes.auto: expected nothing, found 1"),
        ("flag: yes", "1:7: flag: expected true or false, found \"yes\""),
        (
            "[1, 2]",
            "1:1: expected a map with the fields shorter_side, size, filter, scale, names, fill, classes or flag, found a list of 2 items",
        ),
    ];
    for (text, expected) in cases {
        let error = read(text).parse::<Resize>().unwrap_err();
        assert_eq!(error.message().strip_prefix("t.yaml:").unwrap(), expected, "{text:?}");
    }
    let error = read("").parse::<Select>().unwrap_err();
    assert_eq!(error.message(), "t.yaml:1:1: the field \"columns\" is missing");
    assert_eq!(read("a: {columns: []}").get("a").unwrap().parse::<Select>().unwrap().columns.len(), 0);
}

#[test]
fn the_nearest_name_is_a_slip_of_the_keyboard() {
    let names = ["resize", "center_crop", "pad", "y"];
    for (name, expected) in [
        ("reszie", Some("resize")),
        ("centre_crop", Some("center_crop")),
        ("pda", Some("pad")),
        ("blur", None),
        ("", None),
        ("x", None),
        ("k", None),
    ] {
        assert_eq!(nearest(name, names.into_iter()), expected, "{name}");
    }
}

#[test]
fn names_have_one_rule() {
    let long = "x".repeat(100);
    let longer = "x".repeat(101);
    let pattern = regex::Regex::new(NAME).unwrap();
    for name in ["a", "A-1_b.c", "-", "_.", &long, "", ".a", "..", "a/b", "a b", "é", "a\n", &longer] {
        let valid = name_problem(name).is_none();
        assert_eq!(pattern.is_match(name), valid, "{name:?}");
        assert_eq!(name.parse::<PipelineName>().is_ok(), valid, "{name:?}");
    }
}
