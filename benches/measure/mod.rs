//! What benches share: rates, medians of ratios of runs that alternate, and keeping to a processor.

use std::time::Instant;

pub const ROUNDS: usize = 5;

/// Keeps this thread and those that it starts from here on on these processors.
pub fn pin(processors: &str) {
    let id = std::process::id().to_string();
    let pinned = std::process::Command::new("taskset").args(["-cp", processors, &id]).output().unwrap();
    assert!(pinned.status.success(), "{}", String::from_utf8_lossy(&pinned.stderr));
}

/// What is done in a second.
pub fn rate(work: impl FnOnce() -> usize) -> f64 {
    let begun = Instant::now();
    let done = work();
    done as f64 / begun.elapsed().as_secs_f64()
}

/// Runs both in turn and prints the median of the ratios beside the goal.
pub fn report(name: &str, goal: f64, mut ours: impl FnMut() -> f64, mut limit: impl FnMut() -> f64) {
    let runs: Vec<(f64, f64)> = (0..ROUNDS).map(|_| (ours(), limit())).collect();
    let ratio = median(runs.iter().map(|(a, b)| a / b));
    let (a, b) = (median(runs.iter().map(|r| r.0)), median(runs.iter().map(|r| r.1)));
    println!("{name}: {ratio:.2} (goal {goal}); {a:.0} and {b:.0} images a second");
}

pub fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
