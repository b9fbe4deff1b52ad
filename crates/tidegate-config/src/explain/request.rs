//! The description of a request that a user wants explained.
//!
//! Always   Every request of a client can be described, also one with a repeated header: such a header has no value as a key,
//!          and conditions compare each of its values.

use super::descriptor::Entry;
use crate::config::ServerConfig;
use crate::matching::{
    DESCRIPTORS_MAX, ENTRIES_MAX, ForwardingHeaders, Path, Request, client_ip, without_port,
};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::net::IpAddr;
use tidegate_http::{ProxyHeader, is_trusted};

/// A request as a user describes it on the command line, or in the body of `POST /v1/explain`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct RequestDescription {
    /// The method, in capitals.
    pub method: String,
    /// The path, with its query.
    pub path: String,
    /// The address that connects: a client's, or a proxy's.
    pub ip: Option<IpAddr>,
    /// The headers, by their names in lower case.
    pub headers: BTreeMap<String, HeaderValues>,
    /// The cost of the request.
    pub cost: u64,
    /// The domain of a request of Envoy's. Such a request has descriptors and a cost, and nothing else.
    pub domain: Option<String>,
    /// The descriptors of a request of Envoy's, each a list of entries such as `user=ann`, outermost first.
    pub descriptors: Vec<Vec<String>>,
}

/// The values of a header. In JSON, a text, or an array if the header is repeated.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(from = "OneOrSeveral", into = "OneOrSeveral")]
pub struct HeaderValues(pub Vec<String>);

#[derive(Deserialize, Serialize)]
#[serde(untagged, expecting = "a header must be a text, or an array of texts if it is repeated")]
enum OneOrSeveral {
    One(String),
    Several(Vec<String>),
}

impl From<OneOrSeveral> for HeaderValues {
    fn from(values: OneOrSeveral) -> Self {
        match values {
            OneOrSeveral::One(value) => Self(vec![value]),
            OneOrSeveral::Several(values) => Self(values),
        }
    }
}

impl From<HeaderValues> for OneOrSeveral {
    fn from(HeaderValues(mut values): HeaderValues) -> Self {
        match (values.len(), values.pop()) {
            (1, Some(value)) => Self::One(value),
            (_, last) => Self::Several(values.into_iter().chain(last).collect()),
        }
    }
}

impl Default for RequestDescription {
    fn default() -> Self {
        Self {
            method: "GET".to_owned(),
            path: "/".to_owned(),
            ip: None,
            headers: BTreeMap::new(),
            cost: 1,
            domain: None,
            descriptors: Vec::new(),
        }
    }
}

impl RequestDescription {
    /// Returns what is wrong with the description, if anything is.
    pub fn wrong(&self) -> Option<String> {
        if self.domain.is_some() || !self.descriptors.is_empty() {
            return self.wrong_of_envoy().map(str::to_owned);
        }
        let is_capital = |byte: u8| byte.is_ascii_uppercase() || byte == b'-';
        let is_small = |byte: u8| byte.is_ascii_graphic() && !byte.is_ascii_uppercase();
        if self.method.is_empty() || !self.method.bytes().all(is_capital) {
            return Some(format!(
                "`{}` is not a method: write it in capitals, such as GET",
                self.method
            ));
        }
        if !self.path.starts_with('/') {
            return Some(format!("`{}` is not a path: it must start with `/`", self.path));
        }
        let odd = self.headers.keys().find(|name| name.is_empty() || !name.bytes().all(is_small));
        odd.map(|name| format!("`{name}` is not a header name: write it in lower case"))
    }

    fn wrong_of_envoy(&self) -> Option<&'static str> {
        let Some(domain) = &self.domain else {
            return Some("`descriptors` need a `domain`");
        };
        let http = Self { domain: None, descriptors: Vec::new(), cost: 1, ..self.clone() };
        let entries = self.descriptors.iter().flatten();
        let are_too_long = |entries: &Vec<String>| entries.len() > ENTRIES_MAX;
        if http != Self::default() {
            Some(
                "a request of Envoy's has a domain and descriptors, but no method, path, address or headers",
            )
        } else if domain.is_empty() || self.descriptors.iter().any(Vec::is_empty) {
            Some("a domain must not be empty, and a descriptor needs at least one entry")
        } else if self.descriptors.is_empty() {
            Some("`domain` needs `descriptors`")
        } else if self.descriptors.len() > DESCRIPTORS_MAX
            || self.descriptors.iter().any(are_too_long)
        {
            Some("a request has at most 64 descriptors, and a descriptor at most 16 entries")
        } else if entries.map(|entry| entry.split_once('=')).any(|entry| entry.is_none()) {
            Some("an entry of a descriptor is a key and a value, such as `user=ann`")
        } else {
            None
        }
    }

    /// Returns the descriptors as keys and values. The description must be [valid](Self::wrong).
    pub fn entries(&self) -> Vec<Vec<Entry>> {
        let entry = |text: &String| {
            let (key, value) = text.split_once('=').unwrap_or((text, ""));
            (key.to_owned(), value.to_owned())
        };
        self.descriptors.iter().map(|entries| entries.iter().map(entry).collect()).collect()
    }

    /// Returns the request as limits see it.
    pub fn request(&self, server: &ServerConfig) -> Request<'_> {
        let (path, query) = match self.path.split_once('?') {
            Some((path, query)) => (path, Some(query)),
            None => (&*self.path, None),
        };
        let (x_forwarded_for, forwarded) =
            (self.values("x-forwarded-for"), self.values("forwarded"));
        let forwarding =
            ForwardingHeaders { x_forwarded_for: &x_forwarded_for, forwarded: &forwarded };
        let trusted = server.proxy_header.select(forwarding);
        let headers = self.headers.iter().flat_map(|(name, HeaderValues(values))| {
            values.iter().map(|value| (&name[..], value.as_bytes()))
        });
        Request {
            ip: self.ip.map(|ip| client_ip(ip, trusted, &server.trusted_proxies)),
            method: Some(&self.method),
            host: self.first("host").map(without_port),
            path: Some(Path::new(path, server.escaped_slash.common())),
            query,
            headers: headers.collect(),
        }
    }

    fn values(&self, name: &str) -> Vec<&[u8]> {
        let values = self.headers.get(name).map(|HeaderValues(values)| values.as_slice());
        values.unwrap_or_default().iter().map(String::as_bytes).collect()
    }

    fn first(&self, name: &str) -> Option<&str> {
        self.headers.get(name).and_then(|HeaderValues(values)| values.first()).map(String::as_str)
    }
}

/// Returns a hint if the request seems to come from a proxy that is not configured as trusted, or through a header that
/// `proxy_header` excludes.
pub fn proxy_hint(
    peer: Option<IpAddr>,
    request: &Request<'_>,
    server: &ServerConfig,
) -> Option<String> {
    let peer = peer?.to_canonical();
    let has = |name: &str| request.headers.iter().any(|(header, _)| *header == name);
    let (x_forwarded_for, forwarded) = (has("x-forwarded-for"), has("forwarded"));
    let name = if x_forwarded_for { "x-forwarded-for" } else { "forwarded" };
    if !x_forwarded_for && !forwarded {
        return None;
    }
    if !is_trusted(peer, &server.trusted_proxies) {
        return Some(format!(
            "`{name}` is ignored because {peer} is not a trusted proxy: if it is your proxy, add it to \
             `trusted_proxies`"
        ));
    }
    let is_read = match server.proxy_header {
        ProxyHeader::XForwardedFor => x_forwarded_for,
        ProxyHeader::Forwarded => forwarded,
        _ => true,
    };
    (!is_read).then(|| {
        format!("`{name}` is ignored because `proxy_header` names another header: if {peer} sets `{name}`, write it there")
    })
}
