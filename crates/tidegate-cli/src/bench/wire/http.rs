//! HTTP/1.1: one response, of which the status is looked at and, if it is an error, the body.

use super::{ANSWER_BYTES_MAX, Broken};
use crate::bench::tally::Answer;

const FIELDS_MAX: usize = 64;
/// So much of an error's body is told.
const TOLD_BYTES_MAX: usize = 300;

pub(super) fn read(bytes: &[u8]) -> Result<Option<(usize, Answer)>, Broken> {
    let mut fields = [httparse::EMPTY_HEADER; FIELDS_MAX];
    let mut response = httparse::Response::new(&mut fields);
    let head = match response.parse(bytes) {
        Ok(httparse::Status::Complete(head)) => head,
        Ok(httparse::Status::Partial) => return Ok(None),
        Err(error) => return Err(format!("this is no HTTP: {error}")),
    };
    let status = response.code.unwrap_or(0);
    let length = body_length(response.headers, status)?;
    let end = head.saturating_add(length);
    if end > ANSWER_BYTES_MAX {
        return Err(format!("an answer of more than {ANSWER_BYTES_MAX} bytes"));
    }
    let Some(body) = bytes.get(head..end) else { return Ok(None) };
    let answer = match status {
        200..=299 => Answer::Allow,
        429 => Answer::Deny,
        _ => Answer::Refused(told(status, body)),
    };
    Ok(Some((end, answer)))
}

fn body_length(fields: &[httparse::Header<'_>], status: u16) -> Result<usize, Broken> {
    let named = |name: &str| fields.iter().find(|field| field.name.eq_ignore_ascii_case(name));
    if matches!(status, 204 | 304) {
        return Ok(0);
    }
    let text = named("content-length").and_then(|field| str::from_utf8(field.value).ok());
    text.and_then(|text| text.trim().parse().ok())
        .ok_or_else(|| format!("status {status} without content-length, which bench needs"))
}

fn told(status: u16, body: &[u8]) -> String {
    let text = String::from_utf8_lossy(&body[..body.len().min(TOLD_BYTES_MAX)]);
    format!("status {status}: {}", text.trim())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_status_decides() {
        let ok = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nx: y\r\n\r\n{}";
        assert_eq!(read(ok), Ok(Some((ok.len(), Answer::Allow))));
        let denied = b"HTTP/1.1 429 Too Many Requests\r\ncontent-length: 0\r\n\r\n";
        assert_eq!(read(denied), Ok(Some((denied.len(), Answer::Deny))));
        let empty = b"HTTP/1.1 204 No Content\r\n\r\n";
        assert_eq!(read(empty), Ok(Some((empty.len(), Answer::Allow))));
    }

    #[test]
    fn an_answer_is_taken_when_all_of_it_is_there() {
        let whole = b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello";
        for end in 0..whole.len() {
            assert_eq!(read(&whole[..end]), Ok(None));
        }
        let twice = [&whole[..], whole].concat();
        assert_eq!(read(&twice), Ok(Some((whole.len(), Answer::Allow))));
    }

    #[test]
    fn an_error_is_told_with_its_body() {
        let bad = b"HTTP/1.1 400 Bad Request\r\ncontent-length: 4\r\n\r\nno.\n";
        assert_eq!(read(bad), Ok(Some((bad.len(), Answer::Refused("status 400: no.".to_owned())))));
    }

    #[test]
    fn what_cannot_be_read_breaks_the_connection() {
        let chunks = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n";
        let long = b"HTTP/1.1 200 OK\r\ncontent-length: 99999999\r\n\r\n";
        for bytes in [&b"+PONG\r\n"[..], b"\x00\x00\x12\x04", chunks, long] {
            assert!(read(bytes).is_err(), "{bytes:?}");
        }
    }
}
