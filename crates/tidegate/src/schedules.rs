//! Many schedules of eight threads on a tiny limiter, chosen by shuttle (T16): new keys, sweeps, changes
//! of rule and decisions about several keys at once.
//!
//! Run by `cargo xtask test`, which builds with `--cfg tidegate_shuttle` so that `sync.rs` takes shuttle's
//! atomics and locks. `TIDEGATE_SCHEDULES=n` sets how many are tried; 500 unless told.

use crate::clock::ManualClock;
use crate::table::{Origin, Overflow, Plan, Secret, Table};
use crate::{Clock, Limiter, Span, check_all};
use shuttle::sync::Arc;
use shuttle::sync::atomic::{AtomicU64, Ordering};
use shuttle::thread;

/// Two shards with room for two each, and more keys than that.
const MAX_KEYS: usize = 4;
const KEYS: u64 = 7;
/// How many times a schedule takes a thread by surprise, at most.
const SURPRISES: usize = 4;

fn schedules() -> usize {
    std::env::var("TIDEGATE_SCHEDULES").map_or(500, |count| count.parse().unwrap())
}

/// The same secret every time, or a schedule could not be repeated.
fn limiter(rule: &str, overflow: Overflow) -> (Limiter<ManualClock>, ManualClock) {
    limiter_audited(rule, overflow, Some(1))
}

/// An audited key is decided slowly; without an auditor it may be lent to a hot cell.
fn limiter_audited(
    rule: &str,
    overflow: Overflow,
    audit: Option<u64>,
) -> (Limiter<ManualClock>, ManualClock) {
    let clock = ManualClock::new();
    let plan = Plan { max_keys: MAX_KEYS, overflow, has_top: false, audit };
    let limit = rule.parse().unwrap();
    let origin = Origin { secret: Secret::new([1, 2]), birth: clock.now(), shift: 0 };
    let table = Table::reborn(limit, clock.clone(), plan, &origin);
    clock.advance(Span::from_secs(3_600));
    (Limiter { table: Arc::new(table) }, clock)
}

type Work = Box<dyn FnOnce() + Send>;

/// Runs all of these at the same time.
fn together(crew: Vec<Work>) {
    let threads: Vec<_> = crew.into_iter().map(thread::spawn).collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
}

/// What must be true when all is quiet.
fn is_in_order(limiter: &Limiter<ManualClock>) {
    let (stats, audit) = (limiter.stats(), limiter.audit().unwrap_or_default());
    assert_eq!(audit.violations, 0, "{:?}", audit.first);
    assert_eq!(limiter.keys(), stats.keys, "a key was counted twice, or not at all");
    assert!(stats.keys <= MAX_KEYS, "{} keys", stats.keys);
}

/// One thread's share of everything that can be done.
fn work(limiter: &Limiter<ManualClock>, clock: &ManualClock, thread: u64) {
    for round in 0..3_u64 {
        match thread {
            0 | 1 => drop(limiter.check(&(thread + round % 2))),
            2 => drop(limiter.check(&(2 + round))),
            3 => drop(limiter.sweep()),
            4 => limiter.set_rule(["3/h", "2/h", "4/h fixed"][round as usize].parse().unwrap()),
            5 => assert!(limiter.keys() <= MAX_KEYS, "{} keys at one time", limiter.keys()),
            6 => {
                let keys = [(round + 3) % KEYS, 0, round % KEYS];
                drop(check_all(keys.iter().map(|key| limiter.ask(key))));
            }
            _ => clock.advance(Span::from_secs(2_000)),
        }
    }
}

#[test]
fn t16_whatever_eight_threads_do_every_key_keeps_its_bound() {
    let test = || {
        let (limiter, clock) = limiter("2/h", Overflow::Deny);
        let one = |thread| -> Work {
            let (limiter, clock) = (limiter.clone(), clock.clone());
            Box::new(move || work(&limiter, &clock, thread))
        };
        together((0..8).map(one).collect());
        is_in_order(&limiter);
        clock.advance(Span::from_secs(100_000));
        limiter.sweep();
        assert_eq!((limiter.keys(), limiter.stats().keys), (0, 0), "all are at rest");
        is_in_order(&limiter);
    };
    shuttle::check_pct(test, schedules(), SURPRISES);
}

/// With the clock stopped, what passed is what is charged: for each key, and for those without room.
#[test]
fn t16_what_has_passed_is_charged_once() {
    for rule in ["3/h", "3/h sliding", "3/h sliding-log"] {
        let test = move || {
            let (limiter, _) = limiter_audited(rule, Overflow::Share, None);
            let passed = Arc::new(AtomicU64::new(0));
            let one = |thread: u64| -> Work {
                let (limiter, passed) = (limiter.clone(), Arc::clone(&passed));
                Box::new(move || {
                    for round in 0..3 {
                        let keys = [(thread + round) % KEYS, (thread * round) % KEYS];
                        let count = match thread {
                            0 => u64::from(limiter.sweep() > 0),
                            1..4 => {
                                let joint = check_all(keys.iter().map(|key| limiter.ask(key)));
                                2 * u64::from(joint.decision.is_allow())
                            }
                            _ => u64::from(limiter.check(&keys[0]).is_allow()),
                        };
                        passed.fetch_add(count, Ordering::Relaxed);
                    }
                })
            };
            together((0..8).map(one).collect());
            assert_eq!(limiter.keys(), limiter.stats().keys);
            assert_eq!(limiter.stats().forgotten, 0, "all are in debt");
            let table = &limiter.table;
            let shared = table.with_shared(|slot, limit, now| limit.peek(&slot.state, now, 0));
            let own: u64 = (0..KEYS)
                .map(|key| table.secret.of(&key))
                .filter(|key| table.knows(*key))
                .map(|key| table.look(key, |slot, limit, now| limit.peek(&slot.state, now, 0)))
                .map(|decision| 3 - decision.remaining)
                .sum();
            assert_eq!(own + 3 - shared.remaining, passed.load(Ordering::Relaxed), "{rule}");
        };
        shuttle::check_pct(test, schedules() / 3, SURPRISES);
    }
}

/// A key that is used again at the moment when it is forgotten (T20).
#[test]
fn t20_a_key_that_is_swept_while_it_is_used_gets_one_burst() {
    let test = || {
        let (limiter, clock) = limiter_audited("2/h", Overflow::Deny, None);
        assert!(limiter.check_n(&0_u64, 2).is_allow());
        clock.advance(Span::from_secs(3_600) + Span::from_millis(1));
        let passed = Arc::new(AtomicU64::new(0));
        let one = |thread: u64| -> Work {
            let (limiter, passed) = (limiter.clone(), Arc::clone(&passed));
            Box::new(move || {
                if thread < 2 {
                    limiter.sweep();
                } else {
                    let is_allow = limiter.check(&0_u64).is_allow();
                    passed.fetch_add(u64::from(is_allow), Ordering::Relaxed);
                }
            })
        };
        together((0..8).map(one).collect());
        assert_eq!(passed.load(Ordering::Relaxed), 2);
        assert_eq!(limiter.keys(), 1, "the entry is there");
        is_in_order(&limiter);
    };
    shuttle::check_pct(test, schedules(), SURPRISES);
}
