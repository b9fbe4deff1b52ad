//! The word that somebody may have meant.

/// The one of these that looks most like `word`, if any looks much like it.
pub fn near<'a>(word: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let bearable = word.chars().count() / 3 + 1;
    known
        // As many letters would have to be put in or left out.
        .filter(|name| name.len().abs_diff(word.len()) <= 4 * bearable)
        .map(|name| (distance(word, name), name))
        .filter(|(distance, _)| *distance <= bearable)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, name)| name)
}

/// How many letters have to be changed, left out or put in.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (line, letter) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = line + 1;
        for (column, other) in b.iter().enumerate() {
            let change = diagonal + usize::from(letter != *other);
            diagonal = row[column + 1];
            row[column + 1] = change.min(diagonal + 1).min(row[column] + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slip_is_recognised_and_a_stranger_is_not() {
        let known = || ["max_keys", "mode", "rule"].into_iter();
        assert_eq!(near("max_key", known()), Some("max_keys"));
        assert_eq!(near("ruel", known()), Some("rule"));
        assert_eq!(near("colour", known()), None);
        assert_eq!(near("x", [].into_iter()), None);
    }
}
