//! Keys that are known to be denied: nobody goes to Redis to hear it again.
//!
//! Always   Exact: what is denied here would be denied there. A denial holds until others have drained, and nothing
//!          but time drains them, or somebody who gives back, forgets the key or changes the rule; then the denial
//!          is forgotten here, at once on this node, and on others as soon as they hear of it.
//!          Redis decided after the request was sent. So the time since then is taken for longer than it was, and the
//!          denial here ends no later than there.
//!          A thread remembers the last denial that it found, and finds it again without a hash and a lock; it is
//!          forgotten with all others whenever one is.
//! Always   Who is denied a cost is denied any that is larger; it is told here if the answer tells all of the state, else by
//!          an answer to the same cost.
//! Always   At most [`KEYS_MAX`] are remembered, of [`KEY_BYTES_MAX`] bytes, [`COSTS_MAX`] costs of each, for [`SPAN_MAX`] at
//!          the longest.

use crate::random;
use crate::script::codec::{Answer, Shared, Verb};
use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use tidegate::{Clock, SystemClock};
use tidegate_core::{Decision, Span, Timestamp};

pub(crate) const KEYS_MAX: usize = 1 << 16;
/// Who asks in turn for more costs than this, of a key whose answers do not tell all, is asked about in Redis.
const COSTS_MAX: usize = 4;
/// Who has a longer key is asked about in Redis: strangers choose keys, and these are kept whole.
pub(crate) const KEY_BYTES_MAX: usize = 512;
/// Who did not hear that a denial is over hears it after this long.
pub(crate) const SPAN_MAX: Span = Span::from_secs(1);

#[derive(Debug)]
pub(crate) struct DeniedKeys<C = SystemClock> {
    kept: Mutex<HashMap<Vec<u8>, Vec<Denial>>>,
    clock: C,
    /// Tells these keys from others.
    number: u64,
    /// How often something was forgotten.
    generation: AtomicU64,
    scans: Scans,
}

/// When a full memory was last looked through: not by each who finds it full, since nothing in it lives longer than
/// [`SPAN_MAX`].
#[derive(Debug, Default)]
pub(crate) struct Scans(AtomicU64);

impl Scans {
    /// Whether it is time to look again. Who asks has the memory locked.
    pub(crate) fn is_due(&self, now: Timestamp) -> bool {
        let last = Timestamp::from_micros(self.0.load(Ordering::Relaxed));
        let is_due = now.since(last) >= SPAN_MAX;
        if is_due {
            self.0.store(now.as_micros(), Ordering::Relaxed);
        }
        is_due
    }
}

/// The denial that a thread found last: of one, so that it only gets shorter.
struct Last {
    number: u64,
    generation: u64,
    version: u64,
    key: Vec<u8>,
    decision: Decision,
    sent: Timestamp,
    ends: Timestamp,
}

/// When somebody was about to ask, and how often something had been forgotten by then.
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

thread_local! {
    static LAST: RefCell<Option<Last>> = const { RefCell::new(None) };
}

impl Default for DeniedKeys {
    fn default() -> Self {
        Self::by(SystemClock::new())
    }
}

#[derive(Debug)]
struct Denial {
    answer: Answer,
    decision: Decision,
    cost: u64,
    version: u64,
    /// When the request was about to be sent.
    sent: Timestamp,
    ends: Timestamp,
}

impl<C: Clock> DeniedKeys<C> {
    /// None yet, and by this clock.
    pub(crate) fn by(clock: C) -> Self {
        let (number, generation) = (random::number(), AtomicU64::new(0));
        Self { kept: Mutex::default(), clock, number, generation, scans: Scans::default() }
    }

    /// For who is about to ask Redis.
    pub(crate) fn now(&self) -> SentAt {
        SentAt { sent: self.clock.now(), generation: self.generation.load(Ordering::Acquire) }
    }

    /// Whether somebody may not be denied any more who was denied when this was asked.
    pub(crate) fn has_forgotten_since(&self, asked: SentAt) -> bool {
        self.generation.load(Ordering::Acquire) != asked.generation
    }

    /// The denial that this thread found last, if it is of this key and still holds.
    #[inline]
    pub(crate) fn last(&self, key: &[u8], version: u64, cost: u64) -> Option<Decision> {
        if cost != 1 {
            return None;
        }
        let generation = self.generation.load(Ordering::Acquire);
        LAST.with_borrow(|last| {
            let last = last.as_ref()?;
            let is_it = last.number == self.number
                && last.generation == generation
                && last.version == version
                && last.key == key;
            if !is_it {
                return None;
            }
            let now = self.clock.now();
            (now < last.ends).then(|| last.decision.after_elapsed(now.since(last.sent)))
        })
    }

    /// The denial of this cost, if it is known to be one.
    pub(crate) fn get(
        &self,
        key: &[u8],
        shared: &Shared,
        version: u64,
        cost: u64,
    ) -> Option<Decision> {
        // Before the denial is looked up: what is forgotten after that is forgotten here too.
        let generation = self.generation.load(Ordering::Acquire);
        let mut kept = self.kept.lock().expect("nobody panics with it");
        let denials = kept.get_mut(key)?;
        let now = self.clock.now();
        denials.retain(|denial| denial.version == version && now < denial.ends);
        if denials.is_empty() {
            kept.remove(key);
            return None;
        }
        let denies =
            |denial: &&Denial| denial.cost == cost || denial.cost < cost && shared.tells_all();
        let denial = denials.iter().find(denies)?;
        let elapsed = now.since(denial.sent);
        if cost == 1 {
            // Where not even one is left there is nothing to work out.
            let Denial { decision, sent, ends, .. } = *denial;
            let (number, key) = (self.number, key.to_vec());
            LAST.set(Some(Last { number, generation, version, key, decision, sent, ends }));
            return Some(decision.after_elapsed(elapsed));
        }
        let later = denial.answer.later(elapsed);
        drop(kept);
        let decision = shared.decision(&later, Verb::Look, cost).ok()?;
        decision.is_deny().then_some(decision)
    }

    /// Remembers a denial.
    pub(crate) fn put(
        &self,
        key: &[u8],
        (answer, decision): (Answer, &Decision),
        version: u64,
        cost: u64,
        SentAt { sent, generation }: SentAt,
    ) {
        let Some(retry_after) = decision.retry_after() else { return };
        let ends = sent + retry_after.min(SPAN_MAX);
        let mut kept = self.kept.lock().expect("nobody panics with it");
        // Somebody has given back while the answer was on its way: it may be one that does not hold any more.
        if self.generation.load(Ordering::Acquire) != generation || key.len() > KEY_BYTES_MAX {
            return;
        }
        if kept.len() >= KEYS_MAX {
            let now = self.clock.now();
            if self.scans.is_due(now) {
                kept.retain(|_, denials| denials.iter().any(|denial| denial.ends > now));
            }
            if kept.len() >= KEYS_MAX {
                return;
            }
        }
        let decision = *decision;
        let denials = kept.entry(key.to_vec()).or_default();
        denials.retain(|denial| denial.cost != cost);
        if denials.len() >= COSTS_MAX {
            denials.remove(0);
        }
        denials.push(Denial { answer, decision, cost, version, sent, ends });
    }

    /// It may not be denied any more.
    pub(crate) fn forget(&self, key: &[u8]) {
        let mut kept = self.kept.lock().expect("nobody panics with it");
        kept.remove(key);
        self.generation.fetch_add(1, Ordering::AcqRel);
    }

    /// None of them may be.
    pub(crate) fn forget_all(&self) {
        let mut kept = self.kept.lock().expect("nobody panics with it");
        kept.clear();
        self.generation.fetch_add(1, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{RedisLimiter, RedisStore, Settings, Source};
    use std::time::Duration;
    use tidegate::{ManualClock, Rule};
    use tidegate_testbed::RedisServer;

    const BIRTH: Timestamp = Timestamp::from_micros(1_790_000_000_000_000);

    fn settings() -> Settings {
        Settings::default().deadline(Duration::from_secs(20))
    }

    /// A limit of a server where the time is said by this clock, and a denial of this cost by it.
    async fn denied_by_redis(
        server: &RedisServer,
        clock: &ManualClock,
        rule: &str,
        cost: u64,
    ) -> (RedisLimiter, DeniedKeys<ManualClock>, Span) {
        let address = server.url().parse().unwrap();
        let store = RedisStore::connect_with_clock(&address, settings(), clock.clone()).await;
        let limiter = store.limiter("limit", rule.parse().unwrap()).unwrap();
        let keys = DeniedKeys::by(clock.clone());
        for _ in 0..100 {
            let asked = keys.now();
            let taken = limiter.inner.exact.take(b"key", cost, None).await.unwrap();
            if let Some(retry) = taken.decision.retry_after() {
                keys.put(b"key", (taken.answer, &taken.decision), taken.version, cost, asked);
                return (limiter, keys, retry);
            }
        }
        panic!("`{rule}` denies nobody");
    }

    fn remembered(
        limiter: &RedisLimiter,
        keys: &DeniedKeys<ManualClock>,
        cost: u64,
    ) -> Option<Decision> {
        let current = limiter.inner.exact.current().unwrap();
        keys.get(b"key", &current.shared, current.version, cost)
    }

    /// Number for number, from the first microsecond to the last: what is told here is what Redis would say.
    #[tokio::test]
    async fn a_key_is_denied_here_until_it_is_not_denied_there_exactly() {
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
                assert!(retry <= SPAN_MAX, "`{rule}`: {retry:?}");
                let whole = retry.as_micros();
                for passed in [0, 1, whole / 3, whole / 2, whole - 1] {
                    clock.set(BIRTH + Span::from_micros(passed));
                    let there = limiter.peek("key", cost).await.unwrap();
                    let (here, last) = (
                        remembered(&limiter, &keys, cost),
                        keys.last(b"key", limiter.inner.exact.version(), cost),
                    );
                    assert!(there.is_deny());
                    assert_eq!(
                        here,
                        Some(there),
                        "`{rule}`, cost {cost}, after {passed} of {whole} us"
                    );
                    assert_eq!(last, here.filter(|_| cost == 1), "`{rule}`: by the thread");
                }
                clock.set(BIRTH + retry);
                assert!(!limiter.peek("key", cost).await.unwrap().is_deny(), "`{rule}`");
                assert_eq!(
                    keys.last(b"key", limiter.inner.exact.version(), cost),
                    None,
                    "`{rule}`"
                );
                assert_eq!(remembered(&limiter, &keys, cost), None, "`{rule}`, cost {cost}");
            }
        }
    }

    /// Number for number as well, where the answer tells all of the state; else Redis is asked.
    #[tokio::test]
    async fn a_larger_cost_is_denied_by_what_a_smaller_one_was_told_exactly() {
        let server = RedisServer::start();
        for (rule, tells_all) in [
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
                    let there = limiter.peek("key", cost).await.unwrap();
                    assert!(there.is_deny());
                    let here = remembered(&limiter, &keys, cost);
                    assert_eq!(here, tells_all.then_some(there), "`{rule}`, {cost}, {passed} us");
                }
            }
            clock.set(BIRTH + retry);
            assert_eq!(remembered(&limiter, &keys, 2), None, "`{rule}`: one is left");
        }
    }

    /// Who asks for one and for two in turn makes nobody forget.
    #[tokio::test]
    async fn several_costs_of_a_key_are_remembered_beside_each_other() {
        let (server, clock) = (RedisServer::start(), ManualClock::at(BIRTH));
        let rule = "6/900ms sliding-log";
        let (limiter, keys, _) = denied_by_redis(&server, &clock, rule, 1).await;
        for cost in 2..=COSTS_MAX as u64 + 1 {
            let taken = limiter.inner.exact.take(b"key", cost, None).await.unwrap();
            let known = (taken.answer, &taken.decision);
            keys.put(b"key", known, taken.version, cost, keys.now());
            for cost in 2..=cost {
                assert!(remembered(&limiter, &keys, cost).is_some(), "{cost}");
            }
        }
        assert_eq!(remembered(&limiter, &keys, 1), None, "the oldest makes room");
    }

    /// Who gave back may have been somebody else.
    #[tokio::test]
    async fn a_long_denial_is_asked_about_again_after_a_second_exactly() {
        let (server, clock) = (RedisServer::start(), ManualClock::at(BIRTH));
        let (limiter, keys, retry) = denied_by_redis(&server, &clock, "2/h", 1).await;
        assert!(retry > SPAN_MAX);
        clock.set(BIRTH + SPAN_MAX - Span::from_micros(1));
        assert!(remembered(&limiter, &keys, 1).is_some());
        clock.advance(Span::from_micros(1));
        assert_eq!(keys.last(b"key", limiter.inner.exact.version(), 1), None);
        assert_eq!(remembered(&limiter, &keys, 1), None);
    }

    #[tokio::test]
    async fn another_cost_or_another_rule_is_not_denied_by_what_is_remembered() {
        let (server, clock) = (RedisServer::start(), ManualClock::at(BIRTH));
        let (limiter, keys, _) = denied_by_redis(&server, &clock, "2/h burst 3", 2).await;
        assert!(remembered(&limiter, &keys, 2).is_some());
        assert_eq!(remembered(&limiter, &keys, 1), None, "one is left");
        let current = limiter.inner.exact.current().unwrap();
        assert_eq!(keys.get(b"key", &current.shared, current.version + 1, 2), None);
        assert_eq!(remembered(&limiter, &keys, 2), None, "and it is forgotten");
    }

    /// A limit of one in an hour, by Redis's own clock, with a key that is known to be denied.
    async fn one_that_is_denied(server: &RedisServer) -> RedisLimiter {
        let address = server.url().parse().unwrap();
        let store = RedisStore::connect_with(&address, settings()).await;
        let limiter = store.limiter("limit", "1/h".parse().unwrap()).unwrap();
        assert!(limiter.check("key").await.is_allow());
        assert!(limiter.check("key").await.is_deny());
        assert_eq!(limiter.decide(b"key", 1).await.source, Source::Remembered);
        limiter
    }

    #[tokio::test]
    async fn who_gives_back_is_not_denied_by_what_was_before() {
        let server = RedisServer::start();
        let limiter = one_that_is_denied(&server).await;
        limiter.refund("key", 1).await.unwrap();
        assert!(limiter.check("key").await.is_allow());
    }

    #[tokio::test]
    async fn who_is_forgotten_is_not_denied_by_what_was_before() {
        let server = RedisServer::start();
        let limiter = one_that_is_denied(&server).await;
        limiter.reset("key").await.unwrap();
        assert!(limiter.check("key").await.is_allow());
    }

    #[tokio::test]
    async fn under_another_rule_nobody_is_denied_by_what_was_before() {
        let server = RedisServer::start();
        let limiter = one_that_is_denied(&server).await;
        let rule: Rule = "9/h burst 9".parse().unwrap();
        limiter.set_rule(rule).await.unwrap();
        assert!(limiter.inner.denied.kept.lock().unwrap().is_empty(), "nothing of it is kept");
        assert!(limiter.check("key").await.is_allow());
    }

    #[tokio::test]
    async fn under_a_rule_that_another_node_has_changed_nobody_is_denied_by_what_was_before() {
        let server = RedisServer::start();
        let limiter = one_that_is_denied(&server).await;
        let address = server.url().parse().unwrap();
        let other = RedisStore::connect_with(&address, settings()).await;
        let other = other.limiter("limit", "9/h burst 9".parse().unwrap()).unwrap();
        other.ready().await.unwrap();
        limiter.inner.hear().await;
        assert!(limiter.inner.denied.kept.lock().unwrap().is_empty(), "nothing of it is kept");
        assert!(limiter.check("key").await.is_allow());
    }

    /// A denial for a minute, as Redis said it to somebody who asked at that time.
    fn put(keys: &DeniedKeys, key: &[u8], asked: SentAt) -> Option<Decision> {
        let limit: tidegate_core::Limit = "1/min".parse().unwrap();
        let shared = Shared::new(limit.clone(), 1, Timestamp::EPOCH).unwrap();
        let mut state = limit.fresh(Timestamp::EPOCH);
        let _ = limit.decide(&mut state, Timestamp::EPOCH, 1);
        let decision = limit.decide(&mut state, Timestamp::EPOCH, 1);
        assert!(decision.is_deny());
        let Ok(crate::script::codec::Said::Answer(answer)) =
            shared.read(&redis::Value::Int(-60_000_001))
        else {
            panic!("it is an answer");
        };
        keys.put(key, (answer, &decision), 1, 1, asked);
        keys.get(key, &shared, 1, 1)
    }

    #[test]
    fn a_denial_is_remembered_and_by_the_thread_that_found_it() {
        let keys = DeniedKeys::default();
        assert_eq!(keys.last(b"key", 1, 1), None);
        assert!(put(&keys, b"key", keys.now()).is_some());
        assert!(keys.last(b"key", 1, 1).is_some());
        assert_eq!(keys.last(b"other", 1, 1), None);
        assert_eq!(keys.last(b"key", 2, 1), None, "of another rule");
        assert_eq!(keys.last(b"key", 1, 2), None, "of another cost");
        assert_eq!(DeniedKeys::default().last(b"key", 1, 1), None, "of another limit");
    }

    #[test]
    fn what_is_forgotten_is_forgotten_by_every_memory() {
        for forget in [|keys: &DeniedKeys| keys.forget(b"key"), DeniedKeys::forget_all] {
            let keys = DeniedKeys::default();
            assert!(put(&keys, b"key", keys.now()).is_some());
            forget(&keys);
            assert_eq!(keys.last(b"key", 1, 1), None);
        }
    }

    #[test]
    fn a_denial_that_was_on_its_way_when_somebody_gave_back_is_not_remembered() {
        let keys = DeniedKeys::default();
        let asked = keys.now();
        keys.forget(b"key");
        assert_eq!(put(&keys, b"key", asked), None);
        assert!(put(&keys, b"key", keys.now()).is_some());
    }

    #[test]
    fn no_key_is_kept_that_is_longer_than_the_longest() {
        let keys = DeniedKeys::default();
        assert!(put(&keys, &[b'x'; KEY_BYTES_MAX], keys.now()).is_some());
        assert_eq!(put(&keys, &[b'x'; KEY_BYTES_MAX + 1], keys.now()), None);
    }
}
