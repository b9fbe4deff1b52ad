//! A limit on everything that passes: one state for the whole process.
//!
//! Always   A token or leaky bucket is decided in one atomic word (`cell.rs`). Everything else —
//!          other algorithms, waits, refunds, changes of rule — goes through the lock, which takes
//!          the state out of the cell and puts it back.

use crate::acquire::Acquire;
use crate::ask::Ask;
use crate::cell::Cell;
use crate::clock::{Clock, SystemClock};
use crate::permit::Permit;
use crate::reservation::Reservation;
use crate::rule::Rule;
use crate::slot::Slot;
use crate::spot::{self, Spot};
use crate::sync::{Arc, Mutex, MutexGuard, lock};
use crate::turn::Wakes;
use std::fmt;
use tidegate_core::{Decision, Denied, Limit, Span, Timestamp, Window};

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
    pub(crate) post: Arc<Post<C>>,
}

/// What stands at the gate.
pub(crate) struct Post<C> {
    pub(crate) number: u64,
    pub(crate) clock: C,
    pub(crate) birth: Timestamp,
    /// The fast side, for a limit that is a bucket.
    cell: Option<Cell>,
    slow: Mutex<Slow>,
}

/// The slow side: the truth when the cell has `MOVED`.
pub(crate) struct Slow {
    pub(crate) limit: Limit,
    pub(crate) slot: Slot,
    /// The rule is no longer the one the cell was made for.
    is_changed: bool,
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
        let limit = rule.limit;
        let birth = spot::now(&clock, &limit);
        let cell = Cell::new(&limit, birth);
        let slot = Slot::new(limit.fresh(birth));
        let state = Slow { limit, slot, is_changed: false };
        let post =
            Post { number: spot::next_number(), clock, birth, cell, slow: Mutex::new(state) };
        Self { post: Arc::new(post) }
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
        if let Some(cell) = &self.post.cell
            && let Some((bucket, now)) = cell.bucket_at(self.post.clock.now())
            && let Some((full_at, was_enough)) = cell.take(now, cost)
        {
            return bucket.decision(full_at, now, cost, was_enough);
        }
        self.check_slowly(cost)
    }

    #[cold]
    #[inline(never)]
    fn check_slowly(&self, cost: u64) -> Decision {
        self.spot().check(cost, Span::MAX)
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
        self.spot().peek(1, Span::MAX)
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
        self.spot().refund(cost);
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
        self.spot().reset();
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
        self.ask().acquire()
    }

    /// A request with a cost or a deadline, or one to be decided together with others.
    ///
    /// ```
    /// # use tidegate::{Gate, ManualClock};
    /// let gate = Gate::with_clock("10/s".parse()?, ManualClock::new());
    /// assert_eq!(gate.ask().cost(4).check().remaining, 6);
    /// # Ok::<(), tidegate::RuleError>(())
    /// ```
    pub fn ask(&self) -> Ask<C> {
        Ask::new(self.spot())
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
        self.ask().try_acquire()
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
        self.ask().reserve()
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
        self.spot().window()
    }

    /// The rule as it stands.
    ///
    /// ```
    /// # use tidegate::Gate;
    /// assert_eq!(Gate::new("60/60s".parse()?).rule().to_string(), "60/min");
    /// # Ok::<(), tidegate::RuleError>(())
    /// ```
    pub fn rule(&self) -> Rule {
        Rule { limit: lock(&self.post.slow).limit.clone() }
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
        self.change_rule(rule, &mut Wakes::default());
    }

    /// The same, for somebody who holds a lock: who is to be woken is told to them.
    pub(crate) fn change_rule(&self, rule: Rule, wakes: &mut Wakes) {
        self.post.with(|slow, old_now| {
            let now = spot::now(&self.post.clock, &rule.limit);
            slow.slot.change((&slow.limit, old_now), (&rule.limit, now), wakes);
            slow.is_changed = true;
            slow.limit = rule.limit;
        });
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
        &self.post.clock
    }

    /// How many are in flight, under a concurrency rule.
    pub(crate) fn in_flight(&self) -> u64 {
        self.post.with(|slow, _| slow.limit.in_flight(&slow.slot.state))
    }

    fn spot(&self) -> Spot<C> {
        Spot::Gate(Arc::clone(&self.post))
    }
}

impl<C: Clock> Post<C> {
    /// Works on the slow side, with the state there, and gives it back to the cell afterwards.
    pub(crate) fn with<R>(&self, work: impl FnOnce(&mut Slow, Timestamp) -> R) -> R {
        let mut held = self.hold();
        let now = held.now;
        work(&mut held.slow, now)
    }

    /// Holds the state on the slow side until the holder is dropped.
    pub(crate) fn hold(&self) -> Held<'_, C> {
        let mut slow = lock(&self.slow);
        if let Some(cell) = self.cell.as_ref().filter(|_| !slow.is_changed)
            && let Some(state) = cell.pull(&slow.limit)
        {
            slow.slot.state = state;
        }
        // Read under the lock: whoever comes later must not bring an earlier time.
        let now = spot::now(&self.clock, &slow.limit);
        Held { post: self, slow, now }
    }
}

pub(crate) struct Held<'a, C: Clock> {
    post: &'a Post<C>,
    pub(crate) slow: MutexGuard<'a, Slow>,
    pub(crate) now: Timestamp,
}

impl<C: Clock> Drop for Held<'_, C> {
    fn drop(&mut self) {
        if self.slow.is_changed || self.slow.slot.is_awaited() {
            return;
        }
        if let Some(cell) = &self.post.cell {
            cell.push(&self.slow.limit, &self.slow.slot.state);
        }
    }
}

impl<C: Clock> Clone for Gate<C> {
    fn clone(&self) -> Self {
        Self { post: Arc::clone(&self.post) }
    }
}

impl<C: Clock> fmt::Debug for Gate<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Gate").field("rule", &self.rule().to_string()).finish_non_exhaustive()
    }
}
