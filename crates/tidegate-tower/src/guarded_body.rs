//! A body that holds something until it is done.
//!
//! Always   What it holds is let go once: when the body has ended or failed, or is dropped, whichever comes first.

use crate::limited_body::LimitedBody;
use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;
use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

pin_project! {
    /// A body that holds something, such as a place among those in flight, until it is done.
    ///
    /// ```
    /// use http_body::Body;
    /// use tidegate_tower::GuardedBody;
    ///
    /// fn is_over<G>(body: &GuardedBody<String, G>) -> bool {
    ///     body.is_end_stream()
    /// }
    /// ```
    pub struct GuardedBody<B, G> {
        // Dropped before the guard: what is still in flight has ended when the place is free.
        #[pin]
        body: LimitedBody<B>,
        guard: Option<G>,
    }
}

impl<B: Body<Data = Bytes>, G> GuardedBody<B, G> {
    pub(crate) fn new(body: B, guard: Option<G>) -> Self {
        // Nobody polls a body that has ended before it began.
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
