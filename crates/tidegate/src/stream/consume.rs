//! A consumer: passes the items of a limited stream to a handler, a bounded number at a time.
//!
//! Always   No item is taken from the source while the maximum number of handlers is running: that is the back-pressure.
//! Always   The consumer runs in the task that awaits it, and starts no other. Each wake polls all running handlers.

use super::Limited;
use crate::clock::Clock;
use futures_core::Stream;
use pin_project_lite::pin_project;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

pin_project! {
    /// A consumer of a limited stream; made by [`Limited::consume`]. It is ready when the stream has ended and all
    /// handlers have finished.
    ///
    /// Dropping it drops the running handlers, and the item that was taken from the source and not handled. To lose
    /// nothing, [`stop`](Self::stop) it, await it, and call [`into_parts`](Self::into_parts).
    ///
    /// ```
    /// use std::cell::Cell;
    /// use tidegate::Gate;
    /// use tidegate::stream::LimitStream;
    ///
    /// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
    /// let (gate, sum) = (Gate::new("1000/s".parse()?), Cell::new(0));
    /// let work = async |number: i32| sum.set(sum.get() + number);
    /// tokio_stream::iter(1..=4).limited(&gate).consume(work).at_once(2).await;
    /// assert_eq!(sum.get(), 10);
    /// # Ok::<(), tidegate::RuleError>(()) }).unwrap();
    /// ```
    #[must_use = "futures do nothing unless awaited"]
    pub struct Consume<S: Stream, C: Clock, F, H, W> {
        #[pin]
        stream: Limited<S, C, F>,
        handler: H,
        at_once: usize,
        is_over: bool,
        at_work: Vec<Pin<Box<W>>>,
    }
}

impl<S: Stream, C: Clock, F, H, W> Consume<S, C, F, H, W> {
    pub(super) fn new(stream: Limited<S, C, F>, handler: H) -> Self {
        Self { stream, handler, at_once: 1, is_over: false, at_work: Vec::new() }
    }

    /// Sets the maximum number of running handlers, at least 1. Default: 1. Each wake polls all of them, so it is meant for
    /// tens.
    pub fn at_once(mut self, most: usize) -> Self {
        self.at_once = most.max(1);
        self
    }

    /// Takes no more items: when it is awaited again, the consumer is ready as soon as the running handlers have finished.
    ///
    /// ```
    /// use tidegate::Gate;
    /// use tidegate::stream::LimitStream;
    ///
    /// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
    /// let gate = Gate::new("1/h".parse()?);
    /// let work = async |_item: char| tokio::task::yield_now().await;
    /// let mut consumer = tokio_stream::iter(['a', 'b', 'c']).limited(&gate).consume(work);
    /// tokio::select! {
    ///     biased;
    ///     () = &mut consumer => unreachable!("it takes two hours"),
    ///     () = std::future::ready(()) => consumer.stop(), // a shutdown signal
    /// }
    /// (&mut consumer).await;
    /// let (_source, _held) = consumer.into_parts();
    /// # Ok::<(), tidegate::RuleError>(()) }).unwrap();
    /// ```
    pub fn stop(&mut self) {
        self.is_over = true;
    }

    /// Returns the source, and the item that was taken from it and not handled. Running handlers are dropped: [`stop`](Self::stop)
    /// and await the consumer first to let them finish.
    pub fn into_parts(self) -> (S, Option<S::Item>) {
        self.stream.into_parts()
    }
}

impl<S, C, F, H, W> Future for Consume<S, C, F, H, W>
where
    S: Stream,
    C: Clock,
    F: FnMut(&S::Item) -> u64,
    H: FnMut(S::Item) -> W,
    W: Future<Output = ()>,
{
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let mut this = self.project();
        loop {
            this.at_work.retain_mut(|work| work.as_mut().poll(context).is_pending());
            if *this.is_over || this.at_work.len() >= *this.at_once {
                break;
            }
            match this.stream.as_mut().poll_next(context) {
                Poll::Ready(Some(item)) => this.at_work.push(Box::pin((this.handler)(item))),
                Poll::Ready(None) => *this.is_over = true,
                Poll::Pending => return Poll::Pending,
            }
        }
        if *this.is_over && this.at_work.is_empty() { Poll::Ready(()) } else { Poll::Pending }
    }
}

impl<S: Stream, C: Clock, F, H, W> fmt::Debug for Consume<S, C, F, H, W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Consume")
            .field("at_once", &self.at_once)
            .field("at_work", &self.at_work.len())
            .finish_non_exhaustive()
    }
}
