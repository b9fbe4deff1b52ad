//! Charges beyond what remains become debt, which is repaid as the limit refills.

use tidegate::{Clock, Gate, Limiter, ManualClock, Span};

/// Rules that hold debts, and whose turns are at equal intervals.
const EVEN: [&str; 8] = [
    "10/s",
    "7/min burst 3",
    "3/s paced",
    "7/min leaky capacity 3",
    "4/s fixed",
    "4/min fixed from first",
    "5/min sliding",
    "5/min sliding-log",
];

fn gate(rule: &str, clock: &ManualClock) -> Gate<ManualClock> {
    Gate::with_clock(rule.parse().unwrap(), clock.clone())
}

/// Takes turns one after the other until their costs add up to `cost`, each of at most what the limit admits at once.
fn take_turns(gate: &Gate<ManualClock>, mut cost: u64) {
    let seen = gate.check_n(0);
    let room = seen.remaining.min(cost);
    assert!(gate.check_n(room).is_allow());
    cost -= room;
    while cost > 0 {
        let part = cost.min(seen.limit);
        gate.request().cost(part).reserve().unwrap().commit();
        cost -= part;
    }
}

#[test]
fn a_debt_is_paid_as_a_row_of_turns_is() {
    for rule in EVEN {
        for cost in [1, 2, 3, 4, 5, 10, 11, 47, 100, 101, 999, 2_000] {
            for used in [0, 1] {
                let clock = ManualClock::new();
                let (one, row) = (gate(rule, &clock), gate(rule, &clock));
                clock.advance(Span::from_micros(1_234_567));
                for gate in [&one, &row] {
                    assert!(gate.check_n(used).is_allow());
                }
                one.request().cost(cost).charge();
                take_turns(&row, cost);
                for ask in [1, 2, 3] {
                    let waits = [&one, &row].map(|gate| gate.request().cost(ask).peek());
                    assert_eq!(waits[0], waits[1], "{rule}: {used} used, {cost} charged, {ask}");
                }
            }
        }
    }
}

/// No time to come would pay it, and the key would be remembered for ever.
#[test]
fn where_nothing_is_admitted_nothing_is_owed() {
    let clock = ManualClock::new();
    let limiter = Limiter::with_clock("0/s".parse().unwrap(), clock.clone());
    limiter.request("alice").cost(1_000_000).charge();
    assert!(limiter.is_idle(), "it has no debt");
    limiter.set_rule("10/s".parse().unwrap());
    assert_eq!(limiter.request("alice").cost(10).check().remaining, 0);
}

#[test]
fn a_calendar_s_debt_is_never_paid_early() {
    for rule in ["5/day calendar", "5/month calendar"] {
        for cost in [4, 5, 6, 80, 86, 400, 2_000] {
            let clock = ManualClock::new();
            let (one, row) = (gate(rule, &clock), gate(rule, &clock));
            one.request().cost(cost).charge();
            take_turns(&row, cost);
            let [one, row] = [one, row].map(|gate| gate.reserve().unwrap().wait().as_micros());
            assert!(row <= one && one <= row + row / 40, "{rule}, {cost}: {row} and {one}");
        }
    }
}

#[test]
fn a_debt_of_any_size_is_charged_in_one_step() {
    for rule in EVEN {
        let clock = ManualClock::new();
        let gate = gate(rule, &clock);
        gate.request().cost(u64::MAX).charge();
        gate.request().cost(u64::MAX).charge();
        assert!(gate.check().is_deny(), "{rule}");
        clock.advance(Span::from_secs(1_000_000_000));
        assert!(gate.check().is_deny(), "{rule}: thirty years later");
    }
}

#[test]
fn debts_add_up_and_those_in_line_keep_their_turns() {
    let clock = ManualClock::new();
    let gate = gate("10/s", &clock);
    gate.request().cost(30).charge();
    let waits = gate.reserve().unwrap();
    assert_eq!(waits.wait(), Span::from_millis(2_100));
    for _ in 0..100_000 {
        gate.request().cost(1).charge();
    }
    assert_eq!(waits.wait(), Span::from_millis(2_100), "what is owed later is paid later");
    assert_eq!(gate.check().retry_after(), Some(Span::from_millis(10_002_200)));
    drop(waits);
    assert_eq!(gate.check().retry_after(), Some(Span::from_millis(10_002_100)), "it moves up");
    clock.advance(Span::from_millis(10_002_100));
    assert!(gate.check().is_allow());
    assert!(gate.check().is_deny());
}

#[test]
fn a_reset_forgives_and_a_refund_shortens() {
    let clock = ManualClock::new();
    let limiter = Limiter::with_clock("10/s".parse().unwrap(), clock);
    limiter.request("alice").cost(1_010).charge();
    limiter.refund("alice", 10);
    assert_eq!(limiter.check("alice").retry_after(), Some(Span::from_millis(99_100)));
    assert!(limiter.check("bob").is_allow(), "each owes for itself");
    limiter.reset("alice");
    assert_eq!(limiter.check("alice").remaining, 9);
}

#[test]
fn what_fits_is_charged_as_by_a_check() {
    let clock = ManualClock::new();
    let gate = gate("10/s", &clock);
    gate.request().cost(0).charge();
    gate.request().cost(4).charge();
    assert_eq!(gate.check_n(0).remaining, 6);
    gate.request().cost(6).charge();
    assert_eq!(gate.check().retry_after(), Some(Span::from_millis(100)));
}

#[test]
fn a_rule_without_debt_is_charged_what_remains() {
    let clock = ManualClock::new();
    let queue = gate("10/s queue capacity 5", &clock);
    queue.request().cost(1_000).charge();
    assert_eq!(queue.check_n(0).remaining, 0);
    clock.advance(Span::from_secs(1));
    assert!(!queue.check().is_deny());
    let places = gate("concurrency 2", &clock);
    places.request().cost(1_000).charge();
    assert_eq!(places.check_n(0).remaining, 2);
}

#[test]
fn a_debt_outlives_a_change_of_rule() {
    let clock = ManualClock::new();
    let gate = gate("10/s", &clock);
    gate.request().cost(1_010).charge();
    gate.set_rule("20/s".parse().unwrap());
    let wait = gate.check().retry_after().unwrap();
    assert!(wait > Span::from_secs(49) && wait <= Span::from_secs(101), "{wait}");
    clock.advance(wait);
    assert!(gate.check().is_allow());
}

#[test]
fn a_step_of_the_clock_takes_a_debt_along() {
    let clock = ManualClock::new();
    clock.advance(Span::from_secs(100_000));
    let gate = gate("10/s", &clock);
    gate.request().cost(1_010).charge();
    clock.set(clock.now() - Span::from_secs(3_600));
    assert_eq!(
        gate.check().retry_after(),
        Some(Span::from_millis(100_100)),
        "neither lost nor longer"
    );
    clock.advance(Span::from_millis(100_100));
    assert!(gate.check().is_allow());
    assert!(gate.check().is_deny());
}
