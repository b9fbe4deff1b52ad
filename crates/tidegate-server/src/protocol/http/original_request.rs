//! The client's request, which a proxy describes in header fields.
//!
//! Invariant nginx is configured to send `X-Original-URI`, `-Method` and `-Host`; Traefik and Caddy send `X-Forwarded-Uri`, `-Method`
//!           and `-Host`. A proxy forwards the fields of the other family from its client. So one family is used: the one that the
//!           proxy's URL names, or else the only one that is present. If both are present and none is named, the request is refused:
//!           a client must not choose the limits that count it.
//! Invariant No field is ignored because it cannot be parsed: then the request is refused.
//! Invariant The proxy's token is not a part of its client's request: no limit counts by it, and nothing prints it.
//! Invariant Any caller is believed about the request; only a trusted proxy is believed about the client's address.

use super::problem::Problem;
use super::token::is_own_token;
use crate::config::{ServerConfig, near};
use crate::matching::{self, Path, without_port};
use http::header::HOST;
use http::request::Parts;
use http::{HeaderMap, HeaderValue};
use std::borrow::Cow;
use std::fmt::Write;
use std::net::SocketAddr;
use tidegate_http::client_ip_from_headers;

/// Header fields that describe a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HeaderFamily {
    /// nginx is configured to send these.
    XOriginal,
    /// Traefik and Caddy send these.
    XForwarded,
}

/// The values of `from`.
const FAMILIES: [(&str, HeaderFamily); 2] =
    [("x-original", HeaderFamily::XOriginal), ("x-forwarded", HeaderFamily::XForwarded)];

impl HeaderFamily {
    /// Returns the family of a value of `from`.
    pub(super) fn named(name: &[u8]) -> Result<Self, Problem> {
        let name = String::from_utf8_lossy(&name[..name.len().min(64)]);
        if let Some((_, family)) = FAMILIES.iter().find(|(known, _)| *known == name) {
            return Ok(*family);
        }
        let nearest = near(&name, FAMILIES.iter().map(|(known, _)| *known));
        Err(match nearest {
            Some(nearest) => Problem::bad(format!("unknown `from`; did you mean `{nearest}`?")),
            None => Problem::bad("`from` must be `x-original` or `x-forwarded`"),
        })
    }

    /// Returns the names of its fields: URI, method, host.
    const fn fields(self) -> [&'static str; 3] {
        match self {
            Self::XOriginal => ["x-original-uri", "x-original-method", "x-original-host"],
            Self::XForwarded => ["x-forwarded-uri", "x-forwarded-method", "x-forwarded-host"],
        }
    }

    /// Returns whether the fields describe a request. A host alone does not: other proxies on the way add `X-Forwarded-Host`.
    fn is_in(self, headers: &HeaderMap) -> bool {
        let [uri, method, _] = self.fields();
        headers.contains_key(uri) || headers.contains_key(method)
    }

    /// Returns the only family that is present, if any.
    fn only_in(headers: &HeaderMap) -> Result<Option<Self>, Problem> {
        match (Self::XOriginal.is_in(headers), Self::XForwarded.is_in(headers)) {
            (true, true) => Err(Problem::bad(
                "the request has `X-Original-…` and `X-Forwarded-…`, and the client may have sent one of them: add `from=x-original` \
                 (nginx) or `from=x-forwarded` (Caddy, Traefik) to the URL in your proxy's configuration",
            )),
            (true, false) => Ok(Some(Self::XOriginal)),
            (false, true) => Ok(Some(Self::XForwarded)),
            (false, false) => Ok(None),
        }
    }
}

/// Returns whether a proxy describes its client's request. A page in a browser cannot send these fields without a CORS preflight.
pub(super) fn has_original_request(headers: &HeaderMap) -> bool {
    FAMILIES.iter().any(|(_, family)| family.is_in(headers))
}

/// The client's request.
#[derive(Debug)]
pub(super) struct OriginalRequest<'a> {
    family: Option<HeaderFamily>,
    uri: Cow<'a, str>,
    method: Cow<'a, str>,
    host: Option<&'a str>,
    headers: &'a HeaderMap,
}

impl<'a> OriginalRequest<'a> {
    /// Reads the fields of the family `named`, or of the only one present. Without any, the request itself is the client's.
    pub(super) fn read(request: &'a Parts, named: Option<HeaderFamily>) -> Result<Self, Problem> {
        let headers = &request.headers;
        // Without the query, whose parameters are for `/v1/authorize`.
        let mut original = Self {
            family: None,
            uri: Cow::Borrowed(request.uri.path()),
            method: capitals(request.method.as_str()),
            host: text(headers, HOST.as_str())?.or_else(|| request.uri.host()),
            headers,
        };
        let family = match named {
            Some(named) => Some(named),
            None => HeaderFamily::only_in(headers)?,
        };
        let Some(family) = family else { return Ok(original) };
        let [uri, method, host] = family.fields();
        let (uri_field, method_field) = (only(headers, uri)?, text(headers, method)?);
        let host_field = text(headers, host)?;
        // If the proxy does not send a field of its family, its client can. The host may be missing: nginx sends none for a client
        // without one.
        let missing = [(uri, uri_field.is_none()), (method, method_field.is_none())];
        if let Some((field, _)) =
            missing.iter().find(|(_, is_missing)| *is_missing && named.is_some())
        {
            return Err(Problem::bad(format!(
                "the proxy does not send `{field}`: add it to the proxy's configuration"
            )));
        }
        original.family = Some(family);
        if let Some(value) = uri_field {
            original.uri = of_origin(uri, escaped(value.as_bytes()))?;
        }
        original.method = method_field.map_or(original.method, capitals);
        original.host = host_field.or(original.host);
        refuse_forwarded_query(headers, request.uri.query())?;
        Ok(original)
    }

    /// Returns the request as limits match it.
    pub(super) fn request(&self, peer: SocketAddr, server: &ServerConfig) -> matching::Request<'_> {
        let (path, query) = path_and_query(&self.uri);
        let ServerConfig { proxy_header, trusted_proxies, escaped_slash, .. } = server;
        let escaped_slash = match self.family {
            Some(HeaderFamily::XOriginal) => escaped_slash.x_original,
            Some(HeaderFamily::XForwarded) => escaped_slash.x_forwarded,
            None => escaped_slash.common(),
        };
        let headers =
            self.headers.iter().filter(|(name, value)| !is_own_token(server, name, value));
        let headers = headers.map(|(name, value)| (name.as_str(), value.as_bytes()));
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

/// Caddy appends its client's query to a `uri` without a query. Then the client would choose limit, key and family, so the query is
/// compared with the fields of both families.
fn refuse_forwarded_query(headers: &HeaderMap, own: Option<&str>) -> Result<(), Problem> {
    let Some(own) = own.map(|own| escaped(own.as_bytes())).filter(|own| !own.is_empty()) else {
        return Ok(());
    };
    let uris = FAMILIES.iter().flat_map(|(_, family)| headers.get_all(family.fields()[0]));
    let is_own = |uri: &HeaderValue| {
        let uri = escaped(uri.as_bytes());
        // Caddy does not forward a fragment.
        let query = path_and_query(&uri).1.and_then(|query| query.split('#').next());
        query == Some(&*own)
    };
    if !uris.into_iter().any(is_own) {
        return Ok(());
    }
    Err(Problem::bad(
        "the proxy appends its client's query to its own URL: add a query to the URL in its configuration, such as \
         `/v1/authorize?from=x-forwarded`",
    ))
}

/// Returns the only value of a field. Of several, the client may have sent one, so they are refused.
fn only<'a>(headers: &'a HeaderMap, name: &str) -> Result<Option<&'a HeaderValue>, Problem> {
    let mut values = headers.get_all(name).iter();
    match (values.next(), values.next()) {
        (value, None) => Ok(value.filter(|value| !value.is_empty())),
        _ => Err(Problem::bad(format!(
            "`{name}` is there more than once: configure the proxy to replace it"
        ))),
    }
}

fn text<'a>(headers: &'a HeaderMap, name: &str) -> Result<Option<&'a str>, Problem> {
    let value = only(headers, name)?;
    let text = value.map(HeaderValue::to_str).transpose();
    text.map_err(|_| Problem::bad(format!("`{name}` may contain only visible ASCII")))
}

/// Returns the method in capitals: some servers compare methods without regard to case, so `delete` counts as `DELETE`.
fn capitals(method: &str) -> Cow<'_, str> {
    if method.bytes().any(|byte| byte.is_ascii_lowercase()) {
        return Cow::Owned(method.to_ascii_uppercase());
    }
    Cow::Borrowed(method)
}

/// Returns the URI if it begins with a path. Servers disagree about the path of any other, such as Go's opaque `x:http://host/`.
fn of_origin<'a>(field: &str, uri: Cow<'a, str>) -> Result<Cow<'a, str>, Problem> {
    if uri.starts_with(['/', '*']) {
        return Ok(uri);
    }
    Err(Problem::bad(format!("`{field}` must begin with `/`")))
}

/// Percent-encodes bytes that a URI may not contain. nginx forwards them as they are, and a client must not get around a limit with
/// them. A `#` stays: some servers end the URI there, and others do not.
fn escaped(uri: &[u8]) -> Cow<'_, str> {
    if let (true, Ok(uri)) = (uri.iter().all(u8::is_ascii_graphic), std::str::from_utf8(uri)) {
        return Cow::Borrowed(uri);
    }
    let mut escaped = String::with_capacity(2 * uri.len());
    for byte in uri {
        if byte.is_ascii_graphic() {
            escaped.push(char::from(*byte));
        } else {
            write!(escaped, "%{byte:02X}").expect("writing to a string cannot fail");
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
