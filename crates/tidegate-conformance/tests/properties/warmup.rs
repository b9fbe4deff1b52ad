//! A warm-up equals Guava's to the microsecond, and does not drift from the exact ramp as Guava's does.

use crate::check::check;
use crate::track::limit;
use proptest::collection::vec;
use proptest::prelude::*;
use tidegate_conformance::oracle::warmup::{Exact, Guava};
use tidegate_conformance::oracle::{Rate, Rational, Rule};
use tidegate_core::{Limit, Span, Timestamp, Verdict};

/// The error of one wait because of floating point and truncation to whole microseconds.
const SLACK_US: u64 = 3;

#[derive(Clone, Copy, Debug)]
struct Engine {
    rate: Rate,
    warmup: Span,
    cold: u64,
}

impl Engine {
    fn limit(self) -> Limit {
        let Self { rate, warmup, cold } = self;
        limit(&Rule::Warmup { rate, warmup, cold }.to_string())
    }
}

/// Draws rules whose numbers have no large error in floating point: from one an hour to a million a second, with a warm-up
/// of a millisecond to an hour.
fn engine() -> impl Strategy<Value = Engine> {
    let unit = || prop::sample::select(vec![1_000_000_u64, 60_000_000, 3_600_000_000]);
    let count = prop_oneof![1_u64..20, 1_u64..1_000_000];
    (count, unit(), 1_u64..1_000, unit(), 2_u64..10).prop_map(
        |(count, period, thousandths, unit, cold)| Engine {
            rate: Rate { count, period: Span::from_micros(period) },
            warmup: Span::from_micros(unit / 1_000 * thousandths),
            cold,
        },
    )
}

/// Draws calls: the time since the call before, in thousandths of its wait or of the warm-up, and the cost.
fn calls() -> impl Strategy<Value = Vec<(bool, u64, u64)>> {
    vec((any::<bool>(), prop_oneof![2 => Just(0), 3 => 0_u64..1_500], 1_u64..20), 1..20)
}

fn wait_us(verdict: Verdict) -> u64 {
    match verdict {
        Verdict::Allow => 0,
        Verdict::Wait(wait) => wait.as_micros(),
        Verdict::Deny(_) => panic!("a warm-up never denies"),
    }
}

#[test]
fn a_warm_up_follows_the_exact_ramp_without_drift() {
    check(&(engine(), calls()), |(engine, calls)| {
        let limit = engine.limit();
        let (mut now, mut state) = (Timestamp::EPOCH, limit.fresh(Timestamp::EPOCH));
        let mut exact = Exact::new(engine.rate, engine.warmup, engine.cold, now);
        let mut wait = 0;
        for (is_rest, thousandths, cost) in calls {
            let whole = if is_rest { engine.warmup.as_micros() } else { wait };
            now = now + Span::from_micros(whole / 1_000 * thousandths);
            wait = wait_us(limit.decide(&mut state, now, cost).verdict);
            let expected = exact.wait_us(now, cost);
            let off = Rational::whole(wait) - &expected;
            let slack = Rational::whole(SLACK_US);
            let is_close = -&slack <= off && off <= slack;
            prop_assert!(is_close, "{limit}: at {now:?} take {cost}: {wait}us, not {expected}us");
        }
        Ok(())
    });
}

#[test]
fn each_call_of_a_burst_waits_as_long_as_in_guava() {
    check(&(engine(), vec(1_u64..20, 1..40)), |(engine, costs)| {
        let limit = engine.limit();
        let mut state = limit.fresh(Timestamp::EPOCH);
        let mut guava = Guava::new(engine.rate, engine.warmup, engine.cold);
        let (mut ours, mut theirs) = (0, 0);
        for cost in costs {
            let wait = wait_us(limit.decide(&mut state, Timestamp::EPOCH, cost).verdict);
            let expected = guava.reserve_us(0, cost);
            let off = (wait - ours).abs_diff(expected - theirs);
            prop_assert!(off <= SLACK_US, "{limit}: {wait}us after {ours}us, but {expected}us");
            (ours, theirs) = (wait, expected);
        }
        Ok(())
    });
}

/// Returns the waits, in microseconds, of a client that sends each request when the previous one passes.
fn sleeps(rule: &str, calls: usize) -> Vec<u64> {
    let limit = limit(rule);
    let (mut now, mut state) = (Timestamp::EPOCH, limit.fresh(Timestamp::EPOCH));
    let sleep = |_| {
        let us = wait_us(limit.decide(&mut state, now, 1).verdict);
        now = now + Span::from_micros(us);
        us
    };
    (0..calls).map(sleep).collect()
}

#[test]
fn guavas_published_sequences_are_reproduced() {
    let five = [0, 520_000, 360_000, 220_000, 200_000, 200_000, 200_000, 200_000, 200_000, 200_000];
    assert_eq!(sleeps("5/s warmup 1s", 10), five);
    let two = [0, 1_375_000, 1_125_000, 875_000, 625_000, 500_000, 500_000];
    assert_eq!(sleeps("2/s warmup 4s", 7), two);
    let ten = [0, 280_000, 240_000, 200_000, 160_000, 120_000, 100_000, 100_000];
    assert_eq!(sleeps("10/s warmup 1s", 8), ten);
}

#[test]
fn thirty_thousand_calls_at_three_a_second_take_ten_thousand_seconds() {
    let cold: u64 = sleeps("3/s warmup 1s", 100).iter().sum();
    let all: u64 = sleeps("3/s warmup 1s", 30_100).iter().sum();
    let warm = all - cold;
    // Guava drops a third of a microsecond each time, and would be ten milliseconds early.
    assert!(warm.abs_diff(10_000_000_000) <= SLACK_US, "{warm}us");
}
