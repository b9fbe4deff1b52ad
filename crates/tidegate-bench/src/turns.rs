//! Measures limiters in turns, round after round, so that a machine that slows down slows all of them.
//!
//! Always   No two turns in a row use the same keys, so that no limiter profits from keys that another has brought into
//!          the cache.

use crate::clock;
use crate::entrant::{Decide, Entrant, Setup};
use crate::traffic::{Key, Traffic};
use std::sync::{Arc, Barrier};
use std::time::Duration;

/// A limiter that was built and filled, with the requests to measure it with.
pub struct Contestant<K> {
    /// Its name in tables.
    pub name: &'static str,
    turn: u32,
    decide: Decide<K>,
    traffic: Arc<Traffic<K>>,
}

impl<K: Key> Contestant<K> {
    /// Builds a limiter and stores all keys in it.
    ///
    /// # Panics
    ///
    /// If it denies a key: the measurement would be that of denials.
    pub fn new(entrant: &Entrant<K>, setup: Setup, traffic: &Arc<Traffic<K>>) -> Self {
        let decide = (entrant.build)(setup);
        assert!(traffic.fill(&decide), "{} denied some of the keys", entrant.name);
        Self { name: entrant.name, turn: entrant.turn, decide, traffic: Arc::clone(traffic) }
    }
}

/// The length of a measurement.
#[derive(Clone, Copy)]
pub struct Effort {
    /// Number of turns of each limiter that count.
    pub rounds: usize,
    /// The factor by which turns are shorter; a power of two.
    pub shorter: u32,
}

impl Effort {
    /// A quick estimate: about a tenth of the time, and ratios with one reliable digit.
    pub const QUICK: Self = Self { rounds: 5, shorter: 4 };
}

/// Returns nanoseconds per decision, as an average over the threads, for each contestant and round.
pub fn take<K: Key>(
    contestants: &[Contestant<K>],
    threads: usize,
    effort: Effort,
) -> Vec<Vec<f64>> {
    let mut times = vec![Vec::with_capacity(effort.rounds); contestants.len()];
    let mut turn = 0;
    // The first round warms up.
    for round in 0..=effort.rounds {
        for (contestant, times) in contestants.iter().zip(&mut times) {
            let nanos = measure(contestant, threads, turn, effort);
            turn += threads;
            if round > 0 {
                times.push(nanos);
            }
        }
    }
    times
}

fn measure<K: Key>(contestant: &Contestant<K>, threads: usize, turn: usize, effort: Effort) -> f64 {
    let barrier = Barrier::new(threads);
    let count = contestant.turn / effort.shorter;
    let run = |turn: usize| {
        barrier.wait();
        let start = clock::now();
        let admitted = contestant.traffic.ask(&contestant.decide, turn, count);
        let elapsed = start.elapsed();
        assert_eq!(admitted, count, "{} denied a request", contestant.name);
        elapsed
    };
    let total: Duration = std::thread::scope(|scope| {
        let run = &run;
        let others: Vec<_> =
            (1..threads).map(|thread| scope.spawn(move || run(turn + thread))).collect();
        let own = run(turn);
        others.into_iter().map(|other| other.join().expect("it does not panic")).sum::<Duration>()
            + own
    });
    let decisions: f64 = (0..threads).map(|_| f64::from(count)).sum();
    total.as_secs_f64() * 1e9 / decisions
}
