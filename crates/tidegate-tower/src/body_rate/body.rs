//! A body whose bytes are limited per second.
//!
//! Always   A frame is passed on when its bytes have been admitted, and until then nothing more is read: the sender has to wait,
//!          and at most one frame is buffered. No byte is lost.
//! Always   A body that is dropped gives back its place in the queue.

use crate::key::{KeyBytes, PendingKey};
use bytes::{Buf, Bytes};
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;
use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use tidegate::clock::Sleep;
use tidegate::{Acquire, Clock, Gate, Limiter, Retry, Span, SystemClock, Verdict};

pin_project! {
    /// A body that is read no faster than a limiter admits its bytes.
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
    /// use http_body_util::{BodyExt, Full};
    /// use tidegate::Limiter;
    /// use tidegate_tower::body::ThrottledBody;
    ///
    /// let limiter = Limiter::new("10000/s burst 100".parse()?);
    /// let body = Full::new(bytes::Bytes::from(vec![0; 200]));
    /// let throttled = ThrottledBody::by_key(body, limiter, b"alice");
    /// let whole = throttled.collect().await?.to_bytes(); // 10 ms later
    /// assert_eq!(whole.len(), 200);
    /// # Ok::<(), Box<dyn std::error::Error>>(()) }).unwrap();
    /// ```
    pub struct ThrottledBody<B, C: Clock = SystemClock> {
        #[pin]
        body: B,
        throttle: Option<Throttle<C>>,
        // Bytes that were read and are not admitted yet.
        buffer: Bytes,
        waiting: Waiting<C>,
    }
}

struct Throttle<C: Clock> {
    limit: ByteLimit<C>,
    /// The largest cost that can be admitted at once.
    cost_max: u64,
}

enum ByteLimit<C: Clock> {
    Keyed(Limiter<C>, KeyBytes),
    Gate(Gate<C>),
}

/// What a body waits for before it passes on more bytes.
enum Waiting<C: Clock> {
    Nothing,
    /// The key of the request.
    Key(PendingKey),
    /// The admission of this number of bytes.
    Admission(Acquire<C>, usize),
    /// The time to ask again for an admission that was denied.
    Retry(Sleep),
}

impl<B, C: Clock> ThrottledBody<B, C> {
    /// Makes a body whose bytes are counted for this key.
    pub fn by_key(body: B, limiter: Limiter<C>, key: &[u8]) -> Self {
        Self::keyed(body, limiter, KeyBytes::from_slice(key))
    }

    /// Makes a body whose bytes are counted together with all others of this gate.
    pub fn through(body: B, gate: Gate<C>) -> Self {
        let cost_max = gate.request().cost(0).peek().limit;
        let throttle = Throttle { limit: ByteLimit::Gate(gate), cost_max };
        Self::new(body, Some(throttle), Waiting::Nothing)
    }

    pub(crate) fn keyed(body: B, limiter: Limiter<C>, key: KeyBytes) -> Self {
        let cost_max = limiter.request(&key[..]).cost(0).peek().limit;
        let throttle = Throttle { limit: ByteLimit::Keyed(limiter, key), cost_max };
        Self::new(body, Some(throttle), Waiting::Nothing)
    }

    /// Makes a body whose key has to be waited for; bodies without a key share one.
    pub(crate) fn keyed_later(body: B, limiter: Limiter<C>, key: PendingKey) -> Self {
        let mut body = Self::keyed(body, limiter, KeyBytes::new());
        body.waiting = Waiting::Key(key);
        body
    }

    pub(crate) fn unlimited(body: B) -> Self {
        Self::new(body, None, Waiting::Nothing)
    }

    fn new(body: B, throttle: Option<Throttle<C>>, waiting: Waiting<C>) -> Self {
        Self { body, throttle, buffer: Bytes::new(), waiting }
    }
}

impl<C: Clock> Throttle<C> {
    fn acquire(&self, bytes: u64) -> Acquire<C> {
        match &self.limit {
            ByteLimit::Keyed(limiter, key) => limiter.request(&key[..]).cost(bytes).acquire(),
            ByteLimit::Gate(gate) => gate.request().cost(bytes).acquire(),
        }
    }

    fn sleep(&self, span: Span) -> Sleep {
        let clock = match &self.limit {
            ByteLimit::Keyed(limiter, _) => limiter.clock(),
            ByteLimit::Gate(gate) => gate.clock(),
        };
        clock.sleep_until(clock.now() + span)
    }

    /// Returns the next bytes of the buffer when they are admitted; `None` if the buffer is empty.
    fn poll_admitted(
        &mut self,
        buffer: &mut Bytes,
        waiting: &mut Waiting<C>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Bytes>> {
        loop {
            match waiting {
                Waiting::Key(later) => {
                    let found = ready!(later.as_mut().poll(context));
                    if let ByteLimit::Keyed(_, key) = &mut self.limit {
                        *key = found.unwrap_or(KeyBytes::new());
                    }
                    *waiting = Waiting::Nothing;
                }
                Waiting::Nothing if buffer.is_empty() => return Poll::Ready(None),
                Waiting::Nothing => {
                    let bytes_max = usize::try_from(self.cost_max.max(1)).unwrap_or(usize::MAX);
                    let bytes = buffer.len().min(bytes_max);
                    *waiting = Waiting::Admission(self.acquire(bytes as u64), bytes);
                }
                Waiting::Admission(acquire, bytes) => {
                    let acquired = ready!(Pin::new(acquire).poll(context));
                    let bytes = *bytes;
                    *waiting = Waiting::Nothing;
                    match acquired.map_err(|denied| denied.decision) {
                        Ok(_) => return Poll::Ready(Some(buffer.split_to(bytes))),
                        // The rule was changed, and admits less at once.
                        Err(decision) if decision.limit.max(1) < bytes as u64 => {
                            self.cost_max = decision.limit;
                        }
                        Err(decision) => {
                            *waiting = Waiting::Retry(self.sleep(retry_delay(decision.verdict)));
                        }
                    }
                }
                Waiting::Retry(sleep) => {
                    ready!(Pin::new(sleep).poll(context));
                    *waiting = Waiting::Nothing;
                }
            }
        }
    }
}

impl<B: Body, C: Clock> Body for ThrottledBody<B, C> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        let mut this = self.project();
        if let Some(throttle) = this.throttle {
            loop {
                let admitted = throttle.poll_admitted(this.buffer, this.waiting, context);
                if let Some(bytes) = ready!(admitted) {
                    return Poll::Ready(Some(Ok(Frame::data(bytes))));
                }
                match ready!(this.body.as_mut().poll_frame(context)) {
                    Some(Ok(frame)) => match frame.into_data() {
                        Ok(mut data) if data.has_remaining() => {
                            *this.buffer = data.copy_to_bytes(data.remaining());
                        }
                        Ok(_) => {}
                        Err(other) => return Poll::Ready(Some(Ok(without_data(other)))),
                    },
                    Some(Err(error)) => return Poll::Ready(Some(Err(error))),
                    None => return Poll::Ready(None),
                }
            }
        }
        let frame = ready!(this.body.poll_frame(context));
        let whole = |mut data: B::Data| data.copy_to_bytes(data.remaining());
        Poll::Ready(frame.map(|frame| frame.map(|frame| frame.map_data(whole))))
    }

    fn is_end_stream(&self) -> bool {
        self.buffer.is_empty() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let (mut hint, buffered) = (self.body.size_hint(), self.buffer.len() as u64);
        if let Some(upper) = hint.upper() {
            hint.set_upper(upper.saturating_add(buffered));
        }
        hint.set_lower(hint.lower().saturating_add(buffered));
        hint
    }
}

/// Returns when to ask again for an admission that was denied, because as many bodies wait as the rule allows.
fn retry_delay(verdict: Verdict) -> Span {
    const DELAY_MIN: Span = Span::from_millis(10);
    match verdict {
        Verdict::Deny(Retry::After(span)) => span.max(DELAY_MIN),
        _ => DELAY_MIN,
    }
}

/// Converts a frame that is not data to another data type.
fn without_data<D>(frame: Frame<D>) -> Frame<Bytes> {
    match frame.into_trailers() {
        Ok(trailers) => Frame::trailers(trailers),
        Err(_) => Frame::data(Bytes::new()),
    }
}

impl<B, C: Clock> fmt::Debug for ThrottledBody<B, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ThrottledBody")
            .field("buffered", &self.buffer.len())
            .finish_non_exhaustive()
    }
}
