//! The `forebay` binary: everything is in `forebay::cli`.

fn main() -> std::process::ExitCode {
    forebay::cli::main()
}
