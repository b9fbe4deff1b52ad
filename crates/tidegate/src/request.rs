//! One request: to whom, how much, and how long it would wait.

use crate::clock::{Clock, SystemClock};
use crate::slot::Admission;
use crate::store::Target;
use crate::wait::Acquire;
use crate::wait::Permit;
use crate::wait::Reservation;
use crate::wait::block_on;
use std::fmt;
use tidegate_core::{Decision, Denied, Span};

/// A request that has not been made yet: made by [`Limiter::ask`](crate::Limiter::ask) and
/// [`Gate::ask`](crate::Gate::ask), for when it costs more than 1, has a deadline, or is to be decided
/// [together with others](crate::check_all).
///
/// ```
/// use std::time::Duration;
/// use tidegate::{Limiter, ManualClock};
///
/// let limiter = Limiter::with_clock("10/s".parse()?, ManualClock::new());
/// assert!(limiter.request("alice").cost(10).check().is_allow());
/// let late = limiter.request("alice").within(Duration::from_millis(50)).block();
/// assert!(late.is_err(), "the turn would come in 100 ms, so it is refused at once");
/// # Ok::<(), tidegate::RuleError>(())
/// ```
#[derive(Clone)]
#[must_use = "nothing is asked until `check`, `acquire` or another verb is called"]
pub struct Request<C: Clock = SystemClock> {
    pub(crate) target: Target<C>,
    pub(crate) cost: u64,
    pub(crate) max_wait: Span,
}

impl<C: Clock> Request<C> {
    pub(crate) fn new(target: Target<C>) -> Self {
        Self { target, cost: 1, max_wait: Span::MAX }
    }

    /// What it costs; 1 unless told.
    ///
    /// ```
    /// # use tidegate::{Gate, ManualClock};
    /// let gate = Gate::with_clock("10/s".parse()?, ManualClock::new());
    /// assert_eq!(gate.request().cost(3).check().remaining, 7);
    /// # Ok::<(), tidegate::RuleError>(())
    /// ```
    pub fn cost(mut self, cost: u64) -> Self {
        self.cost = cost;
        self
    }

    /// How long it would wait for its turn; for ever unless told. A turn that would come later is
    /// refused at once, and nothing is charged.
    ///
    /// It is for [`acquire`](Self::acquire), [`block`](Self::block) and [`reserve`](Self::reserve). The other
    /// verbs do not wait; [`check`](Self::check), [`peek`](Self::peek) and [`check_all`](crate::check_all) deny
    /// where a rule that makes requests wait by itself (`queue`, nginx's) would tell to wait for longer.
    ///
    /// ```
    /// # use tidegate::{Gate, ManualClock};
    /// # use std::time::Duration;
    /// let gate = Gate::with_clock("1/s".parse()?, ManualClock::new());
    /// gate.check();
    /// assert!(gate.request().within(Duration::from_millis(999)).reserve().is_err());
    /// assert!(gate.request().within(Duration::from_secs(1)).reserve().is_ok());
    /// # Ok::<(), tidegate::RuleError>(())
    /// ```
    pub fn within(mut self, max_wait: impl Into<Span>) -> Self {
        self.max_wait = max_wait.into();
        self
    }

    /// May it pass now? If so, it has been charged.
    ///
    /// ```
    /// # use tidegate::{Gate, ManualClock};
    /// let gate = Gate::with_clock("10/s".parse()?, ManualClock::new());
    /// assert!(gate.request().cost(10).check().is_allow());
    /// # Ok::<(), tidegate::RuleError>(())
    /// ```
    pub fn check(self) -> Decision {
        self.target.check(self.cost, self.max_wait)
    }

    /// What [`check`](Self::check) would say, without charging.
    ///
    /// ```
    /// # use tidegate::{Gate, ManualClock};
    /// let gate = Gate::with_clock("10/s".parse()?, ManualClock::new());
    /// assert!(gate.request().cost(11).peek().is_deny());
    /// # Ok::<(), tidegate::RuleError>(())
    /// ```
    pub fn peek(self) -> Decision {
        self.target.peek(self.cost, self.max_wait)
    }

    /// Charges it, whether there is room or not: for what is known only when it is done, such as the bytes of an answer.
    ///
    /// What there is no room for is owed, be it ever so much. The time to come pays it: until then whoever asks is denied,
    /// or waits behind it. A key that owes is remembered until it has paid;
    /// [`reset`](crate::Limiter::reset) forgives it. A rule that makes requests wait (`queue`, nginx's) is charged no more
    /// than it has room for, and a concurrency limit nothing.
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
        self.target.with(|slot, limit, now, wakes| slot.charge(limit, now, cost, wakes));
    }

    /// Waits for admission. First come, first served; dropping the future gives the turn back.
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
    /// let gate = tidegate::Gate::new("1000/s".parse()?);
    /// let _permit = gate.request().cost(1000).acquire().await?;
    /// let _permit = gate.request().cost(2).acquire().await?; // 2 ms later
    /// # Ok::<(), Box<dyn std::error::Error>>(()) }).unwrap();
    /// ```
    pub fn acquire(self) -> Acquire<C> {
        Acquire::new(self.target, self.cost, self.max_wait)
    }

    /// Waits for admission with this thread.
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

    /// Takes a permit if it can be had now.
    ///
    /// ```
    /// let gate = tidegate::Gate::new("concurrency 3".parse()?);
    /// let two = gate.request().cost(2).try_acquire()?;
    /// assert!(gate.request().cost(2).try_acquire().is_err());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn try_acquire(mut self) -> Result<Permit<C>, Denied> {
        match self.target.admit(self.cost, Span::ZERO).0 {
            Admission::Now(decision, ticket) => Ok(Permit::new(&self.target, decision, ticket)),
            Admission::Denied(denied) => Err(denied),
            Admission::Later(..) | Admission::Queued(_) => {
                unreachable!("who has no max_wait is not told to wait")
            }
        }
    }

    /// Takes a turn and tells how long until it comes; refused if that is longer than the ask would
    /// wait. A concurrency limit, which knows no times, gives a turn only if it is now.
    ///
    /// ```
    /// # use tidegate::{Gate, ManualClock, Span};
    /// let gate = Gate::with_clock("10/s".parse()?, ManualClock::new());
    /// gate.check_n(10);
    /// assert_eq!(gate.request().cost(5).reserve()?.wait(), Span::from_millis(500));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn reserve(mut self) -> Result<Reservation<C>, Denied> {
        match self.target.reserve(self.cost, self.max_wait) {
            Admission::Later(decision, place) => {
                Ok(Reservation::new(self.target, decision, Some(place)))
            }
            Admission::Now(decision, ticket) => {
                // A turn that is now lasts no time, so a permit is not held.
                drop(Permit::new(&self.target, decision, ticket));
                Ok(Reservation::new(self.target, decision, None))
            }
            Admission::Denied(denied) => Err(denied),
            Admission::Queued(_) => unreachable!("a turn is a time, and a crowd has none"),
        }
    }

    /// Does the work if it is admitted now, and only then. A concurrency permit is held meanwhile.
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
    /// How long the rule itself lets this wait.
    pub(crate) fn rule_patience(&self) -> Span {
        self.target.look(|_, limit, _, _| match limit.permit_wait() {
            Some(wait) => wait,
            None if limit.delays_requests() => Span::MAX,
            None => Span::ZERO,
        })
    }

    /// Whether what it asks for is a place in flight.
    pub(crate) fn is_for_permit(&self) -> bool {
        self.target.look(|_, limit, _, _| limit.is_concurrency())
    }

    /// Whether it asks a rule that makes requests wait by itself.
    pub(crate) fn is_for_turn(&self) -> bool {
        self.target.look(|_, limit, _, _| limit.delays_requests())
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
