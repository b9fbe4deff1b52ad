//! The server's configuration: listeners, limits, access control.
//!
//! Always   A [`Config`] that exists is valid: every rule parses, every name is known, every file was read.
//!          Every setting has a default, so the server starts without a configuration file.

mod command_line;
mod describe;
mod descriptor;
mod duration;
mod error;
mod files;
mod limits;
mod protocol;
mod read;
mod report;
mod restart;
mod server;
mod source;
mod startup;
mod store;
mod table;
mod value;
mod when;

pub use command_line::{CommandLine, ListenAddr};
pub use describe::describe_rule;
pub use error::{ConfigError, ConfigErrors};
pub use limits::{THROTTLES_NAME, is_limit_name};
pub use protocol::Protocol;
pub use read::{FILE_BYTES_MAX, load, read};
pub use source::Sources;
pub use startup::{for_reload, for_start};
pub use tidegate_core::diagnostics::nearest_name as near;

use crate::request::{Condition, DescriptorPart, EscapedSlash, KeyPart};
use crate::tls::Credentials;
use http::StatusCode;
use ipnet::IpNet;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;
use tidegate::limiter::Overflow;
use tidegate::{Rule, Timestamp};
use tidegate_http::ProxyHeader;

/// Whether a limit is enforced (B6).
pub use tidegate_http::Mode;

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

/// `[server]`.
#[derive(Clone, Debug)]
pub struct ServerConfig {
    /// RESP listen address; `None` is `off`.
    pub resp: Option<SocketAddr>,
    /// HTTP listen address.
    pub http: Option<SocketAddr>,
    /// gRPC listen address.
    pub grpc: Option<SocketAddr>,
    /// Admin listen address.
    pub admin: Option<SocketAddr>,
    /// `[server.tls]`, for all listeners except admin.
    pub tls: Option<TlsConfig>,
    /// `[server.admin_tls]`, for the admin listener: metrics collectors often have no client certificate for the others.
    pub admin_tls: Option<TlsConfig>,
    /// `[server.auth]`: the tokens of clients. Empty means that clients need none, which is allowed on loopback only.
    pub tokens: Vec<Token>,
    /// The token of the admin listener. `None` means that clients need none, which is allowed on loopback only.
    pub admin_token: Option<Token>,
    /// Whether listeners on other addresses than loopback may do without tokens.
    pub is_insecure: bool,
    /// Host names, besides those of loopback, that clients without a token may use on loopback.
    pub hosts: Vec<String>,
    /// Proxies whose reports of client addresses are trusted.
    pub trusted_proxies: Vec<IpNet>,
    /// The header in which trusted proxies report client addresses.
    pub proxy_header: ProxyHeader,
    /// How the servers behind proxies read `%2F` in a path.
    pub escaped_slash: EscapedSlashes,
    /// `[server.snapshot]`: the file that keeps debts over a restart.
    pub snapshot: Option<SnapshotConfig>,
    /// Whether the server checks its configuration files for changes every second.
    pub is_watching: bool,
    /// `[server.caps]`.
    pub caps: Caps,
    /// How long a shutdown waits for requests in progress.
    pub drain: Duration,
    /// Maximum number of keys of `CL.THROTTLE`.
    pub throttle_max_keys: usize,
    /// Maximum number of keys of each ad-hoc rule.
    pub rule_max_keys: usize,
    /// Whether requests may contain ad-hoc rules.
    pub has_ad_hoc_rules: bool,
}

/// `escaped_slash`, by the headers in which a proxy reports the original request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EscapedSlashes {
    /// `X-Original-…`: nginx.
    pub x_original: EscapedSlash,
    /// `X-Forwarded-…`: Caddy and Traefik.
    pub x_forwarded: EscapedSlash,
}

/// A secret that is compared in constant time and never printed.
#[derive(Clone, PartialEq, Eq)]
pub struct Token(String);

/// `[server.tls]` or `[server.admin_tls]`.
#[derive(Clone, Debug)]
pub struct TlsConfig {
    /// PEM file of the certificate chain.
    pub cert: PathBuf,
    /// PEM file of the certificate's key.
    pub key: PathBuf,
    /// PEM file of the authorities that sign client certificates (mTLS).
    pub client_ca: Option<PathBuf>,
    /// The contents of these files.
    pub credentials: Credentials,
}

/// `[server.snapshot]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SnapshotConfig {
    /// The snapshot file.
    pub path: PathBuf,
    /// The interval between snapshots.
    pub every: Duration,
}

/// `[server.caps]`: maximums for one client, and for all clients together.
#[derive(Clone, Copy, Debug)]
pub struct Caps {
    /// Maximum number of connections, over all listeners.
    pub connections_max: usize,
    /// Maximum number of requests that wait for a store or for a queue, over all listeners.
    pub waiting_max: usize,
    /// Maximum size of replies that a client has not read, in bytes.
    pub output_bytes_max: usize,
    /// Maximum time until the first byte of a connection.
    pub first_byte: Duration,
    /// Maximum time from the first to the last byte of a request.
    pub request: Duration,
    /// Maximum idle time of a connection.
    pub idle: Duration,
    /// Maximum time until a client has sent a token or a certificate, if it needs one.
    pub unauthenticated: Duration,
    /// Maximum number of unauthenticated connections per address; of all connections, if clients need no token.
    pub connections_per_address: Option<usize>,
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

/// `[limits.<name>]`.
#[derive(Clone, Debug)]
pub struct LimitConfig {
    /// The name of the limit.
    pub name: String,
    /// The rule.
    pub rule: Rule,
    /// Whether the limit is enforced.
    pub mode: Mode,
    /// The parts of the key that it counts by. Empty counts all requests under one key.
    pub key: Vec<KeyPart>,
    /// The conditions under which it counts a request; all must hold.
    pub when: Vec<Condition>,
    /// What happens to a request without a value for the key.
    pub on_missing_key: MissingKey,
    /// Maximum number of keys. Default: the library's.
    pub max_keys: Option<usize>,
    /// What happens to new keys when the key store is full.
    pub overflow: Overflow,
    /// The response to a denied caller in place of the problem body (R3).
    pub fallback: Option<Fallback>,
    /// The Envoy descriptor that it counts.
    pub descriptor: Option<DescriptorConfig>,
    /// What happens to requests while the store does not answer.
    pub on_error: OnError,
    /// Maximum time of a decision. Default: the store's.
    pub deadline: Option<Duration>,
}

/// Which Envoy descriptor a limit counts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DescriptorConfig {
    /// The domain.
    pub domain: String,
    /// The entries, outermost first.
    pub entries: Vec<DescriptorPart>,
    /// Names of limits that do not count a request that this limit counts.
    pub replaces: Vec<String>,
}

/// What happens to a request without a value for the key that a limit counts by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MissingKey {
    /// All such requests share one key.
    #[default]
    Shared,
    /// The request passes uncounted.
    Allow,
    /// The request is denied.
    Deny,
}

/// What happens to requests while the store does not answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnError {
    /// This server decides with its share of the limit.
    #[default]
    Local,
    /// Requests pass.
    Allow,
    /// Requests are denied.
    Deny,
}

/// The response to a denied caller in place of the problem body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fallback {
    /// The HTTP status.
    pub status: u16,
    /// The content type of the body.
    pub content_type: String,
    /// The body.
    pub body: String,
}

impl Fallback {
    /// Returns the status, or `None` if it is below 400: on such a status a proxy would let the request pass, or follow the
    /// redirect.
    pub fn denial_status(&self) -> Option<StatusCode> {
        let status = StatusCode::from_u16(self.status).ok();
        status.filter(|status| status.is_client_error() || status.is_server_error())
    }
}

/// Default RESP listen address.
pub const RESP_ADDR: SocketAddr = loopback(6380);
/// Default HTTP listen address.
pub const HTTP_ADDR: SocketAddr = loopback(8080);
/// Default gRPC listen address.
pub const GRPC_ADDR: SocketAddr = loopback(8081);
/// Default admin listen address.
pub const ADMIN_ADDR: SocketAddr = loopback(9091);

const fn loopback(port: u16) -> SocketAddr {
    SocketAddr::V4(std::net::SocketAddrV4::new(std::net::Ipv4Addr::LOCALHOST, port))
}

impl Default for ServerConfig {
    fn default() -> Self {
        Self {
            resp: Some(RESP_ADDR),
            http: Some(HTTP_ADDR),
            grpc: Some(GRPC_ADDR),
            admin: Some(ADMIN_ADDR),
            tls: None,
            admin_tls: None,
            tokens: Vec::new(),
            admin_token: None,
            is_insecure: false,
            hosts: Vec::new(),
            trusted_proxies: Vec::new(),
            proxy_header: ProxyHeader::Either,
            escaped_slash: EscapedSlashes::default(),
            snapshot: None,
            is_watching: false,
            caps: Caps::default(),
            drain: Duration::from_secs(30),
            throttle_max_keys: 16_777_216,
            rule_max_keys: 1_000_000,
            has_ad_hoc_rules: true,
        }
    }
}

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

impl ServerConfig {
    /// Returns whether clients need a certificate on listeners with `[server.tls]`.
    pub fn needs_certificate(&self) -> bool {
        self.tls.as_ref().is_some_and(|tls| tls.client_ca.is_some())
    }

    /// Returns whether clients need a certificate on the admin listener.
    pub fn admin_needs_certificate(&self) -> bool {
        self.admin_tls.as_ref().is_some_and(|tls| tls.client_ca.is_some())
    }
}

impl EscapedSlashes {
    /// Returns the setting for requests that no proxy reports: the common one, or else `Either`.
    pub fn common(self) -> EscapedSlash {
        if self.x_original == self.x_forwarded { self.x_original } else { EscapedSlash::Either }
    }
}

impl Default for Caps {
    fn default() -> Self {
        Self {
            connections_max: 10_000,
            waiting_max: 10_000,
            output_bytes_max: 1 << 20,
            first_byte: Duration::from_secs(5),
            request: Duration::from_secs(10),
            idle: Duration::from_secs(300),
            unauthenticated: Duration::from_secs(10),
            connections_per_address: None,
        }
    }
}

impl LimitConfig {
    /// Returns a limit with this name and rule, and defaults.
    pub fn new(name: impl Into<String>, rule: Rule) -> Self {
        Self {
            name: name.into(),
            rule,
            mode: Mode::default(),
            key: Vec::new(),
            when: Vec::new(),
            on_missing_key: MissingKey::default(),
            max_keys: None,
            overflow: Overflow::default(),
            fallback: None,
            descriptor: None,
            on_error: OnError::default(),
            deadline: None,
        }
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
    pub(crate) fn new(text: &str) -> Self {
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

impl std::fmt::Debug for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Token(…)")
    }
}

impl Token {
    /// Creates a token from its text.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// Returns the bytes of the secret.
    pub fn bytes(&self) -> &[u8] {
        self.0.as_bytes()
    }

    /// Returns whether the token is the offered one, in a time that does not depend on the bytes that differ.
    pub fn is(&self, offered: &[u8]) -> bool {
        use subtle::ConstantTimeEq;
        self.bytes().ct_eq(offered).into()
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use tidegate_testbed::CertificateFiles;

    /// Accepts every URL.
    #[expect(clippy::unnecessary_wraps, reason = "the function is a `CheckUrl`")]
    pub(crate) fn accept(_: &str) -> Result<(), String> {
        Ok(())
    }

    /// Reads a configuration without a check of the store's URL.
    pub(crate) fn read(text: &str, file: &str) -> Result<Config, ConfigErrors> {
        super::read(text, file, accept)
    }

    /// Reads `[server.tls]` with this certificate and these further lines.
    pub(crate) fn tls(files: &CertificateFiles, more: &str) -> TlsConfig {
        let text = format!("[server.tls]\n{}{more}\n", files.toml());
        read(&text, &files.path("t.toml").display().to_string()).unwrap().server.tls.unwrap()
    }
}
