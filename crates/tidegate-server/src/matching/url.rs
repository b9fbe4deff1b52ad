//! Paths, queries and hosts as the server behind will understand them.
//!
//! Why      `/login`, `/%6cogin`, `//login` and `/a/../login` are one page to most servers. Were they four
//!          to us, whoever is limited would have three more tries.
//! Always   An escaped `/` stays escaped: it does not separate.

use std::borrow::Cow;

/// The path without escapes that need not be, empty segments, `.` and `..`.
pub(super) fn path(raw: &str) -> Cow<'_, [u8]> {
    let is_normal = !raw.contains("//") && !raw.contains("/.") && !raw.contains('%');
    if is_normal {
        return Cow::Borrowed(raw.as_bytes());
    }
    let decoded = decode(raw.as_bytes(), Decode::Path);
    let mut segments: Vec<&[u8]> = Vec::new();
    let pieces: Vec<&[u8]> = decoded.split(|byte| *byte == b'/').collect();
    for piece in &pieces {
        match *piece {
            b"" | b"." => {}
            b".." => drop(segments.pop()),
            piece => segments.push(piece),
        }
    }
    let mut normal = Vec::with_capacity(decoded.len());
    for segment in &segments {
        normal.push(b'/');
        normal.extend_from_slice(segment);
    }
    // What ended as a directory still does.
    let is_directory = pieces.last().is_none_or(|last| matches!(*last, b"" | b"." | b".."));
    if is_directory || normal.is_empty() {
        normal.push(b'/');
    }
    Cow::Owned(normal)
}

/// The first parameter of this name, decoded.
pub(super) fn parameter<'a>(query: &'a str, name: &str) -> Option<Cow<'a, [u8]>> {
    query.split('&').find_map(|pair| {
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        let is_meant = *decode(key.as_bytes(), Decode::Query) == *name.as_bytes();
        is_meant.then(|| decode(value.as_bytes(), Decode::Query))
    })
}

/// The host in small letters, without the dot that may end it.
pub(super) fn host(raw: &str) -> Cow<'_, [u8]> {
    let host = raw.strip_suffix('.').unwrap_or(raw);
    if host.bytes().any(|byte| byte.is_ascii_uppercase()) {
        return Cow::Owned(host.to_ascii_lowercase().into_bytes());
    }
    Cow::Borrowed(host.as_bytes())
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Decode {
    /// `%2F` stays.
    Path,
    /// `+` is a blank.
    Query,
}

fn decode(raw: &[u8], how: Decode) -> Cow<'_, [u8]> {
    let is_plus = |byte: u8| byte == b'+' && how == Decode::Query;
    if !raw.iter().any(|byte| *byte == b'%' || is_plus(*byte)) {
        return Cow::Borrowed(raw);
    }
    let mut decoded = Vec::with_capacity(raw.len());
    let mut rest = raw;
    while let Some((first, after)) = rest.split_first() {
        rest = after;
        match escaped(*first, after) {
            Some(b'/') if how == Decode::Path => {
                decoded.extend_from_slice(b"%2F");
                rest = &after[2..];
            }
            Some(byte) => {
                decoded.push(byte);
                rest = &after[2..];
            }
            None if is_plus(*first) => decoded.push(b' '),
            None => decoded.push(*first),
        }
    }
    Cow::Owned(decoded)
}

/// The byte that `%xx` stands for.
fn escaped(first: u8, after: &[u8]) -> Option<u8> {
    let hex = |byte: u8| char::from(byte).to_digit(16);
    let (high, low) = (*after.first()?, *after.get(1)?);
    let byte = hex(high)? * 16 + hex(low)?;
    u8::try_from(byte).ok().filter(|_| first == b'%')
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn normal(raw: &str) -> String {
        String::from_utf8_lossy(&path(raw)).into_owned()
    }

    #[test]
    fn spellings_of_a_path_are_one_path() {
        for raw in
            ["/login", "/%6cogin", "/%6Cogin", "//login", "/./login", "/a/../login", "/../login"]
        {
            assert_eq!(normal(raw), "/login", "{raw}");
        }
        assert_eq!(normal("/a%2fb"), "/a%2Fb", "an escaped slash does not separate");
        assert_eq!(normal("/a/b/.."), "/a/");
        assert_eq!(normal("/a/"), "/a/", "a slash at the end means something to some");
        assert_eq!(normal("/a%"), "/a%");
        assert_eq!(normal("/a%4"), "/a%4");
        assert_eq!(normal("//"), "/");
        assert_eq!(normal("/.well-known/x"), "/.well-known/x");
    }

    #[test]
    fn parameters_are_decoded() {
        let value = |query, name| {
            parameter(query, name).map(|value| String::from_utf8_lossy(&value).into_owned())
        };
        assert_eq!(value("a=1&b=2&b=3", "b").unwrap(), "2");
        assert_eq!(value("us%65r=%61+b", "user").unwrap(), "a b");
        assert_eq!(value("a", "a").unwrap(), "");
        assert_eq!(value("a=1", "b"), None);
    }

    #[test]
    fn hosts_are_in_small_letters() {
        assert_eq!(*host("API.Example.COM."), *b"api.example.com");
    }

    proptest! {
        #[test]
        fn a_path_stays_one(raw in "/[a./%2]{0,12}") {
            let once = normal(&raw);
            prop_assert!(once.starts_with('/'));
            prop_assert!(!once.contains("//"));
            prop_assert!(!once.split('/').any(|segment| segment == ".."));
        }
    }
}
