//! Bytes that the engine keeps in a snapshot beside its limiters: numbers and texts, one after the other.
//!
//! Always   A reader that meets less than it expects says so, and whoever reads goes without. The snapshot's checksums tell
//!          before whether the bytes are those that were written.

/// The halves of a wide number, the high one first.
#[expect(clippy::cast_possible_truncation, reason = "these are its halves")]
pub(super) fn halves(wide: u128) -> [u64; 2] {
    [(wide >> 64) as u64, wide as u64]
}

/// What [`halves`] were of.
pub(super) fn whole([high, low]: [u64; 2]) -> u128 {
    u128::from(high) << 64 | u128::from(low)
}

pub(super) fn write_words(bytes: &mut Vec<u8>, words: &[u64]) {
    bytes.extend(words.iter().flat_map(|word| word.to_le_bytes()));
}

/// A text, after its length.
pub(super) fn write_text(bytes: &mut Vec<u8>, text: &str) {
    write_words(bytes, &[text.len() as u64]);
    bytes.extend_from_slice(text.as_bytes());
}

/// Reads what was written.
pub(super) struct Reader<'a>(pub(super) &'a [u8]);

impl<'a> Reader<'a> {
    pub(super) fn is_at_end(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn word(&mut self) -> Option<u64> {
        let (word, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(u64::from_le_bytes(*word))
    }

    pub(super) fn words<const N: usize>(&mut self) -> Option<[u64; N]> {
        let mut words = [0; N];
        for word in &mut words {
            *word = self.word()?;
        }
        Some(words)
    }

    pub(super) fn text(&mut self) -> Option<&'a str> {
        let length = usize::try_from(self.word()?).ok()?;
        let (text, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        std::str::from_utf8(text).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_written_is_read_and_nothing_that_was_cut_off() {
        let mut bytes = Vec::new();
        write_text(&mut bytes, "concurrency 5");
        write_words(&mut bytes, &halves(u128::MAX - 7));
        let read = |bytes| {
            let mut reader = Reader(bytes);
            let read = (reader.text()?, whole(reader.words()?));
            reader.is_at_end().then_some(read)
        };
        assert_eq!(read(bytes.as_slice()), Some(("concurrency 5", u128::MAX - 7)));
        for length in 0..bytes.len() {
            assert_eq!(read(&bytes[..length]), None, "{length}");
        }
    }
}
