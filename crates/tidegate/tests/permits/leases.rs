//! Leases of permits (A15), and permits of keys that were evicted.

use crate::executor::Executor;
use crate::{free, gate, granted, numbers, poll};
use tidegate::{Limiter, ManualClock, Span, Verdict, check_all};

#[test]
fn the_end_of_a_lease_releases_its_permit() {
    let (gate, clock) = gate("concurrency 2 lease 10s");
    let (first, second) = (gate.try_acquire().unwrap(), gate.try_acquire().unwrap());
    let denied = gate.try_acquire().unwrap_err();
    assert_eq!(denied.decision.retry_after(), Some(Span::from_secs(10)));
    clock.advance(Span::from_micros(9_999_999));
    assert!(gate.try_acquire().is_err());
    clock.advance(Span::from_micros(1));
    let (third, fourth) = (gate.try_acquire().unwrap(), gate.try_acquire().unwrap());
    drop((first, second));
    assert!(gate.try_acquire().is_err(), "given back late, they are not given back twice");
    drop((third, fourth));
    assert_eq!(free(&gate), 2);
}

#[test]
fn a_waiter_is_woken_by_the_end_of_a_lease() {
    let (gate, clock) = gate("concurrency 1 lease 10s");
    let lost = gate.try_acquire().unwrap();
    let mut executor = Executor::new();
    (0..3).for_each(|_| {
        executor.spawn(gate.acquire());
    });
    assert!(executor.run().is_empty());
    for turn in 0..3 {
        clock.advance(Span::from_micros(9_999_999));
        assert!(executor.run().is_empty());
        clock.advance(Span::from_micros(1));
        let got = granted(&mut executor);
        assert_eq!(numbers(&got), [turn], "each lease runs out in its turn");
        std::mem::forget(got);
    }
    drop(lost);
    assert!(gate.try_acquire().is_err(), "the last one's lease is still good");
}

#[test]
fn a_small_request_behind_a_large_one_is_woken_by_the_end_of_a_lease() {
    let (gate, clock) = gate("concurrency 3 lease 10s");
    let _one = gate.try_acquire().unwrap();
    clock.advance(Span::from_secs(5));
    let _two = gate.request().cost(2).try_acquire().unwrap();
    let mut executor = Executor::new();
    executor.spawn(gate.request().cost(3).acquire());
    executor.spawn(gate.acquire());
    assert!(executor.run().is_empty());
    clock.advance(Span::from_secs(5));
    assert!(executor.run().is_empty(), "one is back, the large one needs three");
    clock.advance(Span::from_secs(5));
    let first = granted(&mut executor);
    assert_eq!(numbers(&first), [0]);
    clock.advance(Span::from_secs(10));
    assert_eq!(numbers(&granted(&mut executor)), [1]);
}

/// `peek` returns what `check` would, also when a lease has ended for which a request waits.
#[test]
fn peek_and_check_all_see_the_end_of_a_lease_like_check() {
    let ask = |how: u8| {
        let (gate, clock) = gate("concurrency 2 lease 10s");
        let _lost = gate.request().cost(2).try_acquire().unwrap();
        let mut waits = Box::pin(gate.acquire());
        assert!(poll(&mut waits).is_pending());
        clock.advance(Span::from_secs(10));
        match how {
            0 => gate.check().verdict,
            1 => gate.peek().verdict,
            _ => check_all([gate.request()]).decision.verdict,
        }
    };
    assert_eq!(ask(0), Verdict::Allow, "one is the waiter's, one is left");
    assert_eq!((ask(1), ask(2)), (Verdict::Allow, Verdict::Allow));
}

#[test]
fn permits_are_counted_by_key_and_idle_keys_are_evicted() {
    let clock = ManualClock::new();
    let limiter = Limiter::with_clock("concurrency 2".parse().unwrap(), clock.clone());
    let held: Vec<_> = (0..5_000_u32).map(|key| limiter.try_acquire(&key).unwrap()).collect();
    assert_eq!(limiter.keys(), 5_000, "no key with a request in flight is evicted");
    assert!((0..5_000_u32).all(|key| limiter.check_n(&key, 0).remaining == 1));
    drop(held);
    (0..10_000_u32).for_each(|other| {
        let _ = limiter.check(&("other", other));
    });
    assert!(limiter.keys() < 10_000, "{} keys", limiter.keys());
    assert_eq!(limiter.check_n(&7_u32, 0).remaining, 2);
}

fn evict_idle_keys(limiter: &Limiter<ManualClock>) {
    for other in 0..3_000_u32 {
        let _ = limiter.check(&("other", other));
    }
}

/// A permit whose lease ended before its key was evicted matches no permit of the new key.
#[test]
fn a_permit_from_before_an_eviction_releases_no_other_permit() {
    let clock = ManualClock::new();
    let limiter = Limiter::with_clock("concurrency 1 lease 10s".parse().unwrap(), clock.clone());
    let old = limiter.try_acquire("alice").unwrap();
    clock.advance(Span::from_secs(10));
    evict_idle_keys(&limiter);
    let _new = limiter.try_acquire("alice").unwrap();
    drop(old);
    assert!(limiter.try_acquire("alice").is_err(), "two in flight of one");
}

/// The same for a waiter that was granted a permit, was never polled again, and is dropped after the key was evicted.
#[test]
fn a_wait_from_before_an_eviction_takes_no_other_permit() {
    let clock = ManualClock::new();
    let limiter = Limiter::with_clock("concurrency 1 lease 10s".parse().unwrap(), clock.clone());
    let held = limiter.try_acquire("alice").unwrap();
    let mut old = Box::pin(limiter.acquire("alice"));
    assert!(poll(&mut old).is_pending());
    drop(held);
    clock.advance(Span::from_secs(10));
    evict_idle_keys(&limiter);
    let held = limiter.try_acquire("alice").unwrap();
    let mut executor = Executor::new();
    executor.spawn(limiter.acquire("alice"));
    assert!(executor.run().is_empty());
    drop(old);
    drop(held);
    assert_eq!(granted(&mut executor).len(), 1, "the waiter is still in the queue");
}
