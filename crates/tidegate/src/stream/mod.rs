//! Limited streams, and consumers of them (P4).
//!
//! Always   The stream takes an item from the source only after it has returned the one before, so it holds at most one:
//!          its cost is only known once it is there. The item is returned, handed back by `into_parts`, or dropped with
//!          the stream.
//! Always   A turn is reserved only for an item that exists. Dropping the stream gives up the turn.

mod consume;
mod payment;

pub use consume::Consume;

use crate::clock::{Clock, SystemClock};
use crate::gate::Gate;
use crate::request::Request;
use futures_core::Stream;
use payment::Payment;
use pin_project_lite::pin_project;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

/// Adds [`limited`](Self::limited) to every stream.
///
/// ```
/// use tidegate::Gate;
/// use tidegate::stream::LimitStream;
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
    /// Returns a stream of the same items, each of which waits for its turn. `by` is a `&Gate`, or a
    /// [`Limiter::request`](crate::Limiter::request) with a key.
    ///
    /// Each item costs 1, unless [`Limited::cost`] sets another cost. The stream waits for as long as necessary, whatever
    /// [`within`](Request::within) says: no item is denied or dropped. An item that costs more than the limit admits at once
    /// is paid for in parts.
    ///
    /// ```
    /// use tidegate::Limiter;
    /// use tidegate::stream::LimitStream;
    /// use tokio_stream::StreamExt;
    ///
    /// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
    /// let per_tenant = Limiter::new("1000/s".parse()?);
    /// let items = tokio_stream::iter(0..3).limited(per_tenant.request("acme"));
    /// assert_eq!(items.collect::<Vec<_>>().await, [0, 1, 2]);
    /// # Ok::<(), tidegate::RuleError>(()) }).unwrap();
    /// ```
    fn limited<C: Clock>(self, by: impl Into<Request<C>>) -> Limited<Self, C> {
        Limited { source: self, held: None, payment: Payment::new(by.into()), cost: |_| 1 }
    }
}

impl<S: Stream> LimitStream for S {}

impl<C: Clock> From<&Gate<C>> for Request<C> {
    fn from(gate: &Gate<C>) -> Self {
        gate.request()
    }
}

pin_project! {
    /// A limited stream; made by [`LimitStream::limited`].
    ///
    /// Dropping it also drops the item that it has taken from the source and not returned, and gives up the item's turn.
    /// If the source was borrowed by `&mut`, the item is lost; [`into_parts`](Self::into_parts) returns it. Dropping only
    /// the future of `next()` loses nothing.
    ///
    /// ```
    /// use tidegate::Gate;
    /// use tidegate::stream::LimitStream;
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
        // Taken from the source, not returned yet.
        held: Option<S::Item>,
        payment: Payment<C>,
        cost: F,
    }
}

impl<S: Stream, C: Clock, F> Limited<S, C, F> {
    /// Sets the cost of an item, as any integer. Default: 1. To limit bytes:
    ///
    /// ```
    /// use tidegate::Gate;
    /// use tidegate::stream::LimitStream;
    ///
    /// let gate = Gate::new("65536/s".parse()?);
    /// let lines = tokio_stream::iter(["a line", "another"]);
    /// let by_bytes = lines.limited(&gate).cost(|line| line.len());
    /// # drop(by_bytes);
    /// # Ok::<(), tidegate::RuleError>(())
    /// ```
    ///
    /// An item of cost 0 passes immediately. A negative cost, or one beyond 2^64, counts as 1.
    pub fn cost<N: TryInto<u64>>(
        self,
        mut cost: impl FnMut(&S::Item) -> N,
    ) -> Limited<S, C, impl FnMut(&S::Item) -> u64> {
        let Self { source, held, payment, .. } = self;
        let cost = move |item: &S::Item| cost(item).try_into().unwrap_or(1);
        Limited { source, held, payment, cost }
    }

    /// Returns the source, and the item that was taken from it and not returned: to continue without the limit.
    ///
    /// ```
    /// use tidegate::Gate;
    /// use tidegate::stream::LimitStream;
    /// use tokio_stream::StreamExt;
    ///
    /// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
    /// let gate = Gate::new("1/h".parse()?);
    /// let mut slow = tokio_stream::iter(["a", "b", "c"]).limited(&gate);
    /// assert_eq!(slow.next().await, Some("a"));
    /// tokio::select! {
    ///     biased;
    ///     _ = slow.next() => unreachable!("its turn comes in an hour"),
    ///     () = std::future::ready(()) => {} // a shutdown signal
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
    /// Passes each item to `handler` when its turn comes, one at a time or
    /// [several at once](Consume::at_once).
    ///
    /// ```
    /// use tidegate::Gate;
    /// use tidegate::stream::LimitStream;
    /// use tokio::sync::mpsc;
    /// use tokio_stream::wrappers::ReceiverStream;
    ///
    /// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
    /// let (send, receive) = mpsc::channel(100);
    /// for order in 0..3 {
    ///     send.send(order).await.unwrap();
    /// }
    /// drop(send); // ends the stream
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
            this.payment.owe((this.cost)(&item));
            *this.held = Some(item);
        }
        ready!(this.payment.poll_paid(context));
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
