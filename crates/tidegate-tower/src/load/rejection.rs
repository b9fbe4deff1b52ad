//! The response to a request that is rejected because of load.
//!
//! Always   It says when to retry, whatever else it says.
//! Rounding `Retry-After` is rounded up, and never 0.

use crate::head::Head;
use crate::jitter::Jitter;
use crate::rejection;
use bytes::Bytes;
use http::Response;
use http::header::RETRY_AFTER;
use std::fmt;
use std::sync::Arc;
use tidegate::{Decision, Retry, Span, Verdict};
use tidegate_http::{ByteWriter as _, FieldWriter as _, RETRY_ON_RELEASE, retry_after_secs};

/// Makes the response of a program to a rejected request.
pub(super) type MakeRejection<E> = Arc<dyn Fn(&Head<'_>, &E) -> Response<Bytes> + Send + Sync>;

pub(super) struct LoadRejection<E> {
    pub(super) retry_after: Span,
    pub(super) jitter: Jitter,
    pub(super) make_rejection: Option<MakeRejection<E>>,
}

impl<E: fmt::Display> LoadRejection<E> {
    pub(super) fn response(&self, head: &Head<'_>, refusal: &E) -> Response<Bytes> {
        let mut response = match &self.make_rejection {
            Some(make) => make(head, refusal),
            None => rejection::reduced_capacity(head, &refusal.to_string()),
        };
        let denied = Decision::without_state(Verdict::Deny(Retry::After(self.retry_after)));
        if let Some(seconds) = retry_after_secs(&self.jitter.spread(denied)) {
            response.headers_mut().field(RETRY_AFTER, |out| out.put_number(seconds));
        }
        response
    }
}

impl<E> Default for LoadRejection<E> {
    fn default() -> Self {
        // It is unknown when the load ends.
        Self {
            retry_after: RETRY_ON_RELEASE,
            jitter: Jitter::new(Span::ZERO),
            make_rejection: None,
        }
    }
}

impl<E> Clone for LoadRejection<E> {
    fn clone(&self) -> Self {
        let Self { retry_after, jitter, make_rejection } = self;
        Self {
            retry_after: *retry_after,
            jitter: jitter.clone(),
            make_rejection: make_rejection.clone(),
        }
    }
}
