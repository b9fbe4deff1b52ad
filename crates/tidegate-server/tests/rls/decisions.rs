//! How many pass, alone and together.

use crate::desk::{Desk, about, descriptor, limit, now, request, seen};
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use tidegate::Span;
use tidegate_server::config::{LimitConfig, Mode};
use tidegate_server::protocol::grpc::Request;
use tidegate_server::protocol::grpc::proto::{Code, Unit};

#[test]
fn of_25_under_a_limit_of_20_a_minute_20_pass() {
    let desk = Desk::new(vec![limit("calls", "20/min fixed", "key=value")]);
    for remaining in (0..20).rev() {
        let answer = desk.ask(&about("key=value"));
        assert_eq!(answer.overall_code(), Code::Ok);
        assert_eq!(seen(&answer), [(Code::Ok, remaining)]);
    }
    for _ in 20..25 {
        let answer = desk.ask(&about("key=value"));
        assert_eq!(answer.overall_code(), Code::OverLimit);
        assert_eq!(seen(&answer), [(Code::OverLimit, 0)]);
    }
    desk.clock.advance(Span::from_secs(58));
    assert_eq!(seen(&desk.ask(&about("key=value"))), [(Code::Ok, 19)], "the next minute");
}

#[test]
fn a_status_says_which_limit_it_is_and_when_it_is_as_new() {
    let desk = Desk::new(vec![limit("calls", "10/min fixed", "key=value")]);
    let status = desk.ask(&about("key=value")).statuses.remove(0);
    let told = status.current_limit.as_ref().unwrap();
    assert_eq!(
        (told.requests_per_unit, told.unit(), told.name.as_str()),
        (10, Unit::Minute, "calls")
    );
    assert_eq!(status.duration_until_reset.unwrap().seconds, 58);
}

#[test]
fn two_descriptors_pass_together_and_a_denial_charges_neither() {
    let desk = Desk::new(vec![
        limit("minute", "20/min fixed", "key1=a"),
        limit("hour", "10/h fixed", "key1=a, key2=b"),
    ]);
    let both = request([descriptor("key1=a"), descriptor("key1=a, key2=b")]);
    for used in 1..=10 {
        let answer = desk.ask(&both);
        assert_eq!(answer.overall_code(), Code::Ok);
        assert_eq!(seen(&answer), [(Code::Ok, 20 - used), (Code::Ok, 10 - used)]);
    }
    for _ in 10..25 {
        let answer = desk.ask(&both);
        assert_eq!(answer.overall_code(), Code::OverLimit);
        // The reference server would go on to charge the first.
        assert_eq!(seen(&answer), [(Code::Ok, 10), (Code::OverLimit, 0)]);
    }
}

#[test]
fn a_descriptor_that_is_named_twice_is_charged_twice() {
    let desk = Desk::new(vec![limit("calls", "3/min fixed", "key")]);
    let twice = request([descriptor("key=a"), descriptor("key=a")]);
    assert_eq!(seen(&desk.ask(&twice)), [(Code::Ok, 1), (Code::Ok, 1)]);
    assert_eq!(desk.ask(&twice).overall_code(), Code::OverLimit);
    assert_eq!(seen(&desk.ask(&about("key=a"))), [(Code::Ok, 0)]);
}

#[test]
fn what_nobody_limits_passes_without_a_limit() {
    let desk = Desk::new(vec![limit("calls", "1/min fixed", "key=value")]);
    let unknown = about("other=value");
    let mut elsewhere = about("key=value");
    elsewhere.domain = "elsewhere".to_owned();
    let mut empty = about("key=value");
    empty.descriptors[0].entries.clear();
    for request in [unknown, elsewhere, empty] {
        for _ in 0..3 {
            let answer = desk.ask(&request);
            assert_eq!(answer.overall_code(), Code::Ok);
            assert_eq!(seen(&answer), [(Code::Ok, 0)]);
            assert_eq!(answer.statuses[0].current_limit, None);
            assert_eq!(answer.statuses[0].duration_until_reset, None);
            assert_eq!(answer.response_headers_to_add, []);
        }
    }
}

#[test]
fn statuses_keep_the_order_of_descriptors_also_of_those_that_nobody_limits() {
    let desk = Desk::new(vec![limit("a", "5/min fixed", "a"), limit("b", "1/min fixed", "b")]);
    let mixed = request(["b=1", "x=1", "a=1", "y=1"].map(descriptor));
    let ok = |remaining| (Code::Ok, remaining);
    assert_eq!(seen(&desk.ask(&mixed)), [ok(0), ok(0), ok(4), ok(0)]);
    assert_eq!(seen(&desk.ask(&mixed)), [(Code::OverLimit, 0), ok(0), ok(4), ok(0)]);
}

#[test]
fn a_limit_in_the_shadow_counts_and_stops_nobody() {
    let shadow = LimitConfig { mode: Mode::Shadow, ..limit("shy", "1/min fixed", "a") };
    let desk = Desk::new(vec![shadow, limit("calls", "2/min fixed", "b")]);
    let both = request([descriptor("a=1"), descriptor("b=1")]);
    assert_eq!(seen(&desk.ask(&both)), [(Code::Ok, 0), (Code::Ok, 1)]);
    let second = desk.ask(&both);
    assert_eq!(second.overall_code(), Code::Ok);
    assert_eq!(seen(&second), [(Code::Ok, 0), (Code::Ok, 0)]);
    assert_eq!(desk.ask(&about("a=1")).overall_code(), Code::Ok);
    assert_eq!(desk.server.engine.find("shy").unwrap().shadowed(), 2);
}

#[test]
fn a_limit_that_is_off_says_that_there_is_none() {
    let off = LimitConfig { mode: Mode::Off, ..limit("off", "1/min fixed", "a") };
    let desk = Desk::new(vec![off]);
    for _ in 0..3 {
        let answer = desk.ask(&about("a=1"));
        // What remains is left out, which is 0 on the wire: there is no limit beside it.
        assert_eq!(seen(&answer), [(Code::Ok, 0)]);
        assert_eq!(answer.statuses[0].current_limit, None);
        assert_eq!(answer.response_headers_to_add, []);
    }
}

#[test]
fn after_a_reload_other_limits_count_and_counters_stay() {
    let desk = Desk::new(vec![limit("calls", "10/min fixed", "a")]);
    desk.ask(&about("a=1"));
    desk.server
        .engine
        .reload(&[limit("calls", "5/min fixed", "a"), limit("more", "7/min fixed", "b")]);
    assert_eq!(seen(&desk.ask(&about("a=1"))), [(Code::Ok, 3)], "one was used before");
    assert_eq!(seen(&desk.ask(&about("b=1"))), [(Code::Ok, 6)]);
}

#[test]
fn where_a_rule_makes_requests_wait_the_answer_waits() {
    let desk = Desk::new(vec![limit("slow", "10/s queue capacity 5", "a")]);
    assert_eq!(desk.ask(&about("a=1")).overall_code(), Code::Ok);
    let bytes = prost::Message::encode_to_vec(&about("a=1"));
    let second = Request::read(&bytes).unwrap();
    let mut waiting = pin!(desk.limits.answer(&second));
    let mut poll = || waiting.as_mut().poll(&mut Context::from_waker(Waker::noop()));
    assert!(poll().is_pending());
    desk.clock.advance(Span::from_micros(99_999));
    assert!(poll().is_pending());
    desk.clock.advance(Span::from_micros(1));
    let Poll::Ready(Ok(answer)) = poll() else { panic!("its turn has come") };
    assert_eq!(answer.overall_code(), Code::Ok);
    assert!(now(desk.limits.answer(&second)).is_none(), "the next one waits again");
}

#[test]
fn places_in_flight_are_not_envoys_to_take() {
    let desk = Desk::new(vec![
        limit("pool", "concurrency 1 lease 30s", "a"),
        limit("calls", "10/min fixed", "b"),
    ]);
    for asked in [about("a=1"), request([descriptor("b=1"), descriptor("a=1")])] {
        for _ in 0..2 {
            let refused = desk.try_ask(&asked).unwrap_err();
            assert_eq!(refused.code(), tonic::Code::InvalidArgument);
        }
    }
    assert_eq!(seen(&desk.ask(&about("b=1"))), [(Code::Ok, 9)], "and nobody was charged");
}
