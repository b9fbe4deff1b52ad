//! `tidegate`: the one binary. Each command is a file; this one starts it and ends the process.

mod args;
mod bench;
mod check;
mod explain;
mod help;
mod import;
mod output;
mod serve;

use clap::Parser;
use std::process::ExitCode;

fn main() -> ExitCode {
    let args = args::Args::parse();
    // Not locked: the server writes from a thread of its own.
    output::end(args.command.run(&mut std::io::stdout()))
}
