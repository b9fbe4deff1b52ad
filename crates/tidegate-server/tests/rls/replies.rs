//! Header fields, status and metadata of responses.

use crate::harness::{Harness, about, descriptor, header, limit, request, seen};
use prost_types::value::Kind;
use tidegate::Span;
use tidegate_server::config::{Fallback, LimitConfig, Mode};
use tidegate_server::protocol::grpc::proto::{Code, RateLimitRequest, RateLimitResponse};

fn fields(response: &RateLimitResponse) -> [Option<&str>; 4] {
    ["RateLimit-Limit", "RateLimit-Remaining", "RateLimit-Reset", "Retry-After"]
        .map(|name| header(response, name))
}

fn metadata<'a>(response: &'a RateLimitResponse, name: &str) -> Option<&'a str> {
    match &response.dynamic_metadata.as_ref()?.fields.get(name)?.kind {
        Some(Kind::StringValue(value)) => Some(value),
        _ => None,
    }
}

#[test]
fn the_client_gets_the_numbers_of_the_tightest_limit() {
    let harness = Harness::new(vec![
        limit("hour", "1000/h fixed", "a"),
        limit("minute", "10/min fixed", "b"),
    ]);
    let both = request([descriptor("a=1"), descriptor("b=1"), descriptor("none=1")]);
    let first = harness.ask(&both);
    assert_eq!(fields(&first), [Some("10"), Some("9"), Some("58"), None]);
    let all = RateLimitRequest { hits_addend: 9, ..both.clone() };
    assert_eq!(fields(&harness.ask(&all)), [Some("10"), Some("0"), Some("58"), None]);
    assert_eq!(fields(&harness.ask(&both)), [Some("10"), Some("0"), Some("58"), Some("58")]);
}

#[test]
fn the_limit_that_denies_is_tighter_than_one_with_less_left() {
    let harness =
        Harness::new(vec![limit("big", "9/min fixed", "a"), limit("small", "1/min fixed", "b")]);
    let mut both = request([descriptor("a=1"), descriptor("b=1")]);
    both.descriptors[0].hits_addend = Some(10);
    assert_eq!(fields(&harness.ask(&both))[0], Some("9"));
}

#[test]
fn retry_after_of_a_denial_is_never_zero() {
    let harness = Harness::new(vec![limit("calls", "100/s burst 1", "a")]);
    harness.ask(&about("a=1"));
    let denied = harness.ask(&about("a=1"));
    assert_eq!(fields(&denied), [Some("1"), Some("0"), Some("1"), Some("1")]);
    assert_eq!(denied.statuses[0].duration_until_reset.unwrap().seconds, 1, "10 ms, rounded up");
    harness.clock.advance(Span::from_millis(10));
    assert_eq!(seen(&harness.ask(&about("a=1"))), [(Code::Ok, 0)]);
}

#[test]
fn a_denial_forever_has_no_retry_after() {
    let harness =
        Harness::new(vec![limit("calls", "5/min fixed", "a"), limit("one", "1/min fixed", "b")]);
    harness.ask(&about("b=1"));
    let never = RateLimitRequest { hits_addend: 6, ..about("a=1") };
    assert_eq!(fields(&harness.ask(&never)), [Some("5"), Some("5"), Some("0"), None]);
    let both =
        RateLimitRequest { hits_addend: 6, ..request([descriptor("a=1"), descriptor("b=1")]) };
    assert_eq!(
        header(&harness.ask(&both), "Retry-After"),
        None,
        "also if the other limit would admit the request later"
    );
}

#[test]
fn the_longest_wait_is_sent() {
    let harness =
        Harness::new(vec![limit("minute", "1/min fixed", "a"), limit("hour", "1/h fixed", "b")]);
    let both = request([descriptor("a=1"), descriptor("b=1")]);
    harness.ask(&both);
    assert_eq!(header(&harness.ask(&both), "Retry-After"), Some("1378"), "2222 to 3600");
}

#[test]
fn envoy_sees_limits_in_shadow_mode_and_clients_do_not() {
    let shadow = LimitConfig { mode: Mode::Shadow, ..limit("shy", "1/min fixed", "a") };
    let harness = Harness::new(vec![shadow]);
    harness.ask(&about("a=1"));
    let second = harness.ask(&about("a=1"));
    assert_eq!(second.response_headers_to_add, []);
    assert_eq!(second.statuses[0].current_limit.as_ref().unwrap().name, "shy");
    assert_eq!(metadata(&second, "shadowed_by"), Some("shy"));
}

#[test]
fn envoy_gets_the_name_of_the_denying_limit() {
    let harness = Harness::new(vec![limit("calls", "1/min fixed", "a")]);
    assert_eq!(harness.ask(&about("a=1")).dynamic_metadata, None);
    assert_eq!(metadata(&harness.ask(&about("a=1")), "denied_by"), Some("calls"));
}

#[test]
fn a_fallback_is_the_body_of_a_denial() {
    let mut calls = limit("calls", "1/min fixed", "a");
    calls.fallback = Some(Fallback {
        status: 503,
        content_type: "application/json".to_owned(),
        body: "{\"wait\":true}".to_owned(),
    });
    let harness = Harness::new(vec![calls]);
    let first = harness.ask(&about("a=1"));
    assert_eq!((first.raw_body.as_ref(), header(&first, "Content-Type")), (&b""[..], None));
    let denied = harness.ask(&about("a=1"));
    assert_eq!(denied.raw_body.as_ref(), b"{\"wait\":true}");
    assert_eq!(header(&denied, "Content-Type"), Some("application/json"));
}

#[test]
fn numbers_above_envoys_maximum_are_capped() {
    let harness = Harness::new(vec![limit("bytes", "5000000000/s", "a")]);
    let answer = harness.ask(&about("a=1"));
    assert_eq!(seen(&answer), [(Code::Ok, u32::MAX)]);
    assert_eq!(header(&answer, "RateLimit-Limit"), Some("5000000000"));
}
