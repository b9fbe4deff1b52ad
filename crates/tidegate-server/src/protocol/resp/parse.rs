//! Bytes in, commands out: arrays of bulk strings, and lines for people with telnet.
//!
//! Always   Nothing is copied and nothing is allocated by what a peer announces: a command is ranges of the
//!          bytes that have come, and what is too large is refused when it is announced, not when it is there.
//!          There is nothing to nest, so nothing can be nested deeply.

use crate::escape::Escaped;
use std::ops::Range;

/// What a peer may send in one command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CommandCaps {
    /// How many arguments, with the command's name.
    pub args_max: usize,
    /// How many bytes in one of them.
    pub arg_bytes_max: usize,
    /// How many bytes in all.
    pub command_bytes_max: usize,
    is_authenticated: bool,
}

impl CommandCaps {
    /// Before the peer has said who it is: as little as any client needs for that.
    pub const UNAUTHENTICATED: Self = Self {
        args_max: 10,
        arg_bytes_max: 16 * 1024,
        command_bytes_max: 64 * 1024,
        is_authenticated: false,
    };
    /// After.
    pub const AUTHENTICATED: Self = Self {
        args_max: 1_024,
        arg_bytes_max: 512 * 1024,
        command_bytes_max: 1024 * 1024,
        is_authenticated: true,
    };
    /// A line without an end is no line.
    pub const LINE_BYTES_MAX: usize = 64 * 1024;
}

/// A command's words, as ranges of the bytes it was read from. Used again for every command.
#[derive(Debug, Default)]
pub struct Words {
    ranges: Vec<Range<usize>>,
}

/// What is wrong with what a peer sends. There is no way to go on after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProtocolError {
    /// The number of arguments is not one, or is too large.
    #[error("invalid multibulk length")]
    Args,
    /// Too many arguments from somebody who has not said who it is.
    #[error("unauthenticated multibulk length")]
    UnauthenticatedArgs,
    /// Something else where an argument should begin.
    #[error("expected '$', got '{}'", Escaped::new(&[*.0]))]
    NoArg(u8),
    /// The length of an argument is not one, or is too large.
    #[error("invalid bulk length")]
    Arg,
    /// Too long an argument from somebody who has not said who it is.
    #[error("unauthenticated bulk length")]
    UnauthenticatedArg,
    /// An argument does not end where it said.
    #[error("expected the end of an argument")]
    NoEnd,
    /// The whole command is too large.
    #[error("too big a command")]
    TooBig,
    /// A line without an end.
    #[error("too big inline request")]
    TooLong,
    /// A line with a quote that is not closed.
    #[error("unbalanced quotes in request")]
    Quotes,
}

impl Words {
    /// How many there are.
    pub fn len(&self) -> usize {
        self.ranges.len()
    }

    /// Whether there is none: an empty line, or an empty array.
    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// The word at this place; empty if there is none.
    #[inline]
    pub fn get<'a>(&self, bytes: &'a [u8], place: usize) -> &'a [u8] {
        self.ranges.get(place).map_or(&[], |range| &bytes[range.clone()])
    }

    /// All of them from this place on.
    pub fn from<'a>(&'a self, bytes: &'a [u8], place: usize) -> impl Iterator<Item = &'a [u8]> {
        self.ranges.iter().skip(place).map(|range| &bytes[range.clone()])
    }

    /// Where the word at this place is; nowhere if there is none.
    #[inline]
    pub(super) fn range(&self, place: usize) -> Range<usize> {
        self.ranges.get(place).cloned().unwrap_or_default()
    }

    /// Where the last word ends.
    #[inline]
    pub(super) fn end(&self) -> Option<usize> {
        self.ranges.last().map(|range| range.end)
    }

    /// From the beginning of the word at this place to the end of the last one.
    #[inline]
    pub fn span<'a>(&self, bytes: &'a [u8], place: usize) -> &'a [u8] {
        match (self.ranges.get(place), self.ranges.last()) {
            (Some(first), Some(last)) => &bytes[first.start..last.end],
            _ => &[],
        }
    }
}

/// Reads the first command. Tells how many bytes it had; `None` if it has not all come yet.
#[inline]
pub fn parse(
    bytes: &[u8],
    words: &mut Words,
    caps: &CommandCaps,
) -> Result<Option<usize>, ProtocolError> {
    words.ranges.clear();
    let read = match bytes.first() {
        None => return Ok(None),
        Some(b'*') => array(bytes, words, caps)?,
        Some(_) => line(bytes, words, caps)?,
    };
    match read {
        None if bytes.len() >= caps.command_bytes_max => Err(ProtocolError::TooBig),
        read => Ok(read),
    }
}

fn array(
    bytes: &[u8],
    words: &mut Words,
    caps: &CommandCaps,
) -> Result<Option<usize>, ProtocolError> {
    let Some((count, mut at)) = number(bytes, 1).map_err(|Bad| ProtocolError::Args)? else {
        return Ok(None);
    };
    let count = usize::try_from(count).unwrap_or(0);
    if count > caps.args_max {
        return Err(caps.of(ProtocolError::Args, ProtocolError::UnauthenticatedArgs));
    }
    for _ in 0..count {
        match bytes.get(at) {
            None => return Ok(None),
            Some(b'$') => {}
            Some(other) => return Err(ProtocolError::NoArg(*other)),
        }
        let Some((len, from)) = number(bytes, at + 1).map_err(|Bad| ProtocolError::Arg)? else {
            return Ok(None);
        };
        let len = usize::try_from(len).map_err(|_| ProtocolError::Arg)?;
        if len > caps.arg_bytes_max {
            return Err(caps.of(ProtocolError::Arg, ProtocolError::UnauthenticatedArg));
        }
        let to = from + len;
        match bytes.get(to..to + 2) {
            None if to > caps.command_bytes_max => return Err(ProtocolError::TooBig),
            None => return Ok(None),
            Some(b"\r\n") => {}
            Some(_) => return Err(ProtocolError::NoEnd),
        }
        words.ranges.push(from..to);
        at = to + 2;
    }
    Ok(Some(at))
}

impl CommandCaps {
    fn of(&self, known: ProtocolError, stranger: ProtocolError) -> ProtocolError {
        if self.is_authenticated { known } else { stranger }
    }
}

struct Bad;

/// No length has more digits.
const DIGITS_MAX: usize = 10;

/// Reads a number and the end of its line. Tells where it went on; `None` if it has not all come yet.
#[inline]
fn number(bytes: &[u8], from: usize) -> Result<Option<(i64, usize)>, Bad> {
    let (is_negative, mut at) = match bytes.get(from) {
        Some(b'-') => (true, from + 1),
        _ => (false, from),
    };
    let first = at;
    let mut value = 0_i64;
    loop {
        match bytes.get(at) {
            None => return Ok(None),
            Some(digit @ b'0'..=b'9') if at - first < DIGITS_MAX => {
                value = value * 10 + i64::from(digit - b'0');
                at += 1;
            }
            Some(b'\r') if at > first => break,
            Some(_) => return Err(Bad),
        }
    }
    match bytes.get(at + 1) {
        None => Ok(None),
        Some(b'\n') => Ok(Some((if is_negative { -value } else { value }, at + 2))),
        Some(_) => Err(Bad),
    }
}

/// Words between spaces, as somebody types them. Quotes hold spaces pipeline.
fn line(
    bytes: &[u8],
    words: &mut Words,
    caps: &CommandCaps,
) -> Result<Option<usize>, ProtocolError> {
    let Some(end) = memchr::memchr(b'\n', &bytes[..bytes.len().min(CommandCaps::LINE_BYTES_MAX)])
    else {
        let is_too_long = bytes.len() >= CommandCaps::LINE_BYTES_MAX;
        return if is_too_long { Err(ProtocolError::TooLong) } else { Ok(None) };
    };
    let text = &bytes[..end];
    let text = text.strip_suffix(b"\r").unwrap_or(text);
    let mut at = 0;
    while at < text.len() {
        if text[at].is_ascii_whitespace() {
            at += 1;
            continue;
        }
        let word = if let quote @ (b'"' | b'\'') = text[at] {
            let from = at + 1;
            let len = memchr::memchr(quote, &text[from..]).ok_or(ProtocolError::Quotes)?;
            at = from + len + 1;
            from..from + len
        } else {
            let from = at;
            while at < text.len() && !text[at].is_ascii_whitespace() {
                at += 1;
            }
            from..at
        };
        if words.len() == caps.args_max {
            return Err(caps.of(ProtocolError::Args, ProtocolError::UnauthenticatedArgs));
        }
        if word.len() > caps.arg_bytes_max {
            return Err(caps.of(ProtocolError::Arg, ProtocolError::UnauthenticatedArg));
        }
        words.ranges.push(word);
    }
    Ok(Some(end + 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The words, and how many bytes they took.
    type Read = (Vec<Vec<u8>>, usize);

    fn read(bytes: &[u8]) -> Result<Option<Read>, ProtocolError> {
        read_from(bytes, &CommandCaps::AUTHENTICATED)
    }

    fn read_from(bytes: &[u8], caps: &CommandCaps) -> Result<Option<Read>, ProtocolError> {
        let mut words = Words::default();
        let read = parse(bytes, &mut words, caps)?;
        Ok(read.map(|len| (words.from(bytes, 0).map(<[u8]>::to_vec).collect(), len)))
    }

    fn words(texts: &[&str]) -> Vec<Vec<u8>> {
        texts.iter().map(|text| text.as_bytes().to_vec()).collect()
    }

    #[test]
    fn a_command_is_read_whole_or_not_at_all() {
        let bytes = b"*2\r\n$4\r\nPING\r\n$2\r\n\r\n\r\n*1\r\n";
        assert_eq!(read(bytes), Ok(Some((words(&["PING", "\r\n"]), 22))));
        for cut in 0..22 {
            assert_eq!(read(&bytes[..cut]), Ok(None), "{cut} bytes");
        }
    }

    #[test]
    fn a_line_is_a_command_too() {
        assert_eq!(read(b"PING\r\n"), Ok(Some((words(&["PING"]), 6))));
        assert_eq!(read(b"  a \"b c\" 'd' \nx"), Ok(Some((words(&["a", "b c", "d"]), 15))));
        assert_eq!(read(b"\r\n"), Ok(Some((Vec::new(), 2))));
        assert_eq!(read(b"a \"b\n"), Err(ProtocolError::Quotes));
    }

    #[test]
    fn empty_arrays_are_no_commands() {
        assert_eq!(read(b"*0\r\n"), Ok(Some((Vec::new(), 4))));
        assert_eq!(read(b"*-1\r\n"), Ok(Some((Vec::new(), 5))));
    }

    #[test]
    fn what_is_no_command_is_refused() {
        for (bytes, error) in [
            (&b"*x\r\n"[..], ProtocolError::Args),
            (b"*1000000000\r\n", ProtocolError::Args),
            (b"*12345678901234567890\r\n", ProtocolError::Args),
            (b"*1\n", ProtocolError::Args),
            (b"*\r\n", ProtocolError::Args),
            (b"*1\r\n:1\r\n", ProtocolError::NoArg(b':')),
            (b"*1\r\n*1\r\n", ProtocolError::NoArg(b'*')),
            (b"*1\r\n$-1\r\n", ProtocolError::Arg),
            (b"*1\r\n$2147483647\r\n", ProtocolError::Arg),
            (b"*1\r\n$1\r\nab\r\n", ProtocolError::NoEnd),
        ] {
            assert_eq!(read(bytes), Err(error), "{}", bytes.escape_ascii());
        }
    }

    #[test]
    fn a_stranger_may_say_little() {
        let caps = CommandCaps::UNAUTHENTICATED;
        assert_eq!(read_from(b"*10\r\n", &caps), Ok(None));
        assert_eq!(read_from(b"*11\r\n", &caps), Err(ProtocolError::UnauthenticatedArgs));
        assert_eq!(read_from(b"*1\r\n$16384\r\n", &caps), Ok(None));
        assert_eq!(read_from(b"*1\r\n$16385\r\n", &caps), Err(ProtocolError::UnauthenticatedArg));
        let line = |words, bytes| format!("{}\n", vec!["x".repeat(bytes); words].join(" "));
        assert!(read_from(line(10, 1).as_bytes(), &caps).is_ok());
        let error = Err(ProtocolError::UnauthenticatedArgs);
        assert_eq!(
            read_from(line(11, 1).as_bytes(), &caps),
            error,
            "a word takes more than it is long"
        );
        assert!(read_from(line(1, 16_384).as_bytes(), &caps).is_ok());
        let error = Err(ProtocolError::UnauthenticatedArg);
        assert_eq!(read_from(line(1, 16_385).as_bytes(), &caps), error);
    }

    #[test]
    fn what_is_announced_too_large_is_refused_before_it_comes() {
        let full = format!("*3\r\n$524288\r\n{}\r\n$524288\r\n", "x".repeat(524_288));
        let more = format!("{full}{}\r\n$9\r\n", "x".repeat(524_288));
        assert_eq!(read(full.as_bytes()), Err(ProtocolError::TooBig));
        assert_eq!(read(more.as_bytes()), Err(ProtocolError::TooBig));
        let line = "x".repeat(CommandCaps::LINE_BYTES_MAX);
        assert_eq!(read(&line.as_bytes()[1..]), Ok(None));
        assert_eq!(read(line.as_bytes()), Err(ProtocolError::TooLong));
    }
}
