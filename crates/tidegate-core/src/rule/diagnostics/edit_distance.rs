//! Spelling suggestions: which known name a misspelt one was probably meant to be.

use alloc::vec::Vec;
use core::mem;

/// Longer names are not compared, so that hostile input costs nothing.
const CHARS_MAX: usize = 64;

/// Returns the known name that is most like `text`, if one is alike enough to suggest it.
///
/// About one character in three may differ. This suits names of some length, such as configuration fields and limits;
/// names beyond 64 characters are not compared.
pub fn nearest_name<'k>(text: &str, known: impl IntoIterator<Item = &'k str>) -> Option<&'k str> {
    let edits_max = text.chars().count() / 3 + 1;
    nearest(text, known, |_| edits_max)
}

/// Returns the word of the rule language that is most like `text`, if one is alike enough to suggest it.
///
/// Letter case is ignored, and `_` counts as `-`.
pub(in crate::rule) fn nearest_word(
    text: &str,
    known: impl IntoIterator<Item = &'static str>,
) -> Option<&'static str> {
    let text = text.to_ascii_lowercase().replace('_', "-");
    nearest(&text, known, |word| match word.len() {
        // One edit turns a short word into too many others: `in` is one edit away from a unit.
        0..=3 => 0,
        4..=5 => 1,
        _ => 2,
    })
}

fn nearest<'k>(
    text: &str,
    known: impl IntoIterator<Item = &'k str>,
    edits_max: impl Fn(&str) -> usize,
) -> Option<&'k str> {
    let text: Vec<char> = text.chars().take(CHARS_MAX + 1).collect();
    if text.len() > CHARS_MAX {
        return None;
    }
    let near = known.into_iter().filter_map(|name| {
        let chars: Vec<char> = name.chars().take(CHARS_MAX + 1).collect();
        if chars.len() > CHARS_MAX {
            return None;
        }
        let edits = edit_distance(&text, &chars);
        (edits <= edits_max(name)).then_some((edits, name))
    });
    near.min_by_key(|(edits, _)| *edits).map(|(_, name)| name)
}

/// Counts the characters to insert, delete, replace or swap with their neighbour to turn `a` into `b`.
fn edit_distance(a: &[char], b: &[char]) -> usize {
    let mut before_last: Vec<usize> = Vec::new();
    let mut last: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.iter().enumerate() {
        let mut row = Vec::with_capacity(b.len() + 1);
        row.push(i + 1);
        for (j, y) in b.iter().enumerate() {
            let replaced = last[j] + usize::from(x != y);
            let mut fewest = replaced.min(last[j + 1] + 1).min(row[j] + 1);
            if i > 0 && j > 0 && *x == b[j - 1] && a[i - 1] == *y {
                fewest = fewest.min(before_last[j - 1] + 1);
            }
            row.push(fewest);
        }
        before_last = mem::replace(&mut last, row);
    }
    last[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    const KNOWN: [&str; 6] = ["burst", "queue", "sliding", "sliding-log", "in", "concurrency"];

    #[test]
    fn a_misspelt_word_is_recognised() {
        for (text, meant) in [
            ("brst", "burst"),
            ("busrt", "burst"),
            ("burrst", "burst"),
            ("Burst", "burst"),
            ("qeue", "queue"),
            ("sliding_log", "sliding-log"),
            ("slidinglog", "sliding-log"),
            ("slidding", "sliding"),
            ("concurrent", "concurrency"),
        ] {
            assert_eq!(nearest_word(text, KNOWN), Some(meant), "{text}");
        }
    }

    #[test]
    fn a_different_word_is_not_recognised() {
        for text in ["", "i", "on", "fast", "rest", "bursting", "que", "漢字", &"burst".repeat(9)]
        {
            assert_eq!(nearest_word(text, KNOWN), None, "{text}");
        }
    }

    #[test]
    fn a_name_may_differ_in_a_third_of_its_characters() {
        let known = ["max_keys", "mode", "rule"];
        assert_eq!(nearest_name("max_key", known), Some("max_keys"));
        assert_eq!(nearest_name("ruel", known), Some("rule"));
        assert_eq!(nearest_name("colour", known), None);
        assert_eq!(nearest_name("x", []), None);
        let long = "x".repeat(CHARS_MAX + 1);
        assert_eq!(nearest_name(&long, [long.as_str()]), None, "too long to compare");
    }

    #[test]
    fn the_edit_distance_is_symmetric() {
        for (a, b, edits) in [("", "", 0), ("", "ab", 2), ("ab", "ba", 1), ("abc", "acd", 2)] {
            let [x, y] = [a, b].map(|text| text.chars().collect::<Vec<_>>());
            assert_eq!(edit_distance(&x, &y), edits, "{a} {b}");
            assert_eq!(edit_distance(&y, &x), edits, "{b} {a}");
        }
    }
}
