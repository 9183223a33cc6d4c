//! How results, notes and errors are printed.

use crate::cli::Common;
use crate::error::{Error, Result};
use serde_json::{Value, json};
use std::error::Error as _;
use std::io::{ErrorKind, IsTerminal, Write};

#[derive(Clone, Copy)]
pub struct Output {
    pub json: bool,
    pub quiet: bool,
    pub verbose: bool,
    /// Standard error is a terminal that can do more than print: progress may be drawn.
    pub terminal: bool,
    color: bool,
}

impl Output {
    pub fn new(common: &Common) -> Self {
        let dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
        let terminal = std::io::stderr().is_terminal() && !dumb;
        let no_color = std::env::var_os("NO_COLOR").is_some_and(|v| !v.is_empty());
        Output {
            json: common.json,
            quiet: common.quiet,
            verbose: common.verbose,
            terminal,
            color: terminal && !no_color,
        }
    }

    /// The command's result: the document with `--json`, else the text.
    pub fn result(&self, document: Value, text: impl FnOnce() -> String) -> Result<()> {
        let text = if self.json { serde_json::to_string_pretty(&document).unwrap_or_default() } else { text() };
        self.text(&text)
    }

    /// Lines on standard output; a reader that went away (`| head`) is no failure, a full disk is.
    pub fn text(&self, text: &str) -> Result<()> {
        print(text)
    }

    /// Something worth knowing, on standard error.
    pub fn note(&self, text: &str) {
        if !self.quiet {
            say(&self.paint("2", text));
        }
    }

    pub fn warn(&self, text: &str) {
        say(&format!("{} {text}", self.paint("33", "warning:")));
    }

    /// The error for people and, with `--json`, as the document. An error without a message was printed before.
    pub fn error(&self, error: &Error) {
        if error.message().is_empty() {
            return;
        }
        if self.json {
            failed(document(error));
        }
        self.complain(error);
    }

    /// The message, then each cause once, on standard error alone.
    pub fn complain(&self, error: &Error) {
        say(&format!("{} {}", self.paint("31", "error:"), error.message()));
        causes(error).iter().for_each(|cause| say(&format!("  because: {cause}")));
    }

    fn paint(&self, code: &str, text: &str) -> String {
        if self.color { format!("\u{1b}[{code}m{text}\u{1b}[0m") } else { text.to_owned() }
    }
}

fn print(text: &str) -> Result<()> {
    let text = text.trim_end_matches('\n');
    if text.is_empty() {
        return Ok(());
    }
    let mut out = std::io::stdout().lock();
    match writeln!(out, "{text}").and_then(|()| out.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => Err(Error::io("cannot write to standard output", error)),
        _ => Ok(()),
    }
}

/// The document of a command that failed.
fn failed(error: Value) {
    let document = json!({ "error": error });
    // What can't be written can't be complained of there either.
    let _ = print(&serde_json::to_string_pretty(&document).unwrap_or_default());
}

/// The document of a command line that isn't understood.
pub fn usage_error(message: &str) {
    failed(json!({ "kind": "usage", "message": message, "causes": [] }));
}

/// A line on standard error. Nobody may be listening, which is no failure of the command.
pub fn say(line: &str) {
    let _ = writeln!(std::io::stderr(), "{line}");
}

/// An error as `--json` prints it.
pub fn document(error: &Error) -> Value {
    json!({ "kind": error.kind().name(), "message": error.message(), "causes": causes(error) })
}

fn causes(error: &Error) -> Vec<String> {
    let mut causes = Vec::new();
    let mut next = error.source();
    while let Some(cause) = next {
        causes.push(cause.to_string());
        next = cause.source();
    }
    causes
}

/// A sample's key (or what else comes from outside) on one line: control characters, which could also speak to the
/// terminal, and marks that turn the direction of what follows or break the line are escaped.
pub fn shown(text: &str) -> String {
    let speaks = |c: char| {
        c.is_control()
            || matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
    };
    text.chars().map(|c| if speaks(c) { c.escape_default().to_string() } else { c.to_string() }).collect()
}

/// `1 shard`, `2 shards`, `1,234 shards`.
pub fn count(number: u64, noun: &str) -> String {
    let plural = match noun {
        "entry" => "entries".to_owned(),
        "class" => "classes".to_owned(),
        noun => format!("{noun}s"),
    };
    format!("{} {}", thousands(number), if number == 1 { noun } else { &plural })
}

pub fn thousands(number: u64) -> String {
    let digits = number.to_string();
    let mut out = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// `0.4 s`, `12 s`, `3 min 20 s`, `2 h 5 min`.
pub fn seconds(seconds: f64) -> String {
    match seconds {
        s if s < 10.0 => format!("{s:.1} s"),
        s if s < 90.0 => format!("{s:.0} s"),
        s if s < 5400.0 => format!("{} min {} s", s as u64 / 60, s as u64 % 60),
        s => format!("{} h {} min", s as u64 / 3600, s as u64 % 3600 / 60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_for_people() {
        assert_eq!(count(1, "entry"), "1 entry");
        assert_eq!(count(1_234_567, "entry"), "1,234,567 entries");
        assert_eq!(thousands(999), "999");
        assert_eq!(seconds(200.4), "3 min 20 s");
    }

    #[test]
    fn names_from_outside_stay_on_their_line() {
        assert_eq!(shown("cats/ü 1.jpg"), "cats/ü 1.jpg");
        assert_eq!(shown("a\nb\u{1b}[31m"), "a\\nb\\u{1b}[31m");
        assert_eq!(shown("a\u{202e}gpj.exe\u{2066}\u{200f}"), "a\\u{202e}gpj.exe\\u{2066}\\u{200f}");
    }
}
