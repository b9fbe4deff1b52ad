//! The limiters to compare, and the limit that they enforce.
//!
//! Always   No key reaches the limit, so that all limiters do the same work: look up the key, charge it, admit the request.
//!          The limit refills so slowly that no key recovers during a measurement.

use std::hint::black_box;

/// Checks `keys[order[0]]`, `keys[order[1]]`, …, and returns how many requests were admitted.
pub type Decide<K> = Box<dyn Fn(&[K], &[u32]) -> u32 + Send + Sync>;

/// A rate and a burst, which each entrant expresses in its own terms.
#[derive(Clone, Copy)]
pub struct Limit {
    /// Requests per hour.
    pub per_hour: u32,
    /// Requests that are admitted at once.
    pub burst: u32,
}

impl Limit {
    /// For one key that is checked all the time: it never has a full bucket again.
    pub const ONE_KEY: Self = Self { per_hour: 3_600_000, burst: 100_000_000 };
    /// For many keys: each is in debt for two minutes after a single request.
    pub const MANY_KEYS: Self = Self { per_hour: 30, burst: 2_000_000 };
}

/// The parameters to build a limiter with.
#[derive(Clone, Copy)]
pub struct Setup {
    /// The limit, the same for all entrants.
    pub limit: Limit,
    /// The number of keys.
    pub keys: u32,
}

/// A limiter to compare, not built yet.
pub struct Entrant<K> {
    /// Its name in tables.
    pub name: &'static str,
    /// Maximum number of keys to measure it with; with more it would be too slow or too large.
    pub keys_max: u32,
    /// Number of decisions in its turn; a power of two.
    pub turn: u32,
    /// Builds it, empty.
    pub build: fn(Setup) -> Decide<K>,
}

impl<K> Entrant<K> {
    /// Decisions in the turn of an entrant that is not slow.
    pub const TURN: u32 = 1 << 18;
}

/// Makes a [`Decide`] that checks the keys one by one.
pub fn one_by_one<K: 'static>(check: impl Fn(&K) -> bool + Send + Sync + 'static) -> Decide<K> {
    Box::new(move |keys, order| {
        let mut admitted = 0;
        for place in order {
            admitted += u32::from(black_box(check(&keys[*place as usize])));
        }
        admitted
    })
}
