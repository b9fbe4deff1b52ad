//! The body of a response that went through a layer.

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;
use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

/// Hears of bytes as they flow; when it is dropped, there are no more.
pub(crate) trait Meter: Send {
    fn flowed(&mut self, bytes: u64);
}

pin_project! {
    /// The service's body, perhaps metered, or the whole of ours.
    ///
    /// ```
    /// use http_body::Body;
    /// use tidegate_tower::LimitedBody;
    ///
    /// fn is_empty(body: &LimitedBody<String>) -> bool {
    ///     body.is_end_stream()
    /// }
    /// ```
    pub struct LimitedBody<B> {
        #[pin]
        kind: Kind<B>,
    }
}

pin_project! {
    #[project = KindProjection]
    enum Kind<B> {
        Theirs { #[pin] body: B },
        Metered { #[pin] body: B, meter: Option<Box<dyn Meter>> },
        Ours { bytes: Option<Bytes> },
    }
}

impl<B> LimitedBody<B> {
    #[inline]
    pub(crate) fn theirs(body: B) -> Self {
        Self { kind: Kind::Theirs { body } }
    }

    pub(crate) fn metered(body: B, meter: Box<dyn Meter>) -> Self {
        Self { kind: Kind::Metered { body, meter: Some(meter) } }
    }

    pub(crate) fn ours(bytes: Bytes) -> Self {
        Self { kind: Kind::Ours { bytes: Some(bytes).filter(|bytes| !bytes.is_empty()) } }
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
            KindProjection::Theirs { body } => body.poll_frame(context),
            KindProjection::Metered { body, meter } => {
                let frame = ready!(body.poll_frame(context));
                match &frame {
                    Some(Ok(frame)) => {
                        if let (Some(data), Some(meter)) = (frame.data_ref(), meter.as_mut()) {
                            meter.flowed(data.len() as u64);
                        }
                    }
                    Some(Err(_)) | None => *meter = None,
                }
                Poll::Ready(frame)
            }
            KindProjection::Ours { bytes } => {
                Poll::Ready(bytes.take().map(|bytes| Ok(Frame::data(bytes))))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.kind {
            Kind::Theirs { body } | Kind::Metered { body, .. } => body.is_end_stream(),
            Kind::Ours { bytes } => bytes.is_none(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.kind {
            Kind::Theirs { body } | Kind::Metered { body, .. } => body.size_hint(),
            Kind::Ours { bytes } => {
                SizeHint::with_exact(bytes.as_ref().map_or(0, |bytes| bytes.len() as u64))
            }
        }
    }
}

/// What an extractor of ours makes of nothing.
impl<B: Default> Default for LimitedBody<B> {
    fn default() -> Self {
        Self::theirs(B::default())
    }
}

impl<B> fmt::Debug for LimitedBody<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LimitedBody").finish_non_exhaustive()
    }
}
