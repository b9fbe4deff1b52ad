//! A gate whose limit on what is in flight follows what the service behind it can bear (A14).
//!
//! Who is in flight and who waits is the business of a [`Gate`] under `concurrency N`; what is here
//! measures how long each takes, and changes N.
//!
//! Always   A permit is given back exactly once. Only one whose end is told is a sample: a holder that
//!          panics, or is cancelled, says nothing about the service.
//! Always   The control is locked before the gate, so limits are set in the order they were found. Who
//!          is to be woken is woken after both.

use crate::clock::{Clock, SystemClock};
use crate::gate::Gate;
use crate::sync::wake::WakeList;
use crate::sync::{Arc, Mutex, lock};
use crate::wait::Acquire;
use crate::wait::Permit;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use tidegate_core::{Adaptive, Decision, Denied, Sample, Span, Timestamp};

/// A gate that finds out how many may be in flight.
///
/// Whoever is admitted says how it went; from that the limit follows. Clones are the same gate.
///
/// ```
/// use tidegate::{Adaptive, AdaptiveGate};
///
/// let gate = AdaptiveGate::new(Adaptive::vegas().between(1..=500));
/// match gate.try_acquire() {
///     Ok(permit) => {
///         // call the service; then say how it went
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
    /// A gate that starts with the limit of `adaptive`, by the machine's clock.
    ///
    /// ```
    /// # use tidegate::{Adaptive, AdaptiveGate};
    /// let gate = AdaptiveGate::new(Adaptive::gradient2());
    /// assert_eq!(gate.limit(), 20);
    /// ```
    pub fn new(adaptive: Adaptive) -> Self {
        Self::with_clock(adaptive, SystemClock::new())
    }
}

impl<C: Clock> AdaptiveGate<C> {
    /// The same, by another clock.
    ///
    /// ```
    /// # use tidegate::{Adaptive, AdaptiveGate, ManualClock, Span};
    /// let clock = ManualClock::new();
    /// let gate = AdaptiveGate::with_clock(Adaptive::vegas().starting_at(1), clock.clone());
    /// for _ in 0..10 {
    ///     let permit = gate.try_acquire()?;
    ///     clock.advance(Span::from_millis(5));
    ///     permit.succeed();
    /// }
    /// assert_eq!(gate.limit(), 7, "no queue after a round: six more");
    /// # Ok::<(), tidegate::Denied>(())
    /// ```
    pub fn with_clock(adaptive: Adaptive, clock: C) -> Self {
        let gate = Gate::with_clock(crate::Rule::concurrency(adaptive.limit()), clock.clone());
        Self { inner: Arc::new(Inner { clock, gate, control: Mutex::new(adaptive) }) }
    }

    /// Takes a place among those in flight if one is free.
    ///
    /// ```
    /// # use tidegate::{Adaptive, AdaptiveGate};
    /// let gate = AdaptiveGate::new(Adaptive::vegas().between(1..=1));
    /// let permit = gate.try_acquire()?;
    /// assert!(gate.try_acquire().is_err());
    /// # Ok::<(), tidegate::Denied>(())
    /// ```
    pub fn try_acquire(&self) -> Result<AdaptivePermit<C>, Denied> {
        self.inner.gate.try_acquire().map(|permit| self.permit(permit))
    }

    /// Waits for a place, for as long as it takes. First come, first served; dropping the future leaves
    /// the line.
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
    /// # use tidegate::{Adaptive, AdaptiveGate};
    /// let gate = AdaptiveGate::new(Adaptive::vegas());
    /// let permit = gate.acquire().await?;
    /// // call the service
    /// permit.succeed();
    /// # Ok::<(), tidegate::Denied>(()) }).unwrap();
    /// ```
    pub fn acquire(&self) -> AdaptiveAcquire<C> {
        self.acquire_within(Span::MAX)
    }

    /// Waits for a place, and no longer than this.
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
    /// # use tidegate::{Adaptive, AdaptiveGate};
    /// use std::time::Duration;
    ///
    /// let gate = AdaptiveGate::new(Adaptive::vegas().between(1..=1));
    /// let permit = gate.try_acquire()?;
    /// assert!(gate.acquire_within(Duration::from_millis(1)).await.is_err());
    /// # Ok::<(), tidegate::Denied>(()) }).unwrap();
    /// ```
    pub fn acquire_within(&self, max_wait: impl Into<Span>) -> AdaptiveAcquire<C> {
        let acquire = self.inner.gate.request().within(max_wait).acquire();
        AdaptiveAcquire { acquire, gate: self.clone() }
    }

    /// How many may be in flight now.
    ///
    /// ```
    /// # use tidegate::{Adaptive, AdaptiveGate};
    /// assert_eq!(AdaptiveGate::new(Adaptive::vegas().starting_at(5)).limit(), 5);
    /// ```
    pub fn limit(&self) -> u64 {
        lock(&self.inner.control).limit()
    }

    /// How many are in flight. After the limit has come down they may be more than it, until enough of
    /// them have finished; nobody is admitted before.
    ///
    /// ```
    /// # use tidegate::{Adaptive, AdaptiveGate};
    /// let gate = AdaptiveGate::new(Adaptive::vegas());
    /// let permit = gate.try_acquire()?;
    /// assert_eq!(gate.in_flight(), 1);
    /// # Ok::<(), tidegate::Denied>(())
    /// ```
    pub fn in_flight(&self) -> u64 {
        self.inner.gate.in_flight()
    }

    /// How long a request takes without a queue, as far as that is known.
    ///
    /// ```
    /// # use tidegate::{Adaptive, AdaptiveGate};
    /// assert_eq!(AdaptiveGate::new(Adaptive::vegas()).baseline(), None);
    /// ```
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
        // Dropped last: who is woken may come here again.
        let mut wakes = WakeList::default();
        let mut control = lock(&self.inner.control);
        let before = control.limit();
        let after = control.observe(sample);
        if after != before {
            self.inner.gate.change_rule(crate::Rule::concurrency(after), &mut wakes);
        }
    }
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

/// A place among those in flight at an [`AdaptiveGate`], given back when it is dropped.
///
/// Say how it went before: [`succeed`](Self::succeed) or [`overload`](Self::overload). One that is just
/// dropped, by a panic, a cancelled task, or an error that has nothing to do with load, is not counted.
///
/// ```
/// use tidegate::{Adaptive, AdaptiveGate};
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
#[must_use = "a permit is given back when it is dropped: write `let permit = …`, not `let _ = …`"]
pub struct AdaptivePermit<C: Clock = SystemClock> {
    permit: Permit<C>,
    gate: AdaptiveGate<C>,
    start: Timestamp,
    in_flight: u64,
}

impl<C: Clock> AdaptivePermit<C> {
    /// What was decided when it was granted: the limit of that moment, and how many more it would have let in.
    ///
    /// ```
    /// # use tidegate::{Adaptive, AdaptiveGate};
    /// let permit = AdaptiveGate::new(Adaptive::vegas().starting_at(10)).try_acquire()?;
    /// assert_eq!((permit.decision().limit, permit.decision().remaining), (10, 9));
    /// # Ok::<(), tidegate::Denied>(())
    /// ```
    pub fn decision(&self) -> Decision {
        self.permit.decision()
    }

    /// It was served: the time since it was admitted is a sample.
    ///
    /// ```
    /// # use tidegate::{Adaptive, AdaptiveGate};
    /// let gate = AdaptiveGate::new(Adaptive::vegas());
    /// gate.try_acquire()?.succeed();
    /// # Ok::<(), tidegate::Denied>(())
    /// ```
    pub fn succeed(self) {
        self.finish(Sample::success);
    }

    /// The service refused it for lack of capacity, or did not answer in time.
    ///
    /// ```
    /// # use tidegate::{Adaptive, AdaptiveGate};
    /// let gate = AdaptiveGate::new(Adaptive::vegas());
    /// for _ in 0..20 {
    ///     gate.try_acquire()?.overload();
    /// }
    /// assert_eq!(gate.limit(), 18);
    /// # Ok::<(), tidegate::Denied>(())
    /// ```
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

/// A wait for a place at an [`AdaptiveGate`]; made by [`acquire`](AdaptiveGate::acquire).
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// # use tidegate::{Adaptive, AdaptiveGate};
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
        let answer = std::task::ready!(Pin::new(&mut self.acquire).poll(context));
        Poll::Ready(answer.map(|permit| self.gate.permit(permit)))
    }
}
