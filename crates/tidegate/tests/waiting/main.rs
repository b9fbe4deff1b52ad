//! Waiting for a turn (A9, A12, R2, T21): in order, exactly on schedule, denied at once if the turn would come too late,
//! and without a trace if the waiter gives up.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod blocking;
mod bounds;
mod changes;
mod debt;
#[path = "../executor/mod.rs"]
mod executor;
mod giving_up;
mod many;
mod reservations;
mod steps;
#[cfg(feature = "tokio")]
mod tokio_time;
mod turns;
mod wakers;

use tidegate::{Clock, Decision, Gate, ManualClock, Span, Timestamp, Verdict};
use tidegate_core::Limit;

/// A rule of every kind under which a request can wait. Costs of 1 and 2 fit into all but the paced one.
const AWAITED: [&str; 16] = [
    "5/s burst 2",
    "3/s paced",
    "30/s start empty",
    "7/min leaky capacity 3",
    "4/s fixed",
    "4/min fixed from first",
    "4/h fixed from 2024-01-01T00:17:00+08:00",
    "2/day calendar",
    "4/s sliding-log",
    "4/s sliding",
    "10r/s burst=15",
    "10r/s burst=15 delay=2",
    "10/s queue capacity 12",
    "3/s queue capacity 40",
    "5/s smooth",
    "5/s warmup 1s",
];

fn gate(rule: &str) -> (Gate<ManualClock>, ManualClock) {
    let clock = ManualClock::new();
    (Gate::with_clock(rule.parse().unwrap(), clock.clone()), clock)
}

/// Creates a gate where the next request has to wait, and returns that wait. No request is in the queue.
fn exhausted(rule: &str) -> (Gate<ManualClock>, ManualClock, Span) {
    let (gate, clock) = gate(rule);
    while gate.peek().is_allow() {
        let _ = gate.check();
    }
    let wait = gate.reserve().unwrap().wait();
    assert!(!wait.is_zero(), "{rule}");
    (gate, clock, wait)
}

/// Returns the time at which each of `costs`, arriving now in this order, is admitted by the pure limit, which is retried
/// at each retry time. `None` for a cost that is denied.
fn schedule(rule: &str, now: Timestamp, costs: &[u64]) -> Vec<Option<Timestamp>> {
    let limit: Limit = rule.parse().unwrap();
    let mut state = limit.fresh(now);
    let mut last = now;
    let mut pass = |cost: &u64| loop {
        let from = if limit.delays_requests() { now } else { last };
        let decision = limit.decide(&mut state, from, *cost);
        match (decision.verdict, decision.retry_after()) {
            (Verdict::Allow, _) => return Some(from),
            (Verdict::Wait(span), _) => return Some(from + span),
            (_, Some(span)) if !limit.delays_requests() => last = from + span,
            _ => return None,
        }
    };
    costs.iter().map(&mut pass).collect()
}

/// Asserts that both gates decide the same from now on, at many times.
fn assert_alike(
    (gate, clock): (&Gate<ManualClock>, &ManualClock),
    (twin, its_clock): (&Gate<ManualClock>, &ManualClock),
    step: Span,
    what: &str,
) {
    let ask = |gate: &Gate<ManualClock>| -> [Decision; 3] {
        [gate.peek(), gate.request().cost(2).peek(), gate.check()]
    };
    its_clock.set(clock.now());
    for round in 0..24 {
        assert_eq!(ask(gate), ask(twin), "{what}, round {round}");
        clock.advance(step);
        its_clock.advance(step);
    }
}
