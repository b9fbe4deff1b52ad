//! The value of `RateLimit`, of what it starts with and the numbers in it.
//!
//! Always   A start is printable ASCII: [`Start::of`] makes no other. Digits and what stands between them are too, so every
//!          value is one that a field may have, and is handed to `http` as one.
//!
//! That is the only `unsafe` in the crate. `HeaderValue::from_bytes` would look at every byte once more: of what the layer adds to
//! a call by a client that is told other numbers each time, 145 of 1 925 instructions and 12 of 118 ns, side by side; others are told
//! as quickly as before. What `http` asks of who hands it
//! a value unseen is that it is UTF-8; that it has no line end either is what a server relies on. In debug builds `http`
//! looks at it all the same, so every test that is told what is left tests this, too.

use super::digits::put_digits;
use super::fields::string;
use super::policy::{remaining, window_s};
use crate::short::Out;
use bytes::Bytes;
use http::HeaderValue;
use tidegate::Decision;

/// A name that fits into so much is written the quick way.
pub(super) const START_BYTES: usize = 40;
/// The start, two numbers of structured fields and what stands between them.
const LINE_BYTES: usize = START_BYTES + 48;

/// What a value starts with: `"api";r=`
#[derive(Clone, Copy, Debug)]
pub(super) struct Start {
    text: [u8; START_BYTES],
    count: usize,
}

/// What is told after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Numbers {
    pub(super) remaining: u64,
    /// Or [`NO_WINDOW`]: what goes with every response is to be short.
    pub(super) window_s: u64,
}

/// More than a field may say.
const NO_WINDOW: u64 = u64::MAX;

impl Numbers {
    #[inline]
    pub(super) fn of(decision: &Decision) -> Self {
        Self { remaining: remaining(decision), window_s: window_s(decision).unwrap_or(NO_WINDOW) }
    }
}

impl Start {
    /// `None` if the name is too long.
    pub(super) fn of(name: &str) -> Option<Self> {
        let mut text = Vec::new();
        string(&mut text, name);
        text.put(b";r=");
        let (count, is_visible) = (text.len(), text.iter().all(|byte| matches!(byte, b' '..=b'~')));
        debug_assert!(is_visible, "a string of a structured field is nothing else");
        if count > START_BYTES || !is_visible {
            return None;
        }
        text.resize(START_BYTES, b' ');
        Some(Self { text: text.try_into().ok()?, count })
    }

    #[inline]
    pub(super) fn value(&self, numbers: Numbers) -> HeaderValue {
        let mut line = Line::EMPTY;
        self.put(&mut line, numbers);
        line.value()
    }

    /// Kept for ever.
    pub(super) fn static_value(&self, numbers: Numbers) -> HeaderValue {
        let mut line = Line::EMPTY;
        self.put(&mut line, numbers);
        let text = String::from_utf8_lossy(&line.text[..line.count]).into_owned();
        HeaderValue::from_static(String::leak(text))
    }

    /// Writes the line anew.
    #[inline]
    pub(super) fn put(&self, line: &mut Line, numbers: Numbers) {
        let text = &mut line.text;
        text[..START_BYTES].copy_from_slice(&self.text);
        line.count = put_digits(text, self.count, numbers.remaining);
        if numbers.window_s != NO_WINDOW {
            text[line.count..line.count + 3].copy_from_slice(b";t=");
            line.count = put_digits(text, line.count + 3, numbers.window_s);
        }
    }
}

/// A whole value, which only a [`Start`] writes.
#[derive(Debug)]
pub(super) struct Line {
    text: [u8; LINE_BYTES],
    count: usize,
}

impl Line {
    pub(super) const EMPTY: Self = Self { text: [0; LINE_BYTES], count: 0 };

    #[inline]
    pub(super) fn value(&self) -> HeaderValue {
        let text = Bytes::from(Box::from(&self.text[..self.count]));
        #[expect(unsafe_code, reason = "a start and digits are printable ASCII, see above")]
        unsafe {
            HeaderValue::from_maybe_shared_unchecked(text)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn whatever_the_name_it_is_that_string_and_the_numbers(
            name in "[\u{0}-\u{7f}\u{e9}]{0,12}", remaining in any::<u64>(), window_s in 0..u64::MAX,
        ) {
            if let Some(start) = Start::of(&name) {
                let numbers = Numbers { remaining, window_s };
                let mut text = Vec::new();
                string(&mut text, &name);
                text.put(format!(";r={remaining};t={window_s}").as_bytes());
                prop_assert_eq!(start.value(numbers), HeaderValue::from_bytes(&text).unwrap());
                prop_assert_eq!(start.static_value(numbers), HeaderValue::from_bytes(&text).unwrap());
                prop_assert!(text.iter().all(|byte| matches!(byte, b' '..=b'~')));
            } else {
                prop_assert!(name.len() * 3 + 5 > START_BYTES, "a byte is three characters at the most");
            }
        }
    }

    #[test]
    fn where_there_is_no_window_none_is_told() {
        let start = Start::of("a\r\n").unwrap();
        let value = start.value(Numbers { remaining: 1, window_s: NO_WINDOW });
        assert!(
            !value.as_bytes().ends_with(b"\n") && value.as_bytes().ends_with(b";r=1"),
            "{value:?}"
        );
    }
}
