//! The debt of a key: a charge beyond what remained, which is repaid as the limit refills.
//!
//! A debt is repaid like a series of requests, each as large as the limit admits at once, the last one with the rest.
//! Equal requests are admitted at equal intervals, so only the first ones are decided, and the time of the others is a
//! multiplication.
//!
//! Bound    The repayment of any debt takes `STEPS_MAX + 1` decisions. A debt from a snapshot takes about two hundred times
//!          as many: its state has the time of repayment only, and the amount is found by a binary search.
//! Rounding Against the caller: the longest interval among the first requests is used for all others, so every calendar
//!          month counts as one of 31 days.

use crate::slot::admission_time::admission_time;
use tidegate_core::{Limit, Span, State, Timestamp};

/// The number of requests that are decided one by one: a year of months, and a few more, because the first intervals of a
/// window differ.
const STEPS_MAX: u64 = 16;

/// Returns the time at which a debt of `cost` is repaid if the last waiter before it is admitted at `end`, and charges the
/// debt to `state` as of that time. If it is never repaid, returns [`Timestamp::MAX`].
pub(crate) fn paid_at(
    limit: &Limit,
    state: &mut State,
    now: Timestamp,
    mut end: Option<Timestamp>,
    cost: u64,
) -> Timestamp {
    let most = limit.peek(state, now, 0).limit.max(1);
    let (full, rest) = (cost.saturating_sub(1) / most, cost.saturating_sub(1) % most + 1);
    let mut distance = Span::ZERO;
    for step in 0..full.min(STEPS_MAX) {
        let Ok((at, _)) = admission_time(limit, state, now, end, most) else {
            return never(limit, state);
        };
        // The first interval depends on what earlier requests have left, and the second may start a window.
        if let Some(end) = end.filter(|_| step > 1) {
            distance = distance.max(at.since(end));
        }
        end = Some(at);
    }
    if let Some(last) = end.filter(|_| full > STEPS_MAX) {
        let far = distance.as_micros().saturating_mul(full - STEPS_MAX);
        let at = last + Span::from_micros(far);
        *state = limit.exhausted(at);
        end = Some(at);
    }
    match admission_time(limit, state, now, end, rest) {
        Ok((at, _)) => at,
        Err(_) => never(limit, state),
    }
}

/// Returns the time as of which a saved state was computed, if that is later than `now`: the state of a key with debt or
/// waiters is. Returns `None` for any other state.
///
/// A state as of now is like new after its own `reset_after`; a state as of a later time is not.
pub(crate) fn counts_from(limit: &Limit, state: &State, now: Timestamp) -> Option<Timestamp> {
    if limit.delays_requests() || limit.is_concurrency() {
        return None;
    }
    let reset_after = |at: Timestamp| limit.peek(state, at, 0).reset_after;
    let is_new = |at: Timestamp| reset_after(at).is_zero();
    if is_new(now + reset_after(now)) {
        return None;
    }
    let end = first_time_after(now, is_new);
    // Read before the time it was computed for, a state is like new too early. Within the clock skew before that time, its
    // `reset_after` is longer than that of an exhausted state.
    let longest = |at: Timestamp| limit.peek(&limit.exhausted(at), at, 0).reset_after;
    let counts = |at: Timestamp| at + reset_after(at) >= end && reset_after(at) <= longest(at);
    Some(first_time_after(now, counts))
}

/// Returns the debt that is repaid at `paid`, or within a microsecond of it, with this state, if nothing remains now.
pub(crate) fn owed(limit: &Limit, now: Timestamp, state: &State, paid: Timestamp) -> u64 {
    let paid = paid + Span::from_micros(1);
    let left = |state: &State| limit.peek(state, paid, 0).remaining;
    let is_too_much = |cost| {
        let mut after = limit.exhausted(now);
        paid_at(limit, &mut after, now, None, cost) > paid || left(&after) < left(state)
    };
    first_after(0, is_too_much).saturating_sub(1).max(1)
}

fn first_time_after(now: Timestamp, is_true: impl Fn(Timestamp) -> bool) -> Timestamp {
    let first = first_after(now.as_micros(), |us| is_true(Timestamp::from_micros(us)));
    Timestamp::from_micros(first)
}

/// Returns the first number after `start` for which `is_true` holds, or `u64::MAX` if it holds for none. If it holds for a
/// number, it must hold for all greater ones.
fn first_after(start: u64, is_true: impl Fn(u64) -> bool) -> u64 {
    let (mut before, mut step) = (start, 1_u64);
    let mut first = loop {
        let number = before.saturating_add(step);
        if number == u64::MAX || is_true(number) {
            break number;
        }
        (before, step) = (number, step.saturating_mul(2));
    };
    while first - before > 1 {
        let middle = before + (first - before) / 2;
        if is_true(middle) { first = middle } else { before = middle }
    }
    first
}

/// Sets the state of a debt that is never repaid.
fn never(limit: &Limit, state: &mut State) -> Timestamp {
    *state = limit.exhausted(Timestamp::MAX);
    Timestamp::MAX
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_number_is_found_in_any_position() {
        for first in [1, 2, 3, 100, 1_000_000_007, u64::MAX - 1, u64::MAX] {
            assert_eq!(first_after(0, |number| number >= first), first);
        }
        assert_eq!(first_after(41, |number| number >= 42), 42);
        assert_eq!(first_after(0, |_| false), u64::MAX);
    }

    #[test]
    fn a_debt_is_computed_from_the_state_that_it_leads_to() {
        let now = Timestamp::from_micros(1_234_567);
        for rule in [
            "10/s",
            "7/min burst 3",
            "3/s paced",
            "7/min leaky capacity 3",
            "4/s fixed",
            "4/min fixed from first",
            "5/day calendar",
            "5/min sliding-log",
        ] {
            let limit: Limit = rule.parse().unwrap();
            for cost in [1, 2, 10, 11, 999, 1_000_000] {
                let mut state = limit.exhausted(now);
                let paid = paid_at(&limit, &mut state, now, None, cost);
                let from = counts_from(&limit, &state, now).unwrap();
                assert!(from <= paid && paid.since(from) <= Span::from_micros(1), "{rule}, {cost}");
                assert_eq!(owed(&limit, now, &state, from), cost, "{rule}, {cost}");
                assert_eq!(counts_from(&limit, &state, paid), None, "{rule}, {cost}: it is repaid");
            }
        }
    }
}
