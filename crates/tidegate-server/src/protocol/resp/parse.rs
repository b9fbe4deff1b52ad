//! Parses commands: arrays of bulk strings, and lines for people with telnet.
//!
//! Invariant Nothing is copied, and announced lengths allocate nothing: a command is a list of ranges of the input. An argument that
//!           is too long is refused when its length arrives, not when it has arrived. Arrays in arrays are refused.

use crate::escape::Escaped;
use std::ops::Range;

/// Limits on the size of one command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CommandCaps {
    /// Maximum number of words, with the command's name.
    pub args_max: usize,
    /// Maximum length of a word in bytes.
    pub arg_bytes_max: usize,
    /// Maximum length of the command in bytes.
    pub command_bytes_max: usize,
    is_authenticated: bool,
}

impl CommandCaps {
    /// Limits before authentication: no more than any client needs to authenticate.
    pub const UNAUTHENTICATED: Self = Self {
        args_max: 10,
        arg_bytes_max: 16 * 1024,
        command_bytes_max: 64 * 1024,
        is_authenticated: false,
    };
    /// Limits after authentication.
    pub const AUTHENTICATED: Self = Self {
        args_max: 1_024,
        arg_bytes_max: 512 * 1024,
        command_bytes_max: 1024 * 1024,
        is_authenticated: true,
    };
    /// Maximum length of a line in bytes.
    pub const LINE_BYTES_MAX: usize = 64 * 1024;
}

/// A command's words, as ranges of the input. The allocation is reused for every command.
#[derive(Debug, Default)]
pub struct Words {
    ranges: Vec<Range<usize>>,
}

/// A protocol violation. The connection cannot continue after it, because the start of the next command is unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProtocolError {
    /// The number of arguments is not a number or too large.
    #[error("invalid multibulk length")]
    Args,
    /// Too many arguments from an unauthenticated client.
    #[error("unauthenticated multibulk length")]
    UnauthenticatedArgs,
    /// Something other than `$` where an argument should begin.
    #[error("expected '$', got '{}'", Escaped::new(&[*.0]))]
    NoArg(u8),
    /// The length of an argument is not a number or too large.
    #[error("invalid bulk length")]
    Arg,
    /// Too long an argument from an unauthenticated client.
    #[error("unauthenticated bulk length")]
    UnauthenticatedArg,
    /// An argument does not end at its announced length.
    #[error("expected the end of an argument")]
    NoEnd,
    /// The whole command is too large.
    #[error("too big a command")]
    TooBig,
    /// A line is too long.
    #[error("too big inline request")]
    TooLong,
    /// A line has a quote that is not closed.
    #[error("unbalanced quotes in request")]
    Quotes,
}

impl Words {
    /// Returns the number of words.
    pub fn len(&self) -> usize {
        self.ranges.len()
    }

    /// Returns whether there are no words: an empty line or an empty array.
    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// Returns the word at this position; an empty one beyond the last.
    #[inline]
    pub fn get<'a>(&self, bytes: &'a [u8], position: usize) -> &'a [u8] {
        self.ranges.get(position).map_or(&[], |range| &bytes[range.clone()])
    }

    /// Returns the words from this position on.
    pub fn from<'a>(&'a self, bytes: &'a [u8], position: usize) -> impl Iterator<Item = &'a [u8]> {
        self.ranges.iter().skip(position).map(|range| &bytes[range.clone()])
    }
}

/// Parses the first command. Returns its length in bytes; `None` if it has not arrived completely.
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
    let Some((count, mut at)) = number(bytes, 1).map_err(|NotANumber| ProtocolError::Args)? else {
        return Ok(None);
    };
    let count = usize::try_from(count).unwrap_or(0);
    if count > caps.args_max {
        return Err(caps.error(ProtocolError::Args, ProtocolError::UnauthenticatedArgs));
    }
    for _ in 0..count {
        match bytes.get(at) {
            None => return Ok(None),
            Some(b'$') => {}
            Some(other) => return Err(ProtocolError::NoArg(*other)),
        }
        let Some((len, from)) = number(bytes, at + 1).map_err(|NotANumber| ProtocolError::Arg)?
        else {
            return Ok(None);
        };
        let len = usize::try_from(len).map_err(|_| ProtocolError::Arg)?;
        if len > caps.arg_bytes_max {
            return Err(caps.error(ProtocolError::Arg, ProtocolError::UnauthenticatedArg));
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
    fn error(&self, error: ProtocolError, unauthenticated: ProtocolError) -> ProtocolError {
        if self.is_authenticated { error } else { unauthenticated }
    }
}

struct NotANumber;

/// Maximum number of digits of a length.
const DIGITS_MAX: usize = 10;

/// Parses a number and the end of its line. Returns the position after it; `None` if it has not arrived completely.
#[inline]
fn number(bytes: &[u8], from: usize) -> Result<Option<(i64, usize)>, NotANumber> {
    let is_negative = bytes.get(from) == Some(&b'-');
    let first = from + usize::from(is_negative);
    let mut at = first;
    let mut value = 0_i64;
    while let Some(digit @ b'0'..=b'9') = bytes.get(at)
        && at - first < DIGITS_MAX
    {
        value = value * 10 + i64::from(digit - b'0');
        at += 1;
    }
    match (bytes.get(at), bytes.get(at + 1)) {
        (Some(b'\r'), Some(b'\n')) if at > first => {
            Ok(Some((if is_negative { -value } else { value }, at + 2)))
        }
        (None, _) => Ok(None),
        (Some(b'\r'), None) if at > first => Ok(None),
        _ => Err(NotANumber),
    }
}

/// Parses a line: words between spaces, as people type them. A word in quotes may contain spaces.
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
            return Err(caps.error(ProtocolError::Args, ProtocolError::UnauthenticatedArgs));
        }
        if word.len() > caps.arg_bytes_max {
            return Err(caps.error(ProtocolError::Arg, ProtocolError::UnauthenticatedArg));
        }
        words.ranges.push(word);
    }
    Ok(Some(end + 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The words, and their length in bytes.
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
    fn input_that_is_no_command_is_refused() {
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
    fn an_unauthenticated_client_may_send_little() {
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
            "a word takes more memory than its length"
        );
        assert!(read_from(line(1, 16_384).as_bytes(), &caps).is_ok());
        let error = Err(ProtocolError::UnauthenticatedArg);
        assert_eq!(read_from(line(1, 16_385).as_bytes(), &caps), error);
    }

    #[test]
    fn a_command_that_is_announced_too_large_is_refused_before_it_arrives() {
        let full = format!("*3\r\n$524288\r\n{}\r\n$524288\r\n", "x".repeat(524_288));
        let more = format!("{full}{}\r\n$9\r\n", "x".repeat(524_288));
        assert_eq!(read(full.as_bytes()), Err(ProtocolError::TooBig));
        assert_eq!(read(more.as_bytes()), Err(ProtocolError::TooBig));
        let line = "x".repeat(CommandCaps::LINE_BYTES_MAX);
        assert_eq!(read(&line.as_bytes()[1..]), Ok(None));
        assert_eq!(read(line.as_bytes()), Err(ProtocolError::TooLong));
    }
}
