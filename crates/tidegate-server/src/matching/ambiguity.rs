//! Whether servers differ about which page a path is, so that no one form stands for all that they take it for.
//!
//! Always   What is not ambiguous has one canonical form whatever a server undoes and in which order; `path/tests.rs` holds it to
//!          that. In doubt a path is ambiguous.

use super::path::{EscapedSlash, small};

/// A path on the ways that servers read it.
pub(super) struct Readings<'a> {
    /// As it came.
    pub(super) raw: &'a [u8],
    /// Decoded once.
    pub(super) literal: &'a [u8],
    /// Decoded to the end, in small letters.
    pub(super) decoded: &'a [u8],
    pub(super) escaped_slash: EscapedSlash,
}

impl Readings<'_> {
    /// Whether nobody knows which page it is, also where nothing climbs.
    pub(super) fn differ(&self) -> bool {
        self.has_control() || self.has_odd_parameters()
    }

    /// Whether a `..` in it takes away different segments.
    pub(super) fn climb_differently(&self) -> bool {
        let differs = match self.escaped_slash {
            // Some resolve before they decode, some after.
            EscapedSlash::Either => self.raw.contains(&b'%') || self.has_empty_segments(),
            // nginx and Caddy decode, then merge, then resolve.
            EscapedSlash::Decode => false,
            EscapedSlash::Keep => self.has_empty_segments(),
        };
        let has_odd_bytes = self.decoded.iter().any(|byte| b"\\;?#".contains(byte));
        differs || has_odd_bytes || self.is_encoded_twice() || self.has_odd_ends()
    }

    /// Control characters, `%u0000`, and UTF-8 that is longer than it need be: old decoders make ASCII of them, or an end.
    fn has_control(&self) -> bool {
        let is_overlong = |pair: &[u8]| {
            matches!(pair, [0xC0 | 0xC1, 0x80..=0xBF] | [0xE0, 0x80..=0x9F] | [0xF0, 0x80..=0x8F])
        };
        let is_unicode = |run: &[u8]| matches!(run, [b'%', b'u', digits @ ..] if digits.iter().all(u8::is_ascii_hexdigit));
        self.decoded.iter().any(u8::is_ascii_control)
            || self.decoded.windows(2).any(is_overlong)
            || self.decoded.windows(6).any(is_unicode)
    }

    /// Parameters that end at another place for servers that look for them before they decode, as Tomcat does.
    fn has_odd_parameters(&self) -> bool {
        let count =
            |path: &[u8], ends: &[u8]| path.iter().filter(|byte| ends.contains(byte)).count();
        self.decoded.contains(&b';') && count(self.decoded, b"/\\?#") != count(self.raw, b"/")
    }

    fn is_encoded_twice(&self) -> bool {
        small(self.literal) != self.decoded
    }

    fn has_empty_segments(&self) -> bool {
        self.literal.windows(2).any(|pair| pair == b"//")
    }

    /// Segments that some servers make shorter; Caddy 2.6 cuts `..` off the end of a path.
    fn has_odd_ends(&self) -> bool {
        let is_odd_end = |segment: &[u8]| {
            segment.ends_with(b" ") || segment.ends_with(b".") && !matches!(segment, b"." | b"..")
        };
        self.decoded.ends_with(b"/..") || self.literal.split(|byte| *byte == b'/').any(is_odd_end)
    }
}
