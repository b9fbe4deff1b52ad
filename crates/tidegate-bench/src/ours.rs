//! Tidegate's keyed limiter: the only file here that knows how it is called.

use crate::entrant::{Decide, Entrant, Setup, one_by_one};
use crate::traffic::Key;
use std::hint::black_box;
use tidegate::{Decision, Limiter};

/// Its name in tables and targets.
pub const NAME: &str = "tidegate";
/// The same, asked in batches.
pub const BATCHED: &str = "tidegate, batch of 64";

const BATCH: usize = 64;

/// One key at a time, and in batches.
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

/// One key at a time, under any rule.
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

/// A limiter for so many keys.
fn limiter(rule: &str, keys: u32) -> Limiter {
    Limiter::builder(rule.parse().expect("a good rule")).max_keys(keys as usize).build()
}

fn rule(setup: Setup) -> String {
    format!("{}/h burst {}", setup.limit.per_hour, setup.limit.burst)
}
