//! Flags that several commands share.

use clap::ValueEnum;
use std::net::SocketAddr;
use std::path::PathBuf;
use tidegate_server::config::{
    ADMIN_ADDR, CommandLine, GRPC_ADDR, HTTP_ADDR, ListenAddr, RESP_ADDR,
};

/// Output format
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// For people
    Text,
    /// One line per item, for editors and scripts
    Short,
    /// For programs
    Json,
}

/// Flags that override `[server]`: those of `serve`, which `check` takes too so that it checks the same server.
#[derive(Debug, clap::Args)]
pub(crate) struct ServerFlags {
    /// RESP listen address, for Redis clients [default: 127.0.0.1:6380]
    #[arg(long, value_name = "ADDR|off", value_parser = place(RESP_ADDR))]
    resp: Option<ListenAddr>,
    /// HTTP listen address [default: 127.0.0.1:8080]
    #[arg(long, value_name = "ADDR|off", value_parser = place(HTTP_ADDR))]
    http: Option<ListenAddr>,
    /// gRPC listen address, for Envoy [default: 127.0.0.1:8081]
    #[arg(long, value_name = "ADDR|off", value_parser = place(GRPC_ADDR))]
    grpc: Option<ListenAddr>,
    /// Admin listen address: metrics, health, dashboard [default: 127.0.0.1:9091]
    #[arg(long, value_name = "ADDR|off", value_parser = place(ADMIN_ADDR))]
    admin: Option<ListenAddr>,
    /// Keep debts across restarts in this file
    #[arg(long, value_name = "FILE")]
    snapshot: Option<PathBuf>,
    /// Listen on addresses that other machines can reach, although requests need no token
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

/// Parses a listen address; an error shows `default` as an example.
fn place(default: SocketAddr) -> impl Fn(&str) -> Result<ListenAddr, String> + Clone + Send + Sync {
    move |text| ListenAddr::read(text, default)
}
