//! A key that is used again at the moment when it is evicted (T20).

use crate::rules::EVERY;
use crate::size;
use std::sync::Barrier;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use tidegate::{Clock, Limiter, ManualClock, Span, Timestamp};
use tidegate_core::{Limit, State};

/// Microseconds after the key became idle. A step back of up to a thousand counts as clock skew.
const AROUND_US: [i64; 9] = [-1_000, -1, 0, 1, 2, 999, 1_000, 1_001, 2_000];

struct Pair {
    limiter: Limiter<ManualClock>,
    clock: ManualClock,
    limit: Limit,
    state: State,
}

impl Pair {
    fn new(rule: &str) -> Self {
        let clock = ManualClock::new();
        let limiter = Limiter::builder(rule.parse().unwrap()).audit(1).with_clock(clock.clone());
        let limit: Limit = rule.parse().unwrap();
        let state = limit.fresh(clock.now());
        clock.advance(Span::from_secs(100));
        Self { limiter, clock, limit, state }
    }

    /// Asks both until they refuse or make one wait.
    fn exhaust(&mut self, name: &str) {
        for _ in 0..100 {
            let expected = self.limit.decide(&mut self.state, self.clock.now(), 1);
            assert_eq!(self.limiter.check("key"), expected, "{name}");
        }
    }

    fn rests_at(&self) -> Timestamp {
        let now = self.clock.now();
        now + self.limit.peek(&self.state, now, 0).reset_after
    }
}

fn around(at: Timestamp, us: i64) -> Timestamp {
    let span = Span::from_micros(us.unsigned_abs());
    if us < 0 { at - span } else { at + span }
}

// T20.
#[test]
fn a_key_that_is_used_again_as_it_is_evicted_gets_one_burst() {
    for rule in EVERY {
        for us in AROUND_US {
            for sweeps in 0..8_u32 {
                let mut pair = Pair::new(rule);
                let name = format!("{rule}, {us} us, sweeps {sweeps:03b}");
                pair.exhaust(&name);
                pair.clock.set(around(pair.rests_at(), us));
                for step in 0..3 {
                    if sweeps & (1 << step) != 0 {
                        pair.limiter.sweep();
                    }
                    pair.exhaust(&name);
                    assert_eq!(pair.limiter.keys(), 1, "{name}: the entry is lost");
                }
                let audit = pair.limiter.audit().unwrap();
                assert_eq!(audit.violations, 0, "{name}: {:?}", audit.first);
            }
        }
    }
}

// T20.
/// All at the same instant: some ask for the key, others sweep.
#[test]
fn threads_that_decide_during_sweeps_get_one_burst() {
    for (round, rule) in (0..size(2, 200)).flat_map(|round| EVERY.map(|rule| (round, rule))) {
        let mut pair = Pair::new(rule);
        pair.exhaust(rule);
        pair.clock.set(around(pair.rests_at(), AROUND_US[round % AROUND_US.len()]));
        let (start, admitted) = (Barrier::new(6), AtomicU64::new(0));
        thread::scope(|scope| {
            for thread in 0..6 {
                let (limiter, start, admitted) = (&pair.limiter, &start, &admitted);
                scope.spawn(move || {
                    start.wait();
                    for _ in 0..40 {
                        if thread < 2 {
                            limiter.sweep();
                        } else if limiter.check("key").into_result().is_ok() {
                            admitted.fetch_add(1, Ordering::Relaxed);
                        }
                    }
                });
            }
        });
        let now = pair.clock.now();
        let ask =
            |state: &mut State| u64::from(pair.limit.decide(state, now, 1).into_result().is_ok());
        let expected: u64 = (0..160).map(|_| ask(&mut pair.state)).sum();
        assert_eq!(admitted.into_inner(), expected, "{rule}");
    }
}

#[test]
fn a_limiter_is_idle_when_no_key_is_in_debt() {
    let clock = ManualClock::new();
    let builder = Limiter::builder("1/min".parse().unwrap()).max_keys(8_000);
    let limiter = builder.with_clock(clock.clone());
    assert!(limiter.is_idle(), "no request was made");
    for key in 0..8_100 {
        let _ = limiter.check(&key);
    }
    assert_eq!(limiter.stats().overflowed, 100, "there is no capacity for the last");
    assert!((0..9).all(|_| !limiter.is_idle()), "and all of them owe");
    clock.advance(Span::from_secs(70));
    let looks = (1..100).find(|_| limiter.is_idle());
    assert!(looks.is_some_and(|looks| looks > 1), "a look is at some of them: {looks:?}");
}

#[test]
fn a_few_keys_are_seen_at_once_however_many_there_may_be() {
    let clock = ManualClock::new();
    for rule in EVERY {
        let limiter = Limiter::with_clock(rule.parse().unwrap(), clock.clone());
        for key in 0..9 {
            let _ = limiter.check(&key);
        }
        clock.advance(Span::from_secs(400 * 86_400));
        assert!(limiter.is_idle(), "{rule}");
    }
}

#[test]
fn a_limiter_with_debt_in_the_overflow_is_not_idle() {
    let clock = ManualClock::new();
    let builder = Limiter::builder("2/min".parse().unwrap()).max_keys(1);
    let limiter = builder.with_clock(clock.clone());
    let _ = limiter.check("alice");
    clock.advance(Span::from_secs(29));
    let _ = limiter.check("bob");
    clock.advance(Span::from_secs(2));
    assert!(!limiter.is_idle(), "bob owes");
    assert_eq!(limiter.keys(), 0, "alice does not");
    clock.advance(Span::from_secs(30));
    assert!(limiter.is_idle());
}
