//! Text from clients, servers and files, made safe for a terminal, a log and a line of a protocol.
//!
//! Always   [`Escaped`] writes no control character (C0, DEL, C1), no mark that changes the direction of text, and no invalid UTF-8:
//!          they become escapes such as `\u001b`, or `\xff` for a byte. The first form is also valid within a JSON string, so that a
//!          log line in JSON stays JSON.

use std::fmt::{self, Display, Formatter};

/// Bytes from a peer, or a text that repeats some of them, for people to read.
///
/// ```
/// use tidegate_server::escape::Escaped;
///
/// assert_eq!(Escaped::new(b"ERR \x1b[2J").to_string(), "ERR \\u001b[2J");
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Escaped<'a> {
    bytes: &'a [u8],
    line_break: Option<&'static str>,
}

impl<'a> Escaped<'a> {
    /// Escapes line breaks like every other control character.
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, line_break: None }
    }

    /// Writes this for each line feed and carriage return.
    #[must_use]
    pub fn line_break(mut self, line_break: &'static str) -> Self {
        self.line_break = Some(line_break);
        self
    }
}

impl Display for Escaped<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        for chunk in self.bytes.utf8_chunks() {
            let mut rest = chunk.valid();
            while let Some((at, unsafe_char)) = rest.char_indices().find(|(_, c)| is_unsafe(*c)) {
                f.write_str(&rest[..at])?;
                match self.line_break.filter(|_| matches!(unsafe_char, '\n' | '\r')) {
                    Some(line_break) => f.write_str(line_break),
                    None => write_unit_escapes(f, unsafe_char),
                }?;
                rest = &rest[at + unsafe_char.len_utf8()..];
            }
            f.write_str(rest)?;
            chunk.invalid().iter().try_for_each(|byte| write!(f, "\\x{byte:02x}"))?;
        }
        Ok(())
    }
}

fn write_unit_escapes(f: &mut Formatter<'_>, unsafe_char: char) -> fmt::Result {
    let mut units = [0; 2];
    unsafe_char.encode_utf16(&mut units).iter().try_for_each(|unit| write!(f, "\\u{unit:04x}"))
}

/// Returns whether a terminal would interpret the character instead of showing it, or would reorder the text around it.
fn is_unsafe(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_character_is_left_that_a_terminal_interprets() {
        for (bytes, expected) in [
            (&b"\x1b[31mred\x07\0\x7f"[..], r"\u001b[31mred\u0007\u0000\u007f"),
            ("C1 \u{9b}31m".as_bytes(), r"C1 \u009b31m"),
            (b"8-bit \x9b31m \xff", r"8-bit \x9b31m \xff"),
            ("\u{202e}txt.exe".as_bytes(), r"\u202etxt.exe"),
            (b"two\r\nlines\t", r"two\u000d\u000alines\u0009"),
            ("Zoë's key: 東京 \\ \"".as_bytes(), "Zoë's key: 東京 \\ \""),
            (b"cut \xe6\x9d", r"cut \xe6\x9d"),
        ] {
            assert_eq!(Escaped::new(bytes).to_string(), expected);
        }
    }

    #[test]
    fn line_breaks_are_replaced() {
        let text = Escaped::new(b"first\r\nsecond\x1b").line_break("\n  ");
        assert_eq!(text.to_string(), "first\n  \n  second\\u001b");
    }

    #[test]
    fn no_character_that_is_a_control_character_is_written() {
        let all: String = (0..=u32::from(char::MAX)).filter_map(char::from_u32).collect();
        let escaped = Escaped::new(all.as_bytes()).to_string();
        assert!(!escaped.chars().any(char::is_control));
        let json = format!("\"{}\"", Escaped::new("\u{7f}\u{9b}\u{202e}".as_bytes()));
        assert_eq!(serde_json::from_str::<String>(&json).unwrap(), "\u{7f}\u{9b}\u{202e}");
    }
}
