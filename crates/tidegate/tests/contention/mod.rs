//! Decisions of many threads at the same time, and the same number of decisions in sequence to compare them with.

use std::sync::Barrier;
use std::thread;
use tidegate::{Decision, Retry, Timestamp, Verdict};
use tidegate_core::Limit;

/// A verdict that can be sorted.
pub(crate) type Rank = (u8, u64);

pub(crate) fn rank(decision: Decision) -> Rank {
    match decision.verdict {
        Verdict::Allow => (0, 0),
        Verdict::Wait(span) => (1, span.as_micros()),
        Verdict::Deny(Retry::After(span)) => (2, span.as_micros()),
        Verdict::Deny(Retry::OnRelease) => (3, 0),
        Verdict::Deny(Retry::Never) => (4, 0),
    }
}

/// Calls `decide` `each` times on each of `threads` threads, which start together. Returns all verdicts, sorted.
pub(crate) fn decide_on_threads(
    threads: usize,
    each: usize,
    decide: impl Fn() -> Decision + Sync,
) -> Vec<Rank> {
    let start = Barrier::new(threads);
    let work = || {
        start.wait();
        (0..each).map(|_| rank(decide())).collect::<Vec<Rank>>()
    };
    let mut ranks: Vec<Rank> = thread::scope(|scope| {
        let all: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        all.into_iter().flat_map(|one| one.join().unwrap()).collect()
    });
    ranks.sort_unstable();
    ranks
}

/// Returns the verdicts of `times` decisions of the pure limit at one instant, sorted.
pub(crate) fn decide_in_sequence(rule: &str, now: Timestamp, times: usize) -> Vec<Rank> {
    let limit: Limit = rule.parse().unwrap();
    let mut state = limit.fresh(now);
    let mut ranks: Vec<Rank> = (0..times).map(|_| rank(limit.decide(&mut state, now, 1))).collect();
    ranks.sort_unstable();
    ranks
}
