//! This node's share of a limit, which decides while Redis does not answer.
//!
//! Invariant  The share is warm: it is charged for what Redis admits, and keeps at most its part of what Redis reported as
//!            remaining. So an outage begins where Redis stopped, not with a fresh burst.
//! Invariant  After an outage, until a key has recovered from what was admitted without Redis, both Redis and the share must
//!            admit it.
//! Invariant  A permit of Redis has a permit of the share beside it, if one is free. While a permit of a key is held that Redis
//!            does not know of, a request needs both.
//! Bound      During an outage each node admits what its share admits. If the number of nodes is right, all of them admit no
//!            more than the limit. For intervals with an outage in them see `docs/decisions/0040`.

mod on_error;
mod recovery;

pub use on_error::{DecisionSource, OnError, SourcedDecision};
pub(crate) use recovery::Recovery;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use tidegate::{Clock, Decision, Denied, Limiter, Permit, Retry, Rule, Span, SystemClock, Verdict};

/// The longest time for which an admission under a concurrency limit is remembered: permits without a lease never expire.
const PERMITS_RECOVERY_MAX: Duration = Duration::from_secs(600);

/// The tolerated difference between Redis's clock and this node's.
const CLOCK_SKEW_MAX: Span = Span::from_secs(1);

#[derive(Debug)]
pub(crate) struct Fallback<C: Clock = SystemClock> {
    on_error: OnError,
    share: Option<Limiter<C>>,
    /// The most that the rule admits at once: the only number that is known without Redis and without a share.
    limit: AtomicU64,
    /// Whether the rule grants permits, which are not charged to the share.
    has_permits: AtomicBool,
    recovery: Recovery,
}

impl Fallback {
    pub(crate) fn new(rule: &Rule, on_error: OnError) -> Self {
        Self::with_clock(rule, on_error, SystemClock::new())
    }
}

impl<C: Clock> Fallback<C> {
    fn with_clock(rule: &Rule, on_error: OnError, clock: C) -> Self {
        let share = match on_error {
            OnError::Local { nodes } => Some(Limiter::with_clock(rule.share(nodes), clock)),
            OnError::Allow | OnError::Deny => None,
        };
        let has_permits = AtomicBool::new(rule.is_concurrency());
        let limit = AtomicU64::new(limit_of(rule));
        Self { on_error, share, limit, has_permits, recovery: Recovery::default() }
    }

    /// Charges the share for what Redis has admitted. While the key recovers from an outage, returns the share's denial, if it
    /// denies; what Redis has charged then drains.
    pub(crate) fn confirm(&self, key: &[u8], cost: u64, decision: Decision) -> Decision {
        let Some(share) = &self.share else { return decision };
        if self.has_permits.load(Ordering::Relaxed) {
            return decision;
        }
        let here = if decision.is_deny() { decision } else { share.check_n(key, cost) };
        if self.is_recovering(key) {
            // Redis does not know the whole debt: both must admit the request.
            return if here.is_deny() { here } else { decision };
        }
        self.cap_share(share, key, &decision);
        decision
    }

    /// Caps the share after a joint denial, which has charged nothing.
    pub(crate) fn learn_remaining(&self, key: &[u8], decision: &Decision) {
        let Some(share) = &self.share else { return };
        if !self.has_permits.load(Ordering::Relaxed) && !self.is_recovering(key) {
            self.cap_share(share, key, decision);
        }
    }

    /// Caps the share at its part of what Redis has remaining: charges it for what other nodes were admitted, but not beyond
    /// the time at which Redis resets. A window that is about to end in Redis says nothing about the next one.
    fn cap_share(&self, share: &Limiter<C>, key: &[u8], decision: &Decision) {
        let OnError::Local { nodes } = self.on_error else { return };
        let part = decision.remaining.div_ceil(nodes.max(1));
        let above = share.request(key).cost(0).peek().remaining.saturating_sub(part);
        if above == 0 {
            return;
        }
        let after = share.request(key).cost(above).peek();
        if after.reset_after <= decision.reset_after + CLOCK_SKEW_MAX {
            let _ = share.check_n(key, above);
        }
    }

    /// Returns the share, if it must admit this key too: while the key recovers from an outage, and not for permits.
    pub(crate) fn confirming_share(&self, key: &[u8]) -> Option<&Limiter<C>> {
        let has_permits = self.has_permits.load(Ordering::Relaxed);
        self.share.as_ref().filter(|_| !has_permits && self.is_recovering(key))
    }

    /// Charges the share for a lease, at most what it has remaining. What is returned of the lease stays charged until it has
    /// drained.
    pub(crate) fn charge_lease(&self, key: &[u8], amount: u64) {
        let Some(share) = &self.share else { return };
        let remaining = share.request(key).cost(0).peek().remaining;
        let _ = share.check_n(key, amount.min(remaining));
    }

    /// Decides without Redis.
    pub(crate) fn decide(&self, key: &[u8], cost: u64) -> SourcedDecision {
        let Some(share) = &self.share else {
            let decision = self.policy_decision();
            return SourcedDecision { decision, source: DecisionSource::Policy };
        };
        let decision = share.check_n(key, cost);
        self.remember(key, cost, &decision);
        SourcedDecision { decision, source: DecisionSource::LocalShare }
    }

    /// Returns what [`decide`](Self::decide) would return, without charging.
    pub(crate) fn peek(&self, key: &[u8], cost: u64) -> Decision {
        self.share
            .as_ref()
            .map_or_else(|| self.policy_decision(), |share| share.request(key).cost(cost).peek())
    }

    /// Remembers an admission without Redis, which still counts when Redis is back.
    pub(crate) fn remember(&self, key: &[u8], cost: u64, decision: &Decision) {
        if decision.is_deny() || cost == 0 {
            return;
        }
        let has_permits = self.has_permits.load(Ordering::Relaxed);
        let longest = if has_permits { PERMITS_RECOVERY_MAX } else { Duration::MAX };
        self.recovery.admitted(key, decision.reset_after.as_duration().min(longest));
    }

    /// Returns the share's denial of a key that recovers from an outage.
    pub(crate) fn still_denies(&self, key: &[u8], cost: u64) -> Option<Decision> {
        let share = self.share.as_ref()?;
        if !self.is_recovering(key) {
            return None;
        }
        let decision = share.request(key).cost(cost).peek();
        decision.is_deny().then_some(decision)
    }

    /// Returns whether the key has a debt of which Redis does not know.
    pub(crate) fn is_recovering(&self, key: &[u8]) -> bool {
        self.recovery.counts(key)
    }

    /// Acquires a permit of the share, before Redis is asked for one.
    pub(crate) fn acquire_beside_redis(
        &self,
        key: &[u8],
        cost: u64,
    ) -> Result<Option<Permit<C>>, Denied> {
        let Some(share) = self.share.as_ref().filter(|share| share.rule().is_concurrency()) else {
            return Ok(None);
        };
        match share.request(key).cost(cost).try_acquire() {
            Ok(permit) => Ok(Some(permit)),
            Err(denied) if self.recovery.is_held(key) => Err(denied),
            Err(_) => Ok(None),
        }
    }

    /// Acquires a permit without Redis, until it is [released](Self::release).
    pub(crate) fn acquire(&self, key: &[u8], cost: u64) -> Result<Option<Permit<C>>, Denied> {
        match (&self.share, self.on_error) {
            (Some(share), _) => {
                let permit = share.request(key).cost(cost).try_acquire()?;
                self.recovery.hold(key);
                self.remember(key, cost, &permit.decision());
                Ok(Some(permit))
            }
            (None, OnError::Deny) => Err(self.policy_decision().deny(Retry::After(RETRY_AFTER))),
            (None, _) => Ok(None),
        }
    }

    /// Releases a permit of which Redis does not know.
    pub(crate) fn release(&self, key: &[u8]) {
        self.recovery.release(key);
    }

    /// Returns whether no key of the share owes anything. Then no key recovers from an outage either: the share was charged for
    /// what it admitted, and drains no sooner.
    pub(crate) fn is_idle(&self) -> bool {
        self.share.as_ref().is_none_or(Limiter::is_idle)
    }

    /// Returns this node's share, if the policy has one.
    pub(crate) fn share(&self) -> Option<&Limiter<C>> {
        self.share.as_ref()
    }

    /// Returns the decision of a policy without a share. What is remaining is unknown.
    pub(crate) fn policy_decision(&self) -> Decision {
        let mut decision = Decision::without_state(match self.on_error {
            OnError::Deny => Verdict::Deny(Retry::After(RETRY_AFTER)),
            OnError::Allow | OnError::Local { .. } => Verdict::Allow,
        });
        decision.limit = self.limit.load(Ordering::Relaxed);
        decision
    }

    pub(crate) fn refund(&self, key: &[u8], cost: u64) {
        if let Some(share) = &self.share {
            share.refund(key, cost);
        }
    }

    pub(crate) fn reset(&self, key: &[u8]) {
        if let Some(share) = &self.share {
            share.reset(key);
            self.recovery.forget(key);
        }
    }

    pub(crate) fn set_rule(&self, rule: &Rule) {
        self.limit.store(limit_of(rule), Ordering::Relaxed);
        if let (Some(share), OnError::Local { nodes }) = (&self.share, self.on_error) {
            let rule = rule.share(nodes);
            if share.rule() != rule {
                share.set_rule(rule.clone());
            }
            self.has_permits.store(rule.is_concurrency(), Ordering::Relaxed);
        }
    }
}

/// Returns the most that the rule admits at once.
pub(crate) fn limit_of(rule: &Rule) -> u64 {
    rule.limit().without_state(Verdict::Allow).limit
}

/// The retry time of a denial by [`OnError::Deny`].
const RETRY_AFTER: Span = Span::from_secs(1);

#[cfg(test)]
mod simulation_tests;

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::time::advance;

    fn fallback(rule: &str) -> Fallback {
        let rule = rule.parse().unwrap_or_else(|error| panic!("{error}"));
        Fallback::new(&rule, OnError::Local { nodes: 1 })
    }

    /// T33. The clock of the share is not paused, so it hardly refills: the test is whether the share is asked.
    #[tokio::test(start_paused = true)]
    async fn an_admission_without_redis_counts_until_it_has_drained() {
        let fallback = fallback("12/h burst 12");
        for _ in 0..12 {
            assert!(fallback.decide(b"key", 1).decision.is_allow());
        }
        advance(Duration::from_secs(3_590)).await;
        assert!(fallback.still_denies(b"key", 1).is_some());
        advance(Duration::from_secs(11)).await;
        assert!(fallback.still_denies(b"key", 1).is_none(), "an hour has passed");
    }

    #[tokio::test(start_paused = true)]
    async fn a_debt_of_a_hundred_years_is_counted_to_its_end() {
        let fallback = fallback("1/36500day");
        assert!(fallback.decide(b"key", 1).decision.is_allow());
        advance(Duration::from_secs(36_499 * 86_400)).await;
        assert!(fallback.still_denies(b"key", 1).is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn a_key_that_was_admitted_nothing_without_redis_does_not_need_the_share() {
        let fallback = fallback("2/h burst 2");
        assert!(fallback.decide(b"key", 2).decision.is_allow());
        assert!(fallback.decide(b"denied", 3).decision.is_deny());
        assert!(fallback.decide(b"nothing", 0).decision.is_allow());
        let recovering = [&b"key"[..], b"denied", b"nothing", b"other"];
        let recovering = recovering.map(|key| fallback.is_recovering(key));
        assert_eq!(recovering, [true, false, false, false]);
        assert!(
            fallback.confirming_share(b"key").is_some()
                && fallback.confirming_share(b"other").is_none()
        );
    }

    /// Returns a decision by Redis.
    fn reported(remaining: u64, resets: Span) -> Decision {
        let mut decision = Decision::UNLIMITED;
        (decision.remaining, decision.reset_after) = (remaining, resets);
        decision
    }

    fn share_of_a_third(rule: &str) -> Fallback {
        let rule = rule.parse().unwrap_or_else(|error| panic!("{error}"));
        Fallback::new(&rule, OnError::Local { nodes: 3 })
    }

    fn admits(fallback: &Fallback, key: &[u8]) -> usize {
        (0..100).filter(|_| fallback.decide(key, 1).decision.is_allow()).count()
    }

    #[tokio::test]
    async fn a_share_begins_an_outage_with_its_part_of_what_redis_had_remaining() {
        let fallback = share_of_a_third("12/h burst 12");
        for (remaining, part) in [(12, 3), (8, 3), (4, 2), (3, 1), (1, 1), (0, 0)] {
            let (key, hour) = ([u8::try_from(remaining).unwrap()], Span::from_secs(3_600));
            let _ = fallback.confirm(&key, 1, reported(remaining, hour));
            assert_eq!(admits(&fallback, &key), part, "{remaining} remaining");
        }
        let denied = reported(2, Span::from_secs(3_000)).deny(Retry::After(Span::from_secs(1)));
        let _ = fallback.confirm(b"denied", 3, denied.decision);
        assert_eq!(admits(&fallback, b"denied"), 1, "the cost was more than was remaining");
    }

    /// By Redis's clock the old window has not ended yet.
    #[tokio::test]
    async fn a_share_is_not_charged_for_a_window_that_is_about_to_end() {
        let fallback = share_of_a_third("12/100day fixed");
        let _ = fallback.confirm(b"key", 1, reported(0, Span::from_millis(500)));
        assert_eq!(admits(&fallback, b"key"), 3);
    }

    /// The largest number would be wrong: a client would believe it.
    #[test]
    fn remaining_is_unknown_without_redis_and_without_a_share() {
        let rule: Rule = "100/s burst 20".parse().expect("it is a rule");
        let decide = |on_error| Fallback::new(&rule, on_error).decide(b"key", 1).decision;
        let (allowed, denied) = (decide(OnError::Allow), decide(OnError::Deny));
        let numbers = [allowed, denied].map(|it| (it.known_limit(), it.known_remaining()));
        assert_eq!(numbers, [(Some(20), None), (Some(20), Some(0))]);
        assert_eq!([allowed, denied].map(|it| it.known_reset_after()), [None, None]);
        assert_eq!((allowed.is_allow(), denied.retry_after()), (true, Some(RETRY_AFTER)));
        let changed = Fallback::new(&rule, OnError::Deny);
        changed.set_rule(&"7/s".parse().expect("it is a rule"));
        assert_eq!(changed.policy_decision().known_limit(), Some(7));
    }

    /// A permit without a lease never expires.
    #[tokio::test(start_paused = true)]
    async fn a_permit_that_is_never_released_does_not_count_for_ever() {
        let fallback = fallback("concurrency 1");
        let _held = fallback.acquire(b"key", 1).expect("one is free");
        assert!(fallback.decide(b"key", 1).decision.is_deny());
        assert!(fallback.still_denies(b"key", 1).is_some());
        advance(PERMITS_RECOVERY_MAX).await;
        assert!(fallback.still_denies(b"key", 1).is_none());
    }
}
