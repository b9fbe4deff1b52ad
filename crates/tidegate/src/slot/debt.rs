//! What a key owes: more was charged than there was room for, and the time to come pays it.
//!
//! A debt is paid as a row of requests would be, each as large as the limit admits at once and the last of what is left.
//! A row of equal requests passes at equal distances, so only the first of them are asked about, and the rest is a
//! product.
//!
//! Bound    Any debt is worked out in `STEPS_MAX + 1` decisions; one that comes back from a snapshot in some two hundred
//!          times as many, because its state tells when it is paid, and how much it is has to be found.
//! Rounding A distance is the longest that was seen: a calendar's months are taken for months of 31 days.

use crate::slot::rate_queue::admission_time;
use tidegate_core::{Limit, Span, State, Timestamp};

/// How many requests of a row are decided one by one: a year of months, and a few in which a window finds its step.
const STEPS_MAX: u64 = 16;

/// When `cost` is paid, if the line before it ends at `end`; charges it to the state as of then. A debt that is never
/// paid is one until the end of time.
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
            return at_the_end_of_time(limit, state);
        };
        // The first finds whatever others have left, and the second may be the first of its kind.
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
        Err(_) => at_the_end_of_time(limit, state),
    }
}

/// Since when a state counts that is not of now but of a time to come, as it is where something is owed. `None` for all
/// others: they are as new when they say that they are.
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
    // Before it counts, it is taken for one of that time, which is as new too early; or for a moment, in which the clock
    // may tremble, it says more than one of that time ever does.
    let longest = |at: Timestamp| limit.peek(&limit.exhausted(at), at, 0).reset_after;
    let counts = |at: Timestamp| at + reset_after(at) >= end && reset_after(at) <= longest(at);
    Some(first_time_after(now, counts))
}

/// How much is owed, if nothing is left now, and this state counts from `paid` on, or from within a microsecond of it.
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

/// The first number after `start` of which this is true, if it is true of all that follow; the last there is if it is
/// true of none.
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

fn at_the_end_of_time(limit: &Limit, state: &mut State) -> Timestamp {
    *state = limit.exhausted(Timestamp::MAX);
    Timestamp::MAX
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_of_many_is_found_wherever_it_is() {
        for first in [1, 2, 3, 100, 1_000_000_007, u64::MAX - 1, u64::MAX] {
            assert_eq!(first_after(0, |number| number >= first), first);
        }
        assert_eq!(first_after(41, |number| number >= 42), 42);
        assert_eq!(first_after(0, |_| false), u64::MAX);
    }

    #[test]
    fn what_is_owed_is_found_in_the_state_that_it_leads_to() {
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
                assert_eq!(counts_from(&limit, &state, paid), None, "{rule}, {cost}: it is paid");
            }
        }
    }
}
