//! A limit: a rule that is ready to decide, whichever algorithm it names.
//!
//! Everything above it — stores, limiters, servers — asks a [`Limit`] and keeps its [`State`]s.

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

/// All that a limit remembers of one key.
///
/// It belongs to the limit that made it.
///
/// ```
/// use tidegate_core::{Limit, State, Timestamp};
///
/// let limit: Limit = "100/s".parse()?;
/// let alice: State = limit.fresh(Timestamp::EPOCH);
/// # Ok::<(), tidegate_core::RuleError>(())
/// ```
#[derive(Clone, Debug)]
pub struct State(pub(crate) States);

impl Limit {
    /// Makes a limit of a rule, asking `find` for the windows of calendars in named time zones.
    /// A zone that `find` does not know is an error that points at its name.
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
            // Windows of which each admits nothing. How long they are is of no account.
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
            RuleKind::Leaky { rate, capacity } => Algorithms::Leaky(Leaky::new(*rate, *capacity)),
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

    /// Reads a rule and makes a limit of it, as [`with_windows`](Self::with_windows) does; an unknown
    /// zone is pointed at in `text` as it was written.
    ///
    /// ```
    /// use tidegate_core::Limit;
    ///
    /// let error = Limit::read("1/day  calendar in  Mars", |_unit, _zone| None).unwrap_err();
    /// assert_eq!(error.span(), 20..24);
    /// # Ok::<(), tidegate_core::RuleError>(())
    /// ```
    pub fn read(
        text: &str,
        find: impl FnOnce(CalendarUnit, &str) -> Option<Arc<dyn Windows>>,
    ) -> Result<Self, RuleError> {
        Self::with_windows(text.parse()?, find).map_err(|error| error.in_text(text))
    }

    /// The rule this limit obeys.
    ///
    /// ```
    /// # use tidegate_core::Limit;
    /// let limit: Limit = "60/60s".parse()?;
    /// assert_eq!(limit.rule().to_string(), "60/min");
    /// # Ok::<(), tidegate_core::RuleError>(())
    /// ```
    pub fn rule(&self) -> &ParsedRule {
        &self.rule
    }

    /// Returns the state of a key that no request has used. `birth` is when the limit began: a bucket
    /// that starts empty fills from then on, for every key.
    ///
    /// ```
    /// # use tidegate_core::{Limit, Timestamp};
    /// let limit: Limit = "10/s start empty".parse()?;
    /// let mut state = limit.fresh(Timestamp::EPOCH);
    /// assert!(limit.decide(&mut state, Timestamp::EPOCH, 1).is_deny());
    /// # Ok::<(), tidegate_core::RuleError>(())
    /// ```
    #[inline]
    pub fn fresh(&self, birth: Timestamp) -> State {
        State(self.algorithm.fresh(birth))
    }

    /// Decides about a request, and charges it unless it is denied. A cost of zero charges nothing
    /// and is never denied.
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

    /// Decides about a request that does not want to wait longer than `patience`: where
    /// [`decide`](Self::decide) would say to wait longer, this denies at once and charges nothing.
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
            // Only the rule's own line can be too long behind its own refusal.
            Verdict::Deny(_) => self.delays_requests(),
        };
        if is_refused {
            let retry = self.retry_within(state, now, cost, patience);
            return self.peek(state, now, 0).deny(retry).decision;
        }
        *state = after;
        decision
    }

    /// Returns when a request with this patience would be admitted that is denied now.
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
                    // At least nginx's next tick; the first instant that will do is looked for below.
                    late + wait.saturating_sub(patience).max(Span::from_millis(1))
                }
                Verdict::Allow | Verdict::Wait(_) => {
                    return Retry::After(first_instant(now, late, is_admitted).since(now));
                }
            };
        }
        // However long it is put off, its own cost makes it wait too long.
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

    /// Gives back `cost` of what was charged last, and never more than is charged.
    ///
    /// ```
    /// # use tidegate_core::{Limit, Timestamp};
    /// let limit: Limit = "1/s".parse()?;
    /// let mut state = limit.fresh(Timestamp::EPOCH);
    /// let _ = limit.decide(&mut state, Timestamp::EPOCH, 1);
    /// limit.refund(&mut state, Timestamp::EPOCH, 1);
    /// assert!(limit.decide(&mut state, Timestamp::EPOCH, 1).is_allow());
    /// # Ok::<(), tidegate_core::RuleError>(())
    /// ```
    pub fn refund(&self, state: &mut State, now: Timestamp, cost: u64) {
        self.algorithm.refund(&mut state.0, now, cost);
    }

    /// Like [`decide`](Self::decide), with a ticket to give back what was taken. Only a concurrency
    /// limit needs one; other limits give `None`.
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

    /// Gives back what [`enter`](Self::enter) took. A lease that has run out is not given back twice.
    ///
    /// ```
    /// # use tidegate_core::{Limit, Timestamp};
    /// let limit: Limit = "concurrency 5".parse()?;
    /// let mut state = limit.fresh(Timestamp::EPOCH);
    /// let (_, ticket) = limit.enter(&mut state, Timestamp::EPOCH, 2);
    /// limit.release(&mut state, ticket.unwrap());
    /// assert_eq!(limit.peek(&state, Timestamp::EPOCH, 0).remaining, 5);
    /// # Ok::<(), tidegate_core::RuleError>(())
    /// ```
    #[expect(clippy::needless_pass_by_value, reason = "a ticket is good for one release")]
    pub fn release(&self, state: &mut State, ticket: Ticket) {
        if let States::Concurrency(in_flight) = &mut state.0 {
            Concurrency::release(in_flight, ticket.number, ticket.since);
        }
    }

    /// Returns when the lease ends under which this ticket's permit is held. `None` if the permit is not held, or has no lease.
    ///
    /// ```
    /// # use tidegate_core::{Limit, Span, Timestamp};
    /// let limit: Limit = "concurrency 5 lease 30s".parse()?;
    /// let mut state = limit.fresh(Timestamp::EPOCH);
    /// let ticket = limit.enter(&mut state, Timestamp::EPOCH, 2).1.unwrap();
    /// assert_eq!(limit.lease_end(&state, &ticket), Some(Timestamp::EPOCH + Span::from_secs(30)));
    /// # Ok::<(), tidegate_core::RuleError>(())
    /// ```
    pub fn lease_end(&self, state: &State, ticket: &Ticket) -> Option<Timestamp> {
        match &state.0 {
            States::Concurrency(in_flight) => in_flight.lease_end(ticket.number, ticket.since),
            _ => None,
        }
    }

    /// Forgets the requests in flight: their tickets give nothing back any more. For other rules, [`fresh`](Self::fresh) is as good.
    ///
    /// ```
    /// # use tidegate_core::{Limit, Timestamp};
    /// let limit: Limit = "concurrency 5".parse()?;
    /// let mut state = limit.fresh(Timestamp::EPOCH);
    /// let (_, forgotten) = limit.enter(&mut state, Timestamp::EPOCH, 5);
    /// limit.release_all(&mut state);
    /// limit.enter(&mut state, Timestamp::EPOCH, 2);
    /// limit.release(&mut state, forgotten.unwrap());
    /// assert_eq!(limit.peek(&state, Timestamp::EPOCH, 0).remaining, 3);
    /// # Ok::<(), tidegate_core::RuleError>(())
    /// ```
    pub fn release_all(&self, state: &mut State) {
        if let States::Concurrency(in_flight) = &mut state.0 {
            Concurrency::forget(in_flight);
        }
    }

    /// The state to go on with when this limit takes over from `old` (B8): what was used stays used
    /// as far as the new rule knows it, and no key is locked out for longer than under the old rule.
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

    /// The same, between limits that may go by [different clocks](Self::follows_calendar): the old
    /// one's says `old_now` when the new one's says `now`.
    ///
    /// ```
    /// # use tidegate_core::{Limit, Timestamp};
    /// let (old, new): (Limit, Limit) = ("2/min sliding-log".parse()?, "2/min fixed".parse()?);
    /// let (old_now, now) = (Timestamp::from_micros(5), Timestamp::from_micros(3_600_000_000));
    /// let mut state = old.fresh(old_now);
    /// let _ = old.decide(&mut state, old_now, 2);
    ///
    /// let mut state = new.take_over_between(&old, &state, old_now, now);
    /// assert!(new.decide(&mut state, now, 1).remaining <= 1);
    /// # Ok::<(), tidegate_core::RuleError>(())
    /// ```
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

    /// Returns a state in which nothing is left as of `now`: for a caller that admits a request that the rule
    /// does not admit, because it was promised under another.
    ///
    /// ```
    /// # use tidegate_core::{Limit, Timestamp};
    /// let limit: Limit = "2/s".parse()?;
    /// let empty = limit.exhausted(Timestamp::EPOCH);
    /// assert_eq!(limit.peek(&empty, Timestamp::EPOCH, 0).remaining, 0);
    /// # Ok::<(), tidegate_core::RuleError>(())
    /// ```
    pub fn exhausted(&self, now: Timestamp) -> State {
        let all = self.peek(&self.fresh(now), now, 0).limit;
        State(self.algorithm.adopt(Usage::whole(all, Span::MAX), now))
    }

    /// A verdict that was reached without a key's state: of its numbers only the limit is known.
    ///
    /// ```
    /// # use tidegate_core::{Limit, Verdict};
    /// let limit: Limit = "100/s burst 20".parse()?;
    /// let allowed = limit.without_state(Verdict::Allow);
    /// assert_eq!((allowed.known_limit(), allowed.known_remaining()), (Some(20), None));
    /// # Ok::<(), tidegate_core::RuleError>(())
    /// ```
    pub fn without_state(&self, verdict: Verdict) -> Decision {
        let now = Timestamp::EPOCH;
        let limit = self.peek(&self.fresh(now), now, 0).limit;
        Decision { limit, ..Decision::without_state(verdict) }
    }

    /// How long until a lease runs out and frees a place, where the rule has leases and some are out.
    ///
    /// ```
    /// # use tidegate_core::{Limit, Span, Timestamp};
    /// let limit: Limit = "concurrency 2 lease 30s".parse()?;
    /// let mut state = limit.fresh(Timestamp::EPOCH);
    /// assert_eq!(limit.next_lease_end(&state, Timestamp::EPOCH), None);
    /// let _ = limit.decide(&mut state, Timestamp::EPOCH, 1);
    /// assert_eq!(limit.next_lease_end(&state, Timestamp::EPOCH), Some(Span::from_secs(30)));
    /// # Ok::<(), tidegate_core::RuleError>(())
    /// ```
    pub fn next_lease_end(&self, state: &State, now: Timestamp) -> Option<Span> {
        match &state.0 {
            States::Concurrency(in_flight) => in_flight.next_lease_end().map(|end| end.since(now)),
            _ => None,
        }
    }

    /// The window that `now` lies in, for rules that have windows: `fixed`, `calendar`, `sliding`.
    ///
    /// ```
    /// # use tidegate_core::{Limit, Timestamp};
    /// let limit: Limit = "1/30min fixed".parse()?;
    /// let window = limit.window(&limit.fresh(Timestamp::EPOCH), Timestamp::EPOCH).unwrap();
    /// assert_eq!(window.end, Timestamp::from_micros(1_800_000_000));
    /// # Ok::<(), tidegate_core::RuleError>(())
    /// ```
    pub fn window(&self, state: &State, now: Timestamp) -> Option<Window> {
        self.algorithm.window(&state.0, now)
    }

    /// Whether a request that is not admitted now is given a turn to wait for, by the rule itself:
    /// `queue`, `smooth`, `warmup`, and nginx's delay.
    ///
    /// ```
    /// # use tidegate_core::Limit;
    /// assert!("10/s queue".parse::<Limit>()?.delays_requests());
    /// assert!(!"10/s".parse::<Limit>()?.delays_requests());
    /// # Ok::<(), tidegate_core::RuleError>(())
    /// ```
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

    /// Whether the windows are tied to the calendar's clock rather than to the time that has passed.
    ///
    /// ```
    /// # use tidegate_core::Limit;
    /// assert!("1/day calendar".parse::<Limit>()?.follows_calendar());
    /// assert!(!"1/day fixed from first".parse::<Limit>()?.follows_calendar());
    /// # Ok::<(), tidegate_core::RuleError>(())
    /// ```
    pub fn follows_calendar(&self) -> bool {
        match self.rule.kind() {
            // Nothing is admitted in windows of the clock too, so that those of a rule with the same ones count on.
            RuleKind::Calendar { .. } | RuleKind::Nothing => true,
            RuleKind::Fixed { from, .. } => *from != WindowStart::FirstRequest,
            _ => false,
        }
    }

    /// Whether this limits how many are in flight, so that an admission must be given back.
    ///
    /// ```
    /// # use tidegate_core::Limit;
    /// assert!("concurrency 5".parse::<Limit>()?.is_concurrency());
    /// # Ok::<(), tidegate_core::RuleError>(())
    /// ```
    pub fn is_concurrency(&self) -> bool {
        matches!(self.algorithm, Algorithms::Concurrency(_))
    }

    /// How many are in flight under a concurrency limit, as of the last request; none under others.
    ///
    /// ```
    /// # use tidegate_core::{Limit, Timestamp};
    /// let limit: Limit = "concurrency 5".parse()?;
    /// let mut state = limit.fresh(Timestamp::EPOCH);
    /// limit.enter(&mut state, Timestamp::EPOCH, 2);
    /// assert_eq!(limit.in_flight(&state), 2);
    /// # Ok::<(), tidegate_core::RuleError>(())
    /// ```
    pub fn in_flight(&self, state: &State) -> u64 {
        match &state.0 {
            States::Concurrency(in_flight) => in_flight.count(),
            _ => 0,
        }
    }

    /// How long a request may wait for a concurrency permit, where the rule says so.
    ///
    /// ```
    /// # use tidegate_core::{Limit, Span};
    /// let limit: Limit = "concurrency 5 wait 500ms".parse()?;
    /// assert_eq!(limit.permit_wait(), Some(Span::from_millis(500)));
    /// # Ok::<(), tidegate_core::RuleError>(())
    /// ```
    pub fn permit_wait(&self) -> Option<Span> {
        match self.rule.kind() {
            RuleKind::Concurrency { wait, .. } => *wait,
            _ => None,
        }
    }

    /// How long a concurrency permit is held at the most, where the rule says so.
    ///
    /// ```
    /// # use tidegate_core::{Limit, Span};
    /// let limit: Limit = "concurrency 5 lease 30s".parse()?;
    /// assert_eq!(limit.permit_lease(), Some(Span::from_secs(30)));
    /// # Ok::<(), tidegate_core::RuleError>(())
    /// ```
    pub fn permit_lease(&self) -> Option<Span> {
        match self.rule.kind() {
            RuleKind::Concurrency { lease, .. } => *lease,
            _ => None,
        }
    }
}

/// A rule's refusal, then its line, then nginx's milliseconds: more steps than these do not help.
const RETRY_STEPS_MAX: u32 = 8;

/// The first instant after `early` at which it is true, knowing that at `late` it is.
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

/// Reads a rule and makes a limit of it. Calendars are in UTC here; named zones need a database, see
/// [`Limit::with_windows`].
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
