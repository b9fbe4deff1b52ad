//! Fingerprints of keys, under which a store keeps their states.
//!
//! Always   A fingerprint is 128 bits of SipHash-1-3 with a secret of the store. A client that chooses keys can choose
//!          neither their rows nor collisions: two keys share a fingerprint with probability 2^-127.

use siphasher::sip128::{Hasher128, SipHasher13};
use std::hash::{BuildHasher, Hash, Hasher, RandomState};

/// A hashed key. The high half determines its shard and its row. It is never zero, because zero marks an empty row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Fingerprint {
    pub(crate) high: u64,
    pub(crate) low: u64,
}

impl Fingerprint {
    /// Returns the fingerprint as one number.
    pub(crate) fn number(self) -> u128 {
        u128::from(self.high) << 64 | u128::from(self.low)
    }

    /// Returns an index below `len` that grows with the fingerprint. A fingerprint is a random number, so every index is
    /// as likely as any other.
    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "it is below `len`")]
    pub(in crate::store) fn index_in(self, len: usize) -> usize {
        ((u128::from(self.high) * len as u128) >> 64) as usize
    }

    #[inline]
    pub(crate) fn new(high: u64, low: u64) -> Self {
        Self { high: high.max(1), low }
    }
}

impl Hash for Fingerprint {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        hasher.write_u64(self.low);
    }
}

/// The secret of the hash. Every limiter generates its own; a snapshot contains it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Secret {
    pub(crate) words: [u64; 2],
}

impl Secret {
    pub(crate) fn random() -> Self {
        // The random keys of the standard library come from the operating system.
        let word = || RandomState::new().hash_one(0);
        Self::new([word(), word()])
    }

    pub(crate) fn new(words: [u64; 2]) -> Self {
        Self { words }
    }

    #[inline]
    pub(crate) fn of<K: Hash + ?Sized>(&self, key: &K) -> Fingerprint {
        let mut hasher = SipHasher13::new_with_keys(self.words[0], self.words[1]);
        key.hash(&mut hasher);
        let hash = hasher.finish128();
        Fingerprint::new(hash.h1, hash.h2)
    }
}

/// A fingerprint is a hash already.
#[derive(Clone, Copy, Default)]
pub(crate) struct FingerprintHasher(u64);

impl Hasher for FingerprintHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = self.0.rotate_left(8) ^ u64::from(*byte);
        }
    }

    fn write_u64(&mut self, word: u64) {
        self.0 = word;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEYS: u64 = 1 << 14;
    const LEN: usize = 256;
    /// The multiplier of `FxHash`, and its multiplicative inverse.
    const FX: u64 = 0x517c_c1b7_2722_0a95;
    const INVERSE_OF_FX: u64 = 0x2040_003d_7809_70bd;

    const SECRETS: [[u64; 2]; 3] = [[0, 0], [1, 2], [0x0123_4567_89ab_cdef, u64::MAX]];

    /// Maps a fingerprint to one of [`LEN`] indexes.
    type Placement = fn(Fingerprint) -> usize;

    const PLACES: [(&str, Placement); 3] = [
        ("the row", |key| key.index_in(LEN)),
        ("the shard", |key| usize::try_from(key.high).unwrap() % LEN),
        ("the hot cell", |key| usize::try_from(key.low >> 56).unwrap()),
    ];

    /// Returns keys by their number.
    type Keys = fn(u64) -> u64;

    /// Returns keys that hashes without a secret would map to adjacent indexes, or to the same one.
    const CHOSEN: [(&str, Keys); 6] = [
        ("small numbers", |n| n),
        ("equal low bits", |n| n << 40),
        ("equal low bits of FxHash", |n| INVERSE_OF_FX.wrapping_mul(n << 40)),
        ("equal high bits of FxHash", |n| INVERSE_OF_FX.wrapping_mul(n)),
        ("a stride as long as a table", |n| n * 131_072),
        ("one bit or two", |n| 1 << (n % 64) | 1_u64.rotate_left(u32::try_from(n / 64).unwrap())),
    ];

    fn places(secret: Secret, place: Placement, key: Keys) -> Vec<usize> {
        let mut keys: Vec<u64> = (0..KEYS).map(key).collect();
        keys.sort_unstable();
        keys.dedup();
        keys.iter().map(|key| place(secret.of(key))).collect()
    }

    /// A snapshot contains fingerprints: with its secret, a later version must find the same keys.
    #[test]
    fn fingerprints_are_the_same_in_every_version() {
        let secret = Secret::new([0x0706_0504_0302_0100, 0x0f0e_0d0c_0b0a_0908]);
        assert_eq!(secret.of("alice").number(), 0x590c_b4d0_5695_4890_3798_d7d6_f0da_2dcf);
        assert_eq!(secret.of(&7_u64).number(), 0x3071_0c40_3b90_4d5f_5d34_5523_e6f5_bcdc);
        assert_eq!(
            secret.of(&b"192.0.2.7"[..]).number(),
            0x9676_a093_aff7_72b5_b92c_9620_95c7_b081
        );
        assert_eq!(
            secret.of(&("tenant", 3_u16, 'x')).number(),
            0x658e_2a57_17cf_0303_515a_a336_bba6_4eb4
        );
    }

    #[test]
    fn the_inverse_is_one() {
        assert_eq!(INVERSE_OF_FX.wrapping_mul(FX), 1);
    }

    /// T43 without timing: no index has more keys than its share plus six standard deviations.
    #[test]
    fn chosen_keys_are_spread_over_all_indexes() {
        for secret in SECRETS.map(Secret::new) {
            for ((where_, place), (name, key)) in
                PLACES.into_iter().flat_map(|place| CHOSEN.map(|chosen| (place, chosen)))
            {
                let (mut counts, places) = ([0; LEN], places(secret, place, key));
                for place in &places {
                    counts[*place] += 1;
                }
                let (share, fullest) = (places.len() / LEN, counts.into_iter().max().unwrap());
                assert!(fullest <= share + 6 * (share.isqrt() + 1), "{where_}, {name}: {fullest}");
            }
        }
    }

    // T43.
    /// Keys that collide in one table say nothing about another table: neither the same keys nor the same pairs collide, as
    /// they would if a secret were only added to a hash without one.
    #[test]
    fn keys_that_collide_under_one_secret_do_not_under_another() {
        let [one, other, _] = SECRETS.map(Secret::new);
        for ((where_, place), (name, key)) in
            PLACES.into_iter().flat_map(|place| CHOSEN.map(|chosen| (place, chosen)))
        {
            let (here, there) = (places(one, place, key), places(other, place, key));
            let same = here.iter().zip(&there).filter(|(here, there)| here == there).count();
            let share = here.len() / LEN;
            assert!(same <= share + 6 * (share.isqrt() + 1), "{where_}, {name}: {same}");
            // The last key of each index, paired with the next one.
            let mut last = [None; LEN];
            let pairs: Vec<(usize, usize)> = (0..here.len())
                .filter_map(|n| last[here[n]].replace(n).map(|before| (before, n)))
                .collect();
            let both = pairs.iter().filter(|(a, b)| there[*a] == there[*b]).count();
            assert!(both <= share + 6 * (share.isqrt() + 1), "{where_}, {name}: {both} pairs");
        }
    }
}
