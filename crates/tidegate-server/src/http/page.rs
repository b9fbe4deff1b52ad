//! An answer while it is written: its fields and its body, one after the other in one buffer.
//!
//! Always   The buffer is shared by the fields and the body, not copied: an answer is three allocations.

use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderName};
use http::{HeaderMap, HeaderValue, Response, StatusCode};
use http_body_util::Full;
use tidegate_tower::Fields;

/// What goes out.
pub type Answered = Response<Full<Bytes>>;

/// What a body is.
pub(crate) const JSON: HeaderValue = HeaderValue::from_static("application/json");
/// What the body of a refusal is.
pub(crate) const PROBLEM: HeaderValue = HeaderValue::from_static("application/problem+json");

/// An answer while it is written.
pub(crate) struct Page {
    status: StatusCode,
    bytes: Vec<u8>,
    /// Each field, and where it ends; the next one begins there.
    fields: Vec<(HeaderName, usize)>,
}

impl Page {
    pub(crate) fn new(status: StatusCode) -> Self {
        Self { status, bytes: Vec::with_capacity(512), fields: Vec::with_capacity(4) }
    }

    /// The whole, with the body that `write` appends.
    pub(crate) fn body(mut self, kind: HeaderValue, write: impl FnOnce(&mut Vec<u8>)) -> Answered {
        write(&mut self.bytes);
        let bytes = Bytes::from(self.bytes);
        // hyper adds two of its own.
        let mut headers = HeaderMap::with_capacity(self.fields.len() + 4);
        headers.insert(CONTENT_TYPE, kind);
        // A decision is true once (RFC 6585 says so of 429).
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        let mut start = 0;
        for (name, end) in self.fields {
            let value = HeaderValue::from_maybe_shared(bytes.slice(start..end));
            headers.append(name, value.expect("fields are written in visible ASCII"));
            start = end;
        }
        let mut response = Response::new(Full::new(bytes.slice(start..)));
        *response.status_mut() = self.status;
        *response.headers_mut() = headers;
        response
    }

    /// The whole, without a body.
    pub(crate) fn empty(self) -> Answered {
        let mut response = self.body(JSON, |_| ());
        response.headers_mut().remove(CONTENT_TYPE);
        response
    }
}

impl Fields for Page {
    type Value = Vec<u8>;

    fn field(&mut self, name: HeaderName, write: impl FnOnce(&mut Vec<u8>)) {
        write(&mut self.bytes);
        self.fields.push((name, self.bytes.len()));
    }
}
