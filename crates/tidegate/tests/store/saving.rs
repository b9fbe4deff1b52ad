//! A snapshot of many keys while threads decide on them (T39): it delays no decision much, and takes little memory.
//!
//! With two cores, any thread that writes delays the others. So it is compared with the snapshot of
//! another limiter, which takes as much of the machine and holds none of our locks. How it is without
//! any is printed too.

use crate::random::Random;
use crate::subprocess::{in_own_process, peak, resident};
use crate::times::Times;
use crate::{is_full, size};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use tidegate::snapshot::Snapshot;
use tidegate::{Clock, Limiter, Span, SystemClock};

/// 500 000 a second.
const PAUSE_US: u64 = 2;
const ROUNDS: usize = 5;
const MIB: u64 = 1_024 * 1_024;

/// Asks about keys, evenly in time, for as long as it is to.
fn request(limiter: &Limiter, keys: u64, mut goes_on: impl FnMut(u64) -> bool) -> Times {
    let (mut times, mut random, stopwatch) = (Times::new(), Random::new(1), SystemClock::new());
    let start = stopwatch.now();
    for n in (0..).take_while(|n| goes_on(*n)) {
        let due = start + Span::from_micros(n * PAUSE_US);
        while stopwatch.now() < due {
            std::hint::spin_loop();
        }
        let key = random.below(keys);
        let started = stopwatch.now();
        let _ = limiter.check(&key);
        times.add(stopwatch.now().since(started));
    }
    times
}

fn median(mut times: Vec<usize>) -> usize {
    times.sort_unstable();
    times[times.len() / 2]
}

fn full(keys: u64) -> Limiter {
    let builder = Limiter::builder("10/h burst 1000".parse().unwrap()).audit(1_024);
    let limiter = builder.max_keys(usize::try_from(keys).unwrap()).build();
    assert!((0..keys).all(|key| limiter.check(&key).is_allow()));
    limiter
}

/// Asks about keys of one limiter for as long as it takes to save the other.
fn ask_beside(asked: &Limiter, saved: &Limiter, keys: u64, file: &Path) -> Times {
    let is_saved = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            let result = Snapshot::save(file, [("all", saved)]);
            is_saved.store(true, Ordering::Relaxed);
            result.unwrap();
        });
        request(asked, keys, |_| !is_saved.load(Ordering::Relaxed))
    })
}

// T39.
#[test]
fn a_snapshot_of_many_keys_delays_no_thread_and_takes_little_memory() {
    in_own_process(
        "saving::a_snapshot_of_many_keys_delays_no_thread_and_takes_little_memory",
        || {
            let keys = size(50_000, 10_000_000);
            let (limiter, other) = (full(keys), full(keys));
            let path = std::env::temp_dir().join(format!("tidegate-saving-{}", std::process::id()));
            std::fs::create_dir_all(&path).unwrap();
            let (file, settled) = (path.join("limits.snapshot"), resident());
            // In turns: what else the machine does hits all alike.
            let mut longest = [const { Vec::new() }; 3];
            for _ in 0..ROUNDS {
                let times = [
                    request(&limiter, keys, |n| n < size(20_000, 1_000_000)),
                    ask_beside(&limiter, &other, keys, &file),
                    ask_beside(&limiter, &limiter, keys, &file),
                ];
                for (longest, times) in longest.iter_mut().zip(times) {
                    longest.push(times.quantile(999));
                }
            }
            println!(
                "p99.9 in us, alone, beside a snapshot of another, and of itself: {longest:?}"
            );
            let (peak, loaded) = (peak(), Snapshot::load(&file));
            std::fs::remove_dir_all(&path).unwrap();
            assert!(loaded.problems.is_empty(), "{:?}", loaded.problems);
            let audit = limiter.audit().unwrap();
            assert_eq!(audit.violations, 0, "{:?}", audit.first);
            if let (Some(settled), Some(peak)) = (settled, peak) {
                println!("{} KiB before, {} KiB at most", settled / 1_024, peak / 1_024);
                // A quarter of one of the two.
                assert!(peak <= settled + settled / 8 + 4 * MIB, "{settled} bytes, {peak} at most");
            }
            let [alone, beside_other, beside] = longest.map(median);
            println!("medians: {alone}, {beside_other}, {beside}");
            if is_full() {
                // A time below a microsecond is none, by this stopwatch.
                assert!(beside <= 2 * beside_other.max(1), "{beside_other} us, {beside} us");
            }
        },
    );
}
