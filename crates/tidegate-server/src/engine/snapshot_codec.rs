//! Bytes that the engine stores in a snapshot besides its limiters: numbers and texts, one after the other.
//!
//! Always   A reader returns `None` when the bytes end early. The snapshot's checksums have shown before that the bytes are those
//!          that were written.

/// Returns the words of a 128-bit number, the high one first.
#[expect(clippy::cast_possible_truncation, reason = "the number is split into two words")]
pub(super) fn split(wide: u128) -> [u64; 2] {
    [(wide >> 64) as u64, wide as u64]
}

/// Reverses [`split`].
pub(super) fn join([high, low]: [u64; 2]) -> u128 {
    u128::from(high) << 64 | u128::from(low)
}

pub(super) fn write_words(bytes: &mut Vec<u8>, words: &[u64]) {
    bytes.extend(words.iter().flat_map(|word| word.to_le_bytes()));
}

/// Writes the length of a text, then the text.
pub(super) fn write_text(bytes: &mut Vec<u8>, text: &str) {
    write_words(bytes, &[text.len() as u64]);
    bytes.extend_from_slice(text.as_bytes());
}

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
    fn a_reader_returns_what_was_written_and_nothing_of_truncated_bytes() {
        let mut bytes = Vec::new();
        write_text(&mut bytes, "concurrency 5");
        write_words(&mut bytes, &split(u128::MAX - 7));
        let read = |bytes| {
            let mut reader = Reader(bytes);
            let read = (reader.text()?, join(reader.words()?));
            reader.is_at_end().then_some(read)
        };
        assert_eq!(read(bytes.as_slice()), Some(("concurrency 5", u128::MAX - 7)));
        for length in 0..bytes.len() {
            assert_eq!(read(&bytes[..length]), None, "{length}");
        }
    }
}
