//! Many schedules of eight threads on a tiny limiter, chosen by shuttle (T16): new keys, sweeps, changes of the rule,
//! snapshots and decisions about several keys at once.
//!
//! Run by `cargo xtask test`, which builds with `--cfg tidegate_shuttle` so that `sync/mod.rs` exports shuttle's atomics
//! and locks. `TIDEGATE_SCHEDULES=n` sets how many are tried; default: 500.

use crate::clock::ManualClock;
use crate::snapshot::Snapshot;
use crate::store::Secret;
use crate::store::memory::{MemoryStore, Overflow, StoreConfig, StoreOrigin};
use crate::{Clock, Limiter, Span, check_all};
use shuttle::sync::Arc;
use shuttle::sync::atomic::{AtomicU64, Ordering};
use shuttle::thread;
use std::sync::Mutex;

/// Two shards of two keys each, and more keys than that.
const MAX_KEYS: usize = 4;
const KEYS: u64 = 7;
/// The maximum number of preemptions in a schedule: the depth of shuttle's PCT scheduler.
const PREEMPTIONS_MAX: usize = 4;

fn schedules() -> usize {
    std::env::var("TIDEGATE_SCHEDULES").map_or(500, |count| count.parse().unwrap())
}

/// Creates a limiter with a fixed secret, so that a schedule can be repeated.
fn limiter(rule: &str, overflow: Overflow) -> (Limiter<ManualClock>, ManualClock) {
    limiter_audited(rule, overflow, Some(1))
}

/// An audited key is always decided under the lock; without an auditor it may move to a hot cell.
fn limiter_audited(
    rule: &str,
    overflow: Overflow,
    audit: Option<u64>,
) -> (Limiter<ManualClock>, ManualClock) {
    let clock = ManualClock::new();
    let config = StoreConfig { max_keys: MAX_KEYS, overflow, has_top: false, audit };
    let limit = rule.parse().unwrap();
    let origin = StoreOrigin { secret: Secret::new([1, 2]), created_at: clock.now(), shift: 0 };
    let store = MemoryStore::restored(limit, clock.clone(), config, &origin);
    clock.advance(Span::from_secs(3_600));
    (Limiter { store: Arc::new(store) }, clock)
}

type Work = Box<dyn FnOnce() + Send>;

/// Runs each of these on a thread of its own, at the same time.
fn run_threads(work: Vec<Work>) {
    let threads: Vec<_> = work.into_iter().map(thread::spawn).collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
}

/// Checks the audit and the number of keys after all threads have ended.
fn assert_consistent(limiter: &Limiter<ManualClock>) {
    let (stats, audit) = (limiter.stats(), limiter.audit().unwrap_or_default());
    assert_eq!(audit.violations, 0, "{:?}", audit.first);
    assert_eq!(limiter.keys(), stats.keys, "a key was counted twice, or not at all");
    assert!(stats.keys <= MAX_KEYS, "{} keys", stats.keys);
}

/// Runs the operations of one thread; each thread has its own kind.
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
                drop(check_all(keys.iter().map(|key| limiter.request(key))));
            }
            _ => clock.advance(Span::from_secs(2_000)),
        }
    }
}

/// The number of admissions of each key that the threads have recorded.
type Passed = Arc<[AtomicU64; KEYS as usize]>;

fn count(passed: &Passed, key: u64, is_allow: bool) {
    passed[key as usize].fetch_add(u64::from(is_allow), Ordering::Relaxed);
}

fn counts(passed: &Passed) -> [u64; KEYS as usize] {
    std::array::from_fn(|key| passed[key].load(Ordering::Relaxed))
}

/// A snapshot, and the admissions of each key that were recorded before it was begun.
struct Saved {
    bytes: Vec<u8>,
    passed: [u64; KEYS as usize],
}

impl Saved {
    fn new(limiter: &Limiter<ManualClock>, passed: &Passed) -> Self {
        let (mut bytes, passed) = (Vec::new(), counts(passed));
        Snapshot::write(&mut bytes, [("all", limiter)]).unwrap();
        Self { bytes, passed }
    }

    /// Restores a limiter, and checks that it has no key twice.
    fn restore(&self, rule: &str, clock: &ManualClock) -> Limiter<ManualClock> {
        let builder = Limiter::builder(rule.parse().unwrap()).max_keys(MAX_KEYS);
        let snapshot = Snapshot::read(&self.bytes).unwrap();
        let limiter = snapshot.restore_with_clock("all", builder, clock.clone());
        let store = &limiter.store;
        let known = (0..KEYS).filter(|key| store.knows(store.secret.of(key))).count();
        assert_eq!((limiter.keys(), limiter.stats().keys), (known, known), "a key was saved twice");
        limiter
    }
}

/// A limiter on which eight threads run one kind of operation each, three times.
struct Everything {
    limiter: Limiter<ManualClock>,
    clock: ManualClock,
    /// The time by which one thread advances the clock.
    step: Span,
    rules: [&'static str; 3],
    passed: Passed,
    saved: Mutex<Vec<Saved>>,
}

impl Everything {
    /// Creates a limiter with the first rule; one thread changes to each rule in turn.
    fn new(rules: [&'static str; 3], step: Span) -> Arc<Self> {
        let (limiter, clock) = limiter_audited(rules[0], Overflow::Deny, None);
        let (passed, saved) =
            (Arc::new(std::array::from_fn(|_| AtomicU64::new(0))), Mutex::default());
        Arc::new(Self { limiter, clock, step, rules, passed, saved })
    }

    fn check(&self, key: u64) {
        count(&self.passed, key, self.limiter.check(&key).is_allow());
    }

    fn work(&self, thread: u64, round: u64) {
        match thread {
            // Twice in a row, which moves the key to a hot cell.
            0 | 1 => (0..2).for_each(|_| self.check(thread * (round % 2))),
            // New keys: more than the capacity, unless other keys are idle by then.
            2 => self.check(2 + round),
            3 => drop(self.limiter.sweep()),
            4 => self.limiter.set_rule(self.rules[round as usize].parse().unwrap()),
            5 => {
                let saved = Saved::new(&self.limiter, &self.passed);
                self.saved.lock().unwrap().push(saved);
            }
            6 => {
                let keys = [0, 5 + round % 2];
                let joint = check_all(keys.iter().map(|key| self.limiter.request(key)));
                keys.into_iter()
                    .for_each(|key| count(&self.passed, key, joint.decision.is_allow()));
            }
            _ => self.clock.advance(self.step),
        }
    }

    /// Runs the eight threads, and checks the limiter afterwards.
    fn run(self: &Arc<Self>) {
        let one = |thread| -> Work {
            let all = Arc::clone(self);
            Box::new(move || (0..3).for_each(|round| all.work(thread, round)))
        };
        run_threads((0..8).map(one).collect());
        assert_consistent(&self.limiter);
    }
}

// T16.
/// While the clock stands still, charges stay through changes of rule, and no key is evicted. So a key that is restored
/// from a snapshot is charged with everything that was admitted before the snapshot.
#[test]
fn a_snapshot_during_changes_of_the_rule_has_each_key_once_with_its_debt() {
    for (rules, most) in [
        (["6/h", "6/h", "6/h"], 6),
        // More than the threads request: a charge that is saved twice shows, also of a key in a hot cell.
        (["20/h", "20/h", "20/h"], 20),
        // The rule does not get smaller again: no key can be charged more than the smaller rule holds. `sliding` is left
        // out: it drops a charge rather than deny for longer than the rule before it.
        (["6/h", "6/h", "8/h"], 8),
        (["6/h", "6/h sliding-log", "6/h"], 6),
        (["6/h", "6/h fixed", "6/h"], 6),
    ] {
        let test = move || {
            let all = Everything::new(rules, Span::ZERO);
            all.run();
            assert_eq!(all.limiter.stats().evicted, 0, "{rules:?}: all are in debt");
            let passed = counts(&all.passed);
            assert!(passed.iter().all(|passed| *passed <= most), "{rules:?}: {passed:?}");
            for saved in all.saved.lock().unwrap().iter() {
                let restored = saved.restore(&format!("{most}/h"), &all.clock);
                for key in 0..KEYS {
                    let used = most - restored.check_n(&key, 0).remaining;
                    let (then, now) = (saved.passed[key as usize], passed[key as usize]);
                    assert!(then <= used && used <= now, "{rules:?}: {then} <= {used} <= {now}");
                }
            }
        };
        shuttle::check_pct(test, schedules() / 5, PREEMPTIONS_MAX);
    }
}

// T16.
/// While the clock runs, idle keys are evicted and others take their place. No key is admitted more often than the larger
/// of the rules allows, also after it is restored from a snapshot.
#[test]
fn no_key_gets_more_by_a_change_of_the_rule_an_eviction_or_a_snapshot() {
    let test = || {
        let all = Everything::new(["4/h", "4/h", "6/h"], Span::from_secs(700));
        all.run();
        // Six at once, and one more every ten minutes; the clock advanced by 35.
        let most = 6 + 3;
        let passed = counts(&all.passed);
        assert!(passed.iter().all(|passed| *passed <= most), "{passed:?}");
        for saved in all.saved.lock().unwrap().iter() {
            let restored = saved.restore("6/h", &all.clock);
            for key in 0..KEYS {
                let more = (0..most + 1).filter(|_| restored.check(&key).is_allow()).count() as u64;
                let passed = saved.passed[key as usize];
                assert!(passed + more <= most, "{passed} before, {more} after");
            }
        }
    };
    shuttle::check_pct(test, schedules(), PREEMPTIONS_MAX);
}

// T16.
#[test]
fn every_key_keeps_its_bound_under_eight_threads() {
    let test = || {
        let (limiter, clock) = limiter("2/h", Overflow::Deny);
        let one = |thread| -> Work {
            let (limiter, clock) = (limiter.clone(), clock.clone());
            Box::new(move || work(&limiter, &clock, thread))
        };
        run_threads((0..8).map(one).collect());
        assert_consistent(&limiter);
        clock.advance(Span::from_secs(100_000));
        limiter.sweep();
        assert_eq!((limiter.keys(), limiter.stats().keys), (0, 0), "all are idle");
        assert_consistent(&limiter);
    };
    shuttle::check_pct(test, schedules(), PREEMPTIONS_MAX);
}

// T16.
/// With the clock stopped, the admissions equal the charges of all keys and of the overflow state.
#[test]
fn each_admission_is_charged_once() {
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
                                let joint = check_all(keys.iter().map(|key| limiter.request(key)));
                                2 * u64::from(joint.decision.is_allow())
                            }
                            _ => u64::from(limiter.check(&keys[0]).is_allow()),
                        };
                        passed.fetch_add(count, Ordering::Relaxed);
                    }
                })
            };
            run_threads((0..8).map(one).collect());
            assert_eq!(limiter.keys(), limiter.stats().keys);
            assert_eq!(limiter.stats().evicted, 0, "all are in debt");
            let store = &limiter.store;
            let shared = store.with_overflow(|slot, limit, now| limit.peek(&slot.state, now, 0));
            let own: u64 = (0..KEYS)
                .map(|key| store.secret.of(&key))
                .filter(|key| store.knows(*key))
                .map(|key| store.look(key, |slot, limit, now| limit.peek(&slot.state, now, 0)))
                .map(|decision| 3 - decision.remaining)
                .sum();
            assert_eq!(own + 3 - shared.remaining, passed.load(Ordering::Relaxed), "{rule}");
        };
        shuttle::check_pct(test, schedules() / 3, PREEMPTIONS_MAX);
    }
}

/// A key that is used again at the moment when it is evicted (T20).
#[test]
fn a_key_that_is_swept_while_it_is_used_gets_one_burst() {
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
        run_threads((0..8).map(one).collect());
        assert_eq!(passed.load(Ordering::Relaxed), 2);
        assert_eq!(limiter.keys(), 1, "the entry is there");
        assert_consistent(&limiter);
    };
    shuttle::check_pct(test, schedules(), PREEMPTIONS_MAX);
}
