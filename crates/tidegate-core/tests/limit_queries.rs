//! What a limit says about itself, rule by rule, and what hasty callers, holders of tickets and those who
//! change the rule are told.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use tidegate_core::{Limit, Retry, Span, Timestamp, Verdict};

const NOW: Timestamp = Timestamp::from_micros(1_704_067_200_000_000);
const MS: fn(u64) -> Span = Span::from_millis;

fn limit(rule: &str) -> Limit {
    rule.parse().unwrap()
}

#[test]
fn who_waits_who_follows_the_calendar_who_has_windows_and_who_counts_those_in_flight() {
    let all = [
        ("10/s", [false, false, false, false]),
        ("10/s leaky", [false, false, false, false]),
        ("10/s queue", [true, false, false, false]),
        ("10/s fixed", [false, true, true, false]),
        ("10/s fixed from 2024-01-01T00:00:00+08:00", [false, true, true, false]),
        ("10/s fixed from first", [false, false, true, false]),
        ("10/day calendar", [false, true, true, false]),
        ("10/s sliding", [false, false, true, false]),
        ("10/s sliding-log", [false, false, false, false]),
        ("10/s smooth", [true, false, false, false]),
        ("10/s warmup 1s", [true, false, false, false]),
        ("concurrency 5", [false, false, false, true]),
        ("10r/s burst=5", [true, false, false, false]),
    ];
    for (rule, expected) in all {
        let limit = limit(rule);
        let has_windows = limit.window(&limit.fresh(NOW), NOW).is_some();
        let waiting = limit.delays_requests();
        let said = [waiting, limit.follows_calendar(), has_windows, limit.is_concurrency()];
        assert_eq!(said, expected, "{rule}");
    }
}

#[test]
fn only_concurrency_has_a_wait_for_a_permit_and_only_if_it_says_so() {
    assert_eq!(limit("concurrency 5 wait 500ms").permit_wait(), Some(MS(500)));
    assert_eq!(limit("concurrency 5").permit_wait(), None);
    assert_eq!(limit("10/s queue wait 500ms").permit_wait(), None);
    assert_eq!(limit("concurrency 5 lease 30s").permit_lease(), Some(MS(30_000)));
    assert_eq!(limit("concurrency 5").permit_lease(), None);
    assert_eq!(limit("10/s").permit_lease(), None);
}

#[test]
fn the_next_lease_to_end_is_the_oldest() {
    let limit = limit("concurrency 5 lease 10s");
    let mut state = limit.fresh(NOW);
    assert_eq!(limit.next_lease_end(&state, NOW), None);
    let _ = limit.decide(&mut state, NOW, 1);
    let later = NOW + MS(3_000);
    let _ = limit.decide(&mut state, later, 1);
    assert_eq!(limit.next_lease_end(&state, later), Some(MS(7_000)));
}

#[test]
fn a_lease_that_ends_with_time_itself_does_not_end() {
    let limit = limit("concurrency 1 lease 10s");
    let mut state = limit.fresh(NOW);
    let _ = limit.decide(&mut state, Timestamp::MAX - MS(1), 1);
    assert!(limit.peek(&state, Timestamp::MAX, 1).is_deny());
}

#[test]
fn a_ticket_is_given_for_what_is_taken_and_for_nothing_else() {
    let limit = limit("concurrency 2");
    let mut state = limit.fresh(NOW);
    assert!(limit.enter(&mut state, NOW, 0).1.is_none(), "nothing was taken");
    let (_, ticket) = limit.enter(&mut state, NOW, 2);
    let (denied, none) = limit.enter(&mut state, NOW, 1);
    assert!(denied.is_deny() && none.is_none());
    limit.release(&mut state, ticket.unwrap());
    assert_eq!(limit.peek(&state, NOW, 0).remaining, 2);
}

#[test]
fn the_patience_of_exactly_the_wait_is_enough_and_a_microsecond_less_is_not() {
    for rule in ["10/s queue capacity 5", "10/s smooth", "10/s warmup 1s", "10r/s burst=5"] {
        let limit = limit(rule);
        let mut state = limit.fresh(NOW);
        let _ = limit.decide(&mut state, NOW, 1);
        let Verdict::Wait(wait) = limit.peek(&state, NOW, 1).verdict else { panic!("{rule}") };
        let within = |patience| limit.decide_within(&mut state.clone(), NOW, 1, patience).verdict;
        assert_eq!(within(wait), Verdict::Wait(wait), "{rule}");
        let less = within(wait.saturating_sub(Span::from_micros(1)));
        // nginx counts in milliseconds, so that it is the next one.
        let first = if rule.contains("r/s") { MS(1) } else { Span::from_micros(1) };
        assert_eq!(less, Verdict::Deny(Retry::After(first)), "{rule}");
    }
}

#[test]
fn the_hasty_are_told_the_first_instant_at_which_they_would_be_admitted() {
    let limit = limit("10/s queue capacity 5");
    let mut state = limit.fresh(NOW);
    let _ = limit.decide(&mut state, NOW, 6);
    let told = |patience| limit.decide_within(&mut state.clone(), NOW, 1, patience).retry_after();
    assert_eq!(told(Span::ZERO), Some(MS(600)), "when nobody is before them");
    assert_eq!(told(MS(250)), Some(MS(350)));
    assert_eq!(told(MS(550)), Some(MS(100)), "the queue is full until then, however patient");
    let never = limit.decide_within(&mut state.clone(), NOW, 7, MS(250)).verdict;
    assert_eq!(never, Verdict::Deny(Retry::Never));
}

#[test]
fn who_always_waits_as_long_as_their_patience_is_told_when_and_who_always_waits_longer_never() {
    // Three cost two tenths of a second by themselves, however idle it is.
    let limit = limit("10r/s burst=5");
    let mut state = limit.fresh(NOW);
    let _ = limit.decide(&mut state, NOW, 1);
    let told = |patience| limit.decide_within(&mut state.clone(), NOW, 3, patience).verdict;
    assert_eq!(told(MS(300)), Verdict::Wait(MS(300)));
    assert_eq!(told(MS(200)), Verdict::Deny(Retry::After(MS(100))));
    assert_eq!(told(MS(199)), Verdict::Deny(Retry::Never));
}

#[test]
fn a_refund_reaches_the_state() {
    for rule in ["2/s", "2/s leaky", "2/s fixed", "2/s sliding", "2/s sliding-log", "1r/s burst=1"]
    {
        let limit = limit(rule);
        let mut state = limit.fresh(NOW);
        let _ = limit.decide(&mut state, NOW, 2);
        limit.refund(&mut state, NOW, 1);
        assert_eq!(limit.peek(&state, NOW, 0).remaining, 1, "{rule}");
    }
}

#[test]
fn a_rule_by_the_calendar_takes_over_what_was_used_by_the_other_clock() {
    // The old clock counts from the start of a process; the new one is the calendar's.
    let old_now = Timestamp::from_micros(5);
    let (log, fixed) = (limit("2/min sliding-log"), limit("2/min fixed"));
    let mut state = log.fresh(old_now);
    let _ = log.decide(&mut state, old_now, 1);
    let state = fixed.take_over_between(&log, &state, old_now, NOW);
    assert_eq!(fixed.peek(&state, NOW, 0).remaining, 1);
    // By the same clock it goes on as ever.
    let wider = limit("5/min sliding-log");
    let mut state = log.fresh(old_now);
    let _ = log.decide(&mut state, old_now, 1);
    let state = wider.take_over_between(&log, &state, old_now, old_now);
    assert_eq!(wider.peek(&state, old_now, 0).remaining, 4);
}

#[test]
fn what_is_told_counts_what_was_just_taken() {
    for (rule, reset) in [
        ("3/min", MS(40_000)),
        ("3/min leaky", MS(40_000)),
        ("3/min fixed", MS(60_000)),
        ("3/min fixed from first", MS(60_000)),
        ("3/min calendar", MS(60_000)),
        ("3/min sliding-log", MS(60_000)),
    ] {
        let limit = limit(rule);
        let told = limit.decide(&mut limit.fresh(NOW), NOW, 2);
        assert_eq!((told.limit, told.remaining, told.reset_after), (3, 1, reset), "{rule}");
    }
}

#[test]
fn a_bucket_starts_full_or_if_told_empty_from_its_first_instant() {
    let told = |rule: &str, passed: Span| {
        let limit = limit(rule);
        let told = limit.peek(&limit.fresh(NOW), NOW + passed, 0);
        (told.remaining, told.reset_after)
    };
    assert_eq!(told("10/s burst 3", MS(0)), (3, MS(0)));
    assert_eq!(told("10/s burst 3 start empty", MS(0)), (0, MS(300)));
    assert_eq!(told("10/s burst 3 start empty", MS(120)), (1, MS(180)));
}
