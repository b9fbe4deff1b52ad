//! How many rules there may be, whose go for others, and which never do.

use super::*;
use crate::config::Config;
use crate::engine::limits::{Limits, NAME_BYTES_MAX};
use crate::store::Key;
use tidegate::ManualClock;

/// A peer of its own for each number.
fn peer(number: usize) -> ClientId {
    ClientId::from_u64((number as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15))
}

fn limits(max_keys: usize) -> (Limits, Store, ManualClock) {
    let clock = ManualClock::new();
    let server_clock = ServerClock::Manual(clock.clone());
    let store = Store::memory(server_clock.clone(), 16, &Snapshot::default());
    let mut config = Config::default();
    config.server.rule_max_keys = max_keys;
    (Limits::new(&config, &store, &server_clock, &Snapshot::default()), store, clock)
}

/// Takes one under this rule, and says how many are left.
fn take(limits: &Limits, store: &Store, peer: ClientId, text: &str) -> Result<u64, NoSuchLimit> {
    let limit = limits.find(text, peer, store)?;
    let limiter = limit.counters().limiter().expect("it is in memory");
    Ok(limiter.check(&Key(b"alice")).remaining)
}

#[test]
fn so_many_rules_may_be_in_use_and_no_more() {
    let (limits, store, _) = limits(77);
    for rate in 1..=RULES_MAX {
        take(&limits, &store, peer(rate), &format!("{rate}/h")).expect("there is room");
    }
    for round in 0..2 * RULES_MAX / RULES_LOOKED_AT {
        let beyond = take(&limits, &store, peer(0), &format!("{}/h", RULES_MAX + 1 + round));
        assert_eq!(beyond.err(), Some(NoSuchLimit::TooManyRules));
    }
    for rate in 1..=RULES_MAX {
        let left = take(&limits, &store, peer(0), &format!("{rate}/h")).expect("it is there");
        assert_eq!(left, rate.saturating_sub(2) as u64, "its debt is too");
    }
    assert_eq!(limits.unnamed().len(), RULES_MAX);
}

#[test]
fn a_rule_under_which_nobody_owes_makes_room_for_another() {
    let (limits, store, clock) = limits(50_000);
    take(&limits, &store, peer(0), "9/week").expect("there is room");
    take(&limits, &store, peer(0), "7/s smooth").expect("there is room");
    let held = limits.find("8/h", peer(0), &store).expect("there is room");
    for rate in 4..=RULES_MAX {
        take(&limits, &store, peer(rate), &format!("{rate}/s")).expect("there is room");
    }
    assert_eq!(take(&limits, &store, peer(0), "1/min").err(), Some(NoSuchLimit::TooManyRules));
    clock.advance(Span::from_secs(2));
    for rate in 1..=3 * RULES_MAX {
        take(&limits, &store, peer(rate), &format!("{rate}/2s")).expect("others are at rest");
        clock.advance(Span::from_secs(4));
    }
    assert_eq!(limits.unnamed().len(), RULES_MAX);
    assert_eq!(take(&limits, &store, peer(0), "9/week"), Ok(7), "a debt is never dropped");
    let same = limits.find("8/h", peer(0), &store).expect("it is there");
    assert!(Arc::ptr_eq(&held, &same), "nor is what somebody may be about to ask");
    let smooth = limits.find("7/s smooth", peer(0), &store).expect("it is there");
    let stats = smooth.counters().stats();
    assert_eq!(stats.allowed + stats.waited, 1, "nor, while others can go, what starts empty");
    let counted: u64 = limits.unnamed().iter().map(|limit| limit.counters().stats().allowed).sum();
    let asked = 2 + (RULES_MAX - 3) + 3 * RULES_MAX + 1;
    assert_eq!(
        counted + limits.unnamed_and_gone().1.allowed,
        asked as u64,
        "what has gone is still counted"
    );
}

#[test]
fn one_rule_written_in_many_ways_takes_one_place() {
    let (limits, store, _) = limits(77);
    let first = limits.find("7/s", peer(0), &store).expect("there is room");
    for spaces in 0..NAME_BYTES_MAX / 2 {
        for after in 0..NAME_BYTES_MAX / 2 - 3 {
            let text = format!("{}7/s{}", " ".repeat(spaces), " ".repeat(after));
            let same = limits.find(&text, peer(0), &store).expect("there is room");
            assert!(Arc::ptr_eq(&first, &same));
        }
    }
    limits.find("8/s", peer(0), &store).expect("there is room for others");
    assert_eq!(limits.unnamed().len(), 2);
}

const DAY: Span = Span::from_secs(86_400);

#[test]
fn a_flood_of_rules_takes_no_more_than_its_share_and_evicts_nobody_elses() {
    let (limits, store, clock) = limits(77);
    let (honest, flood, newcomer) = (peer(1), peer(2), peer(3));
    take(&limits, &store, honest, "5/s").expect("there is room");
    clock.advance(Span::from_secs(2));
    let made = |count: usize| {
        let text = format!("{count}/36525day");
        usize::from(take(&limits, &store, flood, &text).is_ok())
    };
    let made: usize = (1..2 * RULES_MAX).map(made).sum();
    assert_eq!(made, 3 * (RULES_MAX - 1) / 4 + 1);
    let held = limits.known("5/s").expect("it is still there, though it is at rest");
    assert_eq!(held.counters().stats().allowed, 1);
    drop(held);
    for rate in 10..100 {
        let text = format!("{rate}/h");
        take(&limits, &store, newcomer, &text).expect("there is room for somebody else");
    }
}

#[test]
fn a_peer_with_its_share_replaces_its_own_rule_at_rest_and_nobody_elses() {
    let (limits, store, clock) = limits(77);
    take(&limits, &store, peer(1), "5/s").expect("there is room");
    for rate in 1..=767 {
        take(&limits, &store, peer(2), &format!("{rate}/2s")).expect("there is room");
    }
    clock.advance(Span::from_secs(10));
    for rate in 1..=RULES_MAX {
        take(&limits, &store, peer(2), &format!("{rate}/3s")).expect("its own can go");
        clock.advance(Span::from_secs(3));
    }
    assert!(limits.known("5/s").is_some(), "it was at rest all the time");
}

#[test]
fn what_nobody_has_asked_for_a_day_makes_room_and_is_not_kept_in_a_snapshot() {
    let (limits, store, clock) = limits(77);
    for rate in 1..=RULES_MAX {
        take(&limits, &store, peer(rate), &format!("{rate}/36525day")).expect("there is room");
    }
    clock.advance(DAY.saturating_sub(Span::from_secs(1)));
    take(&limits, &store, peer(0), "7/36525day").expect("it is there");
    assert_eq!(take(&limits, &store, peer(0), "1/s").err(), Some(NoSuchLimit::TooManyRules));
    assert_eq!(limits.unnamed_to_keep().len(), RULES_MAX);
    clock.advance(Span::from_secs(2));
    assert_eq!(limits.unnamed_to_keep().len(), 1);
    take(&limits, &store, peer(0), "1/s").expect("one makes room");
    assert_eq!(take(&limits, &store, peer(0), "7/36525day"), Ok(4), "what is asked for stays");
}

#[test]
fn a_peer_at_its_share_that_gets_no_rule_drops_nobodys_and_forgets_no_spelling() {
    let (limits, store, clock) = limits(77);
    take(&limits, &store, peer(1), "5/week").expect("there is room");
    take(&limits, &store, peer(1), " 5/week ").expect("it is the same");
    let long = |count: usize| take(&limits, &store, peer(2), &format!("{count}/36525day"));
    let count = (1..RULES_MAX).take_while(|count| long(*count).is_ok()).count();
    assert_eq!(count, 768);
    clock.advance(DAY);
    (1..=count).for_each(|count| drop(long(count)));
    for count in count + 1..count + RULES_MAX {
        assert_eq!(long(count), Err(NoSuchLimit::TooManyRules));
    }
    assert!(limits.known("5/week").is_some(), "it would not have made room for the peer");
    assert!(limits.known(" 5/week ").is_some());
}

#[test]
fn an_operator_can_clear_one_rule_or_all() {
    let (limits, store, _) = limits(77);
    for rate in 2..=11 {
        take(&limits, &store, peer(0), &format!("{rate}/h")).expect("there is room");
    }
    assert_eq!((limits.clear_unnamed(Some("5/h")), limits.clear_unnamed(Some("5/h"))), (1, 0));
    assert_eq!(take(&limits, &store, peer(0), "5/h"), Ok(4), "it begins anew");
    assert_eq!(take(&limits, &store, peer(0), "6/h"), Ok(4), "others go on");
    assert_eq!(limits.clear_unnamed(None), 10);
    assert!(limits.unnamed().is_empty());
    assert_eq!(limits.unnamed_and_gone().1.allowed, 12, "what was decided is still counted");
    assert_eq!(limits.rules.taken(), 0);
}

#[test]
fn where_rules_are_not_taken_only_names_are() {
    let (limits, store, _) = limits(77);
    take(&limits, &store, peer(0), "5/h").expect("they are taken");
    limits.take_ad_hoc_rules(false);
    for text in ["5/h", "6/h"] {
        let error = take(&limits, &store, peer(0), text).expect_err("they are not");
        assert!(error.to_string().contains("`ad_hoc_rules = false`"), "{error}");
    }
    let error = take(&limits, &store, peer(0), "nonsense").expect_err("it is no rule");
    assert!(matches!(error, NoSuchLimit::Neither { .. }));
}

#[test]
fn a_rule_without_a_name_has_no_more_keys_than_it_may() {
    let (limits, store, _) = limits(77);
    let limit = limits.find("7/s", peer(0), &store).expect("there is room");
    assert_eq!(limit.counters().stats().max_keys, 77);
}
