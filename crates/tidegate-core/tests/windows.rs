//! Windows: their start and end, their counts, and clocks that step back.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use tidegate_core::{Limit, Retry, Span, Timestamp, Verdict};

fn limit(rule: &str) -> Limit {
    rule.parse().unwrap()
}

const fn second(s: u64) -> Timestamp {
    Timestamp::from_micros(s * 1_000_000)
}

#[test]
fn windows_start_at_the_anchor_and_follow_one_another() {
    let limit = limit("3/min fixed from 1970-01-01T00:00:10Z");
    let window =
        |now| limit.window(&limit.fresh(now), now).map(|window| (window.start, window.end));
    assert_eq!(window(second(70)), Some((second(70), second(130))));
    assert_eq!(window(second(75)), Some((second(70), second(130))));
    let last = Timestamp::from_micros(129_999_999);
    assert_eq!(window(last), Some((second(70), second(130))));
    assert_eq!(window(second(130)), Some((second(130), second(190))));
    // Also before the anchor.
    assert_eq!(window(second(5)), Some((second(0), second(10))));
}

#[test]
fn the_last_window_ends_at_the_last_instant() {
    let limit = limit("3/min fixed");
    let mut state = limit.fresh(Timestamp::MAX);
    let window = limit.window(&state, Timestamp::MAX).unwrap();
    let into = Timestamp::MAX.as_micros() % 60_000_000;
    assert_eq!(window.start, Timestamp::MAX - Span::from_micros(into));
    assert_eq!(window.end, Timestamp::MAX);
    assert_eq!(limit.decide(&mut state, Timestamp::MAX, 1).remaining, 2);
}

#[test]
fn a_window_starts_at_zero_and_a_step_back_resets_no_count() {
    for rule in ["3/min fixed", "3/min calendar"] {
        let limit = limit(rule);
        let mut state = limit.fresh(second(600));
        assert_eq!(limit.decide(&mut state, second(601), 2).remaining, 1, "{rule}");
        assert_eq!(limit.decide(&mut state, second(659), 1).remaining, 0, "{rule}");
        assert_eq!(limit.decide(&mut state, second(660), 1).remaining, 2, "{rule}: the next one");
        assert_eq!(limit.decide(&mut state, second(300), 1).remaining, 1, "{rule}: gone back");
        assert_eq!(limit.decide(&mut state, second(660), 0).remaining, 3, "{rule}: and on again");
    }
}

#[test]
fn a_cost_up_to_the_count_may_retry_and_a_higher_one_may_not() {
    for rule in ["3/min fixed", "3/min calendar"] {
        let limit = limit(rule);
        let mut state = limit.fresh(second(600));
        let _ = limit.decide(&mut state, second(620), 1);
        let ask = |cost| limit.peek(&state, second(620), cost).verdict;
        let next = Verdict::Deny(Retry::After(Span::from_secs(40)));
        assert_eq!(
            [2, 3, 4].map(ask),
            [Verdict::Allow, next, Verdict::Deny(Retry::Never)],
            "{rule}"
        );
    }
}

#[test]
fn a_refund_reduces_the_count_to_zero_at_most() {
    for rule in ["3/min fixed", "3/min calendar"] {
        let limit = limit(rule);
        let mut state = limit.fresh(second(600));
        let _ = limit.decide(&mut state, second(620), 3);
        limit.refund(&mut state, second(621), 2);
        assert_eq!(limit.peek(&state, second(621), 0).remaining, 2, "{rule}");
        limit.refund(&mut state, second(621), 9);
        assert_eq!(limit.peek(&state, second(621), 0).remaining, 3, "{rule}");
    }
}
