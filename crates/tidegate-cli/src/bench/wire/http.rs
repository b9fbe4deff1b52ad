//! HTTP/1.1 responses: reads the status and, of an error, the start of the body.

use super::{ConnectionError, REPLY_BYTES_MAX};
use crate::bench::stats::Reply;

const FIELDS_MAX: usize = 64;
/// Longest part of an error's body that is reported.
const ERROR_BYTES_MAX: usize = 300;

pub(super) fn read(bytes: &[u8]) -> Result<Option<(usize, Reply)>, ConnectionError> {
    let mut fields = [httparse::EMPTY_HEADER; FIELDS_MAX];
    let mut response = httparse::Response::new(&mut fields);
    let head = match response.parse(bytes) {
        Ok(httparse::Status::Complete(head)) => head,
        Ok(httparse::Status::Partial) => return Ok(None),
        Err(error) => return Err(format!("the reply is not HTTP: {error}")),
    };
    let status = response.code.unwrap_or(0);
    let length = body_length(response.headers, status)?;
    let end = head.saturating_add(length);
    if end > REPLY_BYTES_MAX {
        return Err(format!("a reply is longer than {REPLY_BYTES_MAX} bytes"));
    }
    let Some(body) = bytes.get(head..end) else { return Ok(None) };
    let answer = match status {
        200..=299 => Reply::Allow,
        429 => Reply::Deny,
        _ => Reply::Error(error_text(status, body)),
    };
    Ok(Some((end, answer)))
}

fn body_length(fields: &[httparse::Header<'_>], status: u16) -> Result<usize, ConnectionError> {
    let named = |name: &str| fields.iter().find(|field| field.name.eq_ignore_ascii_case(name));
    if matches!(status, 204 | 304) {
        return Ok(0);
    }
    let text = named("content-length").and_then(|field| str::from_utf8(field.value).ok());
    text.and_then(|text| text.trim().parse().ok()).ok_or_else(|| {
        format!("a response with status {status} has no content-length, which bench needs")
    })
}

fn error_text(status: u16, body: &[u8]) -> String {
    let text = String::from_utf8_lossy(&body[..body.len().min(ERROR_BYTES_MAX)]);
    format!("status {status}: {}", text.trim())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_status_decides() {
        let ok = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nx: y\r\n\r\n{}";
        assert_eq!(read(ok), Ok(Some((ok.len(), Reply::Allow))));
        let denied = b"HTTP/1.1 429 Too Many Requests\r\ncontent-length: 0\r\n\r\n";
        assert_eq!(read(denied), Ok(Some((denied.len(), Reply::Deny))));
        let empty = b"HTTP/1.1 204 No Content\r\n\r\n";
        assert_eq!(read(empty), Ok(Some((empty.len(), Reply::Allow))));
    }

    #[test]
    fn a_reply_is_returned_when_it_is_complete() {
        let whole = b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello";
        for end in 0..whole.len() {
            assert_eq!(read(&whole[..end]), Ok(None));
        }
        let twice = [&whole[..], whole].concat();
        assert_eq!(read(&twice), Ok(Some((whole.len(), Reply::Allow))));
    }

    #[test]
    fn an_error_is_reported_with_its_body() {
        let bad = b"HTTP/1.1 400 Bad Request\r\ncontent-length: 4\r\n\r\nno.\n";
        assert_eq!(read(bad), Ok(Some((bad.len(), Reply::Error("status 400: no.".to_owned())))));
    }

    #[test]
    fn malformed_replies_break_the_connection() {
        let chunks = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n";
        let long = b"HTTP/1.1 200 OK\r\ncontent-length: 99999999\r\n\r\n";
        for bytes in [&b"+PONG\r\n"[..], b"\x00\x00\x12\x04", chunks, long] {
            assert!(read(bytes).is_err(), "{bytes:?}");
        }
    }
}
