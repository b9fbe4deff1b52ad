//! What can be said on the command line.

use crate::output::Found;
use crate::{bench, check, explain, help, import, serve};
use clap::{Parser, Subcommand, ValueEnum};
use std::io::Write;

/// Flow control: exact rate limits, one rule text, one answer everywhere.
#[derive(Debug, Parser)]
#[command(name = "tidegate", version, propagate_version = true, disable_help_subcommand = true)]
pub(crate) struct Args {
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// Each in a file of its own.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Serve(serve::Serve),
    Check(check::Check),
    Explain(explain::Explain),
    Import(import::Import),
    Bench(bench::Bench),
    Completions(help::Completions),
    Man(help::Man),
}

/// How something is printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// For people
    Text,
    /// A line each, for editors and scripts
    Short,
    /// For programs
    Json,
}

impl Command {
    pub(crate) fn run(&self, out: &mut impl Write) -> anyhow::Result<Found> {
        match self {
            Self::Serve(serve) => serve.run(out),
            Self::Check(check) => check.run(out),
            Self::Explain(explain) => explain.run(out),
            Self::Import(import) => import.run(out),
            Self::Bench(bench) => bench.run(out),
            Self::Completions(completions) => completions.run(out),
            Self::Man(man) => man.run(out),
        }
    }
}
