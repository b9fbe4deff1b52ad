//! Every interleaving of a few threads, tried by loom (T15): a gate's atomic word, its mutex, and permits.
//!
//! Run by `cargo xtask test`, which builds with `--cfg tidegate_loom` so that `sync/mod.rs` exports loom's atomics and
//! locks.

use crate::clock::Sleep;
use crate::{Clock, Gate, Span, Timestamp};
use loom::sync::Arc;
use loom::sync::atomic::{AtomicUsize, Ordering};
use loom::thread;
use std::future::Future;

/// A clock that stands still: a thread that sleeps on it is woken only by its waker.
#[derive(Clone)]
struct Still;

impl Clock for Still {
    fn now(&self) -> Timestamp {
        Timestamp::from_micros(1_000_000)
    }

    fn sleep_until(&self, _at: Timestamp) -> Sleep {
        Sleep::new(std::future::pending())
    }
}

fn gate(rule: &str) -> Gate<Still> {
    Gate::with_clock(rule.parse().unwrap(), Still)
}

/// Runs `work` on this thread and two others, and returns the sum of their results.
fn on_three(gate: &Gate<Still>, work: fn(&Gate<Still>) -> u64) -> u64 {
    let others: Vec<_> = (0..2)
        .map(|_| {
            let gate = gate.clone();
            thread::spawn(move || work(&gate))
        })
        .collect();
    let mine = work(gate);
    mine + others.into_iter().map(|thread| thread.join().unwrap()).sum::<u64>()
}

fn take_one(gate: &Gate<Still>) -> u64 {
    u64::from(gate.check().is_allow())
}

fn take_two(gate: &Gate<Still>) -> u64 {
    take_one(gate) + take_one(gate)
}

#[test]
fn loom_three_threads_take_exactly_the_burst() {
    loom::model(|| {
        let gate = gate("1/h burst 2");
        assert_eq!(on_three(&gate, take_one), 2);
        assert_eq!(gate.peek().remaining, 0);
    });
}

#[test]
fn loom_two_checks_each_take_exactly_the_burst() {
    loom::model(|| {
        let gate = gate("1/h burst 3");
        let other = gate.clone();
        let thread = thread::spawn(move || take_two(&other));
        let mine = take_two(&gate);
        assert_eq!(mine + thread.join().unwrap(), 3);
    });
}

#[test]
fn loom_a_refund_under_the_mutex_loses_no_charge() {
    loom::model(|| {
        let gate = gate("1/h burst 3");
        assert!(gate.check().is_allow());
        let other = gate.clone();
        let thread = thread::spawn(move || other.refund(1));
        let taken = take_two(&gate);
        thread.join().unwrap();
        assert_eq!(taken, 2);
        assert_eq!(gate.check_n(0).remaining, 1, "three, less two");
    });
}

#[test]
fn loom_a_reservation_that_is_dropped_leaves_no_trace() {
    loom::model(|| {
        let gate = gate("1/h burst 1");
        let other = gate.clone();
        let thread = thread::spawn(move || other.reserve().unwrap().wait());
        let taken = take_one(&gate);
        let wait = thread.join().unwrap();
        // One of the two got the token. A reservation that was due at once has used it up.
        assert_eq!(taken == 1, wait > Span::ZERO);
        assert_eq!(gate.check_n(0).remaining, 0);
        assert_eq!(gate.check().retry_after(), Some(Span::from_secs(3600)));
    });
}

#[test]
fn loom_a_change_of_the_rule_refunds_nothing() {
    loom::model(|| {
        let gate = gate("1/h burst 1");
        let other = gate.clone();
        let thread = thread::spawn(move || other.set_rule("1/h burst 2".parse().unwrap()));
        let taken = take_two(&gate);
        thread.join().unwrap();
        assert!(taken >= 1);
        assert_eq!(gate.check_n(0).remaining, 2 - taken);
    });
}

/// Holds a permit, if one is free, and checks that no other thread does.
fn hold(gate: &Gate<Still>, inside: &AtomicUsize) -> bool {
    let Ok(permit) = gate.try_acquire() else { return false };
    assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "two in flight at once");
    inside.fetch_sub(1, Ordering::SeqCst);
    drop(permit);
    true
}

#[test]
fn loom_a_permit_is_held_once_and_always_released() {
    loom::model(|| {
        let (gate, inside) = (gate("concurrency 1"), Arc::new(AtomicUsize::new(0)));
        let (other, theirs) = (gate.clone(), Arc::clone(&inside));
        let thread = thread::spawn(move || hold(&other, &theirs));
        hold(&gate, &inside);
        thread.join().unwrap();
        assert!(hold(&gate, &inside), "the permit is free again");
    });
}

#[test]
fn loom_a_waiter_for_a_permit_is_always_woken() {
    loom::model(|| {
        let gate = gate("concurrency 1");
        let permit = gate.try_acquire().unwrap();
        let other = gate.clone();
        let thread = thread::spawn(move || {
            drop(loom::future::block_on(other.acquire()).unwrap());
        });
        drop(permit);
        thread.join().unwrap();
        assert!(gate.try_acquire().is_ok());
    });
}

#[test]
fn loom_a_waiter_that_gives_up_keeps_no_permit() {
    loom::model(|| {
        let gate = gate("concurrency 1");
        let permit = gate.try_acquire().unwrap();
        let other = gate.clone();
        let thread = thread::spawn(move || {
            let mut waiting = std::pin::pin!(other.acquire());
            let mut context = std::task::Context::from_waker(std::task::Waker::noop());
            drop(waiting.as_mut().poll(&mut context));
            // Dropped here, with a permit that was granted meanwhile, or still in the queue.
        });
        drop(permit);
        thread.join().unwrap();
        assert!(gate.try_acquire().is_ok());
    });
}
