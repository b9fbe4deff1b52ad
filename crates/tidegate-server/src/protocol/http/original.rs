//! The request that a proxy holds while it asks, as the proxy tells it.
//!
//! Always   nginx tells it by `X-Original-URI`, `-Method` and `-Host`, because its configuration says so; Traefik and Caddy
//!          by `X-Forwarded-Uri`, `-Method` and `-Host`. Of the other family a proxy hands on whatever its client sends.
//!          So one family is believed: the one that the proxy's own URL names, or else the only one that came. Where
//!          both came and none is named, nothing is decided: who is limited must not choose by what.
//! Always   Nothing that is told is passed over because it cannot be read: it is read, or the request is refused.
//! Always   The token that the proxy brings is no part of its client's request: no limit counts by it, and nothing prints it.
//! Always   Who asks is believed about the request; about the client's address only a trusted proxy is.

use super::guard::{is_own_token, without_port};
use super::problem::Problem;
use crate::config::{ServerConfig, near};
use crate::matching::{self, Path};
use http::header::HOST;
use http::request::Parts;
use http::{HeaderMap, HeaderValue};
use std::borrow::Cow;
use std::fmt::Write;
use std::net::SocketAddr;
use tidegate_http::client_ip_from_headers;

/// The fields that tell of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Family {
    /// What nginx is configured to send.
    XOriginal,
    /// What Traefik and Caddy send.
    XForwarded,
}

/// What each is called in `from`.
const FAMILIES: [(&str, Family); 2] =
    [("x-original", Family::XOriginal), ("x-forwarded", Family::XForwarded)];

impl Family {
    /// The one that `from` names.
    pub(super) fn named(name: &[u8]) -> Result<Self, Problem> {
        let name = String::from_utf8_lossy(&name[..name.len().min(64)]);
        if let Some((_, family)) = FAMILIES.iter().find(|(known, _)| *known == name) {
            return Ok(*family);
        }
        let meant = near(&name, FAMILIES.iter().map(|(known, _)| *known));
        Err(match meant {
            Some(meant) => Problem::bad(format!("unknown `from`; did you mean `{meant}`?")),
            None => Problem::bad("`from` is `x-original` or `x-forwarded`"),
        })
    }

    /// Its fields: URI, method, host.
    const fn fields(self) -> [&'static str; 3] {
        match self {
            Self::XOriginal => ["x-original-uri", "x-original-method", "x-original-host"],
            Self::XForwarded => ["x-forwarded-uri", "x-forwarded-method", "x-forwarded-host"],
        }
    }

    /// Whether it tells of a request. A host alone does not: proxies far from here write `X-Forwarded-Host` too.
    fn is_in(self, headers: &HeaderMap) -> bool {
        let [uri, method, _] = self.fields();
        headers.contains_key(uri) || headers.contains_key(method)
    }

    /// The only one that came, if any did.
    fn only_in(headers: &HeaderMap) -> Result<Option<Self>, Problem> {
        match (Self::XOriginal.is_in(headers), Self::XForwarded.is_in(headers)) {
            (true, true) => Err(Problem::bad(
                "the request is told by `X-Original-…` and by `X-Forwarded-…`, and one of them may be the client's own: say \
                 which of them your proxy writes, by `from=x-original` (nginx) or `from=x-forwarded` (Caddy, Traefik) in the \
                 URL that it asks",
            )),
            (true, false) => Ok(Some(Self::XOriginal)),
            (false, true) => Ok(Some(Self::XForwarded)),
            (false, false) => Ok(None),
        }
    }
}

/// Whether a proxy tells which request it asks about. Only a proxy can: a page cannot send these without asking first.
pub(super) fn is_told(headers: &HeaderMap) -> bool {
    FAMILIES.iter().any(|(_, family)| family.is_in(headers))
}

/// The request that is asked about.
#[derive(Debug)]
pub(super) struct Original<'a> {
    family: Option<Family>,
    uri: Cow<'a, str>,
    method: Cow<'a, str>,
    host: Option<&'a str>,
    headers: &'a HeaderMap,
}

impl<'a> Original<'a> {
    /// What is told of it, by the family that is `named`; where nobody tells anything, it is the one that asks.
    pub(super) fn read(request: &'a Parts, named: Option<Family>) -> Result<Self, Problem> {
        let headers = &request.headers;
        // What follows our own `?` is for us.
        let mut original = Self {
            family: None,
            uri: Cow::Borrowed(request.uri.path()),
            method: capitals(request.method.as_str()),
            host: text(headers, HOST.as_str())?.or_else(|| request.uri.host()),
            headers,
        };
        let family = match named {
            Some(named) => Some(named),
            None => Family::only_in(headers)?,
        };
        let Some(family) = family else { return Ok(original) };
        let [uri, method, host] = family.fields();
        let (told_uri, told_method) = (only(headers, uri)?, text(headers, method)?);
        let told_host = text(headers, host)?;
        // A field that a proxy was said to write and does not is one that its client can. There may be no host: nginx has none
        // of a client that says none.
        let missing = [(uri, told_uri.is_none()), (method, told_method.is_none())];
        if let Some((field, _)) = missing.iter().find(|(_, is)| *is && named.is_some()) {
            return Err(Problem::bad(format!("the proxy does not send `{field}`: let it")));
        }
        original.family = Some(family);
        if let Some(told) = told_uri {
            original.uri = of_origin(uri, escaped(told.as_bytes()))?;
        }
        original.method = told_method.map_or(original.method, capitals);
        original.host = told_host.or(original.host);
        refuse_handed_on(headers, request.uri.query())?;
        Ok(original)
    }

    /// What limits see of it.
    pub(super) fn request(&self, peer: SocketAddr, server: &ServerConfig) -> matching::Request<'_> {
        let (path, query) = path_and_query(&self.uri);
        let ServerConfig { proxy_header, trusted_proxies, escaped_slash, .. } = server;
        let escaped_slash = match self.family {
            Some(Family::XOriginal) => escaped_slash.x_original,
            Some(Family::XForwarded) => escaped_slash.x_forwarded,
            None => escaped_slash.common(),
        };
        let told = self.headers.iter().filter(|(name, value)| !is_own_token(server, name, value));
        let headers = told.map(|(name, value)| (name.as_str(), value.as_bytes()));
        matching::Request {
            ip: Some(client_ip_from_headers(
                *proxy_header,
                peer.ip(),
                self.headers,
                trusted_proxies,
            )),
            method: Some(&self.method),
            host: self.host.map(without_port),
            path: Some(Path::new(path, escaped_slash)),
            query,
            headers: headers.collect(),
        }
    }
}

/// Caddy puts its client's query behind a `uri` that has none of its own. Then it is the client who says which limit is asked, and
/// for whom, and by which family: so all that is told is compared, not only what is believed.
fn refuse_handed_on(headers: &HeaderMap, own: Option<&str>) -> Result<(), Problem> {
    let Some(own) = own.map(|own| escaped(own.as_bytes())).filter(|own| !own.is_empty()) else {
        return Ok(());
    };
    let told = FAMILIES.iter().flat_map(|(_, family)| headers.get_all(family.fields()[0]));
    let is_own = |uri: &HeaderValue| {
        let uri = escaped(uri.as_bytes());
        // A `#` and what follows it are not handed on.
        let query = path_and_query(&uri).1.and_then(|query| query.split('#').next());
        query == Some(&*own)
    };
    if !told.into_iter().any(is_own) {
        return Ok(());
    }
    Err(Problem::bad(
        "the proxy hands on its client's query as if it were its own: give the URL that it asks a query, such as \
         `/v1/authorize?from=x-forwarded`",
    ))
}

/// The one value of a field, if it has any. Of several, nobody knows which the proxy wrote.
fn only<'a>(headers: &'a HeaderMap, name: &str) -> Result<Option<&'a HeaderValue>, Problem> {
    let mut values = headers.get_all(name).iter();
    match (values.next(), values.next()) {
        (value, None) => Ok(value.filter(|value| !value.is_empty())),
        _ => Err(Problem::bad(format!("`{name}` came more than once: let the proxy replace it"))),
    }
}

fn text<'a>(headers: &'a HeaderMap, name: &str) -> Result<Option<&'a str>, Problem> {
    let value = only(headers, name)?;
    let text = value.map(HeaderValue::to_str).transpose();
    text.map_err(|_| Problem::bad(format!("`{name}` has more than visible ASCII in it")))
}

/// The method in capitals: some servers compare methods without regard to case, so `delete` counts as `DELETE`.
fn capitals(method: &str) -> Cow<'_, str> {
    if method.bytes().any(|byte| byte.is_ascii_lowercase()) {
        return Cow::Owned(method.to_ascii_uppercase());
    }
    Cow::Borrowed(method)
}

/// The URI, if it begins with a path. Servers differ about the path of another, such as Go's opaque `x:http://host/`.
fn of_origin<'a>(field: &str, uri: Cow<'a, str>) -> Result<Cow<'a, str>, Problem> {
    if uri.starts_with(['/', '*']) {
        return Ok(uri);
    }
    Err(Problem::bad(format!("`{field}` is not a path: paths begin with `/`")))
}

/// A URI as its client should have sent it. nginx hands on what it got, and a letter that needs an escape and has none must be no
/// way around a limit. A `#` stays: some servers end the URI there, others read on.
fn escaped(uri: &[u8]) -> Cow<'_, str> {
    if let (true, Ok(uri)) = (uri.iter().all(u8::is_ascii_graphic), std::str::from_utf8(uri)) {
        return Cow::Borrowed(uri);
    }
    let mut escaped = String::with_capacity(2 * uri.len());
    for byte in uri {
        if byte.is_ascii_graphic() {
            escaped.push(char::from(*byte));
        } else {
            write!(escaped, "%{byte:02X}").expect("a text takes all");
        }
    }
    Cow::Owned(escaped)
}

fn path_and_query(uri: &str) -> (&str, Option<&str>) {
    match uri.split_once('?') {
        Some((path, query)) => (path, Some(query)),
        None => (uri, None),
    }
}
