//! Where the load goes, and over which wire.

use std::fmt;
use std::net::{SocketAddr, ToSocketAddrs};
use std::str::FromStr;

use anyhow::Context;

/// A server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Target {
    pub(super) wire: Wire,
    /// `host:port`, as it was written.
    pub(super) authority: String,
    /// Of HTTP; `/v1/check` unless told.
    pub(super) path: String,
}

/// What is spoken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wire {
    Resp,
    Http,
    Grpc,
}

const CHECK: &str = "/v1/check";

impl Target {
    /// The first address that the name has.
    pub(super) fn address(&self) -> anyhow::Result<SocketAddr> {
        let authority = &self.authority;
        let mut found = authority
            .to_socket_addrs()
            .with_context(|| format!("`{authority}` is no HOST:PORT that can be found"))?;
        found.next().with_context(|| format!("`{authority}` has no address"))
    }
}

impl FromStr for Target {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (scheme, rest) = text.split_once("://").unwrap_or(("resp", text));
        let wire = match scheme {
            "resp" | "redis" => Wire::Resp,
            "http" => Wire::Http,
            "grpc" => Wire::Grpc,
            "https" | "rediss" | "resps" | "grpcs" => {
                return Err("bench does not speak TLS; use a listener without it".to_owned());
            }
            _ => return Err(format!("`{scheme}` is none of resp, http and grpc")),
        };
        let (authority, path) = match rest.find('/') {
            Some(slash) => rest.split_at(slash),
            None => (rest, ""),
        };
        let is_plain = |text: &str| text.bytes().all(|byte| byte.is_ascii_graphic());
        let port = authority.rsplit_once(':').map(|(host, port)| (host, port.parse::<u16>()));
        if !matches!(port, Some((host, Ok(1..))) if !host.is_empty()) || !is_plain(rest) {
            return Err("write HOST:PORT".to_owned());
        }
        let path = match path {
            "" | "/" => CHECK,
            path if wire == Wire::Http => path,
            _ => return Err("only HTTP has a path".to_owned()),
        };
        Ok(Self { wire, authority: authority.to_owned(), path: path.to_owned() })
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.wire {
            Wire::Resp => write!(f, "resp://{}", self.authority),
            Wire::Http => write!(f, "http://{}{}", self.authority, self.path),
            Wire::Grpc => write!(f, "grpc://{}", self.authority),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_alone_is_resp() {
        for text in ["localhost:6380", "resp://localhost:6380", "redis://localhost:6380/"] {
            let target: Target = text.parse().unwrap();
            assert_eq!(
                (target.wire, target.to_string().as_str()),
                (Wire::Resp, "resp://localhost:6380")
            );
        }
    }

    #[test]
    fn http_has_a_path() {
        let target: Target = "http://[::1]:8080".parse().unwrap();
        assert_eq!(target.to_string(), "http://[::1]:8080/v1/check");
        let target: Target = "http://a:80/x?y=1".parse().unwrap();
        assert_eq!((target.authority.as_str(), target.path.as_str()), ("a:80", "/x?y=1"));
        assert_eq!("grpc://a:1".parse::<Target>().unwrap().wire, Wire::Grpc);
    }

    #[test]
    fn what_is_no_target_is_refused() {
        let bad =
            ["", "localhost", "a:0", "a:x", ":80", "ftp://a:1", "https://a:1", "grpc://a:1/x"];
        for text in bad.into_iter().chain(["http://a:1/x y", "http://a:1/\r\nx", "a:1/x"]) {
            assert!(text.parse::<Target>().is_err(), "{text}");
        }
    }
}
