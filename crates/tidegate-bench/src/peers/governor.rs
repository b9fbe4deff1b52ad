//! governor's keyed limiter: GCRA in a dashmap with the standard library's `SipHash`.

use crate::entrant::{Decide, Entrant, Setup, one_by_one};
use crate::traffic::Key;
use governor::{Quota, RateLimiter};
use std::num::NonZeroU32;

pub(super) const NAME: &str = "governor";

pub(super) fn entrant<K: Key>() -> Entrant<K> {
    Entrant { name: NAME, keys_max: u32::MAX, turn: Entrant::<K>::TURN, build }
}

fn build<K: Key>(setup: Setup) -> Decide<K> {
    let count = |number| NonZeroU32::new(number).expect("limits are not zero");
    let quota = Quota::per_hour(count(setup.limit.per_hour)).allow_burst(count(setup.limit.burst));
    let limiter = RateLimiter::keyed(quota);
    one_by_one(move |key| limiter.check_key(key).is_ok())
}
