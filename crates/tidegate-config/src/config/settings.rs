//! A whole configuration, and its `[store]`. `[server]` and `[limits.<name>]` are in `server.rs` and `limit.rs`.

use super::command_line::CommandLine;
use super::error::ConfigError;
use super::limit::LimitConfig;
use super::server::ServerConfig;
use super::source::Sources;
use std::time::Duration;
use tidegate::Timestamp;

/// A configuration, read from a file and the command line.
#[derive(Clone, Debug, Default)]
pub struct Config {
    /// `[server]`: listeners, access control, maximums.
    pub server: ServerConfig,
    /// `[store]`: the store that several servers share. `None` keeps limits in this server's memory.
    pub store: Option<StoreConfig>,
    /// `[limits.<name>]`, in the order of the file.
    pub limits: Vec<LimitConfig>,
    /// The flags that override the file.
    pub command_line: CommandLine,
    /// Probable mistakes that are not errors, such as a file of secrets that every user can read.
    pub warnings: Vec<ConfigError>,
    /// The files that the configuration was read from.
    pub sources: Sources,
}

/// `[store]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreConfig {
    /// The URL of the store.
    pub url: StoreUrl,
    /// Default maximum time of a decision.
    pub deadline: Duration,
    /// Number of connections to each primary.
    pub connections: usize,
    /// The prefix of every key in the store.
    pub prefix: String,
    /// The number of servers that share the limits. While the store does not answer, each server uses its share.
    pub nodes: u64,
    /// Whether requests of busy keys are decided from leases.
    pub lease: bool,
}

/// The URL of a store, which passed the check of the program that read the configuration.
#[derive(Clone, PartialEq, Eq)]
pub struct StoreUrl(String);

/// Checks the `url` of `[store]`. Which URLs there are depends on the program's client, so each program brings its own
/// check. An error completes the sentence "`url` is not the address of a store: …", and repeats no part of the URL.
pub type CheckUrl = fn(&str) -> Result<(), String>;

impl Config {
    /// Returns the [`warnings`](Self::warnings), and a warning for each certificate that has expired or expires soon.
    pub fn warnings_at(&self, now: Timestamp) -> Vec<ConfigError> {
        let tables = [("tls", &self.server.tls), ("admin_tls", &self.server.admin_tls)];
        let tables = tables.into_iter().filter_map(|(table, tls)| Some((table, tls.as_ref()?)));
        let expiring = tables.filter_map(|(table, tls)| {
            let when = tls.credentials.expires_soon(now)?;
            let message = format!("the certificate of [server.{table}] {when}");
            Some(ConfigError::whole(&tls.cert.display().to_string(), message))
        });
        self.warnings.iter().cloned().chain(expiring).collect()
    }
}

impl StoreConfig {
    /// Returns the configuration of a store with this URL, and defaults.
    pub fn at(url: StoreUrl) -> Self {
        let deadline = Duration::from_millis(20);
        Self { url, deadline, connections: 2, prefix: "tg:".to_owned(), nodes: 1, lease: false }
    }
}

impl StoreUrl {
    /// Creates a URL from its text, which must have been checked.
    pub(super) fn new(text: &str) -> Self {
        Self(text.to_owned())
    }

    /// Returns the text, which may hold a password.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl std::fmt::Debug for StoreUrl {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("StoreUrl(…)")
    }
}
