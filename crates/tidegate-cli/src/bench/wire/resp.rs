//! RESP replies: reads the first number, and errors.

use super::ConnectionError;
use crate::bench::request::ReplyMeaning;
use crate::bench::stats::Reply;
use tidegate_server::escape::Escaped;

/// Maximum depth of nested arrays; the commands in question reply with one level.
const DEPTH_MAX: usize = 8;

pub(super) fn read(
    bytes: &[u8],
    meaning: ReplyMeaning,
) -> Result<Option<(usize, Reply)>, ConnectionError> {
    let Some((line, rest)) = line(bytes, 0)? else { return Ok(None) };
    if let Some(error) = line.strip_prefix(b"-") {
        let text = String::from_utf8_lossy(error).into_owned();
        return Ok(Some((rest, Reply::Error(text))));
    }
    let Some(end) = skip(bytes, 0, DEPTH_MAX)? else { return Ok(None) };
    Ok(Some((end, decide(&bytes[rest..end], line, meaning))))
}

/// Interprets the elements of an array.
fn decide(elements: &[u8], head: &[u8], meaning: ReplyMeaning) -> Reply {
    let one = match meaning {
        ReplyMeaning::Unknown => return Reply::Other,
        ReplyMeaning::OneAllows => Reply::Allow,
        ReplyMeaning::ZeroAllows => Reply::Deny,
    };
    let zero = if one == Reply::Allow { Reply::Deny } else { Reply::Allow };
    if head.first() != Some(&b'*') {
        return Reply::Other;
    }
    match elements {
        [b':', b'1', b'\r', ..] => one,
        [b':', b'0', b'\r', ..] => zero,
        _ => Reply::Other,
    }
}

/// Returns the end of the reply that begins at `start`, or `None` if it is incomplete.
fn skip(bytes: &[u8], start: usize, depth: usize) -> Result<Option<usize>, ConnectionError> {
    let Some((line, rest)) = line(bytes, start)? else { return Ok(None) };
    let [kind, number @ ..] = line else { return Err("the reply has an empty line".to_owned()) };
    match kind {
        b'+' | b'-' | b':' | b'_' | b'#' | b',' | b'(' => Ok(Some(rest)),
        b'$' | b'=' | b'!' => match length(number)? {
            None => Ok(Some(rest)),
            Some(length) => {
                let end = rest.saturating_add(length).saturating_add(2);
                Ok((bytes.len() >= end).then_some(end))
            }
        },
        b'*' | b'~' | b'>' if depth > 0 => {
            let mut end = rest;
            for _ in 0..length(number)?.unwrap_or(0) {
                match skip(bytes, end, depth - 1)? {
                    Some(next) => end = next,
                    None => return Ok(None),
                }
            }
            Ok(Some(end))
        }
        _ => Err(format!("the reply is not RESP: {}", Escaped::new(&line[..line.len().min(80)]))),
    }
}

/// Returns the line that begins at `start` and the start of the next one, or `None` if it is incomplete.
fn line(bytes: &[u8], start: usize) -> Result<Option<(&[u8], usize)>, ConnectionError> {
    let here = bytes.get(start..).unwrap_or_default();
    match here.iter().position(|byte| *byte == b'\n') {
        None => Ok(None),
        Some(end) => match here[..end].strip_suffix(b"\r") {
            Some(line) => Ok(Some((line, start + end + 1))),
            None => Err("a line of the reply does not end with CR LF".to_owned()),
        },
    }
}

/// Parses a length; `-1`, which means null, is `None`.
fn length(number: &[u8]) -> Result<Option<usize>, ConnectionError> {
    let text = str::from_utf8(number).unwrap_or_default();
    match text.parse::<i64>() {
        Ok(-1) => Ok(None),
        Ok(length) => usize::try_from(length)
            .map(Some)
            .map_err(|_| "the reply has a negative length".to_owned()),
        Err(_) => Err(format!("`{text}` in the reply is not a length")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIVE: &[u8] = b"*5\r\n:0\r\n:16\r\n:15\r\n:-1\r\n:2\r\n";

    #[test]
    fn the_first_number_is_interpreted_by_command() {
        assert_eq!(read(FIVE, ReplyMeaning::ZeroAllows), Ok(Some((FIVE.len(), Reply::Allow))));
        assert_eq!(read(FIVE, ReplyMeaning::OneAllows), Ok(Some((FIVE.len(), Reply::Deny))));
        assert_eq!(read(FIVE, ReplyMeaning::Unknown), Ok(Some((FIVE.len(), Reply::Other))));
    }

    #[test]
    fn a_reply_is_returned_when_it_is_complete() {
        let nested = b"*3\r\n$3\r\na\r\n\r\n*1\r\n$-1\r\n+x\r\n";
        for whole in [FIVE, nested, b"$0\r\n\r\n", b"_\r\n", b"*0\r\n", b"-ERR no\r\n"] {
            for end in 0..whole.len() {
                assert_eq!(read(&whole[..end], ReplyMeaning::ZeroAllows), Ok(None));
            }
            let twice = [whole, whole].concat();
            let (length, _) = read(&twice, ReplyMeaning::ZeroAllows).unwrap().unwrap();
            assert_eq!(length, whole.len());
        }
    }

    #[test]
    fn an_error_keeps_the_servers_message() {
        let read = read(b"-ERR no such limit\r\n", ReplyMeaning::OneAllows);
        assert_eq!(read, Ok(Some((20, Reply::Error("ERR no such limit".to_owned())))));
    }

    #[test]
    fn malformed_replies_break_the_connection() {
        let deep = b"*1\r\n".repeat(1_000);
        for bytes in
            [&b"HTTP/1.1 400 Bad Request\r\n"[..], b"\r\n", b":1\n", b"$x\r\n", b"*-2\r\n", &deep]
        {
            assert!(read(bytes, ReplyMeaning::Unknown).is_err(), "{bytes:?}");
        }
    }
}
