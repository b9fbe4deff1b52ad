//! Everybody takes a turn, round after round, so that a machine that slows down slows all of them.
//!
//! Always   No two turns in a row ask for the same keys: what one has brought into the cache is no
//!          gift to the next.

use crate::clock;
use crate::entrant::{Decide, Entrant, Setup};
use crate::traffic::{Key, Traffic};
use std::sync::{Arc, Barrier};
use std::time::Duration;

/// One who takes part, built and filled, with the requests it is to answer.
pub struct Contestant<K> {
    /// What the table calls it.
    pub name: &'static str,
    turn: u32,
    decide: Decide<K>,
    traffic: Arc<Traffic<K>>,
}

impl<K: Key> Contestant<K> {
    /// Builds it and makes all keys known to it.
    ///
    /// # Panics
    ///
    /// If it refuses one: its times would be those of refusals.
    pub fn new(entrant: &Entrant<K>, setup: Setup, traffic: &Arc<Traffic<K>>) -> Self {
        let decide = (entrant.build)(setup);
        assert!(traffic.fill(&decide), "{} does not take so many keys", entrant.name);
        Self { name: entrant.name, turn: entrant.turn, decide, traffic: Arc::clone(traffic) }
    }
}

/// How much is measured.
#[derive(Clone, Copy)]
pub struct Effort {
    /// How often everybody takes a turn that counts.
    pub rounds: usize,
    /// A turn is shorter by this factor; a power of two.
    pub shorter: u32,
}

impl Effort {
    /// For a look: a tenth of the time, and ratios that are good for one digit.
    pub const QUICK: Self = Self { rounds: 5, shorter: 4 };
}

/// Nanoseconds per decision on each of the threads: for each contestant, for each round.
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
        assert_eq!(admitted, count, "{} refused somebody", contestant.name);
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
