//! Tidegate's keyed limiter. Only this file calls its API.

use crate::entrant::{Decide, Entrant, Setup, one_by_one};
use crate::traffic::Key;
use std::hint::black_box;
use tidegate::{Decision, Limiter};

/// Its name in tables and targets.
pub const NAME: &str = "tidegate";
/// Its name when it decides in batches.
pub const BATCHED: &str = "tidegate, batch of 64";

const BATCH: usize = 64;

/// Returns tidegate's entrants: one key at a time, and in batches.
pub fn entrants<K: Key>() -> [Entrant<K>; 2] {
    let single = Entrant {
        name: NAME,
        keys_max: u32::MAX,
        turn: Entrant::<K>::TURN,
        build: |setup| single(&rule(setup), setup.keys),
    };
    let batched = Entrant { name: BATCHED, build: batched, ..single };
    [single, batched]
}

/// Builds a limiter with any rule that decides one key at a time.
pub fn single<K: Key>(rule: &str, keys: u32) -> Decide<K> {
    let limiter = limiter(rule, keys);
    one_by_one(move |key| limiter.check(key).is_allow())
}

fn batched<K: Key>(setup: Setup) -> Decide<K> {
    let limiter = limiter(&rule(setup), setup.keys);
    Box::new(move |keys, order| {
        let mut admitted = 0;
        let mut batch = limiter.batch();
        for places in order.chunks(BATCH) {
            for place in places {
                batch.push(&keys[*place as usize], 1);
            }
            admitted += black_box(batch.decide()).iter().map(allowed).sum::<u32>();
        }
        admitted
    })
}

fn allowed(decision: &Decision) -> u32 {
    u32::from(decision.is_allow())
}

/// Builds a limiter for this many keys.
fn limiter(rule: &str, keys: u32) -> Limiter {
    Limiter::builder(rule.parse().expect("a valid rule")).max_keys(keys as usize).build()
}

fn rule(setup: Setup) -> String {
    format!("{}/h burst {}", setup.limit.per_hour, setup.limit.burst)
}
