//! A limit on everything that passes: one state for the whole process.
//!
//! Always   A token or leaky bucket is decided in one atomic word (`cell.rs`). Everything else —
//!          other algorithms, waits, refunds, changes of rule — goes through the lock, which takes
//!          the state out of the cell and puts it back.

use crate::clock::{Clock, SystemClock};
use crate::request::Request;
use crate::rule::Rule;
use crate::store::Target;
use crate::store::gate::GateInner;
use crate::sync::Arc;
use crate::sync::wake::WakeList;
use crate::wait::Acquire;
use crate::wait::Permit;
use crate::wait::Reservation;
use std::fmt;
use tidegate_core::{Decision, Denied, Span, Window};

/// A limiter without keys: one limit for the whole process.
///
/// Clones are the same gate.
///
/// ```
/// use tidegate::Gate;
///
/// let gate = Gate::new("100/s burst 20".parse()?);
/// if gate.check().is_allow() {
///     // do it
/// }
/// # Ok::<(), tidegate::RuleError>(())
/// ```
pub struct Gate<C: Clock = SystemClock> {
    pub(crate) inner: Arc<GateInner<C>>,
}

impl Gate {
    /// A gate that obeys `rule`, by the machine's clock. A [`Rule`] is made of text, by `parse`.
    ///
    /// ```
    /// # use tidegate::Gate;
    /// let gate = Gate::new("10/s".parse()?);
    /// assert_eq!(gate.check().remaining, 9);
    /// # Ok::<(), tidegate::RuleError>(())
    /// ```
    pub fn new(rule: Rule) -> Self {
        Self::with_clock(rule, SystemClock::new())
    }
}

impl<C: Clock> Gate<C> {
    /// A gate that obeys `rule`, by another clock.
    ///
    /// ```
    /// # use tidegate::{Gate, ManualClock};
    /// let gate = Gate::with_clock("10/s".parse()?, ManualClock::new());
    /// assert!(gate.check().is_allow());
    /// # Ok::<(), tidegate::RuleError>(())
    /// ```
    pub fn with_clock(rule: Rule, clock: C) -> Self {
        Self { inner: Arc::new(GateInner::new(rule.limit, clock)) }
    }

    /// May one pass? If so, it has been charged.
    ///
    /// ```
    /// # use tidegate::{Gate, ManualClock};
    /// # let clock = ManualClock::new();
    /// let gate = Gate::with_clock("1/s".parse()?, clock.clone());
    /// assert!(gate.check().is_allow());
    /// assert!(gate.check().is_deny());
    /// # Ok::<(), tidegate::RuleError>(())
    /// ```
    #[inline]
    pub fn check(&self) -> Decision {
        self.check_n(1)
    }

    /// May something of this cost pass? If so, it has been charged.
    ///
    /// ```
    /// # use tidegate::{Gate, ManualClock};
    /// let gate = Gate::with_clock("10/s".parse()?, ManualClock::new());
    /// assert_eq!(gate.check_n(7).remaining, 3);
    /// # Ok::<(), tidegate::RuleError>(())
    /// ```
    #[inline]
    pub fn check_n(&self, cost: u64) -> Decision {
        if let Some(decision) = self.inner.check_lock_free(cost) {
            return decision;
        }
        self.check_slowly(cost)
    }

    #[cold]
    #[inline(never)]
    fn check_slowly(&self, cost: u64) -> Decision {
        self.target().check(cost, Span::MAX)
    }

    /// What [`check`](Self::check) would say, without charging.
    ///
    /// ```
    /// # use tidegate::{Gate, ManualClock};
    /// let gate = Gate::with_clock("1/s".parse()?, ManualClock::new());
    /// assert!(gate.peek().is_allow());
    /// assert_eq!(gate.check().remaining, 0);
    /// # Ok::<(), tidegate::RuleError>(())
    /// ```
    pub fn peek(&self) -> Decision {
        self.target().peek(1, Span::MAX)
    }

    /// Gives back `cost` of what was charged, and never more than is charged.
    ///
    /// ```
    /// # use tidegate::{Gate, ManualClock};
    /// let gate = Gate::with_clock("1/s".parse()?, ManualClock::new());
    /// assert!(gate.check().is_allow());
    /// gate.refund(1);
    /// assert!(gate.check().is_allow());
    /// # Ok::<(), tidegate::RuleError>(())
    /// ```
    pub fn refund(&self, cost: u64) {
        self.target().refund(cost);
    }

    /// Forgets all that was charged. Under a `concurrency` rule that is who is in flight: they go on without being counted, and
    /// their permits give nothing back.
    ///
    /// ```
    /// # use tidegate::{Gate, ManualClock};
    /// let gate = Gate::with_clock("5/day".parse()?, ManualClock::new());
    /// gate.check_n(5);
    /// gate.reset();
    /// assert_eq!(gate.peek().remaining, 4);
    /// # Ok::<(), tidegate::RuleError>(())
    /// ```
    pub fn reset(&self) {
        self.target().reset();
    }

    /// Waits for one's turn. First come, first served; dropping the future gives the turn back.
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
    /// let gate = tidegate::Gate::new("1000/s burst 1".parse()?);
    /// for _ in 0..3 {
    ///     let _permit = gate.acquire().await?; // a millisecond apart
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(()) }).unwrap();
    /// ```
    pub fn acquire(&self) -> Acquire<C> {
        self.request().acquire()
    }

    /// A request with a cost or a deadline, or one to be decided together with others.
    ///
    /// ```
    /// # use tidegate::{Gate, ManualClock};
    /// let gate = Gate::with_clock("10/s".parse()?, ManualClock::new());
    /// assert_eq!(gate.request().cost(4).check().remaining, 6);
    /// # Ok::<(), tidegate::RuleError>(())
    /// ```
    pub fn request(&self) -> Request<C> {
        Request::new(self.target())
    }

    /// Takes a permit if one is free: the in-flight slot of a concurrency limit, which is given
    /// back when the permit is dropped. Other limits admit and hold nothing.
    ///
    /// ```
    /// # use tidegate::Gate;
    /// let gate = Gate::new("concurrency 1".parse()?);
    /// let permit = gate.try_acquire()?;
    /// assert!(gate.try_acquire().is_err());
    /// drop(permit);
    /// assert!(gate.try_acquire().is_ok());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn try_acquire(&self) -> Result<Permit<C>, Denied> {
        self.request().try_acquire()
    }

    /// Reserves a turn and tells how long it takes. Dropping the reservation before it is due gives
    /// it back.
    ///
    /// ```
    /// # use tidegate::{Gate, ManualClock, Span};
    /// let gate = Gate::with_clock("1/s".parse()?, ManualClock::new());
    /// gate.check();
    /// let reservation = gate.reserve()?;
    /// assert_eq!(reservation.wait(), Span::from_secs(1));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn reserve(&self) -> Result<Reservation<C>, Denied> {
        self.request().reserve()
    }

    /// The window that counts now, for rules that have windows; its end is when the next one starts.
    ///
    /// ```
    /// # use tidegate::{Gate, ManualClock};
    /// let gate = Gate::with_clock("1/30min fixed".parse()?, ManualClock::new());
    /// let window = gate.window().expect("it has windows");
    /// assert_eq!(window.end.since(window.start).to_string(), "30min");
    /// # Ok::<(), tidegate::RuleError>(())
    /// ```
    pub fn window(&self) -> Option<Window> {
        self.target().window()
    }

    /// The rule as it stands.
    ///
    /// ```
    /// # use tidegate::Gate;
    /// assert_eq!(Gate::new("60/60s".parse()?).rule().to_string(), "60/min");
    /// # Ok::<(), tidegate::RuleError>(())
    /// ```
    pub fn rule(&self) -> Rule {
        Rule { limit: self.inner.limit() }
    }

    /// Changes the rule while in use (B8): what was used stays used as far as the new rule knows it,
    /// nobody gets more than the new capacity, and nobody is locked out for longer than under the
    /// old rule. Those who wait keep their turn or get an earlier one.
    ///
    /// ```
    /// # use tidegate::{Gate, ManualClock};
    /// let gate = Gate::with_clock("10/s".parse()?, ManualClock::new());
    /// gate.check_n(10);
    /// gate.set_rule("20/s".parse()?);
    /// assert_eq!(gate.peek().remaining, 9, "10 of the 20 are used, and this would be one more");
    /// # Ok::<(), tidegate::RuleError>(())
    /// ```
    pub fn set_rule(&self, rule: Rule) {
        self.change_rule(rule, &mut WakeList::default());
    }

    /// The same, for somebody who holds a lock: who is to be woken is told to them.
    pub(crate) fn change_rule(&self, rule: Rule, wakes: &mut WakeList) {
        self.inner.change(rule.limit, wakes);
    }

    /// The clock that it goes by.
    ///
    /// ```
    /// # use tidegate::{Clock, Gate, ManualClock};
    /// let clock = ManualClock::new();
    /// let gate = Gate::with_clock("10/s".parse()?, clock.clone());
    /// assert_eq!(gate.clock().now(), clock.now());
    /// # Ok::<(), tidegate::RuleError>(())
    /// ```
    pub fn clock(&self) -> &C {
        &self.inner.clock
    }

    /// How many are in flight, under a concurrency rule.
    pub(crate) fn in_flight(&self) -> u64 {
        self.inner.with(|slow, _| slow.limit.in_flight(&slow.slot.state))
    }

    fn target(&self) -> Target<C> {
        Target::Gate(Arc::clone(&self.inner))
    }
}

impl<C: Clock> Clone for Gate<C> {
    fn clone(&self) -> Self {
        Self { inner: Arc::clone(&self.inner) }
    }
}

impl<C: Clock> fmt::Debug for Gate<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Gate").field("rule", &self.rule().to_string()).finish_non_exhaustive()
    }
}
