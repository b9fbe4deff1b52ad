//! This node's share of a limit, for when Redis does not answer.
//!
//! Always   Warm: what Redis admits is charged here too, and the share has no more left than its part of what Redis said it
//!          had left, so that an outage begins where Redis left off, and not with a fresh burst. After an outage, for as long as a key takes to recover from what it was admitted without
//!          Redis, Redis and the share must both say yes to it: that is not admitted again. Places under a concurrency
//!          limit likewise: who has Redis's place has one of the share, if one is left; and as long as anybody holds
//!          one of a key that Redis does not know of, only who gets one of the share gets one of Redis.
//! Bound    During an outage each node admits what its share admits: with the true number of nodes all together
//!          admit no more than the limit. With what Redis admits before and after it: `docs/decisions/0040`.

mod on_error;
mod recovery;

pub use on_error::{OnError, Source, Told};
pub(crate) use recovery::Recovery;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use tidegate::{Clock, Decision, Denied, Limiter, Permit, Retry, Rule, Span, SystemClock, Verdict};

/// Places may never be over by themselves: an outage is not remembered for longer because of them.
const PLACES_RECOVERY_MAX: Duration = Duration::from_secs(600);

/// Redis's clock and this node's may differ by so much.
const CLOCKS_DIFFER: Span = Span::from_secs(1);

#[derive(Debug)]
pub(crate) struct Fallback<C: Clock = SystemClock> {
    on_error: OnError,
    share: Option<Limiter<C>>,
    /// The most that the rule ever admits at once: all that is known without Redis and without a share.
    limit: AtomicU64,
    /// Places are not charged here: they are held in Redis until they are given back.
    has_places: AtomicBool,
    /// What was admitted without Redis.
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
        let has_places = AtomicBool::new(rule.is_concurrency());
        let limit = AtomicU64::new(limit_of(rule));
        Self { on_error, share, limit, has_places, recovery: Recovery::default() }
    }

    /// What Redis has decided is charged here too, and told to who asked; after an outage only if the share says yes
    /// too. What Redis has then charged in vain drains: who asked at the same time was faster.
    pub(crate) fn warm(&self, key: &[u8], cost: u64, decision: Decision) -> Decision {
        let Some(share) = &self.share else { return decision };
        if self.has_places.load(Ordering::Relaxed) {
            return decision;
        }
        let here = if decision.is_deny() { decision } else { share.check_n(key, cost) };
        if self.is_recovering(key) {
            // Redis does not know what is left: both must say yes.
            return if here.is_deny() { here } else { decision };
        }
        self.leave_its_part(share, key, &decision);
        decision
    }

    /// The same for a joint decision that was denied: nothing is charged, and the share keeps no more than its part of what
    /// Redis has left of this key.
    pub(crate) fn learn_remaining(&self, key: &[u8], decision: &Decision) {
        let Some(share) = &self.share else { return };
        if !self.has_places.load(Ordering::Relaxed) && !self.is_recovering(key) {
            self.leave_its_part(share, key, decision);
        }
    }

    /// What Redis has left is everybody's: charges the share for what other nodes were admitted, as far as it lasts no
    /// longer than Redis says. A window that is over there, and not here, says nothing about the next one.
    fn leave_its_part(&self, share: &Limiter<C>, key: &[u8], decision: &Decision) {
        let OnError::Local { nodes } = self.on_error else { return };
        let part = decision.remaining.div_ceil(nodes.max(1));
        let above = share.request(key).cost(0).peek().remaining.saturating_sub(part);
        if above == 0 {
            return;
        }
        let after = share.request(key).cost(above).peek();
        if after.reset_after <= decision.reset_after + CLOCKS_DIFFER {
            let _ = share.check_n(key, above);
        }
    }

    /// The share, if what Redis admits to this key must be admitted by it too: after an outage, and not for places.
    pub(crate) fn must_agree(&self, key: &[u8]) -> Option<&Limiter<C>> {
        let has_places = self.has_places.load(Ordering::Relaxed);
        self.share.as_ref().filter(|_| !has_places && self.is_recovering(key))
    }

    /// What Redis has lent is charged here too, as far as there is room: it can be spent without anybody asking. What
    /// is given back of it later stays charged until it has drained.
    pub(crate) fn lent(&self, key: &[u8], amount: u64) {
        let Some(share) = &self.share else { return };
        let room = share.request(key).cost(0).peek().remaining;
        let _ = share.check_n(key, amount.min(room));
    }

    /// An answer without Redis.
    pub(crate) fn decide(&self, key: &[u8], cost: u64) -> Told {
        let Some(share) = &self.share else {
            return Told { decision: self.fixed(), source: Source::Policy };
        };
        let decision = share.check_n(key, cost);
        self.remember(key, cost, &decision);
        Told { decision, source: Source::Local }
    }

    /// What [`decide`](Self::decide) would say, without charging.
    pub(crate) fn look(&self, key: &[u8], cost: u64) -> Decision {
        self.share
            .as_ref()
            .map_or_else(|| self.fixed(), |share| share.request(key).cost(cost).peek())
    }

    /// It was decided without Redis: what was admitted counts on when Redis is back.
    pub(crate) fn remember(&self, key: &[u8], cost: u64, decision: &Decision) {
        if decision.is_deny() || cost == 0 {
            return;
        }
        let has_places = self.has_places.load(Ordering::Relaxed);
        let most = if has_places { PLACES_RECOVERY_MAX } else { Duration::MAX };
        self.recovery.admitted(key, decision.reset_after.as_duration().min(most));
    }

    /// The share's denial, while what it has admitted without Redis still counts.
    pub(crate) fn still_denies(&self, key: &[u8], cost: u64) -> Option<Decision> {
        let share = self.share.as_ref()?;
        if !self.is_recovering(key) {
            return None;
        }
        let decision = share.request(key).cost(cost).peek();
        decision.is_deny().then_some(decision)
    }

    /// Whether what this key was admitted without Redis still counts.
    pub(crate) fn is_recovering(&self, key: &[u8]) -> bool {
        self.recovery.counts(key)
    }

    /// A place of the share, for who is about to ask Redis for one.
    pub(crate) fn accompany(&self, key: &[u8], cost: u64) -> Result<Option<Permit<C>>, Denied> {
        let Some(share) = self.share.as_ref().filter(|share| share.rule().is_concurrency()) else {
            return Ok(None);
        };
        match share.request(key).cost(cost).try_acquire() {
            Ok(place) => Ok(Some(place)),
            Err(denied) if self.recovery.is_held(key) => Err(denied),
            Err(_) => Ok(None),
        }
    }

    /// A place without Redis, until it is [given back](Self::give_back).
    pub(crate) fn acquire(&self, key: &[u8], cost: u64) -> Result<Option<Permit<C>>, Denied> {
        match (&self.share, self.on_error) {
            (Some(share), _) => {
                let place = share.request(key).cost(cost).try_acquire()?;
                self.recovery.hold(key);
                self.remember(key, cost, &place.decision());
                Ok(Some(place))
            }
            (None, OnError::Deny) => Err(self.fixed().deny(Retry::After(RETRY))),
            (None, _) => Ok(None),
        }
    }

    /// A place that Redis did not know of is free again.
    pub(crate) fn give_back(&self, key: &[u8]) {
        self.recovery.give_back(key);
    }

    /// This node's share, if it has one.
    pub(crate) fn share(&self) -> Option<&Limiter<C>> {
        self.share.as_ref()
    }

    /// What is said without Redis where there is no share. Nobody knows what is left of what is allowed.
    pub(crate) fn fixed(&self) -> Decision {
        let mut decision = Decision::without_state(match self.on_error {
            OnError::Deny => Verdict::Deny(Retry::After(RETRY)),
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

    pub(crate) fn change(&self, rule: &Rule) {
        self.limit.store(limit_of(rule), Ordering::Relaxed);
        if let (Some(share), OnError::Local { nodes }) = (&self.share, self.on_error) {
            let rule = rule.share(nodes);
            if share.rule() != rule {
                share.set_rule(rule.clone());
            }
            self.has_places.store(rule.is_concurrency(), Ordering::Relaxed);
        }
    }
}

/// The most that the rule ever admits at once.
fn limit_of(rule: &Rule) -> u64 {
    rule.limit().without_state(Verdict::Allow).limit
}

/// When somebody who was denied for want of an answer may ask again.
const RETRY: Span = Span::from_secs(1);

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

    /// The share's own time stands nearly still: whether it is asked is what is looked at.
    #[tokio::test(start_paused = true)]
    async fn t33_what_was_admitted_without_redis_counts_until_it_has_drained() {
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
    async fn t33_a_rule_of_a_hundred_years_is_counted_to_its_end() {
        let fallback = fallback("1/36500day");
        assert!(fallback.decide(b"key", 1).decision.is_allow());
        advance(Duration::from_secs(36_499 * 86_400)).await;
        assert!(fallback.still_denies(b"key", 1).is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn t33_who_was_admitted_nothing_without_redis_is_not_held_up() {
        let fallback = fallback("2/h burst 2");
        assert!(fallback.decide(b"key", 2).decision.is_allow());
        assert!(fallback.decide(b"denied", 3).decision.is_deny());
        assert!(fallback.decide(b"nothing", 0).decision.is_allow());
        let recovering = [&b"key"[..], b"denied", b"nothing", b"other"];
        let recovering = recovering.map(|key| fallback.is_recovering(key));
        assert_eq!(recovering, [true, false, false, false]);
        assert!(fallback.must_agree(b"key").is_some() && fallback.must_agree(b"other").is_none());
    }

    /// What Redis says of a key.
    fn left(remaining: u64, resets: Span) -> Decision {
        let mut decision = Decision::UNLIMITED;
        (decision.remaining, decision.reset_after) = (remaining, resets);
        decision
    }

    fn third(rule: &str) -> Fallback {
        let rule = rule.parse().unwrap_or_else(|error| panic!("{error}"));
        Fallback::new(&rule, OnError::Local { nodes: 3 })
    }

    fn admits(fallback: &Fallback, key: &[u8]) -> usize {
        (0..100).filter(|_| fallback.decide(key, 1).decision.is_allow()).count()
    }

    #[tokio::test]
    async fn a_share_begins_an_outage_with_its_part_of_what_redis_had_left() {
        let fallback = third("12/h burst 12");
        for (remaining, part) in [(12, 3), (8, 3), (4, 2), (3, 1), (1, 1), (0, 0)] {
            let (key, hour) = ([u8::try_from(remaining).unwrap()], Span::from_secs(3_600));
            let _ = fallback.warm(&key, 1, left(remaining, hour));
            assert_eq!(admits(&fallback, &key), part, "{remaining} left");
        }
        let denied = left(2, Span::from_secs(3_000)).deny(Retry::After(Span::from_secs(1)));
        let _ = fallback.warm(b"denied", 3, denied.decision);
        assert_eq!(admits(&fallback, b"denied"), 1, "it wanted more than was left");
    }

    /// By Redis's clock it is still yesterday.
    #[tokio::test]
    async fn a_share_is_not_charged_for_a_window_that_is_about_to_end() {
        let fallback = third("12/100day fixed");
        let _ = fallback.warm(b"key", 1, left(0, Span::from_millis(500)));
        assert_eq!(admits(&fallback, b"key"), 3);
    }

    /// Not as many as a number can hold: a client that is told so, or that reads JSON in doubles, would believe it.
    #[test]
    fn nobody_knows_what_is_left_without_redis_and_without_a_share() {
        let rule: Rule = "100/s burst 20".parse().expect("it is a rule");
        let said = |on_error| Fallback::new(&rule, on_error).decide(b"key", 1).decision;
        let (allowed, denied) = (said(OnError::Allow), said(OnError::Deny));
        let numbers = [allowed, denied].map(|said| (said.known_limit(), said.known_remaining()));
        assert_eq!(numbers, [(Some(20), None), (Some(20), Some(0))]);
        assert_eq!([allowed, denied].map(|said| said.known_reset_after()), [None, None]);
        assert_eq!((allowed.is_allow(), denied.retry_after()), (true, Some(RETRY)));
        let changed = Fallback::new(&rule, OnError::Deny);
        changed.change(&"7/s".parse().expect("it is a rule"));
        assert_eq!(changed.fixed().known_limit(), Some(7));
    }

    /// A place without a lease is never over by itself.
    #[tokio::test(start_paused = true)]
    async fn t33_a_place_that_nobody_gives_back_does_not_count_for_ever() {
        let fallback = fallback("concurrency 1");
        let _held = fallback.acquire(b"key", 1).expect("one is free");
        assert!(fallback.decide(b"key", 1).decision.is_deny());
        assert!(fallback.still_denies(b"key", 1).is_some());
        advance(PLACES_RECOVERY_MAX).await;
        assert!(fallback.still_denies(b"key", 1).is_none());
    }
}
