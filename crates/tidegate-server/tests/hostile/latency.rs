//! Latency of a harmless client beside other clients, compared with its latency alone.

use crate::check_client::latencies_while;
use crate::cpu_time::lower_priority;
use crate::harness::{PATIENCE, eventually};
use std::panic::resume_unwind;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tidegate_server::net::{Running, Wire};

/// Minimum number of rounds; their median is compared. If it is too high, other processes may have used the machine, so
/// there are further rounds, up to `ROUNDS_MAX`.
const ROUNDS_MIN: usize = 3;
const ROUNDS_MAX: usize = 11;
/// Number of requests of a client alone: two of them are above the 99th percentile.
const REQUESTS: usize = 200;

/// Lower latencies count as this one. A client alone gets an answer in a tenth of it, but Linux may let another process on the
/// same core run for this long first. With 2 ms the tests failed because of compilers that ran at the same time.
const SLICE: Duration = Duration::from_millis(3);

/// Returns the 99th percentile.
pub(crate) fn p99(sorted: &[Duration]) -> Duration {
    sorted[sorted.len() * 99 / 100]
}

fn median(of: impl Iterator<Item = Duration>) -> Duration {
    let mut all: Vec<Duration> = of.collect();
    all.sort_unstable();
    all[all.len() / 2]
}

/// Asserts that during `attack` the 99th percentile of the latency is at most `times_max` times that of a client alone. Both
/// are measured in turns, because the load of other processes on the machine changes.
pub(crate) fn assert_hardly_slower(
    (wire, running): (Wire, &Running),
    times_max: u32,
    name: &str,
    mut attack: impl FnMut() + Send,
) {
    assert_medians(&format!("{wire} beside {name}"), || {
        let alone = p99(&latencies_while(wire, running, |number| number < REQUESTS));
        [(p99(&latencies_during((wire, running), &mut attack)), times_max * alone.max(SLICE))]
    });
}

/// Runs rounds, each of which returns pairs of a measured duration and its maximum. Asserts for each pair that the median of
/// the durations is at most the median of the maxima. Unlike the best round, the median detects a server that is slow in
/// every second round.
pub(crate) fn assert_medians<const N: usize>(
    name: &str,
    mut round: impl FnMut() -> [(Duration, Duration); N],
) {
    let mut rounds = Vec::new();
    loop {
        rounds.push(round());
        let holds = |thing: usize| {
            let took = median(rounds.iter().map(|round| round[thing].0));
            took <= median(rounds.iter().map(|round| round[thing].1))
        };
        if rounds.len() >= ROUNDS_MIN && rounds.len() % 2 == 1 && (0..N).all(holds) {
            return;
        }
        assert!(rounds.len() < ROUNDS_MAX, "{name}: measured and maximum durations: {rounds:?}");
    }
}

/// Returns the latencies of a client that sends requests for as long as `attack` runs.
pub(crate) fn latencies_during(
    (wire, running): (Wire, &Running),
    attack: impl FnOnce() + Send,
) -> Vec<Duration> {
    let (is_connected, is_over) = (AtomicBool::new(false), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let other = scope.spawn(|| {
            latencies_while(wire, running, |number| {
                is_connected.store(number > 0, Ordering::Relaxed);
                number == 0 || !is_over.load(Ordering::Relaxed)
            })
        });
        eventually("the client is connected before the attack", PATIENCE, || {
            is_connected.load(Ordering::Relaxed)
        });
        let attacked = scope.spawn(|| {
            lower_priority();
            attack();
        });
        let attacked = attacked.join();
        // Also if the attack panicked: the client would go on forever, and the panic would not be reported.
        is_over.store(true, Ordering::Relaxed);
        let took = other.join().expect("the client is served");
        attacked.unwrap_or_else(|found| resume_unwind(found));
        took
    })
}
