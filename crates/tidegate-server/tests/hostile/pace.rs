//! How long a harmless client waits beside others, compared with how long it waits alone.

use crate::asker::asked_while;
use crate::harness::{PATIENCE, eventually};
use crate::processor::gives_way;
use std::panic::resume_unwind;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tidegate_server::net::{Running, Wire};

/// The middle of so many rounds has to hold. If it does not, others may have had the machine, and there are some more.
const ROUNDS_MIN: usize = 3;
const ROUNDS_MAX: usize = 11;
/// So many are asked alone: two of them are above the 99th percentile.
const QUESTIONS: usize = 200;

/// Less than this counts as this. Alone an answer takes a tenth of it, but whoever shares a core with us may have it for as long
/// before it is our turn, as Linux has it. With 2 ms, what others compiled at the same time was found out, and no server.
const SLICE: Duration = Duration::from_millis(3);

/// All but one in a hundred are not above it.
pub(crate) fn p99(sorted: &[Duration]) -> Duration {
    sorted[sorted.len() * 99 / 100]
}

fn median(of: impl Iterator<Item = Duration>) -> Duration {
    let mut all: Vec<Duration> = of.collect();
    all.sort_unstable();
    all[all.len() / 2]
}

/// The 99th percentile may be so many times as long beside others as alone. Both are measured in turns, as what else is done
/// on the machine comes and goes.
pub(crate) fn assert_hardly_slower(
    (wire, running): (Wire, &Running),
    times_max: u32,
    name: &str,
    mut attack: impl FnMut() + Send,
) {
    assert_mostly(&format!("{wire} beside {name}"), || {
        let alone = p99(&asked_while(wire, running, |number| number < QUESTIONS));
        [(p99(&asked_beside((wire, running), &mut attack)), times_max * alone.max(SLICE))]
    });
}

/// Each round tells how long some things took, and how long they may. Of all rounds, the middle of the one is held against the
/// middle of the other: unlike the best round, it finds out who is slow in every second one.
pub(crate) fn assert_mostly<const N: usize>(
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
        assert!(rounds.len() < ROUNDS_MAX, "{name}: it took, and may take: {rounds:?}");
    }
}

/// How long it takes somebody who asks all the time while this is done, and not before or after.
pub(crate) fn asked_beside(
    (wire, running): (Wire, &Running),
    attack: impl FnOnce() + Send,
) -> Vec<Duration> {
    let (has_come, is_over) = (AtomicBool::new(false), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let other = scope.spawn(|| {
            asked_while(wire, running, |number| {
                has_come.store(number > 0, Ordering::Relaxed);
                number == 0 || !is_over.load(Ordering::Relaxed)
            })
        });
        eventually("it has come before the others", PATIENCE, || has_come.load(Ordering::Relaxed));
        let attacked = scope.spawn(|| {
            gives_way();
            attack();
        });
        let attacked = attacked.join();
        // Even if the attack finds something: nobody would hear of it otherwise.
        is_over.store(true, Ordering::Relaxed);
        let took = other.join().expect("it is served");
        attacked.unwrap_or_else(|found| resume_unwind(found));
        took
    })
}
