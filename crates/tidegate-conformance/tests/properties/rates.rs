//! Long-term rates (T07, T08), from one in a hundred years to ten thousand million a second: exact, also for a client that waits
//! as it is asked to.

use crate::check::check_each;
use crate::generate::{Case, Delta};
use crate::track::{Track, ensure, limit};
use proptest::collection::vec;
use tidegate_conformance::oracle::{Rate, Rule};
use tidegate_core::{Span, Timestamp};

#[test]
fn a_greedy_client_gets_the_burst_and_exactly_the_rate() {
    // Always before the bucket is full, because a full bucket does not refill.
    let thousandths = || vec(0_u64..1_000, 1..60);
    check_each(
        |rules| (rules, thousandths()),
        |(rule, thousandths)| {
            let (rate, burst, at_birth) = match rule {
                Rule::TokenBucket { rate, burst, starts_empty: false } => (rate, burst, burst),
                Rule::TokenBucket { rate, burst, starts_empty: true } => (rate, burst, 0),
                Rule::Leaky { rate, capacity } => (rate, capacity, capacity),
                _ => return Ok(()),
            };
            let case = Case { rule, birth: Timestamp::EPOCH, steps: Vec::new() };
            let mut track = Track::new(&case);
            let mut taken = 0;
            for thousandths in thousandths {
                let cost = track.peek(0).remaining;
                ensure!(track.take(cost).is_allow(), track, "{cost} should remain");
                taken += u128::from(cost);
                track.pass(Delta::ThousandthsOfReset(thousandths));
            }
            taken += u128::from(track.peek(0).remaining);
            let expected = u128::from(at_birth) + in_time(rate, track.now);
            ensure!(taken == expected, track, "{taken} of {burst}, but {expected} is the rate");
            Ok(())
        },
    );
}

/// Returns the refill from the epoch to `now`.
fn in_time(rate: Rate, now: Timestamp) -> u128 {
    u128::from(now.as_micros()) * u128::from(rate.count) / u128::from(rate.period.as_micros())
}

/// Counts the admitted requests of a client that sends the next request at once, and after a denial waits as long as the
/// denial says.
fn admitted_within(rule: &str, end: Timestamp) -> u64 {
    let limit = limit(rule);
    let (mut now, mut state) = (Timestamp::EPOCH, limit.fresh(Timestamp::EPOCH));
    let mut admitted = 0;
    while now < end {
        let decision = limit.decide(&mut state, now, 1);
        match decision.retry_after() {
            Some(wait) => {
                assert!(!wait.is_zero(), "{rule}: denied with a retry after 0");
                now = now + wait;
            }
            None if now + decision.into_result().expect("it is not denied") < end => admitted += 1,
            None => break,
        }
    }
    admitted
}

#[test]
fn high_rates_are_exact_to_a_thousandth() {
    for count in [1, 7, 1_000, 1_500, 2_000, 8_000, 99_991, 1_000_000, 3_333_333, 10_000_000_u64] {
        // Long enough for ten thousand, so that a thousandth is ten of them.
        let end_us = 10_000 * 1_000_000_u64.div_ceil(count);
        let in_time = end_us * count / 1_000_000;
        // One more than the refill of a microsecond, so that the bucket is never full between two microseconds.
        let burst = count.div_ceil(1_000_000) + 1;
        let shapes =
            ["burst N", "burst N start empty", "leaky capacity N", "queue", "smooth burst N"];
        for shape in shapes {
            let rule = format!("{count}/s {}", shape.replace('N', &burst.to_string()));
            let admitted = admitted_within(&rule, Timestamp::from_micros(end_us));
            let off = admitted.abs_diff(in_time);
            assert!(off <= 10 + burst, "{rule}: {admitted} instead of {in_time} in {end_us}us");
        }
    }
}

#[test]
fn low_rates_are_exact_over_centuries() {
    let day_us = 86_400_000_000;
    let rules = [
        ("1/day", day_us),
        ("1/30day", 30 * day_us),
        ("1/365day", 365 * day_us),
        ("1/36525day", 36_525 * day_us),
    ];
    for (rate, interval_us) in rules {
        for burst in [1, 1_000_000] {
            let limit = limit(&format!("{rate} burst {burst}"));
            let mut state = limit.fresh(Timestamp::EPOCH);
            assert!(limit.decide(&mut state, Timestamp::EPOCH, burst).is_allow());
            for number in 1..=100 {
                let due = Timestamp::from_micros(number * interval_us);
                let early = limit.peek(&state, due - Span::from_micros(1), 1);
                assert_eq!(early.retry_after(), Some(Span::from_micros(1)), "{rate} burst {burst}");
                assert!(limit.decide(&mut state, due, 1).is_allow(), "{rate} burst {burst}");
            }
        }
    }
}
