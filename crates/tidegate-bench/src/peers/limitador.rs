//! limitador with its storage in memory: a fixed window for each key, in a moka cache.
//!
//! The key is a variable in a context that every caller has to create, which is most of the cost.

use crate::entrant::{Decide, Entrant, Setup, one_by_one};
use limitador::RateLimiter;
use limitador::limit::{Context, Limit, Namespace};
use std::collections::HashMap;

const VARIABLE: &str = "key";
const WINDOW_SECS: u64 = 3_600;

pub(super) fn entrant() -> Entrant<String> {
    Entrant { name: "limitador", keys_max: 1_000_000, turn: 1 << 13, build }
}

fn build(setup: Setup) -> Decide<String> {
    // Beyond this number it evicts keys, in debt or not.
    let limiter = RateLimiter::new(2 * u64::from(setup.keys));
    let namespace = Namespace::from("bench");
    let variable = VARIABLE.try_into().expect("a variable's name");
    let burst = u64::from(setup.limit.burst);
    limiter.add_limit(Limit::new(namespace.clone(), burst, WINDOW_SECS, [], [variable]));
    one_by_one(move |key: &String| {
        let context = Context::from(HashMap::from([(VARIABLE.to_owned(), key.clone())]));
        let result = limiter
            .check_rate_limited_and_update(&namespace, &context, 1)
            .expect("the limit is valid");
        !result.limited
    })
}
