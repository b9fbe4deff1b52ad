//! What the server is told: listeners, limits, who may ask.
//!
//! Always   A [`Config`] that exists is good: every rule parses, every name is known, every file was read.
//!          Everything has a default, so that no configuration is a configuration too.

mod command_line;
mod descriptor;
mod duration;
mod error;
mod files;
mod limits;
mod means;
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

pub use command_line::{CommandLine, Place};
pub use error::{ConfigError, ConfigErrors};
pub use limits::{THROTTLES_NAME, is_limit_name};
pub use means::means;
pub use protocol::Protocol;
pub use read::{FILE_BYTES_MAX, load, read};
pub use source::Sources;
pub use startup::{for_reload, for_start};
pub use tidegate_core::diagnostics::nearest_name as near;

use crate::matching::{Condition, DescriptorPart, EscapedSlash, KeyPart};
use crate::tls::Credentials;
use http::StatusCode;
use ipnet::IpNet;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;
use tidegate::limiter::Overflow;
use tidegate::{Rule, Timestamp};
use tidegate_http::ProxyHeader;

/// Whether a limit is obeyed (B6).
pub use tidegate_http::Mode;

/// The whole of it.
#[derive(Clone, Debug, Default)]
pub struct Config {
    /// `[server]`: where to listen, and how to be careful.
    pub server: ServerConfig,
    /// `[store]`: where limits are kept that several servers share; in memory if there is none.
    pub store: Option<StoreConfig>,
    /// `[limits.<name>]`, in the order of the file.
    pub limits: Vec<LimitConfig>,
    /// What the command line says instead of the file.
    pub command_line: CommandLine,
    /// What is no error, and may be a mistake: a file of secrets that everybody can read, for example.
    pub warnings: Vec<ConfigError>,
    /// The files that it was read from.
    pub sources: Sources,
}

/// `[server]`.
#[derive(Clone, Debug)]
pub struct ServerConfig {
    /// Where redis clients come; `None` is `off`.
    pub resp: Option<SocketAddr>,
    /// Where `curl` comes.
    pub http: Option<SocketAddr>,
    /// Where Envoy comes.
    pub grpc: Option<SocketAddr>,
    /// Where the operator comes.
    pub admin: Option<SocketAddr>,
    /// `[server.tls]`, for all listeners but the admin's.
    pub tls: Option<TlsConfig>,
    /// `[server.admin_tls]`, for the admin's: who collects metrics often has no certificate that is good for the others.
    pub admin_tls: Option<TlsConfig>,
    /// `[server.auth]`: who may ask. Empty means everybody, which only loopback may.
    pub tokens: Vec<Token>,
    /// The operator's token; without one only loopback may come, by its own names.
    pub admin_token: Option<Token>,
    /// Whether a listener that is not on loopback may do without tokens.
    pub is_insecure: bool,
    /// Names, besides loopback's, by which who needs no token may ask on loopback.
    pub hosts: Vec<String>,
    /// Proxies whose word about who asks is believed.
    pub trusted_proxies: Vec<IpNet>,
    /// Which header is believed of them.
    pub proxy_header: ProxyHeader,
    /// What the servers behind proxies take `%2F` in a path for.
    pub escaped_slash: EscapedSlashes,
    /// `[server.snapshot]`: where debts are kept over a restart.
    pub snapshot: Option<SnapshotConfig>,
    /// Whether the configuration file is looked at every second.
    pub is_watching: bool,
    /// `[server.caps]`.
    pub caps: Caps,
    /// How long a shutdown waits for those who are being answered.
    pub drain: Duration,
    /// How long a busy worker looks for more before it sleeps.
    pub stay_awake: Duration,
    /// How many keys `CL.THROTTLE` may have.
    pub throttle_max_keys: usize,
    /// How many keys each rule may have that is asked for by its text.
    pub rule_max_keys: usize,
    /// Whether rules may be asked for by their text.
    pub has_ad_hoc_rules: bool,
}

/// `escaped_slash`, by the fields that a proxy tells of a request by.
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
    /// PEM file of its key.
    pub key: PathBuf,
    /// PEM file of the authorities whose clients may come in (mTLS).
    pub client_ca: Option<PathBuf>,
    /// What was in these files.
    pub credentials: Credentials,
}

/// `[server.snapshot]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SnapshotConfig {
    /// The file.
    pub path: PathBuf,
    /// How often it is written.
    pub every: Duration,
}

/// `[server.caps]`: what one peer, and all of them, may take.
#[derive(Clone, Copy, Debug)]
pub struct Caps {
    /// Connections, over all listeners.
    pub connections_max: usize,
    /// Requests that wait for a store or for their turn, over all listeners.
    pub waiting_max: usize,
    /// Bytes of replies that a peer may leave unread.
    pub output_bytes_max: usize,
    /// How long until the first byte must have come.
    pub first_byte: Duration,
    /// How long a request may take to arrive.
    pub request: Duration,
    /// How long a connection may be idle.
    pub idle: Duration,
    /// How long until a peer must have shown a token or a certificate, where it needs one.
    pub unauthenticated: Duration,
    /// How many connections one address may have whose peer has not; where nobody needs to, how many connections.
    pub connections_per_address: Option<usize>,
}

/// `[store]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreConfig {
    /// Where it is.
    pub url: StoreUrl,
    /// How long a decision waits for it, where the limit does not say.
    pub deadline: Duration,
    /// Connections to each primary.
    pub connections: usize,
    /// What every key in it begins with.
    pub prefix: String,
    /// How many servers share the limits: what is one server's share while the store does not answer.
    pub nodes: u64,
    /// Whether a busy key's requests are decided here, out of what was taken from the store for many.
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
    /// Its name.
    pub name: String,
    /// What it admits.
    pub rule: Rule,
    /// Whether it is obeyed.
    pub mode: Mode,
    /// Whom it counts; empty means everybody together.
    pub key: Vec<KeyPart>,
    /// Which requests it counts; all of these must hold.
    pub when: Vec<Condition>,
    /// What happens to a request that has no such key.
    pub on_missing_key: MissingKey,
    /// How many keys; the library's default if not said.
    pub max_keys: Option<usize>,
    /// What happens when there is no room.
    pub overflow: Overflow,
    /// What a denied caller is given instead of a refusal (R3).
    pub fallback: Option<Fallback>,
    /// The Envoy descriptor that it counts.
    pub descriptor: Option<DescriptorConfig>,
    /// What happens when the store does not answer.
    pub on_error: OnError,
    /// How long a decision waits for the store; as long as the store says if not said.
    pub deadline: Option<Duration>,
}

/// Which Envoy descriptor a limit counts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DescriptorConfig {
    /// The domain.
    pub domain: String,
    /// Its entries, outermost first.
    pub entries: Vec<DescriptorPart>,
    /// Names of limits that do not count where this one does.
    pub replaces: Vec<String>,
}

/// What happens to a request without the key that a limit counts by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MissingKey {
    /// All of them share one key.
    #[default]
    Shared,
    /// It is not counted.
    Allow,
    /// It is refused.
    Deny,
}

/// What happens to requests that the store does not decide.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnError {
    /// This server's share of the limit decides.
    #[default]
    Local,
    /// They pass.
    Allow,
    /// They do not.
    Deny,
}

/// What a denied caller is given instead.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fallback {
    /// HTTP status.
    pub status: u16,
    /// What the body is.
    pub content_type: String,
    /// The body.
    pub body: String,
}

impl Fallback {
    /// The status under which a proxy can be given this as a denial. `None` if it is below 400: a proxy would let the
    /// request pass, or follow the redirect.
    pub fn denial_status(&self) -> Option<StatusCode> {
        let status = StatusCode::from_u16(self.status).ok();
        status.filter(|status| status.is_client_error() || status.is_server_error())
    }
}

/// Where the server listens unless told.
pub const RESP_ADDR: SocketAddr = loopback(6380);
/// The same for HTTP.
pub const HTTP_ADDR: SocketAddr = loopback(8080);
/// The same for gRPC.
pub const GRPC_ADDR: SocketAddr = loopback(8081);
/// The same for the operator.
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
            stay_awake: Duration::from_micros(50),
            throttle_max_keys: 16_777_216,
            rule_max_keys: 1_000_000,
            has_ad_hoc_rules: true,
        }
    }
}

impl Config {
    /// [`warnings`](Self::warnings), and certificates that have expired or expire soon.
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
    /// Whether nobody comes in by `[server.tls]` without a certificate of a known authority.
    pub fn needs_certificate(&self) -> bool {
        self.tls.as_ref().is_some_and(|tls| tls.client_ca.is_some())
    }

    /// The same of the admin's listener.
    pub fn admin_needs_certificate(&self) -> bool {
        self.admin_tls.as_ref().is_some_and(|tls| tls.client_ca.is_some())
    }
}

impl EscapedSlashes {
    /// Of a request that no proxy tells of: what both are.
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
    /// A limit that says no more than its name and rule.
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
    /// Returns the configuration of a store of which only the URL is given.
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
    /// A token that is this text.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// Returns the bytes of the secret.
    pub fn bytes(&self) -> &[u8] {
        self.0.as_bytes()
    }

    /// Whether it is the one that was offered; takes as long for a near miss as for a far one.
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
    #[expect(clippy::unnecessary_wraps, reason = "it is a check")]
    pub(crate) fn accept(_: &str) -> Result<(), String> {
        Ok(())
    }

    /// Reads a configuration without a check of the store's URL.
    pub(crate) fn read(text: &str, file: &str) -> Result<Config, ConfigErrors> {
        super::read(text, file, accept)
    }

    /// Reads `[server.tls]` with this certificate, and these lines besides.
    pub(crate) fn tls(files: &CertificateFiles, more: &str) -> TlsConfig {
        let text = format!("[server.tls]\n{}{more}\n", files.toml());
        read(&text, &files.path("t.toml").display().to_string()).unwrap().server.tls.unwrap()
    }
}
