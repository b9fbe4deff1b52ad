//! A body that flows only so fast.
//!
//! Always   A piece goes on when its bytes have been admitted, and until then nothing more is read: who sends is held
//!          back, and no more than one piece is kept. Nothing is lost, nothing is dropped.
//! Always   Dropped at any point it gives back the turn that it waits for.

use crate::key::{KeyBytes, PendingKey};
use bytes::{Buf, Bytes};
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;
use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use tidegate::clock::Sleep;
use tidegate::{Acquire, Clock, Gate, Limiter, Retry, SystemClock, Verdict};

pin_project! {
    /// A body that flows no faster than a limiter admits its bytes.
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
    /// use http_body_util::{BodyExt, Full};
    /// use tidegate::Limiter;
    /// use tidegate_tower::ThrottledBody;
    ///
    /// let limiter = Limiter::new("10000/s burst 100".parse()?);
    /// let body = Full::new(bytes::Bytes::from(vec![0; 200]));
    /// let paced = ThrottledBody::by_key(body, limiter, b"alice");
    /// let whole = paced.collect().await?.to_bytes(); // 10 ms later
    /// assert_eq!(whole.len(), 200);
    /// # Ok::<(), Box<dyn std::error::Error>>(()) }).unwrap();
    /// ```
    pub struct ThrottledBody<B, C: Clock = SystemClock> {
        #[pin]
        body: B,
        pace: Option<Pace<C>>,
        // What has been read and not admitted yet.
        held: Bytes,
        waits: Waits<C>,
    }
}

/// How fast, and who is counted.
struct Pace<C: Clock> {
    meter: Meter<C>,
    /// No more than this is ever admitted at once.
    most: u64,
}

enum Meter<C: Clock> {
    Keyed(Limiter<C>, KeyBytes),
    Gate(Gate<C>),
}

/// What is waited for before more can flow.
enum Waits<C: Clock> {
    Nothing,
    /// Whose bytes these are.
    Key(PendingKey),
    /// A turn for so many bytes.
    Turn(Acquire<C>, usize),
    /// There is no turn to be had now.
    Time(Sleep),
}

impl<B, C: Clock> ThrottledBody<B, C> {
    /// A body whose bytes are counted for this key.
    ///
    /// ```
    /// # use tidegate_tower::ThrottledBody;
    /// let limiter = tidegate::Limiter::new("1000000/s".parse()?);
    /// let body = ThrottledBody::by_key(String::from("text"), limiter, b"alice");
    /// # Ok::<(), tidegate::RuleError>(())
    /// ```
    pub fn by_key(body: B, limiter: Limiter<C>, key: &[u8]) -> Self {
        Self::keyed(body, limiter, KeyBytes::from_slice(key))
    }

    /// A body whose bytes are counted together with all others at this gate.
    ///
    /// ```
    /// # use tidegate_tower::ThrottledBody;
    /// let gate = tidegate::Gate::new("1000000/s".parse()?);
    /// let body = ThrottledBody::through(String::from("text"), gate);
    /// # Ok::<(), tidegate::RuleError>(())
    /// ```
    pub fn through(body: B, gate: Gate<C>) -> Self {
        let most = gate.request().cost(0).peek().limit;
        Self::new(body, Some(Pace { meter: Meter::Gate(gate), most }), Waits::Nothing)
    }

    pub(crate) fn keyed(body: B, limiter: Limiter<C>, key: KeyBytes) -> Self {
        let most = limiter.request(&key[..]).cost(0).peek().limit;
        Self::new(body, Some(Pace { meter: Meter::Keyed(limiter, key), most }), Waits::Nothing)
    }

    /// By a key that has to be found out; those without share one.
    pub(crate) fn keyed_later(body: B, limiter: Limiter<C>, key: PendingKey) -> Self {
        let mut paced = Self::keyed(body, limiter, KeyBytes::new());
        paced.waits = Waits::Key(key);
        paced
    }

    /// As fast as it comes.
    pub(crate) fn unpaced(body: B) -> Self {
        Self::new(body, None, Waits::Nothing)
    }

    fn new(body: B, pace: Option<Pace<C>>, waits: Waits<C>) -> Self {
        Self { body, pace, held: Bytes::new(), waits }
    }
}

impl<C: Clock> Pace<C> {
    fn acquire(&self, bytes: u64) -> Acquire<C> {
        match &self.meter {
            Meter::Keyed(limiter, key) => limiter.request(&key[..]).cost(bytes).acquire(),
            Meter::Gate(gate) => gate.request().cost(bytes).acquire(),
        }
    }

    fn sleep(&self, span: tidegate::Span) -> Sleep {
        match &self.meter {
            Meter::Keyed(limiter, _) => limiter.clock().sleep_until(limiter.clock().now() + span),
            Meter::Gate(gate) => gate.clock().sleep_until(gate.clock().now() + span),
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
        if let Some(pace) = this.pace {
            loop {
                if let Some(piece) = ready!(admitted(pace, this.held, this.waits, context)) {
                    return Poll::Ready(Some(Ok(Frame::data(piece))));
                }
                match ready!(this.body.as_mut().poll_frame(context)) {
                    Some(Ok(frame)) => match frame.into_data() {
                        Ok(mut data) if data.has_remaining() => {
                            *this.held = data.copy_to_bytes(data.remaining());
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
        self.held.is_empty() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let (mut hint, held) = (self.body.size_hint(), self.held.len() as u64);
        if let Some(upper) = hint.upper() {
            hint.set_upper(upper.saturating_add(held));
        }
        hint.set_lower(hint.lower().saturating_add(held));
        hint
    }
}

/// A piece of what is held, when its turn has come; nothing if nothing is held.
fn admitted<C: Clock>(
    pace: &mut Pace<C>,
    held: &mut Bytes,
    waits: &mut Waits<C>,
    context: &mut Context<'_>,
) -> Poll<Option<Bytes>> {
    loop {
        match waits {
            Waits::Key(later) => {
                let found = ready!(later.as_mut().poll(context));
                if let Meter::Keyed(_, key) = &mut pace.meter {
                    *key = found.unwrap_or(KeyBytes::new());
                }
                *waits = Waits::Nothing;
            }
            Waits::Nothing if held.is_empty() => return Poll::Ready(None),
            Waits::Nothing => {
                let most = usize::try_from(pace.most.max(1)).unwrap_or(usize::MAX);
                let bytes = held.len().min(most);
                *waits = Waits::Turn(pace.acquire(bytes as u64), bytes);
            }
            Waits::Turn(acquire, bytes) => {
                let answer = ready!(Pin::new(acquire).poll(context));
                let bytes = *bytes;
                *waits = Waits::Nothing;
                match answer.map_err(|denied| denied.decision) {
                    Ok(_) => return Poll::Ready(Some(held.split_to(bytes))),
                    // The rule has changed, and admits less at once.
                    Err(decision) if decision.limit.max(1) < bytes as u64 => {
                        pace.most = decision.limit;
                    }
                    Err(decision) => {
                        *waits = Waits::Time(pace.sleep(later(decision.verdict)));
                    }
                }
            }
            Waits::Time(sleep) => {
                ready!(Pin::new(sleep).poll(context));
                *waits = Waits::Nothing;
            }
        }
    }
}

/// When to ask again for a turn that cannot be had, because as many as can be wait already.
fn later(verdict: Verdict) -> tidegate::Span {
    const SOON: tidegate::Span = tidegate::Span::from_millis(10);
    match verdict {
        Verdict::Deny(Retry::After(span)) => span.max(SOON),
        _ => SOON,
    }
}

/// A frame that has none is the same, whatever data there might have been.
fn without_data<D>(frame: Frame<D>) -> Frame<Bytes> {
    match frame.into_trailers() {
        Ok(trailers) => Frame::trailers(trailers),
        Err(_) => Frame::data(Bytes::new()),
    }
}

impl<B, C: Clock> fmt::Debug for ThrottledBody<B, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ThrottledBody").field("held", &self.held.len()).finish_non_exhaustive()
    }
}
