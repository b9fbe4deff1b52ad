//! The time at which a request that joins the queue is admitted.
//!
//! A denial has a time to retry. So a turn is computed by deciding: the limit decides the request as of the time when the
//! last waiter before it is admitted, and if it denies it then, again as of the time to retry. The state that results is
//! the state at that future time.

use tidegate_core::{Decision, Denied, Limit, Retry, Span, State, Timestamp, Verdict};

/// Returns the time at which `cost` is admitted if the last waiter before it is admitted at `end`, and charges the cost to
/// `state` as of that time. The decision has its times counted from `now`.
pub(crate) fn admission_time(
    limit: &Limit,
    state: &mut State,
    now: Timestamp,
    end: Option<Timestamp>,
    cost: u64,
) -> Result<(Timestamp, Decision), Denied> {
    // The state of a rule that delays requests includes its queue, and is always as of now.
    let from = if limit.delays_requests() { now } else { end.map_or(now, |end| end.max(now)) };
    let first = limit.decide(state, from, cost);
    let (as_of, decision) = match first.verdict {
        Verdict::Deny(Retry::After(span)) if !limit.delays_requests() => {
            let Some(from) = later(from, span) else {
                return Err(first.deny(Retry::Never));
            };
            (from, limit.decide(state, from, cost))
        }
        _ => (from, first),
    };
    let at = match decision.verdict {
        Verdict::Allow => as_of,
        Verdict::Wait(span) => match later(as_of, span) {
            Some(at) => at,
            None => return Err(decision.deny(Retry::Never)),
        },
        Verdict::Deny(retry) => return Err(decision.deny(retry)),
    };
    // No request overtakes, even if the rule's own arithmetic would let it.
    let at = end.map_or(at, |end| at.max(end));
    let wait = at.since(now);
    let verdict = if wait.is_zero() { Verdict::Allow } else { Verdict::Wait(wait) };
    Ok((at, seen_from(decision, verdict, as_of.since(now))))
}

/// Adds a span to a time. Returns `None` if the sum exceeds the last representable time.
fn later(from: Timestamp, span: Span) -> Option<Timestamp> {
    let at = from + span;
    (at.since(from) == span).then_some(at)
}

/// Converts a decision that was made as of a later time to its numbers as of now.
fn seen_from(mut decision: Decision, verdict: Verdict, later: Span) -> Decision {
    if matches!(verdict, Verdict::Wait(_)) {
        decision.remaining = 0;
    }
    decision.verdict = verdict;
    decision.reset_after = decision.reset_after + later;
    decision
}
