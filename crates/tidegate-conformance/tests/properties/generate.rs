//! Rules and requests to try: across the whole range of what a rule can say, and close to the edges.

use proptest::collection::vec;
use proptest::prelude::*;
use std::ops::Range;
use tidegate_conformance::oracle::{Anchor, From, Rate, Rule};
use tidegate_core::{CalendarUnit, Span, Timestamp};

/// The largest count, the longest period, the fastest rate: as the rule text has them.
const COUNT_MAX: u64 = 1 << 53;
const PERIOD_MAX_US: u64 = 36_525 * 86_400 * 1_000_000;
const PER_US_MAX: u64 = 10_000;
const STEPS_MAX: usize = 60;

type Rules = fn() -> BoxedStrategy<Rule>;

/// Every algorithm by name, with its rules.
pub(crate) const ALGORITHMS: [(&str, Rules); 11] = [
    ("token bucket", token_bucket),
    ("leaky", leaky),
    ("queue", queue),
    ("fixed", fixed),
    ("calendar", calendar),
    ("sliding-log", sliding_log),
    ("sliding", sliding),
    ("smooth", smooth),
    ("warmup", warmup),
    ("concurrency", concurrency),
    ("nginx", nginx),
];

pub(crate) fn any_rule() -> BoxedStrategy<Rule> {
    proptest::strategy::Union::new(ALGORITHMS.map(|(_, rules)| rules())).boxed()
}

/// A rule, a start, and what happens then.
#[derive(Clone, Debug)]
pub(crate) struct Case {
    pub(crate) rule: Rule,
    pub(crate) birth: Timestamp,
    pub(crate) steps: Vec<Step>,
}

/// Some time passes, then something is asked.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Step {
    pub(crate) delta: Delta,
    pub(crate) action: Action,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Action {
    Take(Cost),
    Refund(Cost),
}

/// How much time passes; much of it in terms of the last answer, because there the edges are.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Delta {
    None,
    Us(u64),
    RetryAfter,
    OneUsLessThanRetryAfter,
    ResetAfter,
    OneUsLessThanResetAfter,
    ThousandthsOfReset(u64),
    /// The clock is set back.
    BackUs(u64),
    BackThousandthsOfReset(u64),
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Cost {
    Zero,
    Units(u64),
    Limit,
    LimitAndOne,
    Remaining,
    RemainingAndOne,
    ThousandthsOfLimit(u64),
    Max,
}

/// Cases in which time never goes back.
pub(crate) fn steady(rules: BoxedStrategy<Rule>) -> impl Strategy<Value = Case> {
    case(rules, 0..FORWARD, 0..REFUND + 1)
}

/// The same, and nothing is refunded.
pub(crate) fn steady_without_refunds(rules: BoxedStrategy<Rule>) -> impl Strategy<Value = Case> {
    case(rules, 0..FORWARD, 0..REFUND)
}

/// Cases in which the clock is set back now and then.
pub(crate) fn unsteady(rules: BoxedStrategy<Rule>) -> impl Strategy<Value = Case> {
    case(rules, 0..FORWARD + BACKWARD, 0..REFUND + 1)
}

fn case(
    rules: BoxedStrategy<Rule>,
    deltas: Range<u8>,
    actions: Range<u8>,
) -> impl Strategy<Value = Case> {
    // Plain numbers, because a tree of choices for each of sixty steps takes longer than the claims.
    let step = (deltas, any::<u64>(), actions, 0..COSTS, any::<u64>()).prop_map(
        |(delta, amount, action, cost, units)| {
            let cost = cost_of(cost, units);
            let action = if action == REFUND { Action::Refund(cost) } else { Action::Take(cost) };
            Step { delta: delta_of(delta, amount), action }
        },
    );
    (rules, birth(), vec(step, 1..STEPS_MAX)).prop_map(|(rule, birth, steps)| Case {
        rule,
        birth,
        steps,
    })
}

/// Anywhere up to 2^61 µs, and around today.
fn birth() -> impl Strategy<Value = Timestamp> {
    prop_oneof![
        1 => Just(0),
        1 => 1_u64..10,
        3 => 1_700_000_000_000_000..1_800_000_000_000_000_u64,
        2 => below_bits(61),
    ]
    .prop_map(Timestamp::from_micros)
}

/// How many of the numbers that choose a delta let time pass, and how many set the clock back.
const FORWARD: u8 = 23;
const BACKWARD: u8 = 6;

fn delta_of(choice: u8, number: u64) -> Delta {
    match choice {
        0..6 => Delta::None,
        6..8 => Delta::Us(1 + number % 10),
        8..11 => Delta::Us(magnitude(number, 40)),
        11 => Delta::Us(magnitude(number, 58)),
        12..15 => Delta::RetryAfter,
        15..17 => Delta::OneUsLessThanRetryAfter,
        17 => Delta::ResetAfter,
        18 => Delta::OneUsLessThanResetAfter,
        19..FORWARD => Delta::ThousandthsOfReset(number % 1_500),
        FORWARD => Delta::BackUs(1 + number % 10),
        24..26 => Delta::BackUs(magnitude(number, 50)),
        _ => Delta::BackThousandthsOfReset(number % 1_500),
    }
}

/// Of the numbers that choose an action, the one that refunds.
const REFUND: u8 = 9;
/// How many numbers choose a cost.
const COSTS: u8 = 18;

fn cost_of(choice: u8, number: u64) -> Cost {
    match choice {
        0 => Cost::Zero,
        1..7 => Cost::Units(1 + number % 3),
        7 => Cost::Units(magnitude(number, 64)),
        8 => Cost::Limit,
        9 => Cost::LimitAndOne,
        10..12 => Cost::Remaining,
        12..14 => Cost::RemainingAndOne,
        14 => Cost::Max,
        _ => Cost::ThousandthsOfLimit(number % 1_000),
    }
}

/// A number below 2^bits, evenly spread over the orders of magnitude: one part of `number` says how
/// large it is, the rest which it is.
fn magnitude(number: u64, bits: u64) -> u64 {
    let (bits, number) = (1 + number % bits, number / bits);
    (number & (u64::MAX >> (64 - bits))).max(1)
}

/// Evenly spread over the orders of magnitude: at least 1, below 2^bits.
fn below_bits(bits: u32) -> impl Strategy<Value = u64> {
    (1..=bits, any::<u64>()).prop_map(|(bits, number)| (number >> (64 - bits)).max(1))
}

fn count() -> impl Strategy<Value = u64> {
    prop_oneof![
        2 => Just(1),
        6 => 2_u64..20,
        2 => prop::sample::select(vec![97, 1_009, 7_919, 104_729, 2_147_483_647]),
        2 => prop::sample::select(vec![100, 1_000, 1_000_000, 10_000_000_000]),
        2 => below_bits(20),
        2 => below_bits(53),
        1 => Just(COUNT_MAX),
    ]
}

pub(crate) fn span() -> impl Strategy<Value = Span> {
    let units =
        vec![1, 1_000, 1_000_000, 60_000_000, 3_600_000_000, 86_400_000_000, 604_800_000_000];
    prop_oneof![
        4 => prop::sample::select(units.clone()),
        3 => (1_u64..100, prop::sample::select(units)).prop_map(|(number, unit)| number * unit),
        2 => below_bits(52),
        1 => prop::sample::select(vec![7, 86_399_999_999, 104_729, PERIOD_MAX_US]),
    ]
    .prop_map(|us| Span::from_micros(us.min(PERIOD_MAX_US)))
}

pub(crate) fn rate() -> impl Strategy<Value = Rate> {
    (count(), span()).prop_map(|(count, period)| {
        let fastest = period.as_micros().saturating_mul(PER_US_MAX);
        Rate { count: count.min(fastest), period }
    })
}

fn token_bucket() -> BoxedStrategy<Rule> {
    (rate(), count(), prop::bool::weighted(0.2))
        .prop_map(|(rate, burst, starts_empty)| Rule::TokenBucket { rate, burst, starts_empty })
        .boxed()
}

fn leaky() -> BoxedStrategy<Rule> {
    (rate(), count()).prop_map(|(rate, capacity)| Rule::Leaky { rate, capacity }).boxed()
}

fn queue() -> BoxedStrategy<Rule> {
    (rate(), count(), prop::option::of(span()))
        .prop_map(|(rate, capacity, wait)| Rule::Queue { rate, capacity, wait })
        .boxed()
}

fn fixed() -> BoxedStrategy<Rule> {
    let anchor = (86_400_i64..200_000_000_000, -1_439_i32..1_440)
        .prop_map(|(secs, offset_mins)| From::Anchor(Anchor { secs, offset_mins }));
    let from = prop_oneof![Just(From::Epoch), Just(From::FirstRequest), anchor];
    (rate(), from).prop_map(|(rate, from)| Rule::Fixed { rate, from }).boxed()
}

fn calendar() -> BoxedStrategy<Rule> {
    let unit = prop::sample::select(vec![
        CalendarUnit::Minute,
        CalendarUnit::Hour,
        CalendarUnit::Day,
        CalendarUnit::Week,
        CalendarUnit::Month,
        CalendarUnit::Year,
    ]);
    (count(), unit).prop_map(|(count, unit)| Rule::Calendar { count, unit }).boxed()
}

fn sliding_log() -> BoxedStrategy<Rule> {
    // A log may not be longer than a million.
    rate()
        .prop_map(|rate| Rule::SlidingLog {
            rate: Rate { count: rate.count.min(1_000_000), ..rate },
        })
        .boxed()
}

fn sliding() -> BoxedStrategy<Rule> {
    rate().prop_map(|rate| Rule::Sliding { rate }).boxed()
}

fn smooth() -> BoxedStrategy<Rule> {
    (rate(), prop::option::of(count()))
        .prop_map(|(rate, burst)| Rule::Smooth { rate, burst })
        .boxed()
}

fn warmup() -> BoxedStrategy<Rule> {
    (rate(), span(), prop_oneof![Just(3_u64), 2_u64..1_001])
        .prop_map(|(rate, warmup, cold)| Rule::Warmup { rate, warmup, cold })
        .boxed()
}

pub(crate) fn concurrency() -> BoxedStrategy<Rule> {
    (count(), prop::option::of(span()))
        .prop_map(|(max, lease)| Rule::Concurrency { max, lease })
        .boxed()
}

fn nginx() -> BoxedStrategy<Rule> {
    let burst = || prop_oneof![Just(0), count().prop_map(|count| count.min(COUNT_MAX / 1_000))];
    (count(), any::<bool>(), burst(), prop::option::of(burst()))
        .prop_map(|(count, per_second, burst, delay)| Rule::Nginx {
            count: count.min(PER_US_MAX * 1_000_000),
            per_second,
            burst,
            delay,
        })
        .boxed()
}
