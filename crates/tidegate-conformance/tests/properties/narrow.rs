//! A bucket in one word decides as the wide one does, wherever it can say the time.

use crate::check::check_each;
use crate::generate::{Action, Case, steady, unsteady};
use crate::track::{Track, ensure};
use proptest::test_runner::TestCaseResult;
use tidegate_core::{Decision, NarrowBucket, Timestamp};

#[test]
fn a_narrow_bucket_decides_as_the_wide_one() {
    check_each(steady, same_decisions);
}

#[test]
fn a_narrow_bucket_decides_as_the_wide_one_also_when_the_clock_is_set_back() {
    check_each(unsteady, same_decisions);
}

fn same_decisions(case: Case) -> TestCaseResult {
    let mut track = Track::new(&case);
    let Some(bucket) = track.limit.narrow_bucket() else { return Ok(()) };
    // It counts from an epoch of its own.
    let epoch = Timestamp::from_micros(track.birth.as_micros() / 2);
    let at = |now: Timestamp| if now < epoch { None } else { bucket.at(now.since(epoch)) };
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
        let widened = track.limit.widen(full_at, epoch);
        let (there, back) = (track.limit.peek(&widened, track.now, 1), track.peek(1));
        ensure!(there == back, track, "widened it says {there:?} to one more, not {back:?}");
        let narrowed = track.limit.narrow(&widened, epoch);
        ensure!(narrowed == Some(full_at), track, "{full_at} came back as {narrowed:?}");
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
