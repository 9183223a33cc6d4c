//! Several workers on one store, as processes of their own: at once, one after the other, killed, started again, more or
//! fewer of them. However it went, the store ends as one run alone leaves it.

use crate::fixture::{Dataset, PHOTOS, forebay, lasting, many_partitions, photo, succeed};
use crate::store::data::{assert_sound, check, files, open};
use forebay::app;
use forebay::app::open::Which;
use forebay::app::store_stages::{Prepared, Request};
use forebay::engine::pool::Pool;
use forebay::materialize::run::Options;
use forebay::materialize::worker::Worker;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Barrier;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

const FILE: &str = "pipeline.yaml";

fn command(at: &Path, store: &Path, more: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_forebay"));
    command.args(["materialize", FILE, "--stage", "resize", "--stage", "index", "--json", "--quiet", "--yes"]);
    command.args(["--jobs", "1", "--store"]).arg(store).args(more).current_dir(at);
    command.env("FOREBAY_CACHE", at.join("cache")).stdin(Stdio::null()).stdout(Stdio::piped());
    command
}

fn start(at: &Path, store: &Path, worker: &str) -> Child {
    command(at, store, &["--worker", worker]).spawn().unwrap()
}

/// The document of a worker that must succeed, having seen every stage whole.
fn finish(worker: Child) -> Value {
    let output = worker.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", output.status);
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(document["stages"].as_array().unwrap().iter().all(|stage| stage["complete"] == true), "{document}");
    document
}

fn number(document: &Value, field: &str) -> u64 {
    document[field].as_u64().unwrap()
}

/// A dataset, what one run alone makes of it, and stores that hold nothing but its snapshot.
struct Work {
    dataset: Dataset,
    expected: BTreeMap<String, String>,
    /// How long that run took: for when to kill, nothing else.
    whole_run: Duration,
}

impl Work {
    fn new(pipeline: &str, photos: usize) -> Work {
        let dataset = Dataset::with_photos(pipeline, photos);
        let alone = dataset.path().join("alone");
        succeed(dataset.path(), &["snapshot", FILE, "--store", alone.to_str().unwrap()]);
        let begun = Instant::now();
        finish(command(dataset.path(), &alone, &[]).spawn().unwrap());
        let whole_run = begun.elapsed();
        assert_sound(&open(&alone));
        Work { expected: lasting(&alone), dataset, whole_run }
    }

    fn at(&self) -> &Path {
        self.dataset.path()
    }

    fn store(&self, name: &str) -> PathBuf {
        let store = self.at().join(name);
        succeed(self.at(), &["snapshot", FILE, "--store", store.to_str().unwrap()]);
        store
    }

    fn shards(&self) -> u64 {
        self.expected.keys().filter(|name| name.contains("/shards/")).count() as u64
    }

    fn assert_finished(&self, store: &Path, what: &str) {
        assert_eq!(lasting(store), self.expected, "{what}");
        assert_sound(&open(store));
    }
}

#[test]
fn four_at_once_share_the_work() {
    let work = Work::new(&many_partitions(), 160);
    let store = work.store("shared");
    let workers = [0, 1, 2, 3].map(|index| start(work.at(), &store, &format!("{index}/4")));
    let done = workers.map(finish);
    work.assert_finished(&store, "at once");
    let computed: Vec<u64> = done.iter().map(|document| number(document, "computed_shards")).collect();
    let twice = computed.iter().sum::<u64>() - work.shards();
    println!("of {} shards {computed:?} were computed, {twice} more than once", work.shards());
    assert!(twice * 5 <= work.shards(), "{computed:?} of {}", work.shards());
    for (index, document) in done.iter().enumerate() {
        assert_eq!(document["worker"], format!("{index}/4"));
        let seen = number(document, "computed_shards") + number(document, "found_shards");
        assert!(seen <= work.shards(), "{document}");
    }
}

/// Planned before any has begun, each computes its own part at least but for what others helped with.
#[test]
fn four_that_begin_together_compute_little_twice() {
    let dataset = Dataset::with_photos(&many_partitions(), 160);
    succeed(dataset.path(), &["snapshot", FILE]);
    let request = Request { stages: vec!["resize".into()], container: None, codec: None };
    let (begin, stop) = (Barrier::new(4), AtomicBool::new(false));
    let (dataset, request, begin, stop) = (&dataset, &request, &begin, &stop);
    let outcomes: Vec<_> = std::thread::scope(|scope| {
        let worker = |index| {
            scope.spawn(move || {
                let opened = dataset.surrounded(|s| app::worker::open(&dataset.file, Which::Current, s));
                let (project, snapshot) = opened.unwrap();
                let prepared = Prepared::new(&project, snapshot, request).unwrap();
                let prepared = prepared.for_worker(Worker::new(index, 4).unwrap());
                let pool = Pool::new(1).unwrap();
                let on_error = project.pipeline.on_error;
                let options = Options { pool, on_error, stop, retry_after: &[], progress: &|_| {} };
                begin.wait();
                let done = prepared.run(&project, &options).unwrap();
                assert!(done.manifests[0].is_some());
                done.outcome
            })
        };
        let threads: Vec<_> = (0..4).map(worker).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    let shards = outcomes[0].records[0].len() as u64;
    let computed: Vec<u64> = outcomes.iter().map(|outcome| outcome.computed_shards).collect();
    println!("{computed:?} of {shards}");
    assert!(outcomes.iter().all(|o| o.computed_shards + o.found_shards == shards && o.records == outcomes[0].records));
    assert!((computed.iter().sum::<u64>() - shards) * 5 <= shards, "{computed:?} of {shards}");
    assert!(computed.iter().all(|computed| computed * 2 <= shards), "{computed:?} of {shards}");
}

#[test]
fn one_after_the_other_in_any_order_the_first_does_the_work_of_all() {
    let work = Work::new(&many_partitions(), 24);
    for order in [[0, 1, 2], [2, 1, 0], [1, 2, 0]] {
        let store = work.store(&format!("{order:?}"));
        for (place, index) in order.iter().enumerate() {
            let done = finish(start(work.at(), &store, &format!("{index}/3")));
            let expected = if place == 0 { work.shards() } else { 0 };
            assert_eq!((number(&done, "computed_shards"), number(&done, "found_shards")), (expected, 0));
            work.assert_finished(&store, &format!("{index} of {order:?}"));
        }
    }
}

#[test]
fn two_of_one_number_and_none_of_another_finish_as_well() {
    let work = Work::new(&many_partitions(), 40);
    let store = work.store("twins");
    let _ = [0, 0].map(|index| start(work.at(), &store, &format!("{index}/3"))).map(finish);
    work.assert_finished(&store, "twins");
    // More workers than partitions.
    let store = work.store("many");
    let _ = [700, 3].map(|index| start(work.at(), &store, &format!("{index}/1000"))).map(finish);
    work.assert_finished(&store, "many");
}

#[test]
fn killed_at_random_while_others_go_on_or_start_again() {
    let seed = std::env::var("FOREBAY_TEST_SEED").ok().and_then(|s| s.parse().ok()).unwrap_or(std::process::id());
    println!("FOREBAY_TEST_SEED={seed}");
    let share = |round: u32, draw: u32| {
        let digest = blake3::hash(&[seed, round, draw].map(u32::to_le_bytes).concat());
        f64::from(u16::from_le_bytes([digest.as_bytes()[0], digest.as_bytes()[1]])) / 65536.0
    };
    let work = Work::new(&many_partitions(), 60);
    let (mut killed, mut halfway) = (0, 0);
    for round in 0..20 {
        let store = work.store("killed");
        // In every other round they are fewer at first and more afterwards.
        let (first, then) = if round % 2 == 0 { (4, 4) } else { (2, 5) };
        let mut workers: Vec<Child> =
            (0..first).map(|index| start(work.at(), &store, &format!("{index}/{first}"))).collect();
        let mut dead = Vec::new();
        for index in 0..workers.len() as u32 {
            // In some rounds all, else those that are drawn.
            if round % 5 == 0 || share(round, 10 + index) < 0.6 {
                std::thread::sleep(work.whole_run.mul_f64(share(round, index) * 0.3));
                let worker = &mut workers[index as usize];
                worker.kill().unwrap();
                if worker.wait().unwrap().signal().is_some() {
                    dead.push(index);
                }
                let left = files(&store);
                assert!(!cfg!(target_os = "linux") || !left.keys().any(|name| name.contains(".tmp-")));
                halfway += u32::from(left.keys().any(|n| n.contains("/shards/")) && left.len() < work.expected.len());
            }
        }
        killed += dead.len();
        let verified = check(&open(&store), false);
        assert_eq!((verified.findings, verified.strangers), (vec![], 0), "round {round}");
        // Some come again, under their number or, where the count changed, another.
        let again: Vec<Child> = match first == then {
            true => dead.iter().take(1).map(|index| start(work.at(), &store, &format!("{index}/{then}"))).collect(),
            false => (0..then).map(|index| start(work.at(), &store, &format!("{index}/{then}"))).collect(),
        };
        for (index, worker) in (0..).zip(workers) {
            if !dead.contains(&index) {
                finish(worker);
            }
        }
        again.into_iter().for_each(|worker| drop(finish(worker)));
        if dead.len() == first && first == then {
            finish(start(work.at(), &store, &format!("{}/{then}", first - 1)));
        }
        work.assert_finished(&store, &format!("round {round}, {} of {first} killed", dead.len()));
        fs::remove_dir_all(&store).unwrap();
    }
    println!("{killed} were killed, {halfway} of them when a part was stored");
    assert!(killed >= 10 && halfway >= 5, "{killed} {halfway}");
}

/// Exit code, standard output and standard error.
fn run(at: &Path, arguments: &[&str]) -> (i32, String, String) {
    let output = forebay(at, arguments);
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (output.status.code().unwrap(), text(output.stdout), text(output.stderr))
}

#[test]
fn workers_list_nothing_and_say_what_each_did() {
    let dataset = Dataset::with_photos(PHOTOS, 24);
    let at = dataset.path();
    let worker = ["materialize", FILE, "--worker", "1/2"];
    let (code, _, err) = run(at, &worker);
    assert_eq!(code, 1);
    assert!(err.contains("holds no snapshot of pipeline \"photos\"") && err.contains("`forebay snapshot`"), "{err}");
    assert!(dataset.files().is_empty(), "nothing was published");

    let old: Value = serde_json::from_str(&succeed(at, &["snapshot", FILE, "--json"])).unwrap();
    fs::write(at.join("photos/cat/new.jpg"), photo(500, 48, 64)).unwrap();
    let (code, out, err) = run(at, &worker);
    assert_eq!(code, 0, "{err}");
    let shards = old["partitions"].as_u64().unwrap();
    assert!(out.contains("24 rows"), "the new file isn't seen: {out}");
    assert!(out.contains(&format!("worker 1/2 computed {shards} shards in ")), "{out}");
    assert!(out.contains(", reused 0, other writers stored 0 meanwhile"), "{out}");
    let short = &old["snapshot"].as_str().unwrap()[..12];
    assert!(err.contains(&format!("worker 1/2 of snapshot {short}: {shards} partitions")), "{err}");

    // Once listed it is, unless the workers are told of the old snapshot.
    succeed(at, &["snapshot", FILE]);
    let id = old["snapshot"].as_str().unwrap();
    let (_, out, _) = run(at, &[&worker[..], &["--snapshot", id, "--dry-run"]].concat());
    assert_eq!(out, format!("index (arrow-none): 0 shards to compute, {shards} shards reused\n"));
    let (_, out, _) = run(at, &worker);
    assert!(out.contains("25 rows"), "{out}");
    let (code, _, err) = run(at, &[&worker[..], &["--snapshot", &"0".repeat(64)]].concat());
    assert!(code == 1 && err.contains("has no snapshot 0000"), "{err}");
}

#[test]
fn workers_agree_on_classes_and_steps() {
    let pipeline = PHOTOS.replace("classes: [cat, dog, owl]", "classes: auto");
    let dataset = Dataset::with_photos(&pipeline, 24);
    let at = dataset.path();
    succeed(at, &["snapshot", FILE]);
    // Another machine, which has the pipeline file alone; and a listing would find other classes now.
    let elsewhere = tempfile::tempdir().unwrap();
    fs::create_dir(at.join("photos/emu")).unwrap();
    fs::write(at.join("photos/emu/new.jpg"), photo(500, 48, 64)).unwrap();
    std::os::unix::fs::symlink(at.join("photos"), elsewhere.path().join("photos")).unwrap();
    fs::write(elsewhere.path().join(FILE), &pipeline).unwrap();
    let store = dataset.store();
    let worker = ["materialize", FILE, "--worker", "0/2", "--json", "--store", store.to_str().unwrap()];
    let there: Value = serde_json::from_str(&succeed(elsewhere.path(), &worker)).unwrap();
    assert!(!elsewhere.path().join("classes.txt").exists());
    let here: Value = serde_json::from_str(&succeed(at, &worker)).unwrap();
    assert_eq!(here["stages"], there["stages"]);
    assert_eq!((number(&here, "computed_shards"), &here["stages"][0]["complete"]), (0, &true.into()));

    let refused = |from: &str, to: &str, words: &str| {
        fs::write(elsewhere.path().join(FILE), pipeline.replace(from, to)).unwrap();
        let before = dataset.files();
        let (code, _, err) = run(elsewhere.path(), &worker);
        assert!(code == 1 && err.contains(words) && err.contains("run `forebay snapshot`"), "{code} {err}");
        assert_eq!(dataset.files(), before);
    };
    refused("shorter_side: 40", "shorter_side: 36", "step 2 (image.resize).params.shorter_side was 40 and is 36");
    refused("\"{parent}\"", "\"{stem}\"", "was listed by another reader");
    refused("  - image.decode\n", "  - image.decode: { as: pixels }\n", "the store knows no stage pixels");
    refused(
        "index: { column: label, classes",
        "index: { column: label, to: class, classes",
        "no classes of the column",
    );
    // What is never stored may differ.
    fs::write(elsewhere.path().join(FILE), pipeline.replace("random_crop: { size: [32", "random_crop: { size: [24"))
        .unwrap();
    succeed(elsewhere.path(), &worker);
}

#[test]
fn an_entry_that_changed_is_a_conflict_and_all_others_are_stored() {
    let dataset = Dataset::with_photos(&many_partitions(), 24);
    let at = dataset.path();
    succeed(at, &["snapshot", FILE]);
    fs::write(at.join("photos/cat/0000.jpg"), photo(777, 48, 64)).unwrap();
    for index in [0, 1] {
        let (code, out, err) = run(at, &["materialize", FILE, "--worker", &format!("{index}/2"), "--json"]);
        let document: Value = serde_json::from_str(&out).unwrap();
        assert_eq!((code, &document["error"]["kind"]), (1, &"conflict".into()), "{err}");
        assert!(err.contains("cat/0000.jpg changed since it was listed"), "{err}");
        assert_eq!(document["stages"][0]["complete"], false);
    }
    succeed(at, &["snapshot", FILE]);
    let done: Value = serde_json::from_str(&succeed(at, &["materialize", FILE, "--worker", "1/2", "--json"])).unwrap();
    assert_eq!((number(&done, "computed_shards"), &done["stages"][0]["complete"]), (1, &true.into()));
}

#[test]
fn numbers_come_from_slurm_and_kubernetes() {
    let dataset = Dataset::with_photos(PHOTOS, 8);
    let at = dataset.path();
    succeed(at, &["snapshot", FILE]);
    let run = |worker: &str, variables: &[(&str, &str)]| {
        let mut command = command(at, &dataset.store(), &["--worker", worker]);
        command.envs(variables.iter().copied()).stderr(Stdio::piped());
        let output = command.output().unwrap();
        let document: Value = serde_json::from_slice(&output.stdout).unwrap();
        (output.status.code().unwrap(), document, String::from_utf8(output.stderr).unwrap())
    };
    let slurm = |id| {
        [
            ("SLURM_ARRAY_TASK_COUNT", "4"),
            ("SLURM_ARRAY_TASK_ID", id),
            ("SLURM_ARRAY_TASK_MIN", "2"),
            ("SLURM_ARRAY_TASK_STEP", "2"),
        ]
    };
    assert_eq!(run("auto", &slurm("6")).1["worker"], "2/4");
    assert_eq!(run("auto/8", &[("JOB_COMPLETION_INDEX", "5")]).1["worker"], "5/8");
    for (worker, variables, words) in [
        ("auto", &slurm("6")[1..], "the variable SLURM_ARRAY_TASK_COUNT, which isn't set"),
        ("auto", &slurm("7")[..], "SLURM_ARRAY_TASK_ID is 7"),
        ("auto/8", &[], "the variable JOB_COMPLETION_INDEX, which isn't set"),
    ] {
        let (code, document, err) = run(worker, variables);
        assert_eq!((code, &document["error"]["kind"]), (1, &"invalid".into()), "{worker}: {err}");
        assert!(err.contains(words), "{worker}: {err}");
    }
}
