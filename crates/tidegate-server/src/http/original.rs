//! The request that a proxy holds while it asks, as the proxy tells it.
//!
//! Always   nginx tells it by `X-Original-URI` and `X-Original-Method`, because its configuration says so; Traefik
//!          and Caddy by `X-Forwarded-Method`, `-Uri` and `-Host`. Who asks is believed about the request; about the
//!          client's address only a trusted proxy is.

use super::guard::without_port;
use crate::matching;
use http::header::HOST;
use http::request::Parts;
use http::{HeaderMap, HeaderValue};
use ipnet::IpNet;
use std::net::SocketAddr;
use tidegate_tower::client_ip_of;

/// Whether a proxy tells which request it asks about. Only a proxy can: a page cannot send these without asking first.
pub(super) fn is_told(headers: &HeaderMap) -> bool {
    const TOLD: [&str; 4] =
        ["x-original-uri", "x-forwarded-uri", "x-original-method", "x-forwarded-method"];
    TOLD.iter().any(|name| headers.contains_key(*name))
}

/// The request that is asked about.
pub(super) fn original<'a>(
    request: &'a Parts,
    peer: SocketAddr,
    trusted_proxies: &[IpNet],
) -> matching::Request<'a> {
    let text = |name: &str| request.headers.get(name).and_then(|value| value.to_str().ok());
    let uri = text("x-original-uri").or_else(|| text("x-forwarded-uri"));
    // What follows our own `?` is for us.
    let (path, query) = uri.map_or((request.uri.path(), None), path_and_query);
    let method = text("x-original-method").or_else(|| text("x-forwarded-method"));
    let own_host = || request.headers.get(HOST).and_then(|value| value.to_str().ok());
    let host = text("x-forwarded-host").or_else(own_host).or_else(|| request.uri.host());
    let named =
        |(name, value): (&'a http::HeaderName, &'a HeaderValue)| (name.as_str(), value.as_bytes());
    matching::Request {
        ip: Some(client_ip_of(peer.ip(), &request.headers, trusted_proxies)),
        method: Some(method.unwrap_or(request.method.as_str())),
        host: host.map(without_port),
        path: Some(path),
        query,
        headers: request.headers.iter().map(named).collect(),
    }
}

fn path_and_query(uri: &str) -> (&str, Option<&str>) {
    match uri.split_once('?') {
        Some((path, query)) => (path, Some(query)),
        None => (uri, None),
    }
}
