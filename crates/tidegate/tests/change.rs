//! Changing a rule while it is in use (T12, B8), at a gate and by key: no usage is forgiven, no key is denied for longer than
//! under the old rule, and changing back and forth gains nothing.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod rules;

use proptest::prelude::*;
use rules::EVERY;
use tidegate::clock::Sleep;
use tidegate::{Clock, Decision, Gate, Limiter, ManualClock, Span, Timestamp};

/// One caller, at a gate or as a key: the same claims hold for both.
enum Caller {
    AtGate(Gate<ManualClock>),
    ByKey(Limiter<ManualClock>),
}

impl Caller {
    fn both(rule: &str) -> [(Self, ManualClock); 2] {
        let clocks = [ManualClock::new(), ManualClock::new()];
        let gate = Gate::with_clock(rule.parse().unwrap(), clocks[0].clone());
        let limiter = Limiter::with_clock(rule.parse().unwrap(), clocks[1].clone());
        let [first, second] = clocks;
        [(Self::AtGate(gate), first), (Self::ByKey(limiter), second)]
    }

    fn check(&self, cost: u64) -> Decision {
        match self {
            Self::AtGate(gate) => gate.check_n(cost),
            Self::ByKey(limiter) => limiter.check_n("alice", cost),
        }
    }

    fn peek(&self) -> Decision {
        match self {
            Self::AtGate(gate) => gate.peek(),
            Self::ByKey(limiter) => limiter.peek("alice"),
        }
    }

    fn change(&self, rule: &str) {
        match self {
            Self::AtGate(gate) => gate.set_rule(rule.parse().unwrap()),
            Self::ByKey(limiter) => limiter.set_rule(rule.parse().unwrap()),
        }
    }

    fn refund(&self, cost: u64) {
        match self {
            Self::AtGate(gate) => gate.refund(cost),
            Self::ByKey(limiter) => limiter.refund("alice", cost),
        }
    }

    /// Counts the requests that are admitted at once, one after the other.
    fn exhaust(&self) -> u64 {
        let admits = |_: &u64| self.peek().is_allow() && self.check(1).is_allow();
        (0..1_000_000).take_while(admits).map(|_| 1).sum()
    }
}

fn pairs() -> impl Iterator<Item = (&'static str, &'static str)> {
    EVERY.into_iter().flat_map(|from| EVERY.map(|to| (from, to)))
}

/// For each caller and change, after `used` requests over some time: what it was before and after.
fn each_change(mut look: impl FnMut(&str, &Caller, &ManualClock, Decision)) {
    for (from, to) in pairs() {
        for used in [0, 1, 5, 200] {
            for (caller, clock) in Caller::both(from) {
                for request in 0..used {
                    let _ = caller.check(1);
                    clock.advance(Span::from_micros(request * 37));
                }
                let before = caller.check(0);
                caller.change(to);
                look(&format!("{from} -> {to} after {used}"), &caller, &clock, before);
            }
        }
    }
}

// T12.
#[test]
fn no_change_leaves_more_than_the_new_rule_holds() {
    each_change(|what, caller, _, _| {
        let after = caller.check(0);
        assert!(after.remaining <= after.limit, "{what}: {after:?}");
    });
}

// T12.
#[test]
fn no_change_denies_for_longer_than_the_old_rule() {
    each_change(|what, caller, clock, before| {
        let next = caller.peek();
        let wait = next.retry_after().unwrap_or(Span::ZERO);
        assert!(wait <= before.reset_after, "{what}: {wait}, not {}", before.reset_after);
        clock.advance(before.reset_after);
        assert!(!caller.check(1).is_deny(), "{what}: refused after {}", before.reset_after);
    });
}

// T12.
#[test]
fn a_raised_limit_takes_effect_at_once_and_what_was_used_stays_used() {
    let raises = [
        ("10/h", "25/h"),
        ("10/h burst 10", "10/h burst 25"),
        ("10/h leaky", "25/h leaky"),
        ("10/h fixed", "25/h fixed"),
        ("10/h fixed from first", "25/h fixed from first"),
        ("10/day calendar", "25/day calendar"),
        ("10/h sliding-log", "25/h sliding-log"),
        ("10/h sliding", "25/h sliding"),
        ("10r/m burst=9 nodelay", "10r/m burst=24 nodelay"),
        ("10/h", "25/h fixed"),
        ("10/h fixed", "25/h"),
        ("10/h sliding-log", "25/h leaky"),
    ];
    for (from, to) in raises {
        for (caller, _) in Caller::both(from) {
            assert_eq!(caller.exhaust(), 10, "{from}");
            caller.change(to);
            assert_eq!(caller.exhaust(), 15, "{from} -> {to}");
        }
    }
}

// T12.
#[test]
fn a_lowered_limit_takes_effect_at_once_for_what_is_left() {
    for (from, to) in
        [("10/h", "4/h"), ("10/h fixed", "4/h fixed"), ("10/h sliding-log", "4/h sliding-log")]
    {
        for (caller, _) in Caller::both(from) {
            assert!(caller.check(3).is_allow());
            caller.change(to);
            assert_eq!(caller.exhaust(), 1, "{from} -> {to}: three of four are used");
        }
    }
}

// T12.
#[test]
fn setting_the_same_rule_again_changes_nothing() {
    for rule in EVERY {
        let [pair, twins] = [Caller::both(rule), Caller::both(rule)];
        for ((caller, clock), (twin, its_clock)) in pair.iter().zip(&twins) {
            for round in 0..300 {
                caller.change(rule);
                assert_eq!(caller.peek(), twin.peek(), "{rule}, round {round}");
                assert_eq!(caller.check(1), twin.check(1), "{rule}, round {round}");
                let step = Span::from_micros(round * 331);
                clock.advance(step);
                its_clock.advance(step);
            }
        }
    }
}

// T12.
/// A configuration that is loaded again every few milliseconds, with a number that changes a little:
/// what is used must drain all the same.
#[test]
fn frequent_changes_starve_no_key() {
    let families = [
        ["10/s burst 5", "11/s burst 5"],
        ["10/s leaky capacity 5", "11/s leaky capacity 5"],
        ["10/s fixed", "11/s fixed"],
        ["10/s sliding-log", "11/s sliding-log"],
        ["10/s sliding", "11/s sliding"],
        ["10r/s burst=4 nodelay", "11r/s burst=4 nodelay"],
        ["10r/s burst=4", "11r/s burst=4"],
        ["10/s queue capacity 5", "11/s queue capacity 5"],
        ["10/s", "10/s fixed"],
        ["10/s", "10/s sliding"],
    ];
    let mut starved = Vec::new();
    for rules in families {
        for (caller, clock) in Caller::both(rules[0]) {
            while !caller.check(1).is_deny() {}
            let mut admitted = 0;
            for ms in 0..20_000_usize {
                caller.change(rules[ms % 2]);
                admitted += u64::from(!caller.check(1).is_deny());
                clock.advance(Span::from_millis(1));
            }
            // 20 s at 10/s, less a burst.
            if admitted < 180 {
                starved.push((rules, admitted));
            }
        }
    }
    assert!(starved.is_empty(), "{starved:?}");
}

// T12.
/// Looking is not asking: a key that was looked at is not better or worse off after a change.
#[test]
fn a_key_that_was_only_peeked_is_like_a_new_one() {
    let mut differ = Vec::new();
    for (from, to) in pairs().filter(|(from, to)| from != to) {
        let clock = ManualClock::new();
        let limiter = Limiter::with_clock(from.parse().unwrap(), clock.clone());
        clock.advance(Span::from_millis(10));
        let _ = limiter.peek("seen");
        limiter.set_rule(to.parse().unwrap());
        if limiter.peek("seen") != limiter.peek("unseen") {
            differ.push(format!("{from} -> {to}"));
        }
    }
    assert!(differ.is_empty(), "{} changes, such as {}", differ.len(), differ[0]);
}

// T12.
/// A key that is asked about often in a row is decided somewhere else.
#[test]
fn a_hot_key_keeps_its_usage_over_a_change() {
    for other in ["10/h burst 200", "200/h sliding", "200/h fixed"] {
        let clock = ManualClock::new();
        let limiter = Limiter::with_clock("10/h burst 200".parse().unwrap(), clock.clone());
        clock.advance(Span::from_secs(60));
        assert!((0..150).all(|_| limiter.check("hot").is_allow()));
        limiter.set_rule(other.parse().unwrap());
        assert_eq!(limiter.check_n("hot", 0).remaining, 50, "{other}");
        assert_eq!(limiter.check("other").remaining, 199, "{other}");
        assert!(limiter.check_n("hot", 51).is_deny(), "{other}");
        assert!((0..50).all(|_| limiter.check("hot").is_allow()), "{other}");
        assert!(limiter.check("hot").is_deny(), "{other}");
        assert_eq!(limiter.stats().allowed, 150 + 1 + 1 + 50, "{other}");
    }
}

// T11.
#[test]
fn a_refund_gives_back_no_more_than_was_charged() {
    let mut too_much = Vec::new();
    for rule in EVERY {
        for charged in [0, 1, 3] {
            let [fresh, refunded] = [Caller::both(rule), Caller::both(rule)];
            for ((caller, clock), (twin, its_clock)) in refunded.iter().zip(&fresh) {
                clock.advance(Span::from_millis(100));
                its_clock.advance(Span::from_millis(100));
                (0..charged).filter(|_| caller.check(1).is_deny()).for_each(drop);
                (0..3).for_each(|_| caller.refund(charged + 1_000));
                if caller.check(0).remaining > twin.check(0).remaining {
                    too_much.push((rule, charged));
                }
            }
        }
    }
    too_much.dedup();
    assert!(too_much.is_empty(), "more than a new key has: {too_much:?}");
}

/// Rules that hold exactly 6 at once, of every kind that can say so.
const SIX: [&str; 10] = [
    "6/h",
    "6/s",
    "1/day burst 6",
    "6/h leaky",
    "6/min fixed",
    "6/day calendar",
    "6/h sliding-log",
    "6/s sliding-log",
    "6/h sliding",
    "10r/m burst=5 nodelay",
];

/// Changes from rule to rule with a few requests under each, and returns the number of admissions.
fn travel(caller: &Caller, rules: &[&str], trips: &[(usize, u64)]) -> u64 {
    let mut admitted = 0;
    for (rule, asks) in trips {
        caller.change(rules[*rule]);
        admitted += (0..*asks).map(|_| u64::from(caller.check(1).is_allow())).sum::<u64>();
    }
    admitted
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(600) })]

    // T12. If the new window would deny a key for longer than the old one, `spec/fixed.md` forgets one unit.
    #[test]
    fn a_change_forgives_at_most_one_unit(
        trips in prop::collection::vec((0_usize..SIX.len(), 0_u64..4), 1..30),
    ) {
        for (caller, clock) in Caller::both(SIX[trips[0].0]) {
            clock.advance(Span::from_secs(12_345));
            let admitted = travel(&caller, &SIX, &trips);
            let changes = trips.windows(2).filter(|pair| pair[0].0 != pair[1].0).count();
            prop_assert!(admitted <= 6 + u64::try_from(changes).unwrap(), "{admitted} of 6");
        }
    }

    // T12.
    /// The same within one kind, where nothing has to be translated.
    #[test]
    fn changing_back_and_forth_between_rates_forgives_nothing(
        trips in prop::collection::vec((0_usize..3, 0_u64..4), 1..30),
    ) {
        for family in [
            ["6/h", "6/s", "1/day burst 6"],
            ["6/h leaky", "6/s leaky", "1/day leaky capacity 6"],
            ["10r/m burst=5 nodelay", "10r/s burst=5 nodelay", "1r/m burst=5 nodelay"],
        ] {
            for (caller, _) in Caller::both(family[trips[0].0]) {
                let admitted = travel(&caller, &family, &trips);
                prop_assert!(admitted <= 6, "{:?}: {} of 6", family, admitted);
            }
        }
    }
}

/// A machine whose calendar was set while the process ran: the two times are an hour apart.
#[derive(Clone)]
struct TwoFaced {
    steady: ManualClock,
    calendar: ManualClock,
}

impl Clock for TwoFaced {
    fn now(&self) -> Timestamp {
        self.steady.now()
    }

    fn calendar_now(&self) -> Timestamp {
        self.calendar.now()
    }

    fn sleep_until(&self, at: Timestamp) -> Sleep {
        self.steady.sleep_until(at)
    }
}

// T12.
#[test]
fn a_change_between_clocks_is_like_a_change_with_one_clock() {
    let calendar = ["2/min fixed", "2/min calendar"];
    let steady = ["2/min", "2/min sliding-log", "2/min sliding", "2/min fixed from first"];
    let hour = Span::from_secs(3_600);
    let start = Timestamp::from_micros(1_704_067_200_000_000);
    let after_change = |from: &str, to: &str, calendar_start| {
        let (steady, calendar) = (ManualClock::at(start), ManualClock::at(calendar_start));
        let gate = Gate::with_clock(from.parse().unwrap(), TwoFaced { steady, calendar });
        assert!(gate.check_n(2).is_allow());
        let waiting = gate.reserve().unwrap();
        gate.set_rule(to.parse().unwrap());
        (gate.check_n(0), waiting.wait())
    };
    for (from, to) in calendar.iter().flat_map(|c| steady.map(|s| [(*c, s), (s, *c)])).flatten() {
        let as_one_clock = after_change(from, to, start);
        for calendar_start in [start - hour, start + hour] {
            let as_two = after_change(from, to, calendar_start);
            assert_eq!(as_two, as_one_clock, "{from} -> {to} at {calendar_start:?}");
        }
    }
}
