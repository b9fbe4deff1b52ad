//! Refunds, resets and changes of the rule while requests wait: each keeps its turn or gets an earlier one, never a
//! later one, and never out of order (T12, B8).

use crate::executor::Executor;
use crate::{AWAITED, exhausted, gate};
use proptest::prelude::*;
use tidegate::{Gate, ManualClock, Reservation, Retry, Span, Verdict};

fn waits(turns: &[Reservation<ManualClock>]) -> Vec<Span> {
    turns.iter().map(Reservation::wait).collect()
}

fn reserve_turns(gate: &Gate<ManualClock>, length: usize) -> Vec<Reservation<ManualClock>> {
    (0..length).map(|_| gate.reserve().unwrap()).collect()
}

// T11.
#[test]
fn a_refund_moves_all_waiters_up_by_its_amount() {
    for rule in
        ["5/s burst 2", "3/s paced", "7/min leaky capacity 3", "4/s fixed", "4/s sliding-log"]
    {
        let (gate, ..) = exhausted(rule);
        let turns = reserve_turns(&gate, 4);
        let before = waits(&turns);
        gate.refund(1);
        let moved = [vec![Span::ZERO], before[..3].to_vec()].concat();
        assert_eq!(waits(&turns), moved, "{rule}");
    }
}

// T11.
#[test]
fn a_refund_wakes_the_waiters_that_are_due_by_it() {
    for rule in
        ["5/h burst 2", "7/h leaky capacity 3", "4/h fixed", "4/h sliding-log", "4/h sliding"]
    {
        let (gate, ..) = exhausted(rule);
        let mut executor = Executor::new();
        for _ in 0..3 {
            executor.spawn(gate.acquire());
        }
        assert!(executor.run().is_empty());
        gate.refund(2);
        let granted: Vec<usize> = executor.run().into_iter().map(|(task, _)| task).collect();
        assert_eq!(granted, [0, 1], "{rule}");
        assert!(gate.check().is_deny(), "{rule}: nothing is left for others");
    }
}

// T11.
#[test]
fn a_reset_admits_waiters_before_later_requests() {
    for rule in
        ["5/h burst 2", "7/h leaky capacity 2", "2/h fixed", "2/h sliding-log", "2/h sliding"]
    {
        let (gate, ..) = exhausted(rule);
        let mut executor = Executor::new();
        for _ in 0..3 {
            executor.spawn(gate.acquire());
        }
        assert!(executor.run().is_empty());
        gate.reset();
        assert_eq!(executor.run().len(), 2, "{rule}");
        assert!(gate.check().is_deny(), "{rule}: nothing is left for others");
    }
}

// B8.
#[test]
fn a_faster_rule_wakes_the_waiters_whose_turns_it_moves_up() {
    let (gate, clock, _) = exhausted("1/h paced");
    let mut executor = Executor::new();
    for _ in 0..4 {
        executor.spawn(gate.acquire());
    }
    assert!(executor.run().is_empty());
    gate.set_rule("10/s paced".parse().unwrap());
    for second in 0..4 {
        clock.advance(Span::from_millis(100));
        let granted: Vec<usize> = executor.run().into_iter().map(|(task, _)| task).collect();
        assert_eq!(granted, [second], "one every 100 ms now, in order");
    }
}

// B8.
#[test]
fn a_slower_rule_delays_no_turn() {
    let (gate, clock, wait) = exhausted("10/s paced");
    let mut executor = Executor::new();
    for _ in 0..4 {
        executor.spawn(gate.acquire());
    }
    assert!(executor.run().is_empty());
    gate.set_rule("1/h paced".parse().unwrap());
    for turn in 0..4 {
        clock.advance(wait);
        let granted: Vec<usize> = executor.run().into_iter().map(|(task, _)| task).collect();
        assert_eq!(granted, [turn], "at its turn");
    }
    assert!(gate.check().is_deny(), "and they were charged");
}

// B8.
/// A turn that was kept over the change stays charged when another waiter gives up.
#[test]
fn a_turn_kept_over_a_change_stays_charged_when_another_waiter_gives_up() {
    let (gate, clock, _) = exhausted("10/s");
    let (twin, its_clock, _) = exhausted("10/s");
    let (kept, gives_up) = (gate.reserve().unwrap(), gate.reserve().unwrap());
    let its_kept = twin.reserve().unwrap();
    for gate in [&gate, &twin] {
        gate.set_rule("1/h paced".parse().unwrap());
    }
    clock.advance(Span::from_millis(150));
    its_clock.advance(Span::from_millis(150));
    assert_eq!((kept.wait(), its_kept.wait()), (Span::ZERO, Span::ZERO));
    drop(gives_up);
    let (after, expected) = (gate.check().retry_after(), twin.check().retry_after());
    assert_eq!(after, expected, "as if the other had never reserved");
}

// B8.
#[test]
fn waiters_keep_their_turns_when_a_rate_becomes_a_concurrency_limit() {
    for rule in AWAITED {
        let (gate, clock, wait) = exhausted(rule);
        let mut executor = Executor::new();
        executor.spawn(gate.acquire());
        assert!(executor.run().is_empty());
        gate.set_rule("concurrency 1".parse().unwrap());
        let _held = gate.try_acquire().unwrap();
        clock.advance(wait);
        assert_eq!(executor.run().len(), 1, "{rule}");
    }
}

/// Any rule to any other: which one is `from`, which one is `to`.
fn rules() -> impl Strategy<Value = (&'static str, &'static str)> {
    (prop::sample::select(AWAITED.to_vec()), prop::sample::select(AWAITED.to_vec()))
}

#[derive(Clone, Copy, Debug)]
enum Event {
    Refund(u64),
    Reset,
    Change,
    Back,
    GiveUp(usize),
    Advance(u64),
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        (1_u64..4).prop_map(Event::Refund),
        Just(Event::Reset),
        Just(Event::Change),
        Just(Event::Back),
        (0_usize..8).prop_map(Event::GiveUp),
        (0_u64..700_000).prop_map(Event::Advance),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(2_000) })]

    // B8.
    /// After any events, no turn is later than before, or out of order.
    #[test]
    fn no_turn_ever_moves_back_or_out_of_order(
        (from, to) in rules(),
        length in 1_usize..8,
        events in prop::collection::vec(event(), 1..12),
    ) {
        let (gate, clock) = gate(from);
        let mut turns = reserve_turns(&gate, length);
        for event in events {
            let before = waits(&turns);
            let mut passed = Span::ZERO;
            match event {
                Event::Refund(cost) => gate.refund(cost),
                Event::Reset => gate.reset(),
                Event::Change => gate.set_rule(to.parse().unwrap()),
                Event::Back => gate.set_rule(from.parse().unwrap()),
                Event::GiveUp(turn) if turn < turns.len() => drop(turns.remove(turn)),
                Event::GiveUp(_) => {}
                Event::Advance(us) => {
                    passed = Span::from_micros(us);
                    clock.advance(passed);
                }
            }
            let now = waits(&turns);
            let gone = before.len() - now.len();
            // The nth waiter was the nth or a later one before.
            for (turn, wait) in now.iter().enumerate() {
                let promised = before[turn + gone].saturating_sub(passed);
                prop_assert!(*wait <= promised, "{event:?}: {promised} became {wait}");
            }
            prop_assert!(now.is_sorted(), "{event:?}: {now:?}");
        }
    }
}

/// nginx counts in milliseconds. One request waits since the end of a millisecond, and another arrives at the start of
/// the next.
fn around_a_millisecond() -> (Gate<ManualClock>, [Reservation<ManualClock>; 2]) {
    let (gate, clock) = gate("2000r/s burst=9");
    clock.advance(Span::from_micros(999));
    assert!(gate.check().is_allow() && gate.check().is_allow());
    let first = gate.reserve().unwrap();
    assert_eq!(first.wait(), Span::from_millis(1));
    clock.advance(Span::from_micros(1));
    let second = gate.reserve().unwrap();
    (gate, [first, second])
}

// P9.
#[test]
fn a_request_in_the_next_millisecond_does_not_overtake_waiters() {
    let (_gate, [first, second]) = around_a_millisecond();
    assert!(second.wait() >= first.wait(), "{} before {}", second.wait(), first.wait());
}

// P9.
#[test]
fn a_waiter_that_gives_up_refunds_only_its_own_cost() {
    let (gate, [first, second]) = around_a_millisecond();
    let before = gate.check_n(0).remaining;
    second.commit();
    drop(first);
    assert_eq!(gate.check_n(0).remaining - before, 1, "one waiter gave up, the other did not");
}

// B8.
/// Four an hour, of every kind, after six turns that were promised under a faster rule.
#[test]
fn turns_kept_over_a_change_are_charged_to_the_new_rule() {
    let slow =
        ["4/h", "4/h leaky", "4/h fixed", "4/h sliding-log", "4/h sliding", "4/day calendar"];
    let mut free = Vec::new();
    // From faster rules only: under one as slow, the last of six turns leaves room beside it.
    let faster = AWAITED.into_iter().filter(|rule| !rule.contains("/h ") && !rule.contains("day"));
    for (from, to) in faster.flat_map(|from| slow.map(|to| (from, to))) {
        let (gate, clock, _) = exhausted(from);
        let turns = reserve_turns(&gate, 6);
        gate.set_rule(to.parse().unwrap());
        for turn in turns {
            clock.advance(turn.wait());
            turn.commit();
            // A check in between must not get a turn that was given already.
            free.extend(gate.check().is_allow().then(|| format!("{from} -> {to}")));
        }
    }
    free.dedup();
    assert!(free.is_empty(), "{} changes, such as {}", free.len(), free[0]);
}

// A15.
/// The waiter slept without an alarm, because permits had no lease. The change adds one.
#[test]
fn a_waiter_is_woken_by_leases_that_a_change_adds() {
    let (gate, clock) = gate("concurrency 1");
    let _lost = gate.try_acquire().unwrap();
    let mut executor = Executor::new();
    executor.spawn(gate.acquire());
    assert!(executor.run().is_empty());
    gate.set_rule("concurrency 1 lease 10s".parse().unwrap());
    executor.run();
    clock.advance(Span::from_secs(10));
    assert_eq!(executor.run().len(), 1, "the lease has run out, and no release wakes it");
}

// B8.
/// A denial with `Never` says that a retry is useless. Here it would be admitted at once.
#[test]
fn a_waiter_for_a_permit_is_not_denied_for_ever_when_the_rule_becomes_a_rate() {
    let (gate, _) = gate("concurrency 1");
    let _held = gate.try_acquire().unwrap();
    let mut executor = Executor::new();
    executor.spawn(gate.acquire());
    assert!(executor.run().is_empty());
    gate.set_rule("5/s".parse().unwrap());
    let answer = executor.run().pop().expect("it does not wait for a release").1;
    let verdict = answer.map_or_else(|denied| denied.decision.verdict, |ok| ok.decision().verdict);
    assert_ne!(verdict, Verdict::Deny(Retry::Never));
}
