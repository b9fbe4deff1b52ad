//! Which limit counts a descriptor, and under which key.

use crate::desk::{Desk, about, descriptor, limit, request, seen};
use tidegate_server::config::LimitConfig;
use tidegate_server::protocol::grpc::proto::{Code, DescriptorStatus, RateLimitResponse};

fn names(response: &RateLimitResponse) -> Vec<&str> {
    fn name(status: &DescriptorStatus) -> &str {
        status.current_limit.as_ref().map_or("", |told| &told.name)
    }
    response.statuses.iter().map(name).collect()
}

fn counted_by(desk: &Desk, entries: &str) -> String {
    names(&desk.ask(&about(entries)))[0].to_owned()
}

#[test]
fn the_exact_value_comes_before_a_pattern_and_a_pattern_before_any() {
    let desk = Desk::new(vec![
        limit("any", "9/min fixed", "path"),
        limit("pattern", "9/min fixed", "path=/a*"),
        limit("later pattern", "9/min fixed", "path=/ab*"),
        limit("exact", "9/min fixed", "path=/abc"),
    ]);
    assert_eq!(counted_by(&desk, "path=/abc"), "exact");
    assert_eq!(counted_by(&desk, "path=/abd"), "pattern");
    assert_eq!(counted_by(&desk, "path=/b"), "any");
    assert_eq!(counted_by(&desk, "other=/abc"), "");
}

#[test]
fn a_limit_counts_only_descriptors_as_deep_as_itself() {
    let desk = Desk::new(vec![
        limit("one", "9/min fixed", "a=1"),
        limit("three", "9/min fixed", "a=1, b, c=3"),
    ]);
    assert_eq!(counted_by(&desk, "a=1"), "one");
    assert_eq!(counted_by(&desk, "a=1, b=2"), "");
    assert_eq!(counted_by(&desk, "a=1, b=2, c=3"), "three");
    assert_eq!(counted_by(&desk, "a=1, b=2, c=4"), "");
    assert_eq!(counted_by(&desk, "a=1, b=2, c=3, d=4"), "");
    assert_eq!(counted_by(&desk, "b=2, a=1, c=3"), "", "the order counts");
}

#[test]
fn what_is_chosen_on_a_level_is_not_taken_back() {
    let desk = Desk::new(vec![
        limit("below exact", "9/min fixed", "a=1, b=1"),
        limit("below any", "9/min fixed", "a, c=1"),
    ]);
    assert_eq!(counted_by(&desk, "a=1, b=1"), "below exact");
    assert_eq!(counted_by(&desk, "a=2, c=1"), "below any");
    assert_eq!(counted_by(&desk, "a=1, c=1"), "", "`a=1` was chosen, and has no `c` below it");
}

#[test]
fn each_value_that_a_key_alone_or_a_pattern_stands_for_is_counted_for_itself() {
    let desk = Desk::new(vec![limit("calls", "2/min fixed", "user, path=/a*")]);
    assert_eq!(seen(&desk.ask(&about("user=1, path=/a"))), [(Code::Ok, 1)]);
    assert_eq!(seen(&desk.ask(&about("user=2, path=/a"))), [(Code::Ok, 1)]);
    assert_eq!(seen(&desk.ask(&about("user=1, path=/ab"))), [(Code::Ok, 1)]);
    assert_eq!(seen(&desk.ask(&about("user=1, path=/a"))), [(Code::Ok, 0)]);
}

#[test]
fn no_two_descriptors_are_one_key() {
    let desk = Desk::new(vec![limit("calls", "2/min fixed", "a, b")]);
    let tricky = ["a=1, b=2", "a=1|, b=2", "a=1, b=|2", "a=1\\|, b=2", "a=12, b=", "a=, b=12"];
    for entries in tricky {
        assert_eq!(seen(&desk.ask(&about(entries))), [(Code::Ok, 1)], "{entries}");
    }
}

#[test]
fn a_limit_stands_in_for_those_that_it_replaces_where_both_are_asked() {
    let mut special: LimitConfig = limit("special", "9/min fixed", "b");
    special.descriptor.as_mut().unwrap().replaces = vec!["plain".to_owned()];
    let desk = Desk::new(vec![limit("plain", "1/min fixed", "a"), special]);
    let both = request([descriptor("a=1"), descriptor("b=1")]);
    for _ in 0..3 {
        let answer = desk.ask(&both);
        assert_eq!(answer.overall_code(), Code::Ok);
        assert_eq!(names(&answer), ["", "special"]);
    }
    assert_eq!(counted_by(&desk, "a=1"), "plain", "alone it counts");
}
