//! What follows the `?`, taken apart.

use std::borrow::Cow;

/// Each name and its value, decoded; a name without a value has an empty one.
pub(crate) fn parameters(query: &str) -> impl Iterator<Item = (Cow<'_, [u8]>, Cow<'_, [u8]>)> {
    query.split('&').filter(|pair| !pair.is_empty()).map(|pair| {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        (decoded(name), decoded(value))
    })
}

/// The value that this name has first.
pub(crate) fn parameter<'a>(query: Option<&'a str>, name: &str) -> Option<Cow<'a, [u8]>> {
    let mut all = parameters(query?);
    all.find_map(|(known, value)| (*known == *name.as_bytes()).then_some(value))
}

/// `%41` and `+` as browsers write them; what is no code stays as it is.
fn decoded(text: &str) -> Cow<'_, [u8]> {
    let bytes = text.as_bytes();
    if memchr::memchr2(b'%', b'+', bytes).is_none() {
        return Cow::Borrowed(bytes);
    }
    let mut decoded = Vec::with_capacity(bytes.len());
    let mut rest = bytes;
    while let [first, after @ ..] = rest {
        let (byte, after) = match (first, after) {
            (b'%', [high, low, after @ ..]) => match (digit(*high), digit(*low)) {
                (Some(high), Some(low)) => (high << 4 | low, after),
                _ => (b'%', &rest[1..]),
            },
            (b'+', after) => (b' ', after),
            (byte, after) => (*byte, after),
        };
        decoded.push(byte);
        rest = after;
    }
    Cow::Owned(decoded)
}

fn digit(letter: u8) -> Option<u8> {
    let digit = char::from(letter).to_digit(16)?;
    u8::try_from(digit).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_values_are_decoded() {
        let all: Vec<_> = parameters("a=1&&b&c=%41%2b+%ff&d=%4&e=%zz=").collect();
        let expected: [(&[u8], &[u8]); 5] =
            [(b"a", b"1"), (b"b", b""), (b"c", b"A+ \xff"), (b"d", b"%4"), (b"e", b"%zz=")];
        let all: Vec<(&[u8], &[u8])> =
            all.iter().map(|(name, value)| (&**name, &**value)).collect();
        assert_eq!(all, expected);
    }

    #[test]
    fn the_first_of_a_name_counts() {
        assert_eq!(parameter(Some("a=1&k=2&k=3"), "k").as_deref(), Some(&b"2"[..]));
        assert_eq!(parameter(Some("a=1"), "k"), None);
        assert_eq!(parameter(None, "k"), None);
    }
}
