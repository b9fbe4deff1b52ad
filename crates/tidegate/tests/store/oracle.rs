//! A limiter compared with a map of the pure limit's states: keys are evicted, moved, packed and swept, and every decision
//! is that of the pure limit.
//!
//! The oracle evicts no key. If the limiter has few keys, the oracle learns from a counter whether a key was decided in the
//! overflow state, and checks whether that was right.

use crate::rules::EVERY;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use std::collections::HashMap;
use tidegate::limiter::Overflow;
use tidegate::{Clock, Decision, Limiter, ManualClock, Span, Timestamp, check_all};
use tidegate_core::{Limit, State};

#[derive(Clone, Debug)]
enum Step {
    Check {
        key: u8,
        cost: u64,
    },
    Batch(Vec<(u8, u64)>),
    CheckAll {
        keys: (u8, u8),
        cost: u64,
    },
    Refund {
        key: u8,
        cost: u64,
    },
    Reset(u8),
    Peek(u8),
    Sweep,
    Rule(usize),
    Wait(Span),
    /// A sweep by a clock that goes back afterwards, but not by more than it may tremble.
    Tremble(Span),
}

const TREMBLE: Span = Span::from_millis(1);

struct Oracle {
    limiter: Limiter<ManualClock>,
    clock: ManualClock,
    overflow: Overflow,
    latest: Timestamp,
    birth: Timestamp,
    limit: Limit,
    fresh: State,
    shared: State,
    keys: HashMap<u8, State>,
}

impl Oracle {
    /// An audited key is always decided under the lock; other keys may use the fast path.
    fn new(rule: &str, max_keys: usize, overflow: Overflow, is_audited: bool) -> Self {
        let clock = ManualClock::new();
        let builder = Limiter::builder(rule.parse().unwrap()).max_keys(max_keys).overflow(overflow);
        let builder = if is_audited { builder.audit(1) } else { builder };
        let limiter = builder.with_clock(clock.clone());
        let limit: Limit = rule.parse().unwrap();
        let birth = clock.now();
        let (fresh, shared) = (limit.fresh(birth), limit.fresh(birth));
        // No time is before the creation of the limiter.
        clock.advance(TREMBLE + TREMBLE);
        let (latest, keys) = (clock.now(), HashMap::new());
        Self { limiter, clock, overflow, latest, birth, limit, fresh, shared, keys }
    }

    fn now(&self) -> Timestamp {
        self.clock.now()
    }

    fn state(&mut self, key: u8) -> &mut State {
        self.keys.entry(key).or_insert_with(|| self.fresh.clone())
    }

    fn rest(&self, state: &State, at: Timestamp) -> Span {
        self.limit.peek(state, at, 0).reset_after
    }

    /// Whether forgetting it would be a gift. Under some rules also a key that never asked has
    /// something to recover from.
    fn is_in_debt(&self, key: u8, at: Timestamp) -> bool {
        let fresh = self.rest(&self.fresh, at);
        self.keys.get(&key).is_some_and(|state| self.rest(state, at) > fresh)
    }

    /// Returns the number of keys that a limiter must not evict.
    fn debtors(&self, at: Timestamp) -> usize {
        self.keys.keys().filter(|key| self.is_in_debt(**key, at)).count()
    }

    /// Returns the number of keys that a limiter may still have.
    fn recovering(&self, at: Timestamp) -> usize {
        self.keys.values().filter(|state| !self.rest(state, at).is_zero()).count()
    }

    fn step(&mut self, step: &Step) {
        match step {
            Step::Check { key, cost } => self.check(*key, *cost, false),
            Step::Batch(asks) if asks.len() == 1 => self.check(asks[0].0, asks[0].1, true),
            Step::Batch(asks) => self.batch(asks),
            Step::CheckAll { keys, cost } => self.check_all(*keys, *cost),
            Step::Refund { key, cost } => self.refund(*key, *cost),
            Step::Reset(key) => self.reset(*key),
            Step::Peek(key) => self.look(*key),
            Step::Sweep => {
                self.limiter.sweep();
                let most = self.recovering(self.now() - TREMBLE);
                assert!(self.limiter.keys() <= most, "a key at rest was not seen");
            }
            Step::Rule(rule) => self.change(EVERY[*rule]),
            Step::Wait(span) => {
                self.latest = self.latest + *span;
                self.clock.set(self.latest);
            }
            Step::Tremble(span) => {
                self.step(&Step::Wait(TREMBLE));
                self.step(&Step::Sweep);
                self.latest = self.latest - *span;
                self.clock.set(self.latest);
            }
        }
        let (keys, stats) = (self.limiter.keys(), self.limiter.stats());
        assert!(keys <= stats.max_keys, "{keys} of {}", stats.max_keys);
        assert_eq!(stats.keys, keys, "counted twice");
        assert!(keys >= self.debtors(self.now()), "a key in debt was evicted");
        let audit = self.limiter.audit().unwrap_or_default();
        let has_shared = self.overflow == Overflow::Share && stats.overflowed > 0;
        // A key that was admitted in the overflow state has not used its own, see `full.rs`.
        assert!(has_shared || audit.violations == 0, "{:?}", audit.first);
    }

    fn look(&mut self, key: u8) {
        let (now, limit) = (self.now(), self.limit.clone());
        if self.is_in_debt(key, now) {
            assert_eq!(self.limiter.peek(&key), limit.peek(&self.keys[&key], now, 1));
        }
        // A request of cost 0 also advances the key's time, and may insert it.
        let mut state = self.state(key).clone();
        let before = self.limiter.stats().overflowed;
        let seen = self.limiter.check_n(&key, 0);
        if self.limiter.stats().overflowed > before {
            return self.compare(key, 0, &seen, true);
        }
        assert_eq!(seen, limit.decide(&mut state, now, 0));
        *self.state(key) = state;
    }

    fn check(&mut self, key: u8, cost: u64, is_batch: bool) {
        let before = self.limiter.stats().overflowed;
        let decision = if is_batch {
            let mut batch = self.limiter.batch();
            batch.push(&key, cost);
            batch.decide()[0]
        } else {
            self.limiter.check_n(&key, cost)
        };
        let is_overflow = self.limiter.stats().overflowed > before;
        self.compare(key, cost, &decision, is_overflow);
    }

    fn compare(&mut self, key: u8, cost: u64, decision: &Decision, is_overflow: bool) {
        let (now, limit) = (self.now(), self.limit.clone());
        if !is_overflow {
            assert_eq!(*decision, limit.decide(self.state(key), now, cost), "{limit}, {key}");
            return;
        }
        assert!(!self.is_in_debt(key, now), "{key} is known, and yet in the overflow");
        let most = self.recovering(now - TREMBLE);
        assert!(most >= self.limiter.stats().max_keys, "there was capacity, or an idle key");
        match self.overflow {
            Overflow::Share => {
                assert_eq!(*decision, limit.decide(&mut self.shared, now, cost), "{limit}, shared");
            }
            _ => assert!(cost == 0 || decision.is_deny(), "{limit}: {decision:?}"),
        }
    }

    /// Decides a batch if there is capacity for all keys: otherwise the counter would not show which keys overflowed.
    fn batch(&mut self, asks: &[(u8, u64)]) {
        let has_room = self.limiter.stats().max_keys > usize::from(u8::MAX);
        if !has_room {
            return asks.iter().for_each(|(key, cost)| self.check(*key, *cost, true));
        }
        let mut batch = self.limiter.batch();
        for (key, cost) in asks {
            batch.push(key, *cost);
        }
        let decisions = batch.decide().to_vec();
        for ((key, cost), decision) in asks.iter().zip(&decisions) {
            self.compare(*key, *cost, decision, false);
        }
    }

    fn check_all(&mut self, (one, other): (u8, u8), cost: u64) {
        let (now, limit) = (self.now(), self.limit.clone());
        let asks = [one, other].map(|key| self.limiter.request(&key).cost(cost));
        let joint = check_all(asks);
        let keys = if one == other { vec![one] } else { vec![one, other] };
        let cost = if one == other { cost.saturating_mul(2) } else { cost };
        for key in [one, other] {
            // It may be remembered, also if nothing is charged.
            self.state(key);
        }
        if joint.decision.is_deny() || cost == 0 {
            // Nothing is charged, which the next steps see.
            return;
        }
        let mut overflowed = 0;
        for key in keys {
            let mut charged = self.state(key).clone();
            let decision = limit.decide(&mut charged, now, cost);
            let before = self.limiter.stats().overflowed;
            let seen = self.limiter.check_n(&key, 0);
            let is_own = self.limiter.stats().overflowed == before;
            if is_own && seen == limit.peek(&charged, now, 0) && !decision.is_deny() {
                *self.state(key) = charged;
                continue;
            }
            assert_eq!(self.overflow, Overflow::Share, "{key} was admitted without capacity");
            assert!(!self.is_in_debt(key, now), "{key} is known, and yet in the overflow");
            overflowed += cost;
        }
        let shared = limit.decide(&mut self.shared, now, overflowed);
        assert!(
            !shared.is_deny(),
            "{limit}: {one} and {other} were admitted, and nothing was charged"
        );
    }

    fn refund(&mut self, key: u8, cost: u64) {
        self.limiter.refund(&key, cost);
        let (now, limit, born) = (self.now(), self.limit.clone(), self.limit.fresh(self.birth));
        let state = self.state(key);
        limit.refund(state, now, cost);
        let rest = |state: &State| limit.peek(state, now, 0).reset_after;
        if rest(state) < rest(&born) {
            *state = born;
        }
        // A key that was at rest may be known or not: it makes a difference while the clock may go
        // back to before it was.
        self.step(&Step::Wait(TREMBLE + TREMBLE));
    }

    fn reset(&mut self, key: u8) {
        self.limiter.reset(&key);
        self.keys.insert(key, self.limit.fresh(self.birth));
    }

    fn change(&mut self, rule: &str) {
        self.limiter.set_rule(rule.parse().unwrap());
        let now = self.now();
        let new: Limit = rule.parse().unwrap();
        let old = std::mem::replace(&mut self.limit, new);
        let new = &self.limit;
        let known = self.keys.values_mut().chain([&mut self.fresh, &mut self.shared]);
        known.for_each(|state| *state = new.take_over(&old, state, now));
    }
}

fn steps(keys: u8, has_changes: bool) -> impl Strategy<Value = Vec<Step>> {
    let key = move || 0..keys;
    let cost = || prop_oneof![6 => 1..4_u64, 2 => 0..30_u64, 1 => Just(1 << 20)];
    let wait = (0..38_u32, 0..2_u64).prop_map(|(bits, less)| Span::from_micros((1 << bits) - less));
    let step = prop_oneof![
        12 => (key(), cost()).prop_map(|(key, cost)| Step::Check { key, cost }),
        3 => proptest::collection::vec((key(), cost()), 1..6).prop_map(Step::Batch),
        3 => ((key(), key()), cost()).prop_map(|(keys, cost)| Step::CheckAll { keys, cost }),
        1 => (key(), cost()).prop_map(|(key, cost)| Step::Refund { key, cost }),
        1 => key().prop_map(Step::Reset),
        1 => key().prop_map(Step::Peek),
        1 => Just(Step::Sweep),
        5 => wait.prop_map(Step::Wait),
        1 => (0..=1_000_u64).prop_map(|us| Step::Tremble(Span::from_micros(us))),
        1 => (0..EVERY.len()).prop_map(Step::Rule),
    ];
    // After a change of the rule, what changes back depends on the keys that were evicted.
    let step = step.prop_map(move |step| match step {
        Step::Refund { key, .. } | Step::Reset(key) if has_changes => Step::Peek(key),
        Step::Rule(_) if !has_changes => Step::Sweep,
        step => step,
    });
    proptest::collection::vec(step, 0..120)
}

fn cases() -> u32 {
    let everyday = crate::size(60, 20_000);
    std::env::var("TIDEGATE_CASES").map_or(everyday, |cases| cases.parse().unwrap())
}

fn hold(max_keys: usize, keys: u8, has_changes: bool) {
    let overflow = prop_oneof![Just(Overflow::Share), Just(Overflow::Deny)];
    let strategy = (overflow, any::<bool>(), steps(keys, has_changes));
    for rule in EVERY {
        let claim = |(overflow, is_audited, steps): (Overflow, bool, Vec<Step>)| {
            let mut oracle = Oracle::new(rule, max_keys, overflow, is_audited);
            for step in &steps {
                oracle.step(step);
            }
            Ok(())
        };
        let config = Config { cases: cases(), failure_persistence: None, ..Config::default() };
        if let Err(refutation) = TestRunner::new(config).run(&strategy, claim) {
            panic!("{rule}, {max_keys} keys at most: {refutation}");
        }
    }
}

#[test]
fn every_key_is_decided_exactly_as_the_pure_limit_decides() {
    hold(1_000, 40, false);
}

#[test]
fn with_room_for_few_every_key_is_decided_by_its_own_state_or_by_what_all_share() {
    for max_keys in [1, 2, 5] {
        hold(max_keys, 8, false);
    }
}

#[test]
fn through_changes_of_rule_every_key_is_decided_exactly_as_the_pure_limit_decides() {
    hold(1_000, 40, true);
    hold(4, 8, true);
}
