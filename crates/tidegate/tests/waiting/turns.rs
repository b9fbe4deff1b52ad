//! Turns come in order, each at the time at which the rule alone would admit it.

use crate::executor::Executor;
use crate::{AWAITED, exhausted, gate, schedule};
use std::collections::BTreeSet;
use tidegate::{Clock, Limiter, ManualClock, Retry, Span, Timestamp, Verdict, check_all};

/// Lets tasks with these costs wait, and checks each instant at which one is due and the microsecond before it.
fn assert_on_schedule(rule: &str, costs: &[u64]) {
    let clock = ManualClock::new();
    let limiter = Limiter::with_clock(rule.parse().unwrap(), clock.clone());
    let due = schedule(rule, clock.now(), costs);
    let mut executor = Executor::new();
    for cost in costs {
        executor.spawn(limiter.request("alice").cost(*cost).acquire());
    }
    let numbers = |at: Option<Timestamp>| -> Vec<usize> {
        (0..costs.len()).filter(|task| due[*task] == at).collect()
    };
    let mut finished = |at: Timestamp| -> (Vec<usize>, Vec<usize>) {
        clock.set(at);
        let (good, bad): (Vec<_>, Vec<_>) =
            executor.run().into_iter().partition(|(_, r)| r.is_ok());
        let number = |(task, _)| task;
        (good.into_iter().map(number).collect(), bad.into_iter().map(number).collect())
    };
    let now = clock.now();
    assert_eq!(finished(now), (numbers(Some(now)), numbers(None)), "{rule} at once");
    let instants: BTreeSet<Timestamp> = due.iter().flatten().copied().collect();
    for at in instants.into_iter().filter(|at| *at > now) {
        let early = at - Span::from_micros(1);
        assert_eq!(finished(early), (vec![], vec![]), "{rule} a microsecond before {at:?}");
        assert_eq!(finished(at), (numbers(Some(at)), vec![]), "{rule} at {at:?}");
    }
    assert_eq!(clock.sleepers(), 0, "{rule}: no waiter is left");
}

// A9.
#[test]
fn every_rule_grants_turns_in_order_and_exactly_on_schedule() {
    for rule in AWAITED {
        assert_on_schedule(rule, &[1; 40]);
    }
}

// A9.
#[test]
fn large_requests_keep_their_turn_among_small_ones() {
    for rule in AWAITED.into_iter().filter(|rule| !rule.contains("paced")) {
        assert_on_schedule(rule, &[1, 2, 1, 1, 2, 2, 1, 2, 1, 1, 1, 2, 2, 1]);
    }
}

// A9.
#[test]
fn a_turn_that_comes_too_late_is_denied_at_once_and_costs_nothing() {
    for rule in AWAITED {
        let (gate, clock, wait) = exhausted(rule);
        let before = gate.peek();
        let mut executor = Executor::new();
        // A nanosecond is rounded away, against the caller.
        let hasty = wait.as_duration().saturating_sub(std::time::Duration::from_nanos(1));
        executor.spawn(gate.request().within(hasty).acquire());
        let denied = executor.run().pop().unwrap().1.unwrap_err();
        // nginx's clock ticks in milliseconds.
        let tick = if rule.contains("r/") { Span::from_millis(1) } else { Span::from_micros(1) };
        let expected = Some(tick);
        assert_eq!(denied.decision.retry_after(), expected, "{rule}: that much too late");
        assert_eq!(clock.sleepers(), 0, "{rule}: it did not sleep");
        assert_eq!(gate.peek(), before, "{rule}: it cost nothing");
        assert!(gate.try_acquire().is_err(), "{rule}: no patience at all");
        assert_eq!(gate.peek(), before, "{rule}: nor did that");
    }
}

// A9.
#[test]
fn a_turn_exactly_at_the_deadline_is_granted() {
    for rule in AWAITED {
        let (gate, clock, wait) = exhausted(rule);
        let mut executor = Executor::new();
        executor.spawn(gate.request().within(wait.as_duration()).acquire());
        assert!(executor.run().is_empty(), "{rule}");
        clock.advance(wait);
        let permit = executor.run().pop().unwrap().1.unwrap();
        assert_eq!(permit.decision().verdict, Verdict::Wait(wait), "{rule}: as decided");
    }
}

/// A request with a third of the necessary maximum wait is sent again at its retry time, and a microsecond before.
fn assert_refusal_is_honest(rule: &str) {
    let (gate, clock, wait) = exhausted(rule);
    let patience = Span::from_micros(wait.as_micros() / 3);
    let ask = || gate.request().within(patience.as_duration()).reserve();
    let retry_after = ask().unwrap_err().decision.retry_after().unwrap();
    clock.advance(retry_after.saturating_sub(Span::from_micros(1)));
    assert!(ask().is_err(), "{rule}: a microsecond early");
    clock.advance(Span::from_micros(1));
    assert!(ask().is_ok_and(|turn| turn.wait() <= patience), "{rule}: at its retry time");
}

// T06.
#[test]
fn a_denied_wait_succeeds_after_its_retry_time() {
    AWAITED.into_iter().filter(|rule| !rule.contains('=')).for_each(assert_refusal_is_honest);
}

// T06.
#[test]
fn a_wait_denied_by_nginxs_rule_succeeds_after_its_retry_time() {
    AWAITED.into_iter().filter(|rule| rule.contains('=')).for_each(assert_refusal_is_honest);
}

// R2.
#[test]
fn a_request_that_does_not_wait_does_not_overtake_waiters() {
    for rule in AWAITED {
        let (gate, clock, wait) = exhausted(rule);
        let mut executor = Executor::new();
        executor.spawn(gate.acquire());
        assert!(executor.run().is_empty());
        clock.advance(wait.saturating_sub(Span::from_micros(1)));
        assert!(!gate.check().is_allow(), "{rule}: a waiter is first");
        clock.advance(Span::from_micros(1));
        // Due and not yet polled, the turn is still the waiter's. A rule that has more than one left may
        // admit one more, so the waiter decides the result.
        let _ = gate.check();
        assert!(executor.run().pop().unwrap().1.is_ok(), "{rule}");
    }
    let (paced, clock, wait) = exhausted("3/s paced");
    let mut executor = Executor::new();
    executor.spawn(paced.acquire());
    executor.run();
    clock.advance(wait);
    assert!(paced.check().is_deny(), "the turn is the waiter's");
}

// R2.
#[test]
fn a_request_of_cost_0_is_never_denied_also_behind_a_queue() {
    for rule in AWAITED {
        let (gate, _, _) = exhausted(rule);
        let mut executor = Executor::new();
        executor.spawn(gate.acquire());
        executor.run();
        assert!(gate.check_n(0).is_allow(), "{rule}");
        assert!(gate.request().cost(0).peek().is_allow(), "{rule}");
    }
}

// R2.
#[test]
fn a_permit_of_cost_0_is_never_denied_also_behind_a_queue() {
    for rule in AWAITED {
        let (gate, _, _) = exhausted(rule);
        let _waits = gate.reserve().unwrap();
        assert!(gate.request().cost(0).try_acquire().is_ok(), "{rule}: by permit as by check");
    }
}

// T09.
#[test]
fn a_cost_above_the_limit_is_denied_at_once_and_does_not_wait() {
    for rule in
        AWAITED.into_iter().filter(|rule| !rule.contains("smooth") && !rule.contains("warm"))
    {
        for cost in [1_000_000, u64::MAX] {
            let (gate, clock) = gate(rule);
            let mut executor = Executor::new();
            executor.spawn(gate.request().cost(cost).acquire());
            let denied = executor.run().pop().unwrap().1.unwrap_err();
            assert_eq!(denied.decision.verdict, Verdict::Deny(Retry::Never), "{rule} {cost}");
            assert_eq!(clock.sleepers(), 0);
        }
    }
}

// A6.
#[test]
fn a_full_queue_denies_at_once() {
    let (gate, clock) = gate("10/s queue capacity 3");
    let mut executor = Executor::new();
    for _ in 0..6 {
        executor.spawn(gate.acquire());
    }
    let (good, bad): (Vec<_>, Vec<_>) = executor.run().into_iter().partition(|(_, r)| r.is_ok());
    assert_eq!((good.len(), bad.len()), (1, 2), "one leaves, three stand behind it");
    clock.advance(Span::from_millis(300));
    assert_eq!(executor.run().len(), 3);
}

// A9.
#[test]
fn the_next_caller_pays_as_with_guava() {
    // RateLimiter.create(5): acquire(10) passes at once, the next waits the two seconds it cost.
    let (gate, clock) = gate("5/s smooth");
    assert!(gate.request().cost(10).try_acquire().is_ok());
    let next = gate.reserve().unwrap();
    assert_eq!(next.wait(), Span::from_secs(2));
    clock.advance(Span::from_secs(2));
    next.commit();
    // The ones after it are 200 ms apart, and tryAcquire(199 ms) is false.
    assert!(gate.request().within(std::time::Duration::from_millis(199)).reserve().is_err());
    assert_eq!(gate.reserve().unwrap().wait(), Span::from_millis(200));
    assert!(clock.now() > Timestamp::EPOCH);
}

// R2.
/// `within` bounds the delay of every method.
#[test]
fn check_denies_a_delay_beyond_the_maximum_wait_and_charges_nothing() {
    for rule in ["5/s smooth", "5/s queue capacity 3", "10r/s burst=15", "5/s warmup 1s"] {
        let (gate, _clock, wait) = exhausted(rule);
        let hasty = || gate.request().within(wait.saturating_sub(Span::from_micros(1)));
        let before = gate.check_n(0);
        for decision in [hasty().check(), hasty().peek(), check_all([hasty()]).decision] {
            // nginx counts in milliseconds.
            let retry_after = decision.retry_after().expect(rule);
            assert!(retry_after <= Span::from_millis(1), "{rule}: {retry_after}");
        }
        assert_eq!(gate.check_n(0), before, "{rule}: nothing was charged");
        assert!(!gate.request().within(wait).check().is_deny(), "{rule}");
    }
}

#[test]
fn the_numbers_of_a_refusal_behind_a_line_are_those_of_now() {
    let (gate, clock) = gate("10/min fixed");
    clock.advance(Span::from_secs(30));
    let _ = gate.check_n(10);
    let _first = gate.reserve().unwrap();
    let (never, asked) = (gate.check_n(11), gate.check_n(0));
    assert_eq!(never.verdict, Verdict::Deny(Retry::Never));
    assert_eq!((never.remaining, never.reset_after), (asked.remaining, asked.reset_after));
    let refused = gate.request().cost(11).reserve().unwrap_err().decision;
    assert_eq!((refused.remaining, refused.reset_after), (asked.remaining, asked.reset_after));
}

// T21.
#[test]
fn a_full_queue_denies_with_a_retry_time() {
    let (gate, clock) = gate("1000/s burst 1");
    let _ = gate.check();
    let waiting: Vec<_> = (0..16_384).map(|_| gate.reserve().unwrap()).collect();
    let turned_away = gate.reserve().unwrap_err();
    assert_eq!(turned_away.decision.retry_after(), Some(Span::from_millis(1)));
    clock.advance(Span::from_millis(1));
    let last = gate.reserve().unwrap();
    assert_eq!(last.wait(), Span::from_millis(16_384));
    // The last first, so that no turns behind them have to be recomputed.
    drop(last);
    waiting.into_iter().rev().for_each(drop);
    assert_eq!(gate.check_n(0).reset_after, Span::from_millis(1));
}
