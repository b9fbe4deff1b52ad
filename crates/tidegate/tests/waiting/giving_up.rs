//! A waiter that gives up leaves no trace: afterwards the limiter decides as if it had never arrived.

use crate::executor::Executor;
use crate::{AWAITED, assert_alike, exhausted, gate};
use proptest::prelude::*;
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use tidegate::{Gate, ManualClock, Span};

fn poll(future: std::pin::Pin<&mut impl Future>) -> bool {
    let mut context = Context::from_waker(Waker::noop());
    matches!(future.poll(&mut context), Poll::Ready(_))
}

// T13.
#[test]
fn a_wait_dropped_after_any_number_of_polls_leaves_no_trace() {
    for rule in AWAITED {
        for polls in 0..6 {
            let (gate, clock, wait) = exhausted(rule);
            let (twin, its_clock, _) = exhausted(rule);
            let step = Span::from_micros(wait.as_micros() / 6);
            {
                let mut acquire = pin!(gate.acquire());
                for _ in 0..polls {
                    assert!(!poll(acquire.as_mut()), "{rule}: it waits");
                    clock.advance(step);
                }
            }
            assert_eq!(clock.sleepers(), 0);
            let what = format!("{rule} after {polls} polls");
            assert_alike((&gate, &clock), (&twin, &its_clock), step, &what);
        }
    }
}

// T13.
#[test]
fn a_wait_dropped_behind_an_admitted_request_leaves_no_trace() {
    for rule in AWAITED {
        let (gate, clock, wait) = exhausted(rule);
        let (twin, its_clock, _) = exhausted(rule);
        let (mut executor, mut its_executor) = (Executor::new(), Executor::new());
        executor.spawn(gate.acquire());
        let behind = executor.spawn(gate.acquire());
        its_executor.spawn(twin.acquire());
        assert!(executor.run().is_empty() && its_executor.run().is_empty());
        clock.advance(wait);
        its_clock.advance(wait);
        // Under a rule that admits several at one instant, the waiter may have been admitted as well.
        let passed = executor.run().len();
        assert_eq!(its_executor.run().len(), 1, "{rule}");
        if passed > 1 {
            continue;
        }
        executor.cancel(behind);
        let step = Span::from_micros(wait.as_micros() / 5);
        assert_alike((&gate, &clock), (&twin, &its_clock), step, rule);
    }
}

// T21.
#[test]
fn the_waiters_behind_one_that_gives_up_move_up() {
    for rule in AWAITED {
        let (gate, _, _) = exhausted(rule);
        let mut line: Vec<_> = (0..5).map(|_| gate.reserve().unwrap()).collect();
        let waits = |line: &[tidegate::Reservation<ManualClock>]| -> Vec<Span> {
            line.iter().map(tidegate::Reservation::wait).collect()
        };
        let before = waits(&line);
        drop(line.remove(1));
        assert_eq!(waits(&line), before[..4], "{rule}: each has the turn of the one before");
        drop(line.remove(0));
        assert_eq!(waits(&line), before[..3], "{rule}");
        drop(line);
        assert_eq!(gate.reserve().unwrap().wait(), before[0], "{rule}");
    }
}

// T21.
#[test]
fn a_waiter_that_becomes_due_is_woken_at_once() {
    for rule in
        ["10/s burst 10", "10/s leaky", "10/min sliding-log", "10/min fixed", "10/min sliding"]
    {
        let (gate, _) = gate(rule);
        let _ = gate.check_n(5);
        let mut executor = Executor::new();
        let large = executor.spawn(gate.request().cost(10).acquire());
        executor.spawn(gate.request().cost(5).acquire());
        assert!(executor.run().is_empty(), "{rule}: both wait, the small one behind the large one");
        executor.cancel(large);
        assert_eq!(executor.run().len(), 1, "{rule}: five are free, so its turn is now");
    }
}

/// A group of requests that arrive at one instant, with their costs; some of them give up.
fn group() -> impl Strategy<Value = Vec<(u64, Option<u8>)>> {
    prop::collection::vec((1_u64..=2, prop::option::of(any::<u8>())), 1..7)
}

fn join(gate: &Gate<ManualClock>, costs: impl Iterator<Item = u64>) -> Vec<Option<Span>> {
    let line: Vec<_> = costs.map(|cost| gate.request().cost(cost).reserve()).collect();
    line.into_iter().map(|one| one.ok().map(|reservation| reservation.wait())).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(96) })]

    // T21.
    /// Waiters give up in any order: the others have the turns they would have without them.
    #[test]
    fn the_remaining_waiters_have_the_turns_they_would_have_alone(
        group in group(),
        used in 0_u64..4,
        rest_ms in 0_u64..3_000,
    ) {
        // A full queue denies. The requests that it denied are not sent again when others give up.
        for rule in AWAITED.into_iter().filter(|rule| !rule.contains("paced") && !rule.contains("12")) {
            let ((gate, clock), (twin, its_clock)) = (gate(rule), gate(rule));
            for (gate, clock) in [(&gate, &clock), (&twin, &its_clock)] {
                for _ in 0..used {
                    let _ = gate.check();
                    clock.advance(Span::from_millis(rest_ms / 4));
                }
            }
            let mut line: Vec<_> = group
                .iter()
                .map(|(cost, _)| Some(gate.request().cost(*cost).reserve().unwrap()))
                .collect();
            let mut leavers: Vec<usize> = (0..group.len()).filter(|i| group[*i].1.is_some()).collect();
            leavers.sort_by_key(|i| group[*i].1);
            for leaver in leavers {
                // A request that was due at once is spent, and counts.
                if line[leaver].as_ref().is_some_and(|one| !one.wait().is_zero()) {
                    line[leaver] = None;
                }
            }
            let stayed = |i: &usize| line[*i].is_some();
            let costs = (0..group.len()).filter(stayed).map(|i| group[i].0);
            let expected = {
                let twins: Vec<_> = costs.map(|cost| twin.request().cost(cost).reserve().unwrap()).collect();
                twins.iter().map(tidegate::Reservation::wait).collect::<Vec<Span>>()
            };
            let waits: Vec<Span> = line.iter().flatten().map(tidegate::Reservation::wait).collect();
            prop_assert_eq!(waits, expected, "{}", rule);
            drop(line);
            let one_more = [&gate, &twin].map(|gate| join(gate, [1, 2].into_iter()));
            prop_assert_eq!(&one_more[0], &one_more[1], "{}", rule);
        }
    }
}
