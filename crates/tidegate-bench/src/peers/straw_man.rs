//! The simplest implementation: token buckets in a hash map behind a mutex.

use crate::clock;
use crate::entrant::{Decide, Entrant, Setup, one_by_one};
use crate::traffic::Key;
use std::collections::HashMap;
use std::sync::Mutex;
use std::time::Instant;

pub(super) fn entrant<K: Key>() -> Entrant<K> {
    Entrant { name: "Mutex<HashMap>", keys_max: 1_000_000, turn: Entrant::<K>::TURN, build }
}

struct Bucket {
    available: f64,
    at: Instant,
}

fn build<K: Key>(setup: Setup) -> Decide<K> {
    let burst = f64::from(setup.limit.burst);
    let per_second = f64::from(setup.limit.per_hour) / 3_600.0;
    let buckets: Mutex<HashMap<K, Bucket>> = Mutex::default();
    one_by_one(move |key: &K| {
        let mut buckets = buckets.lock().expect("no thread panicked");
        let now = clock::now();
        if let Some(bucket) = buckets.get_mut(key) {
            let elapsed = now.duration_since(bucket.at).as_secs_f64();
            bucket.available = burst.min(bucket.available + elapsed * per_second);
            bucket.at = now;
            let is_admitted = bucket.available >= 1.0;
            if is_admitted {
                bucket.available -= 1.0;
            }
            return is_admitted;
        }
        buckets.insert(key.clone(), Bucket { available: burst - 1.0, at: now });
        true
    })
}
