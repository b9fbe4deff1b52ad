//! The body of a response of a layer: the service's, or a rejection.
//!
//! Always   A permit that a body holds is released once: when the body has ended or failed, or is dropped, whichever comes
//!          first.

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;
use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

/// What a body holds until it has ended: a permit, or the charges for its bytes.
pub trait BodyGuard: Send + 'static {
    /// Is called with the number of bytes of each frame.
    fn flowed(&mut self, _bytes: u64) {}
}

pin_project! {
    /// The body of a response: the service's, which may hold a permit or charge for its bytes, or that of a rejection.
    pub struct LimitedBody<B> {
        #[pin]
        kind: Kind<B>,
    }
}

pin_project! {
    // The rare variants are boxed, so that a body that is a pointer, as axum's is, does not get larger.
    #[project = KindProjection]
    enum Kind<B> {
        Service { #[pin] body: B },
        Rare { rare: Pin<Box<Rare<B>>> },
    }
}

pin_project! {
    #[project = RareProjection]
    enum Rare<B> {
        // The body is dropped before the guard, so that a permit is released after the body has ended.
        Guarded { #[pin] body: B, guard: Option<Box<dyn BodyGuard>> },
        Rejection { bytes: Option<Bytes> },
    }
}

impl<B> LimitedBody<B> {
    #[inline]
    pub(crate) fn of_service(body: B) -> Self {
        Self { kind: Kind::Service { body } }
    }

    pub(crate) fn guarded(body: B, guard: Box<dyn BodyGuard>) -> Self {
        Self::rare(Rare::Guarded { body, guard: Some(guard) })
    }

    pub(crate) fn of_rejection(bytes: Bytes) -> Self {
        Self::rare(Rare::Rejection { bytes: Some(bytes).filter(|bytes| !bytes.is_empty()) })
    }

    fn rare(rare: Rare<B>) -> Self {
        Self { kind: Kind::Rare { rare: Box::pin(rare) } }
    }
}

impl<B: Body<Data = Bytes>> LimitedBody<B> {
    /// Returns a body that holds the permit until it has ended.
    pub(crate) fn holding(body: B, permit: Option<impl BodyGuard>) -> Self {
        match permit {
            // An empty body may never be polled.
            Some(permit) if !body.is_end_stream() => Self::guarded(body, Box::new(permit)),
            _ => Self::of_service(body),
        }
    }
}

impl<B: Body<Data = Bytes>> Body for LimitedBody<B> {
    type Data = Bytes;
    type Error = B::Error;

    #[inline]
    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        match self.project().kind.project() {
            KindProjection::Service { body } => body.poll_frame(context),
            KindProjection::Rare { rare } => rare.as_mut().poll_frame(context),
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.kind {
            Kind::Service { body } => body.is_end_stream(),
            Kind::Rare { rare } => match &**rare {
                Rare::Guarded { body, .. } => body.is_end_stream(),
                Rare::Rejection { bytes } => bytes.is_none(),
            },
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.kind {
            Kind::Service { body } => body.size_hint(),
            Kind::Rare { rare } => match &**rare {
                Rare::Guarded { body, .. } => body.size_hint(),
                Rare::Rejection { bytes } => {
                    SizeHint::with_exact(bytes.as_ref().map_or(0, |bytes| bytes.len() as u64))
                }
            },
        }
    }
}

impl<B: Body<Data = Bytes>> Rare<B> {
    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        match self.project() {
            RareProjection::Guarded { body, guard } => {
                let frame = ready!(body.poll_frame(context));
                match &frame {
                    Some(Ok(frame)) => {
                        if let (Some(data), Some(guard)) = (frame.data_ref(), guard.as_mut()) {
                            guard.flowed(data.len() as u64);
                        }
                    }
                    Some(Err(_)) | None => *guard = None,
                }
                Poll::Ready(frame)
            }
            RareProjection::Rejection { bytes } => {
                Poll::Ready(bytes.take().map(|bytes| Ok(Frame::data(bytes))))
            }
        }
    }
}

impl<B: Default> Default for LimitedBody<B> {
    fn default() -> Self {
        Self::of_service(B::default())
    }
}

impl<B> fmt::Debug for LimitedBody<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LimitedBody").finish_non_exhaustive()
    }
}

#[cfg(all(test, feature = "axum"))]
mod tests {
    use super::*;

    #[test]
    fn a_limited_body_is_as_small_as_the_body() {
        assert_eq!(size_of::<LimitedBody<axum::body::Body>>(), size_of::<axum::body::Body>());
    }
}
