//! An attack with more keys than the maximum, at 200 000 a second (T41, T42). Memory stays within its
//! bound and is freed, and no throttled key is evicted.

use crate::subprocess::{in_own_process, resident};
use crate::times::Times;
use crate::{is_full, size};
use tidegate::{Clock, Limiter, ManualClock, Span, SystemClock};

const MIB: u64 = 1_024 * 1_024;
/// 200 000 a second.
const PAUSE: Span = Span::from_micros(5);
/// The time after which a key is idle under all three rules.
const TTL: Span = Span::from_secs(60);
const VICTIMS: usize = 100;
/// How long all but one in a hundred decisions may take, where nothing but the size is in question.
const P99_US_MAX: usize = 20;

struct Attack {
    rule: &'static str,
    max_keys: usize,
    keys: u64,
    bytes_per_key: u64,
    /// So much of what it took may stay with the allocator, in parts of a hundred: only packed keys
    /// have memory of their own.
    kept_percent: u64,
    /// One key in this number is audited: so few that their histories take little memory.
    audit: u64,
}

impl Attack {
    fn limiter(&self, clock: &ManualClock) -> Limiter<ManualClock> {
        let builder = Limiter::builder(self.rule.parse().unwrap()).max_keys(self.max_keys);
        builder.audit(self.audit).with_clock(clock.clone())
    }

    fn run(&self, limiter: &Limiter<ManualClock>, clock: &ManualClock) -> Times {
        let (mut times, stopwatch) = (Times::new(), SystemClock::new());
        for n in 0..self.keys {
            let started = stopwatch.now();
            let _ = limiter.check(&n);
            times.add(stopwatch.now().since(started));
            clock.advance(PAUSE);
            if n.is_multiple_of(10_007) {
                assert!(limiter.keys() <= self.max_keys);
            }
        }
        times
    }

    /// Attacks, and gives back `recover`ing what it took.
    fn test(&self, recover: impl FnOnce(&Limiter<ManualClock>)) {
        let clock = ManualClock::new();
        let limiter = self.limiter(&clock);
        clock.advance(TTL);
        let idle = resident();
        let victims: Vec<String> = (0..VICTIMS).map(|n| format!("victim {n}")).collect();
        let refuse = |when: &str| {
            assert!(victims.iter().all(|victim| limiter.check(victim).is_deny()), "{when}");
        };
        assert!(victims.iter().all(|victim| limiter.check_n(victim, 10).is_allow()));
        let times = self.run(&limiter, &clock);
        if clock.now().since(ManualClock::new().now()) < TTL + Span::from_secs(6) {
            refuse("throttled keys stay throttled");
        }
        let stats = limiter.stats();
        println!("{}: {stats:?}", self.rule);
        is_audited(&limiter);
        println!(
            "check: p50 {} us, p99 {} us, p99.9 {} us",
            times.quantile(500),
            times.quantile(990),
            times.quantile(999)
        );
        assert!(stats.overflowed > 0 && stats.keys > self.max_keys / 2, "that was an attack");
        if is_full() {
            assert!(times.quantile(990) <= P99_US_MAX, "{}: {} us", self.rule, times.quantile(990));
        }
        let (Some(idle), Some(attacked)) = (idle, resident()) else { return };
        let most = idle + self.max_keys as u64 * self.bytes_per_key * 13 / 10 + 64 * MIB;
        println!("{} KiB idle, {} KiB attacked", idle / 1_024, attacked / 1_024);
        assert!(attacked <= most, "{attacked} bytes, at most {most}");
        clock.advance(TTL + TTL);
        recover(&limiter);
        let after = resident().unwrap();
        println!("{} KiB after, {} keys", after / 1_024, limiter.keys());
        let kept = attacked.saturating_sub(idle) * self.kept_percent / 100;
        assert!(after <= idle * 11 / 10 + 3 * MIB + kept, "{idle} bytes idle, {after} after");
    }
}

/// Some were watched, and none of them passed more often than its rule says.
fn is_audited(limiter: &Limiter<ManualClock>) {
    let audit = limiter.audit().unwrap();
    assert!(audit.admissions > 0, "some keys were audited");
    assert_eq!(audit.violations, 0, "{:?}", audit.first);
}

fn attack(rule: &'static str, bytes_per_key: u64) -> Attack {
    // With many fewer keys a shard's memory is so small that it is a piece of the heap, which keeps it.
    let (max_keys, keys) = size((400_000, 1_000_000), (1_000_000, 100_000_000));
    Attack { rule, max_keys, keys, bytes_per_key, kept_percent: 0, audit: 1_000 }
}

// T41.
#[test]
fn many_keys_of_a_bucket_stay_within_memory_that_a_sweep_frees() {
    in_own_process("attack::many_keys_of_a_bucket_stay_within_memory_that_a_sweep_frees", || {
        attack("10/min burst 10", 32).test(|limiter| {
            limiter.sweep();
            assert_eq!(limiter.keys(), 0);
        });
    });
}

// T41.
#[test]
fn a_little_traffic_frees_the_memory_of_an_attack() {
    in_own_process("attack::a_little_traffic_frees_the_memory_of_an_attack", || {
        let attack = attack("10/min burst 10", 32);
        // One place in four decisions is looked at, and the memory goes at the end of a round, in each shard
        // by its own traffic. So there are keys enough for every shard to have its share.
        let decisions = attack.max_keys * 10;
        attack.test(|limiter| {
            for n in 0..decisions {
                let _ = limiter.check(&("after", n % 10_000));
            }
        });
    });
}

// T41.
#[test]
fn many_keys_of_a_window_stay_within_memory_that_a_sweep_frees() {
    in_own_process("attack::many_keys_of_a_window_stay_within_memory_that_a_sweep_frees", || {
        let keys = size(500_000, 20_000_000);
        Attack { keys, ..attack("10/min sliding", 48) }.test(|limiter| {
            limiter.sweep();
        });
    });
}

// T41.
/// States of no fixed size are not packed: a key costs what its log needs.
#[test]
fn many_keys_with_a_log_stay_within_memory_that_a_sweep_frees() {
    in_own_process("attack::many_keys_with_a_log_stay_within_memory_that_a_sweep_frees", || {
        let keys = size(150_000, 10_000_000);
        let max_keys = size(100_000, 1_000_000);
        let attack = attack("10/min sliding-log", 512);
        let attack = Attack { max_keys, keys, kept_percent: 50, ..attack };
        attack.test(|limiter| {
            limiter.sweep();
        });
    });
}

// T42.
/// The other limiter gets new keys meanwhile, which are independent of the attack.
#[test]
fn an_attack_on_one_limiter_takes_no_capacity_and_evicts_no_key_of_another() {
    const QUIET: u64 = 2_000;
    let clock = ManualClock::new();
    let keys = size(100_000, 10_000_000);
    let attack = Attack { max_keys: 5_000, keys, audit: 10, ..attack("10/min", 0) };
    // A rule under which a throttled key stays throttled for as long as the attack takes.
    let (attacked, quiet) =
        (attack.limiter(&clock), Attack { rule: "10/day", ..attack }.limiter(&clock));
    clock.advance(TTL);
    let throttle = |key: u64| assert_eq!(quiet.check_n(&key, 10).remaining, 0, "{key} is new");
    (0..QUIET).for_each(throttle);
    for n in 0..attack.keys {
        // The same keys: an eviction in one limiter must not evict them in the other.
        let _ = attacked.check(&n);
        clock.advance(PAUSE);
        if n.is_multiple_of(attack.keys / QUIET) {
            throttle(QUIET + n / (attack.keys / QUIET));
        }
    }
    assert!(attacked.stats().overflowed > 0, "that was an attack");
    let stats = quiet.stats();
    assert_eq!((stats.evicted, stats.overflowed), (0, 0));
    assert_eq!((stats.allowed, stats.denied), (2 * QUIET, 0));
    assert_eq!((stats.keys as u64, quiet.keys() as u64), (2 * QUIET, 2 * QUIET));
    assert!((0..2 * QUIET).all(|key| quiet.check(&key).is_deny()), "all are throttled as before");
    [attacked, quiet].iter().for_each(is_audited);
}
