//! Ten thousand wait and half of them give up (T21): nobody is forgotten, nobody is out of turn.

use crate::crew::Crew;
use crate::gate;
use tidegate::{Limiter, ManualClock, Span};

const TASKS: usize = 10_000;
const MS: Span = Span::from_millis(1);

/// All those who stay pass one a millisecond, in order, though others leave before and meanwhile.
#[test]
fn t21_of_ten_thousand_half_give_up_and_the_others_pass_on_schedule() {
    let (gate, clock) = gate("1000/s paced");
    let _ = gate.check();
    let mut crew = Crew::new();
    for _ in 0..TASKS {
        crew.hire(gate.acquire());
    }
    assert!(crew.work().is_empty());
    assert_eq!(clock.sleepers(), TASKS);

    let (early, late) =
        (0..TASKS).filter(|task| task % 2 == 0).partition::<Vec<_>, _>(|task| *task < 4_000);
    for task in early {
        crew.dismiss(task);
    }
    let mut late = late.into_iter();
    let mut granted = Vec::new();
    for _ in 0..TASKS / 2 {
        late.next().into_iter().for_each(|task| crew.dismiss(task));
        clock.advance(MS);
        let now: Vec<_> = crew.work().into_iter().map(|(task, _)| task).collect();
        assert_eq!(now.len(), 1, "one each millisecond, after {}", granted.len());
        granted.extend(now);
    }
    // Too long to print if they differ.
    assert!(granted.into_iter().eq((0..TASKS).filter(|task| task % 2 == 1)), "in order");
    assert_eq!(clock.sleepers(), 0, "those who gave up do not sleep");
    clock.advance(MS);
    assert!(gate.check().is_allow(), "and they have cost nothing");
}

/// The same for permits, where only a release lets the next one in.
#[test]
fn t21_of_ten_thousand_who_wait_for_a_permit_those_who_stay_get_it_in_order() {
    let (gate, clock) = gate("concurrency 3");
    let mut crew = Crew::new();
    for _ in 0..TASKS {
        crew.hire(gate.acquire());
    }
    let mut held: Vec<_> = crew.work();
    assert_eq!(held.len(), 3);
    let stays = |task: &usize| *task < 3 || task % 2 == 1;
    (0..TASKS).filter(|task| !stays(task)).for_each(|task| crew.dismiss(task));
    let mut granted: Vec<usize> = held.iter().map(|(task, _)| *task).collect();
    while let Some((_, permit)) = held.pop() {
        drop(permit);
        for (task, permit) in crew.work() {
            granted.push(task);
            held.push((task, permit));
        }
        assert!(held.len() <= 3);
    }
    assert!(granted.into_iter().eq((0..TASKS).filter(stays)), "in order");
    assert_eq!((clock.sleepers(), gate.check_n(0).remaining), (0, 3));
}

/// Fairness between keys: no key's waiters are held up by another's.
#[test]
fn t21_a_long_line_at_one_key_holds_up_no_other() {
    let clock = ManualClock::new();
    let limiter = Limiter::with_clock("1000/s paced".parse().unwrap(), clock.clone());
    let mut crew = Crew::new();
    for _ in 0..1_000 {
        crew.hire(limiter.acquire("crowded"));
    }
    for _ in 0..2 {
        crew.hire(limiter.acquire("quiet"));
    }
    let at_once: Vec<_> = crew.work().into_iter().map(|(task, _)| task).collect();
    assert_eq!(at_once, [0, 1_000]);
    clock.advance(MS);
    let next: Vec<_> = crew.work().into_iter().map(|(task, _)| task).collect();
    assert_eq!(next, [1, 1_001]);
}
