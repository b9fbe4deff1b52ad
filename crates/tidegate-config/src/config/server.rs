//! `[server]` and the tables in it: what they contain, and the defaults.

use super::listener::{ADMIN_ADDR, GRPC_ADDR, HTTP_ADDR, RESP_ADDR};
use crate::request::EscapedSlash;
use crate::tls::Credentials;
use ipnet::IpNet;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;
use tidegate_http::ProxyHeader;

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

/// Default interval between snapshots.
pub(super) const SNAPSHOT_EVERY: Duration = Duration::from_secs(10);

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
