//! Parses the head of a plain request with `httparse`, hyper's own parser.

use crate::protocol::http::BODY_BYTES_MAX;
use bytes::Bytes;
use http::header::{CONNECTION, CONTENT_LENGTH, EXPECT, TRANSFER_ENCODING, UPGRADE};
use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Uri};

/// Maximum number of header fields of a plain request.
pub(super) const FIELDS_MAX: usize = 32;
/// Maximum number of digits of a plain body's length.
const LENGTH_DIGITS_MAX: usize = 8;

/// What the first bytes of the input are.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "the value is used at once")]
pub(super) enum Parsed {
    /// A complete plain request.
    Plain(Parts, Lengths),
    /// The beginning of a request, or nothing.
    Partial,
    /// Something for hyper.
    NotPlain,
}

/// Lengths of a request's two parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Lengths {
    pub(super) head: usize,
    pub(super) body: usize,
}

/// Parses the request that the input begins with.
pub(super) fn parse(input: &[u8]) -> Parsed {
    if input.is_empty() {
        return Parsed::Partial;
    }
    let mut fields = [httparse::EMPTY_HEADER; FIELDS_MAX];
    let mut head = httparse::Request::new(&mut fields);
    let head_length = match head.parse(input) {
        Ok(httparse::Status::Complete(length)) => length,
        Ok(httparse::Status::Partial) => return Parsed::Partial,
        Err(_) => return Parsed::NotPlain,
    };
    let Some(request) = plain_request(&head, &input[..head_length]) else {
        return Parsed::NotPlain;
    };
    let Some(body_length) = body_length(&request) else { return Parsed::NotPlain };
    if input.len() < head_length + body_length {
        return Parsed::Partial;
    }
    Parsed::Plain(request, Lengths { head: head_length, body: body_length })
}

/// Returns the request if it is a GET or POST of HTTP/1.1.
fn plain_request(head: &httparse::Request<'_, '_>, bytes: &[u8]) -> Option<Parts> {
    let method = match head.method? {
        "GET" => Method::GET,
        "POST" => Method::POST,
        _ => return None,
    };
    if head.version != Some(1) {
        return None;
    }
    // One copy of the head, which its target and all values share.
    let copy = Bytes::copy_from_slice(bytes);
    let shared = |part: &[u8]| {
        let start = part.as_ptr().addr() - bytes.as_ptr().addr();
        copy.slice(start..start + part.len())
    };
    let mut headers = HeaderMap::with_capacity(head.headers.len());
    for field in head.headers.iter() {
        let name = HeaderName::from_bytes(field.name.as_bytes()).ok()?;
        headers.append(name, HeaderValue::from_maybe_shared(shared(field.value)).ok()?);
    }
    let uri = Uri::from_maybe_shared(shared(head.path?.as_bytes())).ok()?;
    let (mut request, ()) = Request::new(()).into_parts();
    (request.method, request.uri, request.headers) = (method, uri, headers);
    Some(request)
}

/// Returns the length of the body; `None` if a field makes the request unusual or the length is not one plain number.
fn body_length(request: &Parts) -> Option<usize> {
    let headers = &request.headers;
    let is_unusual =
        [TRANSFER_ENCODING, UPGRADE, EXPECT].iter().any(|name| headers.contains_key(name));
    let keeps_alive = |value: &HeaderValue| value.as_bytes().eq_ignore_ascii_case(b"keep-alive");
    if is_unusual || !headers.get_all(CONNECTION).iter().all(keeps_alive) {
        return None;
    }
    let mut lengths = headers.get_all(CONTENT_LENGTH).iter();
    match (lengths.next(), lengths.next()) {
        (None, _) if request.method == Method::GET => Some(0),
        (Some(length), None) if request.method == Method::POST => plain_number(length.as_bytes()),
        _ => None,
    }
}

/// Parses digits without a sign, blanks or leading zeros, up to the maximum length of a body.
fn plain_number(digits: &[u8]) -> Option<usize> {
    if digits.len() > 1 && digits.starts_with(b"0") {
        return None;
    }
    if !(1..=LENGTH_DIGITS_MAX).contains(&digits.len()) || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let length = digits.iter().fold(0, |sum, digit| sum * 10 + usize::from(digit - b'0'));
    Some(length).filter(|length| *length <= BODY_BYTES_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const REQUEST: &str =
        "POST /v1/check HTTP/1.1\r\nHost: here\r\nContent-Length: 2\r\nX: 1\r\n\r\n{}";

    #[test]
    fn every_beginning_of_a_plain_request_is_partial() {
        for end in 0..REQUEST.len() {
            let parsed = parse(&REQUEST.as_bytes()[..end]);
            assert!(matches!(parsed, Parsed::Partial), "{end} bytes: {parsed:?}");
        }
        let parsed = parse([REQUEST, REQUEST].concat().as_bytes());
        let head = REQUEST.len() - 2;
        assert!(matches!(parsed, Parsed::Plain(_, Lengths { head: h, body: 2 }) if h == head));
    }

    #[test]
    fn a_length_that_is_not_a_plain_number_is_left_to_hyper() {
        for length in
            ["", "-1", "+2", "2, 2", "02", "00", "65537", "999999999", "18446744073709551618"]
        {
            let request = REQUEST.replace("Length: 2", &format!("Length: {length}"));
            assert!(matches!(parse(request.as_bytes()), Parsed::NotPlain), "{length}");
        }
    }
}
