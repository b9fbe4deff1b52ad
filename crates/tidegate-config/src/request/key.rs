//! The key of a request: the values of a limit's key parts.
//!
//! Always   Different values make different keys: the key of one part is its value; several values are joined by `|`, with
//!          `\` before each `|` or `\` in a value. A missing part and an empty part have the same, empty value.
//!          A repeated header, cookie or parameter has no value, and neither has an ambiguous path. Such a value is not the
//!          same as a missing one: the server behind the proxy may find it, so the request never passes uncounted.

use super::http_request::{NoValue, Request};
use super::part::KeyPart;
use super::url;
use super::values::{Values, sole_header};
use std::borrow::Cow;
use tidegate_http::{AddressBits, put_key_part};

/// Returns the value of a part of the key; never an empty one.
pub(crate) fn value<'a>(
    part: &'a KeyPart,
    request: &Request<'a>,
) -> Result<Cow<'a, [u8]>, NoValue> {
    let value = match part {
        KeyPart::Ip { v4_bits, v6_bits } => request
            .ip
            .map(|ip| Cow::Owned(AddressBits::new(*v4_bits, *v6_bits).text(ip).into_bytes())),
        KeyPart::Header(name) => Some(sole_header(request, name)?),
        KeyPart::Cookie(name) => Some(Values::of_cookie(request, name).sole()?),
        KeyPart::Path => match &request.path {
            Some(path) => Some(Cow::Owned(path.canonical().ok_or(NoValue::Ambiguous)?.to_vec())),
            None => None,
        },
        KeyPart::Query(name) => Some(Values::of_query(request, name).sole()?),
        KeyPart::Method => request.method.map(|method| Cow::Borrowed(method.as_bytes())),
        KeyPart::Host => request.host.map(url::host),
        KeyPart::Descriptor(_) => None,
        KeyPart::Constant(text) => Some(Cow::Borrowed(text.as_bytes())),
    };
    value.filter(|value| !value.is_empty()).ok_or(NoValue::Absent)
}

/// Joins the values of the parts to a key.
pub(crate) fn join<'a>(mut values: impl ExactSizeIterator<Item = Cow<'a, [u8]>>) -> Vec<u8> {
    if values.len() == 1 {
        return values.next().map(Cow::into_owned).unwrap_or_default();
    }
    let mut key = Vec::new();
    for (index, value) in values.enumerate() {
        put_key_part(&mut key, index, &value);
    }
    key
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn of(part: &str, request: &Request<'_>) -> Option<String> {
        let part: KeyPart = part.parse().unwrap();
        value(&part, request).ok().map(|value| String::from_utf8_lossy(&value).into_owned())
    }

    fn ip(part: &str, address: &str) -> String {
        let request = Request { ip: Some(address.parse().unwrap()), ..Request::default() };
        of(part, &request).unwrap()
    }

    #[test]
    fn addresses_are_counted_by_their_bits() {
        assert_eq!(ip("ip", "192.0.2.77"), "192.0.2.77");
        assert_eq!(ip("ip/24,56", "192.0.2.77"), "192.0.2.0/24");
        assert_eq!(ip("ip", "2001:db8:1:2:3:4:5:6"), "2001:db8:1:2::/64");
        assert_eq!(ip("ip/24,48", "2001:db8:1:2:3:4:5:6"), "2001:db8:1::/48");
        assert_eq!(ip("ip/32,128", "2001:db8::6"), "2001:db8::6");
        assert_eq!(ip("ip", "2001:db8::1.2.3.4"), "2001:db8::/64");
        for spelling in ["1.2.3.4", "::ffff:1.2.3.4", "::ffff:102:304"] {
            assert_eq!(ip("ip", spelling), "1.2.3.4");
        }
    }

    #[test]
    fn every_part_has_its_value() {
        let request = Request {
            ip: None,
            method: Some("GET"),
            host: Some("Shop.example"),
            path: Some("/a".into()),
            query: Some("user=7&twice=1&twice=1"),
            headers: vec![
                ("x-user", b" ann "),
                ("x-twice", b"ann"),
                ("x-twice", b"bob"),
                ("x-twice-the-same", b"ann"),
                ("x-twice-the-same", b"ann"),
                ("cookie", b"a=1; sid=\"s 1\""),
                ("cookie", b"twice=2; xsid=3; twice=2"),
                ("x-empty", b""),
            ],
        };
        assert_eq!(of("header:X-User", &request).unwrap(), "ann");
        assert_eq!(of("cookie:sid", &request).unwrap(), "s 1");
        assert_eq!(of("cookie:xsid", &request).unwrap(), "3");
        assert_eq!(of("path", &request).unwrap(), "/a");
        assert_eq!(of("query:user", &request).unwrap(), "7");
        assert_eq!(of("method", &request).unwrap(), "GET");
        assert_eq!(of("host", &request).unwrap(), "shop.example");
        assert_eq!(of("constant:all", &request).unwrap(), "all");
        for missing in ["ip", "header:x-none", "header:x-empty", "cookie:none", "query:none"] {
            assert_eq!(of(missing, &request), None, "{missing}");
        }
        for twice in ["header:x-twice", "header:x-twice-the-same", "cookie:twice", "query:twice"] {
            assert_eq!(of(twice, &request), None, "{twice}: the tower layers agree");
        }
    }

    fn joined(values: &[Vec<u8>]) -> Vec<u8> {
        join(values.iter().map(|value| Cow::Borrowed(&value[..])))
    }

    #[test]
    fn the_key_of_one_value_is_the_value_and_several_are_joined() {
        assert_eq!(joined(&[b"a|b".to_vec()]), b"a|b");
        assert_eq!(joined(&[b"a".to_vec(), b"bc".to_vec()]), b"a|bc");
        assert_ne!(
            joined(&[b"a|".to_vec(), b"b".to_vec()]),
            joined(&[b"a".to_vec(), b"|b".to_vec()])
        );
        assert_eq!(joined(&[]), b"");
    }

    proptest! {
        #[test]
        fn different_values_make_different_keys(
            one in proptest::collection::vec("[a|\\\\]{0,4}", 3),
            two in proptest::collection::vec("[a|\\\\]{0,4}", 3),
        ) {
            let key = |values: &[String]| {
                joined(&values.iter().map(|value| value.clone().into_bytes()).collect::<Vec<_>>())
            };
            prop_assert_eq!(one == two, key(&one) == key(&two));
        }
    }
}
