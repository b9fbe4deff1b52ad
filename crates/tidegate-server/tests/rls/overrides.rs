//! Descriptors with a limit of their own.

use crate::harness::{Harness, about, descriptor, limit, request, seen};
use tidegate_server::config::{Config, LimitConfig, Mode};
use tidegate_server::protocol::grpc::proto::{Code, RateLimitOverride, RateLimitRequest, Unit};
use tonic::Code as Grpc;

fn with_limit(entries: &str, requests_per_unit: u32, unit: Unit) -> RateLimitRequest {
    let mut limited = descriptor(entries);
    limited.limit =
        Some(RateLimitOverride { requests_per_unit, unit: unit.into(), unit_multiplier: None });
    request([limited])
}

#[test]
fn a_descriptors_own_limit_replaces_the_configured_one() {
    let shadow = LimitConfig { mode: Mode::Shadow, ..limit("calls", "1/h fixed", "a") };
    let harness = Harness::new(vec![shadow]);
    let limited = with_limit("a=1", 2, Unit::Minute);
    let first = harness.ask(&limited);
    let shown = first.statuses[0].current_limit.as_ref().unwrap();
    assert_eq!((shown.requests_per_unit, shown.unit(), shown.name.as_str()), (2, Unit::Minute, ""));
    assert_eq!(first.statuses[0].duration_until_reset.unwrap().seconds, 58);
    assert_eq!(seen(&first), [(Code::Ok, 1)]);
    assert_eq!(seen(&harness.ask(&limited)), [(Code::Ok, 0)]);
    assert_eq!(
        seen(&harness.ask(&limited)),
        [(Code::OverLimit, 0)],
        "the descriptor's limit is not in shadow mode"
    );
    assert_eq!(
        seen(&harness.ask(&about("a=1"))),
        [(Code::Ok, 0)],
        "the configured limit was not charged"
    );
}

#[test]
fn a_descriptors_own_limit_counts_each_descriptor_and_domain_separately() {
    let harness = Harness::new(Vec::new());
    let limited = |entries: &str| with_limit(entries, 1, Unit::Day);
    let mut elsewhere = limited("a=1");
    elsewhere.domain = "elsewhere".to_owned();
    let requests = [
        limited("a=1"),
        limited("a=2"),
        limited("b=1"),
        limited("a=1, b=1"),
        limited("a=11"),
        elsewhere,
    ];
    for request in &requests {
        assert_eq!(seen(&harness.ask(request)), [(Code::Ok, 0)], "{request:?}");
    }
    for request in &requests {
        assert_eq!(seen(&harness.ask(request)), [(Code::OverLimit, 0)], "{request:?}");
    }
}

#[test]
fn a_descriptors_own_limit_may_admit_nothing() {
    let harness = Harness::new(vec![limit("calls", "10/min fixed", "a")]);
    let mut both = with_limit("b=1", 0, Unit::Second);
    both.descriptors.push(descriptor("a=1"));
    let answer = harness.ask(&both);
    assert_eq!(answer.overall_code(), Code::OverLimit);
    assert_eq!(seen(&answer), [(Code::OverLimit, 0), (Code::Ok, 10)]);
    assert_eq!(answer.statuses[0].current_limit.as_ref().unwrap().requests_per_unit, 0);
    assert_eq!(seen(&harness.ask(&about("a=1"))), [(Code::Ok, 9)], "no limit was charged");
}

#[test]
fn several_units_may_be_one_period() {
    let harness = Harness::new(Vec::new());
    let mut limited = with_limit("a=1", 5, Unit::Second);
    limited.descriptors[0].limit.as_mut().unwrap().unit_multiplier = Some(10);
    let answer = harness.ask(&limited);
    assert_eq!(answer.statuses[0].duration_until_reset.unwrap().seconds, 8, "2220 to 2230");
    assert_eq!(answer.statuses[0].current_limit.as_ref().unwrap().unit_multiplier, Some(10));
}

#[test]
fn a_period_that_no_rule_can_have_is_refused() {
    let harness = Harness::new(Vec::new());
    let mut limited = with_limit("a=1", 5, Unit::Year);
    limited.descriptors[0].limit.as_mut().unwrap().unit_multiplier = Some(u32::MAX);
    assert_eq!(harness.try_ask(&limited).unwrap_err().code(), Grpc::InvalidArgument);
}

#[test]
fn the_number_of_descriptors_own_limits_is_bounded() {
    let harness = Harness::new(Vec::new());
    let mut limited = (1..2_000).map(|count| with_limit("a=1", count, Unit::Hour));
    let refused = limited
        .find_map(|limited| harness.try_ask(&limited).err())
        .expect("the server refuses before 2,000 limits");
    assert_eq!(refused.code(), Grpc::ResourceExhausted);
    assert_eq!(harness.ask(&with_limit("a=1", 1, Unit::Hour)).overall_code(), Code::OverLimit);
}

#[test]
fn without_ad_hoc_rules_a_descriptors_own_limit_is_refused_unless_it_denies_everything() {
    let mut config = Config { limits: vec![limit("calls", "2/h fixed", "a")], ..Config::default() };
    config.server.has_ad_hoc_rules = false;
    let harness = Harness::with(config);
    for requests_per_unit in [1, 7] {
        let refused = harness.try_ask(&with_limit("a=1", requests_per_unit, Unit::Hour));
        let refused = refused.expect_err("rules in requests are switched off");
        assert_eq!(refused.code(), Grpc::PermissionDenied, "{requests_per_unit}: {refused:?}");
        assert!(refused.message().contains("`ad_hoc_rules = false`"), "{refused:?}");
    }
    let denied = harness.ask(&with_limit("a=1", 0, Unit::Hour));
    assert_eq!(
        seen(&denied),
        [(Code::OverLimit, 0)],
        "a refused call would pass by Envoy's default"
    );
    assert_eq!(seen(&harness.ask(&about("a=1"))), [(Code::Ok, 1)], "nothing was charged");
}
