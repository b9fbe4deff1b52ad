//! What it says while it runs: to standard error, for people or for machines.

use tracing_subscriber::filter::LevelFilter;

/// How a line of the log looks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LogFormat {
    /// For people.
    #[default]
    Text,
    /// One JSON object a line.
    Json,
}

/// Starts logging, once in a process.
pub(super) fn start(format: LogFormat) {
    let level = std::env::var("TIDEGATE_LOG").ok().and_then(|level| level.parse().ok());
    let level: LevelFilter = level.unwrap_or(LevelFilter::INFO);
    let builder = tracing_subscriber::fmt()
        .with_max_level(level)
        .with_writer(std::io::stderr)
        .with_target(false);
    // Somebody who starts two servers in a process has logged before.
    let _ = match format {
        LogFormat::Text => builder.with_ansi(false).try_init(),
        LogFormat::Json => builder.json().try_init(),
    };
}
