//! Which known word somebody meant who wrote another: letter case, `_` for `-`, and slips of the pen.

use alloc::string::String;
use alloc::vec::Vec;
use core::mem;

/// No word of ours is nearly as long; what is longer is not compared.
const BYTES_MAX: usize = 24;

/// The nearest of the known words, if one is near.
pub(super) fn nearest(
    text: &str,
    known: impl IntoIterator<Item = &'static str>,
) -> Option<&'static str> {
    if text.len() > BYTES_MAX || !text.is_ascii() {
        return None;
    }
    let text: String = text.to_ascii_lowercase().replace('_', "-");
    let near = known.into_iter().filter_map(|word| {
        let slips = slips(text.as_bytes(), word.as_bytes());
        (slips <= slips_max(word)).then_some((slips, word))
    });
    near.min_by_key(|(slips, _)| *slips).map(|(_, word)| word)
}

/// A short word is near to too many others: `in` is a slip away from a unit.
fn slips_max(word: &str) -> usize {
    match word.len() {
        0..=3 => 0,
        4..=5 => 1,
        _ => 2,
    }
}

/// How many letters were left out, put in, changed, or swapped with the next.
fn slips(a: &[u8], b: &[u8]) -> usize {
    let mut before_last: Vec<usize> = Vec::new();
    let mut last: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.iter().enumerate() {
        let mut row = Vec::with_capacity(b.len() + 1);
        row.push(i + 1);
        for (j, y) in b.iter().enumerate() {
            let changed = last[j] + usize::from(x != y);
            let mut fewest = changed.min(last[j + 1] + 1).min(row[j] + 1);
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
    fn a_slip_of_the_pen_is_near() {
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
            assert_eq!(nearest(text, KNOWN), Some(meant), "{text}");
        }
    }

    #[test]
    fn another_word_is_not() {
        for text in ["", "i", "on", "fast", "rest", "bursting", "que", "漢字", &"burst".repeat(9)]
        {
            assert_eq!(nearest(text, KNOWN), None, "{text}");
        }
    }

    #[test]
    fn slips_are_counted_both_ways() {
        for (a, b, count) in [("", "", 0), ("", "ab", 2), ("ab", "ba", 1), ("abc", "acd", 2)] {
            assert_eq!(slips(a.as_bytes(), b.as_bytes()), count, "{a} {b}");
            assert_eq!(slips(b.as_bytes(), a.as_bytes()), count, "{b} {a}");
        }
    }
}
