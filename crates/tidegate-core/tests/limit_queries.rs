//! The queries of a limit: its properties, waits with a maximum, tickets, leases, and states of other rules.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use tidegate_core::{Limit, Retry, Span, Ticket, Timestamp, TooLargeForLua, Verdict};

const NOW: Timestamp = Timestamp::from_micros(1_704_067_200_000_000);
const MS: fn(u64) -> Span = Span::from_millis;

fn limit(rule: &str) -> Limit {
    rule.parse().unwrap()
}

#[test]
fn each_rule_reports_its_properties() {
    // Delays requests, follows the calendar, has windows, is a concurrency limit.
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
        let delays = limit.delays_requests();
        let properties = [delays, limit.follows_calendar(), has_windows, limit.is_concurrency()];
        assert_eq!(properties, expected, "{rule}");
    }
}

#[test]
fn only_a_concurrency_rule_with_a_wait_or_a_lease_reports_it() {
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
fn a_lease_that_ends_at_the_last_instant_never_ends() {
    let limit = limit("concurrency 1 lease 10s");
    let mut state = limit.fresh(NOW);
    let _ = limit.decide(&mut state, Timestamp::MAX - MS(1), 1);
    assert!(limit.peek(&state, Timestamp::MAX, 1).is_deny());
}

#[test]
fn only_an_admission_with_a_cost_returns_a_ticket() {
    let limit = limit("concurrency 2");
    let mut state = limit.fresh(NOW);
    assert!(limit.enter(&mut state, NOW, 0).1.is_none(), "the cost is 0");
    let (_, ticket) = limit.enter(&mut state, NOW, 2);
    let (denied, none) = limit.enter(&mut state, NOW, 1);
    assert!(denied.is_deny() && none.is_none());
    limit.release(&mut state, ticket.unwrap());
    assert_eq!(limit.peek(&state, NOW, 0).remaining, 2);
}

#[test]
fn a_request_is_admitted_if_it_accepts_exactly_the_wait_and_not_a_microsecond_less() {
    for rule in ["10/s queue capacity 5", "10/s smooth", "10/s warmup 1s", "10r/s burst=5"] {
        let limit = limit(rule);
        let mut state = limit.fresh(NOW);
        let _ = limit.decide(&mut state, NOW, 1);
        let Verdict::Wait(wait) = limit.peek(&state, NOW, 1).verdict else { panic!("{rule}") };
        let within = |patience| limit.decide_within(&mut state.clone(), NOW, 1, patience).verdict;
        assert_eq!(within(wait), Verdict::Wait(wait), "{rule}");
        let less = within(wait.saturating_sub(Span::from_micros(1)));
        // nginx counts in milliseconds, so the retry is a millisecond later.
        let first = if rule.contains("r/s") { MS(1) } else { Span::from_micros(1) };
        assert_eq!(less, Verdict::Deny(Retry::After(first)), "{rule}");
    }
}

#[test]
fn a_denial_because_of_the_wait_reports_the_first_instant_of_an_admission() {
    let limit = limit("10/s queue capacity 5");
    let mut state = limit.fresh(NOW);
    let _ = limit.decide(&mut state, NOW, 6);
    let decided =
        |patience| limit.decide_within(&mut state.clone(), NOW, 1, patience).retry_after();
    assert_eq!(decided(Span::ZERO), Some(MS(600)), "when no request is before it");
    assert_eq!(decided(MS(250)), Some(MS(350)));
    assert_eq!(decided(MS(550)), Some(MS(100)), "the queue is full until then");
    let never = limit.decide_within(&mut state.clone(), NOW, 7, MS(250)).verdict;
    assert_eq!(never, Verdict::Deny(Retry::Never));
}

#[test]
fn a_request_that_always_waits_longer_than_it_accepts_must_not_retry() {
    // A cost of 3 waits two tenths of a second, even if the limit is idle.
    let limit = limit("10r/s burst=5");
    let mut state = limit.fresh(NOW);
    let _ = limit.decide(&mut state, NOW, 1);
    let decided = |patience| limit.decide_within(&mut state.clone(), NOW, 3, patience).verdict;
    assert_eq!(decided(MS(300)), Verdict::Wait(MS(300)));
    assert_eq!(decided(MS(200)), Verdict::Deny(Retry::After(MS(100))));
    assert_eq!(decided(MS(199)), Verdict::Deny(Retry::Never));
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
fn a_rule_with_another_clock_takes_over_the_usage() {
    // The old clock counts from the start of a process; the new one is the calendar's.
    let old_now = Timestamp::from_micros(5);
    let (log, fixed) = (limit("2/min sliding-log"), limit("2/min fixed"));
    let mut state = log.fresh(old_now);
    let _ = log.decide(&mut state, old_now, 1);
    let state = fixed.take_over_between(&log, &state, old_now, NOW);
    assert_eq!(fixed.peek(&state, NOW, 0).remaining, 1);
    // Between rules with the same clock, the clocks do not matter.
    let wider = limit("5/min sliding-log");
    let mut state = log.fresh(old_now);
    let _ = log.decide(&mut state, old_now, 1);
    let state = wider.take_over_between(&log, &state, old_now, old_now);
    assert_eq!(wider.peek(&state, old_now, 0).remaining, 4);
}

#[test]
fn a_decision_includes_the_cost_that_was_just_charged() {
    for (rule, reset) in [
        ("3/min", MS(40_000)),
        ("3/min leaky", MS(40_000)),
        ("3/min fixed", MS(60_000)),
        ("3/min fixed from first", MS(60_000)),
        ("3/min calendar", MS(60_000)),
        ("3/min sliding-log", MS(60_000)),
    ] {
        let limit = limit(rule);
        let decided = limit.decide(&mut limit.fresh(NOW), NOW, 2);
        assert_eq!(
            (decided.limit, decided.remaining, decided.reset_after),
            (3, 1, reset),
            "{rule}"
        );
    }
}

#[test]
fn a_bucket_starts_full_or_with_start_empty_fills_from_its_birth() {
    let decided = |rule: &str, passed: Span| {
        let limit = limit(rule);
        let decided = limit.peek(&limit.fresh(NOW), NOW + passed, 0);
        (decided.remaining, decided.reset_after)
    };
    assert_eq!(decided("10/s burst 3", MS(0)), (3, MS(0)));
    assert_eq!(decided("10/s burst 3 start empty", MS(0)), (0, MS(300)));
    assert_eq!(decided("10/s burst 3 start empty", MS(120)), (1, MS(180)));
}

#[test]
fn a_decision_without_state_knows_only_the_limit() {
    let decision = limit("100/s burst 20").without_state(Verdict::Allow);
    assert_eq!((decision.known_limit(), decision.known_remaining()), (Some(20), None));
    assert_eq!(decision.known_reset_after(), None);
}

#[test]
fn an_exhausted_state_has_nothing_left() {
    for rule in ["2/s", "2/s leaky", "2/s fixed", "2/s sliding", "2/s sliding-log"] {
        let limit = limit(rule);
        assert_eq!(limit.peek(&limit.exhausted(NOW), NOW, 0).remaining, 0, "{rule}");
    }
}

#[test]
fn a_ticket_is_released_by_its_words_and_by_no_others() {
    let limit = limit("concurrency 1");
    let mut state = limit.fresh(NOW);
    let ticket = limit.enter(&mut state, NOW, 1).1.unwrap();
    limit.release(&mut state, Ticket::from_words([7, 7]));
    assert_eq!(limit.in_flight(&state), 1);
    limit.release(&mut state, Ticket::from_words(ticket.to_words()));
    assert_eq!(limit.in_flight(&state), 0);
}

#[test]
fn releasing_all_requests_makes_their_tickets_invalid() {
    let limit = limit("concurrency 5 lease 30s");
    let mut state = limit.fresh(NOW);
    let first = limit.enter(&mut state, NOW, 5).1.unwrap();
    assert_eq!(limit.lease_end(&state, &first), Some(NOW + MS(30_000)));
    limit.release_all(&mut state);
    assert_eq!(limit.lease_end(&state, &first), None);
    let _second = limit.enter(&mut state, NOW, 2);
    limit.release(&mut state, first);
    assert_eq!(limit.peek(&state, NOW, 0).remaining, 3);
}

#[test]
fn an_unknown_time_zone_is_marked_in_the_text_as_given() {
    let error = Limit::read("1/day  calendar in  Mars", |_unit, _zone| None).unwrap_err();
    assert_eq!(error.span(), 20..24);
}

#[test]
fn the_stem_and_the_numbers_for_lua_are_those_of_the_script() {
    assert_eq!(limit("100/min sliding-log").stem(), "sliding_log");
    let bucket = limit("10/s burst 3");
    assert_eq!(bucket.lua_params().unwrap()[0].to_bits(), 300_000_f64.to_bits());
    let mut state = bucket.fresh(Timestamp::EPOCH);
    let _ = bucket.decide(&mut state, Timestamp::from_micros(7), 1);
    assert_eq!(bucket.state_to_lua(&state), Ok(vec![100_007.0, 0.0]));
    let state = bucket.state_from_lua(&[200_000.0, 0.0]).unwrap();
    assert_eq!(bucket.peek(&state, Timestamp::EPOCH, 0).remaining, 1);
    assert_eq!(limit("1/week burst 9007199254740992").lua_params(), Err(TooLargeForLua));
}

#[test]
fn an_unknown_priority_is_an_error_that_lists_the_known_ones() {
    let error = "urgent".parse::<tidegate_core::Priority>().unwrap_err();
    assert_eq!(error.to_string(), "not a priority; write batch, sheddable, normal or critical");
}
