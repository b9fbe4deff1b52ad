//! Packed states: a narrow bucket decides as its limit does, whenever the time fits into its word, and an unpacked state equals
//! the one that was packed.

use crate::check::check_each;
use crate::generate::{Action, Case, steady, unsteady};
use crate::track::{Track, ensure};
use proptest::test_runner::TestCaseResult;
use std::fmt::{self, Write};
use tidegate_conformance::oracle::{Rate, Rule};
use tidegate_core::{Decision, NarrowBucket, Span, State, Timestamp};

#[test]
fn a_narrow_bucket_decides_as_its_limit() {
    check_each(steady, same_decisions);
}

#[test]
fn a_narrow_bucket_decides_as_its_limit_when_the_clock_is_set_back() {
    check_each(unsteady, same_decisions);
}

#[test]
fn an_unpacked_state_equals_the_packed_one() {
    check_each(unsteady, comes_back);
}

#[test]
fn states_of_a_fixed_size_are_packed_while_the_clock_runs() {
    check_each(steady, |case| {
        let is_short = |rate: Rate| rate.count < 1 << 20 && rate.period < Span::from_secs(3_600);
        let fits = match case.rule {
            Rule::TokenBucket { rate, burst, .. } => is_short(rate) && burst < 1 << 20,
            Rule::Leaky { rate, capacity } | Rule::Queue { rate, capacity, .. } => {
                is_short(rate) && capacity < 1 << 20
            }
            Rule::Fixed { .. } | Rule::Calendar { .. } | Rule::Nginx { .. } => true,
            Rule::Sliding { rate } => is_short(rate),
            // A debt of years, which a single cost can make under the first two, is not packed.
            Rule::Smooth { .. }
            | Rule::Warmup { .. }
            | Rule::SlidingLog { .. }
            | Rule::Concurrency { .. } => false,
        };
        let mut track = Track::new(&case);
        for step in case.steps {
            track.pass(step.delta);
            let age = track.now.since(track.birth);
            if !fits || age > Span::from_secs(8_640_000) {
                return Ok(());
            }
            track.act(step.action);
            // A bucket that is full at the epoch itself would be unpacked as one that has always been full.
            let epoch = track.birth - Span::from_micros(1);
            let packed = track.limit.pack(&track.state, epoch);
            ensure!(packed.is_some(), track, "{:?} is not packed", track.state);
        }
        Ok(())
    });
}

fn comes_back(case: Case) -> TestCaseResult {
    let mut track = Track::new(&case);
    let words = track.limit.packed_words();
    let is_unleased = matches!(case.rule, Rule::Concurrency { lease: None, .. });
    let mut was = String::new();
    for step in case.steps {
        track.pass(step.delta);
        track.act(step.action);
        was.clear();
        write!(was, "{:?}", track.state).expect("writing to a string does not fail");
        let read = track.limit.read_state(&track.limit.write_state(&track.state));
        let is_same = read.as_ref().is_some_and(|read| shows_as(read, &was));
        ensure!(is_unleased || is_same, track, "{was} was read as {read:?}");
        let Some(packed) = track.limit.pack(&track.state, track.birth) else { continue };
        ensure!(packed[words..].iter().all(|word| *word == 0), track, "{packed:?} > {words}");
        let unpacked = track.limit.unpack(&packed, track.birth);
        ensure!(shows_as(&unpacked, &was), track, "{was} came back as {unpacked:?}");
    }
    Ok(())
}

/// Returns whether this is the debug output of the state, without allocating it.
fn shows_as(state: &State, text: &str) -> bool {
    let mut rest = Rest(text);
    write!(rest, "{state:?}").is_ok() && rest.0.is_empty()
}

/// The rest of the expected text.
struct Rest<'t>(&'t str);

impl Write for Rest<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.0 = self.0.strip_prefix(text).ok_or(fmt::Error)?;
        Ok(())
    }
}

fn same_decisions(case: Case) -> TestCaseResult {
    let mut track = Track::new(&case);
    let Some(bucket) = track.limit.narrow_bucket() else { return Ok(()) };
    // An epoch other than the birth.
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
        ensure!(narrow == wide, track, "the narrow bucket decides {narrow:?}");
        let widened = track.limit.unpack(&[full_at, 0, 0], epoch);
        let (there, back) = (track.limit.peek(&widened, track.now, 1), track.peek(1));
        ensure!(
            there == back,
            track,
            "unpacked, it decides {there:?} about one more, not {back:?}"
        );
        let narrowed = track.limit.pack(&widened, epoch);
        ensure!(narrowed == Some([full_at, 0, 0]), track, "{full_at} came back as {narrowed:?}");
    }
    Ok(())
}

/// Decides as the documentation of `NarrowBucket` says.
fn decide(bucket: NarrowBucket, full_at: &mut u64, now: u64, cost: u64) -> Decision {
    let taken = bucket.take(*full_at, now, cost);
    match taken {
        Some(next) => *full_at = next,
        None if bucket.is_ahead_of_clock(*full_at, now) => *full_at = bucket.clamped(now),
        None => {}
    }
    bucket.decision(*full_at, now, cost, taken.is_some())
}
