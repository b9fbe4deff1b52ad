//! A snapshot of many keys while they are asked about (T39): nobody waits much longer for it, and it takes
//! little memory.

use crate::alone::{alone, peak, resident};
use crate::random::Random;
use crate::times::Times;
use crate::{is_full, size};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use tidegate::{Clock, Limiter, Snapshot, Span, SystemClock};

/// 500 000 a second.
const PAUSE_US: u64 = 2;
const ROUNDS: usize = 5;
const MIB: u64 = 1_024 * 1_024;

/// Asks about keys, evenly in time, for as long as it is to.
fn ask(limiter: &Limiter, keys: u64, mut goes_on: impl FnMut(u64) -> bool) -> Times {
    let (mut times, mut random, stopwatch) = (Times::new(), Random::new(1), SystemClock::new());
    let start = stopwatch.now();
    for n in (0..).take_while(|n| goes_on(*n)) {
        let due = start + Span::from_micros(n * PAUSE_US);
        while stopwatch.now() < due {
            std::hint::spin_loop();
        }
        let key = random.below(keys);
        let started = stopwatch.now();
        limiter.check(&key);
        times.add(stopwatch.now().since(started));
    }
    times
}

fn median(mut times: Vec<usize>) -> usize {
    times.sort_unstable();
    times[times.len() / 2]
}

#[test]
fn t39_a_snapshot_of_many_keys_delays_nobody_and_takes_little_memory() {
    alone("saving::t39_a_snapshot_of_many_keys_delays_nobody_and_takes_little_memory", || {
        let keys = size(50_000, 10_000_000);
        let builder = Limiter::builder("10/h burst 1000".parse().unwrap()).audit(1_024);
        let limiter = builder.max_keys(usize::try_from(keys).unwrap()).build();
        assert!((0..keys).all(|key| limiter.check(&key).is_allow()));
        let path = std::env::temp_dir().join(format!("tidegate-saving-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        let (file, settled) = (path.join("limits.snapshot"), resident());
        // In turns: what else the machine does hits both alike.
        let (mut alone, mut beside) = (Vec::new(), Vec::new());
        for _ in 0..ROUNDS {
            let quiet = ask(&limiter, keys, |n| n < size(20_000, 1_000_000));
            let is_saved = AtomicBool::new(false);
            let busy = thread::scope(|scope| {
                scope.spawn(|| {
                    let saved = Snapshot::save(&file, [("all", &limiter)]);
                    is_saved.store(true, Ordering::Relaxed);
                    saved.unwrap();
                });
                ask(&limiter, keys, |_| !is_saved.load(Ordering::Relaxed))
            });
            for (name, times) in [("alone", &quiet), ("beside a snapshot", &busy)] {
                let [p50, p99, p999] = [500, 990, 999].map(|per_mille| times.quantile(per_mille));
                println!("{name}: p50 {p50} us, p99 {p99} us, p99.9 {p999} us");
            }
            alone.push(quiet.quantile(999));
            beside.push(busy.quantile(999));
        }
        let (peak, loaded) = (peak(), Snapshot::load(&file));
        std::fs::remove_dir_all(&path).unwrap();
        assert!(loaded.problems.is_empty(), "{:?}", loaded.problems);
        let audit = limiter.audit().unwrap();
        assert_eq!(audit.violations, 0, "{:?}", audit.first);
        if let (Some(settled), Some(peak)) = (settled, peak) {
            println!("{} KiB before, {} KiB at most", settled / 1_024, peak / 1_024);
            assert!(peak <= settled * 5 / 4 + 4 * MIB, "{settled} bytes before, {peak} at most");
        }
        let (alone, beside) = (median(alone), median(beside));
        println!("medians of p99.9: {alone} us alone, {beside} us beside a snapshot");
        if is_full() {
            // A time below a microsecond is none, by this stopwatch.
            assert!(beside <= 2 * alone.max(1), "{alone} us alone, {beside} us beside a snapshot");
        }
    });
}
