//! What a key owes: more was charged than there was room for, and the time to come pays it.
//!
//! A debt is paid as a row of requests would be, each as large as the limit admits at once and the last of what is left.
//! A row of equal requests passes at equal distances, so only the first of them are asked about, and the rest is a
//! product.
//!
//! Bound    Any debt is worked out in `STEPS_MAX + 1` decisions.
//! Rounding A distance is the longest that was seen: a calendar's months are taken for months of 31 days.

use crate::line::turn_at;
use tidegate_core::{Limit, Span, State, Timestamp};

/// So many of a row are asked about one by one: a year of months, and a few in which a window finds its step.
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
        let Ok((at, _)) = turn_at(limit, state, now, end, most) else {
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
    match turn_at(limit, state, now, end, rest) {
        Ok((at, _)) => at,
        Err(_) => at_the_end_of_time(limit, state),
    }
}

fn at_the_end_of_time(limit: &Limit, state: &mut State) -> Timestamp {
    *state = limit.exhausted(Timestamp::MAX);
    Timestamp::MAX
}
