//! A clock that steps while requests wait (T22): a step back delays by at most the limit's own drain time, not by the step;
//! a step forward admits waiters in order.

use crate::executor::Executor;
use crate::{AWAITED, exhausted};
use tidegate::{Clock, Limiter, ManualClock, Span, Timestamp};

const HOUR: Span = Span::from_secs(3_600);

/// Rules that refill within two seconds, far less than an hour's step.
fn short() -> impl Iterator<Item = &'static str> {
    let long = ["min", "/h", "day", "empty", "capacity 40"];
    AWAITED.into_iter().filter(move |rule| !long.iter().any(|word| rule.contains(word)))
}

// T22.
#[test]
fn a_step_back_does_not_prolong_waits() {
    let mut still_waiting = Vec::new();
    for rule in short() {
        let (gate, clock, wait) = exhausted(rule);
        let mut executor = Executor::new();
        executor.spawn(gate.acquire());
        assert!(executor.run().is_empty());
        let drain = gate.check_n(0).reset_after;
        clock.set(clock.now() - HOUR);
        assert!(executor.run().len() <= 1);
        clock.advance(wait + drain);
        // A waiter that sleeps by the clock is woken by it, or admitted by the next call.
        let _ = gate.check_n(0);
        if clock.sleepers() > 0 && executor.run().is_empty() {
            still_waiting.push(rule);
        }
    }
    assert!(still_waiting.is_empty(), "{still_waiting:?}");
}

// T22.
#[test]
fn a_step_back_during_a_wait_does_not_block_other_requests() {
    let mut locked_out = Vec::new();
    for rule in short() {
        let (gate, clock, wait) = exhausted(rule);
        let reservation = gate.reserve().unwrap();
        let drain = gate.check_n(0).reset_after;
        clock.set(clock.now() - HOUR);
        clock.advance(wait + drain + drain);
        let next = gate.check();
        if next.retry_after().is_some_and(|wait| wait > drain) {
            locked_out.push((rule, next.verdict));
        }
        drop(reservation);
    }
    assert!(locked_out.is_empty(), "{locked_out:?}");
}

// T22.
#[test]
fn a_step_forward_admits_waiters_in_order_and_no_other_request_for_free() {
    for rule in AWAITED {
        let (gate, clock, _) = exhausted(rule);
        let mut executor = Executor::new();
        for _ in 0..5 {
            executor.spawn(gate.acquire());
        }
        assert!(executor.run().is_empty());
        clock.advance(Span::from_secs(10 * 365 * 86_400));
        let granted: Vec<usize> = executor.run().into_iter().map(|(task, _)| task).collect();
        assert_eq!(granted, [0, 1, 2, 3, 4], "{rule}");
        let burst = gate.check_n(0).limit;
        let mut admitted = 0;
        while gate.check().is_allow() {
            admitted += 1;
        }
        // Guava's rules admit one request on credit beyond what is saved.
        assert!(admitted <= burst + 1, "{rule}: {admitted} of {burst}");
    }
}

/// Returns how many of 100 requests a limiter admits at once that is created at this time.
fn let_in_at_once(rule: &str, at: Timestamp) -> usize {
    let limiter = Limiter::with_clock(rule.parse().unwrap(), ManualClock::at(at));
    let mut executor = Executor::new();
    for _ in 0..100 {
        executor.spawn(limiter.acquire("alice"));
    }
    executor.run().into_iter().filter(|(_, answer)| answer.is_ok()).count()
}

// T25.
#[test]
fn at_the_end_of_time_no_more_are_admitted_at_once_than_before_it() {
    let mut too_many = Vec::new();
    for rule in AWAITED {
        let ordinary = let_in_at_once(rule, ManualClock::new().now());
        let at_the_end = let_in_at_once(rule, Timestamp::MAX);
        if at_the_end > ordinary {
            too_many.push((rule, at_the_end, ordinary));
        }
    }
    assert!(too_many.is_empty(), "{too_many:?}");
}

// T22.
#[test]
fn a_deadline_for_a_permit_is_not_prolonged_by_a_step_forward() {
    let clock = ManualClock::new();
    let limiter = Limiter::with_clock("concurrency 1".parse().unwrap(), clock.clone());
    let _held = limiter.try_acquire("alice").unwrap();
    let mut executor = Executor::new();
    executor.spawn(limiter.request("alice").within(HOUR.as_duration()).acquire());
    assert!(executor.run().is_empty());
    clock.set(Timestamp::MAX);
    assert!(executor.run().pop().unwrap().1.is_err());
    assert_eq!(clock.now(), Timestamp::MAX);
}

// T22.
/// Under a rule that makes requests wait, a request behind the queue makes the turns in it
/// final; their time still goes along with the clock.
#[test]
fn a_final_turn_moves_back_with_the_clock() {
    for rule in ["5/s queue capacity 9", "5/s smooth", "10r/s burst=15", "5/s warmup 1s"] {
        let (gate, clock, wait) = exhausted(rule);
        let reservation = gate.reserve().unwrap();
        let _ = gate.check();
        clock.set(clock.now() - HOUR);
        assert!(reservation.wait() <= wait, "{rule}: {} after the step", reservation.wait());
    }
    let (gate, clock, wait) = exhausted("1/s");
    let reservation = gate.reserve().unwrap();
    gate.set_rule("concurrency 3".parse().unwrap());
    clock.set(clock.now() - HOUR);
    assert!(reservation.wait() <= wait, "{} under a rule without turns", reservation.wait());
}

// T22.
#[test]
fn clock_skew_moves_no_waiter_up() {
    for rule in AWAITED {
        let (gate, clock, wait) = exhausted(rule);
        let reservation = gate.reserve().unwrap();
        let now = clock.now();
        for _ in 0..1_000 {
            clock.set(now - Span::from_micros(999));
            let _ = reservation.wait();
            clock.set(now);
            assert_eq!(reservation.wait(), wait, "{rule}");
        }
    }
}
