//! Base64 (RFC 4648) for keys in JSON that are not UTF-8.
//!
//! Invariant A key has one encoding, with or without padding: bits that belong to no byte must be 0.

use ::base64::Engine as _;
use ::base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD};

/// Encodes bytes, with padding.
pub(crate) fn encode(bytes: &[u8]) -> String {
    STANDARD.encode(bytes)
}

/// Decodes a text with all of its padding or none; returns `None` if it is not base64.
pub(crate) fn decode(text: &str) -> Option<Vec<u8>> {
    let engine = if text.ends_with('=') { STANDARD } else { STANDARD_NO_PAD };
    engine.decode(text).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_vectors_of_the_rfc_go_both_ways() {
        let vectors = [
            ("", ""),
            ("f", "Zg=="),
            ("fo", "Zm8="),
            ("foo", "Zm9v"),
            ("foob", "Zm9vYg=="),
            ("fooba", "Zm9vYmE="),
            ("foobar", "Zm9vYmFy"),
        ];
        for (bytes, text) in vectors {
            assert_eq!(encode(bytes.as_bytes()), text);
            assert_eq!(decode(text).as_deref(), Some(bytes.as_bytes()));
            assert_eq!(decode(text.trim_end_matches('=')).as_deref(), Some(bytes.as_bytes()));
        }
    }

    #[test]
    fn any_byte_goes_both_ways() {
        let bytes: Vec<u8> = (0..=255).collect();
        assert_eq!(decode(&encode(&bytes)), Some(bytes));
    }

    #[test]
    fn text_that_is_not_base64_is_refused() {
        for text in
            ["A", "AAAAA", "====", "Zg=", "Z===", "Zh==", "Zm9=", "Zm 9v", "Zm9v\n", "Zm-_", "é"]
        {
            assert_eq!(decode(text), None, "{text:?}");
        }
    }
}
