//! A request that somebody describes, to hear what would become of it.
//!
//! Always   What can come over a wire can be said here, a header that comes twice too: that is no key, and conditions look at
//!          each of its values.

use super::Entry;
use crate::config::ServerConfig;
use crate::matching::{
    DESCRIPTORS_MAX, ENTRIES_MAX, ForwardingHeaders, Path, Request, client_ip, without_port,
};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::net::IpAddr;
use tidegate_http::{ProxyHeader, is_trusted};

/// A request as it is told: on the command line, or in the body of `POST /v1/explain`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct RequestDescription {
    /// In capitals.
    pub method: String,
    /// With its query.
    pub path: String,
    /// Who connects: a trusted proxy is believed about for whom.
    pub ip: Option<IpAddr>,
    /// Names in small letters.
    pub headers: BTreeMap<String, HeaderValues>,
    /// What it costs.
    pub cost: u64,
    /// Of a request that Envoy would ask about: its domain. Then there is nothing else but descriptors and the cost.
    pub domain: Option<String>,
    /// Its descriptors, each of entries such as `user=ann`, outermost first.
    pub descriptors: Vec<Vec<String>>,
}

/// What a header says, each time that it comes. In JSON a text, or several in an array.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(from = "OneOrSeveral", into = "OneOrSeveral")]
pub struct HeaderValues(pub Vec<String>);

#[derive(Deserialize, Serialize)]
#[serde(
    untagged,
    expecting = "a header is a text, or an array of texts where it comes several times"
)]
enum OneOrSeveral {
    One(String),
    Several(Vec<String>),
}

impl From<OneOrSeveral> for HeaderValues {
    fn from(said: OneOrSeveral) -> Self {
        match said {
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
    /// What is wrong with it, if anything is.
    pub fn wrong(&self) -> Option<String> {
        if self.domain.is_some() || !self.descriptors.is_empty() {
            return self.wrong_of_envoy().map(str::to_owned);
        }
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

    fn wrong_of_envoy(&self) -> Option<&'static str> {
        let Some(domain) = &self.domain else {
            return Some("descriptors are of a domain: say `domain` too");
        };
        let http = Self { domain: None, descriptors: Vec::new(), cost: 1, ..self.clone() };
        let entries = self.descriptors.iter().flatten();
        let are_too_long = |entries: &Vec<String>| entries.len() > ENTRIES_MAX;
        if http != Self::default() {
            Some("what Envoy asks about has a domain and descriptors, and neither path nor headers")
        } else if domain.is_empty() || self.descriptors.iter().any(Vec::is_empty) {
            Some("a domain has a name, and a descriptor at least one entry")
        } else if self.descriptors.is_empty() {
            Some("a domain alone asks about nothing: say `descriptors` too")
        } else if self.descriptors.len() > DESCRIPTORS_MAX
            || self.descriptors.iter().any(are_too_long)
        {
            Some("there are at most 64 descriptors, of at most 16 entries")
        } else if entries.map(|entry| entry.split_once('=')).any(|entry| entry.is_none()) {
            Some("an entry of a descriptor is a key and a value: `user=ann`")
        } else {
            None
        }
    }

    /// Returns the descriptors as keys and values. They are [not wrong](Self::wrong).
    pub fn entries(&self) -> Vec<Vec<Entry>> {
        let entry = |text: &String| {
            let (key, value) = text.split_once('=').unwrap_or((text, ""));
            (key.to_owned(), value.to_owned())
        };
        self.descriptors.iter().map(|entries| entries.iter().map(entry).collect()).collect()
    }

    /// The request as limits see it.
    pub fn request(&self, server: &ServerConfig) -> Request<'_> {
        let (path, query) = match self.path.split_once('?') {
            Some((path, query)) => (path, Some(query)),
            None => (&*self.path, None),
        };
        let (x_forwarded_for, forwarded) =
            (self.values("x-forwarded-for"), self.values("forwarded"));
        let forwarding =
            ForwardingHeaders { x_forwarded_for: &x_forwarded_for, forwarded: &forwarded };
        let believed = server.proxy_header.select(forwarding);
        let headers = self.headers.iter().flat_map(|(name, HeaderValues(values))| {
            values.iter().map(|value| (&name[..], value.as_bytes()))
        });
        Request {
            ip: self.ip.map(|ip| client_ip(ip, believed, &server.trusted_proxies)),
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

/// What to do where a proxy seems to be at work that nobody has named, or by a header that nobody looks at.
pub fn proxy_hint(
    peer: Option<IpAddr>,
    request: &Request<'_>,
    server: &ServerConfig,
) -> Option<String> {
    let peer = peer?.to_canonical();
    let came = |name: &str| request.headers.iter().any(|(header, _)| *header == name);
    let (x_forwarded_for, forwarded) = (came("x-forwarded-for"), came("forwarded"));
    let name = if x_forwarded_for { "x-forwarded-for" } else { "forwarded" };
    if !x_forwarded_for && !forwarded {
        return None;
    }
    if !is_trusted(peer, &server.trusted_proxies) {
        return Some(format!(
            "`{name}` is not believed, since {peer} is no trusted proxy: if it is one of yours, add it to \
             `trusted_proxies`"
        ));
    }
    let is_believed = match server.proxy_header {
        ProxyHeader::XForwardedFor => x_forwarded_for,
        ProxyHeader::Forwarded => forwarded,
        _ => true,
    };
    (!is_believed).then(|| {
        format!("`{name}` is not believed, since `proxy_header` names another: if {peer} writes this one, name it there")
    })
}
