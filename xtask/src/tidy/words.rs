//! Finds whole words in a line.
//!
//! Always   A hyphen is part of a word, so `tidegate` is not found in `tidegate-core`.

pub(super) fn has_word(line: &str, word: &str) -> bool {
    line.match_indices(word).any(|(start, _)| {
        let before = line[..start].chars().next_back();
        let after = line[start + word.len()..].chars().next();
        !before.is_some_and(is_part) && !after.is_some_and(is_part)
    })
}

fn is_part(c: char) -> bool {
    c.is_alphanumeric() || c == '_' || c == '-'
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_whole_words_are_found() {
        for line in ["tidegate", "`tidegate`: x", "a tidegate.", "tidegate-core and tidegate"] {
            assert!(has_word(line, "tidegate"), "{line}");
        }
        for line in ["", "tidegate-core", "tidegates", "my_tidegate"] {
            assert!(!has_word(line, "tidegate"), "{line}");
        }
    }
}
