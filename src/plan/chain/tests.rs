//! Chains of steps that do nothing but declare what they are.

use super::*;
use crate::error::Kind;
use crate::format::KEY;
use crate::step::{Info, Output};
use arrow::array::RecordBatch;

#[derive(Debug)]
pub struct Fake {
    pub info: Info,
    pub schema: SchemaRef,
}

impl Step for Fake {
    fn info(&self) -> &Info {
        &self.info
    }
    fn output_schema(&self) -> &SchemaRef {
        &self.schema
    }
    fn apply(&self, batch: &RecordBatch, _context: Context) -> Result<Output> {
        Ok(Output::one_to_one(batch.clone()))
    }
}

/// `_key`, `_error`, a nullable `image`, a `label` that is never null, and a nullable `note`.
pub fn schema() -> SchemaRef {
    Arc::new(Schema::new(vec![
        Field::new(KEY, DataType::LargeUtf8, false),
        Field::new(ERROR, DataType::LargeUtf8, true),
        Field::new("image", DataType::LargeBinary, true),
        Field::new("label", DataType::LargeUtf8, false),
        Field::new("note", DataType::LargeUtf8, true),
    ]))
}

/// A step over `schema`, deterministic and one-to-one until changed.
pub fn step(name: &'static str, reads: &[&str], writes: &[&str]) -> Fake {
    let owned = |columns: &[&str]| columns.iter().map(|c| (*c).to_owned()).collect();
    let info = Info {
        name,
        version: 1,
        purity: Purity::Deterministic,
        cardinality: Cardinality::OneToOne,
        reads: owned(reads),
        writes: owned(writes),
        params: Value::Null,
    };
    Fake { info, schema: schema() }
}

impl Fake {
    pub fn random(mut self) -> Self {
        self.info.purity = Purity::Random;
        self
    }
    pub fn stateful(mut self) -> Self {
        self.info.purity = Purity::Stateful;
        self
    }
    pub fn cardinality(mut self, cardinality: Cardinality) -> Self {
        self.info.cardinality = cardinality;
        self
    }
    pub fn filter(self) -> Self {
        self.cardinality(Cardinality::Filter)
    }
}

pub fn decode() -> Fake {
    step("image.decode", &["image"], &["image"])
}
pub fn resize() -> Fake {
    step("image.resize", &["image"], &["image"])
}
pub fn crop() -> Fake {
    step("image.random_crop", &["image"], &["image"]).random()
}

/// Stages named after the part behind the dot, with a number where that is taken.
pub fn try_chain(steps: impl IntoIterator<Item = Fake>) -> Result<Chain> {
    let mut named: Vec<Named> = Vec::new();
    for step in steps {
        let base = step.info.name.rsplit('.').next().unwrap_or_default();
        let taken = named.iter().filter(|n| n.step.info().name == step.info.name).count();
        let name = if taken == 0 { base.to_owned() } else { format!("{base}{}", taken + 1) };
        named.push(Named { name, step: Arc::new(step), own: false });
    }
    Chain::new(&Value::Null, schema(), named)
}

pub fn chain(steps: impl IntoIterator<Item = Fake>) -> Chain {
    try_chain(steps).unwrap()
}

#[test]
fn stages_know_what_holds_up_to_them() {
    let filter = step("table.filter", &[KEY], &[]).filter();
    let chain = chain([decode(), filter, crop(), resize(), crop()]);
    let each = |of: fn(&Stage) -> bool| chain.stages.iter().map(of).collect::<Vec<_>>();
    assert_eq!(chain.stages[0].name, "concatenated");
    assert_eq!(each(|s| s.deterministic), [true, true, true, false, false, false]);
    assert_eq!(each(|s| s.one_to_one), [true, true, false, false, false, false]);
    assert_eq!(each(|s| s.schema.field(2).name() == ROW), [false, false, true, true, true, true]);
    assert_eq!(chain.last_deterministic(), 2);
    assert_eq!(chain.stages.iter().map(|s| s.occurrence).collect::<Vec<_>>(), [0, 0, 0, 0, 0, 1]);
    assert_eq!(chain.context(5, 3, 4), Context { seed: 3, epoch: 4, occurrence: 1 });
    let recipes: std::collections::HashSet<RecipeKey> = chain.stages.iter().map(|s| s.recipe).collect();
    assert_eq!(recipes.len(), 6);
}

#[test]
fn row_is_inserted_once() {
    let schema = with_row(&with_row(&schema()));
    assert_eq!(
        schema.fields().iter().map(|f| f.name().as_str()).collect::<Vec<_>>(),
        ["_key", "_error", "_row", "image", "label", "note"]
    );
    assert_eq!(schema.field(2), &Field::new(ROW, DataType::UInt32, false));
}

#[test]
fn impossible_chains_name_their_steps() {
    let error = try_chain([step("a.pack", &[], &[]).stateful(), resize()]).unwrap_err();
    assert!(error.message().contains("\"pack\" is stateful and \"resize\""), "{error}");
    assert!(try_chain([resize(), step("a.pack", &[], &[]).stateful(), step("a.mix", &[], &[]).stateful()]).is_ok());
    for steps in [vec![step("x.decode", &[], &[]), decode()], vec![step("x.concatenated", &[], &[])]] {
        let error = try_chain(steps).unwrap_err();
        assert_eq!(error.kind(), Kind::Invalid);
        assert!(error.message().contains("two stages are named") && error.message().contains("`as:`"), "{error}");
    }
}

#[test]
fn an_unknown_stage_lists_the_nearest_first() {
    let chain = chain([decode(), resize()]);
    assert_eq!(chain.stage("resize").unwrap(), 2);
    let error = chain.stage("rezise").unwrap_err();
    assert_eq!(error.message(), "no stage is named \"rezise\"; did you mean \"resize\"?");
}

#[track_caller]
fn check_counting(steps: impl IntoIterator<Item = Fake>, stages: &[usize], source: bool) {
    assert_eq!(chain(steps).counting(), Counting { stages: stages.to_vec(), source });
}

#[test]
fn counting_runs_what_cardinalities_depend_on() {
    let filter = |reads: &[&str]| step("table.filter", reads, &[]).filter();
    check_counting([decode(), resize(), crop()], &[], false);
    check_counting([decode(), resize(), filter(&[KEY])], &[3], false);
    check_counting([decode(), resize(), filter(&["label"])], &[3], true);
    // A null in `note` is kept only where a step before has failed.
    check_counting([decode(), resize(), filter(&["note"])], &[1, 2, 3], true);
    check_counting([filter(&["note"]), decode()], &[1], true);
    check_counting([decode(), filter(&["image"]), resize(), filter(&[KEY])], &[1, 2, 4], true);
    // One row for a failed one, several for another.
    let tiles = || step("image.tiles", &["image"], &["image", KEY]).cardinality(Cardinality::OneToMany);
    check_counting([step("x.note", &["note"], &["note"]), decode(), tiles(), resize()], &[1, 2, 3], true);
    // Behind a random step nothing is counted.
    check_counting([decode(), crop(), filter(&["note"])], &[], false);
}

#[test]
fn steps_behind_a_random_one_that_they_do_not_depend_on() {
    let label = || step("label.index", &["label"], &["label"]);
    let note = || step("x.note", &["note"], &["note"]);
    assert_eq!(chain([decode(), crop(), label(), resize(), note()]).movable(), [3, 5]);
    assert_eq!(chain([decode(), label(), crop(), resize()]).movable(), [0_usize; 0]);
    // It would take a column that a step between reads, or write one that it writes.
    let reads_note = step("x.mark", &["image", "note"], &["image"]);
    assert_eq!(chain([decode(), crop(), reads_note, note()]).movable(), [0_usize; 0]);
    assert_eq!(chain([decode(), crop(), step("x.image", &[], &["image"])]).movable(), [0_usize; 0]);
    let keyed = step("table.filter", &[KEY], &[]).filter();
    assert_eq!(chain([crop(), keyed, label().stateful()]).movable(), [2]);
}
