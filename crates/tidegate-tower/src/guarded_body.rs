//! A body that holds a permit until it has ended.
//!
//! Always   The permit is released once: when the body has ended or failed, or is dropped, whichever comes first.

use crate::limited_body::LimitedBody;
use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;
use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

pin_project! {
    /// A response body that holds a permit, such as one of the requests in flight, until the body has ended.
    pub struct GuardedBody<B, G> {
        // Dropped before the guard, so that the permit is released after the body has ended.
        #[pin]
        body: LimitedBody<B>,
        guard: Option<G>,
    }
}

impl<B: Body<Data = Bytes>, G> GuardedBody<B, G> {
    pub(crate) fn new(body: B, guard: Option<G>) -> Self {
        // An empty body may never be polled.
        let guard = guard.filter(|_| !body.is_end_stream());
        Self { body: LimitedBody::theirs(body), guard }
    }
}

impl<B, G> GuardedBody<B, G> {
    pub(crate) fn ours(bytes: Bytes) -> Self {
        Self { body: LimitedBody::ours(bytes), guard: None }
    }
}

impl<B: Body<Data = Bytes>, G> Body for GuardedBody<B, G> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        let this = self.project();
        let frame = ready!(this.body.poll_frame(context));
        if !matches!(frame, Some(Ok(_))) {
            *this.guard = None;
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl<B, G> fmt::Debug for GuardedBody<B, G> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GuardedBody")
            .field("is_held", &self.guard.is_some())
            .finish_non_exhaustive()
    }
}
