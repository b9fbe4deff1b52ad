//! The command line: one subcommand per module.

use crate::output::CommandStatus;
use crate::{bench, check, explain, help, import, serve};
use clap::{CommandFactory, Parser, Subcommand};
use std::io::Write;

/// Flow control: exact rate limits, one rule text, one answer everywhere.
#[derive(Debug, Parser)]
#[command(name = "tidegate", version, propagate_version = true, disable_help_subcommand = true)]
pub(crate) struct Args {
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// The subcommands.
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

impl Command {
    pub(crate) fn run(&self, out: &mut impl Write) -> anyhow::Result<CommandStatus> {
        match self {
            Self::Serve(serve) => serve.run(),
            Self::Check(check) => check.run(out),
            Self::Explain(explain) => explain.run(out),
            Self::Import(import) => import.run(out),
            Self::Bench(bench) => bench.run(out),
            Self::Completions(completions) => completions.run(Args::command(), out),
            Self::Man(man) => man.run(Args::command(), out),
        }
    }
}
