//! Ten thousand requests wait and half of them give up (T21): the others are all admitted, in order.

use crate::executor::Executor;
use crate::gate;
use tidegate::{Limiter, ManualClock, Span};

const TASKS: usize = 10_000;
const MS: Span = Span::from_millis(1);

// T21.
/// The remaining waiters are admitted one a millisecond, in order, though others leave before and meanwhile.
#[test]
fn of_ten_thousand_waiters_half_give_up_and_the_others_pass_on_schedule() {
    let (gate, clock) = gate("1000/s paced");
    let _ = gate.check();
    let mut executor = Executor::new();
    for _ in 0..TASKS {
        executor.spawn(gate.acquire());
    }
    assert!(executor.run().is_empty());
    assert_eq!(clock.sleepers(), TASKS);

    let (early, late) =
        (0..TASKS).filter(|task| task % 2 == 0).partition::<Vec<_>, _>(|task| *task < 4_000);
    for task in early {
        executor.cancel(task);
    }
    let mut late = late.into_iter();
    let mut granted = Vec::new();
    for _ in 0..TASKS / 2 {
        late.next().into_iter().for_each(|task| executor.cancel(task));
        clock.advance(MS);
        let now: Vec<_> = executor.run().into_iter().map(|(task, _)| task).collect();
        assert_eq!(now.len(), 1, "one each millisecond, after {}", granted.len());
        granted.extend(now);
    }
    // Too long to print if they differ.
    assert!(granted.into_iter().eq((0..TASKS).filter(|task| task % 2 == 1)), "in order");
    assert_eq!(clock.sleepers(), 0, "waiters that gave up do not sleep");
    clock.advance(MS);
    assert!(gate.check().is_allow(), "and they have cost nothing");
}

// T21.
/// The same for permits, where only a release admits the next waiter.
#[test]
fn of_ten_thousand_waiters_for_a_permit_the_remaining_ones_get_it_in_order() {
    let (gate, clock) = gate("concurrency 3");
    let mut executor = Executor::new();
    for _ in 0..TASKS {
        executor.spawn(gate.acquire());
    }
    let mut held: Vec<_> = executor.run();
    assert_eq!(held.len(), 3);
    let stays = |task: &usize| *task < 3 || task % 2 == 1;
    (0..TASKS).filter(|task| !stays(task)).for_each(|task| executor.cancel(task));
    let mut granted: Vec<usize> = held.iter().map(|(task, _)| *task).collect();
    while let Some((_, permit)) = held.pop() {
        drop(permit);
        for (task, permit) in executor.run() {
            granted.push(task);
            held.push((task, permit));
        }
        assert!(held.len() <= 3);
    }
    assert!(granted.into_iter().eq((0..TASKS).filter(stays)), "in order");
    assert_eq!((clock.sleepers(), gate.check_n(0).remaining), (0, 3));
}

// T21.
/// Fairness between keys: the waiters of one key do not delay those of another.
#[test]
fn a_long_queue_at_one_key_delays_no_other_key() {
    let clock = ManualClock::new();
    let limiter = Limiter::with_clock("1000/s paced".parse().unwrap(), clock.clone());
    let mut executor = Executor::new();
    for _ in 0..1_000 {
        executor.spawn(limiter.acquire("crowded"));
    }
    for _ in 0..2 {
        executor.spawn(limiter.acquire("quiet"));
    }
    let at_once: Vec<_> = executor.run().into_iter().map(|(task, _)| task).collect();
    assert_eq!(at_once, [0, 1_000]);
    clock.advance(MS);
    let next: Vec<_> = executor.run().into_iter().map(|(task, _)| task).collect();
    assert_eq!(next, [1, 1_001]);
}
