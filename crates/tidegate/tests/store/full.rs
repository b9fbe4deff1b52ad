//! A limiter with the maximum number of keys.

use crate::rules::EVERY;
use std::future::Future;
use std::pin::pin;
use std::sync::{Arc, mpsc};
use std::task::{Context, Poll, Wake, Waker};
use std::thread;
use std::time::Duration;
use tidegate::limiter::Overflow;
use tidegate::{Clock, Limiter, ManualClock, Span, check_all};

/// Creates a limiter for one key, which is in debt.
fn full(rule: &str, overflow: Overflow) -> (Limiter<ManualClock>, ManualClock) {
    let clock = ManualClock::new();
    let builder = Limiter::builder(rule.parse().unwrap()).max_keys(1).overflow(overflow);
    let limiter = builder.with_clock(clock.clone());
    clock.advance(Span::from_secs(10));
    assert!(limiter.check("first").into_result().is_ok(), "{rule}");
    (limiter, clock)
}

/// Whether a wait comes to an end at once, and how.
fn now<F: Future>(future: F) -> Option<F::Output> {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => Some(output),
        Poll::Pending => None,
    }
}

#[test]
fn a_full_limiter_that_denies_does_so_for_every_method() {
    for rule in EVERY {
        let (limiter, clock) = full(rule, Overflow::Deny);
        for round in 0..3 {
            let key = format!("new {round}");
            assert!(limiter.peek(&key).is_deny(), "{rule}: peek");
            assert!(limiter.check(&key).is_deny(), "{rule}: check");
            assert!(limiter.request(&key).check().is_deny(), "{rule}: ask");
            assert!(limiter.request(&key).within(Span::MAX).check().is_deny(), "{rule}: within");
            assert!(limiter.try_acquire(&key).is_err(), "{rule}: try_acquire");
            assert!(limiter.reserve(&key).is_err(), "{rule}: reserve");
            assert!(matches!(now(limiter.acquire(&key)), Some(Err(_))), "{rule}: acquire");
            assert!(check_all([limiter.request(&key)]).decision.is_deny(), "{rule}: check_all");
            let mut batch = limiter.batch();
            batch.push(&key, 1);
            assert!(batch.decide()[0].is_deny(), "{rule}: batch");
            clock.advance(Span::from_micros(1));
        }
        assert_eq!(limiter.keys(), 1, "{rule}");
    }
}

#[test]
fn peek_of_a_full_limiter_returns_what_check_would_decide() {
    for rule in EVERY.into_iter().filter(|rule| !rule.contains("smooth") && !rule.contains("warm"))
    {
        let (limiter, _clock) = full(rule, Overflow::Share);
        assert!(
            (0..200).any(|_| limiter.check("new").is_deny()),
            "{rule}: what is shared runs out"
        );
        let seen = [limiter.check_n("newer", 0), limiter.request("newer").cost(0).peek()];
        assert_eq!(seen.map(|decision| decision.remaining), [0, 0], "{rule}");
    }
}

#[test]
fn a_permit_without_capacity_is_denied_at_once_and_does_not_wait_for_ever() {
    let limiter = Limiter::builder("concurrency 1".parse().unwrap())
        .max_keys(1)
        .overflow(Overflow::Deny)
        .with_clock(ManualClock::new());
    let _permit = limiter.try_acquire("first").unwrap();
    assert!(limiter.check("new").is_deny());
    assert!(limiter.try_acquire("new").is_err());
    assert!(matches!(now(limiter.acquire("new")), Some(Err(_))), "no release would ever wake it");
    assert!(now(limiter.acquire("first")).is_none(), "this one waits for the permit");
}

#[test]
fn those_without_room_share_what_one_key_has() {
    for rule in EVERY {
        let (limiter, _) = full(rule, Overflow::Share);
        let (alone, _) = full(rule, Overflow::Share);
        alone.reset("first");
        for n in 0..60 {
            // The one key of the other limiter is the model of this one's overflow state.
            assert_eq!(limiter.check(&n), alone.check("first"), "{rule}, {n}");
        }
        assert_eq!(limiter.stats().overflowed, 60, "{rule}");
        assert_eq!(limiter.keys(), 1, "{rule}");
    }
}

#[test]
fn every_way_of_asking_is_counted() {
    let limiter =
        Limiter::builder("2/h".parse().unwrap()).max_keys(1).with_clock(ManualClock::new());
    assert!(limiter.request("first").check().is_allow());
    assert!(check_all([limiter.request("first")]).decision.is_allow());
    assert!(limiter.try_acquire("first").is_err());
    let stats = limiter.stats();
    assert_eq!((stats.allowed, stats.denied, stats.overflowed), (2, 1, 0));
    assert!(check_all([limiter.request("second")]).decision.is_allow());
    assert!(limiter.request("third").check().is_allow());
    assert!(limiter.request("fourth").check().is_deny());
    let stats = limiter.stats();
    assert_eq!((stats.allowed, stats.denied, stats.overflowed), (4, 2, 3));
}

#[test]
fn a_key_without_usage_takes_no_capacity() {
    let builder = Limiter::builder("concurrency 1".parse().unwrap()).max_keys(1);
    let limiter = builder.overflow(Overflow::Deny).with_clock(ManualClock::new());
    for n in 0..10 {
        assert!(limiter.check(&n).is_allow(), "{n}: a check is over at once");
        assert!(limiter.request(&n).cost(2).check().is_deny(), "{n}: more than there is");
        assert!(limiter.request(&n).cost(0).try_acquire().is_ok(), "{n}: nothing is held");
        assert_eq!((limiter.keys(), limiter.stats().keys), (0, 0), "{n}");
    }
    assert_eq!(limiter.stats().overflowed, 0);
}

#[test]
fn a_key_at_rest_makes_room_wherever_it_lies() {
    for rule in ["1000/s burst 1", "1000/s fixed", "1000/s sliding", "1000/s sliding-log"] {
        let clock = ManualClock::new();
        let builder = Limiter::builder(rule.parse().unwrap()).max_keys(50);
        let limiter = builder.overflow(Overflow::Deny).with_clock(clock.clone());
        for n in 0..5_000 {
            if n % 50 == 0 {
                // All are at rest from now on.
                clock.advance(Span::from_secs(3));
            }
            assert!(limiter.check(&n).is_allow(), "{rule}: there is capacity for {n}");
        }
        assert_eq!(limiter.stats().overflowed, 0, "{rule}");
    }
}

/// A sweep for capacity continues with the first keys after the last one.
#[test]
fn a_key_at_rest_makes_room_also_if_it_lies_behind_where_the_last_look_ended() {
    const DEBTORS: usize = 20;
    for rule in ["1/h burst 50", "50/day fixed", "50/day sliding"] {
        let clock = ManualClock::new();
        let builder = Limiter::builder(rule.parse().unwrap()).max_keys(DEBTORS + 1);
        let limiter = builder.with_clock(clock.clone());
        clock.advance(Span::from_secs(10));
        for n in 0..DEBTORS {
            assert!(limiter.check_n(&n, 50).is_allow(), "{rule}");
        }
        for n in 0..300 {
            // Not by `check`, which looks twice.
            assert!(limiter.request(&("passer-by", n)).check().is_allow(), "{rule}, {n}");
            // At rest again, also without time.
            limiter.refund(&("passer-by", n), 1);
            clock.advance(Span::from_millis(2));
        }
        let stats = limiter.stats();
        assert_eq!(stats.overflowed, 0, "{rule}: there was always one at rest");
        assert!(stats.evicted >= 299, "{rule}: {stats:?}");
    }
}

#[test]
fn keys_that_are_asked_about_together_are_never_more_than_there_is_room_for() {
    for rule in ["10/s", "10/s fixed", "10/s sliding", "10/s sliding-log"] {
        let clock = ManualClock::new();
        let builder = Limiter::builder(rule.parse().unwrap()).max_keys(2);
        let limiter = builder.with_clock(clock.clone());
        for round in 0..50_u64 {
            let keys = [round % 3, round % 4, 10 + round % 5, 20 + round % 2];
            // More than the limit, so that the capacity that was reserved for the other keys is not used.
            let is_refused = round % 3 == 2;
            let cost = |key: u64| if is_refused && key == keys[3] { 100 } else { 1 };
            let joint = check_all(keys.map(|key| limiter.request(&key).cost(cost(key))));
            assert_eq!(joint.decision.is_deny(), is_refused, "{rule}");
            assert!(limiter.keys() <= 2 && limiter.stats().keys <= 2, "{rule}");
            assert_eq!(limiter.keys(), limiter.stats().keys, "{rule}");
            clock.advance(Span::from_millis(round % 7 * 500));
        }
        clock.advance(Span::from_secs(60));
        limiter.sweep();
        assert_eq!(limiter.keys(), 0, "{rule}");
    }
}

/// A sweep uses a time before now, so that it does not evict a key that is in debt again after a small step back of the
/// clock. No waiter's turn may move with it.
#[test]
fn a_sweep_during_clock_skew_moves_no_turn() {
    let clock = ManualClock::new();
    let limiter = Limiter::with_clock("10/s burst 1".parse().unwrap(), clock.clone());
    clock.advance(Span::from_secs(1));
    let _ = limiter.check("alice");
    let turn = limiter.reserve("alice").unwrap();
    for _ in 0..20 {
        clock.advance(Span::from_micros(900));
        assert_eq!(turn.wait(), Span::from_micros(99_100));
        clock.set(clock.now() - Span::from_micros(900));
        limiter.sweep();
    }
    assert_eq!(turn.wait(), Span::from_millis(100));
}

/// Looks at the limiter when it is called, which takes a lock.
struct Nosy(Limiter<ManualClock>);

impl Wake for Nosy {
    fn wake(self: Arc<Self>) {
        self.0.stats();
    }
}

/// A waker may call the limiter at once; under a lock that would deadlock.
#[test]
fn no_waker_is_called_under_a_lock_when_a_sweep_finds_a_step_back_of_the_clock() {
    let (done, end) = mpsc::channel();
    thread::spawn(move || {
        let clock = ManualClock::new();
        let limiter = Limiter::with_clock("1/s".parse().unwrap(), clock.clone());
        clock.advance(Span::from_secs(60));
        let _ = limiter.check("alice");
        let waker = Waker::from(Arc::new(Nosy(limiter.clone())));
        let mut turn = pin!(limiter.acquire("alice"));
        assert!(turn.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        clock.set(clock.now() - Span::from_secs(30));
        limiter.sweep();
        let _ = limiter.check("alice");
        done.send(()).unwrap();
    });
    let patience = Duration::from_secs(60);
    assert!(end.recv_timeout(patience).is_ok(), "the waker still stands before the lock");
}

/// A key that was admitted in the overflow state gets a state of its own as soon as there is capacity: together it gets at
/// most twice the limit.
#[test]
fn a_key_that_was_admitted_in_the_overflow_gets_at_most_twice_the_limit() {
    for rule in EVERY {
        let (limiter, clock) = full(rule, Overflow::Share);
        let pass =
            |key: &str| (0..200).filter(|_| limiter.check(key).into_result().is_ok()).count();
        let shared = pass("new");
        limiter.reset("first");
        clock.advance(Span::from_millis(2));
        let own = pass("new");
        limiter.reset("new");
        clock.advance(Span::from_millis(2));
        let fresh = pass("other");
        assert!(own <= fresh, "{rule}: {own} of its own, a new one has {fresh}");
        assert!(shared <= fresh, "{rule}: {shared} shared, a new one has {fresh}");
    }
}

/// To put a client in anew takes longer than to find it; but that is worth some memory for some time, not any for ever.
#[test]
fn a_few_thousand_clients_at_rest_are_kept_for_a_second() {
    const FEW: u64 = 10_000;
    for rule in ["1000/s", "1/ms fixed", "1/ms sliding"] {
        let clock = ManualClock::new();
        let limiter = Limiter::with_clock(rule.parse().unwrap(), clock.clone());
        for _ in 0..3 {
            assert!((0..FEW).all(|client| limiter.check(&client).is_allow()), "{rule}");
            clock.advance(Span::from_millis(10));
        }
        assert_eq!((limiter.stats().evicted, limiter.keys()), (0, 10_000), "{rule}");
        for other in FEW..FEW * 20 {
            let _ = limiter.check(&other);
            clock.advance(Span::from_millis(3));
        }
        assert!(limiter.keys() < 2_000, "{rule}: {} keys", limiter.keys());
    }
}

#[test]
fn many_clients_at_rest_are_not_kept() {
    let clock = ManualClock::new();
    let limiter = Limiter::with_clock("1000/s".parse().unwrap(), clock.clone());
    for client in 0..200_000_u64 {
        let _ = limiter.check(&client);
        if client.is_multiple_of(1_000) {
            clock.advance(Span::from_millis(3));
        }
    }
    assert!(limiter.keys() < 24_000, "{} keys, in 600 ms", limiter.keys());
}
