//! Writes TOML values, keys and comments.

use std::fmt::Write;

/// Quotes and escapes a string.
pub(super) fn quoted(text: &str) -> String {
    let mut quoted = String::from("\"");
    for c in text.chars() {
        match c {
            '"' => quoted.push_str("\\\""),
            '\\' => quoted.push_str("\\\\"),
            c if c.is_control() => {
                write!(quoted, "\\u{:04X}", u32::from(c)).expect("writing to a string cannot fail");
            }
            c => quoted.push(c),
        }
    }
    quoted.push('"');
    quoted
}

/// Writes a list of strings.
pub(super) fn list(texts: &[String]) -> String {
    let quoted: Vec<String> = texts.iter().map(|text| quoted(text)).collect();
    format!("[{}]", quoted.join(", "))
}

/// Writes a comment line; control characters become blanks.
pub(super) fn comment(text: &str) -> String {
    let line: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    format!("# {line}\n")
}

/// Writes a key, quoted if necessary.
pub(super) fn key(name: &str) -> String {
    let is_bare = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    if !name.is_empty() && name.chars().all(is_bare) { name.to_owned() } else { quoted(name) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_keys_and_comments_are_escaped() {
        assert_eq!(quoted("a\"b\\c\n\u{7f}ä"), "\"a\\\"b\\\\c\\u000A\\u007Fä\"");
        assert_eq!(key("a-b_1"), "a-b_1");
        assert_eq!(key("a.b"), "\"a.b\"");
        assert_eq!(comment("a\nb"), "# a b\n");
    }
}
