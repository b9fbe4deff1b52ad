//! One request: its limiter and key, its cost, and how long it may wait.

use crate::clock::{Clock, SystemClock};
use crate::slot::Admission;
use crate::store::Target;
use crate::wait::{Acquire, Permit, Reservation, block_on};
use std::fmt;
use tidegate_core::{Decision, Denied, Span};

/// A request with a cost or a deadline, or one to be decided [together with others](crate::check_all).
///
/// [`Limiter::request`](crate::Limiter::request) and [`Gate::request`](crate::Gate::request) make it. It is decided when one
/// of its methods such as [`check`](Self::check) is called.
///
/// ```
/// use std::time::Duration;
/// use tidegate::{Limiter, ManualClock};
///
/// let limiter = Limiter::with_clock("10/s".parse()?, ManualClock::new());
/// assert!(limiter.request("alice").cost(10).check().is_allow());
/// let late = limiter.request("alice").within(Duration::from_millis(50)).block();
/// assert!(late.is_err(), "the turn would come in 100 ms, so the call fails at once");
/// # Ok::<(), tidegate::RuleError>(())
/// ```
#[derive(Clone)]
#[must_use = "nothing is decided until `check`, `acquire` or another method is called"]
pub struct Request<C: Clock = SystemClock> {
    pub(crate) target: Target<C>,
    pub(crate) cost: u64,
    pub(crate) max_wait: Span,
}

impl<C: Clock> Request<C> {
    pub(crate) fn new(target: Target<C>) -> Self {
        Self { target, cost: 1, max_wait: Span::MAX }
    }

    /// Sets the cost. Default: 1.
    pub fn cost(mut self, cost: u64) -> Self {
        self.cost = cost;
        self
    }

    /// Sets the longest time to wait for a turn. Default: unlimited. If the turn would come later, the request is denied at once
    /// and nothing is charged.
    ///
    /// It applies to [`acquire`](Self::acquire), [`block`](Self::block) and [`reserve`](Self::reserve). The other methods do not
    /// wait, but under a rule that delays requests itself (`queue`, `smooth`, `warmup`, nginx's), [`check`](Self::check),
    /// [`peek`](Self::peek) and [`check_all`](crate::check_all) deny a request whose delay would be longer.
    ///
    /// ```
    /// # use tidegate::{Gate, ManualClock};
    /// # use std::time::Duration;
    /// let gate = Gate::with_clock("1/s".parse()?, ManualClock::new());
    /// let _ = gate.check();
    /// assert!(gate.request().within(Duration::from_millis(999)).reserve().is_err());
    /// assert!(gate.request().within(Duration::from_secs(1)).reserve().is_ok());
    /// # Ok::<(), tidegate::RuleError>(())
    /// ```
    pub fn within(mut self, max_wait: impl Into<Span>) -> Self {
        self.max_wait = max_wait.into();
        self
    }

    /// Decides the request, and charges it unless it is denied.
    pub fn check(self) -> Decision {
        self.target.check(self.cost, self.max_wait)
    }

    /// Returns what [`check`](Self::check) would decide, without charging.
    pub fn peek(self) -> Decision {
        self.target.peek(self.cost, self.max_wait)
    }

    /// Charges the cost even if it exceeds what remains: for costs that are known only afterwards, such as the bytes of a
    /// response.
    ///
    /// The excess becomes debt, which is repaid as the limit refills. Until then, requests are denied or wait. A key in debt is
    /// never evicted; [`reset`](crate::Limiter::reset) clears the debt. A rule that delays requests (`queue`, nginx's) is charged
    /// no more than remains, and a concurrency limit nothing.
    ///
    /// ```
    /// # use tidegate::{Gate, ManualClock, Span};
    /// let gate = Gate::with_clock("10/s".parse()?, ManualClock::new());
    /// gate.request().cost(1_000_010).charge();
    /// assert_eq!(gate.check_n(10).retry_after(), Some(Span::from_secs(100_001)));
    /// # Ok::<(), tidegate::RuleError>(())
    /// ```
    pub fn charge(self) {
        let cost = self.cost;
        self.target.with(|slot, context| slot.charge(context, cost));
    }

    /// Waits until the request is admitted, first come, first served. Dropping the future gives up the turn and returns the
    /// cost.
    pub fn acquire(self) -> Acquire<C> {
        Acquire::new(self.target, self.cost, self.max_wait)
    }

    /// Blocks the thread until the request is admitted.
    ///
    /// # Errors
    /// The request was denied, or its turn would come later than [`within`](Self::within) allows.
    ///
    /// ```
    /// let gate = tidegate::Gate::new("1000/s burst 1".parse()?);
    /// let _permit = gate.request().block()?;
    /// let _permit = gate.request().block()?; // 1 ms later
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn block(self) -> Result<Permit<C>, Denied> {
        block_on(self.acquire())
    }

    /// Takes a permit without waiting.
    ///
    /// # Errors
    /// The request was denied, or would have to wait.
    pub fn try_acquire(mut self) -> Result<Permit<C>, Denied> {
        match self.target.admit(self.cost, Span::ZERO).0 {
            Admission::Now(decision, ticket) => Ok(Permit::new(&self.target, decision, ticket)),
            Admission::Denied(denied) => Err(denied),
            Admission::Later(..) | Admission::Queued(_) => {
                unreachable!("a request that may not wait is admitted or denied")
            }
        }
    }

    /// Reserves the next turn and returns the time until it comes. Under a concurrency limit, whose turns have no known time, it
    /// succeeds only if a permit is free now, and holds none.
    ///
    /// # Errors
    /// The request was denied, or its turn would come later than [`within`](Self::within) allows.
    ///
    /// ```
    /// # use tidegate::{Gate, ManualClock, Span};
    /// let gate = Gate::with_clock("10/s".parse()?, ManualClock::new());
    /// let _ = gate.check_n(10);
    /// assert_eq!(gate.request().cost(5).reserve()?.wait(), Span::from_millis(500));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn reserve(mut self) -> Result<Reservation<C>, Denied> {
        match self.target.reserve(self.cost, self.max_wait) {
            Admission::Later(decision, place) => {
                Ok(Reservation::new(self.target, decision, Some(place)))
            }
            Admission::Now(decision, ticket) => {
                // A reservation holds no permit.
                drop(Permit::new(&self.target, decision, ticket));
                Ok(Reservation::new(self.target, decision, None))
            }
            Admission::Denied(denied) => Err(denied),
            Admission::Queued(_) => unreachable!("a reservation does not join the permit queue"),
        }
    }

    /// Runs `work` if the request is admitted now, and holds the permit meanwhile.
    ///
    /// # Errors
    /// The request was denied, and `work` did not run.
    ///
    /// ```
    /// # use tidegate::{Gate, ManualClock};
    /// let gate = Gate::with_clock("1/s".parse()?, ManualClock::new());
    /// assert_eq!(gate.request().run(|| 42), Ok(42));
    /// assert!(gate.request().run(|| unreachable!()).is_err());
    /// # Ok::<(), tidegate::RuleError>(())
    /// ```
    pub fn run<R>(self, work: impl FnOnce() -> R) -> Result<R, Denied> {
        let permit = self.try_acquire()?;
        let result = work();
        drop(permit);
        Ok(result)
    }
}

#[cfg(feature = "macros")]
impl<C: Clock> Request<C> {
    /// Returns how long the rule itself lets this request wait.
    pub(crate) fn rule_patience(&self) -> Span {
        self.target.look(|_, context| match context.limit.permit_wait() {
            Some(wait) => wait,
            None if context.limit.delays_requests() => Span::MAX,
            None => Span::ZERO,
        })
    }

    /// Returns whether the request is for a permit of a concurrency limit.
    pub(crate) fn is_for_permit(&self) -> bool {
        self.target.look(|_, context| context.limit.is_concurrency())
    }

    /// Returns whether the rule delays requests itself.
    pub(crate) fn is_for_turn(&self) -> bool {
        self.target.look(|_, context| context.limit.delays_requests())
    }
}

impl<C: Clock> fmt::Debug for Request<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Request")
            .field("cost", &self.cost)
            .field("max_wait", &self.max_wait)
            .finish_non_exhaustive()
    }
}
