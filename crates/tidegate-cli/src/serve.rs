//! `tidegate serve`: the daemon.

use crate::flags::ServerFlags;
use crate::output::CommandStatus;
use std::path::PathBuf;
use tidegate_server::daemon::{self, LogFormat, Options};

/// Run the server: RESP (CL.THROTTLE, TIDE.*), HTTP and gRPC (Envoy), with limits in memory or in Redis
///
/// A configuration is optional. SIGHUP reloads it, SIGTERM shuts down gracefully. The environment variable
/// `TIDEGATE_LOG` sets the log level: off, error, warn, info (default), debug or trace.
#[derive(Debug, clap::Args)]
pub(crate) struct Serve {
    /// Configuration file
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    #[command(flatten)]
    server: ServerFlags,
    /// Log format
    #[arg(long, value_enum, default_value = "text")]
    log: Log,
    /// Accepted only to explain the mistake: `check` takes the file without `--config`, and `serve` does not.
    #[arg(hide = true)]
    file: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum Log {
    /// For people
    Text,
    /// One JSON object per line
    Json,
}

impl Serve {
    pub(crate) fn run(&self) -> anyhow::Result<CommandStatus> {
        if let Some(file) = &self.file {
            let file = file.display();
            anyhow::bail!(
                "unexpected argument `{file}`: name a configuration with --config, as in `tidegate serve --config {file}`"
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
        Ok(CommandStatus::Success)
    }
}
