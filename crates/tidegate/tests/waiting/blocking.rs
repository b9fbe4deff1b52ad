//! Waiting with threads: the same turns, with a clock that another thread moves (R2).

use crate::gate;
use std::sync::Mutex;
use std::thread;
use std::time::Duration;
use tidegate::{Clock, Gate, Limiter, ManualClock, Span};

/// Waits until this many threads sleep, or are a few instructions away from it.
fn until_asleep(clock: &ManualClock, sleepers: usize) {
    for _ in 0..100_000_000_u64 {
        if clock.sleepers() == sleepers {
            return;
        }
        thread::yield_now();
    }
    panic!("{} sleep, not {sleepers}", clock.sleepers());
}

// R2.
#[test]
fn threads_are_admitted_one_by_one_in_the_order_of_arrival() {
    let clock = ManualClock::new();
    let limiter = Limiter::with_clock("10/s paced".parse().unwrap(), clock.clone());
    let _ = limiter.check("alice");
    let passed = Mutex::new(Vec::new());
    thread::scope(|scope| {
        for number in 0..8_usize {
            let (limiter, passed, clock) = (&limiter, &passed, &clock);
            scope.spawn(move || {
                drop(limiter.request("alice").block().unwrap());
                passed.lock().unwrap().push((number, clock.now()));
            });
            until_asleep(clock, number + 1);
        }
        let start = clock.now();
        for number in 0..8_u64 {
            clock.advance(Span::from_millis(100));
            until_asleep(&clock, 7 - usize::try_from(number).unwrap());
            while passed.lock().unwrap().len() <= usize::try_from(number).unwrap() {
                thread::yield_now();
            }
            let expected =
                (usize::try_from(number).unwrap(), start + Span::from_millis(100 * (number + 1)));
            assert_eq!(passed.lock().unwrap().last(), Some(&expected));
        }
    });
}

// R2.
#[test]
fn a_thread_that_would_wait_too_long_does_not_wait() {
    let (gate, _) = gate("1/s");
    let _ = gate.check();
    let denied = gate.request().within(Duration::from_millis(999)).block().unwrap_err();
    assert_eq!(denied.to_string(), "denied: retry after 1ms");
}

// R2.
#[test]
fn a_thread_that_waits_for_a_permit_gives_up_at_its_deadline() {
    let (gate, clock) = gate("concurrency 1");
    let held = gate.try_acquire().unwrap();
    let ask = |gate: &Gate<ManualClock>| gate.request().within(Duration::from_secs(2)).block();
    thread::scope(|scope| {
        let waiter = scope.spawn(|| ask(&gate).is_err());
        until_asleep(&clock, 1);
        clock.advance(Span::from_secs(2));
        assert!(waiter.join().unwrap(), "refused when the time was up");
        let waiter = scope.spawn(|| ask(&gate).is_ok());
        until_asleep(&clock, 1);
        clock.advance(Span::from_secs(1));
        drop(held);
        assert!(waiter.join().unwrap(), "let in when it was released");
    });
}

// R2.
/// By the machine's own clock: the wait ends, and not early.
#[test]
fn threads_are_admitted_no_faster_than_the_rate_by_the_machines_clock() {
    let gate = Gate::new("2000/s paced".parse().unwrap());
    let clock = tidegate::SystemClock::new();
    let before = clock.now();
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| (0..20).for_each(|_| drop(gate.request().block().unwrap())));
        }
    });
    assert!(clock.now().since(before) >= Span::from_micros(79 * 500), "80 passes, 500 us apart");
}
