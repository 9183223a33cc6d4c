//! `forebay verify`: checks every byte of a store against its digests, and repairs what can be.

use crate::cli::output::{self, count};
use crate::cli::place::Place;
use crate::cli::{Context, reported};
use crate::error::{Error, Result};
use crate::spec::size;
use crate::store::verify::{Options, verify};
use clap::Args;
use serde_json::{Value, json};
use std::fmt::Write;

/// Check every byte of a store against its digests
#[derive(Args)]
#[command(
    after_help = "Examples:\n  forebay verify photos.yaml\n  forebay verify photos.yaml --repair    then `forebay materialize` computes what was bad"
)]
pub struct Arguments {
    #[command(flatten)]
    place: Place,
    /// Read this share of the parts (0.1 is a tenth); of the others only the lengths are checked
    #[arg(long, value_name = "SHARE", default_value_t = 1.0, value_parser = share)]
    share: f64,
    /// Which parts a share below 1 means
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Report bad blobs so that the next materialize replaces them, and remove documents proved bad
    #[arg(long)]
    repair: bool,
}

pub fn run(arguments: Arguments, context: &Context) -> Result<()> {
    let (store, _) = arguments.place.open(context)?;
    let options = Options {
        share: arguments.share,
        seed: arguments.seed,
        threads: context.threads(),
        repair: arguments.repair,
        progress: &|_, _| {},
    };
    let verified = verify(&store, &options)?;
    let findings: Vec<Value> = verified
        .findings
        .iter()
        .map(|f| json!({ "object": f.object, "expected": f.expected, "found": f.found, "repaired": f.repaired }))
        .collect();
    let left = verified.findings.iter().filter(|f| f.repaired.is_none()).count() as u64;
    let error = (left > 0).then(|| {
        let advice = match arguments.repair {
            true => "they can't be repaired from here",
            false => {
                "`forebay verify --repair` reports what is bad, so that the next `forebay materialize` computes it anew"
            }
        };
        Error::corrupt(format!("{} left; {advice}", count(left, "finding")))
    });
    let document = json!({
        "error": error.as_ref().map(output::document), "findings": findings, "heads": verified.heads, "records": verified.records, "parts_read": verified.parts_read,
        "bytes_read": verified.bytes_read, "orphans": verified.orphans, "orphan_bytes": verified.orphan_bytes,
    });
    context.out.result(document, || {
        let mut text = String::new();
        for finding in &verified.findings {
            let done = finding.repaired.map_or(String::new(), |d| format!("; {d}"));
            let _ =
                writeln!(text, "{}\n  expected {}, found {}{done}", finding.object, finding.expected, finding.found);
        }
        let bad = verified.findings.len() as u64;
        let _ = write!(
            text,
            "{}, {} read: {}",
            count(verified.records, "record"),
            size::print(verified.bytes_read),
            if bad == 0 { "all good".to_owned() } else { count(bad, "finding") },
        );
        if verified.orphans > 0 {
            let _ = write!(text, "; {} that nothing refers to", count(verified.orphans, "blob"));
        }
        text
    })?;
    if error.is_none() && !verified.findings.is_empty() {
        context.out.note("`forebay materialize`, with the stages that are wanted, now stores anew what was bad");
    }
    match error {
        None => Ok(()),
        Some(error) => {
            context.out.complain(&error);
            Err(reported(error.kind()))
        }
    }
}

fn share(text: &str) -> std::result::Result<f64, String> {
    let number = text.parse().ok().filter(|number| (0.0..=1.0).contains(number));
    number.ok_or_else(|| "expected a number from 0 to 1".into())
}
