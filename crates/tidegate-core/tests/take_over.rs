//! Every change from one rule to another (B8, T12), number for number, and the clock skew that states absorb (T22).
//!
//! `take_over.txt` lists what remains of each new rule after each change. The second test checks the promises of
//! `docs/guide/bounds.md` for the same changes; the file shows a change of any number in review.
//! `TIDEGATE_WRITE=1 cargo test -p tidegate-core --test take_over` rewrites it.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::fmt::Write;
use tidegate_core::{Decision, Limit, Span, Timestamp, Verdict};

const OLD: [&str; 11] = [
    "10/min burst 8",
    "10/min leaky capacity 8",
    "10/min queue capacity 7",
    "8/min fixed",
    "8/min fixed from first",
    "8/min calendar",
    "8/min sliding",
    "8/min sliding-log",
    "10/min smooth burst 7",
    "10/min warmup 30s",
    "10r/m burst=7 nodelay",
];

const NEW: [&str; 20] = [
    "7/min burst 20",
    "30/min leaky capacity 5",
    "7/min queue capacity 19",
    "90/min queue capacity 3",
    "20/50s fixed",
    "20/50s fixed from first",
    "20/h calendar",
    "20/50s sliding",
    "6/30s sliding-log",
    "7/min smooth burst 20",
    "7/min warmup 50s",
    "7r/m burst=19 nodelay",
    // Smaller and slower: one unit is refunded, because otherwise requests would be denied for longer than before.
    "4/h burst 4",
    "4/h queue capacity 3",
    "4/h fixed",
    "4/min fixed",
    "4/day calendar",
    "4/h sliding",
    "4/h sliding-log",
    "1r/m burst=3 nodelay",
];

/// 2024-01-01T00:00:20.000003Z: inside every window, and at the start of none.
const NOW: Timestamp = Timestamp::from_micros(1_704_067_220_000_003);
/// The time from the last request to the change, in which a fraction of a unit drains.
const PAUSE: Span = Span::from_micros(7_777_777);

fn used(limit: &Limit, units: u64) -> tidegate_core::State {
    let mut state = limit.fresh(NOW - Span::from_secs(3_600));
    for _ in 0..units {
        let _ = limit.decide(&mut state, NOW, 1);
    }
    state
}

fn cases() -> impl Iterator<Item = (Limit, Limit, u64)> {
    let limits = OLD.iter().flat_map(|old| NEW.iter().map(move |new| (*old, *new)));
    limits.flat_map(|(old, new)| {
        [3, 8].map(|units| (old.parse().unwrap(), new.parse().unwrap(), units))
    })
}

/// Returns the time until the request is admitted.
fn wait(decision: &Decision) -> Span {
    match decision.verdict {
        Verdict::Wait(wait) => wait,
        _ => decision.retry_after().unwrap_or(Span::ZERO),
    }
}

#[test]
fn every_change_leaves_the_listed_numbers() {
    let mut found = String::new();
    for (old, new, units) in cases() {
        let now = NOW + PAUSE;
        let state = new.take_over(&old, &used(&old, units), now);
        let (has, next) = (new.peek(&state, now, 0), new.peek(&state, now, 1));
        let (left, reset, wait) = (has.remaining, has.reset_after, wait(&next));
        writeln!(found, "{units} of {old} -> {new}: {left} left, next in {wait}, all in {reset}")
            .unwrap();
    }
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/take_over.txt");
    if std::env::var_os("TIDEGATE_WRITE").is_some() {
        std::fs::write(path, &found).unwrap();
    }
    let written = std::fs::read_to_string(path).unwrap();
    for (found, written) in found.lines().zip(written.lines()) {
        assert_eq!(found, written);
    }
    assert_eq!(found.lines().count(), written.lines().count());
}

#[test]
fn a_change_refunds_at_most_one_unit_and_denies_requests_no_longer_than_before() {
    for (old, new, units) in cases() {
        let now = NOW + PAUSE;
        let before = used(&old, units);
        let state = new.take_over(&old, &before, now);
        let (had, has) = (old.peek(&before, now, 0), new.peek(&state, now, 0));
        let drain = had.reset_after;
        // A rule that delays requests admits them.
        let next = new.peek(&state, now, 1).retry_after().unwrap_or(Span::ZERO);
        assert!(next <= drain, "{units} of {old} -> {new}: {next}, and not {drain}");
        // If both rules count the usage against a capacity.
        let counts = |limit: &Limit| !limit.delays_requests();
        if counts(&old) && counts(&new) {
            let used = (had.limit - had.remaining).min(has.limit);
            assert!(has.remaining <= has.limit - used + 1, "{units} of {old} -> {new}: {has:?}");
        }
    }
}

/// The counts of the same windows stay, even above a lowered limit.
#[test]
fn lowering_and_raising_a_limit_within_a_window_refunds_nothing() {
    for shape in ["fixed", "fixed from first", "sliding", "sliding-log"] {
        let limit = |count: u64| -> Limit { format!("{count}/min {shape}").parse().unwrap() };
        let (ten, five) = (limit(10), limit(5));
        let lowered = five.take_over(&ten, &used(&ten, 8), NOW);
        assert_eq!(five.peek(&lowered, NOW, 0).remaining, 0, "{shape}");
        let raised = ten.take_over(&five, &lowered, NOW);
        assert_eq!(ten.peek(&raised, NOW, 0).remaining, 2, "{shape}");
    }
}

/// The old rule is used up. If the next request passes under the new rule exactly when it would have under the old one, nothing
/// is refunded. If it would pass a microsecond later, one unit is.
#[test]
fn a_used_up_limit_stays_used_up_unless_the_next_request_would_be_late() {
    let now = Timestamp::from_micros(6_000_000);
    // The entry of the log is at the epoch, the earliest possible time.
    for (rule, wait_us) in [
        ("1/10s fixed", 4_000_000),
        ("1/10s sliding", 14_000_000),
        ("1/10s sliding-log", 4_000_000),
        ("1r/s", 1_000_000),
    ] {
        let new: Limit = rule.parse().unwrap();
        let next = |drain_us: u64| {
            let old: Limit = format!("1/{drain_us}us").parse().unwrap();
            let mut state = old.fresh(now);
            let _ = old.decide(&mut state, now, 1);
            wait(&new.peek(&new.take_over(&old, &state, now), now, 1))
        };
        assert_eq!(next(wait_us), Span::from_micros(wait_us), "{rule}");
        assert_eq!(next(wait_us - 1), Span::ZERO, "{rule}: one unit is refunded");
    }
}

#[test]
fn usage_that_is_taken_over_drains_by_its_reset_time() {
    for (old, new, _) in cases().filter(|(_, _, units)| *units == 8) {
        let state = new.take_over(&old, &used(&old, 8), NOW);
        let reset = new.peek(&state, NOW, 0).reset_after;
        let later = new.peek(&state, NOW + reset, 0);
        assert_eq!(later.reset_after, Span::ZERO, "{old} -> {new}: {reset} later");
    }
}

#[test]
fn a_request_in_flight_keeps_the_shorter_of_its_lease_and_the_new_one() {
    let (long, short, none) =
        ("concurrency 3 lease 1min", "concurrency 3 lease 10s", "concurrency 3");
    let left = |old: &str, new: &str| {
        let [old, new]: [Limit; 2] = [old, new].map(|rule| rule.parse().unwrap());
        let mut state = old.fresh(NOW);
        let _ = old.decide(&mut state, NOW, 1);
        let later = NOW + Span::from_secs(4);
        new.next_lease_end(&new.take_over(&old, &state, later), later)
    };
    assert_eq!(left(long, short), Some(Span::from_secs(10)));
    assert_eq!(left(short, long), Some(Span::from_secs(6)));
    assert_eq!(left(none, short), Some(Span::from_secs(10)));
    assert_eq!(left(short, none), None);
}

// T22. The limit is used up at the time of the step.
#[test]
fn a_step_back_of_a_millisecond_is_absorbed_and_of_a_microsecond_more_is_not() {
    let absorbed = Span::from_millis(1);
    let now = Timestamp::from_micros(1_704_067_220_000_000);
    for (rule, all) in [
        ("10/s burst 3", 3),
        ("10/s leaky capacity 3", 3),
        ("10/s queue capacity 2", 3),
        ("3/s sliding-log", 3),
        ("concurrency 3 lease 10s", 3),
        ("10r/s burst=2 nodelay", 3),
    ] {
        let limit: Limit = rule.parse().unwrap();
        let full = |at| {
            let mut state = limit.fresh(now);
            let _ = limit.decide(&mut state, now, all);
            let _ = limit.decide(&mut state, at, 0);
            // The reset time of the state once the clock has caught up.
            limit.peek(&state, now, 0).reset_after
        };
        let untouched = full(now);
        assert_eq!(full(now - absorbed), untouched, "{rule}: the state has changed");
        // nginx counts in milliseconds, so a microsecond more may not be seen.
        let beyond = full(now - absorbed - Span::from_millis(1));
        assert!(beyond < untouched, "{rule}: {beyond}, although the step was longer");
    }
    let exact = ["10/s burst 3", "10/s leaky capacity 3", "10/s queue capacity 2"];
    for rule in exact.into_iter().chain(["3/s sliding-log", "concurrency 3 lease 10s"]) {
        let limit: Limit = rule.parse().unwrap();
        let mut state = limit.fresh(now);
        let _ = limit.decide(&mut state, now, 3);
        let untouched = limit.peek(&state, now, 0).reset_after;
        let _ = limit.decide(&mut state, now - absorbed - Span::from_micros(1), 0);
        assert!(limit.peek(&state, now, 0).reset_after < untouched, "{rule}");
    }
}
