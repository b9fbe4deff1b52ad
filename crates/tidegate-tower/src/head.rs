//! The head of a request: what keys, costs and conditions look at.

#[cfg(feature = "axum")]
use axum::extract::connect_info::{ConnectInfo, MockConnectInfo};
use http::{Extensions, HeaderMap, Method, Request, Uri};
use ipnet::IpNet;
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use tidegate_http::{ProxyHeader, client_ip_from_headers};

/// A request without its body: what is known before the body is read.
///
/// ```
/// use tidegate_tower::Head;
///
/// let request = http::Request::builder().uri("/orders?all").header("x-user", "alice").body(())?;
/// let head = Head::of(&request);
/// assert_eq!((head.path(), head.header("x-user")), ("/orders", Some("alice")));
/// # Ok::<(), http::Error>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Head<'a> {
    method: &'a Method,
    uri: &'a Uri,
    headers: &'a HeaderMap,
    extensions: &'a Extensions,
    address_source: &'a AddressSource,
}

/// The address of the client that opened the connection, for servers other than axum's: add it to the extensions of each
/// request.
///
/// ```
/// use tidegate_tower::{Head, Peer};
///
/// let mut request = http::Request::new(());
/// request.extensions_mut().insert(Peer("192.0.2.7".parse().unwrap()));
/// assert_eq!(Head::of(&request).client_ip(), Some("192.0.2.7".parse().unwrap()));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer(pub IpAddr);

impl From<SocketAddr> for Peer {
    fn from(address: SocketAddr) -> Self {
        Self(address.ip())
    }
}

type FindPeer = Arc<dyn Fn(&Extensions) -> Option<IpAddr> + Send + Sync>;

/// How the client's address is found.
#[derive(Clone, Default)]
pub struct AddressSource {
    pub(crate) trusted_proxies: Vec<IpNet>,
    pub(crate) proxy_header: ProxyHeader,
    pub(crate) peer: Option<FindPeer>,
}

impl fmt::Debug for AddressSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AddressSource")
            .field("trusted_proxies", &self.trusted_proxies)
            .field("proxy_header", &self.proxy_header)
            .finish_non_exhaustive()
    }
}

static PEER_ONLY: AddressSource =
    AddressSource { trusted_proxies: Vec::new(), proxy_header: ProxyHeader::Either, peer: None };

impl<'a> Head<'a> {
    /// Returns the head of this request, without trusted proxies. For tests of your keys and costs.
    pub fn of<B>(request: &'a Request<B>) -> Self {
        Self::with_source(request, &PEER_ONLY)
    }

    #[inline]
    pub(crate) fn with_source<B>(
        request: &'a Request<B>,
        address_source: &'a AddressSource,
    ) -> Self {
        Self {
            method: request.method(),
            uri: request.uri(),
            headers: request.headers(),
            extensions: request.extensions(),
            address_source,
        }
    }

    /// Returns the method.
    pub fn method(&self) -> &'a Method {
        self.method
    }

    /// Returns the URI.
    pub fn uri(&self) -> &'a Uri {
        self.uri
    }

    /// Returns the path, without the query.
    pub fn path(&self) -> &'a str {
        self.uri.path()
    }

    /// Returns the host that the request is for, in lower case and without the port, if the request names one.
    pub fn host(&self) -> Option<String> {
        let host = match self.uri.host() {
            Some(host) => host,
            None => without_port(self.header("host")?),
        };
        Some(host.to_ascii_lowercase()).filter(|host| !host.is_empty())
    }

    /// Returns all headers.
    pub fn headers(&self) -> &'a HeaderMap {
        self.headers
    }

    /// Returns the first header with this name, if its value is text.
    pub fn header(&self, name: &str) -> Option<&'a str> {
        self.headers.get(name)?.to_str().ok()
    }

    /// Returns an extension that another layer has added to the request.
    pub fn extension<T: Send + Sync + 'static>(&self) -> Option<&'a T> {
        self.extensions.get()
    }

    /// Returns the client's address: the peer's, or the one that trusted proxies report. `None` if the server does not provide
    /// the peer's address.
    pub fn client_ip(&self) -> Option<IpAddr> {
        let peer = self.peer()?;
        let AddressSource { trusted_proxies, proxy_header, .. } = self.address_source;
        Some(client_ip_from_headers(*proxy_header, peer, self.headers, trusted_proxies))
    }

    fn peer(&self) -> Option<IpAddr> {
        if let Some(find) = &self.address_source.peer {
            return find(self.extensions);
        }
        #[cfg(feature = "axum")]
        if let Some(ip) = axum_peer(self.extensions) {
            return Some(ip);
        }
        self.extension::<Peer>().map(|peer| peer.0)
    }

    /// Returns whether this is a gRPC call. gRPC always uses `POST`, so a request with another method gets an HTTP status.
    /// gRPC-Web is not included: its clients read trailers from the body, and the HTTP status if there are none.
    pub(crate) fn is_grpc(&self) -> bool {
        if *self.method() != Method::POST {
            return false;
        }
        let kind = self.headers.get(http::header::CONTENT_TYPE);
        let rest = kind.and_then(|kind| kind.as_bytes().strip_prefix(b"application/grpc"));
        rest.is_some_and(|rest| matches!(rest.first(), None | Some(b'+' | b';' | b' ')))
    }
}

#[cfg(feature = "axum")]
fn axum_peer(extensions: &Extensions) -> Option<IpAddr> {
    if let Some(ConnectInfo(address)) = extensions.get::<ConnectInfo<SocketAddr>>() {
        return Some(address.ip());
    }
    extensions.get::<MockConnectInfo<SocketAddr>>().map(|mock| mock.0.ip())
}

/// Removes the port of `[::1]:80` and `example.com:80`.
fn without_port(host: &str) -> &str {
    let end = host.rfind(']').map_or(0, |bracket| bracket + 1);
    host[end..].find(':').map_or(host, |colon| &host[..end + colon])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spellings_of_a_host_are_one_host() {
        let host = |value: &str| {
            let request = Request::get("/").header("host", value).body(()).unwrap();
            Head::of(&request).host()
        };
        assert_eq!(host("EXAMPLE.com").as_deref(), Some("example.com"));
        assert_eq!(host("[2001:DB8::1]:443").as_deref(), Some("[2001:db8::1]"));
        assert_eq!(host("[::1]").as_deref(), Some("[::1]"));
        assert_eq!(host(":80"), None);
        let absolute = Request::get("http://a.example/x").header("host", "b.example").body(());
        assert_eq!(Head::of(&absolute.unwrap()).host().as_deref(), Some("a.example"));
    }
}
