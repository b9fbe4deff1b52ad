//! Wakers run foreign code, so no lock of this crate may be held meanwhile (T13, T16).

use crate::executor::Executor;
use crate::gate;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Wake, Waker};
use std::thread;
use tidegate::clock::Sleep;
use tidegate::{Clock, Gate, ManualClock, Span, SystemClock, Timestamp};

/// Calls the gate when it is woken, inside the operation that woke it.
struct Nosy {
    gate: Gate<ManualClock>,
    woken: AtomicUsize,
}

impl Wake for Nosy {
    fn wake(self: Arc<Self>) {
        let _ = self.gate.check_n(0);
        drop(self.gate.reserve());
        self.gate.refund(0);
        self.woken.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn a_waker_may_ask_the_gate_that_wakes_it() {
    for (rule, is_permit) in [("1/s", false), ("concurrency 1", true)] {
        let (gate, clock) = gate(rule);
        let held = gate.try_acquire().unwrap();
        let nosy = Arc::new(Nosy { gate: gate.clone(), woken: AtomicUsize::new(0) });
        let waker = Waker::from(Arc::clone(&nosy));
        let mut acquire = pin!(gate.acquire());
        assert!(acquire.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        drop(held);
        if !is_permit {
            gate.refund(1);
        }
        assert_eq!(nosy.woken.load(Ordering::Relaxed), 1, "{rule}");
        clock.advance(Span::from_secs(1));
        assert!(acquire.as_mut().poll(&mut Context::from_waker(&waker)).is_ready(), "{rule}");
    }
}

/// Uses the gate when it is dropped, which deadlocks if the gate is locked meanwhile.
struct Heavy {
    uses: Box<dyn Fn() + Send + Sync>,
    was_free: Arc<AtomicBool>,
}

impl Wake for Heavy {
    fn wake(self: Arc<Self>) {}
}

impl Drop for Heavy {
    fn drop(&mut self) {
        let uses = std::mem::replace(&mut self.uses, Box::new(|| ()));
        let done = Arc::new(AtomicBool::new(false));
        let theirs = Arc::clone(&done);
        // Not waited for: if a lock is held here, it comes to its end only after we have given up.
        drop(thread::spawn(move || {
            uses();
            theirs.store(true, Ordering::Release);
        }));
        let was_free = (0..2_000_000).any(|_| {
            thread::yield_now();
            done.load(Ordering::Acquire)
        });
        self.was_free.store(was_free, Ordering::Release);
    }
}

/// A waker whose last copy is the one that the future keeps.
fn heavy(uses: impl Fn() + Send + Sync + 'static) -> (Waker, Arc<AtomicBool>) {
    let was_free = Arc::new(AtomicBool::new(false));
    let heavy = Heavy { uses: Box::new(uses), was_free: Arc::clone(&was_free) };
    (Waker::from(Arc::new(heavy)), was_free)
}

#[test]
fn a_waker_that_is_replaced_is_dropped_outside_the_clocks_lock() {
    let clock = ManualClock::new();
    let mut sleep = pin!(clock.sleep_until(clock.now() + Span::from_secs(1)));
    let (waker, was_free) = heavy({
        let clock = clock.clone();
        move || assert!(clock.sleepers() <= 1)
    });
    assert!(sleep.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    drop(waker);
    assert!(sleep.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    assert!(was_free.load(Ordering::Acquire), "the clock was locked");
}

#[test]
fn a_waker_that_is_replaced_is_dropped_outside_the_alarms_lock() {
    let clock = SystemClock::new();
    let later = clock.now() + Span::from_secs(3_600);
    let mut sleep = pin!(clock.sleep_until(later));
    let (waker, was_free) = heavy(move || {
        let mut other = pin!(SystemClock::new().sleep_until(later));
        let _ = other.as_mut().poll(&mut Context::from_waker(Waker::noop()));
    });
    assert!(sleep.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    drop(waker);
    assert!(sleep.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    assert!(was_free.load(Ordering::Acquire), "the alarm's book was locked");
}

/// A clock whose sleeps keep no waker, so that the one the limiter keeps is the last.
#[derive(Clone)]
struct Standstill;

impl Clock for Standstill {
    fn now(&self) -> Timestamp {
        Timestamp::from_micros(1_000_000)
    }

    fn sleep_until(&self, _at: Timestamp) -> Sleep {
        Sleep::new(std::future::pending())
    }
}

#[test]
fn the_waker_of_a_waiter_that_gives_up_is_dropped_outside_the_gates_lock() {
    let mut locked = Vec::new();
    for rule in ["1/s", "1/s queue", "concurrency 1"] {
        let gate = Gate::with_clock(rule.parse().unwrap(), Standstill);
        let _held = gate.try_acquire().unwrap();
        let (waker, was_free) = heavy({
            let gate = gate.clone();
            move || assert!(gate.check_n(0).is_allow())
        });
        let mut acquire = Box::pin(gate.acquire());
        assert!(acquire.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        drop(waker);
        drop(acquire);
        if !was_free.load(Ordering::Acquire) {
            locked.push(rule);
        }
    }
    assert!(locked.is_empty(), "the gate was locked: {locked:?}");
}

/// A task that moves to another thread brings another waker, and that one is called.
#[test]
fn the_waker_of_the_last_poll_is_the_one_that_is_called() {
    struct Counter(AtomicUsize);
    impl Wake for Counter {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }
    for rule in ["1/s", "concurrency 1", "1/s queue"] {
        let (gate, clock) = gate(rule);
        let held = gate.try_acquire().unwrap();
        let counters = [0, 1].map(|_| Arc::new(Counter(AtomicUsize::new(0))));
        let mut acquire = pin!(gate.acquire());
        for counter in &counters {
            let waker = Waker::from(Arc::clone(counter));
            assert!(acquire.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        }
        drop(held);
        clock.advance(Span::from_secs(1));
        let called = counters.map(|counter| counter.0.load(Ordering::Relaxed) > 0);
        assert_eq!(called, [false, true], "{rule}");
    }
}

// T21.
/// Many threads cancel, release and wake at once: every remaining waiter is admitted (no lost wake-up).
#[test]
fn grants_that_race_with_cancellations_are_passed_on() {
    for _ in 0..200 {
        let (gate, _) = gate("concurrency 1");
        let held = Mutex::new(Some(gate.try_acquire().unwrap()));
        let mut executor = Executor::new();
        executor.spawn(gate.acquire());
        assert!(executor.run().is_empty());
        let mut leaver = Box::pin(gate.acquire());
        assert!(leaver.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        let last = executor.spawn(gate.acquire());
        assert!(executor.run().is_empty());
        thread::scope(|scope| {
            scope.spawn(|| drop(held.lock().unwrap().take()));
            scope.spawn(move || drop(leaver));
        });
        let first = executor.run();
        assert_eq!(first.iter().map(|(task, _)| *task).collect::<Vec<_>>(), [0]);
        drop(first);
        assert_eq!(
            executor.run().pop().map(|(task, _)| task),
            Some(last),
            "the permit was passed on"
        );
    }
}

struct Bomb;

impl Wake for Bomb {
    fn wake(self: Arc<Self>) {
        panic!("a waker may do this");
    }
}

/// Polls once with a waker that panics when it is called.
fn plant<C: Clock>(gate: &Gate<C>) -> std::pin::Pin<Box<tidegate::Acquire<C>>> {
    let mut acquire = Box::pin(gate.acquire());
    let waker = Waker::from(Arc::new(Bomb));
    assert!(acquire.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    acquire
}

// T13.
#[test]
fn a_waker_that_panics_keeps_no_other_waiter_asleep() {
    // On the thread that keeps the alarms of the whole process.
    let gate = Gate::new("100/s burst 1".parse().unwrap());
    let _ = gate.check();
    let planted = plant(&gate);
    drop(gate.request().block().unwrap());
    let other = Gate::new("100/s burst 1".parse().unwrap());
    let _ = other.check();
    drop(other.request().within(Span::from_secs(60)).block().unwrap());
    drop(planted);

    // On the thread that gives a permit back, and on the one that moves the clock.
    for (rule, is_permit) in [("concurrency 1", true), ("1/s", false)] {
        let (gate, clock) = crate::gate(rule);
        let held = gate.try_acquire().unwrap();
        let mut planted = plant(&gate);
        let mut executor = Executor::new();
        executor.spawn(gate.acquire());
        assert!(executor.run().is_empty());
        drop(held);
        clock.advance(Span::from_secs(2));
        if is_permit {
            let mut context = Context::from_waker(Waker::noop());
            assert!(planted.as_mut().poll(&mut context).is_ready(), "its permit waits for it");
        }
        drop(planted);
        assert_eq!(executor.run().len(), 1, "{rule}: the second waiter is admitted");
    }
}
