//! The trap that stores with eviction fall into: a throttled key is pushed out by junk keys, and comes
//! back as good as new. Here it stays throttled, for every algorithm.

use crate::rules::EVERY;
use crate::size;
use crate::subprocess::{in_own_process, resident};
use tidegate::limiter::Overflow;
use tidegate::{Clock, Limiter, ManualClock, Span};
use tidegate_core::Limit;

const MAX_KEYS: usize = 10_000;
/// One key in this number is audited. The others are decided by the fast paths.
const AUDITED: u64 = 16;
/// Far more than any rule takes for a key that was used once.
const BYTES_PER_KEY_MAX: u64 = 768;

/// Sends junk keys, `pause` apart, and checks the victim's key meanwhile: its decisions are those of the pure limit.
fn flood(rule: &str, overflow: Overflow, junk: u64, pause: Span) {
    let clock = ManualClock::new();
    let builder = Limiter::builder(rule.parse().unwrap()).max_keys(MAX_KEYS).overflow(overflow);
    let limiter = builder.audit(AUDITED).with_clock(clock.clone());
    let limit: Limit = rule.parse().unwrap();
    let mut victim = limit.fresh(clock.now());
    clock.advance(Span::from_secs(60));
    for _ in 0..100 {
        let expected = limit.decide(&mut victim, clock.now(), 1);
        assert_eq!(limiter.check("victim"), expected, "{rule}");
    }
    for n in 0..junk {
        let _ = limiter.check(&n);
        clock.advance(pause);
        if n.is_multiple_of(97) {
            let expected = limit.decide(&mut victim, clock.now(), 1);
            assert_eq!(limiter.check("victim"), expected, "{rule}, {overflow:?}, after {n}");
        }
    }
    let stats = limiter.stats();
    assert!(stats.keys <= MAX_KEYS && limiter.keys() == stats.keys, "{rule}: {stats:?}");
    if pause.is_zero() {
        let room = MAX_KEYS as u64 - 1;
        assert_eq!(stats.overflowed, junk - room, "{rule}: all are in debt, so the rest overflows");
        assert_eq!(stats.evicted, 0, "{rule}");
    }
    let audit = limiter.audit().unwrap();
    assert!(audit.admissions > 0, "{rule}: some keys were audited");
    assert_eq!(audit.violations, 0, "{rule}, {overflow:?}: {:?}", audit.first);
}

fn flood_each(overflow: Overflow, pause: Span, junk: u64) {
    let before = resident();
    for rule in EVERY {
        flood(rule, overflow, junk, pause);
    }
    if let (Some(before), Some(after)) = (before, resident()) {
        let most = before + MAX_KEYS as u64 * BYTES_PER_KEY_MAX * 13 / 10 + 16 * 1_024 * 1_024;
        println!("{overflow:?}: {} KiB before, {} KiB after", before / 1_024, after / 1_024);
        assert!(after <= most, "{before} bytes before, {after} after");
    }
}

#[test]
fn a_throttled_key_stays_throttled_while_junk_keys_share_what_is_left() {
    in_own_process(
        "trap::a_throttled_key_stays_throttled_while_junk_keys_share_what_is_left",
        || {
            flood_each(Overflow::Share, Span::ZERO, size(20_000, 10_000_000));
        },
    );
}

#[test]
fn a_throttled_key_stays_throttled_while_junk_keys_are_refused() {
    in_own_process("trap::a_throttled_key_stays_throttled_while_junk_keys_are_refused", || {
        flood_each(Overflow::Deny, Span::ZERO, size(20_000, 10_000_000));
    });
}

#[test]
fn a_throttled_key_stays_throttled_while_junk_keys_come_and_go() {
    in_own_process("trap::a_throttled_key_stays_throttled_while_junk_keys_come_and_go", || {
        // Where all are in debt every new key looks for one at rest, which takes its time.
        flood_each(Overflow::Share, Span::from_micros(7), size(25_000, 10_000_000));
        flood(EVERY[0], Overflow::Share, size(200_000, 10_000_000), Span::from_micros(7));
    });
}

/// A permit is a debt too: its holder keeps it, and no other request gets it.
#[test]
fn a_permit_that_is_held_stays_held_while_junk_keys_come() {
    let builder = Limiter::builder("concurrency 1".parse().unwrap()).max_keys(1_000);
    let limiter = builder.audit(AUDITED).with_clock(ManualClock::new());
    let permit = limiter.try_acquire("victim").unwrap();
    let mut held = Vec::new();
    for n in 0..size(20_000, 10_000_000) {
        // A thousand hold theirs; the others come and go.
        let junk = limiter.try_acquire(&n);
        if held.len() < 1_500 {
            held.extend(junk);
        }
        assert!(limiter.try_acquire("victim").is_err());
        assert!(limiter.keys() <= 1_000);
    }
    assert_eq!(held.len(), 1_000, "999 keys of their own, and one in the overflow state");
    drop(permit);
    assert!(limiter.try_acquire("victim").is_ok());
    assert_eq!(limiter.audit().map(|audit| audit.violations), Some(0));
}
