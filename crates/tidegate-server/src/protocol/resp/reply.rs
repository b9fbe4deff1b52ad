//! Writes answers in RESP2 or RESP3.

use super::OUTPUT_KEPT;
use crate::escape::Escaped;
use std::fmt::Display;
use std::io::Write as _;

/// The protocol version that a client has chosen with `HELLO`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Version {
    #[default]
    Two,
    Three,
}

/// Answers that have not been sent.
#[derive(Debug, Default)]
pub(super) struct Reply {
    bytes: Vec<u8>,
    pub(super) version: Version,
}

impl Version {
    pub(super) fn number(self) -> i64 {
        match self {
            Self::Two => 2,
            Self::Three => 3,
        }
    }
}

impl Reply {
    pub(super) fn new(version: Version) -> Self {
        Self { bytes: Vec::new(), version }
    }

    /// Appends the answers of another reply.
    pub(super) fn append(&mut self, other: &Self) {
        self.bytes.extend_from_slice(&other.bytes);
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    pub(super) fn len(&self) -> usize {
        self.bytes.len()
    }

    pub(super) fn clear(&mut self) {
        self.bytes.clear();
        self.bytes.shrink_to(OUTPUT_KEPT);
    }

    /// Removes the answers after this length.
    pub(super) fn truncate(&mut self, len: usize) {
        self.bytes.truncate(len);
    }

    #[inline]
    pub(super) fn integer(&mut self, value: i64) {
        self.line(b':', value);
    }

    #[inline]
    pub(super) fn array(&mut self, len: usize) {
        self.line(b'*', len);
    }

    pub(super) fn map(&mut self, len: usize) {
        match self.version {
            Version::Two => self.array(2 * len),
            Version::Three => self.line(b'%', len),
        }
    }

    /// Appends an array of five integers, as most answers are.
    #[inline]
    pub(super) fn five(&mut self, values: [i64; 5]) {
        self.bytes.reserve(5 * 23 + 4);
        self.bytes.extend_from_slice(b"*5\r\n");
        for value in values {
            match u8::try_from(value) {
                Ok(digit @ 0..=9) => {
                    self.bytes.extend_from_slice(&[b':', b'0' + digit, b'\r', b'\n']);
                }
                Ok(value @ 10..=99) => {
                    let (tens, ones) = (b'0' + value / 10, b'0' + value % 10);
                    self.bytes.extend_from_slice(&[b':', tens, ones, b'\r', b'\n']);
                }
                _ if value == -1 => self.bytes.extend_from_slice(b":-1\r\n"),
                _ => self.line(b':', value),
            }
        }
    }

    #[inline]
    fn line(&mut self, kind: u8, value: impl itoa::Integer) {
        self.bytes.push(kind);
        self.bytes.extend_from_slice(itoa::Buffer::new().format(value).as_bytes());
        self.bytes.extend_from_slice(b"\r\n");
    }

    pub(super) fn simple(&mut self, text: &str) {
        self.bytes.push(b'+');
        self.bytes.extend_from_slice(text.as_bytes());
        self.bytes.extend_from_slice(b"\r\n");
    }

    pub(super) fn ok(&mut self) {
        self.simple("OK");
    }

    /// Appends an error. The message may repeat a client's input, so control characters in it are escaped, and line breaks become
    /// spaces, as in Redis.
    pub(super) fn error(&mut self, message: impl Display) {
        let message = message.to_string();
        let message = Escaped::new(message.as_bytes()).line_break(" ");
        write!(self.bytes, "-{message}\r\n").expect("writing to a vector cannot fail");
    }

    pub(super) fn bulk(&mut self, text: impl AsRef<[u8]>) {
        let text = text.as_ref();
        self.line(b'$', text.len());
        self.bytes.extend_from_slice(text);
        self.bytes.extend_from_slice(b"\r\n");
    }

    pub(super) fn null(&mut self) {
        self.bytes.extend_from_slice(match self.version {
            Version::Two => b"$-1\r\n",
            Version::Three => b"_\r\n",
        });
    }
}

/// Returns the beginning of a client's word for an error message.
pub(super) fn shown(word: &[u8]) -> String {
    Escaped::new(&word[..word.len().min(128)]).to_string()
}
