//! Decisions about one and several descriptors.

use crate::harness::{Harness, about, descriptor, limit, now, request, seen};
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use tidegate::Span;
use tidegate_server::config::{LimitConfig, Mode};
use tidegate_server::protocol::grpc::Request;
use tidegate_server::protocol::grpc::proto::{Code, Unit};

#[test]
fn a_limit_of_20_a_minute_admits_20_of_25_requests() {
    let harness = Harness::new(vec![limit("calls", "20/min fixed", "key=value")]);
    for remaining in (0..20).rev() {
        let answer = harness.ask(&about("key=value"));
        assert_eq!(answer.overall_code(), Code::Ok);
        assert_eq!(seen(&answer), [(Code::Ok, remaining)]);
    }
    for _ in 20..25 {
        let answer = harness.ask(&about("key=value"));
        assert_eq!(answer.overall_code(), Code::OverLimit);
        assert_eq!(seen(&answer), [(Code::OverLimit, 0)]);
    }
    harness.clock.advance(Span::from_secs(58));
    assert_eq!(
        seen(&harness.ask(&about("key=value"))),
        [(Code::Ok, 19)],
        "the limit is full again in the next minute"
    );
}

#[test]
fn a_status_names_its_limit_and_its_reset() {
    let harness = Harness::new(vec![limit("calls", "10/min fixed", "key=value")]);
    let status = harness.ask(&about("key=value")).statuses.remove(0);
    let shown = status.current_limit.as_ref().unwrap();
    assert_eq!(
        (shown.requests_per_unit, shown.unit(), shown.name.as_str()),
        (10, Unit::Minute, "calls")
    );
    assert_eq!(status.duration_until_reset.unwrap().seconds, 58);
}

#[test]
fn two_descriptors_are_admitted_together_and_a_denial_charges_neither() {
    let harness = Harness::new(vec![
        limit("minute", "20/min fixed", "key1=a"),
        limit("hour", "10/h fixed", "key1=a, key2=b"),
    ]);
    let both = request([descriptor("key1=a"), descriptor("key1=a, key2=b")]);
    for used in 1..=10 {
        let answer = harness.ask(&both);
        assert_eq!(answer.overall_code(), Code::Ok);
        assert_eq!(seen(&answer), [(Code::Ok, 20 - used), (Code::Ok, 10 - used)]);
    }
    for _ in 10..25 {
        let answer = harness.ask(&both);
        assert_eq!(answer.overall_code(), Code::OverLimit);
        // The reference server would charge the first limit in spite of the denial.
        assert_eq!(seen(&answer), [(Code::Ok, 10), (Code::OverLimit, 0)]);
    }
}

#[test]
fn a_repeated_descriptor_is_charged_twice() {
    let harness = Harness::new(vec![limit("calls", "3/min fixed", "key")]);
    let twice = request([descriptor("key=a"), descriptor("key=a")]);
    assert_eq!(seen(&harness.ask(&twice)), [(Code::Ok, 1), (Code::Ok, 1)]);
    assert_eq!(harness.ask(&twice).overall_code(), Code::OverLimit);
    assert_eq!(seen(&harness.ask(&about("key=a"))), [(Code::Ok, 0)]);
}

#[test]
fn a_descriptor_that_no_limit_counts_passes() {
    let harness = Harness::new(vec![limit("calls", "1/min fixed", "key=value")]);
    let unknown = about("other=value");
    let mut elsewhere = about("key=value");
    elsewhere.domain = "elsewhere".to_owned();
    let mut empty = about("key=value");
    empty.descriptors[0].entries.clear();
    for request in [unknown, elsewhere, empty] {
        for _ in 0..3 {
            let answer = harness.ask(&request);
            assert_eq!(answer.overall_code(), Code::Ok);
            assert_eq!(seen(&answer), [(Code::Ok, 0)]);
            assert_eq!(answer.statuses[0].current_limit, None);
            assert_eq!(answer.statuses[0].duration_until_reset, None);
            assert_eq!(answer.response_headers_to_add, []);
        }
    }
}

#[test]
fn statuses_keep_the_order_of_all_descriptors() {
    let harness =
        Harness::new(vec![limit("a", "5/min fixed", "a"), limit("b", "1/min fixed", "b")]);
    let mixed = request(["b=1", "x=1", "a=1", "y=1"].map(descriptor));
    let ok = |remaining| (Code::Ok, remaining);
    assert_eq!(seen(&harness.ask(&mixed)), [ok(0), ok(0), ok(4), ok(0)]);
    assert_eq!(seen(&harness.ask(&mixed)), [(Code::OverLimit, 0), ok(0), ok(4), ok(0)]);
}

#[test]
fn a_limit_in_shadow_mode_counts_and_denies_nothing() {
    let shadow = LimitConfig { mode: Mode::Shadow, ..limit("shy", "1/min fixed", "a") };
    let harness = Harness::new(vec![shadow, limit("calls", "2/min fixed", "b")]);
    let both = request([descriptor("a=1"), descriptor("b=1")]);
    assert_eq!(seen(&harness.ask(&both)), [(Code::Ok, 0), (Code::Ok, 1)]);
    let second = harness.ask(&both);
    assert_eq!(second.overall_code(), Code::Ok);
    assert_eq!(seen(&second), [(Code::Ok, 0), (Code::Ok, 0)]);
    assert_eq!(harness.ask(&about("a=1")).overall_code(), Code::Ok);
    assert_eq!(harness.server.engine.find("shy").unwrap().shadowed(), 2);
}

#[test]
fn a_limit_that_is_off_is_not_in_the_status() {
    let off = LimitConfig { mode: Mode::Off, ..limit("off", "1/min fixed", "a") };
    let harness = Harness::new(vec![off]);
    for _ in 0..3 {
        let answer = harness.ask(&about("a=1"));
        // The remaining count is unset, which is 0 on the wire, because the status has no limit.
        assert_eq!(seen(&answer), [(Code::Ok, 0)]);
        assert_eq!(answer.statuses[0].current_limit, None);
        assert_eq!(answer.response_headers_to_add, []);
    }
}

#[test]
fn after_a_reload_other_limits_count_and_counters_stay() {
    let harness = Harness::new(vec![limit("calls", "10/min fixed", "a")]);
    harness.ask(&about("a=1"));
    harness
        .server
        .engine
        .reload(&[limit("calls", "5/min fixed", "a"), limit("more", "7/min fixed", "b")]);
    assert_eq!(
        seen(&harness.ask(&about("a=1"))),
        [(Code::Ok, 3)],
        "the request before the reload still counts"
    );
    assert_eq!(seen(&harness.ask(&about("b=1"))), [(Code::Ok, 6)]);
}

#[test]
fn where_a_rule_makes_requests_wait_the_answer_waits() {
    let harness = Harness::new(vec![limit("slow", "10/s queue capacity 5", "a")]);
    assert_eq!(harness.ask(&about("a=1")).overall_code(), Code::Ok);
    let bytes = prost::Message::encode_to_vec(&about("a=1"));
    let second = Request::read(&bytes).unwrap();
    let mut waiting = pin!(harness.limits.answer(&second));
    let mut poll = || waiting.as_mut().poll(&mut Context::from_waker(Waker::noop()));
    assert!(poll().is_pending());
    harness.clock.advance(Span::from_micros(99_999));
    assert!(poll().is_pending());
    harness.clock.advance(Span::from_micros(1));
    let Poll::Ready(Ok(answer)) = poll() else { panic!("the answer is ready after the wait") };
    assert_eq!(answer.overall_code(), Code::Ok);
    assert!(now(harness.limits.answer(&second)).is_none(), "the next request waits again");
}

#[test]
fn envoy_cannot_acquire_permits() {
    let harness = Harness::new(vec![
        limit("pool", "concurrency 1 lease 30s", "a"),
        limit("calls", "10/min fixed", "b"),
    ]);
    for permit_request in [about("a=1"), request([descriptor("b=1"), descriptor("a=1")])] {
        for _ in 0..2 {
            let refused = harness.try_ask(&permit_request).unwrap_err();
            assert_eq!(refused.code(), tonic::Code::InvalidArgument);
        }
    }
    assert_eq!(seen(&harness.ask(&about("b=1"))), [(Code::Ok, 9)], "no limit was charged");
}
