//! Fuzzes the readers of untrusted bytes: `cargo run --example fuzz -- TARGET|all [--seconds N] [--seed N] [--first N]`.
//!
//! Works on stable Rust: no coverage, but inputs made from sound ones by mutations that know what breaks parsers. A panic, more
//! memory than `MOST_BYTES` or more time than `MOST_TIME` for one input ends it with an error; the input lies in
//! `target/fuzz/`. After an abort (a stack that ran out), `target/fuzz/TARGET.number` says which input it was:
//! `--seed N --first NUMBER` begins with it.

mod mutate;
mod targets;

use std::alloc::{GlobalAlloc, Layout, System};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use targets::Target;

/// Memory in use at any one time; images are limited to a million pixels.
const MOST_BYTES: usize = 1 << 30;
const MOST_TIME: Duration = Duration::from_secs(20);

/// Counts what is in use and ends the process above the limit.
struct Bounded;

static IN_USE: AtomicUsize = AtomicUsize::new(0);
static MOST_IN_USE: AtomicUsize = AtomicUsize::new(0);

fn take(bytes: usize) {
    let in_use = IN_USE.fetch_add(bytes, Ordering::Relaxed).saturating_add(bytes);
    MOST_IN_USE.fetch_max(in_use, Ordering::Relaxed);
    if in_use > MOST_BYTES {
        // Freed by the end of the process; allocating while saying so must not come back here.
        IN_USE.store(0, Ordering::Relaxed);
        eprintln!("an input took more than {MOST_BYTES} bytes of memory: {bytes} at once");
        std::process::abort();
    }
}

#[expect(unsafe_code, reason = "a global allocator can't be had otherwise")]
// SAFETY: every call is passed on to the system's allocator as it came.
unsafe impl GlobalAlloc for Bounded {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        take(layout.size());
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, place: *mut u8, layout: Layout) {
        IN_USE.fetch_sub(layout.size(), Ordering::Relaxed);
        unsafe { System.dealloc(place, layout) }
    }
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        take(layout.size());
        unsafe { System.alloc_zeroed(layout) }
    }
    unsafe fn realloc(&self, place: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        IN_USE.fetch_sub(layout.size(), Ordering::Relaxed);
        take(bytes);
        unsafe { System.realloc(place, layout, bytes) }
    }
}

#[global_allocator]
static ALLOCATOR: Bounded = Bounded;

struct Options {
    target: String,
    seconds: u64,
    seed: u64,
    first: u64,
}

fn options() -> Result<Options, String> {
    let mut options = Options { target: "all".to_owned(), seconds: 60, seed: 1, first: 0 };
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        let mut number = || {
            let value = arguments.next().and_then(|value| value.parse().ok());
            value.ok_or_else(|| format!("expected a number after {argument}"))
        };
        match argument.as_str() {
            "--seconds" => options.seconds = number()?,
            "--seed" => options.seed = number()?,
            "--first" => options.first = number()?,
            name => options.target = name.to_owned(),
        }
    }
    Ok(options)
}

fn main() -> ExitCode {
    let options = match options() {
        Ok(options) => options,
        Err(message) => {
            eprintln!("{message}");
            return ExitCode::from(2);
        }
    };
    let mut chosen = targets::all();
    let names: Vec<&str> = chosen.iter().map(|target| target.name).collect();
    if options.target == "list" {
        names.iter().for_each(|name| println!("{name}"));
        return ExitCode::SUCCESS;
    }
    if options.target != "all" && !names.contains(&options.target.as_str()) {
        eprintln!("no target is named {:?}; expected all, list, or one of {}", options.target, names.join(", "));
        return ExitCode::from(2);
    }
    chosen.retain(|target| options.target == "all" || target.name == options.target);
    match chosen.iter().all(|target| fuzz(target, &options)) {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    }
}

static PANIC: Mutex<String> = Mutex::new(String::new());

/// False where something was found.
fn fuzz(target: &Target, options: &Options) -> bool {
    // Decoders of others panic behind a wall; only what comes through is told.
    std::panic::set_hook(Box::new(|panic| {
        if let Ok(mut text) = PANIC.lock() {
            *text = panic.to_string();
        }
    }));
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/fuzz");
    std::fs::create_dir_all(&directory).expect("target/fuzz can be made");
    let number_file = directory.join(format!("{}.number", target.name));
    let running = std::fs::File::create(&number_file).expect("target/fuzz can be written");
    let corpus = (target.corpus)();
    let mut run = (target.open)();
    let (begun, number) = (Instant::now(), AtomicU64::new(options.first));
    let input = |number: u64| mutate::input(&corpus, target.tokens, options.seed, number);
    let watch = Watch::default();
    let sound = std::thread::scope(|scope| {
        scope.spawn(|| watch.guard(target, &number, &directory, &input));
        let mut sound = true;
        while sound && begun.elapsed() < Duration::from_secs(options.seconds) {
            let current = number.load(Ordering::Relaxed);
            let bytes = input(current);
            running.write_all_at(format!("{current:<20}\n").as_bytes(), 0).expect("target/fuzz can be written");
            if catch_unwind(AssertUnwindSafe(|| run(&bytes))).is_err() {
                let panic = PANIC.lock().map(|text| text.clone()).unwrap_or_default();
                println!("{}: input {current} of seed {}: {panic}", target.name, options.seed);
                println!("  the input is {}", keep(&directory, target, current, &bytes).display());
                sound = false;
            }
            number.fetch_add(1, Ordering::Relaxed);
        }
        watch.stop.store(1, Ordering::Relaxed);
        sound
    });
    drop(std::panic::take_hook());
    let inputs = number.load(Ordering::Relaxed) - options.first;
    let most = MOST_IN_USE.swap(0, Ordering::Relaxed) >> 20;
    println!(
        "{}: {inputs} inputs of seed {} in {:.0} s, at most {most} MiB{}",
        target.name,
        options.seed,
        begun.elapsed().as_secs_f64(),
        if sound { "" } else { ", FAILED" }
    );
    drop(std::fs::remove_file(number_file));
    sound
}

fn keep(directory: &Path, target: &Target, number: u64, bytes: &[u8]) -> PathBuf {
    let path = directory.join(format!("{}-{number}.bin", target.name));
    drop(std::fs::write(&path, bytes));
    path
}

/// Sees that no input takes for ever.
#[derive(Default)]
struct Watch {
    stop: AtomicU64,
}

impl Watch {
    fn guard(&self, target: &Target, number: &AtomicU64, directory: &Path, input: &dyn Fn(u64) -> Vec<u8>) {
        let (mut last, mut since) = (u64::MAX, Instant::now());
        while self.stop.load(Ordering::Relaxed) == 0 {
            let current = number.load(Ordering::Relaxed);
            if current != last {
                (last, since) = (current, Instant::now());
            } else if since.elapsed() > MOST_TIME {
                println!("{}: input {current} takes more than {} s", target.name, MOST_TIME.as_secs());
                println!("  the input is {}", keep(directory, target, current, &input(current)).display());
                drop(std::io::stdout().flush());
                std::process::exit(1);
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}
