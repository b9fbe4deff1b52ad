//! `tidegate serve`: the daemon.

use crate::output::Found;
use std::io::Write;
use std::path::PathBuf;
use tidegate_server::config::{CommandLine, Place};
use tidegate_server::daemon::{self, LogFormat, Options};

/// Answer RESP (CL.THROTTLE, TIDE.*), HTTP and gRPC (Envoy), with limits in memory or in Redis
///
/// No configuration is needed. SIGHUP reloads it, SIGTERM ends in an orderly way. `TIDEGATE_LOG` sets how much
/// is logged: error, warn, info, debug.
#[derive(Debug, clap::Args)]
pub(crate) struct Serve {
    /// The configuration
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Where Redis clients come [default: 127.0.0.1:6380]
    #[arg(long, value_name = "ADDR|off")]
    resp: Option<Place>,
    /// Where HTTP clients come [default: 127.0.0.1:8080]
    #[arg(long, value_name = "ADDR|off")]
    http: Option<Place>,
    /// Where Envoy comes [default: 127.0.0.1:8081]
    #[arg(long, value_name = "ADDR|off")]
    grpc: Option<Place>,
    /// Where the operator comes: metrics, health, dashboard [default: 127.0.0.1:9091]
    #[arg(long, value_name = "ADDR|off")]
    admin: Option<Place>,
    /// Keep debts over a restart in this file
    #[arg(long, value_name = "FILE")]
    snapshot: Option<PathBuf>,
    /// Listen where others can come in although nobody needs a token
    #[arg(long)]
    insecure: bool,
    /// How to log
    #[arg(long, value_enum, default_value = "text")]
    log: Log,
    /// For who leaves out `--config`, as with `check`: an error that says so.
    #[arg(hide = true)]
    file: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum Log {
    /// For people
    Text,
    /// One JSON object a line
    Json,
}

impl Serve {
    pub(crate) fn run(&self, out: &mut impl Write) -> anyhow::Result<Found> {
        if let Some(file) = &self.file {
            let file = file.display();
            anyhow::bail!(
                "{file}: a configuration is named by --config: tidegate serve --config {file}"
            );
        }
        let options = Options {
            config: self.config.clone(),
            server: CommandLine {
                resp: self.resp,
                http: self.http,
                grpc: self.grpc,
                admin: self.admin,
                snapshot: self.snapshot.clone(),
                is_insecure: self.insecure,
            },
            log: match self.log {
                Log::Text => LogFormat::Text,
                Log::Json => LogFormat::Json,
            },
        };
        daemon::run(&options, out)?;
        Ok(Found::Fine)
    }
}
