//! `tidegate serve`: the daemon.

use crate::args::ServerFlags;
use crate::output::Found;
use std::path::PathBuf;
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
    #[command(flatten)]
    server: ServerFlags,
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
    pub(crate) fn run(&self) -> anyhow::Result<Found> {
        if let Some(file) = &self.file {
            let file = file.display();
            anyhow::bail!(
                "{file}: a configuration is named by --config: tidegate serve --config {file}"
            );
        }
        let options = Options {
            config: self.config.clone(),
            server: self.server.command_line(),
            log: match self.log {
                Log::Text => LogFormat::Text,
                Log::Json => LogFormat::Json,
            },
        };
        daemon::run(&options, std::io::stdout())?;
        Ok(Found::Fine)
    }
}
