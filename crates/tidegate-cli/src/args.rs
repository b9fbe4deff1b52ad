//! What can be said on the command line.

use crate::output::Found;
use crate::{bench, check, explain, help, import, serve};
use clap::{Parser, Subcommand, ValueEnum};
use std::io::Write;
use std::net::SocketAddr;
use std::path::PathBuf;
use tidegate_server::config::{ADMIN_ADDR, CommandLine, GRPC_ADDR, HTTP_ADDR, Place, RESP_ADDR};

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

/// What the command line says instead of `[server]`: for `serve`, and for `check`, which must know what `serve` will.
#[derive(Debug, clap::Args)]
pub(crate) struct ServerFlags {
    /// Where Redis clients come [default: 127.0.0.1:6380]
    #[arg(long, value_name = "ADDR|off", value_parser = place(RESP_ADDR))]
    resp: Option<Place>,
    /// Where HTTP clients come [default: 127.0.0.1:8080]
    #[arg(long, value_name = "ADDR|off", value_parser = place(HTTP_ADDR))]
    http: Option<Place>,
    /// Where Envoy comes [default: 127.0.0.1:8081]
    #[arg(long, value_name = "ADDR|off", value_parser = place(GRPC_ADDR))]
    grpc: Option<Place>,
    /// Where the operator comes: metrics, health, dashboard [default: 127.0.0.1:9091]
    #[arg(long, value_name = "ADDR|off", value_parser = place(ADMIN_ADDR))]
    admin: Option<Place>,
    /// Keep debts over a restart in this file
    #[arg(long, value_name = "FILE")]
    snapshot: Option<PathBuf>,
    /// Listen where other machines can connect although requests need no token
    #[arg(long)]
    insecure: bool,
}

impl ServerFlags {
    pub(crate) fn command_line(&self) -> CommandLine {
        CommandLine {
            resp: self.resp,
            http: self.http,
            grpc: self.grpc,
            admin: self.admin,
            snapshot: self.snapshot.clone(),
            is_insecure: self.insecure,
        }
    }
}

/// Reads where to listen; an error has an example for this listener.
fn place(default: SocketAddr) -> impl Fn(&str) -> Result<Place, String> + Clone + Send + Sync {
    move |text| Place::read(text, default)
}

impl Command {
    pub(crate) fn run(&self, out: &mut impl Write) -> anyhow::Result<Found> {
        match self {
            Self::Serve(serve) => serve.run(),
            Self::Check(check) => check.run(out),
            Self::Explain(explain) => explain.run(out),
            Self::Import(import) => import.run(out),
            Self::Bench(bench) => bench.run(out),
            Self::Completions(completions) => completions.run(out),
            Self::Man(man) => man.run(out),
        }
    }
}
