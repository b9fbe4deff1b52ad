//! pingora-limits' `Rate`: a count-min sketch. It stores no keys, so it is fast and small with any number of them, and
//! may count different keys together.

use crate::entrant::{Decide, Entrant, Setup, one_by_one};
use crate::traffic::Key;
use pingora_limits::rate::Rate;
use std::time::Duration;

pub(super) fn entrant<K: Key>() -> Entrant<K> {
    Entrant { name: "pingora-limits", keys_max: 1_000_000, turn: Entrant::<K>::TURN, build }
}

fn build<K: Key>(setup: Setup) -> Decide<K> {
    let rate = Rate::new(Duration::from_secs(3_600));
    let burst = isize::try_from(setup.limit.burst).expect("a burst is not that large");
    one_by_one(move |key| rate.observe(key, 1) <= burst)
}
