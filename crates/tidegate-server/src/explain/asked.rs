//! A request that somebody describes, to hear what would become of it.

use crate::matching::{Forwarding, Request, client_ip};
use ipnet::IpNet;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::net::IpAddr;

/// A request as it is told: on the command line, or in the body of `POST /v1/explain`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct Asked {
    /// In capitals.
    pub method: String,
    /// With its query.
    pub path: String,
    /// Who connects: a trusted proxy is believed about for whom.
    pub ip: Option<IpAddr>,
    /// Names in small letters.
    pub headers: BTreeMap<String, String>,
    /// What it costs.
    pub cost: u64,
}

impl Default for Asked {
    fn default() -> Self {
        let headers = BTreeMap::new();
        Self { method: "GET".to_owned(), path: "/".to_owned(), ip: None, headers, cost: 1 }
    }
}

impl Asked {
    /// What is wrong with it, if anything is.
    pub fn wrong(&self) -> Option<String> {
        let is_capital = |byte: u8| byte.is_ascii_uppercase() || byte == b'-';
        let is_small = |byte: u8| byte.is_ascii_graphic() && !byte.is_ascii_uppercase();
        if self.method.is_empty() || !self.method.bytes().all(is_capital) {
            return Some(format!("`{}` is not a method: methods are like GET", self.method));
        }
        if !self.path.starts_with('/') {
            return Some(format!("`{}` is not a path: paths begin with `/`", self.path));
        }
        let odd = self.headers.keys().find(|name| name.is_empty() || !name.bytes().all(is_small));
        odd.map(|name| format!("`{name}` is not a header: write its name in small letters"))
    }

    /// The request as limits see it.
    pub fn request(&self, trusted_proxies: &[IpNet]) -> Request<'_> {
        let (path, query) = match self.path.split_once('?') {
            Some((path, query)) => (path, Some(query)),
            None => (&*self.path, None),
        };
        let bytes = |name: &str| self.headers.get(name).map(String::as_bytes);
        let (x_forwarded_for, forwarded) = (bytes("x-forwarded-for"), bytes("forwarded"));
        let forwarding = Forwarding {
            x_forwarded_for: x_forwarded_for.as_slice(),
            forwarded: forwarded.as_slice(),
        };
        let headers = self.headers.iter().map(|(name, value)| (&name[..], value.as_bytes()));
        Request {
            ip: self.ip.map(|ip| client_ip(ip, forwarding, trusted_proxies)),
            method: Some(&self.method),
            host: self.headers.get("host").map(|host| crate::http::without_port(host)),
            path: Some(path),
            query,
            headers: headers.collect(),
        }
    }
}

/// What to do where a proxy seems to be at work that nobody has named.
pub fn hint(
    peer: Option<IpAddr>,
    request: &Request<'_>,
    trusted_proxies: &[IpNet],
) -> Option<String> {
    const TOLD: [&str; 2] = ["x-forwarded-for", "forwarded"];
    let peer = peer?.to_canonical();
    let (name, _) = request.headers.iter().find(|(name, _)| TOLD.contains(name))?;
    let is_trusted = trusted_proxies.iter().any(|net| net.contains(&peer));
    (!is_trusted).then(|| {
        format!(
            "`{name}` is not believed, since {peer} is no trusted proxy: if it is one of yours, add it to \
             `trusted_proxies`"
        )
    })
}
