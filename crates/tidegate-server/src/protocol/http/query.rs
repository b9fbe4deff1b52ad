//! The parameters of a query.

use crate::config::matching::decode_form;
use std::borrow::Cow;

/// Returns each parameter's name and value, decoded. A name without a value has an empty one.
pub(crate) fn parameters(query: &str) -> impl Iterator<Item = (Cow<'_, [u8]>, Cow<'_, [u8]>)> {
    query.split('&').filter(|pair| !pair.is_empty()).map(|pair| {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        (decode_form(name.as_bytes()), decode_form(value.as_bytes()))
    })
}

/// Returns the first value of a parameter.
pub(crate) fn parameter<'a>(query: Option<&'a str>, name: &str) -> Option<Cow<'a, [u8]>> {
    let mut all = parameters(query?);
    all.find_map(|(known, value)| (*known == *name.as_bytes()).then_some(value))
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
