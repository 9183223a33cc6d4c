//! Level 10: the command line: arguments and printing only; one file per command. Results go to standard output, as text or
//! (`--json`) as one JSON document; progress, notes and errors go to standard error.

mod check;
mod completions;
mod cp;
mod du;
mod explain;
mod export;
mod files;
mod gc;
mod init;
mod ls;
mod materialize;
mod output;
mod pin;
mod place;
mod progress;
mod read;
mod show;
mod snapshot;
mod steps;
mod verify;
mod worker;

use crate::app::project::Surroundings;
use crate::error::{Error, Kind, Result};
use crate::io::{Access, TierOptions};
use crate::spec::size;
use clap::builder::RangedU64ValueParser;
use clap::error::ErrorKind;
use clap::{Args, CommandFactory, Parser, Subcommand};
use output::Output;
use signal_hook::consts::signal::SIGXFSZ;
use signal_hook::consts::{SIGINT, SIGTERM};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

#[derive(Parser)]
#[command(
    name = "forebay",
    version,
    about = "Keeps training jobs fed: stores the right stage of a preprocessing pipeline and reads batches back from it."
)]
#[command(disable_help_subcommand = true, max_term_width = 110)]
struct Cli {
    #[command(flatten)]
    common: Common,
    #[command(subcommand)]
    command: Command,
}

/// Under what the help lists the options of every command.
const COMMON: &str = "Options of every command";

/// Most threads that may be asked for.
const MAX_JOBS: u64 = 1024;

/// Options of every command.
#[derive(Args, Clone)]
pub struct Common {
    /// Print one JSON document instead of text
    #[arg(long, global = true, help_heading = COMMON)]
    json: bool,
    /// Print results and errors only, no progress and notes
    #[arg(short, long, global = true, help_heading = COMMON)]
    quiet: bool,
    /// Say more: as each shard is stored, and every cause of an error
    #[arg(short, long, global = true, help_heading = COMMON)]
    verbose: bool,
    /// Where shards are kept: a directory or s3://bucket/prefix (gs:// and az:// where they are built). Wins over the pipeline file's
    /// `store:`
    #[arg(long, global = true, help_heading = COMMON, env = "FOREBAY_STORE", value_name = "STORE")]
    store: Option<String>,
    /// An option of a remote store, such as aws_region=eu-west-1 or aws_endpoint_url=http://127.0.0.1:9000. Wins over the pipeline
    /// file's `storage:`, which wins over the variables AWS_*, AZURE_* and GOOGLE_*
    #[arg(long, global = true, help_heading = COMMON, value_name = "K=V", value_parser = key_value)]
    storage_option: Vec<(String, String)>,
    /// How much of remote stores is kept on local disk, such as 100gb, in the user's cache directory (FOREBAY_CACHE, else
    /// ~/.cache/forebay); 0: nothing [default: a tenth of what is free there]
    #[arg(long, global = true, help_heading = COMMON, value_name = "SIZE", value_parser = size::parse)]
    cache_size: Option<u64>,
    /// Threads to work with [default: as many as this process may use]
    #[arg(long, global = true, help_heading = COMMON, value_name = "N", value_parser = RangedU64ValueParser::<usize>::new().range(..=MAX_JOBS))]
    jobs: Option<usize>,
}

#[derive(Subcommand)]
enum Command {
    Init(init::Arguments),
    Check(check::Arguments),
    Snapshot(snapshot::Arguments),
    Materialize(materialize::Arguments),
    Read(read::Arguments),
    Ls(ls::Arguments),
    Show(show::Arguments),
    Files(files::Arguments),
    Explain(explain::Arguments),
    Export(export::Arguments),
    Verify(verify::Arguments),
    Du(du::Arguments),
    Gc(gc::Arguments),
    Pin(pin::Arguments),
    Unpin(pin::UnpinArguments),
    Cp(cp::Arguments),
    Steps(steps::Arguments),
    Completions(completions::Arguments),
}

/// What a command works with.
pub struct Context {
    common: Common,
    access: Access,
    out: Output,
    /// Set by Ctrl-C and SIGTERM once `stop_on_signals` was called; before that they end the process at once.
    stop: Arc<AtomicBool>,
}

/// Parses the command line, runs one command, and returns its exit code.
pub fn main() -> ExitCode {
    let cli = match parse() {
        Ok(cli) => cli,
        Err(error) => return usage(&error),
    };
    let out = Output::new(&cli.common);
    let access = access(&cli.common);
    let context = Context { common: cli.common, access, out, stop: Arc::default() };
    let result = match cli.command {
        Command::Init(arguments) => init::run(arguments, &context),
        Command::Check(arguments) => check::run(arguments, &context),
        Command::Snapshot(arguments) => snapshot::run(arguments, &context),
        Command::Materialize(arguments) => materialize::run(arguments, &context),
        Command::Read(arguments) => read::run(arguments, &context),
        Command::Ls(arguments) => ls::run(arguments, &context),
        Command::Show(arguments) => show::run(arguments, &context),
        Command::Explain(arguments) => explain::run(arguments, &context),
        Command::Files(arguments) => files::run(arguments, &context),
        Command::Export(arguments) => export::run(arguments, &context),
        Command::Verify(arguments) => verify::run(arguments, &context),
        Command::Du(arguments) => du::run(arguments, &context),
        Command::Gc(arguments) => gc::run(arguments, &context),
        Command::Pin(arguments) => pin::run(arguments, &context),
        Command::Unpin(arguments) => pin::run_unpin(arguments, &context),
        Command::Cp(arguments) => cp::run(arguments, &context),
        Command::Steps(arguments) => steps::run(arguments, &context),
        Command::Completions(arguments) => completions::run(arguments, &context),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) if context.stop.load(Ordering::Relaxed) => ExitCode::from(130),
        Err(error) => {
            context.out.error(&error);
            ExitCode::from(error.kind().exit_code())
        }
    }
}

/// The command line. An empty argument, or an empty FOREBAY_STORE, is a variable that wasn't set, and never what is meant.
fn parse() -> Result<Cli, clap::Error> {
    let empty = |what: String| {
        let message = format!("{what} has an empty value; give one, or leave it out");
        Cli::command().error(ErrorKind::InvalidValue, message)
    };
    let arguments: Vec<String> = std::env::args_os().map(|a| a.to_string_lossy().into_owned()).collect();
    for (index, argument) in arguments.iter().enumerate().skip(1) {
        match argument.strip_suffix('=') {
            Some(option) if option.starts_with("--") && !option.contains('=') => return Err(empty(option.to_owned())),
            None if argument.is_empty() && arguments[index - 1].starts_with('-') => {
                return Err(empty(arguments[index - 1].clone()));
            }
            None if argument.is_empty() => return Err(empty(format!("argument {index}"))),
            _ => {}
        }
    }
    let cli = Cli::try_parse()?;
    if cli.common.store.as_deref() == Some("") {
        return Err(empty("the environment variable FOREBAY_STORE is set and".to_owned()));
    }
    Ok(cli)
}

/// What clap says of a command line: help and the version, or what is wrong with it, which with `--json` is a document
/// as well.
fn usage(error: &clap::Error) -> ExitCode {
    let _ = error.print();
    if !error.use_stderr() {
        return ExitCode::SUCCESS;
    }
    if std::env::args_os().any(|argument| argument == "--json") {
        let text = error.render().to_string();
        let message = text.trim().trim_start_matches("error: ");
        output::usage_error(message);
    }
    ExitCode::from(2)
}

impl Context {
    fn threads(&self) -> usize {
        self.common.jobs.unwrap_or_else(|| std::thread::available_parallelism().map_or(1, usize::from))
    }

    /// The command that shows a sample at every stage.
    fn look_at(&self, pipeline: &Path, key: &str, split: Option<&str>) -> String {
        let mut words = vec!["forebay", "read"];
        let pipeline = pipeline.display().to_string();
        words.extend([pipeline.as_str(), "--key", key]);
        words.extend(split.into_iter().flat_map(|split| ["--split", split]));
        words.extend(self.common.store.iter().flat_map(|store| ["--store", store]));
        words.into_iter().map(shell_word).collect::<Vec<_>>().join(" ")
    }

    /// From now on Ctrl-C and SIGTERM ask to finish what is at hand. A second one ends the process at once: nothing
    /// needs cleaning up.
    fn stop_on_signals(&self) {
        for signal in [SIGINT, SIGTERM] {
            // The order of registration matters.
            let _ = signal_hook::flag::register_conditional_shutdown(signal, 130, self.stop.clone());
            let _ = signal_hook::flag::register(signal, self.stop.clone());
        }
        // A file past `ulimit -f` is an error to the write, and not the end of the process.
        let _ = signal_hook::flag::register(SIGXFSZ, Arc::default());
    }

    /// Opens what surrounds a pipeline file and hands it to `body`.
    fn surrounded<T>(&self, body: impl FnOnce(&Surroundings) -> Result<T>) -> Result<T> {
        let listing = progress::Listing::new(&self.out);
        let surroundings = Surroundings {
            store: self.common.store.clone(),
            access: &self.access,
            variables: &|name| std::env::var(name).ok(),
            cache: cache_directory(),
            threads: self.threads(),
            progress: &|entries, bytes| listing.update(entries, bytes),
        };
        let result = body(&surroundings);
        listing.finish();
        result
    }
}

/// The user's cache directory for Forebay; `None` where there is no home.
fn cache_directory() -> Option<PathBuf> {
    let of = |name: &str| std::env::var_os(name).filter(|v| !v.is_empty()).map(PathBuf::from);
    of("FOREBAY_CACHE")
        .or_else(|| of("XDG_CACHE_HOME").map(|d| d.join("forebay")))
        .or_else(|| of("HOME").map(|d| d.join(".cache/forebay")))
}

/// `K=V` of `--storage-option`.
fn key_value(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.is_empty() => Ok((key.to_ascii_lowercase(), value.to_owned())),
        _ => Err("expected NAME=VALUE, such as aws_region=eu-west-1".to_owned()),
    }
}

/// What reaching remote stores takes: options, and local space in the user's cache directory.
fn access(common: &Common) -> Access {
    let directory = cache_directory();
    let tier = directory.as_ref().map(|of| TierOptions { directory: of.join("parts"), bytes: common.cache_size });
    let scratch = directory.unwrap_or_else(std::env::temp_dir).join("scratch");
    Access {
        given: common.storage_option.iter().cloned().collect(),
        environment: environment(),
        aws_credentials: aws_file("AWS_SHARED_CREDENTIALS_FILE", "credentials"),
        aws_config: aws_file("AWS_CONFIG_FILE", "config"),
        scratch,
        tier,
        ..Access::default()
    }
}

/// The variables of services, by lower-case name. Those that are set to nothing aren't meant.
fn environment() -> BTreeMap<String, String> {
    let variables =
        std::env::vars_os().filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)));
    variables
        .filter(|(name, value)| ["AWS_", "AZURE_", "GOOGLE_"].iter().any(|s| name.starts_with(s)) && !value.is_empty())
        .map(|(name, value)| (name.to_ascii_lowercase(), value))
        .collect()
}

/// A file of AWS profiles, if it is there.
fn aws_file(variable: &str, name: &str) -> Option<PathBuf> {
    let of = |name: &str| std::env::var_os(name).filter(|v| !v.is_empty()).map(PathBuf::from);
    let file = of(variable).or_else(|| of("HOME").map(|home| home.join(".aws").join(name)));
    file.filter(|file| file.is_file())
}

/// Milliseconds since 1970 by this machine's clock, which is the store's while stores are local.
fn now_ms() -> i64 {
    let elapsed = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    i64::try_from(elapsed.as_millis()).unwrap_or(i64::MAX)
}

/// A failure that has been printed already and only sets the exit code.
fn reported(kind: Kind) -> Error {
    Error::new(kind, "")
}

/// A text as one word of a shell's command.
fn shell_word(text: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "./_-".contains(c);
    if !text.is_empty() && text.chars().all(plain) {
        return text.to_owned();
    }
    format!("'{}'", text.replace('\'', r"'\''"))
}
