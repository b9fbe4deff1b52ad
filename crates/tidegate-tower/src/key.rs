//! CallKey a limit counts: made of the parts of a request that you name.
//!
//! Always   Different values make different keys: one part is its bare value; several are joined by `|`, with `\`
//!          before a `|` or `\` in them. The daemon writes its keys in the same way, so a limit in Redis may be
//!          shared with it.
//!          A part that a request has not, or has empty, is missing, and what happens then is said: nobody takes
//!          the place of "nobody" by sending nothing.

use crate::head::Head;
use http::{HeaderName, HeaderValue};
use smallvec::SmallVec;
use std::fmt::{self, Display};
use std::io::Write;
use std::pin::Pin;
use std::sync::Arc;
use tidegate_http::{AddressBits, ByteWriter as _, put_key_part, single_value};

/// The key of one request, as a limiter gets it. Most keys fit inline.
pub(crate) type KeyBytes = SmallVec<[u8; 64]>;

/// CallKey a limit counts.
///
/// ```
/// use http::HeaderName;
/// use tidegate_tower::Key;
///
/// let user = Key::header(HeaderName::from_static("x-api-key"));
/// let user_on_path = user.and(Key::path());
/// assert_eq!(format!("{user_on_path:?}"), "header:x-api-key|path");
/// ```
#[derive(Clone)]
#[must_use = "a key does nothing until a limit has it"]
pub struct Key {
    parts: Vec<Part>,
}

type Put = Arc<dyn Fn(&Head<'_>, &mut KeyBytes) + Send + Sync>;
type Value = Pin<Box<dyn Future<Output = Option<Vec<u8>>> + Send>>;
type Ask = Arc<dyn Fn(&Head<'_>) -> Value + Send + Sync>;

#[derive(Clone)]
enum Part {
    Ip(AddressBits),
    Header(HeaderName),
    Path,
    Method,
    Host,
    Own(&'static str, Put),
    Later(Ask),
}

/// What a request has for a key.
pub(crate) enum KeyLookup {
    Key(KeyBytes),
    /// A part of it is not there.
    Missing(MissingKey),
    /// It has to be waited for.
    Pending,
}

/// Why there is no key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MissingKey {
    /// The request has not what it is made of: that is up to who asks.
    Part,
    /// The server does not tell who the peer is: that is a mistake of who set it up.
    Peer,
}

/// A key that has to be waited for.
pub(crate) type PendingKey = Pin<Box<dyn Future<Output = Option<KeyBytes>> + Send>>;

impl Key {
    /// All requests together.
    ///
    /// ```
    /// # use tidegate_tower::Key;
    /// assert_eq!(format!("{:?}", Key::everyone()), "everyone");
    /// ```
    pub fn everyone() -> Self {
        Self { parts: Vec::new() }
    }

    /// The client's address: the peer's, or whom [trusted
    /// proxies](crate::RateLimitLayer::trusted_proxies) say that they speak for. IPv4-mapped addresses are IPv4,
    /// and of IPv6 the first 64 bits count, because whoever has one address of such a network has them all.
    ///
    /// ```
    /// # use tidegate_tower::Key;
    /// assert_eq!(format!("{:?}", Key::ip()), "ip");
    /// ```
    pub fn ip() -> Self {
        Self::ip_by(AddressBits::default())
    }

    /// The client's address, by so many bits.
    ///
    /// ```
    /// # use tidegate_tower::{AddressBits, Key};
    /// let customer = Key::ip_by(AddressBits::new(32, 56));
    /// ```
    pub fn ip_by(bits: AddressBits) -> Self {
        Self::of(Part::Ip(bits))
    }

    /// A header. One that comes more than once is [missing](crate::Limit::on_missing), as is one that is empty.
    ///
    /// ```
    /// # use tidegate_tower::Key;
    /// let key = Key::header(http::header::AUTHORIZATION);
    /// ```
    pub fn header(name: HeaderName) -> Self {
        Self::of(Part::Header(name))
    }

    /// The path, as it came. Whoever chooses paths chooses keys: use it with a key that clients cannot choose, or
    /// where few paths are let through.
    ///
    /// ```
    /// # use tidegate_tower::Key;
    /// let key = Key::ip().and(Key::path());
    /// ```
    pub fn path() -> Self {
        Self::of(Part::Path)
    }

    /// The method.
    ///
    /// ```
    /// # use tidegate_tower::Key;
    /// let key = Key::ip().and(Key::method());
    /// ```
    pub fn method() -> Self {
        Self::of(Part::Method)
    }

    /// The host that is asked, without its port: for clients, which server they talk to.
    ///
    /// ```
    /// # use tidegate_tower::Key;
    /// let key = Key::host();
    /// ```
    pub fn host() -> Self {
        Self::of(Part::Host)
    }

    /// The route that matched, such as `/users/{id}`: by axum, in a `route_layer` or a layer of a route.
    ///
    /// ```
    /// # use tidegate_tower::Key;
    /// let key = Key::ip().and(Key::route());
    /// ```
    #[cfg(feature = "axum")]
    pub fn route() -> Self {
        let put = |head: &Head<'_>, out: &mut KeyBytes| {
            if let Some(path) = head.extension::<axum::extract::MatchedPath>() {
                out.put(path.as_str().as_bytes());
            }
        };
        Self::of(Part::Own("route", Arc::new(put)))
    }

    /// What another layer has put into the request, such as who has signed in.
    ///
    /// ```
    /// # use tidegate_tower::Key;
    /// #[derive(Clone)]
    /// struct User {
    ///     id: u64,
    /// }
    ///
    /// let key = Key::extension(|user: &User| user.id);
    /// ```
    pub fn extension<T, V>(value: impl Fn(&T) -> V + Send + Sync + 'static) -> Self
    where
        T: Send + Sync + 'static,
        V: Display,
    {
        let put = move |head: &Head<'_>, out: &mut KeyBytes| {
            if let Some(there) = head.extension::<T>() {
                put_display(out, &value(there));
            }
        };
        Self::of(Part::Own("extension", Arc::new(put)))
    }

    /// What your function says; `None` where a request has no such key.
    ///
    /// ```
    /// # use tidegate_tower::Key;
    /// let tenant = Key::by(|head| head.path().split('/').nth(1).map(str::to_owned));
    /// ```
    pub fn by<V: Display>(value: impl Fn(&Head<'_>) -> Option<V> + Send + Sync + 'static) -> Self {
        let put = move |head: &Head<'_>, out: &mut KeyBytes| {
            if let Some(value) = value(head) {
                put_display(out, &value);
            }
        };
        Self::of(Part::Own("own", Arc::new(put)))
    }

    /// What your function finds out, such as whose a token is. It takes what it needs from the head before it
    /// waits.
    ///
    /// ```
    /// # use tidegate_tower::Key;
    /// # async fn owner_of(token: Option<String>) -> Option<u64> { None }
    /// let owner = Key::by_async(|head| {
    ///     let token = head.header("authorization").map(str::to_owned);
    ///     async move { owner_of(token).await }
    /// });
    /// ```
    pub fn by_async<V: Display, F>(value: impl Fn(&Head<'_>) -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = Option<V>> + Send + 'static,
    {
        let ask = move |head: &Head<'_>| -> Value {
            let value = value(head);
            Box::pin(async move { value.await.map(|value| value.to_string().into_bytes()) })
        };
        Self::of(Part::Later(Arc::new(ask)))
    }

    /// This and that: each pair has a count of its own.
    ///
    /// ```
    /// # use tidegate_tower::Key;
    /// let key = Key::ip().and(Key::method());
    /// assert_eq!(format!("{key:?}"), "ip|method");
    /// ```
    pub fn and(mut self, other: Self) -> Self {
        self.parts.extend(other.parts);
        self
    }

    fn of(part: Part) -> Self {
        Self { parts: vec![part] }
    }

    /// Returns the key of a request, if it is known at once.
    #[inline]
    pub(crate) fn find(&self, head: &Head<'_>) -> KeyLookup {
        let mut key = KeyBytes::new();
        match self.put(head, &mut key) {
            Appended::Whole => KeyLookup::Key(key),
            Appended::Missing(missing) => KeyLookup::Missing(missing),
            Appended::Later => KeyLookup::Pending,
        }
    }

    /// Appends the key of a request.
    fn put(&self, head: &Head<'_>, out: &mut KeyBytes) -> Appended {
        if let [part] = &self.parts[..] {
            return part.put(head, out);
        }
        let (mut value, mut appended) = (KeyBytes::new(), Appended::Whole);
        for (place, part) in self.parts.iter().enumerate() {
            value.clear();
            match part.put(head, &mut value) {
                Appended::Whole => {}
                // What is missing further on need not be waited for.
                Appended::Later => appended = Appended::Later,
                missing @ Appended::Missing(_) => return missing,
            }
            put_key_part(out, place, &value);
        }
        appended
    }

    /// The key of a request, when it has been found out.
    pub(crate) fn later(&self, head: &Head<'_>) -> PendingKey {
        let values: Vec<Value> = self.parts.iter().map(|part| part.later(head)).collect();
        Box::pin(async move {
            let (is_alone, mut key) = (values.len() == 1, KeyBytes::new());
            for (place, value) in values.into_iter().enumerate() {
                let value = value.await.filter(|value| !value.is_empty())?;
                if is_alone {
                    key.put(&value);
                } else {
                    put_key_part(&mut key, place, &value);
                }
            }
            Some(key)
        })
    }
}

/// What was appended of a key.
enum Appended {
    Whole,
    Missing(MissingKey),
    Later,
}

impl Part {
    fn put(&self, head: &Head<'_>, out: &mut KeyBytes) -> Appended {
        match self {
            Self::Ip(bits) => return put_ip(*bits, head, out),
            Self::Header(name) => put_header(head, name, out),
            Self::Path => out.put(head.path().as_bytes()),
            Self::Method => out.put(head.method().as_str().as_bytes()),
            Self::Host => out.put(head.host().unwrap_or_default().as_bytes()),
            Self::Own(_, put) => put(head, out),
            Self::Later(_) => return Appended::Later,
        }
        if out.is_empty() { Appended::Missing(MissingKey::Part) } else { Appended::Whole }
    }

    fn later(&self, head: &Head<'_>) -> Value {
        if let Self::Later(ask) = self {
            return ask(head);
        }
        let mut value = KeyBytes::new();
        let appended = self.put(head, &mut value);
        let value = matches!(appended, Appended::Whole).then(|| value.to_vec());
        Box::pin(std::future::ready(value))
    }
}

fn put_ip(bits: AddressBits, head: &Head<'_>, out: &mut KeyBytes) -> Appended {
    let Some(ip) = head.client_ip() else { return Appended::Missing(MissingKey::Peer) };
    bits.put(ip, out);
    Appended::Whole
}

fn put_header(head: &Head<'_>, name: &HeaderName, out: &mut KeyBytes) {
    let values = head.headers().get_all(name).iter();
    if let Some(value) = single_value(values.map(HeaderValue::as_bytes)) {
        out.put(value);
    }
}

fn put_display(out: &mut KeyBytes, value: &impl Display) {
    // Who cannot say what it is, is missing.
    if write!(out, "{value}").is_err() {
        out.clear();
    }
}

/// What it is made of; never a value.
impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.parts.is_empty() {
            return f.write_str("everyone");
        }
        for (place, part) in self.parts.iter().enumerate() {
            if place > 0 {
                f.write_str("|")?;
            }
            match part {
                Part::Ip(_) => f.write_str("ip")?,
                Part::Header(name) => write!(f, "header:{name}")?,
                Part::Path => f.write_str("path")?,
                Part::Method => f.write_str("method")?,
                Part::Host => f.write_str("host")?,
                Part::Own(what, _) => f.write_str(what)?,
                Part::Later(_) => f.write_str("async")?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::Request;

    fn key(key: &Key, request: &Request<()>) -> Option<String> {
        match key.find(&Head::of(request)) {
            KeyLookup::Key(key) => Some(String::from_utf8(key.to_vec()).unwrap()),
            _ => None,
        }
    }

    #[test]
    fn several_parts_are_joined_so_that_nobody_makes_up_a_seam() {
        let parts = Key::header(HeaderName::from_static("a"))
            .and(Key::header(HeaderName::from_static("b")));
        let of = |a: &str, b: &str| {
            key(&parts, &Request::get("/").header("a", a).header("b", b).body(()).unwrap())
        };
        assert_eq!(of("x|y", "z").as_deref(), Some(r"x\|y|z"));
        assert_ne!(of("x|y", "z"), of("x", "y|z"));
        assert_eq!(of("x", ""), None, "an empty part is missing");
    }

    #[test]
    fn who_sends_a_header_twice_is_nobody_new() {
        let header = Key::header(HeaderName::from_static("a"));
        let once = Request::get("/").header("a", " 1 ").body(()).unwrap();
        assert_eq!(key(&header, &once).as_deref(), Some("1"));
        let twice = Request::get("/").header("a", "1").header("a", "2").body(()).unwrap();
        assert_eq!(key(&header, &twice), None);
    }

    #[test]
    fn a_missing_peer_is_told_from_a_missing_part_also_behind_what_is_waited_for() {
        let waited = || Key::by_async(|_| async { Some("x") });
        let header = || Key::header(HeaderName::from_static("a"));
        for (key, missing) in [
            (Key::ip(), MissingKey::Peer),
            (waited().and(Key::ip()), MissingKey::Peer),
            (waited().and(header()), MissingKey::Part),
            (header(), MissingKey::Part),
        ] {
            let found = key.find(&Head::of(&Request::new(())));
            assert!(matches!(found, KeyLookup::Missing(found) if found == missing), "{key:?}");
        }
    }

    #[test]
    fn everyone_is_a_key_without_parts() {
        assert_eq!(key(&Key::everyone(), &Request::new(())).as_deref(), Some(""));
    }

    #[tokio::test]
    async fn a_key_that_is_waited_for_is_the_key_that_was_there() {
        let request = Request::get("/p|q").header("a", "1").body(()).unwrap();
        let at_once = Key::path().and(Key::header(HeaderName::from_static("a")));
        let waited = Key::path().and(Key::by_async(|head| {
            let value = head.header("a").map(str::to_owned);
            async move { value }
        }));
        assert!(matches!(waited.find(&Head::of(&request)), KeyLookup::Pending));
        let later = waited.later(&Head::of(&request)).await.unwrap();
        assert_eq!(key(&at_once, &request).unwrap().as_bytes(), &*later);
    }
}
