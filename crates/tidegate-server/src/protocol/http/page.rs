//! An answer: its fields and its body, one after the other in one buffer.
//!
//! Always   The buffer is shared by the fields and the body, not copied. Who writes to a socket by itself takes them as they
//!          are; only hyper needs a map of fields, and gets one ([`Answered::into_response`]).

use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderName};
use http::{HeaderMap, HeaderValue, Response, StatusCode};
use http_body_util::Full;
use tidegate_http::FieldWriter;

/// What a body is.
pub(crate) const JSON: HeaderValue = HeaderValue::from_static("application/json");
/// What the body of a refusal is.
pub(crate) const PROBLEM: HeaderValue = HeaderValue::from_static("application/problem+json");
/// A decision is true once (RFC 6585 says so of 429).
const NO_STORE: HeaderValue = HeaderValue::from_static(NO_STORE_TEXT);
const NO_STORE_TEXT: &str = "no-store";

/// An answer while it is written.
#[derive(Debug)]
pub(crate) struct Page {
    status: StatusCode,
    bytes: Vec<u8>,
    /// Each field, and where it ends; the next one begins there.
    fields: Vec<(HeaderName, usize)>,
}

/// What goes out.
#[derive(Debug)]
pub struct Answered {
    page: Page,
    /// What its body is, if it has one.
    kind: Option<HeaderValue>,
}

impl Page {
    pub(crate) fn new(status: StatusCode) -> Self {
        Self { status, bytes: Vec::with_capacity(512), fields: Vec::with_capacity(4) }
    }

    /// The whole, with the body that `write` appends.
    pub(crate) fn body(mut self, kind: HeaderValue, write: impl FnOnce(&mut Vec<u8>)) -> Answered {
        write(&mut self.bytes);
        Answered { page: self, kind: Some(kind) }
    }

    /// The whole, without a body.
    pub(crate) fn empty(self) -> Answered {
        Answered { page: self, kind: None }
    }
}

impl FieldWriter for Page {
    type Value = Vec<u8>;

    fn field(&mut self, name: HeaderName, write: impl FnOnce(&mut Vec<u8>)) {
        write(&mut self.bytes);
        self.fields.push((name, self.bytes.len()));
    }
}

impl Answered {
    /// What is said in three digits.
    pub fn status(&self) -> StatusCode {
        self.page.status
    }

    /// What is said besides the body; not how long that is, nor when it was said.
    pub(crate) fn fields(&self) -> impl Iterator<Item = (&HeaderName, &[u8])> {
        let kind = self.kind.iter().map(|kind| (&CONTENT_TYPE, kind.as_bytes()));
        let fixed = kind.chain([(&CACHE_CONTROL, NO_STORE_TEXT.as_bytes())]);
        let mut start = 0;
        fixed.chain(self.page.fields.iter().map(move |(name, end)| {
            let value = &self.page.bytes[start..*end];
            start = *end;
            (name, value)
        }))
    }

    /// The rest of it.
    pub fn body(&self) -> &[u8] {
        &self.page.bytes[self.body_start()..]
    }

    /// The same for hyper, whom others ask.
    pub(crate) fn into_response(self) -> Response<Full<Bytes>> {
        let body_start = self.body_start();
        let Page { status, bytes, fields } = self.page;
        let bytes = Bytes::from(bytes);
        // hyper adds two of its own.
        let mut headers = HeaderMap::with_capacity(fields.len() + 4);
        if let Some(kind) = self.kind {
            headers.insert(CONTENT_TYPE, kind);
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
        self.page.fields.last().map_or(0, |(_, end)| *end)
    }
}
