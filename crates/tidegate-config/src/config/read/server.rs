//! `[server]` and the tables in it.

use super::files::{self, INVALID_TOKEN, NamedFile, TOKENS_MAX, is_token};
use super::report::Problem;
use super::table::Table;
use super::value::Value;
use crate::config::listener::{address_hint, conflict};
use crate::config::server::{
    Caps, EscapedSlashes, SNAPSHOT_EVERY, ServerConfig, SnapshotConfig, TlsConfig, Token,
};
use crate::request::EscapedSlash;
use crate::tls::{Credentials, Pem, TlsError};
use ipnet::IpNet;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::time::Duration;
use tidegate_http::ProxyHeader;

/// Maximum number of networks of trusted proxies.
const PROXIES_MAX: usize = 1_024;
/// Maximum number of host names.
const HOSTS_MAX: usize = 64;
/// Maximum number of keys of a key store.
pub(super) const KEYS_MAX: u64 = 1_000_000_000;

const PROXY_HEADERS: [(&str, ProxyHeader); 3] = [
    ("either", ProxyHeader::Either),
    ("x-forwarded-for", ProxyHeader::XForwardedFor),
    ("forwarded", ProxyHeader::Forwarded),
];

const ESCAPED_SLASHES: [(&str, EscapedSlash); 3] = [
    ("either", EscapedSlash::Either),
    ("decode", EscapedSlash::Decode),
    ("keep", EscapedSlash::Keep),
];

const MS: Duration = Duration::from_millis(1);
const HOUR: Duration = Duration::from_secs(3_600);
const DAY: Duration = Duration::from_secs(86_400);

pub(super) fn read(table: &Table<'_>, directory: &Path) -> ServerConfig {
    let default = ServerConfig::default();
    let (tokens, admin_token) = auth(table, directory);
    let config = ServerConfig {
        resp: listener(table, "resp", default.resp),
        http: listener(table, "http", default.http),
        grpc: listener(table, "grpc", default.grpc),
        admin: listener(table, "admin", default.admin),
        tls: tls(table, "tls", directory),
        admin_tls: tls(table, "admin_tls", directory),
        tokens,
        admin_token,
        is_insecure: flag(table, "insecure", default.is_insecure),
        hosts: hosts(table),
        trusted_proxies: proxies(table),
        proxy_header: table
            .get("proxy_header")
            .and_then(|value| value.choice(&PROXY_HEADERS))
            .unwrap_or(default.proxy_header),
        escaped_slash: escaped_slash(table),
        snapshot: snapshot(table, directory),
        is_watching: flag(table, "watch", default.is_watching),
        caps: caps(table),
        drain: table
            .get("drain")
            .and_then(|value| value.duration(Duration::ZERO..=HOUR))
            .unwrap_or(default.drain),
        throttle_max_keys: table
            .get("throttle_max_keys")
            .and_then(|value| value.size(1..=KEYS_MAX))
            .unwrap_or(default.throttle_max_keys),
        rule_max_keys: table
            .get("rule_max_keys")
            .and_then(|value| value.size(1..=KEYS_MAX))
            .unwrap_or(default.rule_max_keys),
        has_ad_hoc_rules: flag(table, "ad_hoc_rules", default.has_ad_hoc_rules),
    };
    refuse_shared_addresses(table, &config);
    warn_of_stay_awake(table);
    table.refuse_unknown();
    config
}

/// Warns about a setting of earlier versions. It is accepted, so that an update does not keep the server from starting.
fn warn_of_stay_awake(table: &Table<'_>) {
    if let Some(text) = table.get("stay_awake").and_then(|value| value.text()) {
        text.warn(Problem::new("`stay_awake` has no effect any more").hint("remove it"));
    }
}

fn flag(table: &Table<'_>, name: &'static str, default: bool) -> bool {
    table.get(name).and_then(|value| value.flag()).unwrap_or(default)
}

fn listener(
    table: &Table<'_>,
    name: &'static str,
    default: Option<SocketAddr>,
) -> Option<SocketAddr> {
    let Some(value) = table.get(name) else { return default };
    let text = value.text()?;
    if text.read == "off" {
        return None;
    }
    let address = text.read.parse().ok();
    if address.is_none() {
        let problem = Problem::new(format!("`{name}` must be an address and a port, or \"off\""));
        text.error(problem.maybe(default.map(|default| address_hint(text.read, default))));
    }
    address
}

fn refuse_shared_addresses(table: &Table<'_>, config: &ServerConfig) {
    let listeners = [
        ("resp", config.resp),
        ("http", config.http),
        ("grpc", config.grpc),
        ("admin", config.admin),
    ];
    for (index, (name, address)) in listeners.iter().enumerate() {
        let before = &listeners[..index];
        let conflicts =
            |other: &SocketAddr| address.is_some_and(|address| conflict(address, *other));
        let same = before.iter().find(|(_, other)| other.as_ref().is_some_and(conflicts));
        if let Some((other, _)) = same {
            let problem = Problem::new(format!("`{name}` and `{other}` have the same address"));
            let culprit = table.get(name).or_else(|| table.get(other));
            if let Some(value) = culprit {
                value.error(problem.hint("give one of them another port"));
            }
        }
    }
}

fn hosts(table: &Table<'_>) -> Vec<String> {
    let Some(value) = table.get("hosts") else { return Vec::new() };
    let is_name = |text: &str| {
        let is_letter =
            |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_');
        !text.is_empty() && text.bytes().all(is_letter)
    };
    let texts = value.texts(HOSTS_MAX);
    for text in texts.iter().filter(|text| !is_name(text.read)) {
        let problem = Problem::new("this is not a host name");
        text.error(
            problem.hint("write a name without scheme and port, such as \"tidegate.internal\""),
        );
    }
    texts.iter().map(|text| text.read.to_owned()).collect()
}

fn proxies(table: &Table<'_>) -> Vec<IpNet> {
    let Some(value) = table.get("trusted_proxies") else { return Vec::new() };
    value
        .texts(PROXIES_MAX)
        .iter()
        .filter_map(|text| network(text.read).map_err(|problem| text.error(problem)).ok())
        .collect()
}

/// Reads `escaped_slash`: one word for all proxies, or a table with a word for each header family.
fn escaped_slash(table: &Table<'_>) -> EscapedSlashes {
    let Some(value) = table.get("escaped_slash") else { return EscapedSlashes::default() };
    if !value.is_table() {
        let all = value.choice(&ESCAPED_SLASHES).unwrap_or_default();
        return EscapedSlashes { x_original: all, x_forwarded: all };
    }
    let Some(table) = value.table() else { return EscapedSlashes::default() };
    let of = |family| {
        table.get(family).and_then(|value| value.choice(&ESCAPED_SLASHES)).unwrap_or_default()
    };
    let read = EscapedSlashes { x_original: of("x-original"), x_forwarded: of("x-forwarded") };
    table.refuse_unknown();
    read
}

/// Parses a network such as `10.0.0.0/8`, or a single address.
pub(super) fn network(text: &str) -> Result<IpNet, Problem> {
    if let Ok(address) = text.parse::<IpAddr>() {
        return Ok(IpNet::from(address.to_canonical()));
    }
    let problem = || {
        Problem::new("this is not a network").hint("write, for example, \"10.0.0.0/8\" or \"::1\"")
    };
    let network: IpNet = text.parse().map_err(|_| problem())?;
    if network.addr() != network.network() {
        let meant = network.trunc();
        let problem = Problem::new("this network has bits set after its prefix");
        return Err(problem.hint(format!("did you mean \"{meant}\"?")));
    }
    Ok(network)
}

fn auth(table: &Table<'_>, directory: &Path) -> (Vec<Token>, Option<Token>) {
    let Some(auth) = table.get("auth").and_then(|value| value.table()) else {
        return (Vec::new(), None);
    };
    let auth = auth.secret();
    let mut tokens = Vec::new();
    if let Some(value) = auth.get("tokens") {
        tokens.extend(value.list(TOKENS_MAX).unwrap_or_default().iter().filter_map(token));
    }
    if let Some(value) = auth.get("tokens_file") {
        tokens.extend(files::tokens(&value, directory));
    }
    let admin_token = admin_token(&auth, directory);
    auth.refuse_unknown();
    (tokens, admin_token)
}

fn admin_token(auth: &Table<'_>, directory: &Path) -> Option<Token> {
    let in_place = auth.get("admin_token").map(|value| token(&value));
    let Some(file) = auth.get("admin_token_file") else { return in_place.flatten() };
    if in_place.is_some() {
        file.error(Problem::new("`admin_token` is set too").hint("remove one of them"));
    }
    let mut tokens = files::tokens(&file, directory);
    if tokens.len() > 1 {
        file.error(Problem::new("the file must contain one token only"));
    }
    tokens.pop()
}

fn token(value: &Value<'_>) -> Option<Token> {
    let text = value.text()?;
    if text.read.trim().is_empty() {
        text.error(Problem::new("a token must not be empty"));
        return None;
    }
    if !is_token(text.read) {
        text.error(Problem::new(format!("this is not a valid token: {INVALID_TOKEN}")));
        return None;
    }
    Some(Token::new(text.read))
}

fn tls<'a>(table: &Table<'a>, name: &'static str, directory: &Path) -> Option<TlsConfig> {
    let tls = table.get(name)?.table()?;
    let cert = tls.need("cert", "name the PEM file of the certificate chain");
    let key = tls.need("key", "name the PEM file of the certificate's key");
    let client_ca = tls.get("client_ca");
    tls.refuse_unknown();
    let read = |value: Value<'a>| NamedFile::read(&value, directory);
    // All files are read before the first missing one ends the function, so that all errors are reported.
    let (cert, key, client_ca) = (cert.map(read), key.map(read), client_ca.map(read));
    let (cert, key, client_ca) = (cert??, key??, client_ca.map_or(Some(None), |it| it.map(Some))?);
    let pem = Pem {
        certificates: &cert.contents,
        key: &key.contents,
        client_authorities: client_ca.as_ref().map(|file| &*file.contents),
    };
    key.warn_if_open();
    let credentials = Credentials::new(pem).map_err(|error| {
        let problem = match error {
            TlsError::Certificate(_) => &cert,
            TlsError::Key(_) | TlsError::Mismatch(_) => &key,
            TlsError::ClientAuthority(_) => client_ca.as_ref().unwrap_or(&cert),
        };
        problem.error(&error.to_string());
    });
    let client_ca = client_ca.map(|file| file.path);
    Some(TlsConfig { cert: cert.path, key: key.path, client_ca, credentials: credentials.ok()? })
}

fn snapshot(table: &Table<'_>, directory: &Path) -> Option<SnapshotConfig> {
    let snapshot = table.get("snapshot")?.table()?;
    let path = snapshot.need("path", "name the file, such as \"state.snapshot\"");
    let every = snapshot.get("every").and_then(|value| value.duration(100 * MS..=DAY));
    snapshot.refuse_unknown();
    let path = files::writable(&path?, directory)?;
    Some(SnapshotConfig { path, every: every.unwrap_or(SNAPSHOT_EVERY) })
}

fn caps(table: &Table<'_>) -> Caps {
    let default = Caps::default();
    let Some(caps) = table.get("caps").and_then(|value| value.table()) else { return default };
    let size = |name, most| caps.get(name).and_then(|value| value.size(1..=most));
    let time = |name| caps.get(name).and_then(|value| value.duration(10 * MS..=DAY));
    let read = Caps {
        connections_max: size("connections", 1_000_000).unwrap_or(default.connections_max),
        waiting_max: size("waiting", 1_000_000).unwrap_or(default.waiting_max),
        output_bytes_max: size("output_bytes", 1 << 30).unwrap_or(default.output_bytes_max),
        first_byte: time("first_byte").unwrap_or(default.first_byte),
        request: time("request").unwrap_or(default.request),
        idle: time("idle").unwrap_or(default.idle),
        unauthenticated: time("unauthenticated").unwrap_or(default.unauthenticated),
        connections_per_address: size("connections_per_address", 1_000_000),
    };
    caps.refuse_unknown();
    read
}
