//! Cache of recent denials: a key that Redis has just denied is denied again without asking Redis.
//!
//! Invariant  Exact: a request that is denied here would be denied in Redis. A denial holds until the key has drained, which
//!            only time, a refund, a reset or a change of the rule can do. The last three remove the denial from the
//!            cache: at once on this node, and within [`AGE_MAX`] on other nodes.
//! Invariant  The age of a denial is measured from before the request was sent, so it ends here no later than in Redis.
//! Invariant  The denial of one cost also denies larger costs, if the answer contains the whole state. Otherwise it only denies
//!            the same cost.
//! Bound      [`KEYS_MAX`] keys of [`KEY_BYTES_MAX`] bytes, [`COSTS_MAX`] costs for each key, for [`AGE_MAX`].

use crate::script::codec::{LimitCodec, Operation, ScriptDecision};
use crate::sync::Mutex;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use tidegate::{Clock, SystemClock};
use tidegate_core::{Decision, Span, Timestamp};

pub(crate) const KEYS_MAX: usize = 1 << 16;
/// Further costs of a key whose answers do not contain the whole state are decided in Redis.
const COSTS_MAX: usize = 4;
/// Longer keys are not cached: clients choose keys, and the cache stores them whole.
pub(crate) const KEY_BYTES_MAX: usize = 512;
/// How long an entry may be out of date after a refund or a reset on another node.
pub(crate) const AGE_MAX: Span = Span::from_secs(1);

#[derive(Debug)]
pub(crate) struct DenialCache<C = SystemClock> {
    keys: Mutex<HashMap<Vec<u8>, Vec<Denial>>>,
    clock: C,
    /// How often a denial was removed before its end.
    generation: AtomicU64,
    purges: PurgeSchedule,
}

/// When a full cache was last searched for expired entries: at most once in [`AGE_MAX`], since no entry lives longer.
#[derive(Debug, Default)]
pub(crate) struct PurgeSchedule(AtomicU64);

impl PurgeSchedule {
    /// Returns whether a search is due. The caller holds the lock of the cache.
    pub(crate) fn is_due(&self, now: Timestamp) -> bool {
        let last = Timestamp::from_micros(self.0.load(Ordering::Relaxed));
        let is_due = now.since(last) >= AGE_MAX;
        if is_due {
            self.0.store(now.as_micros(), Ordering::Relaxed);
        }
        is_due
    }
}

/// The time before a request was sent, and the cache generation at that time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SentAt {
    sent: Timestamp,
    generation: u64,
}

impl SentAt {
    pub(crate) fn sent(self) -> Timestamp {
        self.sent
    }
}

impl Default for DenialCache {
    fn default() -> Self {
        Self::with_clock(SystemClock::new())
    }
}

#[derive(Debug)]
struct Denial {
    answer: ScriptDecision,
    cost: u64,
    version: u64,
    sent: Timestamp,
    ends: Timestamp,
}

impl<C: Clock> DenialCache<C> {
    pub(crate) fn with_clock(clock: C) -> Self {
        let (keys, generation) = (Mutex::default(), AtomicU64::new(0));
        Self { keys, clock, generation, purges: PurgeSchedule::default() }
    }

    /// Returns the time for a request that is about to be sent.
    pub(crate) fn now(&self) -> SentAt {
        SentAt { sent: self.clock.now(), generation: self.generation.load(Ordering::Acquire) }
    }

    /// Returns whether a denial was removed since then, so that an answer of that time may be out of date.
    pub(crate) fn has_forgotten_since(&self, sent: SentAt) -> bool {
        self.generation.load(Ordering::Acquire) != sent.generation
    }

    /// Returns the denial of this cost, if the cache knows that it is denied.
    pub(crate) fn get(
        &self,
        key: &[u8],
        codec: &LimitCodec,
        version: u64,
        cost: u64,
    ) -> Option<Decision> {
        let mut keys = self.keys.lock();
        let denials = keys.get_mut(key)?;
        let now = self.clock.now();
        denials.retain(|denial| denial.version == version && now < denial.ends);
        if denials.is_empty() {
            keys.remove(key);
            return None;
        }
        let denies = |denial: &&Denial| {
            denial.cost == cost || denial.cost < cost && codec.reports_whole_state()
        };
        let denial = denials.iter().find(denies)?;
        let later = denial.answer.later(now.since(denial.sent));
        drop(keys);
        let decision = codec.decision(&later, Operation::Peek, cost).ok()?;
        decision.is_deny().then_some(decision)
    }

    /// Stores a denial by Redis.
    pub(crate) fn put(
        &self,
        key: &[u8],
        (answer, decision): (ScriptDecision, &Decision),
        version: u64,
        cost: u64,
        SentAt { sent, generation }: SentAt,
    ) {
        let Some(retry_after) = decision.retry_after() else { return };
        let ends = sent + retry_after.min(AGE_MAX);
        let mut keys = self.keys.lock();
        // A refund or a reset overtook the answer, so the denial may not hold any more.
        if self.generation.load(Ordering::Acquire) != generation || key.len() > KEY_BYTES_MAX {
            return;
        }
        if keys.len() >= KEYS_MAX {
            let now = self.clock.now();
            if self.purges.is_due(now) {
                keys.retain(|_, denials| denials.iter().any(|denial| denial.ends > now));
            }
            if keys.len() >= KEYS_MAX {
                return;
            }
        }
        let denials = keys.entry(key.to_vec()).or_default();
        denials.retain(|denial| denial.cost != cost);
        if denials.len() >= COSTS_MAX {
            denials.remove(0);
        }
        denials.push(Denial { answer, cost, version, sent, ends });
    }

    /// Removes the denials of a key: it may have been refunded or reset.
    pub(crate) fn forget(&self, key: &[u8]) {
        let mut keys = self.keys.lock();
        keys.remove(key);
        self.generation.fetch_add(1, Ordering::AcqRel);
    }

    /// Removes all denials: the rule has changed.
    pub(crate) fn forget_all(&self) {
        let mut keys = self.keys.lock();
        keys.clear();
        self.generation.fetch_add(1, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::script::codec::ScriptReply;
    use crate::{DecisionSource, RedisLimiter, RedisStore, Settings};
    use std::time::Duration;
    use tidegate::{ManualClock, Rule};
    use tidegate_testbed::RedisServer;

    const BIRTH: Timestamp = Timestamp::from_micros(1_790_000_000_000_000);

    fn settings() -> Settings {
        Settings::default().deadline(Duration::from_secs(20))
    }

    /// Returns a limiter whose Redis uses this clock, and a cache with its denial of this cost.
    async fn denied_by_redis(
        server: &RedisServer,
        clock: &ManualClock,
        rule: &str,
        cost: u64,
    ) -> (RedisLimiter, DenialCache<ManualClock>, Span) {
        let address = server.url().parse().unwrap();
        let store = RedisStore::connect_with_clock(&address, settings(), clock.clone()).await;
        let limiter = store.limiter("limit", rule.parse().unwrap()).unwrap();
        let keys = DenialCache::with_clock(clock.clone());
        for _ in 0..100 {
            let sent = keys.now();
            let taken = limiter.inner.remote.charge(b"key", cost, None).await.unwrap();
            if let Some(retry) = taken.decision.retry_after() {
                keys.put(b"key", (taken.answer, &taken.decision), taken.version, cost, sent);
                return (limiter, keys, retry);
            }
        }
        panic!("`{rule}` denies nothing");
    }

    fn cached(
        limiter: &RedisLimiter,
        keys: &DenialCache<ManualClock>,
        cost: u64,
    ) -> Option<Decision> {
        let current = limiter.inner.remote.loaded_rule().unwrap();
        keys.get(b"key", &current.codec, current.version, cost)
    }

    /// Compares every number of the decisions, from the first microsecond of a denial to the last.
    #[tokio::test]
    async fn a_cached_denial_equals_that_of_redis_until_the_key_has_drained() {
        let server = RedisServer::start();
        for rule in [
            "3/s burst 5",
            "7/s leaky capacity 4",
            "9/s fixed",
            "20/900ms fixed from first",
            "11/800ms sliding",
            "6/900ms sliding-log",
            "4r/s burst=3 nodelay",
        ] {
            for cost in [1, 2] {
                server.command(&["FLUSHALL"]);
                let clock = ManualClock::at(BIRTH);
                let (limiter, keys, retry) = denied_by_redis(&server, &clock, rule, cost).await;
                assert!(retry <= AGE_MAX, "`{rule}`: {retry:?}");
                let whole = retry.as_micros();
                for passed in [0, 1, whole / 3, whole / 2, whole - 1] {
                    clock.set(BIRTH + Span::from_micros(passed));
                    let there = limiter.request("key").cost(cost).peek().await.unwrap();
                    let here = cached(&limiter, &keys, cost);
                    assert!(there.is_deny());
                    assert_eq!(
                        here,
                        Some(there),
                        "`{rule}`, cost {cost}, after {passed} of {whole} us"
                    );
                }
                clock.set(BIRTH + retry);
                assert!(
                    !limiter.request("key").cost(cost).peek().await.unwrap().is_deny(),
                    "`{rule}`"
                );
                assert_eq!(cached(&limiter, &keys, cost), None, "`{rule}`, cost {cost}");
            }
        }
    }

    /// Compares every number of the decisions. Without the whole state, Redis is asked.
    #[tokio::test]
    async fn the_denial_of_a_cost_denies_larger_costs_if_the_whole_state_is_known() {
        let server = RedisServer::start();
        for (rule, is_whole) in [
            ("3/s burst 5", true),
            ("7/s leaky capacity 4", true),
            ("9/s fixed", true),
            ("11/800ms sliding", true),
            ("4r/s burst=3 nodelay", true),
            ("6/900ms sliding-log", false),
        ] {
            server.command(&["FLUSHALL"]);
            let clock = ManualClock::at(BIRTH);
            let (limiter, keys, retry) = denied_by_redis(&server, &clock, rule, 1).await;
            let whole = retry.as_micros();
            for passed in [0, 1, whole / 2, whole - 1] {
                clock.set(BIRTH + Span::from_micros(passed));
                for cost in [2, 3, 4, 100, u64::MAX] {
                    let there = limiter.request("key").cost(cost).peek().await.unwrap();
                    assert!(there.is_deny());
                    let here = cached(&limiter, &keys, cost);
                    assert_eq!(here, is_whole.then_some(there), "`{rule}`, {cost}, {passed} us");
                }
            }
            clock.set(BIRTH + retry);
            assert_eq!(cached(&limiter, &keys, 2), None, "`{rule}`: one is left");
        }
    }

    #[tokio::test]
    async fn denials_of_several_costs_of_a_key_are_cached() {
        let (server, clock) = (RedisServer::start(), ManualClock::at(BIRTH));
        let rule = "6/900ms sliding-log";
        let (limiter, keys, _) = denied_by_redis(&server, &clock, rule, 1).await;
        for cost in 2..=COSTS_MAX as u64 + 1 {
            let taken = limiter.inner.remote.charge(b"key", cost, None).await.unwrap();
            let known = (taken.answer, &taken.decision);
            keys.put(b"key", known, taken.version, cost, keys.now());
            for cost in 2..=cost {
                assert!(cached(&limiter, &keys, cost).is_some(), "{cost}");
            }
        }
        assert_eq!(cached(&limiter, &keys, 1), None, "the oldest is evicted");
    }

    /// Another node may have refunded the key.
    #[tokio::test]
    async fn a_long_denial_expires_after_a_second() {
        let (server, clock) = (RedisServer::start(), ManualClock::at(BIRTH));
        let (limiter, keys, retry) = denied_by_redis(&server, &clock, "2/h", 1).await;
        assert!(retry > AGE_MAX);
        clock.set(BIRTH + AGE_MAX - Span::from_micros(1));
        assert!(cached(&limiter, &keys, 1).is_some());
        clock.advance(Span::from_micros(1));
        assert_eq!(cached(&limiter, &keys, 1), None);
    }

    #[tokio::test]
    async fn a_denial_does_not_deny_smaller_costs_or_under_another_rule() {
        let (server, clock) = (RedisServer::start(), ManualClock::at(BIRTH));
        let (limiter, keys, _) = denied_by_redis(&server, &clock, "2/h burst 3", 2).await;
        assert!(cached(&limiter, &keys, 2).is_some());
        assert_eq!(cached(&limiter, &keys, 1), None, "one is left");
        let current = limiter.inner.remote.loaded_rule().unwrap();
        assert_eq!(keys.get(b"key", &current.codec, current.version + 1, 2), None);
        assert_eq!(cached(&limiter, &keys, 2), None, "and it is forgotten");
    }

    /// Returns a limiter of one request an hour, by Redis's own clock, with a cached denial of `key`.
    async fn limiter_with_denial(server: &RedisServer) -> RedisLimiter {
        let address = server.url().parse().unwrap();
        let store = RedisStore::connect_with(&address, settings()).await;
        let limiter = store.limiter("limit", "1/h".parse().unwrap()).unwrap();
        assert!(limiter.check("key").await.is_allow());
        assert!(limiter.check("key").await.is_deny());
        assert_eq!(limiter.decide(b"key", 1).await.source, DecisionSource::CachedDenial);
        limiter
    }

    #[tokio::test]
    async fn a_refund_removes_the_denial() {
        let server = RedisServer::start();
        let limiter = limiter_with_denial(&server).await;
        limiter.refund("key", 1).await.unwrap();
        assert!(limiter.check("key").await.is_allow());
    }

    #[tokio::test]
    async fn a_reset_removes_the_denial() {
        let server = RedisServer::start();
        let limiter = limiter_with_denial(&server).await;
        limiter.reset("key").await.unwrap();
        assert!(limiter.check("key").await.is_allow());
    }

    #[tokio::test]
    async fn a_change_of_the_rule_removes_all_denials() {
        let server = RedisServer::start();
        let limiter = limiter_with_denial(&server).await;
        let rule: Rule = "9/h burst 9".parse().unwrap();
        limiter.set_rule(rule).await.unwrap();
        assert!(limiter.inner.denial_cache.keys.lock().is_empty());
        assert!(limiter.check("key").await.is_allow());
    }

    #[tokio::test]
    async fn a_change_of_the_rule_by_another_node_removes_all_denials() {
        let server = RedisServer::start();
        let limiter = limiter_with_denial(&server).await;
        let address = server.url().parse().unwrap();
        let other = RedisStore::connect_with(&address, settings()).await;
        let other = other.limiter("limit", "9/h burst 9".parse().unwrap()).unwrap();
        other.ready().await.unwrap();
        limiter.inner.refresh_rule().await;
        assert!(limiter.inner.denial_cache.keys.lock().is_empty());
        assert!(limiter.check("key").await.is_allow());
    }

    /// Puts a denial of a minute into the cache, and looks it up.
    fn put(keys: &DenialCache, key: &[u8], sent: SentAt) -> Option<Decision> {
        let limit: tidegate_core::Limit = "1/min".parse().unwrap();
        let codec = LimitCodec::new(limit.clone(), 1, Timestamp::EPOCH).unwrap();
        let mut state = limit.fresh(Timestamp::EPOCH);
        let _ = limit.decide(&mut state, Timestamp::EPOCH, 1);
        let decision = limit.decide(&mut state, Timestamp::EPOCH, 1);
        assert!(decision.is_deny());
        let Ok(ScriptReply::Decision(answer)) = codec.read(&redis::Value::Int(-60_000_001)) else {
            panic!("it is a decision");
        };
        keys.put(key, (answer, &decision), 1, 1, sent);
        keys.get(key, &codec, 1, 1)
    }

    #[test]
    fn a_denial_that_a_refund_overtakes_is_not_cached() {
        let keys = DenialCache::default();
        let sent = keys.now();
        keys.forget(b"key");
        assert_eq!(put(&keys, b"key", sent), None);
        assert!(put(&keys, b"key", keys.now()).is_some());
    }

    #[test]
    fn keys_above_the_maximum_length_are_not_cached() {
        let keys = DenialCache::default();
        assert!(put(&keys, &[b'x'; KEY_BYTES_MAX], keys.now()).is_some());
        assert_eq!(put(&keys, &[b'x'; KEY_BYTES_MAX + 1], keys.now()), None);
    }
}
