//! A limit: a rule that is ready to decide, whatever its algorithm.
//!
//! Stores, limiters and servers call a [`Limit`] to decide, and store a [`State`] for each key.

mod bound;
mod encode;

use crate::algorithm::calendar::{Calendar, Utc};
use crate::algorithm::concurrency::Concurrency;
use crate::algorithm::dispatch::{Algorithms, States};
use crate::algorithm::fixed::{Alignment, Fixed};
use crate::algorithm::leaky::Leaky;
use crate::algorithm::nginx::Nginx;
use crate::algorithm::queue::Queue;
use crate::algorithm::sliding::Sliding;
use crate::algorithm::sliding_log::SlidingLog;
use crate::algorithm::smooth::Smooth;
use crate::algorithm::token_bucket::TokenBucket;
use crate::algorithm::warmup::Warmup;
use crate::algorithm::{CalendarUnit, Usage, Window, Windows};
use crate::decision::{Decision, Retry, Verdict};
use crate::rate::Rate;
use crate::rule::{ParsedRule, RuleError, RuleKind, WindowStart};
use crate::ticket::Ticket;
use crate::time::{Span, Timestamp};
use alloc::sync::Arc;
use core::fmt;
use core::str::FromStr;

/// A rule that is ready to decide.
///
/// ```
/// use tidegate_core::{Limit, Timestamp};
///
/// let limit: Limit = "100/s burst 20".parse()?;
/// let now = Timestamp::from_micros(1_700_000_000_000_000);
/// let mut alice = limit.fresh(now);
/// assert_eq!(limit.decide(&mut alice, now, 5).remaining, 15);
/// # Ok::<(), tidegate_core::RuleError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Limit {
    rule: ParsedRule,
    pub(crate) algorithm: Algorithms,
}

/// The state of one key under a limit, made by [`Limit::fresh`]. It is valid only for that limit.
#[derive(Clone, Debug)]
pub struct State(pub(crate) States);

impl Limit {
    /// Creates a limit from a rule. `find` returns the windows of a calendar unit in a named time zone.
    ///
    /// # Errors
    /// `find` does not know the rule's time zone. The error points at its name.
    ///
    /// ```
    /// use tidegate_core::{Limit, ParsedRule};
    ///
    /// let rule: ParsedRule = "1/day calendar in Mars/Olympus".parse()?;
    /// let error = Limit::with_windows(rule, |_unit, _zone| None).unwrap_err();
    /// assert!(error.to_string().starts_with("unknown time zone `Mars/Olympus`"));
    /// # Ok::<(), tidegate_core::RuleError>(())
    /// ```
    pub fn with_windows(
        rule: ParsedRule,
        find: impl FnOnce(CalendarUnit, &str) -> Option<Arc<dyn Windows>>,
    ) -> Result<Self, RuleError> {
        let algorithm = match rule.kind() {
            RuleKind::TokenBucket { rate, burst, starts_empty } => {
                Algorithms::TokenBucket(TokenBucket::new(*rate, *burst, *starts_empty))
            }
            RuleKind::Fixed { rate, from } => Algorithms::Fixed(Fixed::new(
                *rate,
                match from {
                    WindowStart::Epoch => Alignment::Aligned(Span::ZERO),
                    WindowStart::FirstRequest => Alignment::FirstRequest,
                    WindowStart::Anchor(anchor) => {
                        Alignment::Aligned(anchor.offset_within(rate.period))
                    }
                },
            )),
            // Each window admits nothing, so their length does not matter.
            RuleKind::Nothing => Algorithms::Fixed(Fixed::new(
                Rate { count: 0, period: Span::from_secs(1) },
                Alignment::Aligned(Span::ZERO),
            )),
            RuleKind::Calendar { count, unit, zone } => {
                let windows: Option<Arc<dyn Windows>> = match zone {
                    None => Some(Arc::new(Utc(*unit))),
                    Some(zone) => find(*unit, zone),
                };
                let Some(windows) = windows else { return Err(rule.unknown_zone()) };
                Algorithms::Calendar(Calendar::new(*count, windows))
            }
            RuleKind::SlidingLog { rate } => Algorithms::SlidingLog(SlidingLog::new(*rate)),
            RuleKind::Sliding { rate } => Algorithms::Sliding(Sliding::new(*rate)),
            RuleKind::Leaky { rate, capacity } => {
                Algorithms::Leaky(Leaky::new(*rate, *capacity, false))
            }
            RuleKind::Queue { rate, capacity, wait } => {
                Algorithms::Queue(Queue::new(*rate, *capacity, *wait))
            }
            RuleKind::Smooth { rate, burst } => Algorithms::Smooth(Smooth::new(*rate, *burst)),
            RuleKind::Warmup { rate, warmup, cold } => {
                Algorithms::Warmup(Warmup::new(*rate, *warmup, *cold))
            }
            RuleKind::Concurrency { max, lease, .. } => {
                Algorithms::Concurrency(Concurrency::new(*max, *lease))
            }
            RuleKind::Nginx { count, per_second, burst, delay } => {
                Algorithms::Nginx(Nginx::new(*count, *per_second, *burst, delay.threshold()))
            }
        };
        Ok(Self { rule, algorithm })
    }

    /// Parses a rule and creates a limit from it, as [`with_windows`](Self::with_windows) does.
    ///
    /// # Errors
    /// `text` is not a rule, or `find` does not know its time zone. The error points at the wrong part of `text`.
    pub fn read(
        text: &str,
        find: impl FnOnce(CalendarUnit, &str) -> Option<Arc<dyn Windows>>,
    ) -> Result<Self, RuleError> {
        Self::with_windows(text.parse()?, find).map_err(|error| error.in_text(text))
    }

    /// Returns the rule that this limit enforces.
    pub fn rule(&self) -> &ParsedRule {
        &self.rule
    }

    /// Returns the state of a key that no request has used. `birth` is the creation time of the limit: a bucket that starts
    /// empty begins to fill then, for every key.
    #[inline]
    pub fn fresh(&self, birth: Timestamp) -> State {
        State(self.algorithm.fresh(birth))
    }

    /// Decides about a request, and charges it unless it is denied. A cost of zero is never denied, and charges nothing.
    ///
    /// ```
    /// # use tidegate_core::{Limit, Timestamp};
    /// let limit: Limit = "3/s".parse()?;
    /// let mut state = limit.fresh(Timestamp::EPOCH);
    /// assert_eq!(limit.decide(&mut state, Timestamp::EPOCH, 1).remaining, 2);
    /// # Ok::<(), tidegate_core::RuleError>(())
    /// ```
    #[inline]
    pub fn decide(&self, state: &mut State, now: Timestamp, cost: u64) -> Decision {
        self.algorithm.decide(&mut state.0, now, cost)
    }

    /// Decides about a request that waits at most `patience`. If [`decide`](Self::decide) would make it wait longer, the request
    /// is denied instead, and charged nothing.
    ///
    /// ```
    /// # use tidegate_core::{Limit, Span, Timestamp};
    /// let limit: Limit = "5/s smooth".parse()?;
    /// let mut state = limit.fresh(Timestamp::EPOCH);
    /// let _ = limit.decide(&mut state, Timestamp::EPOCH, 1);
    /// let hasty = limit.decide_within(&mut state, Timestamp::EPOCH, 1, Span::from_millis(50));
    /// assert_eq!(hasty.retry_after(), Some(Span::from_millis(150)));
    /// # Ok::<(), tidegate_core::RuleError>(())
    /// ```
    pub fn decide_within(
        &self,
        state: &mut State,
        now: Timestamp,
        cost: u64,
        patience: Span,
    ) -> Decision {
        let mut after = state.clone();
        let decision = self.decide(&mut after, now, cost);
        let is_refused = match decision.verdict {
            Verdict::Allow => false,
            Verdict::Wait(wait) => wait > patience,
            // When a rule that delays requests would admit this one, its wait may still exceed `patience`.
            Verdict::Deny(_) => self.delays_requests(),
        };
        if is_refused {
            let retry = self.retry_within(state, now, cost, patience);
            return self.peek(state, now, 0).deny(retry).decision;
        }
        *state = after;
        decision
    }

    /// Returns when a denied request that waits at most `patience` would be admitted.
    fn retry_within(&self, state: &State, now: Timestamp, cost: u64, patience: Span) -> Retry {
        let is_admitted = |at| match self.peek(state, at, cost).verdict {
            Verdict::Allow => true,
            Verdict::Wait(wait) => wait <= patience,
            Verdict::Deny(_) => false,
        };
        let mut late = now;
        for _ in 0..RETRY_STEPS_MAX {
            late = match self.peek(state, late, cost).verdict {
                Verdict::Deny(Retry::After(span)) => late + span,
                Verdict::Deny(retry) => return retry,
                Verdict::Wait(wait) if wait > patience => {
                    // At least a millisecond, the resolution of nginx. `first_instant` finds the exact instant.
                    late + wait.saturating_sub(patience).max(Span::from_millis(1))
                }
                Verdict::Allow | Verdict::Wait(_) => {
                    return Retry::After(first_instant(now, late, is_admitted).since(now));
                }
            };
        }
        // The request waits too long for its own cost, whenever it comes.
        Retry::Never
    }

    /// Returns what [`decide`](Self::decide) would return, without charging.
    ///
    /// ```
    /// # use tidegate_core::{Limit, Timestamp};
    /// let limit: Limit = "1/s".parse()?;
    /// let state = limit.fresh(Timestamp::EPOCH);
    /// assert!(limit.peek(&state, Timestamp::EPOCH, 1).is_allow());
    /// assert!(limit.peek(&state, Timestamp::EPOCH, 1).is_allow());
    /// # Ok::<(), tidegate_core::RuleError>(())
    /// ```
    pub fn peek(&self, state: &State, now: Timestamp, cost: u64) -> Decision {
        self.algorithm.peek(&state.0, now, cost)
    }

    /// Refunds `cost` of the latest charges, and at most what is charged.
    pub fn refund(&self, state: &mut State, now: Timestamp, cost: u64) {
        self.algorithm.refund(&mut state.0, now, cost);
    }

    /// Decides as [`decide`](Self::decide) does, and returns a ticket for [`release`](Self::release) if a concurrency limit
    /// admitted the request. Other limits return no ticket.
    ///
    /// ```
    /// # use tidegate_core::{Limit, Timestamp};
    /// let limit: Limit = "concurrency 5".parse()?;
    /// let mut state = limit.fresh(Timestamp::EPOCH);
    /// let (decision, ticket) = limit.enter(&mut state, Timestamp::EPOCH, 2);
    /// assert_eq!((decision.remaining, ticket.is_some()), (3, true));
    /// # Ok::<(), tidegate_core::RuleError>(())
    /// ```
    pub fn enter(
        &self,
        state: &mut State,
        now: Timestamp,
        cost: u64,
    ) -> (Decision, Option<Ticket>) {
        let decision = self.decide(state, now, cost);
        let ticket = match &state.0 {
            States::Concurrency(in_flight) if cost > 0 && !decision.is_deny() => {
                Some(Ticket { number: in_flight.last_ticket(), since: now })
            }
            _ => None,
        };
        (decision, ticket)
    }

    /// Releases the permits that [`enter`](Self::enter) charged. Nothing happens if their lease has ended.
    #[expect(clippy::needless_pass_by_value, reason = "a ticket is released once")]
    pub fn release(&self, state: &mut State, ticket: Ticket) {
        if let States::Concurrency(in_flight) = &mut state.0 {
            Concurrency::release(in_flight, ticket.number, ticket.since);
        }
    }

    /// Returns the end of this ticket's lease. `None` if the ticket is not in flight, or has no lease.
    pub fn lease_end(&self, state: &State, ticket: &Ticket) -> Option<Timestamp> {
        match &state.0 {
            States::Concurrency(in_flight) => in_flight.lease_end(ticket.number, ticket.since),
            _ => None,
        }
    }

    /// Releases all requests in flight, and makes their tickets invalid. The states of other rules do not change.
    pub fn release_all(&self, state: &mut State) {
        if let States::Concurrency(in_flight) = &mut state.0 {
            Concurrency::forget(in_flight);
        }
    }

    /// Returns the state of a key under this limit, which replaces `old` (B8). What is used stays used, up to the capacity of
    /// the new rule, and no key is blocked for longer than under the old rule.
    ///
    /// ```
    /// # use tidegate_core::{Limit, Timestamp};
    /// let (old, new): (Limit, Limit) = ("10/s".parse()?, "20/s".parse()?);
    /// let mut state = old.fresh(Timestamp::EPOCH);
    /// let _ = old.decide(&mut state, Timestamp::EPOCH, 10);
    ///
    /// let mut state = new.take_over(&old, &state, Timestamp::EPOCH);
    /// assert_eq!(new.decide(&mut state, Timestamp::EPOCH, 0).remaining, 10);
    /// # Ok::<(), tidegate_core::RuleError>(())
    /// ```
    #[must_use]
    pub fn take_over(&self, old: &Self, state: &State, now: Timestamp) -> State {
        if self.rule == old.rule {
            return state.clone();
        }
        State(self.algorithm.inherit(&old.algorithm, &state.0, now))
    }

    /// Returns the same as [`take_over`](Self::take_over) if the two limits may have [different clocks](Self::follows_calendar).
    /// `old_now` is the current time on the clock of the old limit, `now` that on the clock of this one.
    #[must_use]
    pub fn take_over_between(
        &self,
        old: &Self,
        state: &State,
        old_now: Timestamp,
        now: Timestamp,
    ) -> State {
        if self.follows_calendar() == old.follows_calendar() {
            return self.take_over(old, state, now);
        }
        State(self.algorithm.adopt(old.algorithm.usage(&state.0, old_now), now))
    }

    /// Returns a state in which nothing remains as of `now`, for callers that admit a request beyond the rule because an earlier
    /// rule had promised it.
    pub fn exhausted(&self, now: Timestamp) -> State {
        let all = self.peek(&self.fresh(now), now, 0).limit;
        State(self.algorithm.adopt(Usage::whole(all, Span::MAX), now))
    }

    /// Returns a decision that was reached without the key's state. Of its numbers, only the limit is known.
    pub fn without_state(&self, verdict: Verdict) -> Decision {
        let now = Timestamp::EPOCH;
        let limit = self.peek(&self.fresh(now), now, 0).limit;
        Decision { limit, ..Decision::without_state(verdict) }
    }

    /// Returns the time until the oldest lease ends. `None` if no request with a lease is in flight.
    pub fn next_lease_end(&self, state: &State, now: Timestamp) -> Option<Span> {
        match &state.0 {
            States::Concurrency(in_flight) => in_flight.next_lease_end().map(|end| end.since(now)),
            _ => None,
        }
    }

    /// Returns the window that contains `now`. `None` for rules without windows, which are all but `fixed`, `calendar` and
    /// `sliding`.
    pub fn window(&self, state: &State, now: Timestamp) -> Option<Window> {
        self.algorithm.window(&state.0, now)
    }

    /// Returns whether the rule itself delays requests: `queue`, `smooth`, `warmup`, and nginx's.
    pub fn delays_requests(&self) -> bool {
        match &self.algorithm {
            Algorithms::Queue(_)
            | Algorithms::Smooth(_)
            | Algorithms::Warmup(_)
            | Algorithms::Nginx(_) => true,
            Algorithms::Calendar(_)
            | Algorithms::Concurrency(_)
            | Algorithms::Fixed(_)
            | Algorithms::Leaky(_)
            | Algorithms::Sliding(_)
            | Algorithms::SlidingLog(_)
            | Algorithms::TokenBucket(_) => false,
        }
    }

    /// Returns whether the rule's windows depend on the wall clock, so that a monotonic clock does not suffice.
    pub fn follows_calendar(&self) -> bool {
        match self.rule.kind() {
            // `0/s` has windows of the wall clock too, so that a rule that replaces it can keep their counts.
            RuleKind::Calendar { .. } | RuleKind::Nothing => true,
            RuleKind::Fixed { from, .. } => *from != WindowStart::FirstRequest,
            _ => false,
        }
    }

    /// Returns whether this limits the requests in flight, so that each admitted request must be released.
    pub fn is_concurrency(&self) -> bool {
        matches!(self.algorithm, Algorithms::Concurrency(_))
    }

    /// Returns the cost of the requests in flight as of the latest request; 0 if this is not a concurrency limit.
    pub fn in_flight(&self, state: &State) -> u64 {
        match &state.0 {
            States::Concurrency(in_flight) => in_flight.count(),
            _ => 0,
        }
    }

    /// Returns the longest wait for a concurrency permit, if the rule has one.
    pub fn permit_wait(&self) -> Option<Span> {
        match self.rule.kind() {
            RuleKind::Concurrency { wait, .. } => *wait,
            _ => None,
        }
    }

    /// Returns the length of a concurrency permit's lease, if the rule has leases.
    pub fn permit_lease(&self) -> Option<Span> {
        match self.rule.kind() {
            RuleKind::Concurrency { lease, .. } => *lease,
            _ => None,
        }
    }
}

/// The most steps of [`Limit::retry_within`]: the rule's denial, the wait behind other requests, and nginx's milliseconds take
/// fewer.
const RETRY_STEPS_MAX: u32 = 8;

/// Returns the first instant after `early` at which `is_true` holds. It must hold at `late`.
fn first_instant(
    early: Timestamp,
    late: Timestamp,
    is_true: impl Fn(Timestamp) -> bool,
) -> Timestamp {
    let (mut early, mut late) = (early.as_micros(), late.as_micros());
    while late - early > 1 {
        let middle = early + (late - early) / 2;
        if is_true(Timestamp::from_micros(middle)) {
            late = middle;
        } else {
            early = middle;
        }
    }
    Timestamp::from_micros(late)
}

/// Parses a rule and creates a limit from it. Calendars must be in UTC; [`Limit::with_windows`] takes a database of named
/// time zones.
impl FromStr for Limit {
    type Err = RuleError;

    fn from_str(text: &str) -> Result<Self, RuleError> {
        Self::read(text, |_unit, _zone| None)
    }
}

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.rule.fmt(f)
    }
}
