//! The bytes of a request, in which the key can be replaced.
//!
//! Always   All key names have the same length, so that lengths within the request stay correct.

/// Stands for the key in the text of a request.
pub(super) const KEY_MARKER: &str = "{key}";
/// The name of the first key.
const FIRST: &str = "key:000000000000";
const DIGITS: usize = 12;

/// A request for any key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Template {
    bytes: Vec<u8>,
    /// The offsets of the digits of each key.
    key_offsets: Vec<usize>,
}

impl Template {
    /// Makes a template from the bytes of the request for the first key, see [`first_key`].
    pub(super) fn new(bytes: Vec<u8>) -> Self {
        let name = FIRST.as_bytes();
        let starts = bytes.windows(name.len()).enumerate();
        let found = starts.filter(|(_, window)| *window == name);
        let key_offsets = found.map(|(start, _)| start + name.len() - DIGITS).collect();
        Self { bytes, key_offsets }
    }

    /// Appends the request for this key.
    pub(super) fn write(&self, key: u64, out: &mut Vec<u8>) {
        let start = out.len();
        out.extend_from_slice(&self.bytes);
        for offset in &self.key_offsets {
            let mut rest = key;
            for digit in out[start + offset..start + offset + DIGITS].iter_mut().rev() {
                *digit = b'0' + (rest % 10) as u8;
                rest /= 10;
            }
        }
    }
}

/// Replaces each [`KEY_MARKER`] with the first key.
pub(super) fn first_key(text: &str) -> String {
    text.replace(KEY_MARKER, FIRST)
}

/// A fast pseudo-random sequence of keys.
#[derive(Debug)]
pub(super) struct RandomKeys {
    state: u64,
    count: u64,
}

impl RandomKeys {
    pub(super) fn new(count: u64, seed: u64) -> Self {
        Self { state: seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x5851_f42d_4c95_7f2d, count }
    }

    pub(super) fn next(&mut self) -> u64 {
        // splitmix64.
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^= mixed >> 31;
        ((u128::from(mixed) * u128::from(self.count)) >> 64) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_key_is_written_at_every_marker() {
        let template = Template::new(first_key("a {key} b {key}").into_bytes());
        let mut out = b"> ".to_vec();
        template.write(0, &mut out);
        template.write(999_999_999_999, &mut out);
        let expected =
            "> a key:000000000000 b key:000000000000a key:999999999999 b key:999999999999";
        assert_eq!(String::from_utf8(out).unwrap(), expected);
    }

    #[test]
    fn a_text_without_a_marker_is_sent_unchanged() {
        let mut out = Vec::new();
        Template::new(first_key("PING").into_bytes()).write(7, &mut out);
        assert_eq!(out, b"PING");
    }

    #[test]
    fn every_key_of_the_range_is_used() {
        let mut keys = RandomKeys::new(10, 1);
        let mut seen = [0; 10];
        for _ in 0..1_000 {
            seen[usize::try_from(keys.next()).unwrap()] += 1;
        }
        assert!(seen.iter().all(|count| *count > 50), "{seen:?}");
        assert_eq!(RandomKeys::new(1, 9).next(), 0);
    }
}
