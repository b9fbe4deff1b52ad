//! A bucket in one word decides as the wide one does, wherever it can say the time.

use crate::check::check_each;
use crate::generate::{Action, Case, unsteady};
use crate::track::{Track, ensure};
use proptest::test_runner::TestCaseResult;
use tidegate_core::{Decision, NarrowBucket, Span, Timestamp};

#[test]
fn a_narrow_bucket_decides_as_the_wide_one() {
    check_each(unsteady, |case| {
        // Narrow buckets count from an epoch of their own, here the one that all times are from.
        let us = case.birth.as_micros() % (1 << 40);
        same_decisions(Case { birth: Timestamp::from_micros(us), ..case })
    });
}

fn same_decisions(case: Case) -> TestCaseResult {
    let mut track = Track::new(&case);
    let Some(bucket) = track.limit.narrow_bucket() else { return Ok(()) };
    let at = |now: Timestamp| bucket.at(Span::from_micros(now.as_micros()));
    let Some(birth) = at(track.birth) else { return Ok(()) };
    let starts_empty = track.last.remaining == 0;
    let mut full_at = if starts_empty { bucket.clamped(birth) } else { 0 };
    for step in case.steps {
        track.pass(step.delta);
        let Some(now) = at(track.now) else { return Ok(()) };
        let Action::Take(cost) = step.action else { continue };
        let cost = track.cost(cost);
        let narrow = decide(bucket, &mut full_at, now, cost);
        let wide = track.take(cost);
        ensure!(narrow == wide, track, "the narrow one says {narrow:?}");
    }
    Ok(())
}

/// As its documentation has it.
fn decide(bucket: NarrowBucket, full_at: &mut u64, now: u64, cost: u64) -> Decision {
    let taken = bucket.take(*full_at, now, cost);
    match taken {
        Some(next) => *full_at = next,
        None if bucket.is_from_the_future(*full_at, now) => *full_at = bucket.clamped(now),
        None => {}
    }
    bucket.decision(*full_at, now, cost, taken.is_some())
}
