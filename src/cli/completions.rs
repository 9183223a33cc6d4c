//! `forebay completions`: a script that completes commands and options in a shell.

use crate::error::Result;
use clap::{Args, CommandFactory};
use clap_complete::Shell;
use serde_json::json;

/// Print a completion script for a shell
#[derive(Args)]
#[command(after_help = "Examples:\n  forebay completions bash > ~/.local/share/bash-completion/completions/forebay")]
pub struct Arguments {
    shell: Shell,
}

pub fn run(arguments: Arguments, context: &super::Context) -> Result<()> {
    let mut script = Vec::new();
    clap_complete::generate(arguments.shell, &mut super::Cli::command(), "forebay", &mut script);
    let script = String::from_utf8_lossy(&script).into_owned();
    context.out.result(json!({ "shell": arguments.shell.to_string(), "script": script }), || script)
}
