//! Stores written by a build in which a step had another version, opened by the store alone: what is stored is served,
//! what would have to be computed otherwise is refused by name.

use crate::fixture::store_at;
use crate::fixture::{Dataset, PHOTOS};
use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use forebay::app::open::{Opened, Reading, Which, from_store};
use forebay::app::project::Project;
use forebay::app::store_stages::{Prepared, Request};
use forebay::engine::pool::Pool;
use forebay::error::{Error, Kind, Result};
use forebay::format::head::PipelineHead;
use forebay::materialize::run::Options;
use forebay::plan::chain::{Chain, Named};
use forebay::plan::order::batch::{Batching, Tail};
use forebay::step::{Context, Info, Output, Step};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// A step that calls itself version 7 and is otherwise the same.
#[derive(Debug)]
struct Seventh {
    step: Arc<dyn Step>,
    info: Info,
}

impl Step for Seventh {
    fn info(&self) -> &Info {
        &self.info
    }
    fn output_schema(&self) -> &SchemaRef {
        self.step.output_schema()
    }
    fn apply(&self, batch: &RecordBatch, context: Context) -> Result<Output> {
        self.step.apply(batch, context)
    }
}

/// The project as a build sees it whose `step` has version 7.
fn other_build(dataset: &Dataset, step: &str) -> Project {
    let mut project = dataset.project();
    for split in &mut project.dataset.splits {
        let named = |stage: &forebay::plan::chain::Stage| {
            let bound = stage.step.clone().unwrap();
            let info = Info { version: 7, ..bound.info().clone() };
            let step = if info.name == step { Arc::new(Seventh { step: bound, info }) } else { bound };
            Named { name: stage.name.clone(), step, own: stage.own }
        };
        let named = split.chain.stages[1..].iter().map(named).collect();
        split.chain = Chain::new(&project.source.describe(), project.input.clone(), named).unwrap();
    }
    project
}

/// Stores stages of thirty photographs by that build; the dataset and what it reads with its own steps.
fn stored(step: &str, stages: &[&str]) -> (Dataset, [Vec<RecordBatch>; 2]) {
    let dataset = Dataset::with_photos(PHOTOS, 30);
    let project = other_build(&dataset, step);
    let snapshot = Arc::new(project.list(&|_, _| {}).unwrap());
    project.publish(&snapshot, 1, true).unwrap();
    let stages = stages.iter().map(|s| (*s).to_owned()).collect();
    let prepared = Prepared::new(&project, snapshot, &Request { stages, container: None, codec: None }).unwrap();
    let pool = Pool::new(2).unwrap();
    let stop = AtomicBool::new(false);
    let options =
        Options { pool, on_error: project.pipeline.on_error, stop: &stop, retry_after: &[], progress: &|_| {} };
    prepared.run(&project, &options).unwrap();
    let opened = Opened {
        snapshot: Arc::new(project.list(&|_, _| {}).unwrap()),
        pipeline: project.pipeline,
        dataset: project.dataset,
        fresh: false,
        notes: Vec::new(),
    };
    let expected = ["train", "val"].map(|split| batches(&opened, split).unwrap());
    (dataset, expected)
}

fn batches(opened: &Opened, split: &str) -> Result<Vec<RecordBatch>> {
    let batching = Batching::new(4, 0, 1, Tail::Short)?;
    let reading = Reading { split: Some(split), stage: None, batching, shuffle: Some(true), seed: 3, prefetch: 0 };
    let reader = opened.reader(&reading, Pool::new(2)?)?;
    reader.epoch(2, 0)?.map(|batch| Ok(batch?.rows)).collect()
}

fn alone(dataset: &Dataset) -> Opened {
    from_store(store_at(dataset.store().to_str().unwrap()), "photos", Which::Current).unwrap()
}

fn assert_refused(error: &Error, needs: &str) {
    assert_eq!(error.kind(), Kind::Invalid);
    let message = error.chain();
    assert!(message.contains(&format!("this store needs {needs} version 7, this build has version 1")), "{message}");
}

#[test]
fn what_is_stored_behind_the_step_is_served() {
    for (step, stages) in [
        ("image.decode", ["decode", "resize"].as_slice()),
        ("image.resize", &["resize"]),
        ("label.index", &["index"]),
        ("table.filter", &["all"]),
    ] {
        let (dataset, expected) = stored(step, stages);
        let opened = alone(&dataset);
        assert_eq!(["train", "val"].map(|split| batches(&opened, split).unwrap()), expected, "{step}");
    }
}

#[test]
fn a_step_that_must_run_is_refused_by_name() {
    let (dataset, _) = stored("image.resize", &["decode"]);
    assert_refused(&batches(&alone(&dataset), "train").unwrap_err(), "image.resize");

    // The document of a random stage is not in the store.
    let (dataset, expected) = stored("image.random_crop", &["index"]);
    let opened = alone(&dataset);
    let error = batches(&opened, "train").unwrap_err();
    assert_refused(&error, "image.random_crop");
    assert!(error.chain().contains("stage random_crop can't be computed"), "{error}");
    assert_eq!(batches(&opened, "val").unwrap(), expected[1]);
}

#[test]
fn a_shard_that_is_gone_is_not_computed_by_another_step() {
    let (dataset, _) = stored("image.resize", &["decode", "resize"]);
    let opened = alone(&dataset);
    let resize = &opened.dataset.splits[0].chain.stages[2];
    assert!(resize.name == "resize" && resize.step.is_none());
    let records = dataset.store().join(format!("v1/stages/{}/arrow-none/shards", resize.recipe));
    let gone: PathBuf = std::fs::read_dir(records).unwrap().next().unwrap().unwrap().path();
    std::fs::remove_dir_all(gone).unwrap();
    assert_refused(&batches(&opened, "train").unwrap_err(), "image.resize");
}

#[test]
fn a_step_that_this_build_cannot_even_bind_is_no_obstacle() {
    let (dataset, expected) = stored("image.resize", &["resize"]);
    let store = dataset.project().dataset.store;
    let head = store.pipeline("photos").unwrap().unwrap();
    let text = head.text.replace("shorter_side: 40", "some_later_parameter: 40");
    store.put_pipeline(&PipelineHead { text, ..head }).unwrap();
    assert_eq!(batches(&alone(&dataset), "val").unwrap(), expected[1]);
}
