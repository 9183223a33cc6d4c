//! Progress on standard error: a bar on a terminal, a plain line every few seconds otherwise, nothing with `--quiet`.

use crate::cli::output::{Output, count, say, seconds, thousands};
use crate::materialize::Event;
use crate::spec::size;
use indicatif::{ProgressBar, ProgressStyle};
use std::sync::Mutex;
use std::time::{Duration, Instant};

const LINE_EVERY: Duration = Duration::from_secs(5);

/// Progress of listing a source.
pub struct Listing {
    bar: Option<ProgressBar>,
    plain: bool,
    last: Mutex<Instant>,
}

impl Listing {
    pub fn new(out: &Output) -> Self {
        let bar = (out.terminal && !out.quiet).then(|| {
            let bar = ProgressBar::new_spinner();
            bar.set_style(
                ProgressStyle::with_template("{spinner} {wide_msg}")
                    .unwrap_or_else(|_| ProgressStyle::default_spinner()),
            );
            bar
        });
        Listing { plain: bar.is_none() && !out.quiet, bar, last: Mutex::new(Instant::now()) }
    }

    pub fn update(&self, entries: u64, bytes: u64) {
        let text = || format!("listing: {}, {} hashed", count(entries, "entry"), size::print(bytes));
        if let Some(bar) = &self.bar {
            bar.set_message(text());
            bar.tick();
        } else if self.plain && due(&self.last) {
            say(&text());
        }
    }

    pub fn finish(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

/// Progress of computing and storing.
pub struct Storing {
    bar: Option<ProgressBar>,
    plain: bool,
    total_rows: u64,
    begun: Instant,
    state: Mutex<Sums>,
    last: Mutex<Instant>,
    out: Output,
}

#[derive(Default)]
struct Sums {
    /// Of the source, those that other writers had done included.
    rows: u64,
    found_shards: u64,
    source_bytes: u64,
    stored_bytes: u64,
}

impl Storing {
    pub fn new(out: &Output, total_rows: u64) -> Self {
        let bar = (out.terminal && !out.quiet).then(|| {
            let bar = ProgressBar::new(total_rows);
            // What doesn't fit in the terminal's width is cut off: the last words matter least.
            let style = ProgressStyle::with_template("{bar:20} {percent:>3}% {wide_msg}")
                .unwrap_or_else(|_| ProgressStyle::default_bar());
            bar.set_style(style);
            bar
        });
        let now = Instant::now();
        Storing {
            plain: bar.is_none() && !out.quiet,
            bar,
            total_rows,
            begun: now,
            state: Mutex::default(),
            last: Mutex::new(now),
            out: *out,
        }
    }

    pub fn update(&self, event: Event) {
        let mut sums = self.state.lock().expect("no panics while locked");
        match event {
            Event::Rows { rows, source_bytes } => {
                // What is tried again counts once.
                sums.rows = (sums.rows + rows).min(self.total_rows);
                sums.source_bytes += source_bytes;
            }
            Event::Shard { stage, partition, rows, bytes } => {
                sums.stored_bytes += bytes;
                if self.out.verbose {
                    let (rows, bytes) = (count(rows, "row"), size::print(bytes));
                    self.beside(|| say(&format!("stored shard {partition} of stage {stage}: {rows}, {bytes}")));
                }
            }
            Event::Found { partition, shards, rows } => {
                sums.rows = (sums.rows + rows).min(self.total_rows);
                sums.found_shards += shards as u64;
                if self.out.verbose {
                    let shards = count(shards as u64, "shard");
                    self.beside(|| say(&format!("found {shards} of partition {partition} stored by another writer")));
                }
            }
            Event::Bad { stage, partition, reason } => {
                let what = format!("shard {partition} of stage {stage} was bad and is computed anew ({reason})");
                self.beside(|| self.out.warn(&what));
            }
            Event::Others { partitions, wait } => {
                let (partitions, wait) = (count(partitions as u64, "partition"), seconds(wait.as_secs_f64()));
                let what = format!("{partitions} of other workers aren't stored yet; taken over if not in {wait}");
                self.beside(|| self.out.note(&what));
            }
            Event::Retry { partitions, wait, reason } => {
                let partitions = count(partitions as u64, "partition");
                let wait = seconds(wait.as_secs_f64());
                self.beside(|| {
                    self.out.warn(&format!("{partitions} failed for now, tried again in {wait} ({reason})"))
                });
            }
        }
        if let Some(bar) = &self.bar {
            bar.set_message(self.text(&sums));
            bar.set_position(sums.rows);
        } else if self.plain && due(&self.last) {
            say(&self.text(&sums));
        }
    }

    /// Prints a line that the bar must not be drawn into.
    fn beside(&self, print: impl FnOnce()) {
        match &self.bar {
            Some(bar) => bar.suspend(print),
            None => print(),
        }
    }

    pub fn finish(&self) -> Duration {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
        self.begun.elapsed()
    }

    fn text(&self, sums: &Sums) -> String {
        let elapsed = self.begun.elapsed().as_secs_f64().max(1e-3);
        let rate = sums.rows as f64 / elapsed;
        let left = self.total_rows.saturating_sub(sums.rows) as f64 / rate.max(1e-9);
        format!(
            "{} of {}, {} left, {:.0} a second, {}/s read, {} stored{}",
            thousands(sums.rows),
            count(self.total_rows, "row"),
            if sums.rows == 0 { "?".to_owned() } else { seconds(left) },
            rate,
            size::print((sums.source_bytes as f64 / elapsed) as u64),
            size::print(sums.stored_bytes),
            match sums.found_shards {
                0 => String::new(),
                found => format!(", {} by others", count(found, "shard")),
            },
        )
    }
}

fn due(last: &Mutex<Instant>) -> bool {
    let mut last = last.lock().expect("no panics while locked");
    let due = last.elapsed() >= LINE_EVERY;
    if due {
        *last = Instant::now();
    }
    due
}
