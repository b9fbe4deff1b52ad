//! Finds paths that servers read differently, so that no canonical form covers every reading.
//!
//! Always   A path that is not ambiguous has one canonical form, whatever a server normalizes and in which order; `path/tests.rs`
//!          checks that. In doubt, a path is ambiguous.

use super::url::{EscapedSlash, lower};

/// A path in the forms that servers read.
pub(super) struct Readings<'a> {
    /// The path as received.
    pub(super) raw: &'a [u8],
    /// The path, decoded once.
    pub(super) literal: &'a [u8],
    /// The path in lower case, decoded until no escape is left.
    pub(super) decoded: &'a [u8],
    pub(super) escaped_slash: EscapedSlash,
}

impl Readings<'_> {
    /// Returns whether servers differ about the page, even without `..`.
    pub(super) fn differ(&self) -> bool {
        self.has_odd_escapes() || self.has_odd_parameters()
    }

    /// Returns whether a `..` removes different segments on different servers.
    pub(super) fn climb_differently(&self) -> bool {
        let differs = match self.escaped_slash {
            // Some servers resolve before they decode, some after.
            EscapedSlash::Either => self.raw.contains(&b'%') || self.has_empty_segments(),
            // nginx and Caddy decode, then merge, then resolve.
            EscapedSlash::Decode => false,
            EscapedSlash::Keep => self.has_empty_segments(),
        };
        let has_odd_bytes = self.decoded.iter().any(|byte| b"\\;?#".contains(byte));
        differs || has_odd_bytes || self.is_encoded_twice() || self.has_odd_ends()
    }

    /// Finds a NUL, at which programs in C end a path, and `%u002f`, which old decoders turn into ASCII.
    fn has_odd_escapes(&self) -> bool {
        self.decoded.contains(&0) || self.decoded.windows(6).any(is_unicode_ascii)
    }

    /// Finds parameters that end elsewhere for servers that look for them before they decode, as Tomcat does.
    fn has_odd_parameters(&self) -> bool {
        let count =
            |path: &[u8], ends: &[u8]| path.iter().filter(|byte| ends.contains(byte)).count();
        self.decoded.contains(&b';') && count(self.decoded, b"/\\?#") != count(self.raw, b"/")
    }

    fn is_encoded_twice(&self) -> bool {
        lower(self.literal) != self.decoded
    }

    fn has_empty_segments(&self) -> bool {
        self.literal.windows(2).any(|pair| pair == b"//")
    }

    /// Finds segments that some servers shorten; Caddy 2.6 cuts `..` off the end of a path.
    fn has_odd_ends(&self) -> bool {
        let is_odd_end = |segment: &[u8]| {
            let ends_blank = segment.last().is_some_and(|byte| *byte <= b' ');
            ends_blank || segment.ends_with(b".") && !matches!(segment, b"." | b"..")
        };
        self.decoded.ends_with(b"/..") || self.literal.split(|byte| *byte == b'/').any(is_odd_end)
    }
}

/// Returns whether this is `%u` and the code of an ASCII character, or of one that Windows maps to ASCII: full-width letters,
/// and characters that look like `/`, `.` or `\`. Every decoder reads `%u00e9` as a letter.
fn is_unicode_ascii(run: &[u8]) -> bool {
    let [b'%', b'u', digits @ ..] = run else { return false };
    let hex = |code: u32, digit: &u8| Some(code * 16 + char::from(*digit).to_digit(16)?);
    let code = digits.iter().try_fold(0, hex);
    matches!(code, Some(0..=0x7F | 0xFF01..=0xFF5E | 0x2024 | 0x2044 | 0x2215 | 0x2216))
}
