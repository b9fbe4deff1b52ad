//! A limiter without keys: one state for the whole process.
//!
//! Always   A token or leaky bucket is decided in one atomic word (`store/gate/atomic_bucket.rs`). Everything else
//!          (other algorithms, waits, refunds, changes of the rule) locks a mutex, moves the state out of the word, and
//!          moves it back.

use crate::clock::{Clock, SystemClock};
use crate::request::Request;
use crate::rule::Rule;
use crate::store::Target;
use crate::store::gate::GateInner;
use crate::sync::Arc;
use crate::sync::wake::WakeList;
use crate::wait::{Acquire, Permit, Reservation};
use std::fmt;
use tidegate_core::{Decision, Denied, Span, Window};

/// A limiter without keys: one limit for the whole process.
///
/// Its methods are those of [`Limiter`](crate::Limiter) without the key; their examples are there. Clones share their state.
///
/// ```
/// use tidegate::Gate;
///
/// let gate = Gate::new("100/s burst 20".parse()?);
/// if gate.check().is_allow() {
///     // handle the request
/// }
/// # Ok::<(), tidegate::RuleError>(())
/// ```
pub struct Gate<C: Clock = SystemClock> {
    pub(crate) inner: Arc<GateInner<C>>,
}

impl Gate {
    /// Creates a gate that enforces `rule` and uses the machine's clock.
    pub fn new(rule: Rule) -> Self {
        Self::with_clock(rule, SystemClock::new())
    }
}

impl<C: Clock> Gate<C> {
    /// Creates a gate that enforces `rule` and uses `clock`.
    pub fn with_clock(rule: Rule, clock: C) -> Self {
        Self { inner: Arc::new(GateInner::new(rule.limit, clock)) }
    }

    /// Decides a request of cost 1, and charges it unless it is denied.
    #[inline]
    pub fn check(&self) -> Decision {
        self.check_n(1)
    }

    /// Decides a request of this cost, and charges it unless it is denied.
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

    /// Returns what [`check`](Self::check) would decide, without charging.
    pub fn peek(&self) -> Decision {
        self.target().peek(1, Span::MAX)
    }

    /// Returns `cost` of what was charged, and never more than is charged.
    pub fn refund(&self, cost: u64) {
        self.target().refund(cost);
    }

    /// Clears everything that was charged. Under a `concurrency` rule the requests in flight go on without being counted, and
    /// their permits release nothing.
    pub fn reset(&self) {
        self.target().reset();
    }

    /// Waits until a request is admitted, first come, first served. Dropping the future gives up the turn and returns its
    /// cost.
    pub fn acquire(&self) -> Acquire<C> {
        self.request().acquire()
    }

    /// Starts a request with a cost or a deadline, or one to be [decided together with others](crate::check_all).
    pub fn request(&self) -> Request<C> {
        Request::new(self.target())
    }

    /// Takes a permit without waiting. Under a concurrency limit, the permit is held until it is dropped; under other limits it
    /// holds nothing.
    ///
    /// # Errors
    /// The request was denied, or would have to wait.
    pub fn try_acquire(&self) -> Result<Permit<C>, Denied> {
        self.request().try_acquire()
    }

    /// Reserves the next turn and returns the time until it comes. Dropping the reservation before it is due returns its cost.
    ///
    /// # Errors
    /// The limit denies the request whenever it comes.
    pub fn reserve(&self) -> Result<Reservation<C>, Denied> {
        self.request().reserve()
    }

    /// Returns the current window, for rules that have windows. Its end is the start of the next one.
    pub fn window(&self) -> Option<Window> {
        self.target().window()
    }

    /// Returns the rule in force.
    pub fn rule(&self) -> Rule {
        Rule { limit: self.inner.limit() }
    }

    /// Changes the rule while requests are being decided (B8). Usage carries over, `remaining` is never more than the new
    /// capacity, and no key is denied for longer than under the old rule. Waiters keep their turn or get an earlier one.
    pub fn set_rule(&self, rule: Rule) {
        self.change_rule(rule, &mut WakeList::default());
    }

    /// Changes the rule for a caller that holds a lock, and adds the waiters to be woken to `wakes`.
    pub(crate) fn change_rule(&self, rule: Rule, wakes: &mut WakeList) {
        self.inner.change(rule.limit, wakes);
    }

    /// Returns the clock.
    pub fn clock(&self) -> &C {
        &self.inner.clock
    }

    /// Returns how many requests are in flight, under a concurrency rule.
    pub(crate) fn in_flight(&self) -> u64 {
        self.inner.with(|state, _| state.limit.in_flight(&state.slot.state))
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
