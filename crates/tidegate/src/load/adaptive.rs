//! A gate whose concurrency limit follows what the service behind it can handle (A14).
//!
//! A [`Gate`] under `concurrency N` manages the permits and the waiters. This module measures how long each request takes,
//! and changes N.
//!
//! Always   A permit is released exactly once. It counts as a sample only if its holder reports the end of the request: a
//!          holder that panics or is cancelled says nothing about the service.
//! Always   The control is locked before the gate, so limits are set in the order in which they were found. Waiters are
//!          woken after both locks are released.

use crate::clock::{Clock, SystemClock};
use crate::gate::Gate;
use crate::rule::Rule;
use crate::sync::wake::WakeList;
use crate::sync::{Arc, Mutex, lock};
use crate::wait::Acquire;
use crate::wait::Permit;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use tidegate_core::{Adaptive, Decision, Denied, Sample, Span, Timestamp};

/// A gate that measures how many requests may be in flight.
///
/// Each admitted request reports its result, from which the limit is adjusted. Clones are the same gate.
///
/// ```
/// use tidegate::load::{Adaptive, AdaptiveGate};
///
/// let gate = AdaptiveGate::new(Adaptive::vegas().between(1..=500));
/// match gate.try_acquire() {
///     Ok(permit) => {
///         // call the service, then report the result
///         permit.succeed();
///     }
///     Err(denied) => println!("too much in flight: {denied}"),
/// }
/// ```
pub struct AdaptiveGate<C: Clock = SystemClock> {
    inner: Arc<Inner<C>>,
}

struct Inner<C: Clock> {
    clock: C,
    gate: Gate<C>,
    control: Mutex<Adaptive>,
}

impl AdaptiveGate {
    /// Creates a gate that starts with the limit of `adaptive` and uses the machine's clock.
    pub fn new(adaptive: Adaptive) -> Self {
        Self::with_clock(adaptive, SystemClock::new())
    }
}

impl<C: Clock> AdaptiveGate<C> {
    /// Creates a gate that uses `clock`.
    ///
    /// ```
    /// # use tidegate::{ManualClock, Span};
    /// # use tidegate::load::{Adaptive, AdaptiveGate};
    /// let clock = ManualClock::new();
    /// let gate = AdaptiveGate::with_clock(Adaptive::vegas().starting_at(1), clock.clone());
    /// for _ in 0..10 {
    ///     let permit = gate.try_acquire()?;
    ///     clock.advance(Span::from_millis(5));
    ///     permit.succeed();
    /// }
    /// assert_eq!(gate.limit(), 7, "a round without a queue raises the limit by 6");
    /// # Ok::<(), tidegate::Denied>(())
    /// ```
    pub fn with_clock(adaptive: Adaptive, clock: C) -> Self {
        let gate = Gate::with_clock(rule(adaptive.limit()), clock.clone());
        Self { inner: Arc::new(Inner { clock, gate, control: Mutex::new(adaptive) }) }
    }

    /// Takes a permit if one is free.
    ///
    /// # Errors
    /// All permits are in use.
    pub fn try_acquire(&self) -> Result<AdaptivePermit<C>, Denied> {
        self.inner.gate.try_acquire().map(|permit| self.permit(permit))
    }

    /// Waits for a permit without a time limit, first come, first served. Dropping the future leaves the queue.
    pub fn acquire(&self) -> AdaptiveAcquire<C> {
        self.acquire_within(Span::MAX)
    }

    /// Waits for a permit for at most `max_wait`.
    pub fn acquire_within(&self, max_wait: impl Into<Span>) -> AdaptiveAcquire<C> {
        let acquire = self.inner.gate.request().within(max_wait).acquire();
        AdaptiveAcquire { acquire, gate: self.clone() }
    }

    /// Returns how many requests may be in flight now.
    pub fn limit(&self) -> u64 {
        lock(&self.inner.control).limit()
    }

    /// Returns how many requests are in flight. After the limit was lowered they may be more than the limit; then no request is
    /// admitted until enough of them have finished.
    pub fn in_flight(&self) -> u64 {
        self.inner.gate.in_flight()
    }

    /// Returns how long a request takes without a queue, if it has been measured.
    pub fn baseline(&self) -> Option<Span> {
        lock(&self.inner.control).baseline()
    }

    fn permit(&self, permit: Permit<C>) -> AdaptivePermit<C> {
        let decision = permit.decision();
        AdaptivePermit {
            gate: self.clone(),
            start: self.inner.clock.now(),
            in_flight: decision.limit.saturating_sub(decision.remaining),
            permit,
        }
    }

    fn observe(&self, sample: Sample) {
        // Dropped last, after the locks: a waker may call this function again.
        let mut wakes = WakeList::default();
        let mut control = lock(&self.inner.control);
        let before = control.limit();
        let after = control.observe(sample);
        if after != before {
            self.inner.gate.change_rule(rule(after), &mut wakes);
        }
    }
}

fn rule(max: u64) -> Rule {
    Rule::concurrency(max).build().expect("an adaptive limit is between 1 and a million")
}

impl<C: Clock> Clone for AdaptiveGate<C> {
    fn clone(&self) -> Self {
        Self { inner: Arc::clone(&self.inner) }
    }
}

impl<C: Clock> fmt::Debug for AdaptiveGate<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AdaptiveGate").field("limit", &self.limit()).finish_non_exhaustive()
    }
}

/// A permit of an [`AdaptiveGate`], released when it is dropped.
///
/// Report the result of the request by [`succeed`](Self::succeed) or [`overload`](Self::overload). A permit that is only
/// dropped, by a panic, a cancelled task, or an error unrelated to load, is not a sample.
///
/// ```
/// use tidegate::load::{Adaptive, AdaptiveGate};
///
/// let gate = AdaptiveGate::new(Adaptive::vegas());
/// # fn call() -> Result<(), std::io::Error> { Ok(()) }
/// let permit = gate.try_acquire()?;
/// match call() {
///     Ok(()) => permit.succeed(),
///     Err(error) if error.kind() == std::io::ErrorKind::TimedOut => permit.overload(),
///     Err(_) => drop(permit),
/// }
/// assert_eq!(gate.in_flight(), 0);
/// # Ok::<(), tidegate::Denied>(())
/// ```
#[must_use = "a permit is released when it is dropped: write `let permit = …`, not `let _ = …`"]
pub struct AdaptivePermit<C: Clock = SystemClock> {
    permit: Permit<C>,
    gate: AdaptiveGate<C>,
    start: Timestamp,
    in_flight: u64,
}

impl<C: Clock> AdaptivePermit<C> {
    /// Returns the decision that granted the permit: the limit at that moment, and what remained of it.
    pub fn decision(&self) -> Decision {
        self.permit.decision()
    }

    /// Reports that the request was served. The time since its admission is a sample.
    pub fn succeed(self) {
        self.finish(Sample::success);
    }

    /// Reports that the service denied the request for lack of capacity, or did not answer in time.
    pub fn overload(self) {
        self.finish(Sample::overload);
    }

    fn finish(self, sample: fn(Span, u64) -> Sample) {
        let Self { permit, gate, start, in_flight } = self;
        let rtt = gate.inner.clock.now().since(start);
        drop(permit);
        gate.observe(sample(rtt, in_flight));
    }
}

impl<C: Clock> fmt::Debug for AdaptivePermit<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AdaptivePermit").field("in_flight", &self.in_flight).finish_non_exhaustive()
    }
}

/// The future of a permit; made by [`AdaptiveGate::acquire`].
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// # use tidegate::load::{Adaptive, AdaptiveGate};
/// let gate = AdaptiveGate::new(Adaptive::vegas());
/// let permit = gate.acquire().await?;
/// # Ok::<(), tidegate::Denied>(()) }).unwrap();
/// ```
#[must_use = "futures do nothing unless awaited"]
#[derive(Debug)]
pub struct AdaptiveAcquire<C: Clock = SystemClock> {
    acquire: Acquire<C>,
    gate: AdaptiveGate<C>,
}

impl<C: Clock> Future for AdaptiveAcquire<C> {
    type Output = Result<AdaptivePermit<C>, Denied>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let acquired = std::task::ready!(Pin::new(&mut self.acquire).poll(context));
        Poll::Ready(acquired.map(|permit| self.gate.permit(permit)))
    }
}
