//! Keys as fingerprints: what a table remembers of a key.
//!
//! Always   A fingerprint is 128 bits of SipHash-1-3 under a secret that only this table knows. Whoever
//!          chooses keys can choose neither where they fall nor which of them are taken for each
//!          other: two keys share a fingerprint with probability 2^-127.

use super::sip::Sip;
use std::hash::{BuildHasher, Hash, Hasher, RandomState};

/// A key, hashed. The high half says where it lies, so it is never zero: that is an empty place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Fingerprint {
    pub(crate) high: u64,
    pub(crate) low: u64,
}

impl Fingerprint {
    /// Which of so many homes it has: a fingerprint is a random number, so this is as good as any.
    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "it is below `homes`")]
    pub(super) fn home(self, homes: usize) -> usize {
        ((u128::from(self.high) * homes as u128) >> 64) as usize
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

/// Makes fingerprints.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Secret {
    pub(crate) words: [u64; 2],
    /// What every hash begins with.
    keyed: [u64; 4],
}

impl Secret {
    pub(crate) fn random() -> Self {
        // The standard library's random keys, which come from the system.
        let word = || RandomState::new().hash_one(0);
        Self::new([word(), word()])
    }

    pub(crate) fn new(words: [u64; 2]) -> Self {
        Self { words, keyed: Sip::keyed(words) }
    }

    #[inline]
    pub(crate) fn of<K: Hash + ?Sized>(&self, key: &K) -> Fingerprint {
        let mut hasher = Sip::begin(self.keyed);
        key.hash(&mut hasher);
        let [high, low] = hasher.finish128();
        Fingerprint::new(high, low)
    }
}

/// A fingerprint is a hash already.
#[derive(Clone, Copy, Default)]
pub(crate) struct Hashed(u64);

impl Hasher for Hashed {
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
