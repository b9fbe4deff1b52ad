//! The head of a plain request: parsed, or known.
//!
//! Clients that keep a connection send the same head again and again, and reading one is a fifth of what a check costs. So
//! the last one is kept, and one that differs from it at most in how long the body is, is not parsed again.
//!
//! Always   A head is known only by all of its bytes, up to the empty line: whatever stands in it, the parser would say
//!          the same of it again.

use crate::http::BODY_BYTES_MAX;
use bytes::Bytes;
use http::header::{CONNECTION, CONTENT_LENGTH, EXPECT, TRANSFER_ENCODING, UPGRADE};
use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Uri};
use std::ops::Range;

/// A plain request has no more fields than this.
pub(super) const FIELDS_MAX: usize = 32;
/// So long may be what is kept of a connection that may be idle for long, and so many fields may it have: a kilobyte, and a map of
/// two.
const KEPT_BYTES_MAX: usize = 1_024;
const KEPT_FIELDS_MAX: usize = 16;
/// A plain body's length has no more digits than this.
const DIGITS_MAX: usize = 8;

/// What the first bytes of a connection, or those after a request, are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Found {
    /// A request that is whole: so long is its head, and then its body. Its head is in [`Heads::last`].
    Plain(usize, usize),
    /// The beginning of one, or nothing.
    Part,
    /// Something for hyper.
    Other,
}

/// Reads heads, and knows the last one.
#[derive(Debug, Default)]
pub(super) struct Heads {
    last: Option<Head>,
}

#[derive(Debug)]
struct Head {
    /// As it came.
    bytes: Bytes,
    /// Where it says how long the body is; empty, if nowhere.
    digits: Range<usize>,
    request: Parts,
    /// What that says the length is now.
    body: usize,
}

impl Heads {
    /// The request whose head was found last.
    pub(super) fn last(&self) -> Option<&Parts> {
        self.last.as_ref().map(|head| &head.request)
    }

    /// Nothing is kept that is long.
    pub(super) fn forget_long(&mut self) {
        self.last.take_if(|head| {
            head.bytes.len() > KEPT_BYTES_MAX || head.request.headers.len() > KEPT_FIELDS_MAX
        });
    }

    /// What begins here.
    pub(super) fn find(&mut self, bytes: &[u8]) -> Found {
        if let Some((head, body)) = self.last.as_mut().and_then(|last| last.again(bytes)) {
            return if bytes.len() < head + body { Found::Part } else { Found::Plain(head, body) };
        }
        self.parse(bytes)
    }

    fn parse(&mut self, bytes: &[u8]) -> Found {
        if bytes.is_empty() {
            return Found::Part;
        }
        let mut fields = [httparse::EMPTY_HEADER; FIELDS_MAX];
        let mut head = httparse::Request::new(&mut fields);
        let length = match head.parse(bytes) {
            Ok(httparse::Status::Complete(length)) => length,
            Ok(httparse::Status::Partial) => return Found::Part,
            Err(_) => return Found::Other,
        };
        let Some(found) = Head::new(&head, &bytes[..length]) else { return Found::Other };
        let body = found.body;
        self.last = Some(found);
        if bytes.len() < length + body { Found::Part } else { Found::Plain(length, body) }
    }
}

impl Head {
    /// The request that a head describes, if it is one of HTTP/1.1 that gets or posts and nothing else.
    fn new(head: &httparse::Request<'_, '_>, bytes: &[u8]) -> Option<Self> {
        let method = match head.method? {
            "GET" => Method::GET,
            "POST" => Method::POST,
            _ => return None,
        };
        if head.version != Some(1) {
            return None;
        }
        let kept = Bytes::copy_from_slice(bytes);
        let place = |part: &[u8]| {
            let start = part.as_ptr().addr() - bytes.as_ptr().addr();
            start..start + part.len()
        };
        let mut headers = HeaderMap::with_capacity(head.headers.len());
        let mut digits = 0..0;
        for field in head.headers.iter() {
            let name = HeaderName::from_bytes(field.name.as_bytes()).ok()?;
            if name == CONTENT_LENGTH {
                digits = place(field.value);
            }
            let value = HeaderValue::from_maybe_shared(kept.slice(place(field.value))).ok()?;
            headers.append(name, value);
        }
        let uri = Uri::from_maybe_shared(kept.slice(place(head.path?.as_bytes()))).ok()?;
        let (mut request, ()) = Request::new(()).into_parts();
        (request.method, request.uri, request.headers) = (method, uri, headers);
        let body = body_length(&request)?;
        Some(Self { bytes: kept, digits, request, body })
    }

    /// How long head and body are, if they begin with this head, but for how long the body is.
    fn again(&mut self, bytes: &[u8]) -> Option<(usize, usize)> {
        let (before, after) = (&self.bytes[..self.digits.start], &self.bytes[self.digits.end..]);
        let rest = bytes.strip_prefix(before)?;
        if self.digits.is_empty() {
            return rest.starts_with(after).then_some((self.bytes.len(), 0));
        }
        let count = rest.iter().take(DIGITS_MAX + 1).take_while(|b| b.is_ascii_digit()).count();
        let (digits, rest) = rest.split_at(count);
        if !rest.starts_with(after) {
            return None;
        }
        let length = plain_length(digits)?;
        if length != self.body {
            // Nobody asks, but what is told of a request is true.
            self.request.headers.insert(CONTENT_LENGTH, HeaderValue::from(length));
            self.body = length;
        }
        Some((before.len() + count + after.len(), length))
    }
}

/// How long the body is; `None` if it takes more to know than one number, or if more than a body is asked for.
fn body_length(request: &Parts) -> Option<usize> {
    let headers = &request.headers;
    let is_unusual =
        [TRANSFER_ENCODING, UPGRADE, EXPECT].iter().any(|name| headers.contains_key(name));
    let stays = |value: &HeaderValue| value.as_bytes().eq_ignore_ascii_case(b"keep-alive");
    if is_unusual || !headers.get_all(CONNECTION).iter().all(stays) {
        return None;
    }
    let mut lengths = headers.get_all(CONTENT_LENGTH).iter();
    match (lengths.next(), lengths.next()) {
        (None, _) if request.method == Method::GET => Some(0),
        (Some(length), None) if request.method == Method::POST => plain_length(length.as_bytes()),
        _ => None,
    }
}

/// As a number is written, and in no other way: so a number is told as it came.
fn plain_length(digits: &[u8]) -> Option<usize> {
    if digits.len() > 1 && digits.starts_with(b"0") {
        return None;
    }
    if !(1..=DIGITS_MAX).contains(&digits.len()) || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let length = digits.iter().fold(0, |sum, digit| sum * 10 + usize::from(digit - b'0'));
    Some(length).filter(|length| *length <= BODY_BYTES_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn post(body: &str) -> String {
        let length = body.len();
        format!(
            "POST /v1/check HTTP/1.1\r\nHost: here\r\nContent-Length: {length}\r\nX: 1\r\n\r\n{body}"
        )
    }

    const GET: &str = "GET /v1/authorize?deny=403 HTTP/1.1\r\nHost: here\r\nX: 12\r\n\r\n";

    /// What is found, and the request that it is.
    fn found(heads: &mut Heads, bytes: &[u8]) -> (Found, String) {
        let found = heads.find(bytes);
        let request = heads.last().filter(|_| matches!(found, Found::Plain(..)));
        (found, format!("{request:?}"))
    }

    #[test]
    fn a_head_is_known_again_whatever_the_length_of_the_body() {
        let mut heads = Heads::default();
        for body in ["{}", "{ }", "", "a body of forty bytes, or a little more.", "{}"] {
            let said = post(body);
            let head = said.len() - body.len();
            assert_eq!(heads.find(said.as_bytes()), Found::Plain(head, body.len()), "{body}");
            let length = &heads.last().unwrap().headers[CONTENT_LENGTH];
            assert_eq!(length, &body.len().to_string(), "what it says is true");
        }
    }

    #[test]
    fn of_a_known_head_the_body_may_be_on_its_way() {
        let (mut heads, said) = (Heads::default(), post("{}"));
        assert!(matches!(heads.find(said.as_bytes()), Found::Plain(..)));
        for end in 0..said.len() {
            assert_eq!(heads.find(&said.as_bytes()[..end]), Found::Part, "{end}");
        }
    }

    #[test]
    fn a_known_head_with_a_length_that_is_none_is_hypers() {
        for length in
            ["", "-1", "+2", "2, 2", "02", "00", "65537", "999999999", "18446744073709551618"]
        {
            let mut heads = Heads::default();
            assert!(matches!(heads.find(post("{}").as_bytes()), Found::Plain(..)));
            let said = post("{}").replace("Length: 2", &format!("Length: {length}"));
            assert_eq!(Heads::default().find(said.as_bytes()), Found::Other, "{length}");
            assert_eq!(heads.find(said.as_bytes()), Found::Other, "{length}, known");
        }
    }

    #[test]
    fn nothing_is_kept_that_is_long() {
        for (more, is_kept) in [(0, true), (1, false)] {
            let mut heads = Heads::default();
            let said = GET.replace("12", &"y".repeat(KEPT_BYTES_MAX - GET.len() + 2 + more));
            assert_eq!(heads.find(said.as_bytes()), Found::Plain(KEPT_BYTES_MAX + more, 0));
            heads.forget_long();
            assert_eq!(heads.last().is_some(), is_kept);
        }
        for (more, is_kept) in [(0, true), (1, false)] {
            let mut heads = Heads::default();
            let fields = "X: y\r\n".repeat(KEPT_FIELDS_MAX - 2 + more);
            assert!(matches!(
                heads.find(GET.replace("X: 12\r\n", &(fields + "X: 12\r\n")).as_bytes()),
                Found::Plain(..)
            ));
            heads.forget_long();
            assert_eq!(heads.last().is_some(), is_kept, "{more}");
        }
    }

    proptest! {
        /// Whoever came before: what is found is what is found by who knows nobody.
        #[test]
        fn what_is_known_changes_nothing(
            lengths in prop::collection::vec((any::<bool>(), 0_usize..12), 1..6),
            place in any::<prop::sample::Index>(),
            byte in any::<u8>(),
            keeps in any::<bool>(),
        ) {
            let mut heads = Heads::default();
            for (gets, length) in lengths {
                let mut said = if gets { GET.to_owned() } else { post(&"x".repeat(length)) }.into_bytes();
                prop_assert_eq!(found(&mut heads, &said), found(&mut Heads::default(), &said));
                if !keeps {
                    let place = place.index(said.len());
                    said[place] = byte;
                }
                said.extend_from_slice(GET.as_bytes());
                prop_assert_eq!(found(&mut heads, &said), found(&mut Heads::default(), &said));
            }
        }
    }
}
