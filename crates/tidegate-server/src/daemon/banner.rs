//! The banner at the start: the addresses of the listeners, and a command to try for each.

use crate::config::{ServerConfig, TlsConfig};
use crate::net::{Addresses, Running};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

pub(super) fn text(running: &Running) -> String {
    let addresses = &running.addresses;
    let mut lines = vec![format!("tidegate {} listens on", env!("CARGO_PKG_VERSION"))];
    let shown = |addr: Option<SocketAddr>| addr.map_or("off".to_owned(), |addr| addr.to_string());
    for (name, addr) in [
        ("RESP ", addresses.resp),
        ("HTTP ", addresses.http),
        ("gRPC ", addresses.grpc),
        ("admin", addresses.admin),
    ] {
        lines.push(format!("  {name}  {}", shown(addr)));
    }
    lines.push("try".to_owned());
    let commands = example_commands(addresses, &running.server.config().server);
    lines.extend(commands.iter().map(|command| format!("  {command}")));
    lines.push(String::new());
    lines.join("\n")
}

/// Returns a command for each listener that people use, with the token and the certificates that this server needs.
fn example_commands(addresses: &Addresses, config: &ServerConfig) -> Vec<String> {
    let wants_token = !config.tokens.is_empty();
    let scheme = |tls: &Option<TlsConfig>| if tls.is_some() { "https" } else { "http" };
    let resp = addresses.resp.map(connectable).map(|resp| {
        let token = if wants_token { "REDISCLI_AUTH=TOKEN " } else { "" };
        let host = match resp.ip().to_string() {
            host if host == "127.0.0.1" => String::new(),
            host => format!("-h {host} "),
        };
        let tls = tls_options(config.tls.as_ref(), "--tls ");
        format!("{token}redis-cli {host}-p {} {tls}CL.THROTTLE user:1 15 30 60", resp.port())
    });
    let http = addresses.http.map(connectable).map(|http| {
        let token = if wants_token { "-H 'authorization: Bearer TOKEN' " } else { "" };
        let (scheme, tls) = (scheme(&config.tls), tls_options(config.tls.as_ref(), ""));
        format!(
            "curl -s {tls}{scheme}://{http}/v1/check {token}-H 'content-type: application/json' \
             -d '{{\"rule\": \"5/min\", \"key\": \"user:1\"}}'"
        )
    });
    let admin = addresses.admin.map(connectable);
    let admin =
        admin.map(|admin| format!("open {}://{admin}/ in a browser", scheme(&config.admin_tls)));
    [resp, http, admin].into_iter().flatten().collect()
}

/// Returns an address that a client can connect to: the loopback address for a listener on all addresses.
fn connectable(addr: SocketAddr) -> SocketAddr {
    let ip = match addr.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    SocketAddr::new(ip, addr.port())
}

/// Returns the options for TLS, which `redis-cli` and `curl` share.
fn tls_options(tls: Option<&TlsConfig>, before: &str) -> String {
    match tls {
        None => String::new(),
        Some(tls) if tls.client_ca.is_none() => format!("{before}--cacert CA.pem "),
        Some(_) => format!("{before}--cacert CA.pem --cert CLIENT.pem --key CLIENT.key "),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Token;
    use crate::tls::tests::Files;

    fn at(addr: &str) -> Addresses {
        let addr = Some(addr.parse().unwrap());
        Addresses { resp: addr, http: addr, grpc: None, admin: addr }
    }

    #[test]
    fn the_example_commands_fit_the_configuration() {
        let files = Files::new();
        let plain = example_commands(&at("127.0.0.1:7"), &ServerConfig::default());
        assert_eq!(plain[0], "redis-cli -p 7 CL.THROTTLE user:1 15 30 60");
        assert!(
            plain[1].starts_with("curl -s http://127.0.0.1:7/v1/check -H 'content-type"),
            "{plain:?}"
        );
        assert_eq!(plain[2], "open http://127.0.0.1:7/ in a browser");

        let mut config =
            ServerConfig { tokens: vec![Token::new("s3cret")], ..ServerConfig::default() };
        config.tls = Some(files.config());
        config.admin_tls = Some(files.config());
        let guarded = example_commands(&at("192.0.2.1:7"), &config);
        let redis_cli =
            "REDISCLI_AUTH=TOKEN redis-cli -h 192.0.2.1 -p 7 --tls --cacert CA.pem CL.THROTTLE ";
        assert!(guarded[0].starts_with(redis_cli), "{guarded:?}");
        let curl = "curl -s --cacert CA.pem https://192.0.2.1:7/v1/check -H 'authorization: Bearer TOKEN' -H ";
        assert!(guarded[1].starts_with(curl), "{guarded:?}");
        assert_eq!(guarded[2], "open https://192.0.2.1:7/ in a browser");
        assert!(!guarded.concat().contains("s3cret"));

        let everywhere = example_commands(&at("[::]:7"), &ServerConfig::default());
        assert!(
            everywhere[0].contains("-h ::1 -p 7") && everywhere[1].contains("http://[::1]:7/"),
            "{everywhere:?}"
        );
    }
}
