//! Permits of an adaptive gate (T13, A14): each is released exactly once, also if its holder panics or is cancelled;
//! no request is admitted above the current limit; waiters are admitted in order.

use crate::executor::Executor;
use proptest::prelude::*;
use std::cell::Cell;
use std::collections::BTreeSet;
use std::future::{Future, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;
use tidegate::load::{Adaptive, AdaptiveGate, AdaptivePermit};
use tidegate::{Denied, ManualClock, Retry, Span, Verdict};

type HeldPermit = AdaptivePermit<ManualClock>;

fn gate(adaptive: Adaptive) -> (AdaptiveGate<ManualClock>, ManualClock) {
    let clock = ManualClock::new();
    (AdaptiveGate::with_clock(adaptive, clock.clone()), clock)
}

#[derive(Clone, Debug)]
enum Step {
    Try,
    Wait,
    WaitAtMost(u64),
    GiveUp(usize),
    Succeed(usize),
    Overload(usize),
    Drop(usize),
    Panic(usize),
    Advance(u64),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => Just(Step::Try),
        3 => Just(Step::Wait),
        1 => (0_u64..50).prop_map(Step::WaitAtMost),
        1 => any::<usize>().prop_map(Step::GiveUp),
        4 => any::<usize>().prop_map(Step::Succeed),
        1 => any::<usize>().prop_map(Step::Overload),
        1 => any::<usize>().prop_map(Step::Drop),
        1 => any::<usize>().prop_map(Step::Panic),
        3 => (0_u64..20).prop_map(Step::Advance),
    ]
}

/// The requests in flight, and the waiters.
struct Scene {
    gate: AdaptiveGate<ManualClock>,
    clock: ManualClock,
    held: Vec<HeldPermit>,
    executor: Executor<Result<HeldPermit, Denied>>,
    waiting: BTreeSet<usize>,
}

impl Scene {
    fn act(&mut self, step: &Step) {
        match *step {
            Step::Try => {
                let (in_flight, limit) = (self.gate.in_flight(), self.gate.limit());
                match self.gate.try_acquire() {
                    Ok(permit) => {
                        assert!(in_flight < limit && self.waiting.is_empty());
                        self.held.push(permit);
                    }
                    Err(_) => assert!(in_flight >= limit || !self.waiting.is_empty()),
                }
            }
            Step::Wait => self.wait(Span::MAX),
            Step::WaitAtMost(ms) => self.wait(Span::from_millis(ms)),
            Step::GiveUp(which) => {
                let waiter = self.waiting.iter().nth(which % self.waiting.len().max(1)).copied();
                if let Some(waiter) = waiter {
                    self.executor.cancel(waiter);
                    self.waiting.remove(&waiter);
                }
            }
            Step::Succeed(which) => self.end(which, AdaptivePermit::succeed),
            Step::Overload(which) => self.end(which, AdaptivePermit::overload),
            Step::Drop(which) => self.end(which, drop),
            Step::Panic(which) => self.end(which, |permit| {
                let panicked = catch_unwind(AssertUnwindSafe(|| {
                    let _permit = permit;
                    std::panic::resume_unwind(Box::new(()));
                }));
                assert!(panicked.is_err());
            }),
            Step::Advance(ms) => self.clock.advance(Span::from_millis(ms)),
        }
        self.settle();
    }

    fn wait(&mut self, patience: Span) {
        let task = self.executor.spawn(self.gate.acquire_within(patience));
        self.waiting.insert(task);
    }

    fn end(&mut self, which: usize, end: impl FnOnce(HeldPermit)) {
        if !self.held.is_empty() {
            let which = which % self.held.len();
            end(self.held.swap_remove(which));
        }
    }

    /// Admits the waiters that were granted a permit, in the order of their arrival.
    fn settle(&mut self) {
        let mut last = None;
        for (task, answer) in self.executor.run() {
            self.waiting.remove(&task);
            if let Ok(permit) = answer {
                assert!(last.is_none_or(|last| last < task), "first come, first served");
                last = Some(task);
                self.held.push(permit);
            }
        }
        assert_eq!(self.gate.in_flight(), u64::try_from(self.held.len()).unwrap());
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(10_000) })]

    // T13.
    #[test]
    fn every_permit_is_released_once_after_any_events(
        law in 0..3,
        steps in prop::collection::vec(step(), 0..300),
    ) {
        let adaptive = match law {
            0 => Adaptive::aimd(Span::from_millis(20)),
            1 => Adaptive::vegas(),
            _ => Adaptive::gradient2(),
        };
        let (gate, clock) = gate(adaptive.between(1..=6).starting_at(3));
        let (executor, waiting) = (Executor::new(), BTreeSet::new());
        let mut scene = Scene { gate, clock, held: Vec::new(), executor, waiting };
        for step in &steps {
            scene.act(step);
        }
        let gate = scene.gate.clone();
        drop(scene);
        prop_assert_eq!(gate.in_flight(), 0);
        prop_assert!(gate.try_acquire().is_ok(), "and no waiter is before it");
    }
}

// T13.
#[test]
fn many_threads_never_hold_more_than_the_largest_limit() {
    const LIMIT_MAX: u64 = 4;
    let gate = AdaptiveGate::new(Adaptive::vegas().between(1..=LIMIT_MAX));
    let (inside, most) = (AtomicU64::new(0), AtomicU64::new(0));
    let work = |number: u64| {
        let permit = match number % 2 {
            0 => gate.try_acquire().ok(),
            _ => tokio::runtime::Builder::new_current_thread()
                .build()
                .unwrap()
                .block_on(gate.acquire_within(Duration::from_secs(60)))
                .ok(),
        };
        let Some(permit) = permit else { return };
        most.fetch_max(inside.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
        thread::yield_now();
        inside.fetch_sub(1, Ordering::SeqCst);
        match number % 5 {
            0 => std::panic::resume_unwind(Box::new(())),
            1 => drop(permit),
            2 => permit.overload(),
            _ => permit.succeed(),
        }
    };
    thread::scope(|scope| {
        for thread in 0..8 {
            let work = &work;
            scope.spawn(move || {
                for round in 0..125_000 {
                    let _ = catch_unwind(AssertUnwindSafe(|| work(round * 8 + thread + round)));
                }
            });
        }
    });
    assert!((1..=LIMIT_MAX).contains(&most.into_inner()));
    assert_eq!(gate.in_flight(), 0);
}

#[test]
fn a_lowered_limit_revokes_no_permit_and_admits_none_until_enough_are_released() {
    let (gate, _) = gate(Adaptive::vegas());
    let mut held: Vec<HeldPermit> = (0..20).map(|_| gate.try_acquire().unwrap()).collect();
    for _ in 0..20 {
        // One out, as an overload, and one in: the limit comes down to 18 with the last.
        held.pop().unwrap().overload();
        held.extend(gate.try_acquire().ok());
    }
    assert_eq!((gate.limit(), gate.in_flight()), (18, 19));
    drop(held.pop());
    assert!(gate.try_acquire().is_err());
    drop(held.pop());
    assert!(gate.try_acquire().is_ok());
}

#[test]
fn a_raised_limit_wakes_waiters_up_to_the_new_limit() {
    let (gate, clock) = gate(Adaptive::vegas().between(1..=1_000).starting_at(10));
    let mut held: Vec<HeldPermit> = (0..10).map(|_| gate.try_acquire().unwrap()).collect();
    let mut executor = Executor::new();
    let polls = Rc::new(Cell::new(0));
    for _ in 0..30 {
        let (mut wait, polls) = (Box::pin(gate.acquire()), Rc::clone(&polls));
        executor.spawn(poll_fn(move |context| {
            polls.set(polls.get() + 1);
            wait.as_mut().poll(context)
        }));
    }
    assert!(executor.run().is_empty());
    polls.set(0);
    clock.advance(Span::from_millis(5));
    for permit in held.drain(..) {
        permit.succeed();
    }
    let admitted: Vec<usize> = executor.run().iter().map(|(task, _)| *task).collect();
    assert_eq!(gate.limit(), 16, "ten that were quick: six more");
    assert_eq!(admitted, (0..16).collect::<Vec<_>>());
    assert_eq!(polls.get(), 16);
}

#[test]
fn a_wait_ends_at_its_deadline() {
    let (gate, clock) = gate(Adaptive::vegas().between(1..=1));
    let _permit = gate.try_acquire().unwrap();
    let mut executor = Executor::new();
    executor.spawn(gate.acquire_within(Span::from_millis(10)));
    assert!(executor.run().is_empty());
    clock.advance(Span::from_millis(9));
    assert!(executor.run().is_empty());
    clock.advance(Span::from_millis(1));
    let (_, answer) = executor.run().remove(0);
    assert_eq!(answer.unwrap_err().decision.verdict, Verdict::Deny(Retry::OnRelease));
}

#[test]
fn a_permit_that_is_only_dropped_is_no_sample() {
    let (gate, clock) = gate(Adaptive::vegas().starting_at(1));
    for _ in 0..1_000 {
        let permit = gate.try_acquire().unwrap();
        clock.advance(Span::from_secs(1));
        drop(permit);
    }
    assert_eq!((gate.limit(), gate.baseline()), (1, None));
}

#[test]
fn a_permit_goes_where_its_request_goes() {
    fn goes_anywhere<T: Send + 'static>() {}
    goes_anywhere::<AdaptivePermit>();
    goes_anywhere::<tidegate::load::AdaptiveAcquire>();
    goes_anywhere::<tidegate::load::ShedPermit>();
}
