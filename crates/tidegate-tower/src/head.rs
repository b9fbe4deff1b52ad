//! A request without its body: what keys, costs and conditions look at.

#[cfg(feature = "axum")]
use axum::extract::connect_info::{ConnectInfo, MockConnectInfo};
use http::{Extensions, HeaderMap, Method, Request, Uri};
use ipnet::IpNet;
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use tidegate_http::{ProxyHeader, client_ip_from_headers};

/// What is known of a request before its body is read.
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

/// The address of whoever opened the connection, for servers that are not axum's: put it into the extensions of
/// each request.
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

/// Who stands between the client and us, and how the nearest of them is known.
#[derive(Clone, Default)]
pub(crate) struct AddressSource {
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

static NOBODY_TRUSTED: AddressSource =
    AddressSource { trusted_proxies: Vec::new(), proxy_header: ProxyHeader::Either, peer: None };

impl<'a> Head<'a> {
    /// The head of this request, where nobody is trusted: for tests of keys and costs of your own.
    ///
    /// ```
    /// use tidegate_tower::Head;
    ///
    /// assert_eq!(Head::of(&http::Request::new("body")).path(), "/");
    /// ```
    pub fn of<B>(request: &'a Request<B>) -> Self {
        Self::with_source(request, &NOBODY_TRUSTED)
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

    /// The method.
    ///
    /// ```
    /// # use tidegate_tower::Head;
    /// assert_eq!(Head::of(&http::Request::new(())).method(), http::Method::GET);
    /// ```
    pub fn method(&self) -> &'a Method {
        self.method
    }

    /// Where it goes.
    ///
    /// ```
    /// # use tidegate_tower::Head;
    /// assert_eq!(Head::of(&http::Request::new(())).uri(), "/");
    /// ```
    pub fn uri(&self) -> &'a Uri {
        self.uri
    }

    /// The path, without the query.
    ///
    /// ```
    /// # use tidegate_tower::Head;
    /// let request = http::Request::get("/a?b").body(())?;
    /// assert_eq!(Head::of(&request).path(), "/a");
    /// # Ok::<(), http::Error>(())
    /// ```
    pub fn path(&self) -> &'a str {
        self.uri.path()
    }

    /// The host that is asked, in small letters and without the port, as far as it is known.
    ///
    /// ```
    /// # use tidegate_tower::Head;
    /// let request = http::Request::get("/").header("host", "Example.com:8080").body(())?;
    /// assert_eq!(Head::of(&request).host().as_deref(), Some("example.com"));
    /// # Ok::<(), http::Error>(())
    /// ```
    pub fn host(&self) -> Option<String> {
        let host = match self.uri.host() {
            Some(host) => host,
            None => without_port(self.header("host")?),
        };
        Some(host.to_ascii_lowercase()).filter(|host| !host.is_empty())
    }

    /// All headers.
    ///
    /// ```
    /// # use tidegate_tower::Head;
    /// assert!(Head::of(&http::Request::new(())).headers().is_empty());
    /// ```
    pub fn headers(&self) -> &'a HeaderMap {
        self.headers
    }

    /// The first header of this name, if it is text.
    ///
    /// ```
    /// # use tidegate_tower::Head;
    /// let request = http::Request::get("/").header("x-user", "alice").body(())?;
    /// assert_eq!(Head::of(&request).header("X-User"), Some("alice"));
    /// # Ok::<(), http::Error>(())
    /// ```
    pub fn header(&self, name: &str) -> Option<&'a str> {
        self.headers.get(name)?.to_str().ok()
    }

    /// What a layer before this one has put into the request.
    ///
    /// ```
    /// # use tidegate_tower::Head;
    /// let mut request = http::Request::new(());
    /// request.extensions_mut().insert(42_u64);
    /// assert_eq!(Head::of(&request).extension::<u64>(), Some(&42));
    /// ```
    pub fn extension<T: Send + Sync + 'static>(&self) -> Option<&'a T> {
        self.extensions.get()
    }

    /// Who asks: the peer, or whom trusted proxies say that they speak for. `None` if the server does not tell
    /// whom it talks to.
    ///
    /// ```
    /// # use tidegate_tower::Head;
    /// assert_eq!(Head::of(&http::Request::new(())).client_ip(), None);
    /// ```
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

    /// Whether gRPC is spoken. It is always sent by `POST`, so that nobody is told "200" who did not ask for it. gRPC-Web is
    /// another: its clients read trailers from the body, and a status of HTTP where there are none.
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

/// `[::1]:80` and `example.com:80`, without what follows.
fn without_port(host: &str) -> &str {
    let end = host.rfind(']').map_or(0, |bracket| bracket + 1);
    host[end..].find(':').map_or(host, |colon| &host[..end + colon])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_is_one_however_it_is_spelled() {
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
