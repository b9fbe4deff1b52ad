//! Permits of a concurrency limit (T13, A11, A12, A15, S6): never more in flight than the rule says,
//! every permit released exactly once, first come, first served, whatever happens to its holder or to a waiter.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

#[path = "../executor/mod.rs"]
mod executor;
mod leases;
mod reset;

use executor::Executor;
use proptest::prelude::*;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Barrier, Mutex};
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::Duration;
use tidegate::{Acquire, Denied, Gate, Limiter, ManualClock, Permit, Retry, Span, Verdict};

type HeldPermit = Permit<ManualClock>;

fn gate(rule: &str) -> (Gate<ManualClock>, ManualClock) {
    let clock = ManualClock::new();
    (Gate::with_clock(rule.parse().unwrap(), clock.clone()), clock)
}

fn free(gate: &Gate<ManualClock>) -> u64 {
    gate.check_n(0).remaining
}

fn granted(executor: &mut Executor<Result<HeldPermit, Denied>>) -> Vec<(usize, HeldPermit)> {
    executor.run().into_iter().map(|(task, answer)| (task, answer.unwrap())).collect()
}

fn numbers(granted: &[(usize, HeldPermit)]) -> Vec<usize> {
    granted.iter().map(|(task, _)| *task).collect()
}

// S6.
#[test]
fn of_ten_threads_that_try_before_any_leaves_five_are_admitted() {
    let gate = Gate::new("concurrency 5".parse().unwrap());
    let (tried, admitted) = (Barrier::new(10), AtomicU64::new(0));
    thread::scope(|scope| {
        for _ in 0..10 {
            scope.spawn(|| {
                let permit = gate.try_acquire();
                admitted.fetch_add(u64::from(permit.is_ok()), Ordering::Relaxed);
                tried.wait();
                drop(permit);
            });
        }
    });
    assert_eq!(admitted.into_inner(), 5);
    assert_eq!(gate.check_n(0).remaining, 5);
}

// S6.
#[test]
fn of_twenty_threads_on_a_semaphore_of_three_all_finish_and_never_four_at_once() {
    let gate = Gate::new("concurrency 3".parse().unwrap());
    let (inside, most, done) = (AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0));
    thread::scope(|scope| {
        for _ in 0..20 {
            scope.spawn(|| {
                for _ in 0..50 {
                    let permit = gate.request().block().unwrap();
                    most.fetch_max(inside.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                    thread::yield_now();
                    inside.fetch_sub(1, Ordering::SeqCst);
                    drop(permit);
                }
                done.fetch_add(1, Ordering::Relaxed);
            });
        }
    });
    assert_eq!(done.into_inner(), 20);
    assert!(most.into_inner() <= 3);
    assert_eq!(gate.check_n(0).remaining, 3);
}

// S6.
#[test]
fn of_thirty_threads_on_20_per_2_s_twenty_are_admitted() {
    let (gate, clock) = gate("20/2s fixed");
    let admitted = AtomicU64::new(0);
    let rush = || {
        thread::scope(|scope| {
            for _ in 0..30 {
                scope.spawn(|| {
                    admitted.fetch_add(u64::from(gate.check().is_allow()), Ordering::Relaxed)
                });
            }
        });
        admitted.swap(0, Ordering::Relaxed)
    };
    assert_eq!(rush(), 20);
    clock.advance(Span::from_millis(1_999));
    assert_eq!(rush(), 0);
    clock.advance(Span::from_millis(1));
    assert_eq!(rush(), 20);
}

// T13.
#[test]
fn every_permit_is_released_when_holders_panic() {
    let (gate, _) = gate("concurrency 4");
    thread::scope(|scope| {
        for number in 0..8 {
            let gate = &gate;
            scope.spawn(move || {
                for round in 0..125_000 {
                    let fails = || {
                        if (round + number) % 3 == 0 {
                            resume_unwind(Box::new(()))
                        }
                    };
                    let _ = catch_unwind(AssertUnwindSafe(|| gate.request().run(fails)));
                }
            });
        }
    });
    assert_eq!(free(&gate), 4);
}

fn poll(future: &mut Pin<Box<Acquire<ManualClock>>>) -> Poll<Result<HeldPermit, Denied>> {
    future.as_mut().poll(&mut Context::from_waker(Waker::noop()))
}

// T13.
/// Dropped at every stage: not polled, waiting, polled again, granted and not yet polled, polled.
#[test]
fn a_wait_dropped_at_any_await_point_leaves_nothing_behind() {
    for rule in ["concurrency 1", "concurrency 1 lease 1h", "concurrency 1 wait 1h"] {
        for stage in 0..5 {
            let (gate, clock) = gate(rule);
            let mut held = Some(gate.try_acquire().unwrap());
            let mut acquire = Box::pin(gate.acquire());
            for step in 0..stage {
                match step {
                    0 | 1 => assert!(poll(&mut acquire).is_pending()),
                    2 => held = None,
                    _ => assert!(poll(&mut acquire).is_ready(), "{rule}"),
                }
            }
            drop((held, acquire));
            assert_eq!((free(&gate), clock.sleepers()), (1, 0), "{rule} at stage {stage}");
            assert!(gate.try_acquire().is_ok());
        }
    }
}

// T13.
#[test]
fn a_permit_granted_to_a_cancelled_waiter_is_passed_on() {
    let (gate, _) = gate("concurrency 1");
    let held = gate.try_acquire().unwrap();
    let mut executor = Executor::new();
    let gone = executor.spawn(gate.acquire());
    let next = executor.spawn(gate.acquire());
    assert!(executor.run().is_empty());
    drop(held); // granted to the first waiter, which is not polled any more
    executor.cancel(gone);
    assert_eq!(numbers(&granted(&mut executor)), [next]);
    assert_eq!(free(&gate), 1);
}

// A12.
#[test]
fn permits_go_to_the_longest_waiting_requests() {
    let (gate, _) = gate("concurrency 2");
    let mut executor = Executor::new();
    for _ in 0..20 {
        executor.spawn(gate.acquire());
    }
    let mut held = granted(&mut executor);
    let mut order = numbers(&held);
    while !held.is_empty() {
        drop(held.remove(0));
        let new = granted(&mut executor);
        order.extend(numbers(&new));
        held.extend(new);
    }
    assert_eq!(order, (0..20).collect::<Vec<_>>());
}

// A12.
#[test]
fn a_large_request_at_the_front_is_not_starved_by_small_ones() {
    let (gate, _) = gate("concurrency 4");
    let held: Vec<_> = (0..4).map(|_| gate.try_acquire().unwrap()).collect();
    let mut executor = Executor::new();
    let large = executor.spawn(gate.request().cost(4).acquire());
    let small: Vec<usize> = (0..4).map(|_| executor.spawn(gate.acquire())).collect();
    assert!(executor.run().is_empty());
    for permit in held {
        assert!(gate.try_acquire().is_err(), "a request that does not wait does not overtake");
        assert!(gate.check().is_deny() && gate.peek().is_deny());
        assert!(executor.run().is_empty(), "small ones do not pass the large one");
        drop(permit);
    }
    let first = granted(&mut executor);
    assert_eq!(numbers(&first), [large]);
    drop(first);
    assert_eq!(numbers(&granted(&mut executor)), small);
}

// A12.
#[test]
fn small_requests_are_granted_when_the_large_one_before_them_gives_up() {
    let (gate, _) = gate("concurrency 4");
    let _held = gate.request().cost(2).try_acquire().unwrap();
    let mut executor = Executor::new();
    let large = executor.spawn(gate.request().cost(4).acquire());
    (0..3).for_each(|_| {
        executor.spawn(gate.acquire());
    });
    assert!(executor.run().is_empty());
    executor.cancel(large);
    assert_eq!(numbers(&granted(&mut executor)), [1, 2]);
}

// A12.
#[test]
fn a_wait_ends_with_the_earlier_deadline_of_request_and_rule() {
    let cases = [
        ("concurrency 1", Some(500), 500),
        ("concurrency 1 wait 2s", None, 2_000),
        ("concurrency 1 wait 2s", Some(500), 500),
        ("concurrency 1 wait 500ms", Some(2_000), 500),
        ("concurrency 1 wait 500ms lease 1h", None, 500),
    ];
    for (rule, patience_ms, expected_ms) in cases {
        let (gate, clock) = gate(rule);
        let held = gate.try_acquire().unwrap();
        let ask = || match patience_ms {
            Some(ms) => gate.request().within(Duration::from_millis(ms)).acquire(),
            None => gate.acquire(),
        };
        let mut executor = Executor::new();
        executor.spawn(ask());
        assert!(executor.run().is_empty(), "{rule}");
        clock.advance(Span::from_micros(expected_ms * 1_000 - 1));
        assert!(executor.run().is_empty(), "{rule}: a microsecond early");
        clock.advance(Span::from_micros(1));
        assert!(executor.run().pop().unwrap().1.is_err(), "{rule}: the time is up");
        executor.spawn(ask());
        assert!(executor.run().is_empty());
        clock.advance(Span::from_micros(expected_ms * 1_000));
        drop(held);
        assert!(executor.run().pop().unwrap().1.is_ok(), "{rule}: free exactly at the deadline");
        assert_eq!(free(&gate), 1);
    }
}

// B8.
#[test]
fn a_raised_limit_admits_waiters_at_once_and_in_order() {
    let (gate, _) = gate("concurrency 1");
    let _held = gate.try_acquire().unwrap();
    let mut executor = Executor::new();
    for cost in [1, 2, 1, 1] {
        executor.spawn(gate.request().cost(cost).acquire());
    }
    // The second request needs two permits of a limit that has one: it is denied, and delays no other waiter.
    assert_eq!(
        executor.run().pop().unwrap().1.unwrap_err().decision.verdict,
        Verdict::Deny(Retry::Never)
    );
    gate.set_rule("concurrency 3".parse().unwrap());
    let inside = granted(&mut executor);
    assert_eq!(numbers(&inside), [0, 2]);
    assert_eq!(free(&gate), 0);
}

// B8.
#[test]
fn a_lowered_limit_keeps_its_permits_and_admits_none_until_they_are_released() {
    let (gate, _) = gate("concurrency 4");
    let mut held: Vec<_> = (0..4).map(|_| gate.try_acquire().unwrap()).collect();
    let mut executor = Executor::new();
    executor.spawn(gate.request().cost(3).acquire());
    executor.spawn(gate.acquire());
    assert!(executor.run().is_empty());
    gate.set_rule("concurrency 2".parse().unwrap());
    let refused = executor.run();
    assert_eq!(refused.len(), 1, "three can never be two");
    assert_eq!(refused[0].1.as_ref().unwrap_err().decision.verdict, Verdict::Deny(Retry::Never));
    for _ in 0..2 {
        held.pop();
        assert!(executor.run().is_empty(), "still two in flight or more");
    }
    held.pop();
    assert_eq!(numbers(&granted(&mut executor)), [1]);
}

// B8.
/// Permits that were held before the rule had a lease: each is still released by its own guard.
#[test]
fn permits_from_before_leases_are_released_one_by_one() {
    for first_back in [0, 1] {
        let (gate, _) = gate("concurrency 2");
        let mut held = vec![gate.try_acquire().unwrap(), gate.try_acquire().unwrap()];
        gate.set_rule("concurrency 2 lease 1h".parse().unwrap());
        drop(held.remove(first_back));
        assert_eq!(free(&gate), 1, "one is back, number {first_back}, and one is not");
        held.clear();
        assert_eq!(free(&gate), 2);
    }
}

// B8.
#[test]
fn a_lease_that_ended_before_a_change_is_not_released_twice() {
    let (gate, clock) = gate("concurrency 1 lease 10s");
    let lapsed = gate.try_acquire().unwrap();
    clock.advance(Span::from_secs(10));
    gate.set_rule("concurrency 1".parse().unwrap());
    let _held = gate.try_acquire().unwrap();
    drop(lapsed);
    assert!(gate.try_acquire().is_err(), "two in flight of one");
}

// B8.
#[test]
fn a_permit_from_before_a_rate_releases_no_other_permit() {
    for concurrency in ["concurrency 1", "concurrency 1 lease 1h"] {
        let (gate, _) = gate(concurrency);
        let old = gate.try_acquire().unwrap();
        gate.set_rule("100/s".parse().unwrap());
        gate.set_rule(concurrency.parse().unwrap());
        let new = gate.try_acquire();
        drop(old);
        let third = gate.try_acquire();
        assert!(!(new.is_ok() && third.is_ok()), "{concurrency}: two in flight of one");
    }
}

// B8.
#[test]
fn a_waiter_that_is_denied_because_the_rule_became_a_rate_is_not_charged() {
    let (gate, _) = gate("concurrency 1");
    let _held = gate.try_acquire().unwrap();
    let mut executor = Executor::new();
    executor.spawn(gate.acquire());
    assert!(executor.run().is_empty());
    gate.set_rule("5/s".parse().unwrap());
    let admitted = executor.run().into_iter().filter(|(_, answer)| answer.is_ok()).count();
    let used = 5 - gate.check_n(0).remaining;
    assert_eq!(used, u64::try_from(admitted).unwrap(), "charged for the admitted requests only");
}

#[derive(Clone, Copy, Debug)]
enum Event {
    Try(u64),
    Join(u64),
    Work,
    GiveUp(usize),
    Release(usize),
    SetRule(u64),
}

fn events() -> impl Strategy<Value = Vec<Event>> {
    let event = prop_oneof![
        2 => (1_u64..4).prop_map(Event::Try),
        4 => (1_u64..4).prop_map(Event::Join),
        3 => Just(Event::Work),
        3 => any::<usize>().prop_map(Event::GiveUp),
        4 => any::<usize>().prop_map(Event::Release),
        1 => (3_u64..7).prop_map(Event::SetRule),
    ];
    prop::collection::vec(event, 1..60)
}

/// A model that counts the requests in flight and the waiters.
#[derive(Default)]
struct Ledger {
    held: Vec<(u64, HeldPermit)>,
    costs: Vec<u64>,
    waiting: Vec<usize>,
}

impl Ledger {
    fn in_flight(&self) -> u64 {
        self.held.iter().map(|(cost, _)| *cost).sum()
    }

    /// Waiters are polled in any order and granted in one: the admitted ones must be the first in the queue.
    fn let_in(&mut self, mut inside: Vec<(usize, Result<HeldPermit, Denied>)>) {
        inside.sort_by_key(|(task, _)| *task);
        for (task, answer) in inside {
            assert_eq!(task, self.waiting.remove(0), "first come, first served");
            self.held.push((self.costs[task], answer.unwrap()));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(40_000) })]

    // T13.
    /// After any events: never more in flight than the rule admits, in order of arrival, and all released.
    #[test]
    fn in_flight_never_exceeds_the_limit_and_ends_at_zero(events in events()) {
        let (gate, clock) = gate("concurrency 4");
        let (mut max, mut most) = (4, 4);
        let (mut executor, mut ledger) = (Executor::new(), Ledger::default());
        for event in events {
            match event {
                Event::Try(cost) => {
                    let permit = gate.request().cost(cost).try_acquire().ok();
                    ledger.held.extend(permit.map(|permit| (cost, permit)));
                }
                Event::Join(cost) => {
                    ledger.waiting.push(executor.spawn(gate.request().cost(cost).acquire()));
                    ledger.costs.push(cost);
                }
                Event::Work => ledger.let_in(executor.run()),
                Event::GiveUp(waiter) if !ledger.waiting.is_empty() => {
                    executor.cancel(ledger.waiting.remove(waiter % ledger.waiting.len()));
                }
                Event::Release(permit) if !ledger.held.is_empty() => {
                    drop(ledger.held.swap_remove(permit % ledger.held.len()));
                }
                Event::GiveUp(_) | Event::Release(_) => {}
                Event::SetRule(next) => {
                    gate.set_rule(format!("concurrency {next}").parse().unwrap());
                    ledger.let_in(executor.run());
                    max = next;
                }
            }
            // Requests above a lowered limit may finish.
            most = if ledger.in_flight() <= max { max } else { most.max(max) };
            prop_assert!(ledger.in_flight() <= most, "{event:?}: {} of {most}", ledger.in_flight());
        }
        ledger.waiting.into_iter().for_each(|task| executor.cancel(task));
        ledger.held.clear();
        prop_assert_eq!((free(&gate), clock.sleepers()), (max, 0));
    }
}

// T13.
/// Threads that ask, poll a few times, and hold or give up, at random.
#[test]
fn threads_that_acquire_and_cancel_at_random_leave_nothing_in_flight() {
    let limiter = Limiter::with_clock("concurrency 3".parse().unwrap(), ManualClock::new());
    let in_flight = AtomicU64::new(0);
    let too_many = Mutex::new(None);
    thread::scope(|scope| {
        for seed in 0..8_u64 {
            let (limiter, in_flight, too_many) = (&limiter, &in_flight, &too_many);
            scope.spawn(move || {
                let mut random = seed;
                for _ in 0..125_000 {
                    random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(seed | 1);
                    let mut acquire = Box::pin(limiter.acquire("hot"));
                    let polls = (random >> 60) % 3;
                    let Some(Poll::Ready(Ok(permit))) =
                        (0..polls).map(|_| poll(&mut acquire)).find(Poll::is_ready)
                    else {
                        continue;
                    };
                    let now = in_flight.fetch_add(1, Ordering::SeqCst) + 1;
                    if now > 3 {
                        *too_many.lock().unwrap() = Some(now);
                    }
                    in_flight.fetch_sub(1, Ordering::SeqCst);
                    drop(permit);
                }
            });
        }
    });
    assert_eq!(too_many.into_inner().unwrap(), None);
    assert_eq!(limiter.check_n("hot", 0).remaining, 3);
}
