//! Plain HTTP/1 requests: read whole, answered in one write, without hyper.
//!
//! hyper is made for bodies of any length, upgrades, trailers and connections that end in many ways. A check is a head
//! and a few bytes that come in one piece, and for it a third of the server's own time was that machinery.
//!
//! Always   What is not plain is hyper's, with all that has been read of it, and the connection stays hyper's. Who sends
//!          something unusual loses speed and nothing else.
//! Always   Heads are read by hyper's own parser, and requests answered by the same function; a test compares the bytes
//!          of both.
//! Always   Answers that are not yet written stay under `OUTPUT_STEP` and one answer.

#[cfg(test)]
mod tests;

use super::http::{Watched, closed, serve_http1};
use crate::http::{Answered, BODY_BYTES_MAX, answer, service as http_service};
use crate::server::Server;
use bytes::{Buf as _, Bytes};
use http::header::{CONNECTION, CONTENT_LENGTH, EXPECT, TRANSFER_ENCODING, UPGRADE};
use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Uri};
use http_body_util::BodyExt as _;
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use tidegate::Clock as _;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::sync::watch;

/// A plain request has no more fields than this.
const FIELDS_MAX: usize = 32;
/// Nor does it come in more pieces. Each of them is parsed from the beginning.
const PIECES_MAX: u32 = 4;
/// So much is read at once.
const INPUT_STEP: usize = 8 * 1024;
/// So much is answered before it is written.
const OUTPUT_STEP: usize = 64 * 1024;
/// What a buffer has that has grown is given back.
const KEPT: usize = 2 * OUTPUT_STEP;

/// What the first bytes of a connection, or those after a request, are.
enum Found {
    /// A request, and how many bytes it has. It is large, but lives on the stack for a moment only.
    Plain(Parts, Bytes, usize),
    /// The beginning of one, or nothing.
    Part,
    /// Something for hyper.
    Other,
}

/// Serves one connection of somebody who asks.
pub(super) async fn serve<S>(
    mut stream: Watched<S>,
    server: &Arc<Server>,
    peer: SocketAddr,
    mut closing: watch::Receiver<bool>,
) -> io::Result<()>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    match serve_plain(&mut stream, server, peer, &mut closing).await? {
        None => Ok(()),
        Some(read) => {
            let service = http_service(Arc::clone(server), peer);
            serve_http1(stream.with_read(read), service, closing).await
        }
    }
}

/// Answers plain requests. `None` when the connection is over; otherwise what has come that hyper has to go on with.
async fn serve_plain<S>(
    stream: &mut Watched<S>,
    server: &Server,
    peer: SocketAddr,
    closing: &mut watch::Receiver<bool>,
) -> io::Result<Option<Bytes>>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let is_closing = closing.clone();
    let mut is_over = pin!(closed(closing));
    let (mut input, mut output) = (Vec::with_capacity(INPUT_STEP), Vec::new());
    let mut date = Date::default();
    let mut pieces = 0;
    loop {
        input.reserve(INPUT_STEP);
        let read = tokio::select! {
            biased;
            read = stream.read_buf(&mut input) => read?,
            () = &mut is_over, if input.is_empty() => return Ok(None),
        };
        if read == 0 {
            return Ok(None);
        }
        pieces += 1;
        let mut bytes = Bytes::copy_from_slice(&input);
        loop {
            match find(&bytes) {
                Found::Plain(request, body, length) => {
                    let answered = answer(server, &request, &body, peer).await;
                    let is_last = *is_closing.borrow();
                    date.tell(server);
                    write(&mut output, answered, &date, is_last).await;
                    bytes.advance(length);
                    pieces = 0;
                    if is_last || output.len() >= OUTPUT_STEP {
                        send(stream, &mut output, !bytes.is_empty()).await?;
                    }
                    if is_last {
                        stream.shutdown().await?;
                        return Ok(None);
                    }
                }
                Found::Part if pieces < PIECES_MAX => break,
                Found::Part | Found::Other => {
                    send(stream, &mut output, !bytes.is_empty()).await?;
                    return Ok(Some(bytes));
                }
            }
        }
        send(stream, &mut output, !bytes.is_empty()).await?;
        input.drain(..input.len() - bytes.len());
        input.shrink_to(KEPT);
    }
}

/// Sends what is to be sent. If there is a part of the next request then, its time begins.
async fn send<S: AsyncWrite + Unpin>(
    stream: &mut Watched<S>,
    output: &mut Vec<u8>,
    has_part: bool,
) -> io::Result<()> {
    if !output.is_empty() {
        stream.write_all(output).await?;
        if has_part {
            stream.has_part();
        }
        output.clear();
        output.shrink_to(KEPT);
    }
    Ok(())
}

fn find(bytes: &Bytes) -> Found {
    if bytes.is_empty() {
        return Found::Part;
    }
    let mut fields = [httparse::EMPTY_HEADER; FIELDS_MAX];
    let mut head = httparse::Request::new(&mut fields);
    match head.parse(bytes) {
        Ok(httparse::Status::Complete(length)) => {
            let Some(request) = request(&head, bytes) else { return Found::Other };
            let Some(body) = body_length(&request) else { return Found::Other };
            let end = length + body;
            if bytes.len() < end {
                return Found::Part;
            }
            Found::Plain(request, bytes.slice(length..end), end)
        }
        Ok(httparse::Status::Partial) => Found::Part,
        Err(_) => Found::Other,
    }
}

/// The request that a head describes, if it is one of HTTP/1.1 that gets or posts.
fn request(head: &httparse::Request<'_, '_>, bytes: &Bytes) -> Option<Parts> {
    let method = match head.method? {
        "GET" => Method::GET,
        "POST" => Method::POST,
        _ => return None,
    };
    if head.version != Some(1) {
        return None;
    }
    let mut headers = HeaderMap::with_capacity(head.headers.len());
    for field in head.headers.iter() {
        let name = HeaderName::from_bytes(field.name.as_bytes()).ok()?;
        let value = HeaderValue::from_maybe_shared(bytes.slice_ref(field.value)).ok()?;
        headers.append(name, value);
    }
    let uri = Uri::from_maybe_shared(bytes.slice_ref(head.path?.as_bytes())).ok()?;
    let (mut parts, ()) = Request::new(()).into_parts();
    (parts.method, parts.uri, parts.headers) = (method, uri, headers);
    Some(parts)
}

/// How long the body is; `None` if it takes more to know than one number, or if more than a body is asked for.
fn body_length(request: &Parts) -> Option<usize> {
    let headers = &request.headers;
    let is_unusual =
        [TRANSFER_ENCODING, UPGRADE, EXPECT].iter().any(|name| headers.contains_key(name));
    let stays = |value: &HeaderValue| value.as_bytes().eq_ignore_ascii_case(b"keep-alive");
    if is_unusual || !headers.get_all(CONNECTION).iter().all(stays) {
        return None;
    }
    let mut lengths = headers.get_all(CONTENT_LENGTH).iter();
    match (lengths.next(), lengths.next()) {
        (None, _) if request.method == Method::GET => Some(0),
        (Some(length), None) if request.method == Method::POST => {
            let digits =
                length.to_str().ok().filter(|text| text.bytes().all(|b| b.is_ascii_digit()))?;
            digits.parse().ok().filter(|length| *length <= BODY_BYTES_MAX)
        }
        _ => None,
    }
}

/// As hyper writes it: the fields, how long the body is, and what time it is.
async fn write(output: &mut Vec<u8>, answered: Answered, date: &Date, is_last: bool) {
    let (head, mut body) = answered.into_parts();
    let status = head.status;
    output.extend_from_slice(b"HTTP/1.1 ");
    output.extend_from_slice(status.as_str().as_bytes());
    output.push(b' ');
    output.extend_from_slice(status.canonical_reason().unwrap_or_default().as_bytes());
    output.extend_from_slice(b"\r\n");
    for (name, value) in &head.headers {
        field(output, name.as_str(), value.as_bytes());
    }
    if is_last {
        field(output, "connection", b"close");
    }
    // It is in one piece, and nothing can go wrong with it.
    let body = body.frame().await.and_then(Result::ok).and_then(|frame| frame.into_data().ok());
    let body = body.unwrap_or_default();
    if !status.is_informational() && !matches!(status.as_u16(), 204 | 304) {
        field(output, "content-length", itoa::Buffer::new().format(body.len()).as_bytes());
    }
    field(output, "date", &date.text);
    output.extend_from_slice(b"\r\n");
    output.extend_from_slice(&body);
}

fn field(output: &mut Vec<u8>, name: &str, value: &[u8]) {
    output.extend_from_slice(name.as_bytes());
    output.extend_from_slice(b": ");
    output.extend_from_slice(value);
    output.extend_from_slice(b"\r\n");
}

/// The time as a field has it, written once a second.
#[derive(Default)]
struct Date {
    seconds: Option<u64>,
    text: Vec<u8>,
}

impl Date {
    fn tell(&mut self, server: &Server) {
        let seconds = server.engine.clock().calendar_now().as_micros() / 1_000_000;
        if self.seconds != Some(seconds) {
            let now = SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
            self.seconds = Some(seconds);
            self.text = httpdate::fmt_http_date(now).into_bytes();
        }
    }
}
