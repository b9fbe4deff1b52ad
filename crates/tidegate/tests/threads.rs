//! Real threads on one gate and on one key. With a stopped clock, the rule's capacity is admitted exactly (T17); with a
//! running clock, what has refilled (T18). Concurrent operations of every kind are charged exactly, without a deadlock
//! (T10, T11, T12).
#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod contention;
mod rules;

use contention::{decide_in_sequence, decide_on_threads};
use rules::EVERY;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use tidegate::{
    Clock, Decision, Gate, Limiter, ManualClock, Span, SystemClock, Timestamp, check_all,
};

/// Threads, and how often each asks: the same number of requests, so that each race is as long.
const CREWS: [(usize, usize); 3] = [(1, 512), (8, 64), (64, 8)];

// T17.
#[test]
fn a_gate_with_a_stopped_clock_admits_exactly_what_the_rule_holds() {
    for (rule, (threads, each)) in
        EVERY.iter().flat_map(|rule| CREWS.map(|executor| (rule, executor)))
    {
        let clock = ManualClock::new();
        let gate = Gate::with_clock(rule.parse().unwrap(), clock.clone());
        let raced = decide_on_threads(threads, each, || gate.check());
        assert_eq!(
            raced,
            decide_in_sequence(rule, clock.now(), threads * each),
            "{rule}, {threads} threads"
        );
    }
}

// T17.
#[test]
fn a_key_with_a_stopped_clock_is_admitted_exactly_as_often_as_the_rule_holds() {
    for (rule, (threads, each)) in
        EVERY.iter().flat_map(|rule| CREWS.map(|executor| (rule, executor)))
    {
        let clock = ManualClock::new();
        let limiter = Limiter::with_clock(rule.parse().unwrap(), clock.clone());
        let raced = decide_on_threads(threads, each, || limiter.check("hot"));
        assert_eq!(
            raced,
            decide_in_sequence(rule, clock.now(), threads * each),
            "{rule}, {threads} threads"
        );
        assert!(limiter.check("cold").remaining <= limiter.check_n("cold", 0).limit);
    }
}

// T17.
#[test]
fn costs_of_many_sizes_never_add_up_to_more_than_the_capacity() {
    for rule in ["1000/h burst 1000", "1000/h leaky", "1000/h fixed", "1000/h sliding-log"] {
        let gate = Gate::with_clock(rule.parse().unwrap(), ManualClock::new());
        let (next, taken) = (AtomicU64::new(1), AtomicU64::new(0));
        decide_on_threads(8, 400, || {
            let cost = 1 + next.fetch_add(1, Ordering::Relaxed) % 7;
            let decision = gate.check_n(cost);
            if decision.is_allow() {
                taken.fetch_add(cost, Ordering::Relaxed);
            }
            decision
        });
        // Where 7 no longer fit, some of the ones did: all threads asked for both until the end.
        assert_eq!(taken.into_inner(), 1_000, "{rule}");
    }
}

/// Empties a bucket, counts the admissions of `threads` threads until the machine's clock has advanced by 300 ms, and adds
/// what remains. Returns the number and its two bounds.
///
/// The bucket holds a second's worth, so it does not overflow while the machine does something
/// else: what it admits depends on the time alone, and how the threads are scheduled cannot matter.
fn admitted_in_300_ms(threads: usize, ask: impl Fn(u64) -> Decision + Sync) -> (u64, u64, u64) {
    let clock = SystemClock::new();
    let emptied_after = clock.now();
    assert!(ask(BURST).is_allow());
    let emptied_before = clock.now();
    let end = emptied_before + Span::from_millis(300);
    let admitted = AtomicU64::new(0);
    let work = || {
        let mut mine = 0;
        while clock.now() < end {
            mine += u64::from(ask(1).is_allow());
        }
        admitted.fetch_add(mine, Ordering::Relaxed);
    };
    thread::scope(|scope| (0..threads).for_each(|_| drop(scope.spawn(work))));
    let mut admitted = admitted.into_inner();
    let refused_after = loop {
        let now = clock.now();
        if ask(1).is_deny() {
            break now;
        }
        admitted += 1;
    };
    let worth = |from: Timestamp, to: Timestamp| to.since(from).as_micros() * BURST / 1_000_000;
    let least = worth(emptied_before, refused_after);
    let most = worth(emptied_after, clock.now());
    (admitted, least, most)
}

/// A second's worth at 700 000/s, which is not a whole number of microseconds for each.
const BURST: u64 = 700_000;

// T18.
#[test]
fn a_gate_with_a_running_clock_admits_what_has_refilled() {
    for (threads, _) in CREWS {
        for rule in ["700000/s", "700000/s leaky"] {
            let gate = Gate::new(rule.parse().unwrap());
            let (admitted, least, most) = admitted_in_300_ms(threads, |cost| gate.check_n(cost));
            assert!(admitted <= most, "{threads} threads: {admitted} of {most}");
            assert!(admitted >= least, "{threads} threads: {admitted}, not {least}");
            assert!(least > 200_000, "and that was many");
        }
    }
}

// T18.
#[test]
fn a_key_with_a_running_clock_is_admitted_what_has_refilled() {
    for (threads, _) in CREWS {
        let limiter = Limiter::new("700000/s".parse().unwrap());
        let ask = |cost| limiter.check_n("hot", cost);
        let (admitted, least, most) = admitted_in_300_ms(threads, ask);
        assert!(admitted <= most, "{threads} threads: {admitted} of {most}");
        assert!(admitted >= least, "{threads} threads: {admitted}, not {least}");
    }
}

/// Runs one operation of each kind repeatedly, and returns what it has charged and not refunded.
fn live(gate: &Gate<ManualClock>, key: &Limiter<ManualClock>, seed: u64) -> (u64, u64) {
    let (mut at_gate, mut at_key) = (0, 0);
    for round in 0..400 {
        match (round * 7 + seed) % 8 {
            0 | 1 => at_gate += u64::from(gate.check().is_allow()),
            2 => at_key += u64::from(key.check("hot").is_allow()),
            3 => drop(gate.reserve()), // due at once or given back; see below
            4 => drop(key.reserve("hot")),
            5 if at_gate > 0 => {
                gate.refund(1);
                at_gate -= 1;
            }
            6 if at_key > 0 => {
                key.refund("hot", 1);
                at_key -= 1;
            }
            _ => {
                let mut asks = vec![gate.request(), key.request("hot")];
                asks.rotate_left(usize::try_from(seed % 2).unwrap());
                let both = u64::from(check_all(asks).decision.is_allow());
                (at_gate, at_key) = (at_gate + both, at_key + both);
            }
        }
    }
    (at_gate, at_key)
}

// T10, T11.
#[test]
fn concurrent_operations_of_every_kind_are_charged_exactly() {
    for rule in ["20/h", "20/h leaky", "20/h fixed", "20/h sliding-log", "20/h sliding"] {
        let clock = ManualClock::new();
        let gate = Gate::with_clock(rule.parse().unwrap(), clock.clone());
        let key = Limiter::with_clock(rule.parse().unwrap(), clock.clone());
        // Nothing is left, so every reservation is for later and is given back when it is dropped.
        assert!(gate.check_n(20).is_allow() && key.check_n("hot", 20).is_allow());
        let taken: Vec<(u64, u64)> = thread::scope(|scope| {
            let (gate, key) = (&gate, &key);
            let all: Vec<_> =
                (0..8).map(|seed| scope.spawn(move || live(gate, key, seed))).collect();
            all.into_iter().map(|one| one.join().unwrap()).collect()
        });
        assert_eq!(taken, vec![(0, 0); 8], "{rule}: nothing was left to take");
        assert_eq!((gate.check_n(0).remaining, key.check_n("hot", 0).remaining), (0, 0), "{rule}");
        gate.refund(20);
        key.refund("hot", 20);
        assert_eq!(
            (gate.check_n(0).remaining, key.check_n("hot", 0).remaining),
            (20, 20),
            "{rule}"
        );
    }
}

// T11.
#[test]
fn charges_and_refunds_of_many_threads_add_up() {
    for rule in ["5000/h", "5000/h leaky", "5000/h fixed", "5000/h sliding-log", "5000/h sliding"] {
        let clock = ManualClock::new();
        let gate = Gate::with_clock(rule.parse().unwrap(), clock.clone());
        let key = Limiter::with_clock(rule.parse().unwrap(), clock.clone());
        let reserved = AtomicU64::new(0);
        let taken: (u64, u64) = thread::scope(|scope| {
            let (gate, key, reserved) = (&gate, &key, &reserved);
            let work = move |seed| {
                // Enough is left for all: a reservation is due at once, and spent.
                let mine = live(gate, key, seed);
                reserved.fetch_add(50, Ordering::Relaxed);
                mine
            };
            let all: Vec<_> = (0..8).map(|seed| scope.spawn(move || work(seed))).collect();
            let add = |sum: (u64, u64), one: (u64, u64)| (sum.0 + one.0, sum.1 + one.1);
            all.into_iter().map(|one| one.join().unwrap()).fold((0, 0), add)
        });
        let reserved = reserved.into_inner();
        assert_eq!(gate.check_n(0).remaining, 5_000 - taken.0 - reserved, "{rule} at the gate");
        assert_eq!(key.check_n("hot", 0).remaining, 5_000 - taken.1 - reserved, "{rule} by key");
    }
}

// T12.
/// Takes 1, gives 1 back, and changes the rule, all the time.
#[test]
fn changing_the_rule_during_checks_loses_no_charge() {
    let clock = ManualClock::new();
    let gate = Gate::with_clock("9000/h".parse().unwrap(), clock.clone());
    let key = Limiter::with_clock("9000/h".parse().unwrap(), clock.clone());
    let taken = AtomicU64::new(0);
    decide_on_threads(8, 500, || {
        let count = taken.fetch_add(1, Ordering::Relaxed);
        if count.is_multiple_of(10) {
            let rule = if count.is_multiple_of(20) { "18000/h burst 9000" } else { "9000/h" };
            gate.set_rule(rule.parse().unwrap());
            key.set_rule(rule.parse().unwrap());
        }
        assert!(gate.check().is_allow());
        key.check("hot")
    });
    assert_eq!(gate.check_n(0).remaining, 9_000 - 4_000);
    assert_eq!(key.check_n("hot", 0).remaining, 9_000 - 4_000);
}

// T10.
#[test]
fn locks_are_taken_in_one_order_whatever_the_order_of_the_requests() {
    let clock = ManualClock::new();
    let rule = || "100000/h".parse().unwrap();
    let gates: Vec<_> = (0..3).map(|_| Gate::with_clock(rule(), clock.clone())).collect();
    let limiters: Vec<_> = (0..3).map(|_| Limiter::with_clock(rule(), clock.clone())).collect();
    let next = AtomicU64::new(0);
    let ranks = decide_on_threads(8, 500, || {
        let turn = usize::try_from(next.fetch_add(1, Ordering::Relaxed)).unwrap();
        let mut asks: Vec<_> = gates.iter().map(Gate::request).collect();
        asks.extend(limiters.iter().enumerate().map(|(key, limiter)| limiter.request(&key)));
        asks.rotate_left(turn % 6);
        if turn.is_multiple_of(2) {
            asks.reverse();
        }
        check_all(asks).decision
    });
    assert_eq!(ranks, vec![(0, 0); 4_000]);
    for (key, (gate, limiter)) in gates.iter().zip(&limiters).enumerate() {
        assert_eq!(gate.check_n(0).remaining, 96_000);
        assert_eq!(limiter.check_n(&key, 0).remaining, 96_000);
    }
}
