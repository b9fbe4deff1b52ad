//! The published bounds: the most that is admitted in any interval, over every pair of admissions.

use crate::check::check_each;
use crate::generate::steady_without_refunds;
use crate::track::{Admitted, Track, ensure, limit};
use tidegate_conformance::oracle::windows::calendar;
use tidegate_conformance::oracle::{From, Rate, Rule};
use tidegate_core::{CalendarUnit, Span, Timestamp};

#[test]
fn no_interval_admits_more_than_the_published_bound() {
    check_each(steady_without_refunds, |case| {
        let mut track = Track::new(&case);
        for step in case.steps {
            track.pass(step.delta);
            track.act(step.action);
        }
        let log = track.admitted();
        let excess = excess(&case.rule, &log);
        ensure!(excess.is_none(), track, "{}", excess.unwrap_or_default());
        // The same with `Limit::permits`, which an auditor can call.
        let is_by_arrival = matches!(case.rule, Rule::Nginx { .. });
        let passes = |a: &Admitted| if is_by_arrival { a.at } else { a.at + a.wait };
        let refused = over_all_pairs(&log, |first, last, sum| {
            let interval = passes(last).since(passes(first));
            let total = u64::try_from(sum).unwrap_or(u64::MAX);
            passes(last) == Timestamp::MAX || track.limit.permits(total, last.cost, interval)
        });
        ensure!(refused.is_none(), track, "the limit itself: {}", refused.unwrap_or_default());
        Ok(())
    });
}

/// Returns the admissions that exceed the rule's bound, if there are any.
pub(crate) fn excess(rule: &Rule, log: &[Admitted]) -> Option<String> {
    match *rule {
        Rule::TokenBucket { rate, burst, .. } => bucket(rate, burst, log),
        Rule::Leaky { rate, capacity } => bucket(rate, capacity, log),
        Rule::Queue { rate, capacity, wait } => queue(rate, capacity, wait, log),
        Rule::Fixed { rate, from } => fixed(rate, from, log),
        Rule::Calendar { count, unit } => in_calendar(count, unit, log),
        Rule::SlidingLog { rate } => in_any(rate.period, rate.count.into(), log),
        Rule::Sliding { rate } => in_any(rate.period, u128::from(rate.count) * 2 - 1, log),
        Rule::Smooth { rate, burst } => smooth(rate, burst, log),
        // The last bits of a floating-point number may be wrong.
        Rule::Warmup { rate, .. } => spaced(rate, 0, log, |us| us + 1 + (us >> 50)),
        Rule::Concurrency { max, lease: None } => {
            let all: u128 = log.iter().map(|admitted| u128::from(admitted.cost)).sum();
            (all > max.into()).then(|| format!("{all} in flight"))
        }
        Rule::Concurrency { max, lease: Some(lease) } => in_any(lease, max.into(), log),
        Rule::Nginx { count, per_second, burst, delay } => {
            let rate = count * 1_000 / if per_second { 1 } else { 60 };
            nginx(rate, burst, delay, log)
        }
    }
}

/// Calls `holds` with the first admission, the last one and the sum of the costs, for every run of consecutive admissions.
fn over_all_pairs(
    log: &[Admitted],
    holds: impl Fn(&Admitted, &Admitted, u128) -> bool,
) -> Option<String> {
    for (index, first) in log.iter().enumerate() {
        let mut sum = 0;
        for last in &log[index..] {
            sum += u128::from(last.cost);
            if !holds(first, last, sum) {
                return Some(format!("{sum} from {:?} to {:?}", first.at, last.at));
            }
        }
    }
    None
}

/// `burst + ⌊L · N / P⌋`.
fn bucket(rate: Rate, burst: u64, log: &[Admitted]) -> Option<String> {
    over_all_pairs(log, |first, last, sum| {
        let length = u128::from(last.at.since(first.at).as_micros());
        let refilled = length * u128::from(rate.count) / u128::from(rate.period.as_micros());
        sum <= u128::from(burst) + refilled
    })
}

/// No more than `most` in any half-open interval of this length.
fn in_any(length: Span, most: u128, log: &[Admitted]) -> Option<String> {
    over_all_pairs(log, |first, last, sum| last.at.since(first.at) >= length || sum <= most)
}

fn fixed(rate: Rate, from: From, log: &[Admitted]) -> Option<String> {
    let twice = in_any(rate.period, u128::from(rate.count) * 2, log);
    let period = i128::from(rate.period.as_micros());
    let from_us = match from {
        From::FirstRequest => return twice,
        From::Epoch => 0,
        From::Anchor(anchor) => i128::from(anchor.secs) * 1_000_000,
    };
    let index = |at: Timestamp| (i128::from(at.as_micros()) - from_us).div_euclid(period);
    twice.or_else(|| {
        over_all_pairs(log, |first, last, sum| {
            index(first.at) != index(last.at) || sum <= rate.count.into()
        })
    })
}

fn in_calendar(count: u64, unit: CalendarUnit, log: &[Admitted]) -> Option<String> {
    // jiff is slow, so each window is computed once and not for every pair.
    let windows: Vec<_> = log.iter().map(|admitted| calendar(admitted.at, unit)).collect();
    for window in &windows {
        let inside = |admitted: &&Admitted| window.start <= admitted.at && admitted.at < window.end;
        let sum: u128 = log.iter().filter(inside).map(|admitted| u128::from(admitted.cost)).sum();
        if sum > count.into() {
            return Some(format!("{sum} in the window from {:?}", window.start));
        }
    }
    None
}

/// Checks that requests leave at least their costs apart. A request leaves at `at + wait`, rounded up to a whole microsecond. The
/// time between two departures covers the cost of the first request and of all between them, except for that rounding and for
/// `saved`, which is in units times the period. `at_most` returns the longest exact time for a time in the log.
fn spaced(
    rate: Rate,
    saved: u128,
    log: &[Admitted],
    at_most: impl Fn(u128) -> u128,
) -> Option<String> {
    let leaves = |admitted: &Admitted| {
        u128::from(admitted.at.as_micros()) + u128::from(admitted.wait.as_micros())
    };
    // A wait that ends after the last instant is cut off there.
    let is_endless = |admitted: &Admitted| {
        !admitted.wait.is_zero() && admitted.at + admitted.wait == Timestamp::MAX
    };
    over_all_pairs(log, |first, last, sum| {
        if is_endless(first) || is_endless(last) {
            return true;
        }
        if leaves(last) < leaves(first) {
            return false;
        }
        let time = leaves(last) - leaves(first) + u128::from(sum > u128::from(last.cost));
        let price = (sum - u128::from(last.cost)) * u128::from(rate.period.as_micros());
        price <= saved + at_most(time) * u128::from(rate.count)
    })
}

fn smooth(rate: Rate, burst: Option<u64>, log: &[Admitted]) -> Option<String> {
    let saved = match burst {
        Some(burst) => u128::from(burst) * u128::from(rate.period.as_micros()),
        None => 1_000_000 * u128::from(rate.count),
    };
    spaced(rate, saved, log, |us| us)
}

/// Checks that requests leave in order and evenly, that none waits too long, and that at most `capacity` wait at a time.
fn queue(rate: Rate, capacity: u64, wait: Option<Span>, log: &[Admitted]) -> Option<String> {
    if let Some(late) = log.iter().find(|admitted| wait.is_some_and(|wait| admitted.wait > wait)) {
        return Some(format!("the request of {:?} waits {}", late.at, late.wait));
    }
    for (index, newest) in log.iter().enumerate() {
        let is_waiting = |admitted: &&Admitted| admitted.at + admitted.wait > newest.at;
        let waiting = log[..=index].iter().filter(is_waiting);
        let waiting: u128 = waiting.map(|admitted| u128::from(admitted.cost)).sum();
        if waiting > capacity.into() {
            return Some(format!("{waiting} wait at {:?}", newest.at));
        }
    }
    spaced(rate, 0, log, |us| us)
}

/// Checks a bucket of one more than the burst, in nginx's milliseconds and thousandths. No request waits longer than the burst
/// takes. If every request waits, they leave evenly, except for a truncated millisecond each.
fn nginx(rate: u64, burst: u64, delay: Option<u64>, log: &[Admitted]) -> Option<String> {
    let rate = u128::from(rate);
    let ms = |at: Timestamp| u128::from(at.as_micros() / 1_000);
    let leaves = |admitted: &Admitted| {
        u128::from(admitted.at.as_micros()) + u128::from(admitted.wait.as_micros())
    };
    let is_late = |admitted: &&Admitted| {
        u128::from(admitted.wait.as_micros()) * rate > u128::from(burst) * 1_000_000_000
    };
    if let Some(late) = log.iter().find(is_late) {
        return Some(format!("the request of {:?} waits {}", late.at, late.wait));
    }
    over_all_pairs(log, |first, last, sum| {
        let leaked = rate * (ms(last.at) - ms(first.at)) / 1_000;
        let fits = sum * 1_000 <= (u128::from(burst) + 1) * 1_000 + leaked;
        let price = (sum - u128::from(first.cost)) * 1_000_000_000;
        let is_even = (leaves(last) + 2_000).saturating_sub(leaves(first)) * rate >= price;
        fits && (is_even || delay != Some(0) || last.wait == Span::MAX)
    })
}

/// Charges as much as is admitted at each of these instants.
fn greedy(rule: &str, at_us: impl IntoIterator<Item = u64>) -> Vec<Admitted> {
    let limit = limit(rule);
    let mut state = limit.fresh(Timestamp::EPOCH);
    let take = |us| {
        let at = Timestamp::from_micros(us);
        let cost = limit.peek(&state, at, 0).remaining;
        assert!(limit.decide(&mut state, at, cost).is_allow());
        Admitted { at, wait: Span::ZERO, cost }
    };
    at_us.into_iter().map(take).collect()
}

#[test]
fn around_the_edge_of_a_fixed_window_twice_the_count_is_admitted_within_two_microseconds() {
    let log = greedy("1000/s fixed", [999_999, 1_000_000]);
    assert_eq!(log.iter().map(|admitted| admitted.cost).sum::<u64>(), 2_000);
    assert!(in_any(Span::from_micros(2), 1_999, &log).is_some(), "the bound is attained");
}

#[test]
fn two_counters_admit_nearly_twice_the_count_to_an_attacker_that_knows_the_windows() {
    let rest = (1..=100).map(|percent| 1_000_000 + percent * 10_000 - 2);
    let log = greedy("1000/s sliding", std::iter::once(999_999).chain(rest));
    let sum: u64 = log.iter().map(|admitted| admitted.cost).sum();
    assert_eq!(sum, 1_999, "within one microsecond less than a second");
    assert!(in_any(Span::from_secs(1), 1_999, &log).is_none(), "but never twice");
}
