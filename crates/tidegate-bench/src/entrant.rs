//! Who takes part, and under which limit.
//!
//! Always   The limit is one that nobody reaches, so that everybody does the same: look the key up,
//!          charge it, admit it. It is so slow that no key recovers while it is measured.

use std::hint::black_box;

/// Asks for `keys[order[0]]`, `keys[order[1]]`, …; tells how many were admitted.
pub type Decide<K> = Box<dyn Fn(&[K], &[u32]) -> u32 + Send + Sync>;

/// A rate and a burst, in the words of nobody in particular.
#[derive(Clone, Copy)]
pub struct Limit {
    /// How many come back in an hour.
    pub per_hour: u32,
    /// How many pass at once.
    pub burst: u32,
}

impl Limit {
    /// For one key that is asked for all the time: it never catches up.
    pub const ONE_KEY: Self = Self { per_hour: 3_600_000, burst: 100_000_000 };
    /// For many keys: each is in debt for two minutes after a single request.
    pub const MANY_KEYS: Self = Self { per_hour: 30, burst: 2_000_000 };
}

/// What a limiter is built for.
#[derive(Clone, Copy)]
pub struct Setup {
    /// The same for everybody.
    pub limit: Limit,
    /// How many keys there will be.
    pub keys: u32,
}

/// One who takes part, not built yet.
pub struct Entrant<K> {
    /// What the table calls it.
    pub name: &'static str,
    /// With more keys it would be too slow or too large to wait for.
    pub keys_max: u32,
    /// How many decisions its turn has; a power of two.
    pub turn: u32,
    /// Builds it, empty.
    pub build: fn(Setup) -> Decide<K>,
}

impl<K> Entrant<K> {
    /// Decisions in the turn of one who is not slow.
    pub const TURN: u32 = 1 << 18;
}

/// Asks for each key by itself.
pub fn one_by_one<K: 'static>(check: impl Fn(&K) -> bool + Send + Sync + 'static) -> Decide<K> {
    Box::new(move |keys, order| {
        let mut admitted = 0;
        for place in order {
            admitted += u32::from(black_box(check(&keys[*place as usize])));
        }
        admitted
    })
}
