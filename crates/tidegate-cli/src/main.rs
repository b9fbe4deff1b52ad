//! `tidegate`, the one binary: parses the command line, runs the command, and exits with its status.

mod args;
mod bench;
mod check;
mod explain;
mod flags;
mod help;
mod import;
mod output;
mod serve;

use clap::Parser;
use std::process::ExitCode;

fn main() -> ExitCode {
    let args = args::Args::parse();
    // Standard output is not locked, because the server writes to it from another thread.
    output::end(args.command.run(&mut std::io::stdout()))
}
