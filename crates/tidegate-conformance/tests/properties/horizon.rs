//! Times near the end of a number's range (T25): nothing panics, nothing wraps, and the bounds hold.

use crate::bounds::excess;
use crate::check::check_each;
use crate::generate::{Action, Case, unsteady};
use crate::track::{Admitted, Track, ensure};
use proptest::collection::vec;
use proptest::prelude::*;
use tidegate_conformance::oracle::Rule;
use tidegate_core::{Span, Timestamp};

/// The first and last instant, the ends of words of 32, 53 and 63 bits, and the years 2038, 2106 and 2262.
const HORIZONS_US: [u64; 12] = [
    0,
    1,
    1 << 32,
    (1 << 53) - 1,
    1 << 53,
    (1 << 53) + 1,
    2_147_483_648_000_000,
    4_294_967_296_000_000,
    9_223_372_036_854_775,
    9_223_372_036_854_775_807,
    u64::MAX - 1,
    u64::MAX,
];

/// Draws instants at a horizon or a few microseconds before it.
fn instants() -> impl Strategy<Value = Vec<Timestamp>> {
    let instant = (prop::sample::select(HORIZONS_US.to_vec()), 0_u64..4)
        .prop_map(|(us, before)| Timestamp::from_micros(us.saturating_sub(before)));
    vec(instant, 1..40)
}

#[test]
fn bounds_hold_near_the_end_of_every_range() {
    check_each(
        |rules| (unsteady(rules), instants()),
        |(case, mut instants)| {
            instants.sort();
            let track = requested_at(&case, &instants);
            let log = track.admitted();
            let excess = match case.rule {
                Rule::Calendar { count, .. } => calendar_excess(&track, count, &log),
                _ => excess(&case.rule, &log),
            };
            ensure!(excess.is_none(), track, "{}", excess.unwrap_or_default());
            Ok(())
        },
    );
}

#[test]
fn nothing_panics_when_time_jumps_between_the_ends_of_ranges() {
    check_each(
        |rules| (unsteady(rules), instants()),
        |(case, instants)| {
            let track = requested_at(&case, &instants);
            ensure!(track.last.remaining <= track.last.limit, track, "more than the limit remains");
            Ok(())
        },
    );
}

/// Sends the requests of the case, one at each of these instants.
fn requested_at(case: &Case, instants: &[Timestamp]) -> Track {
    let birth = *instants.iter().min().expect("there is one");
    let mut track = Track::without_end(&case.rule, birth);
    for (step, instant) in case.steps.iter().zip(instants) {
        track.now = *instant;
        if let Action::Take(cost) = step.action {
            let _ = track.take(track.cost(cost));
        }
    }
    track
}

/// Returns an excess in a window of `tidegate-core`, because jiff supports times only until the year 9999.
fn calendar_excess(track: &Track, count: u64, log: &[Admitted]) -> Option<String> {
    log.iter().find_map(|first| {
        let window = track.limit.window(&track.state, first.at)?;
        // The last window has no end.
        let inside = |other: &&Admitted| {
            window.start <= other.at && (other.at < window.end || window.end == Timestamp::MAX)
        };
        let sum: u128 = log.iter().filter(inside).map(|other| u128::from(other.cost)).sum();
        (sum > count.into()).then(|| format!("{sum} in the window from {:?}", window.start))
    })
}

#[test]
fn a_denial_at_the_last_instant_does_not_ask_for_an_immediate_retry() {
    check_each(
        |rules| (unsteady(rules), instants()),
        |(case, mut instants)| {
            instants.sort();
            let track = requested_at(&case, &instants);
            let at_once = track.last.retry_after() == Some(Span::ZERO);
            ensure!(!at_once, track, "denied with a retry after 0");
            Ok(())
        },
    );
}
