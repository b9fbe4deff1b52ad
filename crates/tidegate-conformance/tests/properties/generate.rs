//! Draws rules and requests: across the whole range of rules, and close to the edges.

use crate::steps::Steps;
use proptest::num::u64::BinarySearch;
use proptest::prelude::*;
use proptest::strategy::NewTree;
use proptest::test_runner::{TestRng, TestRunner};
use std::fmt;
use tidegate_conformance::oracle::{Anchor, From, Rate, Rule};
use tidegate_core::{CalendarUnit, Span, Timestamp};

/// The largest count, the longest period and the fastest rate of a rule.
const COUNT_MAX: u64 = 1 << 53;
const PERIOD_MAX_US: u64 = 36_525 * 86_400 * 1_000_000;
const PER_US_MAX: u64 = 10_000;

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

/// A rule, the birth of its limit, and the steps.
#[derive(Clone, Debug)]
pub(crate) struct Case {
    pub(crate) rule: Rule,
    pub(crate) birth: Timestamp,
    pub(crate) steps: Vec<Step>,
}

/// A change of the time, and then an action.
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

/// A change of the time. Many are multiples of a time in the latest decision, because the edges are there.
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

/// Draws cases in which the clock is never set back.
pub(crate) fn steady(rules: BoxedStrategy<Rule>) -> impl Strategy<Value = Case> {
    case(rules, Steps { is_unsteady: false, has_refunds: true })
}

/// Draws the same without refunds.
pub(crate) fn steady_without_refunds(rules: BoxedStrategy<Rule>) -> impl Strategy<Value = Case> {
    case(rules, Steps { is_unsteady: false, has_refunds: false })
}

/// Draws cases in which the clock is sometimes set back.
pub(crate) fn unsteady(rules: BoxedStrategy<Rule>) -> impl Strategy<Value = Case> {
    case(rules, Steps { is_unsteady: true, has_refunds: true })
}

fn case(rules: BoxedStrategy<Rule>, steps: Steps) -> impl Strategy<Value = Case> {
    (rules, birth(), steps).prop_map(|(rule, birth, steps)| Case { rule, birth, steps })
}

/// A number from one draw, which shrinks by halves. proptest's choice among ranges keeps a tree of the alternatives, which took
/// longer than most claims.
#[derive(Clone, Copy, Debug)]
struct Drawn(fn(&mut TestRng) -> u64);

impl Strategy for Drawn {
    type Tree = BinarySearch;
    type Value = u64;

    fn new_tree(&self, runner: &mut TestRunner) -> NewTree<Self> {
        Ok(BinarySearch::new(self.0(runner.rng())))
    }
}

/// Draws a birth: up to 2^61 µs, and often around today.
fn birth() -> impl Strategy<Value = Timestamp> {
    let us = Drawn(|rng| match rng.random_range(0..7) {
        0 => 0,
        1 => rng.random_range(1..10),
        2..5 => rng.random_range(1_700_000_000_000_000..1_800_000_000_000_000),
        _ => below_bits(61, rng),
    });
    us.prop_map(Timestamp::from_micros)
}

/// Draws a number of at least 1 and below 2^bits, evenly spread over the orders of magnitude.
fn below_bits(bits: u32, rng: &mut TestRng) -> u64 {
    let bits = rng.random_range(1..=bits);
    (rng.random::<u64>() >> (64 - bits)).max(1)
}

fn one_of(numbers: &[u64], rng: &mut TestRng) -> u64 {
    numbers[rng.random_range(0..numbers.len())]
}

fn count() -> impl Strategy<Value = u64> {
    let count = Drawn(|rng| match rng.random_range(0..17) {
        0..2 => 1,
        2..8 => rng.random_range(2..20),
        8..10 => one_of(&[97, 1_009, 7_919, 104_729, 2_147_483_647], rng),
        10..12 => one_of(&[100, 1_000, 1_000_000, 10_000_000_000], rng),
        12..14 => below_bits(20, rng),
        14..16 => below_bits(53, rng),
        _ => COUNT_MAX,
    });
    count.prop_map(|count| count.max(1))
}

const UNITS_US: [u64; 7] =
    [1, 1_000, 1_000_000, 60_000_000, 3_600_000_000, 86_400_000_000, 604_800_000_000];

pub(crate) fn span() -> impl Strategy<Value = Span> {
    let us = Drawn(|rng| match rng.random_range(0..10) {
        0..4 => one_of(&UNITS_US, rng),
        4..7 => rng.random_range(1..100) * one_of(&UNITS_US, rng),
        7..9 => below_bits(52, rng),
        _ => one_of(&[7, 86_399_999_999, 104_729, PERIOD_MAX_US], rng),
    });
    us.prop_map(|us| Span::from_micros(us.clamp(1, PERIOD_MAX_US)))
}

/// Draws `None` every other time.
fn maybe<T: fmt::Debug>(some: impl Strategy<Value = T>) -> impl Strategy<Value = Option<T>> {
    (any::<bool>(), some).prop_map(|(is_some, some)| is_some.then_some(some))
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
    (rate(), count(), maybe(span()))
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
    // A log has at most a million entries.
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
    (rate(), maybe(count())).prop_map(|(rate, burst)| Rule::Smooth { rate, burst }).boxed()
}

fn warmup() -> BoxedStrategy<Rule> {
    let cold = Drawn(|rng| if rng.random() { 3 } else { rng.random_range(2..1_001) });
    (rate(), span(), cold)
        .prop_map(|(rate, warmup, cold)| Rule::Warmup { rate, warmup, cold: cold.max(2) })
        .boxed()
}

pub(crate) fn concurrency() -> BoxedStrategy<Rule> {
    (count(), maybe(span())).prop_map(|(max, lease)| Rule::Concurrency { max, lease }).boxed()
}

fn nginx() -> BoxedStrategy<Rule> {
    let burst = || {
        let burst = count().prop_map(|count| count.min(COUNT_MAX / 1_000));
        maybe(burst).prop_map(Option::unwrap_or_default)
    };
    (count(), any::<bool>(), burst(), maybe(burst()))
        .prop_map(|(count, per_second, burst, delay)| Rule::Nginx {
            count: count.min(PER_US_MAX * 1_000_000),
            per_second,
            burst,
            delay,
        })
        .boxed()
}
