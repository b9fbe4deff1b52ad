//! `0/s`: the rule that denies everything.

use tidegate_core::{Limit, ParsedRule, Retry, Span, Timestamp, Verdict};

/// One rule of every algorithm.
const OTHERS: [&str; 13] = [
    "10/s burst 20",
    "7/min leaky capacity 30",
    "10/s queue capacity 12",
    "40/s fixed",
    "40/s fixed from first",
    "25/day calendar",
    "64/s sliding-log",
    "61/s sliding",
    "5/s smooth",
    "5/s warmup 1s",
    "10r/s burst=15 nodelay",
    "concurrency 5",
    "0/s",
];

fn limit(rule: &str) -> Limit {
    rule.parse().unwrap_or_else(|error| panic!("{rule}: {error}"))
}

#[test]
fn every_rate_of_0_is_one_rule() {
    for text in ["0/s", "0/min", "00/h", "0/15min", " 0/36525day "] {
        let rule: ParsedRule = text.parse().unwrap_or_else(|error| panic!("{text}: {error}"));
        assert_eq!(rule.to_string(), "0/s", "{text}");
        assert_eq!(rule.explain(), "admits nothing: every request is denied");
    }
}

#[test]
fn every_request_is_denied_without_a_retry() {
    let limit = limit("0/s");
    let mut state = limit.fresh(Timestamp::EPOCH);
    for now in [0, 1, 999_999, 1_000_000, u64::MAX - 1, u64::MAX].map(Timestamp::from_micros) {
        for cost in [1, 2, u64::MAX] {
            let denied = limit.decide(&mut state, now, cost);
            assert_eq!(denied.verdict, Verdict::Deny(Retry::Never), "{cost} at {now:?}");
            assert_eq!((denied.limit, denied.remaining), (0, 0));
        }
        let nothing = limit.decide(&mut state, now, 0);
        assert!(nothing.is_allow() && nothing.reset_after.is_zero(), "{nothing:?}");
    }
}

#[test]
fn a_limit_of_any_rule_can_be_changed_to_zero_and_back() {
    let (closed, now) = (limit("0/s"), Timestamp::from_micros(1_700_000_000_000_000));
    for rule in OTHERS {
        let other = limit(rule);
        for state in [other.fresh(now), other.exhausted(now)] {
            let mut shut = closed.take_over_between(&other, &state, now, now);
            assert!(closed.decide(&mut shut, now, 1).is_deny(), "{rule}");
            let later = now + Span::from_secs(3_600);
            let mut open = other.take_over_between(&closed, &shut, later, later);
            let is_open = !other.decide(&mut open, later + Span::from_secs(1), 1).is_deny();
            assert_eq!(is_open, rule != "0/s", "{rule}");
        }
    }
}
