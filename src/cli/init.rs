//! `forebay init`: looks at data and writes a starter pipeline.

use crate::app::init::init;
use crate::cli::Context;
use crate::cli::output::{count, shown};
use crate::error::{Error, Result};
use crate::spec::size;
use clap::Args;
use serde_json::json;
use std::fmt::Write as _;
use std::io::Write as _;
use std::path::{Path, PathBuf};

/// Look at a folder, tar, table or dataset and write a starter pipeline for it
#[derive(Args)]
#[command(after_help = "Examples:\n  forebay init ./photos\n  forebay init ./shards/train-000.tar --print")]
pub struct Arguments {
    /// A folder or a file
    path: PathBuf,
    /// Print the pipeline instead of writing it
    #[arg(long)]
    print: bool,
}

/// Where `classes: auto` keeps the names of a pipeline with one such step.
const CLASSES: &str = "classes.txt";

pub fn run(arguments: Arguments, context: &Context) -> Result<()> {
    let draft = init(&arguments.path)?;
    if arguments.print && !context.out.json {
        context.out.text(&draft.text)?;
        return Ok(());
    }
    if !arguments.print {
        let file = std::fs::OpenOptions::new().write(true).create_new(true).open(&draft.file);
        let written = file.and_then(|mut f| f.write_all(draft.text.as_bytes()));
        written.map_err(|e| match e.kind() {
            std::io::ErrorKind::AlreadyExists => Error::conflict(format!(
                "{} is there already and is left as it is; remove it, or use --print",
                draft.file.display()
            )),
            _ => Error::io(format!("cannot write {}", draft.file.display()), e),
        })?;
    }
    if draft.text.contains("classes: auto") && Path::new(CLASSES).exists() {
        context.out.warn(&format!(
            "{CLASSES} is there already, and `classes: auto` takes the names in it; if it is of another pipeline, remove it or \
             work in another directory"
        ));
    }
    let survey = &draft.survey;
    let counts: serde_json::Map<String, serde_json::Value> =
        survey.counts.iter().map(|(kind, n)| (kind.name().to_owned(), (*n).into())).collect();
    let splits: serde_json::Map<String, serde_json::Value> =
        survey.splits.iter().map(|split| (split.name.clone(), split.count.into())).collect();
    let odd: Vec<_> = survey.odd.iter().map(|o| json!({ "path": o.path, "reason": o.reason })).collect();
    let document = json!({
        "pipeline": draft.name, "file": draft.file, "text": draft.text, "files": counts, "bytes": survey.bytes,
        "median_bytes": survey.median_bytes, "classes": survey.classes, "splits": splits, "odd": odd, "odd_files": survey.odd_files,
        "next": draft.next,
    });
    context.out.result(document, || {
        let mut text = String::new();
        let files: Vec<String> =
            survey.counts.iter().map(|(kind, n)| count(*n, &format!("{} file", kind.name()))).collect();
        let _ = writeln!(
            text,
            "found {}; {} to read, {} at the median",
            files.join(", "),
            size::print(survey.bytes),
            size::print(survey.median_bytes),
        );
        if !survey.classes.is_empty() {
            let first: Vec<String> = survey.classes.iter().take(5).map(|class| shown(class)).collect();
            let more = if survey.classes.len() > first.len() { ", …" } else { "" };
            let _ = writeln!(text, "{} classes by directory: {}{more}", survey.classes.len(), first.join(", "));
        }
        if !survey.splits.is_empty() {
            let what = if survey.single { "row" } else { "file" };
            let own: Vec<String> =
                survey.splits.iter().map(|split| format!("{} {}", split.name, count(split.count, what))).collect();
            let _ = writeln!(
                text,
                "{}: {}",
                if survey.single { "splits in the table" } else { "splits by name" },
                own.join(", ")
            );
        }
        for odd in &survey.odd {
            let _ = writeln!(text, "odd: {}: {}", shown(&odd.path.display().to_string()), odd.reason);
        }
        if survey.odd_files > survey.odd.len() as u64 {
            let _ = writeln!(text, "… and {} more odd files", survey.odd_files - survey.odd.len() as u64);
        }
        let _ = writeln!(text, "wrote {}; next:\n  {}", draft.file.display(), draft.next.join("\n  "));
        text
    })?;
    Ok(())
}
