//! The key that a limit counts by, made of named parts of a request.
//!
//! To add a part, add a variant to [`Part`], its constructor on [`Key`], and its value in [`Part::put`].
//!
//! Always   Different values make different keys: a single part is its bare value; several are joined by `|`, with `\`
//!          before a `|` or `\` in them. The server writes its keys in the same way, so it can share a limit in Redis.
//! Always   A part that is absent or empty is missing, and [`OnMissing`](crate::OnMissing) says what happens then: a client
//!          cannot take over another client's key by leaving a part out.

use crate::head::Head;
use http::{HeaderName, HeaderValue};
use smallvec::SmallVec;
use std::fmt::{self, Display};
use std::io::Write;
use std::pin::Pin;
use std::sync::Arc;
use tidegate_http::{AddressBits, ByteWriter as _, put_key_part, single_value};

/// The key of one request. Most keys fit inline.
pub(crate) type KeyBytes = SmallVec<[u8; 64]>;

/// The key that a limit counts by.
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

type PutValue = Arc<dyn Fn(&Head<'_>, &mut KeyBytes) + Send + Sync>;
type PendingValue = Pin<Box<dyn Future<Output = Option<Vec<u8>>> + Send>>;
type FindValue = Arc<dyn Fn(&Head<'_>) -> PendingValue + Send + Sync>;

#[derive(Clone)]
enum Part {
    Ip(AddressBits),
    Header(HeaderName),
    Path,
    Method,
    Host,
    /// The result of a function, and a name for it.
    Function(&'static str, PutValue),
    /// The result of an asynchronous function.
    Async(FindValue),
}

/// The result of looking for the key of a request.
pub(crate) enum KeyLookup {
    Key(KeyBytes),
    Missing(MissingKey),
    /// A part of the key has to be waited for.
    Pending,
}

/// Why a request has no key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MissingKey {
    /// The request does not have a part of the key: the client decides that.
    Part,
    /// The server does not provide client addresses: a mistake in the program.
    Peer,
}

pub(crate) type PendingKey = Pin<Box<dyn Future<Output = Option<KeyBytes>> + Send>>;

impl Key {
    /// Counts all requests together.
    pub fn everyone() -> Self {
        Self { parts: Vec::new() }
    }

    /// Counts by the client's address: the peer's, or the address that [trusted
    /// proxies](crate::RateLimitLayer::trusted_proxies) report. An IPv4-mapped IPv6 address counts as IPv4. Of an IPv6 address
    /// the first 64 bits count, because a client that has one address of such a network has all of them.
    pub fn ip() -> Self {
        Self::ip_by(AddressBits::default())
    }

    /// Counts by the first bits of the client's address.
    pub fn ip_by(bits: AddressBits) -> Self {
        Self::of(Part::Ip(bits))
    }

    /// Counts by the value of a header. A header that is empty or occurs more than once is
    /// [missing](crate::Limit::on_missing).
    pub fn header(name: HeaderName) -> Self {
        Self::of(Part::Header(name))
    }

    /// Counts by the path as it was sent. A client that chooses paths freely chooses its keys freely: combine this with a key
    /// that clients cannot choose, or use it where few paths are served.
    pub fn path() -> Self {
        Self::of(Part::Path)
    }

    /// Counts by the method.
    pub fn method() -> Self {
        Self::of(Part::Method)
    }

    /// Counts by the host that the request is for, without its port. In a client this is the server that is called.
    pub fn host() -> Self {
        Self::of(Part::Host)
    }

    /// Counts by the axum route that matched, such as `/users/{id}`. It is known in a `route_layer` and in a layer of a route.
    #[cfg(feature = "axum")]
    pub fn route() -> Self {
        let put = |head: &Head<'_>, out: &mut KeyBytes| {
            if let Some(path) = head.extension::<axum::extract::MatchedPath>() {
                out.put(path.as_str().as_bytes());
            }
        };
        Self::of(Part::Function("route", Arc::new(put)))
    }

    /// Counts by an extension that another layer has added to the request, such as the user that has signed in.
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
        Self::function("extension", move |head| head.extension::<T>().map(&value))
    }

    /// Counts by the result of a function; `None` if the request has no such key.
    pub fn by<V: Display>(value: impl Fn(&Head<'_>) -> Option<V> + Send + Sync + 'static) -> Self {
        Self::function("own", value)
    }

    fn function<V: Display>(
        name: &'static str,
        value: impl Fn(&Head<'_>) -> Option<V> + Send + Sync + 'static,
    ) -> Self {
        let put = move |head: &Head<'_>, out: &mut KeyBytes| {
            if let Some(value) = value(head) {
                put_display(out, &value);
            }
        };
        Self::of(Part::Function(name, Arc::new(put)))
    }

    /// Counts by the result of an asynchronous function, such as the owner of a token. The function takes what it needs from
    /// the head before it waits.
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
        let find = move |head: &Head<'_>| -> PendingValue {
            let value = value(head);
            Box::pin(async move { value.await.map(|value| value.to_string().into_bytes()) })
        };
        Self::of(Part::Async(Arc::new(find)))
    }

    /// Counts each combination of this key and another one separately.
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
            Appended::Pending => KeyLookup::Pending,
        }
    }

    /// Appends the key of a request.
    fn put(&self, head: &Head<'_>, out: &mut KeyBytes) -> Appended {
        if let [part] = &self.parts[..] {
            return part.put(head, out);
        }
        let (mut value, mut appended) = (KeyBytes::new(), Appended::Whole);
        for (index, part) in self.parts.iter().enumerate() {
            value.clear();
            match part.put(head, &mut value) {
                Appended::Whole => {}
                // A later part may be missing, and then there is nothing to wait for.
                Appended::Pending => appended = Appended::Pending,
                missing @ Appended::Missing(_) => return missing,
            }
            put_key_part(out, index, &value);
        }
        appended
    }

    /// Returns the key of a request as a future.
    pub(crate) fn later(&self, head: &Head<'_>) -> PendingKey {
        let values: Vec<PendingValue> = self.parts.iter().map(|part| part.later(head)).collect();
        Box::pin(async move {
            let (is_single, mut key) = (values.len() == 1, KeyBytes::new());
            for (index, value) in values.into_iter().enumerate() {
                let value = value.await.filter(|value| !value.is_empty())?;
                if is_single {
                    key.put(&value);
                } else {
                    put_key_part(&mut key, index, &value);
                }
            }
            Some(key)
        })
    }
}

/// How much of a key was appended.
enum Appended {
    Whole,
    Missing(MissingKey),
    Pending,
}

impl Part {
    /// Appends the value of this part.
    fn put(&self, head: &Head<'_>, out: &mut KeyBytes) -> Appended {
        match self {
            Self::Ip(bits) => return put_ip(*bits, head, out),
            Self::Header(name) => put_header(head, name, out),
            Self::Path => out.put(head.path().as_bytes()),
            Self::Method => out.put(head.method().as_str().as_bytes()),
            Self::Host => out.put(head.host().unwrap_or_default().as_bytes()),
            Self::Function(_, put) => put(head, out),
            Self::Async(_) => return Appended::Pending,
        }
        if out.is_empty() { Appended::Missing(MissingKey::Part) } else { Appended::Whole }
    }

    fn later(&self, head: &Head<'_>) -> PendingValue {
        if let Self::Async(find) = self {
            return find(head);
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
    // A value that cannot be formatted is missing.
    if write!(out, "{value}").is_err() {
        out.clear();
    }
}

/// Names the parts, and no values.
impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.parts.is_empty() {
            return f.write_str("everyone");
        }
        for (index, part) in self.parts.iter().enumerate() {
            if index > 0 {
                f.write_str("|")?;
            }
            match part {
                Part::Ip(_) => f.write_str("ip")?,
                Part::Header(name) => write!(f, "header:{name}")?,
                Part::Path => f.write_str("path")?,
                Part::Method => f.write_str("method")?,
                Part::Host => f.write_str("host")?,
                Part::Function(name, _) => f.write_str(name)?,
                Part::Async(_) => f.write_str("async")?,
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
    fn parts_are_joined_so_that_no_value_can_imitate_the_separator() {
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
    fn a_header_that_is_sent_twice_makes_no_new_key() {
        let header = Key::header(HeaderName::from_static("a"));
        let once = Request::get("/").header("a", " 1 ").body(()).unwrap();
        assert_eq!(key(&header, &once).as_deref(), Some("1"));
        let twice = Request::get("/").header("a", "1").header("a", "2").body(()).unwrap();
        assert_eq!(key(&header, &twice), None);
    }

    #[test]
    fn a_missing_peer_differs_from_a_missing_part_also_after_a_pending_part() {
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
    async fn a_pending_key_equals_the_key_that_is_known_at_once() {
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
