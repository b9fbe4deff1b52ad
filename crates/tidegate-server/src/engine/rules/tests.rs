//! How many ad-hoc rules there are, and which of them are evicted.

use super::*;
use crate::config::Config;
use crate::engine::limits::Limits;
use crate::store::MemoryBackend;
use tidegate::ManualClock;

/// Returns a different client for each number.
fn client(number: usize) -> ClientId {
    ClientId::from_u64((number as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15))
}

fn limits(max_keys: usize) -> (Limits, MemoryBackend, ManualClock) {
    let clock = ManualClock::new();
    let server_clock = ServerClock::Manual(clock.clone());
    let store = MemoryBackend::new(server_clock.clone(), 16, &Snapshot::default());
    let mut config = Config::default();
    config.server.rule_max_keys = max_keys;
    (Limits::new(&config, &store, &server_clock, &Snapshot::default()), store, clock)
}

/// Checks one request under this rule, and returns how many remain.
fn check(
    limits: &Limits,
    store: &MemoryBackend,
    client: ClientId,
    text: &str,
) -> Result<u64, NoSuchLimit> {
    let limit = limits.find(text, client, store)?;
    let limiter = limit.counters().limiter().expect("the limit is in memory");
    Ok(limiter.check(&b"alice"[..]).remaining)
}

#[test]
fn no_more_rules_than_the_maximum_are_in_use() {
    let (limits, store, _) = limits(77);
    for rate in 1..=RULES_MAX {
        check(&limits, &store, client(rate), &format!("{rate}/h")).expect("the rule can be opened");
    }
    for round in 0..2 * RULES_MAX / EVICTION_SCAN_MAX {
        let beyond = check(&limits, &store, client(0), &format!("{}/h", RULES_MAX + 1 + round));
        assert_eq!(beyond.err(), Some(NoSuchLimit::TooManyRules));
    }
    for rate in 1..=RULES_MAX {
        let left =
            check(&limits, &store, client(0), &format!("{rate}/h")).expect("the rule is open");
        assert_eq!(left, rate.saturating_sub(2) as u64, "its keys keep their state");
    }
    assert_eq!(limits.unnamed().len(), RULES_MAX);
}

#[test]
fn a_rule_whose_keys_are_idle_is_evicted_for_another() {
    let (limits, store, clock) = limits(50_000);
    check(&limits, &store, client(0), "9/week").expect("the rule can be opened");
    check(&limits, &store, client(0), "7/s smooth").expect("the rule can be opened");
    let held = limits.find("8/h", client(0), &store).expect("the rule can be opened");
    for rate in 4..=RULES_MAX {
        check(&limits, &store, client(rate), &format!("{rate}/s")).expect("the rule can be opened");
    }
    assert_eq!(check(&limits, &store, client(0), "1/min").err(), Some(NoSuchLimit::TooManyRules));
    clock.advance(Span::from_secs(2));
    for rate in 1..=3 * RULES_MAX {
        check(&limits, &store, client(rate), &format!("{rate}/2s")).expect("other rules are idle");
        clock.advance(Span::from_secs(4));
    }
    assert_eq!(limits.unnamed().len(), RULES_MAX);
    assert_eq!(
        check(&limits, &store, client(0), "9/week"),
        Ok(7),
        "a rule with a key in use is never evicted"
    );
    let same = limits.find("8/h", client(0), &store).expect("the rule is open");
    assert!(Arc::ptr_eq(&held, &same), "nor is a rule that a request is using");
    let smooth = limits.find("7/s smooth", client(0), &store).expect("the rule is open");
    let stats = smooth.counters().stats();
    assert_eq!(
        stats.allowed + stats.waited,
        1,
        "nor, while others can be evicted, a rule that starts empty"
    );
    let counted: u64 = limits.unnamed().iter().map(|limit| limit.counters().stats().allowed).sum();
    let asked = 2 + (RULES_MAX - 3) + 3 * RULES_MAX + 1;
    assert_eq!(
        counted + limits.unnamed_and_gone().1.stats.allowed,
        asked as u64,
        "decisions of evicted rules are still counted"
    );
}

#[test]
fn different_texts_of_one_rule_are_one_limit() {
    let (limits, store, _) = limits(77);
    let first = limits.find("7/s", client(0), &store).expect("the rule can be opened");
    for spaces in 0..NAME_BYTES_MAX / 2 {
        for after in 0..NAME_BYTES_MAX / 2 - 3 {
            let text = format!("{}7/s{}", " ".repeat(spaces), " ".repeat(after));
            let same = limits.find(&text, client(0), &store).expect("the rule can be opened");
            assert!(Arc::ptr_eq(&first, &same));
        }
    }
    limits.find("8/s", client(0), &store).expect("another rule can be opened");
    assert_eq!(limits.unnamed().len(), 2);
}

const DAY: Span = Span::from_secs(86_400);

#[test]
fn a_client_that_floods_rules_gets_its_share_and_evicts_no_other_clients_rules() {
    let (limits, store, clock) = limits(77);
    let (honest, flood, newcomer) = (client(1), client(2), client(3));
    check(&limits, &store, honest, "5/s").expect("the rule can be opened");
    clock.advance(Span::from_secs(2));
    let made = |count: usize| {
        let text = format!("{count}/36525day");
        usize::from(check(&limits, &store, flood, &text).is_ok())
    };
    let made: usize = (1..2 * RULES_MAX).map(made).sum();
    assert_eq!(made, 3 * (RULES_MAX - 1) / 4 + 1);
    let held = limits.existing("5/s").expect("the rule is not evicted, though it is idle");
    assert_eq!(held.counters().stats().allowed, 1);
    drop(held);
    for rate in 10..100 {
        let text = format!("{rate}/h");
        check(&limits, &store, newcomer, &text).expect("another client can open rules");
    }
}

#[test]
fn a_client_at_its_share_evicts_its_own_idle_rules_and_no_others() {
    let (limits, store, clock) = limits(77);
    check(&limits, &store, client(1), "5/s").expect("the rule can be opened");
    for rate in 1..=767 {
        check(&limits, &store, client(2), &format!("{rate}/2s")).expect("the rule can be opened");
    }
    clock.advance(Span::from_secs(10));
    for rate in 1..=RULES_MAX {
        check(&limits, &store, client(2), &format!("{rate}/3s"))
            .expect("its own rules can be evicted");
        clock.advance(Span::from_secs(3));
    }
    assert!(limits.existing("5/s").is_some(), "it was idle all the time");
}

#[test]
fn a_rule_that_is_unused_for_a_day_can_be_evicted_and_is_not_in_a_snapshot() {
    let (limits, store, clock) = limits(77);
    for rate in 1..=RULES_MAX {
        check(&limits, &store, client(rate), &format!("{rate}/36525day"))
            .expect("the rule can be opened");
    }
    clock.advance(DAY.saturating_sub(Span::from_secs(1)));
    check(&limits, &store, client(0), "7/36525day").expect("the rule is open");
    assert_eq!(check(&limits, &store, client(0), "1/s").err(), Some(NoSuchLimit::TooManyRules));
    assert_eq!(limits.rules.recently_used().len(), RULES_MAX);
    clock.advance(Span::from_secs(2));
    assert_eq!(limits.rules.recently_used().len(), 1);
    check(&limits, &store, client(0), "1/s").expect("one rule can be evicted");
    assert_eq!(
        check(&limits, &store, client(0), "7/36525day"),
        Ok(4),
        "a rule that was used stays"
    );
}

#[test]
fn a_refused_request_evicts_no_rule_and_drops_no_alias() {
    let (limits, store, clock) = limits(77);
    check(&limits, &store, client(1), "5/week").expect("the rule can be opened");
    check(&limits, &store, client(1), " 5/week ").expect("the rule is open");
    let long = |count: usize| check(&limits, &store, client(2), &format!("{count}/36525day"));
    let count = (1..RULES_MAX).take_while(|count| long(*count).is_ok()).count();
    assert_eq!(count, 768);
    clock.advance(DAY);
    (1..=count).for_each(|count| drop(long(count)));
    for count in count + 1..count + RULES_MAX {
        assert_eq!(long(count), Err(NoSuchLimit::TooManyRules));
    }
    assert!(limits.existing("5/week").is_some(), "its eviction would not have helped the client");
    assert!(limits.existing(" 5/week ").is_some());
}

#[test]
fn an_operator_can_clear_one_rule_or_all() {
    let (limits, store, _) = limits(77);
    for rate in 2..=11 {
        check(&limits, &store, client(0), &format!("{rate}/h")).expect("the rule can be opened");
    }
    assert_eq!((limits.rules.clear(Some("5/h")), limits.rules.clear(Some("5/h"))), (1, 0));
    assert_eq!(check(&limits, &store, client(0), "5/h"), Ok(4), "its keys start new");
    assert_eq!(check(&limits, &store, client(0), "6/h"), Ok(4), "others keep their state");
    assert_eq!(limits.rules.clear(None), 10);
    assert!(limits.unnamed().is_empty());
    assert_eq!(limits.unnamed_and_gone().1.stats.allowed, 12, "decisions are still counted");
    assert_eq!(limits.rules.shares.taken(), 0);
}

#[test]
fn without_ad_hoc_rules_only_names_are_accepted() {
    let (limits, store, _) = limits(77);
    check(&limits, &store, client(0), "5/h").expect("ad-hoc rules are accepted");
    limits.rules.set_open(false);
    for text in ["5/h", "6/h"] {
        let error =
            check(&limits, &store, client(0), text).expect_err("ad-hoc rules are switched off");
        assert!(error.to_string().contains("`ad_hoc_rules = false`"), "{error}");
    }
    let error = check(&limits, &store, client(0), "nonsense").expect_err("the text is not a rule");
    assert!(matches!(error, NoSuchLimit::Neither { .. }));
}

#[test]
fn an_ad_hoc_rule_has_no_more_keys_than_the_maximum() {
    let (limits, store, _) = limits(77);
    let limit = limits.find("7/s", client(0), &store).expect("the rule can be opened");
    assert_eq!(limit.counters().stats().max_keys, 77);
}
