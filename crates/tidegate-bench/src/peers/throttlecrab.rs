//! throttlecrab's library: GCRA in a map of strings, which needs a lock to be shared.
//!
//! The adaptive store sweeps the whole map on every request while the map is more than three quarters full, so it needs
//! the number of keys in advance to get through a million.

use crate::clock;
use crate::entrant::{Decide, Entrant, Setup, one_by_one};
use std::sync::Mutex;
use throttlecrab::{AdaptiveStore, PeriodicStore, RateLimiter, Store};

const PERIOD_SECS: i64 = 3_600;

pub(super) fn entrants() -> [Entrant<String>; 2] {
    let periodic = Entrant {
        name: "throttlecrab periodic",
        keys_max: 10_000_000,
        turn: 1 << 17,
        build: |setup| build(PeriodicStore::with_capacity(setup.keys as usize), setup),
    };
    let adaptive = Entrant {
        name: "throttlecrab adaptive",
        keys_max: 1_000_000,
        turn: 1 << 17,
        build: |setup| build(AdaptiveStore::with_capacity(setup.keys as usize), setup),
    };
    [periodic, adaptive]
}

fn build(store: impl Store + Send + 'static, setup: Setup) -> Decide<String> {
    let limiter = Mutex::new(RateLimiter::new(store));
    let (burst, count) = (i64::from(setup.limit.burst), i64::from(setup.limit.per_hour));
    one_by_one(move |key: &String| {
        let mut limiter = limiter.lock().expect("no thread panicked");
        let now = clock::time_of_day();
        let (is_admitted, _) =
            limiter.rate_limit(key, burst, count, PERIOD_SECS, 1, now).expect("the limit is valid");
        is_admitted
    })
}
