//! Patterns in which `*` stands for any run of characters, also an empty one.
//!
//! Bound    Linear in pattern and text: each piece between two stars is searched once, and its first occurrence is taken. A
//!          later occurrence could not match more.

use memchr::memmem;
use std::fmt;

/// A text in which `*` stands for any run of characters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pattern(pub String);

impl Pattern {
    /// Returns whether the pattern matches the whole text.
    pub fn matches(&self, text: &[u8]) -> bool {
        matches(self.0.as_bytes(), text)
    }

    /// Returns whether the pattern contains a `*`.
    pub fn has_star(&self) -> bool {
        self.0.contains('*')
    }
}

/// Returns whether the pattern matches the whole text.
pub(super) fn matches(pattern: &[u8], text: &[u8]) -> bool {
    let mut pieces = pattern.split(|byte| *byte == b'*');
    let first = pieces.next().unwrap_or_default();
    let Some(last) = pieces.next_back() else { return text == first };
    let Some(rest) = text.strip_prefix(first) else { return false };
    let Some(mut rest) = rest.strip_suffix(last) else { return false };
    for piece in pieces {
        let Some(found) = memmem::find(rest, piece) else { return false };
        rest = &rest[found + piece.len()..];
    }
    true
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn matches(pattern: &str, text: &str) -> bool {
        Pattern(pattern.to_owned()).matches(text.as_bytes())
    }

    #[test]
    fn a_star_is_any_run_of_characters() {
        assert!(matches("/login*", "/login"));
        assert!(matches("/login*", "/login/again"));
        assert!(!matches("/login*", "/logi"));
        assert!(matches("*.example.com", "a.b.example.com"));
        assert!(!matches("*.example.com", "example.com"));
        assert!(matches("/v1/*/edit", "/v1/a/b/edit"));
        assert!(!matches("ab*ba", "aba"));
        assert!(matches("a*b*c", "a-b-b-c"));
        assert!(matches("*", ""));
        assert!(matches("", ""));
        assert!(!matches("", "a"));
        assert!(matches("**", "anything"));
    }

    #[test]
    fn a_pattern_made_to_be_slow_is_not() {
        let pattern = Pattern("a*".repeat(10_000) + "b");
        assert!(!pattern.matches("a".repeat(1_000_000).as_bytes()));
    }

    /// The definition of a match, by trying every run of characters.
    fn tried(pattern: &[u8], text: &[u8]) -> bool {
        match pattern.split_first() {
            None => text.is_empty(),
            Some((b'*', rest)) => (0..=text.len()).any(|skip| tried(rest, &text[skip..])),
            Some((letter, rest)) => text.first() == Some(letter) && tried(rest, &text[1..]),
        }
    }

    proptest! {
        #[test]
        fn matching_agrees_with_an_exhaustive_search(pattern in "[ab*]{0,8}", text in "[ab]{0,10}") {
            prop_assert_eq!(matches(&pattern, &text), tried(pattern.as_bytes(), text.as_bytes()));
        }
    }
}
