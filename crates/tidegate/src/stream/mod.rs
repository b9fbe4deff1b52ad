//! Streams that keep to a limit, and consumers that work through them (P4).
//!
//! Always   An item is taken from the source only when the one before it has been passed on, so at most one is
//!          held here: how much it costs is known only once it is there. It is passed on, had back by `into_parts`, or
//!          dropped with the stream that holds it.
//! Always   What waits has been charged for an item that exists. Whoever stops gives back the turn that has not come.

mod consume;
mod toll;

pub use consume::Consume;

use crate::clock::{Clock, SystemClock};
use crate::gate::Gate;
use crate::request::Request;
use futures_core::Stream;
use pin_project_lite::pin_project;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use toll::Toll;

/// Adds [`limited`](Self::limited) to every stream.
///
/// ```
/// use tidegate::{Gate, LimitStream};
/// use tokio_stream::StreamExt;
///
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// let gate = Gate::new("1000/s burst 1".parse()?);
/// let mut slow = tokio_stream::iter(["a", "b", "c"]).limited(&gate);
/// while let Some(item) = slow.next().await {
///     println!("{item}"); // a millisecond apart
/// }
/// # Ok::<(), tidegate::RuleError>(()) }).unwrap();
/// ```
pub trait LimitStream: Stream + Sized {
    /// The same items, each when the limit lets it pass. `by` is a `&Gate`, or what
    /// [`Limiter::ask`](crate::Limiter::request) makes of a key.
    ///
    /// Each item costs 1; [`Limited::cost`] says otherwise. The limit is asked with all the max_wait in the world,
    /// whatever [`within`](Request::within) said: nothing is refused and nothing is dropped. An item that costs more
    /// than the limit can admit at once pays in parts, and passes when it has paid the last.
    ///
    /// ```
    /// use tidegate::{Limiter, LimitStream};
    /// use tokio_stream::StreamExt;
    ///
    /// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
    /// let per_tenant = Limiter::new("1000/s".parse()?);
    /// let items = tokio_stream::iter(0..3).limited(per_tenant.request("acme"));
    /// assert_eq!(items.collect::<Vec<_>>().await, [0, 1, 2]);
    /// # Ok::<(), tidegate::RuleError>(()) }).unwrap();
    /// ```
    fn limited<C: Clock>(self, by: impl Into<Request<C>>) -> Limited<Self, C> {
        Limited { source: self, held: None, toll: Toll::new(by.into()), cost: |_| 1 }
    }
}

impl<S: Stream> LimitStream for S {}

impl<C: Clock> From<&Gate<C>> for Request<C> {
    fn from(gate: &Gate<C>) -> Self {
        gate.request()
    }
}

pin_project! {
    /// A stream that keeps to a limit; made by [`limited`](LimitStream::limited).
    ///
    /// Dropped, it drops the item that it has taken from the source and not passed on, if there is one, and gives back
    /// that item's turn. A source that lives on, such as one that was lent by `&mut`, does not have the item any more:
    /// [`into_parts`](Self::into_parts) gives it back. To drop a `next()` is not to drop the stream, and loses nothing.
    ///
    /// ```
    /// use tidegate::{Gate, LimitStream};
    /// use tokio_stream::StreamExt;
    ///
    /// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
    /// let gate = Gate::new("1000000/s".parse()?);
    /// let chunks = tokio_stream::iter([vec![0_u8; 1_000], vec![0; 500]]);
    /// let paced = chunks.limited(&gate).cost(|chunk| chunk.len()); // a megabyte a second
    /// assert_eq!(paced.collect::<Vec<_>>().await.len(), 2);
    /// # Ok::<(), tidegate::RuleError>(()) }).unwrap();
    /// ```
    #[must_use = "streams do nothing unless polled"]
    pub struct Limited<S: Stream, C: Clock = SystemClock, F = fn(&<S as Stream>::Item) -> u64> {
        #[pin]
        source: S,
        // Taken from the source, not passed on yet.
        held: Option<S::Item>,
        toll: Toll<C>,
        cost: F,
    }
}

impl<S: Stream, C: Clock, F> Limited<S, C, F> {
    /// What an item costs, as any integer; 1 unless told. Bytes, if you say so:
    ///
    /// ```
    /// use tidegate::{Gate, LimitStream};
    ///
    /// let gate = Gate::new("65536/s".parse()?);
    /// let lines = tokio_stream::iter(["a line", "another"]);
    /// let by_bytes = lines.limited(&gate).cost(|line| line.len());
    /// # drop(by_bytes);
    /// # Ok::<(), tidegate::RuleError>(())
    /// ```
    ///
    /// What costs 0 passes at once. A cost that is negative, or beyond 2^64, is a mistake and counts as 1.
    pub fn cost<N: TryInto<u64>>(
        self,
        mut cost: impl FnMut(&S::Item) -> N,
    ) -> Limited<S, C, impl FnMut(&S::Item) -> u64> {
        let Self { source, held, toll, .. } = self;
        let cost = move |item: &S::Item| cost(item).try_into().unwrap_or(1);
        Limited { source, held, toll, cost }
    }

    /// The source, and the item that was taken from it and not passed on: for who goes on without the limit.
    ///
    /// ```
    /// use tidegate::{Gate, LimitStream};
    /// use tokio_stream::StreamExt;
    ///
    /// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
    /// let gate = Gate::new("1/h".parse()?);
    /// let mut slow = tokio_stream::iter(["a", "b", "c"]).limited(&gate);
    /// assert_eq!(slow.next().await, Some("a"));
    /// tokio::select! {
    ///     biased;
    ///     _ = slow.next() => unreachable!("its turn comes in an hour"),
    ///     () = std::future::ready(()) => {} // told to stop
    /// }
    /// let (rest, held) = slow.into_parts();
    /// assert_eq!(held, Some("b"));
    /// assert_eq!(rest.collect::<Vec<_>>().await, ["c"]);
    /// # Ok::<(), tidegate::RuleError>(()) }).unwrap();
    /// ```
    pub fn into_parts(self) -> (S, Option<S::Item>) {
        (self.source, self.held)
    }
}

impl<S: Stream, C: Clock, F: FnMut(&S::Item) -> u64> Limited<S, C, F> {
    /// Works through the stream: hands each item to `handler` when the limit lets it pass, one after the other or
    /// [several at once](Consume::at_once).
    ///
    /// ```
    /// use tidegate::{Gate, LimitStream};
    /// use tokio::sync::mpsc;
    /// use tokio_stream::wrappers::ReceiverStream;
    ///
    /// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
    /// let (send, receive) = mpsc::channel(100);
    /// for order in 0..3 {
    ///     send.send(order).await.unwrap();
    /// }
    /// drop(send); // so that there is an end
    ///
    /// let gate = Gate::new("1000/s paced".parse()?);
    /// let consumer = ReceiverStream::new(receive).limited(&gate).consume(async |order: i32| {
    ///     println!("order {order}");
    /// });
    /// consumer.await;
    /// # Ok::<(), tidegate::RuleError>(()) }).unwrap();
    /// ```
    pub fn consume<H, W>(self, handler: H) -> Consume<S, C, F, H, W>
    where
        H: FnMut(S::Item) -> W,
        W: Future<Output = ()>,
    {
        Consume::new(self, handler)
    }
}

impl<S: Stream, C: Clock, F: FnMut(&S::Item) -> u64> Stream for Limited<S, C, F> {
    type Item = S::Item;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<S::Item>> {
        let mut this = self.project();
        if this.held.is_none() {
            let Some(item) = ready!(this.source.as_mut().poll_next(context)) else {
                return Poll::Ready(None);
            };
            this.toll.owe((this.cost)(&item));
            *this.held = Some(item);
        }
        ready!(this.toll.poll_paid(context));
        Poll::Ready(this.held.take())
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let held = usize::from(self.held.is_some());
        let (least, most) = self.source.size_hint();
        (least.saturating_add(held), most.and_then(|most| most.checked_add(held)))
    }
}

impl<S: Stream + fmt::Debug, C: Clock, F> fmt::Debug for Limited<S, C, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Limited")
            .field("source", &self.source)
            .field("holds", &self.held.is_some())
            .finish_non_exhaustive()
    }
}
