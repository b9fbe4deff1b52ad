//! The last key that a thread found in a hot cell: who asks about it again need not hash it again.
//!
//! Half of a decision about a hot key is its hash. A key is known by the bytes that it would have hashed,
//! so nothing is taken for it that has another fingerprint.
//!
//! State    For each thread: the store, the bytes, the fingerprint.
//! Always   Two tables have different numbers, in all of a process's life.

use crate::store::fingerprint::Fingerprint;
use std::cell::Cell;
use std::hash::{Hash, Hasher};

/// The bytes that a key hashes, if there are few: those of the first piece, and up to eight more after it; or eight
/// before it, which is how slices begin.
#[derive(Debug, Default)]
pub(super) struct Written {
    first: [u64; 4],
    more: u64,
    /// How many bytes the first piece has, and how many more there are, or [`BEFORE`].
    first_len: u32,
    more_len: u32,
    /// There was more; or somebody has asked for a hash in between, of which nobody knows what it has to do
    /// with the rest.
    is_spoilt: Cell<bool>,
}

/// A first piece of more bytes is not written down.
const FIRST_MAX: usize = 32;
/// Eight more bytes, before the first piece.
const BEFORE: u32 = 8 << 8;

impl Written {
    #[inline]
    pub(super) fn by<K: Hash + ?Sized>(key: &K) -> Self {
        let mut written = Self::default();
        key.hash(&mut written);
        written
    }

    /// Adds up to eight bytes, which are the lowest of this word; the others are zero.
    #[inline]
    fn add(&mut self, word: u64, len: u32) {
        if self.first_len == 0 && self.more_len == 0 {
            (self.first[0], self.first_len) = (word, len);
        } else if self.more_len + len <= 8 {
            self.more |= word.checked_shl(self.more_len * 8).unwrap_or(0);
            self.more_len += len;
        } else {
            self.is_spoilt.set(true);
        }
    }

    /// Everything in words.
    #[inline]
    fn words(&self, store: u64) -> [u64; 7] {
        let [a, b, c, d] = self.first;
        let lens = u64::from(self.first_len) << 32 | u64::from(self.more_len);
        [store, a, b, c, d, self.more, lens]
    }
}

/// Less than eight bytes as a word, the first one lowest.
#[inline]
fn word(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte))
}

impl Hasher for Written {
    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "it was looked at")]
    fn write(&mut self, bytes: &[u8]) {
        let len = bytes.len();
        // By their number, the first and the last ones are all: those in the middle may be both.
        let first_and_last = |bytes: &[u8]| {
            let (first, last) = (bytes.first_chunk::<8>(), bytes.last_chunk::<8>());
            [first, last].map(|bytes| bytes.map_or(0, |bytes| u64::from_le_bytes(*bytes)))
        };
        if len < 8 {
            return self.add(word(bytes), len as u32);
        }
        match (self.first_len, self.more_len) {
            _ if len > FIRST_MAX => return self.is_spoilt.set(true),
            (0, 0) => {}
            // The length of a slice.
            (8, 0) => (self.more, self.more_len) = (self.first[0], BEFORE),
            _ => return self.is_spoilt.set(true),
        }
        self.first_len = len as u32;
        let (start, end) =
            if len < 16 { (bytes, bytes) } else { (&bytes[..16], &bytes[len - 16..]) };
        let ([a, b], [c, d]) = (first_and_last(start), first_and_last(end));
        self.first = [a, b, c, d];
    }

    #[inline]
    fn write_u8(&mut self, byte: u8) {
        self.add(u64::from(byte), 1);
    }

    #[inline]
    fn write_u32(&mut self, word: u32) {
        self.add(u64::from(word.to_le()), 4);
    }

    #[inline]
    fn write_u64(&mut self, word: u64) {
        self.add(word.to_le(), 8);
    }

    fn finish(&self) -> u64 {
        self.is_spoilt.set(true);
        0
    }
}

thread_local! {
    /// What was written, in words, and its fingerprint. No table has the number zero.
    static LAST: Cell<([u64; 7], Fingerprint)> =
        const { Cell::new(([0; 7], Fingerprint { high: 1, low: 0 })) };
}

/// The fingerprint of what was written, if this thread remembers it for this store.
// Not inlined: from another crate, what belongs to a thread is reached by two calls.
#[inline(never)]
pub(super) fn recall(store: u64, written: &Written) -> Option<Fingerprint> {
    let (known, key) = LAST.get();
    let pairs = known.into_iter().zip(written.words(store));
    // Not by `==`, which is a call to compare memory.
    let difference = pairs.fold(0, |difference, (one, other)| difference | (one ^ other));
    (difference == 0 && !written.is_spoilt.get()).then_some(key)
}

/// Remembers a fingerprint instead of the one before.
#[inline(never)]
pub(super) fn remember(store: u64, written: &Written, key: Fingerprint) {
    if !written.is_spoilt.get() {
        LAST.set((written.words(store), key));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use proptest::strategy::ValueTree;
    use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};

    /// A key that hashes these bytes in pieces of such lengths, some of them as numbers.
    #[derive(Debug)]
    struct Pieces {
        bytes: Vec<u8>,
        lens: Vec<(usize, bool)>,
    }

    impl Hash for Pieces {
        fn hash<H: Hasher>(&self, hasher: &mut H) {
            let mut left = self.bytes.as_slice();
            for (len, is_number) in &self.lens {
                let (piece, after) = left.split_at((*len).min(left.len()));
                left = after;
                match piece {
                    [byte] if *is_number => hasher.write_u8(*byte),
                    &[a, b, c, d] if *is_number => {
                        hasher.write_u32(u32::from_ne_bytes([a, b, c, d]));
                    }
                    piece => match <[u8; 8]>::try_from(piece) {
                        Ok(eight) if *is_number => hasher.write_u64(u64::from_ne_bytes(eight)),
                        _ => hasher.write(piece),
                    },
                }
            }
            hasher.write(left);
        }
    }

    /// Few values and few lengths, so that two are often alike.
    fn pieces() -> impl Strategy<Value = Pieces> {
        let len = prop_oneof![
            Just(0),
            Just(1),
            Just(4),
            Just(7),
            Just(8),
            Just(9),
            Just(16),
            0..40_usize
        ];
        let bytes = len.clone().prop_flat_map(|len| {
            let byte = prop_oneof![9 => Just(0), 1 => Just(255_u8)];
            proptest::collection::vec(byte, len)
        });
        let lens = proptest::collection::vec((len, any::<bool>()), 0..4);
        (bytes, lens).prop_map(|(bytes, lens)| Pieces { bytes, lens })
    }

    const KEY: Fingerprint = Fingerprint { high: 7, low: 8 };

    fn forget() {
        remember(0, &Written::default(), KEY);
    }

    #[test]
    fn a_key_is_remembered_that_hashes_the_same_bytes_and_no_other() {
        let (mut known, mut alike) = (0, 0);
        let rng = TestRng::deterministic_rng(RngAlgorithm::ChaCha);
        let mut runner = TestRunner::new_with_rng(Config::default(), rng);
        for _ in 0..20_000 {
            let mut draw = || pieces().new_tree(&mut runner).unwrap().current();
            let (one, other) = (draw(), draw());
            let (written, store) = (Written::by(&one), 3);
            forget();
            remember(store, &written, KEY);
            assert_eq!(recall(store, &written).is_some(), !written.is_spoilt.get(), "{one:?}");
            assert_eq!(recall(store + 1, &written), None, "of another table");
            let (is_known, is_alike) =
                (recall(store, &Written::by(&other)).is_some(), one.bytes == other.bytes);
            assert!(is_alike || !is_known, "{one:?} is taken for {other:?}");
            known += u32::from(is_known);
            alike += u32::from(is_alike);
        }
        assert!(known > 100 && alike > known, "{known} of {alike}: else this shows nothing");
    }

    #[test]
    fn a_string_and_bytes_and_a_number_are_remembered_and_none_that_is_nearly_the_same() {
        let store = 9;
        for key in ["alice", "", "12345678", "0123456789abcdef", "203.0.113.7/32", &"x".repeat(32)]
        {
            remember(store, &Written::by(key), KEY);
            assert_eq!(recall(store, &Written::by(key)), Some(KEY), "{key}");
            for end in ["\0", "x", "alice"] {
                assert_eq!(recall(store, &Written::by(&format!("{key}{end}"))), None, "{key}{end}");
            }
        }
        remember(store, &Written::by(&"x".repeat(33)), KEY);
        assert_eq!(recall(store, &Written::by(&"x".repeat(33))), None, "it is too long");
        for key in [&b"alice"[..], b"", b"12345678", b"203.0.113.7/32", &[b'x'; 32]] {
            remember(store, &Written::by(key), KEY);
            assert_eq!(recall(store, &Written::by(key)), Some(KEY), "{key:?}");
            assert_eq!(recall(store, &Written::by(&[key, b"x"].concat()[..])), None, "{key:?}");
            // The same pieces the other way round; of nothing, they are the same bytes.
            let is_same = recall(store, &Written::by(&Reversed(key))).is_some();
            assert_eq!(is_same, key.is_empty(), "{key:?}");
        }
        remember(store, &Written::by(&7_u64), KEY);
        assert_eq!(recall(store, &Written::by(&7_u64)), Some(KEY));
        assert_eq!(recall(store, &Written::by(&(7_u64, 0_u8))), None);
    }

    /// A slice whose length comes last.
    struct Reversed<'a>(&'a [u8]);

    impl Hash for Reversed<'_> {
        fn hash<H: Hasher>(&self, hasher: &mut H) {
            hasher.write(self.0);
            hasher.write_usize(self.0.len());
        }
    }

    #[test]
    fn a_key_that_asks_for_its_own_hash_is_never_remembered() {
        struct Odd;
        impl Hash for Odd {
            fn hash<H: Hasher>(&self, hasher: &mut H) {
                hasher.write_u64(5);
                if hasher.finish() == 1 {
                    hasher.write_u64(6);
                }
            }
        }
        forget();
        remember(1, &Written::by(&Odd), KEY);
        assert_eq!(recall(1, &Written::by(&5_u64)), None);
        remember(1, &Written::by(&5_u64), KEY);
        assert_eq!(recall(1, &Written::by(&Odd)), None);
    }
}
