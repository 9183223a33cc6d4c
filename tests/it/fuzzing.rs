//! A little of `scripts/fuzz` in every run of the tests: the seeds and some hundred inputs made from them, on each target.

#[path = "../../examples/fuzz/mutate.rs"]
mod mutate;
#[path = "../../examples/fuzz/targets/mod.rs"]
mod targets;

use std::time::{Duration, Instant};

#[test]
fn no_reader_of_untrusted_bytes_panics() {
    for target in targets::all() {
        let corpus = (target.corpus)();
        let mut run = (target.open)();
        let begun = Instant::now();
        let seeds = corpus.len() as u64;
        // Shown where a test fails.
        println!("target {}, seed 0", target.name);
        for number in (0..500).take_while(|n| *n < seeds || begun.elapsed() < Duration::from_millis(700)) {
            println!("input {number}");
            run(&mutate::input(&corpus, target.tokens, 0, number));
        }
    }
}
