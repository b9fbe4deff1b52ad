//! Guava's two algorithms, number for number: the waits of lists of requests, with idle times, refunds and clocks that step
//! back. The lists are those of `spec/smooth.md` and `spec/warmup.md`, if these contain them.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use tidegate_core::{Limit, Span, State, Timestamp, Verdict};

/// An hour after the epoch, so that the clock can step back.
const START: Timestamp = Timestamp::from_micros(3_600_000_000);

fn limit(rule: &str) -> Limit {
    rule.parse().unwrap()
}

fn after(us: u64) -> Timestamp {
    START + Span::from_micros(us)
}

/// Returns the wait of a request of `cost`, in microseconds.
fn wait(limit: &Limit, state: &mut State, now: Timestamp, cost: u64) -> u64 {
    match limit.decide(state, now, cost).verdict {
        Verdict::Allow => 0,
        Verdict::Wait(wait) => wait.as_micros(),
        Verdict::Deny(retry) => panic!("no request is denied: {retry:?}"),
    }
}

/// Asserts the wait of each request. A request is its time, its cost and the expected wait; times are in microseconds.
fn assert_waits(rule: &str, events: &[(u64, u64, u64)]) {
    let limit = limit(rule);
    let mut state = limit.fresh(START);
    for (index, &(at, cost, expected)) in events.iter().enumerate() {
        assert_eq!(wait(&limit, &mut state, after(at), cost), expected, "{rule}: request {index}");
    }
}

#[test]
fn a_cold_limiter_warms_up_to_its_rate_and_cools_down_while_idle() {
    let events = [
        (0, 1, 0),
        (0, 1, 520_000),
        (520_000, 1, 360_000),
        (880_000, 1, 220_000),
        (1_100_000, 1, 200_000),
        (2_300_000, 1, 0),
        (2_300_000, 1, 360_000),
        (2_660_000, 1, 220_000),
        (2_880_000, 1, 200_000),
        (3_080_000, 1, 200_000),
    ];
    assert_waits("5/s warmup 1s", &events);
    let events = [
        (0, 1, 0),
        (0, 1, 1_752_500),
        (1_752_500, 1, 1_257_500),
        (3_010_000, 1, 762_500),
        (3_772_500, 1, 300_227),
        (4_072_727, 1, 200_000),
    ];
    assert_waits("5/s warmup 4s cold 10", &events);
    let events = [
        (0, 1, 0),
        (0, 1, 2_998),
        (0, 498, 5_992),
        (0, 500, 1_000_000),
        (0, 1, 1_500_000),
        (0, 1, 1_501_000),
    ];
    assert_waits("1000/s warmup 1s", &events);
}

#[test]
fn half_a_microsecond_is_carried_into_the_next_wait() {
    let events = [(0, 128, 0), (0, 1, 1_500_000), (0, 1, 1_507_812), (0, 1, 1_515_625)];
    assert_waits("128/s warmup 1s", &events);
    // Also if the next request comes half a microsecond before it may pass.
    let events = [(0, 128, 0), (0, 1, 1_500_000), (1_507_812, 1, 0), (1_507_812, 1, 7_813)];
    assert_waits("128/s warmup 1s", &events);
}

#[test]
fn half_a_microsecond_is_carried_into_the_next_idle_time() {
    let limit = limit("128/s warmup 1s");
    let mut state = limit.fresh(START);
    let _ = limit.decide(&mut state, START, 128);
    let _ = limit.decide(&mut state, START, 1);
    // The next request may pass at 1 507 812.5 µs, and 7812.5 µs later one permit is saved.
    let idle_until = after(1_507_812 + 7_813);
    assert_eq!(limit.decide(&mut state, idle_until, 0).reset_after.as_micros(), 127 * 15_625 / 2);
    let before = limit.write_state(&state);
    assert_eq!(
        before[..3],
        [0, after(1_507_812).as_micros(), 1 << 31],
        "a cost of 0 saves nothing"
    );
    // A refund of 0 does.
    limit.refund(&mut state, idle_until, 0);
    let written = limit.write_state(&state);
    assert_eq!(f64::from_bits(written[0]).to_bits(), 1.0_f64.to_bits());
    assert_eq!(written[1..], [idle_until.as_micros(), 0, idle_until.as_micros()]);
    // The next permit is saved in addition.
    let decision = limit.decide(&mut state, idle_until + Span::from_micros(15_625), 0);
    assert_eq!(decision.reset_after.as_micros(), 125 * 15_625 / 2);
}

#[test]
fn the_carry_counts_parts_of_two_to_the_thirty_two() {
    let limit = limit("128/s warmup 1s");
    let mut state = limit.fresh(START);
    let _ = limit.decide(&mut state, START, 129);
    let free_at = after(1_507_812).as_micros();
    assert_eq!(limit.write_state(&state), [0, free_at, 1 << 31, START.as_micros()]);
}

#[test]
fn a_price_that_saturates_carries_nothing() {
    let limit = limit("1/day warmup 1s");
    let mut state = limit.fresh(START);
    let _ = limit.decide(&mut state, START, u64::MAX);
    assert_eq!(limit.write_state(&state)[1..3], [u64::MAX, 0]);
}

#[test]
fn a_refund_shortens_the_wait_at_the_warm_interval_to_zero_at_most() {
    for (rule, cost, owed) in [("5/s warmup 1s", 2, 880_000), ("5/s smooth", 4, 800_000)] {
        let limit = limit(rule);
        let mut state = limit.fresh(START);
        let _ = limit.decide(&mut state, START, cost);
        limit.refund(&mut state, START, 3);
        assert_eq!(wait(&limit, &mut state.clone(), START, 1), owed - 600_000, "{rule}");
        limit.refund(&mut state, START, 99);
        assert_eq!(wait(&limit, &mut state.clone(), START, 1), 0, "{rule}");
    }
}

/// A rule, its debt after one request, and the longest step back that it absorbs, in microseconds: the debt and the maximum that
/// is saved, or the debt and the time to cool down.
const OWING: [(&str, u64, u64); 2] =
    [("5/s smooth", 200_000, 1_200_000), ("5/s warmup 1s", 520_000, 1_520_000)];

fn owing(rule: &str) -> (Limit, State) {
    let limit = limit(rule);
    let mut state = limit.fresh(START);
    let _ = limit.decide(&mut state, START, 1);
    (limit, state)
}

#[test]
fn a_debt_stays_the_same_during_a_step_back_that_is_absorbed() {
    for (rule, owed, longest) in OWING {
        let (limit, mut state) = owing(rule);
        for back in [longest, longest / 2, 1, 0] {
            let now = START - Span::from_micros(back);
            let decision = limit.decide(&mut state, now, 0);
            assert_eq!(decision.remaining, 0, "{rule}");
            assert_eq!(wait(&limit, &mut state.clone(), now, 1), owed, "{rule}: back by {back} µs");
        }
    }
}

#[test]
fn a_debt_moves_with_a_step_back_that_is_too_long_to_be_absorbed() {
    for (rule, owed, longest) in OWING {
        for back in [longest + 1, 50_000_000] {
            let (limit, mut state) = owing(rule);
            let stepped = START - Span::from_micros(back);
            let _ = limit.decide(&mut state, stepped, 0);
            for passed in [0, 1, owed / 2, owed] {
                let now = stepped + Span::from_micros(passed);
                let left = wait(&limit, &mut state.clone(), now, 1);
                assert_eq!(left, owed - passed, "{rule}: back by {back} µs, {passed} µs ago");
            }
        }
    }
}
