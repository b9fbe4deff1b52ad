//! RESP: one reply, of which the first number and errors are looked at.

use super::Broken;
use crate::bench::question::Meaning;
use crate::bench::tally::Answer;

/// Arrays in arrays; the commands that are asked answer with one.
const DEPTH_MAX: usize = 8;

pub(super) fn read(bytes: &[u8], meaning: Meaning) -> Result<Option<(usize, Answer)>, Broken> {
    let Some((line, rest)) = line(bytes, 0)? else { return Ok(None) };
    if let Some(error) = line.strip_prefix(b"-") {
        let text = String::from_utf8_lossy(error).into_owned();
        return Ok(Some((rest, Answer::Refused(text))));
    }
    let Some(end) = skip(bytes, 0, DEPTH_MAX)? else { return Ok(None) };
    Ok(Some((end, decide(&bytes[rest..end], line, meaning))))
}

/// What the elements of an array say.
fn decide(elements: &[u8], head: &[u8], meaning: Meaning) -> Answer {
    let one = match meaning {
        Meaning::Unknown => return Answer::Other,
        Meaning::OneAllows => Answer::Allow,
        Meaning::ZeroAllows => Answer::Deny,
    };
    let zero = if one == Answer::Allow { Answer::Deny } else { Answer::Allow };
    if head.first() != Some(&b'*') {
        return Answer::Other;
    }
    match elements {
        [b':', b'1', b'\r', ..] => one,
        [b':', b'0', b'\r', ..] => zero,
        _ => Answer::Other,
    }
}

/// Where the reply that starts here ends.
fn skip(bytes: &[u8], start: usize, depth: usize) -> Result<Option<usize>, Broken> {
    let Some((line, rest)) = line(bytes, start)? else { return Ok(None) };
    let [kind, number @ ..] = line else { return Err("an empty line".to_owned()) };
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
        _ => Err(format!(
            "this is no RESP: {}",
            String::from_utf8_lossy(&line[..line.len().min(80)])
        )),
    }
}

/// The line that starts here, and where the next one does.
fn line(bytes: &[u8], start: usize) -> Result<Option<(&[u8], usize)>, Broken> {
    let here = bytes.get(start..).unwrap_or_default();
    match here.iter().position(|byte| *byte == b'\n') {
        None => Ok(None),
        Some(end) => match here[..end].strip_suffix(b"\r") {
            Some(line) => Ok(Some((line, start + end + 1))),
            None => Err("a line that does not end as RESP's do".to_owned()),
        },
    }
}

/// None is `-1`: nothing is there.
fn length(number: &[u8]) -> Result<Option<usize>, Broken> {
    let text = str::from_utf8(number).unwrap_or_default();
    match text.parse::<i64>() {
        Ok(-1) => Ok(None),
        Ok(length) => usize::try_from(length).map(Some).map_err(|_| "a length below 0".to_owned()),
        Err(_) => Err(format!("`{text}` is no length")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIVE: &[u8] = b"*5\r\n:0\r\n:16\r\n:15\r\n:-1\r\n:2\r\n";

    #[test]
    fn the_first_number_decides_as_the_command_says() {
        assert_eq!(read(FIVE, Meaning::ZeroAllows), Ok(Some((FIVE.len(), Answer::Allow))));
        assert_eq!(read(FIVE, Meaning::OneAllows), Ok(Some((FIVE.len(), Answer::Deny))));
        assert_eq!(read(FIVE, Meaning::Unknown), Ok(Some((FIVE.len(), Answer::Other))));
    }

    #[test]
    fn an_answer_is_taken_when_all_of_it_is_there() {
        let nested = b"*3\r\n$3\r\na\r\n\r\n*1\r\n$-1\r\n+x\r\n";
        for whole in [FIVE, nested, b"$0\r\n\r\n", b"_\r\n", b"*0\r\n", b"-ERR no\r\n"] {
            for end in 0..whole.len() {
                assert_eq!(read(&whole[..end], Meaning::ZeroAllows), Ok(None));
            }
            let twice = [whole, whole].concat();
            let (length, _) = read(&twice, Meaning::ZeroAllows).unwrap().unwrap();
            assert_eq!(length, whole.len());
        }
    }

    #[test]
    fn an_error_is_told_in_the_servers_words() {
        let read = read(b"-ERR no such limit\r\n", Meaning::OneAllows);
        assert_eq!(read, Ok(Some((20, Answer::Refused("ERR no such limit".to_owned())))));
    }

    #[test]
    fn what_is_no_resp_breaks_the_connection() {
        let deep = b"*1\r\n".repeat(1_000);
        for bytes in
            [&b"HTTP/1.1 400 Bad Request\r\n"[..], b"\r\n", b":1\n", b"$x\r\n", b"*-2\r\n", &deep]
        {
            assert!(read(bytes, Meaning::Unknown).is_err(), "{bytes:?}");
        }
    }
}
