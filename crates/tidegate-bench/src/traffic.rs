//! Keys, and the order in which they are checked, prepared before any time is measured.
//!
//! Always   Key number n is the same in every run, and looks unlike keys n - 1 and n + 1.

use crate::entrant::Decide;
use crate::zipf::{Zipf, mix, uniform};
use std::hash::Hash;

/// Number of prepared requests, which are used again and again. A power of two, so that it is a multiple of a turn.
pub const ORDER_LENGTH: u32 = 1 << 21;

/// Keys that are made at a time to fill a limiter: few, so that they do not count in its memory.
const FILL_CHUNK: u32 = 1 << 10;

/// Coprime with every number of keys, so that popular keys are not adjacent.
const STRIDE: u64 = 2_654_435_761;

/// A type of key.
pub trait Key: Hash + Eq + Clone + Send + Sync + 'static {
    /// Its name on the command line.
    const WORD: &'static str;

    /// Returns the key with this number.
    fn numbered(number: u32) -> Self;
}

impl Key for u64 {
    const WORD: &'static str = "u64";

    fn numbered(number: u32) -> Self {
        mix(u64::from(number))
    }
}

/// Twenty digits, as many as the largest `u64` has.
impl Key for String {
    const WORD: &'static str = "string";

    fn numbered(number: u32) -> Self {
        format!("{:020}", mix(u64::from(number)))
    }
}

/// How often each key is checked.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Spread {
    /// All equally often.
    Uniform,
    /// The r-th most popular key with a share proportional to 1 / r.
    Zipf,
}

/// Where a key is in memory when it is checked.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum KeyLayout {
    /// At its own address: reading it is a cache miss, for all limiters alike.
    Scattered,
    /// Next to the previous one, as if it had just been read from a request.
    Fresh,
}

/// Requests: `keys[order[0]]`, `keys[order[1]]`, …
pub struct Traffic<K> {
    /// Number of different keys.
    live: u32,
    keys: Vec<K>,
    order: Vec<u32>,
}

impl<K: Key> Traffic<K> {
    /// Prepares requests for `live` keys.
    pub fn new(live: u32, spread: Spread, layout: KeyLayout) -> Self {
        let numbers: Vec<u32> = match spread {
            Spread::Uniform => (0..ORDER_LENGTH).map(|n| uniform(n, live)).collect(),
            Spread::Zipf => {
                let zipf = Zipf::new(live);
                (0..ORDER_LENGTH).map(|n| scatter(zipf.rank(n), live)).collect()
            }
        };
        match layout {
            KeyLayout::Scattered => {
                Self { live, keys: (0..live).map(K::numbered).collect(), order: numbers }
            }
            KeyLayout::Fresh => {
                let keys = numbers.into_iter().map(K::numbered).collect();
                Self { live, keys, order: (0..ORDER_LENGTH).collect() }
            }
        }
    }

    /// Checks every key once, so that the limiter stores all of them, and returns whether all were admitted.
    pub fn fill(&self, decide: &Decide<K>) -> bool {
        fill(self.live, decide) == self.live
    }

    /// Makes the requests of group number `turn` of `count` requests, and returns how many were admitted.
    pub fn ask(&self, decide: &Decide<K>, turn: usize, count: u32) -> u32 {
        let groups = (ORDER_LENGTH / count) as usize;
        let start = turn % groups * count as usize;
        decide(&self.keys, &self.order[start..start + count as usize])
    }
}

/// Checks each of the keys with numbers below `live` once, and returns how many were admitted.
pub fn fill<K: Key>(live: u32, decide: &Decide<K>) -> u32 {
    let order: Vec<u32> = (0..FILL_CHUNK.min(live)).collect();
    let mut keys = Vec::with_capacity(order.len());
    let mut admitted = 0;
    for start in (0..live).step_by(FILL_CHUNK as usize) {
        let end = live.min(start + FILL_CHUNK);
        keys.clear();
        keys.extend((start..end).map(K::numbered));
        admitted += decide(&keys, &order[..keys.len()]);
    }
    admitted
}

#[expect(clippy::cast_possible_truncation, reason = "it is below `live`, which fits")]
fn scatter(rank: u32, live: u32) -> u32 {
    (u64::from(rank) * STRIDE % u64::from(live)) as u32
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::{HashMap, HashSet};
    use std::sync::{Arc, Mutex};

    /// Returns a limiter that records the keys it is asked for.
    fn listener() -> (Decide<String>, Arc<Mutex<Vec<String>>>) {
        let heard = Arc::new(Mutex::new(Vec::new()));
        let ear = Arc::clone(&heard);
        let decide: Decide<String> = Box::new(move |keys, order| {
            let asked = order.iter().map(|place| keys[*place as usize].clone());
            ear.lock().unwrap().extend(asked);
            u32::try_from(order.len()).unwrap()
        });
        (decide, heard)
    }

    #[test]
    fn a_string_key_has_twenty_bytes_and_no_double() {
        let keys: HashSet<String> = (0..10_000).map(String::numbered).collect();
        assert_eq!(keys.len(), 10_000);
        assert!(keys.iter().all(|key| key.len() == 20));
    }

    #[test]
    fn filling_asks_once_for_every_key() {
        let (decide, heard) = listener();
        assert_eq!(fill(3_000, &decide), 3_000);
        let heard = heard.lock().unwrap();
        assert_eq!(heard.len(), 3_000);
        assert_eq!(heard.iter().collect::<HashSet<_>>().len(), 3_000);
    }

    #[test]
    fn fresh_and_scattered_keys_are_asked_for_in_the_same_order() {
        let asked = |place| {
            let (decide, heard) = listener();
            Traffic::new(100, Spread::Zipf, place).ask(&decide, 3, 1 << 10);
            heard.lock().unwrap().clone()
        };
        assert_eq!(asked(KeyLayout::Fresh), asked(KeyLayout::Scattered));
    }

    #[test]
    fn popular_keys_are_scattered_and_stay_different() {
        let places: HashMap<u32, u32> =
            (0..1_000).map(|rank| (scatter(rank, 1_000), rank)).collect();
        assert_eq!(places.len(), 1_000);
    }
}
