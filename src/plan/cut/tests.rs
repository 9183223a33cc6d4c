//! The defaults, with the words that explain them.

use super::*;
use crate::plan::chain::tests::{Fake, chain, crop, decode, resize, schema, step};
use arrow::datatypes::{Field, Schema};
use std::collections::HashMap;
use std::sync::Arc;

fn normalize() -> Fake {
    step("image.normalize", &["image"], &["image"])
}
fn cast() -> Fake {
    step("table.cast", &["label"], &["label"])
}
fn center() -> Fake {
    step("image.center_crop", &["image"], &["image"])
}

#[track_caller]
fn check(chains: &[Chain], stage: usize, reason: &str) {
    assert_eq!(default_stage(chains), (stage, reason.to_owned()));
}

#[test]
fn default_stages() {
    let train = chain([decode(), resize(), crop()]);
    let val = chain([decode(), resize(), center()]);
    check(
        &[train.clone(), val.clone()],
        2,
        "the last deterministic stage that all splits share; random_crop, which follows, is random: it differs in each epoch",
    );
    check(
        &[val.clone(), train],
        2,
        "the last deterministic stage that all splits share; center_crop, which follows, is not the same in all splits",
    );
    check(&[val], 3, "the last deterministic stage");
    check(
        &[chain([decode(), resize(), normalize(), cast()])],
        2,
        "the last deterministic stage, less what only casts or scales (normalize, cast)",
    );
    check(
        &[chain([crop()])],
        0,
        "there is no deterministic step that does more than cast or scale; random_crop, which follows, is random: it differs in each epoch",
    );
    check(&[chain([cast()])], 0, "there is no deterministic step that does more than cast or scale");
}

#[test]
fn what_cannot_be_stored_says_why() {
    let chain = chain([decode(), crop(), resize(), step("x.pack", &[], &[]).stateful()]);
    let reasons: Vec<Option<String>> = (0..5).map(|stage| unstorable(&chain, stage)).collect();
    assert_eq!(reasons[..2], [None, None]);
    assert_eq!(reasons[2].as_deref(), Some("is random: it differs in each epoch"));
    assert_eq!(reasons[3].as_deref(), Some("comes after the random step random_crop"));
    assert_eq!(reasons[4].as_deref(), Some("comes after the random step random_crop"));
}

#[test]
fn default_encodings() {
    let with = |field: Field| {
        let mut fields = schema().fields()[..2].to_vec();
        fields.push(Arc::new(field));
        let mut step = decode();
        step.schema = Arc::new(Schema::new(fields));
        default_encoding(&chain([step]), 1).to_string()
    };
    let tensor = |name: &str| HashMap::from([("ARROW:extension:name".to_owned(), name.to_owned())]);
    assert_eq!(with(Field::new("text", DataType::LargeUtf8, true)), "parquet-zstd-3");
    assert_eq!(with(Field::new("image", DataType::LargeBinary, true)), "parquet-none");
    for name in ["arrow.fixed_shape_tensor", "arrow.variable_shape_tensor"] {
        let field = Field::new("image", DataType::LargeUtf8, true).with_metadata(tensor(name));
        assert_eq!(with(field), "arrow-none");
    }
    assert_eq!(default_encoding(&chain([]), 0).to_string(), "parquet-none");
}

#[test]
fn the_nearest_is_the_latest_then_the_cheapest() {
    let stored =
        |list: &[(usize, &str)]| -> Vec<Stored> { list.iter().map(|(s, e)| (*s, e.parse().unwrap())).collect() };
    let check = |list, expect: (usize, &str)| {
        assert_eq!(nearest(&stored(list)), Some((expect.0, expect.1.parse().unwrap())));
    };
    assert_eq!(nearest(&[]), None);
    check(&[(1, "arrow-none"), (2, "parquet-gzip-9")], (2, "parquet-gzip-9"));
    check(&[(2, "parquet-none"), (2, "arrow-none"), (2, "arrow-lz4")], (2, "arrow-none"));
    check(&[(2, "arrow-zstd-3"), (2, "parquet-lz4"), (2, "parquet-snappy")], (2, "parquet-lz4"));
    check(&[(2, "arrow-zstd-9"), (2, "arrow-zstd-3"), (2, "parquet-zstd-1")], (2, "arrow-zstd-3"));
}
