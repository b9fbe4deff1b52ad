//! What those are told who are turned away.
//!
//! Always   They are told when to come back, whatever else the response says.
//! Rounding `Retry-After` is rounded up, and never 0.

use crate::head::Head;
use crate::jitter::Jitter;
use crate::refusal;
use bytes::Bytes;
use http::Response;
use http::header::RETRY_AFTER;
use std::fmt;
use std::sync::Arc;
use tidegate::{Decision, Retry, Span, Verdict};
use tidegate_http::{ByteWriter as _, FieldWriter as _, RETRY_ON_RELEASE, retry_after_secs};

/// Makes a response of your own for who is turned away.
pub(super) type Maker<E> = Arc<dyn Fn(&Head<'_>, &E) -> Response<Bytes> + Send + Sync>;

pub(super) struct Away<E> {
    pub(super) retry_after: Span,
    pub(super) jitter: Jitter,
    pub(super) maker: Option<Maker<E>>,
}

impl<E: fmt::Display> Away<E> {
    pub(super) fn response(&self, head: &Head<'_>, refusal: &E) -> Response<Bytes> {
        let mut response = match &self.maker {
            Some(make) => make(head, refusal),
            None => refusal::reduced_capacity(head, &refusal.to_string()),
        };
        let denied = Decision::without_state(Verdict::Deny(Retry::After(self.retry_after)));
        if let Some(seconds) = retry_after_secs(&self.jitter.spread(denied)) {
            response.headers_mut().field(RETRY_AFTER, |out| out.put_number(seconds));
        }
        response
    }
}

impl<E> Default for Away<E> {
    fn default() -> Self {
        // Nobody knows when load goes down.
        Self { retry_after: RETRY_ON_RELEASE, jitter: Jitter::new(Span::ZERO), maker: None }
    }
}

impl<E> Clone for Away<E> {
    fn clone(&self) -> Self {
        let Self { retry_after, jitter, maker } = self;
        Self { retry_after: *retry_after, jitter: jitter.clone(), maker: maker.clone() }
    }
}
