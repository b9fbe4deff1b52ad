//! A response: the values of its header fields and its body, in one buffer.
//!
//! To add a header field to every response, add it to [`RawResponse::fields`] and [`RawResponse::into_response`]. Fields of
//! decisions are in `tidegate-http` (`rate_limit_fields.rs`), fields of errors in `problem.rs`.
//!
//! Invariant Nothing is copied. `net::http1::plain` writes the fields as they are; only hyper needs a map of fields
//!           ([`RawResponse::into_response`]).

use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderName};
use http::{HeaderMap, HeaderValue, Response, StatusCode};
use http_body_util::Full;
use tidegate_http::FieldWriter;

/// The content type of decisions.
pub(crate) const JSON: HeaderValue = HeaderValue::from_static("application/json");
/// The content type of denials and problems.
pub(crate) const PROBLEM: HeaderValue = HeaderValue::from_static("application/problem+json");
/// A decision must not be cached (RFC 6585 requires it for 429).
const NO_STORE: HeaderValue = HeaderValue::from_static(NO_STORE_TEXT);
const NO_STORE_TEXT: &str = "no-store";

/// A response that is being written.
#[derive(Debug)]
pub(crate) struct ResponseBuilder {
    status: StatusCode,
    bytes: Vec<u8>,
    /// The name of each field, and the end of its value; the next value begins there.
    fields: Vec<(HeaderName, usize)>,
}

/// A complete response.
#[derive(Debug)]
pub struct RawResponse {
    parts: ResponseBuilder,
    content_type: Option<HeaderValue>,
}

impl ResponseBuilder {
    pub(crate) fn new(status: StatusCode) -> Self {
        Self { status, bytes: Vec::with_capacity(512), fields: Vec::with_capacity(4) }
    }

    /// Completes the response with the body that `write` appends.
    pub(crate) fn body(
        mut self,
        content_type: HeaderValue,
        write: impl FnOnce(&mut Vec<u8>),
    ) -> RawResponse {
        write(&mut self.bytes);
        RawResponse { parts: self, content_type: Some(content_type) }
    }

    /// Completes the response without a body.
    pub(crate) fn empty(self) -> RawResponse {
        RawResponse { parts: self, content_type: None }
    }
}

impl FieldWriter for ResponseBuilder {
    type Value = Vec<u8>;

    fn field(&mut self, name: HeaderName, write: impl FnOnce(&mut Vec<u8>)) {
        write(&mut self.bytes);
        self.fields.push((name, self.bytes.len()));
    }
}

impl RawResponse {
    /// Returns the status code.
    pub fn status(&self) -> StatusCode {
        self.parts.status
    }

    /// Returns the header fields, without `content-length` and `date`.
    pub(crate) fn fields(&self) -> impl Iterator<Item = (&HeaderName, &[u8])> {
        let content_type = self.content_type.iter().map(|value| (&CONTENT_TYPE, value.as_bytes()));
        let fixed = content_type.chain([(&CACHE_CONTROL, NO_STORE_TEXT.as_bytes())]);
        let mut start = 0;
        fixed.chain(self.parts.fields.iter().map(move |(name, end)| {
            let value = &self.parts.bytes[start..*end];
            start = *end;
            (name, value)
        }))
    }

    /// Returns the body.
    pub fn body(&self) -> &[u8] {
        &self.parts.bytes[self.body_start()..]
    }

    /// Converts into a response for hyper.
    pub(crate) fn into_response(self) -> Response<Full<Bytes>> {
        let body_start = self.body_start();
        let ResponseBuilder { status, bytes, fields } = self.parts;
        let bytes = Bytes::from(bytes);
        // hyper adds two fields.
        let mut headers = HeaderMap::with_capacity(fields.len() + 4);
        if let Some(content_type) = self.content_type {
            headers.insert(CONTENT_TYPE, content_type);
        }
        headers.insert(CACHE_CONTROL, NO_STORE);
        let mut start = 0;
        for (name, end) in fields {
            let value = HeaderValue::from_maybe_shared(bytes.slice(start..end));
            headers.append(name, value.expect("fields are written in visible ASCII"));
            start = end;
        }
        let mut response = Response::new(Full::new(bytes.slice(body_start..)));
        (*response.status_mut(), *response.headers_mut()) = (status, headers);
        response
    }

    fn body_start(&self) -> usize {
        self.parts.fields.last().map_or(0, |(_, end)| *end)
    }
}
