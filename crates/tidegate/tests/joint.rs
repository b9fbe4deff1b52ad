//! Several requests decided as one (T10, A13): all are admitted or none is charged, in any order of the requests.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod rules;

use proptest::prelude::*;
use rules::EVERY;
use std::thread;
use tidegate::{
    Clock, Decision, Gate, Limiter, ManualClock, Request, Retry, Span, Verdict, check_all,
};
use tidegate_core::{Limit, State};

fn gate(rule: &str, clock: &ManualClock) -> Gate<ManualClock> {
    Gate::with_clock(rule.parse().unwrap(), clock.clone())
}

fn limiter(rule: &str, clock: &ManualClock) -> Limiter<ManualClock> {
    Limiter::with_clock(rule.parse().unwrap(), clock.clone())
}

/// A gate that says no, for an hour.
fn closed(clock: &ManualClock) -> Gate<ManualClock> {
    let gate = gate("1/h", clock);
    assert!(gate.check().is_allow());
    gate
}

// T10.
#[test]
fn a_denial_by_one_limit_charges_no_other_under_every_rule() {
    for rule in EVERY {
        let clock = ManualClock::new();
        let (asked, twin, closed) = (gate(rule, &clock), gate(rule, &clock), closed(&clock));
        let (keyed, its_twin) = (limiter(rule, &clock), limiter(rule, &clock));
        for _ in 0..50 {
            let joint = check_all([asked.request(), keyed.request("alice"), closed.request()]);
            assert!(joint.decision.is_deny());
            // Numbers as they would be without the joint one, also after a while and a charge.
            assert_eq!(asked.peek(), twin.peek(), "{rule}");
            assert_eq!(keyed.peek("alice"), its_twin.peek("alice"), "{rule} by key");
            clock.advance(Span::from_millis(7));
            assert_eq!(asked.check(), twin.check(), "{rule}");
            assert_eq!(keyed.check("alice"), its_twin.check("alice"), "{rule} by key");
        }
    }
}

// T10.
#[test]
fn an_admission_charges_each_limit_exactly_once() {
    for rule in EVERY.into_iter().filter(|rule| !rule.contains("empty")) {
        let clock = ManualClock::new();
        let (asked, twin) = (gate(rule, &clock), gate(rule, &clock));
        let open = gate("1000/s", &clock);
        for round in 1..=20 {
            let before = open.check_n(0).remaining;
            let joint = check_all([asked.request(), open.request()]);
            assert_eq!(joint.each[0], twin.check(), "{rule}, round {round}: as by itself");
            let charged = before - open.check_n(0).remaining;
            assert_eq!(charged, u64::from(!joint.decision.is_deny()), "{rule}, round {round}");
            clock.advance(Span::from_millis(3));
        }
    }
}

/// Four limits of which each order is to give the same; made anew for each order.
struct World {
    clock: ManualClock,
    gates: [Gate<ManualClock>; 3],
    keys: Limiter<ManualClock>,
}

impl World {
    fn new(rules: [&str; 4]) -> Self {
        let clock = ManualClock::new();
        let gates = [rules[0], rules[1], rules[2]].map(|rule| gate(rule, &clock));
        Self { gates, keys: limiter(rules[3], &clock), clock }
    }

    fn request(&self, which: usize, cost: u64) -> Request<ManualClock> {
        match self.gates.get(which) {
            Some(gate) => gate.request().cost(cost),
            None => self.keys.request("alice").cost(cost),
        }
    }

    fn numbers(&self) -> Vec<Decision> {
        (0..4).flat_map(|which| [0, 1, 2].map(|cost| self.request(which, cost).peek())).collect()
    }
}

fn orders() -> Vec<[usize; 4]> {
    let all = (0..4_usize.pow(4)).map(|n| [n % 4, n / 4 % 4, n / 16 % 4, n / 64 % 4]);
    all.filter(|order| (0..4).all(|which| order.contains(&which))).collect()
}

/// Asks in every order, and compares the answers and what is left behind.
fn assert_order_does_not_matter(rules: [&str; 4], costs: [u64; 4]) {
    let ask = |order: [usize; 4]| {
        let world = World::new(rules);
        let joint = check_all(order.map(|which| world.request(which, costs[which])));
        let by_limit = |which| joint.each[order.iter().position(|w| *w == which).unwrap()];
        let each: Vec<Decision> = (0..4).map(by_limit).collect();
        (joint.decision, each, world.numbers())
    };
    let first = ask([0, 1, 2, 3]);
    for order in orders() {
        assert_eq!(ask(order), first, "{rules:?} in order {order:?}");
    }
}

// T10.
#[test]
fn the_order_does_not_matter_when_all_are_admitted() {
    assert_order_does_not_matter(["10/s", "20/s sliding-log", "30/s fixed", "40/s"], [1, 2, 3, 4]);
    assert_order_does_not_matter(
        ["9/s queue", "5/s smooth", "9r/s burst=5", "4/s sliding"],
        [2; 4],
    );
}

// T10.
#[test]
fn the_order_does_not_matter_when_some_are_denied() {
    let rules = ["10/s", "20/s sliding-log", "30/s fixed", "40/s"];
    for costs in [[11, 2, 3, 4], [1, 20, 31, 4], [10, 20, 30, 41], [11, 21, 31, 41]] {
        assert_order_does_not_matter(rules, costs);
    }
}

// T10.
/// Nothing is left of two limits that differ: which one the answer is about must not depend on the
/// order.
#[test]
fn the_order_does_not_matter_when_two_limits_are_exhausted() {
    assert_order_does_not_matter(["5/s", "10/s", "30/s fixed", "40/s"], [5, 10, 1, 1]);
}

// T10.
#[test]
fn costs_for_the_same_limit_add_up() {
    let clock = ManualClock::new();
    let (seven, keys) = (gate("7/s", &clock), limiter("7/s", &clock));
    assert!(check_all([seven.request().cost(4), seven.request().cost(4)]).decision.is_deny());
    let same = seven.clone();
    let joint = check_all([seven.request().cost(3), same.request().cost(4)]);
    assert_eq!((joint.decision.is_allow(), joint.each[0].remaining), (true, 0));
    assert_eq!(joint.each[0], joint.each[1]);
    let twice =
        |a: &str, b: &str| check_all([keys.request(a).cost(4), keys.clone().request(b).cost(4)]);
    assert!(twice("alice", "alice").decision.is_deny());
    assert!(twice("alice", "bob").decision.is_allow(), "two keys are two");
    let other = limiter("7/s", &clock);
    let asks = [keys.request("carol").cost(7), other.request("carol").cost(7)];
    assert!(check_all(asks).decision.is_allow(), "two limiters are two");
}

// T09.
#[test]
fn costs_whose_sum_overflows_are_denied_for_ever() {
    let clock = ManualClock::new();
    for rule in EVERY.into_iter().filter(|rule| !rule.contains("smooth") && !rule.contains("warm"))
    {
        let gate = gate(rule, &clock);
        let before = gate.peek();
        let asks = [u64::MAX, 2, u64::MAX].map(|cost| gate.request().cost(cost));
        assert_eq!(check_all(asks).decision.verdict, Verdict::Deny(Retry::Never), "{rule}");
        assert_eq!(gate.peek(), before, "{rule}");
    }
}

// A13.
#[test]
fn a_retry_of_never_wins_over_a_release_and_a_release_over_any_time() {
    let clock = ManualClock::new();
    let (short, long) = (gate("1/s", &clock), gate("1/h", &clock));
    let flight = gate("concurrency 1", &clock);
    let _held = flight.try_acquire().unwrap();
    assert!(short.check().is_allow() && long.check().is_allow());
    let verdict = |asks: Vec<Request<ManualClock>>| check_all(asks).decision.verdict;
    let after = |span| Verdict::Deny(Retry::After(span));
    let (second, hour) = (Span::from_secs(1), Span::from_secs(3_600));
    assert_eq!(verdict(vec![short.request()]), after(second));
    assert_eq!(verdict(vec![short.request(), long.request()]), after(hour));
    assert_eq!(verdict(vec![long.request(), short.request()]), after(hour));
    assert_eq!(verdict(vec![flight.request(), long.request()]), Verdict::Deny(Retry::OnRelease));
    assert_eq!(verdict(vec![long.request(), flight.request()]), Verdict::Deny(Retry::OnRelease));
    let never = [long.request(), flight.request(), short.request().cost(2)].into_iter().collect();
    assert_eq!(verdict(never), Verdict::Deny(Retry::Never));
}

// A13.
#[test]
fn no_requests_and_requests_of_cost_0_are_admitted() {
    let none: [Request<ManualClock>; 0] = [];
    let joint = check_all(none);
    assert_eq!((joint.decision, joint.each), (Decision::UNLIMITED, vec![]));
    let clock = ManualClock::new();
    let closed = closed(&clock);
    assert!(check_all([closed.request().cost(0), closed.request().cost(0)]).decision.is_allow());
}

// A13.
#[test]
fn a_joint_request_does_not_overtake_waiters() {
    let clock = ManualClock::new();
    let (busy, free) = (gate("10/s burst 2", &clock), gate("100/s", &clock));
    assert!(busy.check_n(2).is_allow());
    let waits = busy.request().cost(2).reserve().unwrap();
    clock.advance(Span::from_millis(100));
    let joint = check_all([free.request(), busy.request()]);
    assert_eq!(
        joint.decision.retry_after(),
        Some(Span::from_millis(200)),
        "behind the one in line"
    );
    assert_eq!((waits.wait(), free.check_n(0).remaining), (Span::from_millis(100), 100));
}

// A13.
/// Seed 001: 100 a second and 2 in 10 ms, for a second in which one comes every millisecond.
#[test]
fn a_hundred_a_second_and_two_in_ten_milliseconds() {
    let clock = ManualClock::new();
    let (second, moment) = (gate("100/s", &clock), gate("2/10ms", &clock));
    // By hand, in tenths and fifths of a request: 0.1 and 0.2 of one come back each millisecond.
    let (mut tenths, mut fifths, mut admitted) = (1_000_u64, 10_u64, 0);
    for ms in 0..=1_000 {
        let expected = tenths >= 10 && fifths >= 5;
        let joint = check_all([second.request(), moment.request()]);
        assert_eq!(joint.decision.is_allow(), expected, "at {ms} ms");
        if expected {
            (tenths, fifths, admitted) = (tenths - 10, fifths - 5, admitted + 1);
        }
        (tenths, fifths) = ((tenths + 1).min(1_000), (fifths + 1).min(10));
        clock.advance(Span::from_millis(1));
    }
    assert_eq!(admitted, 200, "2 at once, then one each 5 ms, while the hundred last");
}

// A13.
#[test]
fn two_windows_fill_a_second_in_fifty_short_windows() {
    let clock = ManualClock::new();
    let (second, moment) = (gate("100/s fixed", &clock), gate("2/10ms fixed", &clock));
    let mut admitted = Vec::new();
    for ms in 0..1_000_u64 {
        if check_all([second.request(), moment.request()]).decision.is_allow() {
            admitted.push(ms);
        }
        clock.advance(Span::from_millis(1));
    }
    let expected: Vec<u64> = (0..500).filter(|ms| ms % 10 < 2).collect();
    assert_eq!(admitted, expected, "the first two of each ten, until there were a hundred");
}

// T10.
#[test]
fn concurrent_denials_in_opposite_orders_neither_deadlock_nor_charge() {
    let clock = ManualClock::new();
    let (a, b, closed) = (gate("1000/h", &clock), limiter("1000/h", &clock), closed(&clock));
    thread::scope(|scope| {
        for turn in 0..8 {
            let (a, b, closed) = (&a, &b, &closed);
            scope.spawn(move || {
                for _ in 0..500 {
                    let mut asks =
                        vec![a.request(), b.request("alice"), b.request("bob"), closed.request()];
                    asks.rotate_left(turn % 4);
                    assert!(check_all(asks).decision.is_deny());
                }
            });
        }
    });
    assert_eq!(a.check_n(0).remaining, 1_000);
    assert_eq!(b.check_n("alice", 0).remaining, 1_000);
}

/// Generates requests as pairs of a limit and a cost.
fn asks() -> impl Strategy<Value = Vec<(usize, u64)>> {
    prop::collection::vec((0_usize..4, 0_u64..5), 0..6)
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(1_500) })]

    // T10.
    /// Against the pure limits: all are asked for the sum of what is asked of them, and charged if
    /// none says no.
    #[test]
    fn joint_requests_decide_as_the_pure_limits_do(
        rules in prop::sample::subsequence(EVERY.to_vec(), 4),
        rounds in prop::collection::vec((asks(), 0_u64..400_000), 1..20),
    ) {
        let world = World::new([rules[0], rules[1], rules[2], rules[3]]);
        let limits: Vec<Limit> = rules.iter().map(|rule| rule.parse().unwrap()).collect();
        let birth = world.clock.now();
        let mut states: Vec<State> = limits.iter().map(|limit| limit.fresh(birth)).collect();
        for (asks, us) in rounds {
            let now = world.clock.now();
            let joint = check_all(asks.iter().map(|(which, cost)| world.request(*which, *cost)));
            let mut sums = [None; 4];
            for (which, cost) in &asks {
                *sums[*which].get_or_insert(0) += cost;
            }
            let asked = || sums.iter().enumerate().filter_map(|(which, sum)| Some((which, (*sum)?)));
            let denied = asked().any(|(which, sum)| limits[which].peek(&states[which], now, sum).is_deny());
            prop_assert_eq!(joint.decision.is_deny(), denied);
            for (which, sum) in asked().filter(|_| !denied) {
                let decision = limits[which].decide(&mut states[which], now, sum);
                let place = asks.iter().position(|ask| ask.0 == which).unwrap();
                prop_assert_eq!(joint.each[place], decision);
            }
            for which in 0..4 {
                let expected = limits[which].peek(&states[which], now, 1);
                prop_assert_eq!(world.request(which, 1).peek(), expected, "{}", rules[which]);
            }
            world.clock.advance(Span::from_micros(us));
        }
    }
}

#[test]
fn a_request_denied_by_one_limit_is_not_counted_as_allowed_by_the_others() {
    let clock = ManualClock::new();
    let (users, site) = (limiter("10/h", &clock), limiter("1/h", &clock));
    for _ in 0..3 {
        let _ = check_all([users.request("alice"), site.request("all")]);
    }
    let counted =
        |limiter: &Limiter<ManualClock>| (limiter.stats().allowed, limiter.stats().denied);
    assert_eq!(counted(&users), (1, 0), "one was admitted and charged");
    assert_eq!(counted(&site), (1, 2));
    assert_eq!(users.check_n("alice", 0).remaining, 9);
}
