//! SipHash-1-3 with 128 bits out, as a [`Hasher`] for short keys.
//!
//! Half of a decision about a hot key is its hash, so this is written for what keys are: a few words,
//! a string and its end mark, an integer. It takes a sixth fewer instructions than the crate that it is
//! tested against (docs/decisions/0015-siphash.md).
//!
//! State    Four words, and the bytes that do not fill a word yet.

use std::hash::Hasher;

#[derive(Clone, Copy, Debug)]
pub(in crate::store) struct Sip {
    v: [u64; 4],
    /// The bytes that are not a word yet, from the lowest up; those above are zero.
    tail: u64,
    /// How many bytes there were in all.
    len: u64,
}

#[expect(
    clippy::inline_always,
    reason = "measured: where it is a call, its state goes through memory"
)]
impl Sip {
    /// What every hash with this key begins with.
    pub(in crate::store) fn keyed([key_0, key_1]: [u64; 2]) -> [u64; 4] {
        [
            key_0 ^ 0x736f_6d65_7073_6575,
            // The last byte is how 128 bits differ from 64.
            key_1 ^ 0x646f_7261_6e64_6f6d ^ 0xee,
            key_0 ^ 0x6c79_6765_6e65_7261,
            key_1 ^ 0x7465_6462_7974_6573,
        ]
    }

    /// A hash of nothing yet. The compiler sees that there is no tail, so the first write need not ask.
    #[inline]
    pub(in crate::store) fn begin(v: [u64; 4]) -> Self {
        Self { v, tail: 0, len: 0 }
    }

    /// How many bits of the tail are in use.
    #[inline(always)]
    fn tail_bits(&self) -> u64 {
        self.len % 8 * 8
    }

    #[inline(always)]
    fn round(&mut self) {
        let [v0, v1, v2, v3] = &mut self.v;
        *v0 = v0.wrapping_add(*v1);
        *v2 = v2.wrapping_add(*v3);
        *v1 = v1.rotate_left(13) ^ *v0;
        *v3 = v3.rotate_left(16) ^ *v2;
        *v0 = v0.rotate_left(32);
        *v2 = v2.wrapping_add(*v1);
        *v0 = v0.wrapping_add(*v3);
        *v1 = v1.rotate_left(17) ^ *v2;
        *v3 = v3.rotate_left(21) ^ *v0;
        *v2 = v2.rotate_left(32);
    }

    #[inline(always)]
    fn word(&mut self, word: u64) {
        self.v[3] ^= word;
        self.round();
        self.v[0] ^= word;
    }

    /// Adds a word that does not begin where the last one ended.
    #[inline(always)]
    fn shifted_word(&mut self, word: u64) {
        let bits = self.tail_bits();
        self.word(self.tail | word << bits);
        self.tail = if bits == 0 { 0 } else { word >> (64 - bits) };
    }

    /// Adds up to seven bytes, which are the lowest of this word; the others are zero.
    #[inline(always)]
    fn part(&mut self, part: u64, len: u64) {
        let bits = self.tail_bits();
        self.len = self.len.wrapping_add(len);
        self.tail |= part << bits;
        if bits / 8 + len >= 8 {
            self.word(self.tail);
            // Shifting by all 64 bits is no shift at all in hardware.
            self.tail = if bits == 0 { 0 } else { part >> (64 - bits) };
        }
    }

    #[inline(always)]
    pub(in crate::store) fn finish128(mut self) -> [u64; 2] {
        self.word(self.tail | self.len << 56);
        self.v[2] ^= 0xee;
        let first = self.finalised();
        self.v[1] ^= 0xdd;
        [first, self.finalised()]
    }

    #[inline(always)]
    fn finalised(&mut self) -> u64 {
        self.round();
        self.round();
        self.round();
        self.v[0] ^ self.v[1] ^ self.v[2] ^ self.v[3]
    }
}

impl Hasher for Sip {
    #[inline]
    fn write(&mut self, bytes: &[u8]) {
        let (words, rest) = bytes.as_chunks::<8>();
        for word in words {
            self.shifted_word(u64::from_le_bytes(*word));
        }
        self.len = self.len.wrapping_add(words.len() as u64 * 8);
        // The rest as a word: the end of the last eight bytes, or byte by byte.
        let part = match bytes.last_chunk::<8>() {
            Some(_) if rest.is_empty() => return,
            Some(last) => u64::from_le_bytes(*last) >> (64 - rest.len() * 8),
            None => rest.iter().rev().fold(0, |part, byte| part << 8 | u64::from(*byte)),
        };
        self.part(part, rest.len() as u64);
    }

    #[inline]
    fn write_u8(&mut self, byte: u8) {
        self.part(u64::from(byte), 1);
    }

    #[inline]
    fn write_u32(&mut self, word: u32) {
        self.part(u64::from(word.to_le()), 4);
    }

    #[inline]
    fn write_u64(&mut self, word: u64) {
        self.shifted_word(word.to_le());
        self.len = self.len.wrapping_add(8);
    }

    #[inline]
    fn write_usize(&mut self, word: usize) {
        // As many bytes as it has, like everybody else.
        match size_of::<usize>() {
            8 => self.write_u64(word as u64),
            _ => self.write(&word.to_ne_bytes()),
        }
    }

    fn finish(&self) -> u64 {
        self.finish128()[0]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use siphasher::sip128::{Hasher128, SipHasher13};
    use std::hash::Hash;
    use std::net::IpAddr;

    const KEY: [u64; 2] = [0x0706_0504_0302_0100, 0x0f0e_0d0c_0b0a_0908];

    fn ours(write: impl Fn(&mut dyn Hasher)) -> [u64; 2] {
        let mut sip = Sip::begin(Sip::keyed(KEY));
        write(&mut sip);
        sip.finish128()
    }

    fn theirs(write: impl Fn(&mut dyn Hasher)) -> [u64; 2] {
        let mut sip = SipHasher13::new_with_keys(KEY[0], KEY[1]);
        write(&mut sip);
        let hash = sip.finish128();
        [hash.h1, hash.h2]
    }

    /// A piece of what is hashed, as the standard library hands them over.
    #[derive(Clone, Debug)]
    enum Piece {
        Bytes(Vec<u8>),
        U8(u8),
        U16(u16),
        U32(u32),
        U64(u64),
        U128(u128),
        Usize(usize),
    }

    impl Piece {
        fn write(&self, hasher: &mut dyn Hasher) {
            match self {
                Self::Bytes(bytes) => hasher.write(bytes),
                Self::U8(n) => hasher.write_u8(*n),
                Self::U16(n) => hasher.write_u16(*n),
                Self::U32(n) => hasher.write_u32(*n),
                Self::U64(n) => hasher.write_u64(*n),
                Self::U128(n) => hasher.write_u128(*n),
                Self::Usize(n) => hasher.write_usize(*n),
            }
        }
    }

    fn piece() -> impl Strategy<Value = Piece> {
        prop_oneof![
            prop::collection::vec(any::<u8>(), 0..40).prop_map(Piece::Bytes),
            any::<u8>().prop_map(Piece::U8),
            any::<u16>().prop_map(Piece::U16),
            any::<u32>().prop_map(Piece::U32),
            any::<u64>().prop_map(Piece::U64),
            any::<u128>().prop_map(Piece::U128),
            any::<usize>().prop_map(Piece::Usize),
        ]
    }

    proptest! {
        #[test]
        fn pieces_of_every_size_in_every_order_hash_as_elsewhere(
            pieces in prop::collection::vec(piece(), 0..12),
        ) {
            let write = |hasher: &mut dyn Hasher| pieces.iter().for_each(|piece| piece.write(hasher));
            prop_assert_eq!(ours(write), theirs(write));
        }
    }

    #[test]
    fn every_length_hashes_as_elsewhere() {
        let bytes: Vec<u8> = (0..=255).chain(0..=255).collect();
        for len in 0..bytes.len() {
            let write = |hasher: &mut dyn Hasher| hasher.write(&bytes[..len]);
            assert_eq!(ours(write), theirs(write), "{len} bytes");
        }
    }

    #[test]
    fn keys_as_people_have_them_hash_as_elsewhere() {
        let address: IpAddr = "2001:db8::7".parse().unwrap();
        let write = |mut hasher: &mut dyn Hasher| {
            ("user", 17_u64, address, 'x', [1_u16, 2]).hash(&mut hasher);
        };
        assert_eq!(ours(write), theirs(write));
    }
}
