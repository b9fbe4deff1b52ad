//! A few bytes on the stack, and more of them in memory: keys and fields while they are written.
//!
//! Always   What is longer than it has room for on the stack is kept whole, in memory. Nothing is cut.

use std::fmt;

/// So much lies on the stack. Keys and fields are rarely longer.
const INLINE_BYTES: usize = 104;

/// Takes bytes, one piece after the other: what fields and bodies are written to.
///
/// ```
/// use tidegate_tower::Out;
///
/// let mut line = Vec::new();
/// line.put(b"retry in ");
/// line.put_number(7);
/// assert_eq!(line, b"retry in 7");
/// ```
pub trait Out {
    /// Appends these bytes.
    ///
    /// ```
    /// use tidegate_tower::Out;
    ///
    /// let mut line = Vec::new();
    /// line.put(b"a");
    /// assert_eq!(line, b"a");
    /// ```
    fn put(&mut self, bytes: &[u8]);

    /// Appends a number in decimal digits.
    ///
    /// ```
    /// use tidegate_tower::Out;
    ///
    /// let mut line = Vec::new();
    /// line.put_number(u64::MAX);
    /// assert_eq!(line, b"18446744073709551615");
    /// ```
    #[inline]
    fn put_number(&mut self, number: u64) {
        self.put(itoa::Buffer::new().format(number).as_bytes());
    }

    /// Appends a text as JSON has it.
    ///
    /// ```
    /// use tidegate_tower::Out;
    ///
    /// let mut line = Vec::new();
    /// line.put_json("a \"b\"\n");
    /// assert_eq!(line, br#""a \"b\"\n""#);
    /// ```
    fn put_json(&mut self, text: &str) {
        self.put(b"\"");
        let mut rest = text.as_bytes();
        while let Some(place) = rest.iter().position(|b| matches!(b, b'"' | b'\\' | ..b' ')) {
            let (plain, special) = rest.split_at(place);
            self.put(plain);
            self.put(&escape(special[0]));
            rest = &special[1..];
        }
        self.put(rest);
        self.put(b"\"");
    }
}

/// A byte that JSON does not take as it is.
fn escape(byte: u8) -> Vec<u8> {
    match byte {
        b'"' | b'\\' => vec![b'\\', byte],
        b'\n' => b"\\n".to_vec(),
        b'\r' => b"\\r".to_vec(),
        b'\t' => b"\\t".to_vec(),
        _ => format!("\\u{byte:04x}").into_bytes(),
    }
}

impl Out for Vec<u8> {
    #[inline]
    fn put(&mut self, bytes: &[u8]) {
        self.extend_from_slice(bytes);
    }
}

/// Bytes that lie on the stack as long as they are few.
#[derive(Clone)]
pub(crate) struct Short<const INLINE: usize = INLINE_BYTES> {
    count: usize,
    inline: [u8; INLINE],
    /// All of them, once they are many.
    spilled: Vec<u8>,
}

impl<const INLINE: usize> Short<INLINE> {
    #[inline]
    pub(crate) const fn new() -> Self {
        Self { count: 0, inline: [0; INLINE], spilled: Vec::new() }
    }

    #[inline]
    pub(crate) fn as_bytes(&self) -> &[u8] {
        if self.count <= INLINE { &self.inline[..self.count] } else { &self.spilled }
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.count == 0
    }

    pub(crate) fn clear(&mut self) {
        self.count = 0;
        self.spilled.clear();
    }

    /// Appends the first `count` of these. All of them are copied where there is room, because a copy whose size is
    /// known beforehand is no call.
    #[inline]
    pub(crate) fn put_first<const N: usize>(&mut self, bytes: &[u8; N], count: usize) {
        debug_assert!(count <= N, "there are no more");
        if self.count + N <= INLINE {
            self.inline[self.count..self.count + N].copy_from_slice(bytes);
            self.count += count;
        } else {
            self.put(&bytes[..count]);
        }
    }

    /// Appends the first `count` bytes of this number, the lowest first: it goes to memory in two words, as registers have
    /// it, and nowhere else.
    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "a half at a time")]
    pub(crate) fn put_word_pair(&mut self, bytes: u128, count: usize) {
        let [low, high] = [bytes, bytes >> 64].map(|half| (half as u64).to_le_bytes());
        self.put_first(&low, count.min(8));
        self.put_first(&high, count.saturating_sub(8));
    }

    #[cold]
    fn spill(&mut self, bytes: &[u8]) {
        if self.count <= INLINE {
            self.spilled.extend_from_slice(&self.inline[..self.count]);
        }
        self.spilled.extend_from_slice(bytes);
        self.count = self.spilled.len();
    }
}

impl<const INLINE: usize> Out for Short<INLINE> {
    #[inline]
    fn put(&mut self, bytes: &[u8]) {
        let end = self.count + bytes.len();
        if self.count <= INLINE && end <= INLINE {
            self.inline[self.count..end].copy_from_slice(bytes);
            self.count = end;
        } else {
            self.spill(bytes);
        }
    }
}

impl<const INLINE: usize> fmt::Write for Short<INLINE> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.put(text.as_bytes());
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn json_has_no_bare_control_characters() {
        let mut out = Vec::new();
        out.put_json("a\u{1}\t\\é");
        assert_eq!(String::from_utf8(out).unwrap(), "\"a\\u0001\\t\\\\é\"");
    }

    proptest! {
        #[test]
        fn what_was_put_is_there_whole(pieces in proptest::collection::vec(
            proptest::collection::vec(any::<u8>(), 0..70), 0..6,
        )) {
            let mut short: Short = Short::new();
            for piece in &pieces {
                short.put(piece);
            }
            let whole = pieces.concat();
            prop_assert_eq!(short.as_bytes(), &whole[..]);
            short.clear();
            short.put(b"again");
            prop_assert_eq!(short.as_bytes(), b"again");
        }

        #[test]
        fn the_first_of_some_bytes_are_these_and_no_more(
            pieces in proptest::collection::vec((any::<[u8; 16]>(), 0_usize..=16), 0..20),
        ) {
            let (mut short, mut whole): (Short, _) = (Short::new(), Vec::new());
            for (bytes, count) in &pieces {
                short.put_first(bytes, *count);
                whole.extend_from_slice(&bytes[..*count]);
            }
            prop_assert_eq!(short.as_bytes(), &whole[..]);
        }
    }
}
