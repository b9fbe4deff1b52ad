//! The server to send load to, and the protocol.

use std::fmt;
use std::net::{SocketAddr, ToSocketAddrs};
use std::str::FromStr;

use anyhow::{Context, anyhow};

/// A server, as the command line names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Target {
    pub(super) wire: Wire,
    pub(super) has_tls: bool,
    /// `host:port`, as it was written.
    pub(super) authority: String,
    /// Of HTTP; default: `/v1/check`.
    pub(super) path: String,
}

/// The protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wire {
    Resp,
    Http,
    Grpc,
}

/// Scheme, protocol, and whether it uses TLS. Of schemes with the same meaning, the last one is printed.
const SCHEMES: [(&str, Wire, bool); 8] = [
    ("redis", Wire::Resp, false),
    ("resp", Wire::Resp, false),
    ("http", Wire::Http, false),
    ("grpc", Wire::Grpc, false),
    ("resps", Wire::Resp, true),
    ("rediss", Wire::Resp, true),
    ("https", Wire::Http, true),
    ("grpcs", Wire::Grpc, true),
];

const CHECK: &str = "/v1/check";

impl Target {
    /// Parses a target; the error quotes it without user and password.
    pub(super) fn read(text: &str) -> anyhow::Result<Self> {
        text.parse().map_err(|why: String| anyhow!("invalid target {}: {why}", redacted(text)))
    }

    /// Returns the host without port and brackets.
    pub(super) fn host(&self) -> &str {
        let host = self.authority.rsplit_once(':').map_or(&*self.authority, |(host, _)| host);
        host.trim_matches(['[', ']'])
    }

    /// Resolves the host and returns its first address.
    pub(super) fn address(&self) -> anyhow::Result<SocketAddr> {
        let authority = &self.authority;
        let mut found =
            authority.to_socket_addrs().with_context(|| format!("cannot resolve `{authority}`"))?;
        found.next().with_context(|| format!("`{authority}` has no address"))
    }
}

/// Quotes a target without user and password.
fn redacted(text: &str) -> String {
    match (text.split_once("://"), text.rsplit_once('@')) {
        (_, None) => format!("`{text}`"),
        (Some((scheme, _)), Some((_, rest))) if !scheme.contains('@') => {
            format!("`{scheme}://…@{rest}`")
        }
        (_, Some((_, rest))) => format!("`…@{rest}`"),
    }
}

impl FromStr for Target {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (scheme, rest) = text.split_once("://").unwrap_or(("resp", text));
        let known = SCHEMES.iter().find(|(known, ..)| *known == scheme);
        let Some((_, wire, has_tls)) = known.copied() else {
            return Err(format!(
                "unknown scheme `{scheme}`; use resp, http or grpc, or with TLS rediss, https or grpcs"
            ));
        };
        let (authority, path) = match rest.find('/') {
            Some(slash) => rest.split_at(slash),
            None => (rest, ""),
        };
        if authority.contains('@') {
            return Err(
                "it contains a user or password; pass the server's token with --token".to_owned()
            );
        }
        let is_plain = |text: &str| text.bytes().all(|byte| byte.is_ascii_graphic());
        let port = authority.rsplit_once(':').map(|(host, port)| (host, port.parse::<u16>()));
        if !matches!(port, Some((host, Ok(1..))) if !host.is_empty()) || !is_plain(rest) {
            return Err("write it as HOST:PORT".to_owned());
        }
        let path = match path {
            "" | "/" => CHECK,
            path if wire == Wire::Http => path,
            _ => return Err("only an HTTP target has a path".to_owned()),
        };
        Ok(Self { wire, has_tls, authority: authority.to_owned(), path: path.to_owned() })
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let is_ours =
            |(_, wire, has_tls): &&(_, _, _)| (*wire, *has_tls) == (self.wire, self.has_tls);
        let scheme = SCHEMES.iter().rfind(is_ours).map_or("", |(scheme, ..)| scheme);
        let path = if self.wire == Wire::Http { &*self.path } else { "" };
        write!(f, "{scheme}://{}{path}", self.authority)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_scheme_is_resp() {
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
    fn the_scheme_selects_tls() {
        for text in ["https://a:1/v1/check", "rediss://a:1", "grpcs://[::1]:1"] {
            let target: Target = text.parse().unwrap();
            assert!(target.has_tls);
            assert_eq!(target.to_string(), text);
        }
        assert_eq!("resps://a:1".parse::<Target>().unwrap().wire, Wire::Resp);
        assert_eq!("grpcs://[::1]:1".parse::<Target>().unwrap().host(), "::1");
        assert!(!"http://a:1".parse::<Target>().unwrap().has_tls);
    }

    #[test]
    fn no_error_repeats_a_password() {
        for text in ["redis://u:PW@a:6379", "u:PW@a:6379", "redis://u:PW@a", "grpc://u:P@PW@a:1/x"]
        {
            let error = Target::read(text).unwrap_err().to_string();
            assert!(!error.contains("PW") && error.contains("…@a"), "{error}");
        }
        for text in ["redis://u:P/W@a:1", "ftp://u:PW@a"] {
            let error = Target::read(text).unwrap_err().to_string();
            assert!(!error.contains("W@") && error.contains("…@a"), "{error}");
        }
    }

    #[test]
    fn invalid_targets_are_errors() {
        let bad = ["", "localhost", "a:0", "a:x", ":80", "ftp://a:1", "https://a", "grpc://a:1/x"];
        for text in bad.into_iter().chain(["http://a:1/x y", "http://a:1/\r\nx", "a:1/x"]) {
            assert!(text.parse::<Target>().is_err(), "{text}");
        }
    }
}
