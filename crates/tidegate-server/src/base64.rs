//! Base64 (RFC 4648, with padding): how bytes that are no text go through JSON.
//!
//! Rejected a crate for it: this is all that is needed, and there is one alphabet.

const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// These bytes as text.
pub(crate) fn encode(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for chunk in bytes.chunks(3) {
        let byte = |place: usize| u32::from(chunk.get(place).copied().unwrap_or(0));
        let word = byte(0) << 16 | byte(1) << 8 | byte(2);
        for place in 0..4 {
            let letter = ALPHABET[(word >> (18 - 6 * place) & 0x3f) as usize];
            text.push(if place > chunk.len() { '=' } else { char::from(letter) });
        }
    }
    text
}

/// The bytes that are written so, with or without padding; `None` if none are.
pub(crate) fn decode(text: &str) -> Option<Vec<u8>> {
    let letters = text.as_bytes();
    let padding = letters.iter().rev().take_while(|letter| **letter == b'=').count();
    if padding > 2 || (padding > 0 && !letters.len().is_multiple_of(4)) {
        return None;
    }
    let letters = &letters[..letters.len() - padding];
    let mut bytes = Vec::with_capacity(letters.len() / 4 * 3 + 2);
    for chunk in letters.chunks(4) {
        decode_chunk(chunk, &mut bytes)?;
    }
    Some(bytes)
}

fn decode_chunk(chunk: &[u8], bytes: &mut Vec<u8>) -> Option<()> {
    let mut word = 0_u32;
    for letter in chunk {
        word = word << 6 | u32::from(value(*letter)?);
    }
    // A letter alone is no byte, and bits that belong to no byte must not be set: one text for one key.
    let spare = match chunk.len() {
        4 => 0,
        3 => 2,
        2 => 4,
        _ => return None,
    };
    if word & ((1 << spare) - 1) != 0 {
        return None;
    }
    let word = (word >> spare).to_be_bytes();
    bytes.extend_from_slice(&word[5 - chunk.len()..]);
    Some(())
}

fn value(letter: u8) -> Option<u8> {
    match letter {
        b'A'..=b'Z' => Some(letter - b'A'),
        b'a'..=b'z' => Some(letter - b'a' + 26),
        b'0'..=b'9' => Some(letter - b'0' + 52),
        b'+' => Some(62),
        b'/' => Some(63),
        _ => None,
    }
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
    fn what_nobody_has_encoded_is_refused() {
        for text in
            ["A", "AAAAA", "====", "Zg=", "Z===", "Zh==", "Zm9=", "Zm 9v", "Zm9v\n", "Zm-_", "é"]
        {
            assert_eq!(decode(text), None, "{text:?}");
        }
    }
}
