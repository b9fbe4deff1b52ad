//! A denial by a limit that is alone, as a form: what is the same in each is written once, and the numbers are filled in.
//!
//! Always   It says what [`put_denial`](super::put_denial) says, with the fields of
//!          [`HeaderStyle::Draft11`](super::HeaderStyle): `Retry-After` too.

use super::Answer;
use super::fields::{POLICY, RATE_LIMIT};
use super::policy::retry_after_s;
use super::problem::{NO_STORE, PROBLEM, put_allow, put_numbers, put_start, put_violated};
use super::recent::{Recent, Says};
use crate::short::{Out, Short};
use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode};
use std::cell::RefCell;
use std::thread::LocalKey;

/// Bodies are rarely longer. What is written on the stack is copied to memory of just its size, once; bytes from a
/// vector that has room for more would need a second piece of memory.
const BODY_BYTES: usize = 512;

#[derive(Clone, Debug)]
pub(super) struct Form {
    /// All fields, of which the first two are [`BLANKS`]. To copy a map is cheaper than to make one, which hashes every
    /// name.
    fields: HeaderMap,
    /// What stands between the status and the numbers.
    names: Box<[u8]>,
}

/// The fields that are filled in.
const BLANKS: [HeaderName; 2] = [RATE_LIMIT, RETRY_AFTER];
pub(super) const BLANK: HeaderValue = HeaderValue::from_static("");

impl Form {
    /// `None` if a map goes through its fields in another order than they were put in: it does not promise that.
    pub(super) fn new(name: &str, policy: HeaderValue) -> Option<Self> {
        let mut fields: HeaderMap = BLANKS.into_iter().map(|name| (name, BLANK)).collect();
        fields.insert(CONTENT_TYPE, PROBLEM);
        fields.insert(CACHE_CONTROL, NO_STORE);
        fields.insert(POLICY, policy);
        if !fields.keys().take(BLANKS.len()).eq(&BLANKS) {
            return None;
        }
        let mut names = Vec::new();
        put_violated(&mut names, std::iter::once(name));
        put_allow(&mut names, false);
        Some(Self { fields, names: names.into_boxed_slice() })
    }

    /// The response, with what is `left` in its field.
    #[inline]
    pub(super) fn filled(
        &self,
        status: StatusCode,
        left: HeaderValue,
        answer: &Answer,
    ) -> Response<Bytes> {
        let mut response = Response::new(self.body(status, answer));
        *response.status_mut() = status;
        let headers = response.headers_mut();
        if let Some(seconds) = retry_after_s(answer) {
            *headers = self.fields([left, Seconds(seconds).value()]);
        } else {
            *headers = self.fields([left, BLANK]);
            headers.remove(RETRY_AFTER);
        }
        response
    }

    #[inline]
    fn fields(&self, values: [HeaderValue; 2]) -> HeaderMap {
        let mut fields = self.fields.clone();
        for (blank, value) in fields.values_mut().zip(values) {
            *blank = value;
        }
        fields
    }

    fn body(&self, status: StatusCode, answer: &Answer) -> Bytes {
        let mut body: Short<BODY_BYTES> = Short::new();
        put_start(&mut body, status);
        body.put(&self.names);
        put_numbers(&mut body, answer);
        body.put(b"}");
        Bytes::copy_from_slice(body.as_bytes())
    }
}

/// The value of `Retry-After`.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Seconds(u64);

impl Says for Seconds {
    #[inline]
    fn recent() -> &'static LocalKey<RefCell<Recent<Self>>> {
        thread_local! {
            static RECENT: RefCell<Recent<Seconds>> = const { RefCell::new(Recent::new()) };
        }
        &RECENT
    }

    #[inline]
    fn number(self) -> u64 {
        self.0
    }

    fn written(self) -> HeaderValue {
        self.0.into()
    }
}
