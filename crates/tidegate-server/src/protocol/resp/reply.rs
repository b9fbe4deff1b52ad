//! Answers, in the words of RESP2 or RESP3.

use super::OUTPUT_KEPT;
use crate::escape::Escaped;
use std::fmt::Display;
use std::io::Write as _;

/// Which RESP a peer wants to hear.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Version {
    /// What everybody understands.
    #[default]
    Two,
    /// With maps and nulls of their own.
    Three,
}

/// What has been said and not been sent.
#[derive(Debug, Default)]
pub(super) struct Reply {
    bytes: Vec<u8>,
    pub(super) version: Version,
}

impl Reply {
    /// Nothing yet, in these words.
    pub(super) fn in_words_of(version: Version) -> Self {
        Self { bytes: Vec::new(), version }
    }

    /// Says what another has said.
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

    /// Takes back what was said after this.
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

    /// Five integers, which is what nearly every answer is.
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

    /// Appends an error. The message may repeat what a peer has sent: nothing of it ends the line (a space stands for a
    /// line break, as in Redis), or is obeyed by the terminal that shows it.
    pub(super) fn error(&mut self, message: impl Display) {
        let message = message.to_string();
        let message = Escaped::new(message.as_bytes()).line_break(" ");
        write!(self.bytes, "-{message}\r\n").expect("a buffer takes all");
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
