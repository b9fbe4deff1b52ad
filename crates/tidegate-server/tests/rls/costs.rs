//! Costs of requests and descriptors: the default, 0, and refunds.

use crate::harness::{Harness, about, descriptor, limit, request, seen};
use tidegate_server::protocol::grpc::proto::{Code, RateLimitDescriptor, RateLimitRequest};

fn ten() -> Harness {
    Harness::new(vec![limit("calls", "10/min fixed", "key")])
}

fn costing(hits_addend: u32) -> RateLimitRequest {
    RateLimitRequest { hits_addend, ..about("key=a") }
}

fn itself_costing(cost: u64) -> RateLimitDescriptor {
    RateLimitDescriptor { hits_addend: Some(cost), ..descriptor("key=a") }
}

fn giving_back(cost: u64) -> RateLimitDescriptor {
    RateLimitDescriptor { is_negative_hits: true, ..itself_costing(cost) }
}

#[test]
fn a_cost_that_does_not_fit_is_denied_and_not_charged() {
    let harness = ten();
    assert_eq!(seen(&harness.ask(&costing(6))), [(Code::Ok, 4)]);
    assert_eq!(seen(&harness.ask(&costing(6))), [(Code::OverLimit, 4)]);
    assert_eq!(seen(&harness.ask(&costing(4))), [(Code::Ok, 0)]);
}

#[test]
fn half_the_limit_fits_twice_and_more_than_the_limit_never_fits() {
    let harness = ten();
    assert_eq!(seen(&harness.ask(&costing(11))), [(Code::OverLimit, 10)]);
    assert_eq!(seen(&harness.ask(&costing(5))), [(Code::Ok, 5)]);
    assert_eq!(seen(&harness.ask(&costing(5))), [(Code::Ok, 0)]);
    assert_eq!(seen(&harness.ask(&costing(5))), [(Code::OverLimit, 0)]);
}

#[test]
fn the_default_cost_is_one() {
    let harness = ten();
    assert_eq!(seen(&harness.ask(&costing(0))), [(Code::Ok, 9)]);
    assert_eq!(seen(&harness.ask(&costing(1))), [(Code::Ok, 8)]);
}

#[test]
fn a_descriptors_own_cost_counts_instead_of_the_requests() {
    let harness = ten();
    let mut mixed = request([itself_costing(3), descriptor("key=b")]);
    mixed.hits_addend = 2;
    assert_eq!(seen(&harness.ask(&mixed)), [(Code::Ok, 7), (Code::Ok, 8)]);
}

#[test]
fn a_descriptor_with_a_cost_of_0_peeks() {
    let harness = ten();
    let look = request([itself_costing(0)]);
    for _ in 0..3 {
        assert_eq!(seen(&harness.ask(&look)), [(Code::Ok, 10)]);
    }
    harness.ask(&costing(10));
    assert_eq!(
        seen(&harness.ask(&look)),
        [(Code::OverLimit, 0)],
        "a request of cost 1 would be denied"
    );
}

#[test]
fn a_request_that_a_peek_denies_charges_nothing() {
    let harness = ten();
    harness.ask(&costing(10));
    let both = request([itself_costing(0), descriptor("key=b")]);
    let answer = harness.ask(&both);
    assert_eq!(answer.overall_code(), Code::OverLimit);
    assert_eq!(seen(&answer), [(Code::OverLimit, 0), (Code::Ok, 10)]);
    assert_eq!(seen(&harness.ask(&about("key=b"))), [(Code::Ok, 9)]);
}

#[test]
fn a_request_that_a_peek_allows_charges_its_other_descriptors() {
    let harness = ten();
    let both = request([itself_costing(0), descriptor("key=b")]);
    assert_eq!(seen(&harness.ask(&both)), [(Code::Ok, 10), (Code::Ok, 9)]);
}

#[test]
fn the_largest_costs_are_denied_and_do_not_wrap() {
    let harness = ten();
    assert_eq!(seen(&harness.ask(&costing(u32::MAX))), [(Code::OverLimit, 10)]);
    assert_eq!(seen(&harness.ask(&request([itself_costing(u64::MAX)]))), [(Code::OverLimit, 10)]);
    let twice = request([itself_costing(u64::MAX), itself_costing(2)]);
    assert_eq!(harness.ask(&twice).overall_code(), Code::OverLimit);
    assert_eq!(seen(&harness.ask(&costing(1))), [(Code::Ok, 9)]);
}

#[test]
fn a_refund_is_at_most_what_was_charged() {
    let harness = ten();
    harness.ask(&costing(10));
    let back = harness.ask(&request([giving_back(3)]));
    assert_eq!(back.overall_code(), Code::Ok);
    assert_eq!(seen(&back), [(Code::Ok, 3)]);
    assert_eq!(seen(&harness.ask(&costing(3))), [(Code::Ok, 0)]);
    assert_eq!(seen(&harness.ask(&request([giving_back(u64::MAX)]))), [(Code::Ok, 10)]);
    assert_eq!(seen(&harness.ask(&costing(10))), [(Code::Ok, 0)]);
    assert_eq!(seen(&harness.ask(&costing(1))), [(Code::OverLimit, 0)]);
}

#[test]
fn the_default_cost_of_a_refund_is_the_requests() {
    let harness = ten();
    harness.ask(&costing(10));
    let negative = RateLimitDescriptor { is_negative_hits: true, ..descriptor("key=a") };
    let back = RateLimitRequest { hits_addend: 4, ..request([negative]) };
    assert_eq!(seen(&harness.ask(&back)), [(Code::Ok, 4)]);
}

#[test]
fn a_refund_applies_even_if_another_descriptor_is_denied() {
    let harness = ten();
    harness.ask(&costing(10));
    let full = RateLimitDescriptor { hits_addend: Some(11), ..descriptor("key=b") };
    let answer = harness.ask(&request([giving_back(2), full]));
    assert_eq!(seen(&answer), [(Code::Ok, 2), (Code::OverLimit, 10)]);
}
