//! The limit and key of a descriptor.

use crate::harness::{Harness, about, descriptor, limit, request, seen};
use tidegate_server::config::LimitConfig;
use tidegate_server::protocol::grpc::proto::{Code, DescriptorStatus, RateLimitResponse};

fn names(response: &RateLimitResponse) -> Vec<&str> {
    fn name(status: &DescriptorStatus) -> &str {
        status.current_limit.as_ref().map_or("", |shown| &shown.name)
    }
    response.statuses.iter().map(name).collect()
}

fn counted_by(harness: &Harness, entries: &str) -> String {
    names(&harness.ask(&about(entries)))[0].to_owned()
}

#[test]
fn the_exact_value_comes_before_a_pattern_and_a_pattern_before_any() {
    let harness = Harness::new(vec![
        limit("any", "9/min fixed", "path"),
        limit("pattern", "9/min fixed", "path=/a*"),
        limit("later pattern", "9/min fixed", "path=/ab*"),
        limit("exact", "9/min fixed", "path=/abc"),
    ]);
    assert_eq!(counted_by(&harness, "path=/abc"), "exact");
    assert_eq!(counted_by(&harness, "path=/abd"), "pattern");
    assert_eq!(counted_by(&harness, "path=/b"), "any");
    assert_eq!(counted_by(&harness, "other=/abc"), "");
}

#[test]
fn a_limit_counts_only_descriptors_as_deep_as_itself() {
    let harness = Harness::new(vec![
        limit("one", "9/min fixed", "a=1"),
        limit("three", "9/min fixed", "a=1, b, c=3"),
    ]);
    assert_eq!(counted_by(&harness, "a=1"), "one");
    assert_eq!(counted_by(&harness, "a=1, b=2"), "");
    assert_eq!(counted_by(&harness, "a=1, b=2, c=3"), "three");
    assert_eq!(counted_by(&harness, "a=1, b=2, c=4"), "");
    assert_eq!(counted_by(&harness, "a=1, b=2, c=3, d=4"), "");
    assert_eq!(counted_by(&harness, "b=2, a=1, c=3"), "", "the order counts");
}

#[test]
fn the_choice_on_a_level_is_final() {
    let harness = Harness::new(vec![
        limit("below exact", "9/min fixed", "a=1, b=1"),
        limit("below any", "9/min fixed", "a, c=1"),
    ]);
    assert_eq!(counted_by(&harness, "a=1, b=1"), "below exact");
    assert_eq!(counted_by(&harness, "a=2, c=1"), "below any");
    assert_eq!(
        counted_by(&harness, "a=1, c=1"),
        "",
        "the tree chose `a=1`, which has no `c` below it"
    );
}

#[test]
fn each_value_matched_by_a_bare_key_or_a_pattern_has_its_own_count() {
    let harness = Harness::new(vec![limit("calls", "2/min fixed", "user, path=/a*")]);
    assert_eq!(seen(&harness.ask(&about("user=1, path=/a"))), [(Code::Ok, 1)]);
    assert_eq!(seen(&harness.ask(&about("user=2, path=/a"))), [(Code::Ok, 1)]);
    assert_eq!(seen(&harness.ask(&about("user=1, path=/ab"))), [(Code::Ok, 1)]);
    assert_eq!(seen(&harness.ask(&about("user=1, path=/a"))), [(Code::Ok, 0)]);
}

#[test]
fn different_descriptors_have_different_keys() {
    let harness = Harness::new(vec![limit("calls", "2/min fixed", "a, b")]);
    let tricky = ["a=1, b=2", "a=1|, b=2", "a=1, b=|2", "a=1\\|, b=2", "a=12, b=", "a=, b=12"];
    for entries in tricky {
        assert_eq!(seen(&harness.ask(&about(entries))), [(Code::Ok, 1)], "{entries}");
    }
}

#[test]
fn a_limit_replaces_others_in_the_same_request() {
    let mut special: LimitConfig = limit("special", "9/min fixed", "b");
    special.descriptor.as_mut().unwrap().replaces = vec!["plain".to_owned()];
    let harness = Harness::new(vec![limit("plain", "1/min fixed", "a"), special]);
    let both = request([descriptor("a=1"), descriptor("b=1")]);
    for _ in 0..3 {
        let answer = harness.ask(&both);
        assert_eq!(answer.overall_code(), Code::Ok);
        assert_eq!(names(&answer), ["", "special"]);
    }
    assert_eq!(
        counted_by(&harness, "a=1"),
        "plain",
        "without the other descriptor the limit counts"
    );
}
