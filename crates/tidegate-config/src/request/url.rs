//! Percent-decoding, lower case, and host names.
//!
//! Always   Decoding never fails: an invalid escape stays as it is.
//! Bound    Linear in the text, however often it is encoded.

use std::borrow::Cow;

/// How the server behind a proxy reads `%2F` in a path.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EscapedSlash {
    /// Unknown. A path whose meaning depends on it is ambiguous.
    #[default]
    Either,
    /// As a separator, like nginx and Caddy: `/a%2F..%2Fb` is `/b`.
    Decode,
    /// As a part of a name: `/a%2Fb/../c` is `/c`.
    Keep,
}

/// How `%2F` in a path is decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Slash {
    /// To `/`, a separator.
    Separates,
    /// Not at all: it stays `%2f`, a part of a name.
    Stays,
}

impl EscapedSlash {
    pub(super) fn slash(self) -> Slash {
        match self {
            Self::Either | Self::Decode => Slash::Separates,
            Self::Keep => Slash::Stays,
        }
    }
}

/// Returns a host without its port: what follows the last colon outside of brackets, as in `example.org:80` and `[::1]:80`.
pub fn without_port(host: &str) -> &str {
    match host.rfind(':') {
        Some(colon) if !host[colon..].contains(']') => &host[..colon],
        _ => host,
    }
}

/// Decodes each escape of a path once.
pub(super) fn decode_path(raw: &[u8], slash: Slash) -> Cow<'_, [u8]> {
    if !raw.contains(&b'%') {
        return Cow::Borrowed(raw);
    }
    let mut decoded = Vec::with_capacity(raw.len());
    let mut rest = raw;
    while let Some((first, after)) = rest.split_first() {
        rest = after;
        match escaped(rest, *first) {
            Some(byte) => {
                put(&mut decoded, byte, slash);
                rest = &after[2..];
            }
            None => decoded.push(*first),
        }
    }
    Cow::Owned(decoded)
}

/// Decodes a path until no escape is left, as several servers in a row do.
pub(super) fn decode_path_fully(raw: &[u8], slash: Slash) -> Vec<u8> {
    let mut decoded = Vec::with_capacity(raw.len());
    for byte in raw {
        decoded.push(*byte);
        // The decoded byte may be the end of another escape.
        while let Some(byte) = last_escaped(&decoded) {
            if byte == b'/' && slash == Slash::Stays {
                break;
            }
            decoded.truncate(decoded.len() - 3);
            decoded.push(byte);
            shorten(&mut decoded);
        }
        shorten(&mut decoded);
    }
    decoded
}

/// Decodes a name or a value of a query or a cookie, in which `+` is a blank.
pub fn decode_form(raw: &[u8]) -> Cow<'_, [u8]> {
    if !raw.iter().any(|byte| matches!(byte, b'%' | b'+')) {
        return Cow::Borrowed(raw);
    }
    let blanks: Vec<u8> = raw.iter().map(|byte| if *byte == b'+' { b' ' } else { *byte }).collect();
    Cow::Owned(decode_path(&blanks, Slash::Separates).into_owned())
}

/// Returns the host in lower case, without a dot at its end.
pub(super) fn host(raw: &str) -> Cow<'_, [u8]> {
    let host = raw.strip_suffix('.').unwrap_or(raw);
    if host.bytes().any(|byte| byte.is_ascii_uppercase()) {
        return Cow::Owned(host.to_ascii_lowercase().into_bytes());
    }
    Cow::Borrowed(host.as_bytes())
}

fn put(decoded: &mut Vec<u8>, byte: u8, slash: Slash) {
    if byte == b'/' && slash == Slash::Stays {
        decoded.extend_from_slice(b"%2f");
    } else {
        decoded.push(byte);
    }
}

/// Normalizes the end of the decoded bytes as some servers do: removes a tab or a line end, as in browsers' URLs, and replaces
/// overlong UTF-8 by the letter, dot or separator that lenient decoders read.
fn shorten(decoded: &mut Vec<u8>) {
    if matches!(decoded.last(), Some(b'\t' | b'\n' | b'\r')) {
        decoded.pop();
    } else if let Some((length, byte)) = overlong(decoded) {
        decoded.truncate(decoded.len() - length);
        decoded.push(byte);
    }
}

/// Returns the length of an overlong letter, dot or separator at the end, and the character.
fn overlong(decoded: &[u8]) -> Option<(usize, u8)> {
    let (length, high, low) = match decoded {
        [.., 0xF0, 0x80, high @ 0x80..=0x81, low @ 0x80..=0xBF] => (4, *high, *low),
        [.., 0xE0, high @ 0x80..=0x81, low @ 0x80..=0xBF] => (3, *high, *low),
        [.., high @ 0xC0..=0xC1, low @ 0x80..=0xBF] => (2, *high, *low),
        _ => return None,
    };
    let byte = (high & 1) << 6 | low & 0x3F;
    let matters = byte.is_ascii_alphanumeric() || b"./\\".contains(&byte);
    matters.then_some((length, byte))
}

fn last_escaped(decoded: &[u8]) -> Option<u8> {
    let (_, last) = decoded.split_last_chunk::<3>()?;
    escaped(&last[1..], last[0])
}

/// Returns the byte of an escape `%xx`.
fn escaped(after: &[u8], first: u8) -> Option<u8> {
    let hex = |byte: u8| char::from(byte).to_digit(16);
    let (high, low) = (*after.first()?, *after.get(1)?);
    let byte = hex(high)? * 16 + hex(low)?;
    u8::try_from(byte).ok().filter(|_| first == b'%')
}

/// Returns the path in lower case, letter by letter in any language, as servers do that ignore case.
pub(super) fn lower(path: &[u8]) -> Vec<u8> {
    let mut lower = Vec::with_capacity(path.len());
    for chunk in path.utf8_chunks() {
        lower.extend_from_slice(chunk.valid().chars().map(folded).collect::<String>().as_bytes());
        lower.extend_from_slice(chunk.invalid());
    }
    lower
}

/// Returns the lower case of a letter's upper case: `ſ` is `s` and `ı` is `i`, as in servers that compare upper case. A letter
/// whose upper case is more than one letter keeps its own lower case.
fn folded(letter: char) -> char {
    let lower_char = |letter: char| letter.to_lowercase().next().unwrap_or(letter);
    let letter = lower_char(letter);
    let mut capital = letter.to_uppercase();
    match (capital.next(), capital.next()) {
        (Some(capital), None) => lower_char(capital),
        _ => letter,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn fully(raw: &str, slash: Slash) -> String {
        String::from_utf8_lossy(&decode_path_fully(raw.as_bytes(), slash)).into_owned()
    }

    #[test]
    fn a_repeatedly_encoded_path_is_decoded_fully() {
        for raw in ["/a", "%2fa", "%252fa", "%25252Fa", "%%32%66a", "%2%66a"] {
            assert_eq!(fully(raw, Slash::Separates), "/a", "{raw}");
        }
        assert_eq!(fully("%25%32fa%2f%41", Slash::Stays), "%2fa%2fA");
        assert_eq!(fully("%zz%4%", Slash::Separates), "%zz%4%");
    }

    #[test]
    fn hosts_are_in_lower_case() {
        assert_eq!(*host("API.Example.COM."), *b"api.example.com");
    }

    proptest! {
        #[test]
        fn decoding_fully_leaves_nothing_to_decode(raw in "[%25fF/a]{0,24}") {
            for slash in [Slash::Separates, Slash::Stays] {
                let fully = decode_path_fully(raw.as_bytes(), slash);
                let again = decode_path_fully(&fully, slash);
                prop_assert_eq!(&again, &fully);
                let once = decode_path(raw.as_bytes(), slash);
                prop_assert!(once.len() <= raw.len());
            }
        }
    }
}
