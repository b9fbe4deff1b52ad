//! The four listeners: their protocols and their addresses.

use std::fmt;
use std::net::SocketAddr;

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

/// The protocol that a listener speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// RESP, the protocol of Redis.
    Resp,
    /// HTTP/1.
    Http,
    /// gRPC, over HTTP/2.
    Grpc,
    /// The admin API and the dashboard, over HTTP/1.
    Admin,
}

impl Protocol {
    /// Returns its name in the configuration and in metrics.
    pub fn label(self) -> &'static str {
        match self {
            Self::Resp => "resp",
            Self::Http => "http",
            Self::Grpc => "grpc",
            Self::Admin => "admin",
        }
    }
}

impl fmt::Display for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Resp => "RESP",
            Self::Http => "HTTP",
            Self::Grpc => "gRPC",
            Self::Admin => "admin",
        })
    }
}

/// The address of a listener, or `off`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ListenAddr {
    /// The listener is not started.
    Off,
    /// The listener is bound to this address.
    At(SocketAddr),
}

impl ListenAddr {
    /// Parses an address and a port, or `off`. `default` is the listener's default address.
    ///
    /// # Errors
    ///
    /// If the text is neither. The error says what to write, with `default` as the example.
    pub fn read(text: &str, default: SocketAddr) -> Result<Self, String> {
        if text == "off" {
            return Ok(Self::Off);
        }
        let error =
            |_| format!("this is not an address and a port: {}", address_hint(text, default));
        text.parse().map(Self::At).map_err(error)
    }
}

/// Returns what to write instead of a text that is not an address.
pub(super) fn address_hint(text: &str, default: SocketAddr) -> String {
    let (host, port) = text.rsplit_once(':').unwrap_or(("", text));
    match port.parse::<u16>() {
        Ok(port) if host == "*" => {
            format!("write \"0.0.0.0:{port}\" or \"[::]:{port}\" for all interfaces")
        }
        Ok(port) if host.is_empty() || host == "localhost" => format!("write \"127.0.0.1:{port}\""),
        Ok(_) => format!("names are not resolved: write an IP address, such as \"{default}\""),
        Err(_) => format!("write, for example, \"{default}\", or \"off\""),
    }
}

/// Returns whether two sockets cannot be bound to these addresses at the same time. Port 0 stands for any free port.
pub(super) fn conflict(one: SocketAddr, other: SocketAddr) -> bool {
    let covers = |all: SocketAddr, one: SocketAddr| {
        all.ip().is_unspecified() && (all.is_ipv6() || one.is_ipv4())
    };
    let is_same = one.ip() == other.ip() || covers(one, other) || covers(other, one);
    one.port() != 0 && one.port() == other.port() && is_same
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_conflict_if_the_system_would_not_bind_both() {
        for (one, other, expected) in [
            ("127.0.0.1:1", "127.0.0.1:1", true),
            ("127.0.0.1:1", "127.0.0.1:2", false),
            ("127.0.0.1:0", "127.0.0.1:0", false),
            ("0.0.0.0:1", "127.0.0.1:1", true),
            ("[::]:1", "127.0.0.1:1", true),
            ("[::]:1", "0.0.0.0:1", true),
            ("0.0.0.0:1", "[::1]:1", false),
            ("127.0.0.1:1", "127.0.0.2:1", false),
        ] {
            let parsed = |text: &str| text.parse().unwrap();
            assert_eq!(conflict(parsed(one), parsed(other)), expected, "{one} {other}");
            assert_eq!(conflict(parsed(other), parsed(one)), expected, "{other} {one}");
        }
    }
}
