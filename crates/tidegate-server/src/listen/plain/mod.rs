//! Plain HTTP/1 requests: read whole, answered in one write, without hyper.
//!
//! hyper is made for bodies of any length, upgrades, trailers and connections that end in many ways. A check is a head
//! and a few bytes that come in one piece, and for it a third of the server's own time was that machinery.
//!
//! Always   What is not plain is hyper's, with all that has been read of it, and the connection stays hyper's. Who sends
//!          something unusual loses speed and nothing else.
//! Always   Heads are read by hyper's own parser, and requests answered by the same function; a test compares the bytes
//!          of both.
//! Always   Answers that are not yet written stay under `OUTPUT_STEP` and one answer, and none of them waits for one that is
//!          not there yet. Who leaves while it waits gives up its turn.

mod head;
#[cfg(test)]
mod tests;

use super::http::{Watched, closed, serve_http1};
use crate::http::{Answered, answer, is_known, service as http_service};
use crate::server::Server;
use bytes::Bytes;
use head::{Found, Heads};
use http::StatusCode;
use http::request::Parts;
use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, SystemTime};
use tidegate::Clock as _;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::sync::watch;

/// A plain request does not come in more pieces. Each of them is parsed from the beginning.
const PIECES_MAX: u32 = 4;
/// So much is read at once, and what a buffer has that has grown beyond it is given back.
const INPUT_STEP: usize = 8 * 1024;
/// So much is read while an earlier request waits for its answer.
const AHEAD_MAX: usize = 2 * INPUT_STEP;
/// So much is answered before it is written.
const OUTPUT_STEP: usize = 64 * 1024;
/// So much of what one peer asks and is told comes before others have their turn: some seventy checks. tokio itself would let
/// it go on for 128 reads and writes, and whoever shares a worker with who asks without end would wait that long.
const TURN_BYTES: usize = 32 * 1024;
/// What an output has that has grown beyond it is given back.
const OUTPUT_KEPT: usize = 8 * 1024;

/// How plain requests come to an end.
enum End {
    /// The peer has gone, or is to go.
    Over,
    /// This has come, and hyper has to go on with it.
    Other(Bytes),
}

/// Serves one connection of somebody who asks.
pub(super) async fn serve<S>(
    stream: Watched<S>,
    server: &Arc<Server>,
    peer: SocketAddr,
    closing: watch::Receiver<bool>,
) -> io::Result<()>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (input, output) = (Vec::with_capacity(INPUT_STEP), Vec::new());
    let is_closing = closing.clone();
    let mut plain = Plain {
        stream,
        server,
        peer,
        is_closing,
        input,
        output,
        heads: Heads::default(),
        date: Date::default(),
        has_more: false,
        pieces: 0,
        turn_bytes: 0,
    };
    match plain.serve(closing.clone()).await? {
        End::Over => plain.stream.shutdown().await,
        End::Other(read) => {
            let (hold, known) = (plain.stream.holder(), knows(&plain.stream, server));
            let hold = move |head: &Parts| {
                known(head);
                hold()
            };
            let service = http_service(Arc::clone(server), peer, hold);
            serve_http1(plain.stream.with_read(read), service, closing).await
        }
    }
}

/// What makes the peer known by a request that shows its token.
fn knows<S>(stream: &Watched<S>, server: &Arc<Server>) -> impl Fn(&Parts) + Clone + Send + use<S> {
    let server = Arc::clone(server);
    stream.knows(move |head: &Parts| is_known(&server, head))
}

/// A connection while its requests are plain.
struct Plain<'a, S> {
    stream: Watched<S>,
    server: &'a Server,
    peer: SocketAddr,
    is_closing: watch::Receiver<bool>,
    /// What has come and was not answered.
    input: Vec<u8>,
    /// Answers that were not sent.
    output: Vec<u8>,
    heads: Heads,
    date: Date,
    /// Whether something has come that nobody has looked at: while somebody waits for an answer, more may come.
    has_more: bool,
    /// In how many pieces the request has come that is not whole yet.
    pieces: u32,
    /// How much was read and said since others had their turn.
    turn_bytes: usize,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Plain<'_, S> {
    async fn serve(&mut self, mut closing: watch::Receiver<bool>) -> io::Result<End> {
        let mut is_over = pin!(closed(&mut closing));
        loop {
            self.input.reserve(INPUT_STEP);
            let read = tokio::select! {
                biased;
                read = self.stream.read_buf(&mut self.input) => read?,
                () = &mut is_over, if self.input.is_empty() => return Ok(End::Over),
            };
            if read == 0 {
                return Ok(End::Over);
            }
            self.turn_bytes += read;
            self.pieces += 1;
            self.has_more = true;
            while std::mem::take(&mut self.has_more) {
                if let Some(end) = self.answer_all().await? {
                    return Ok(end);
                }
            }
            if self.input.is_empty() {
                self.input.shrink_to(INPUT_STEP);
            }
        }
    }

    /// Answers all that is whole of what has come, and keeps the rest. What comes meanwhile is in `self.input`.
    async fn answer_all(&mut self) -> io::Result<Option<End>> {
        let (mut come, mut heads) =
            (std::mem::take(&mut self.input), std::mem::take(&mut self.heads));
        let mut done = 0;
        loop {
            let rest = &come[done..];
            match heads.find(rest) {
                Found::Plain(head, body) => {
                    let request = heads.last().expect("it has just been found");
                    let body = &rest[head..head + body];
                    let Some(answered) = self.answer(request, body).await? else {
                        return Ok(Some(End::Over));
                    };
                    done += head + body.len();
                    done += empty_lines(&come[done..]);
                    self.pieces = 0;
                    let is_last = *self.is_closing.borrow();
                    self.date.tell(self.server);
                    write(&mut self.output, &answered, &self.date, is_last);
                    if is_last || self.output.len() >= OUTPUT_STEP {
                        self.send(done < come.len()).await?;
                    }
                    if is_last {
                        return Ok(Some(End::Over));
                    }
                }
                Found::Part if self.pieces < PIECES_MAX => break,
                Found::Part | Found::Other => {
                    self.send(done < come.len()).await?;
                    return Ok(Some(End::Other([&come[done..], &self.input].concat().into())));
                }
            }
        }
        self.send(done < come.len()).await?;
        come.drain(..done);
        come.append(&mut self.input);
        heads.forget_long();
        (self.input, self.heads) = (come, heads);
        Ok(None)
    }

    /// The answer to one request; `None` if the peer leaves while it waits for it. Then what was waited for is given up.
    async fn answer(&mut self, request: &Parts, body: &[u8]) -> io::Result<Option<Answered>> {
        self.stream.is_known_by(|| is_known(self.server, request));
        let mut answering = pin!(answer(self.server, request, body, self.peer));
        let at_once = poll_fn(|context| Poll::Ready(answering.as_mut().poll(context))).await;
        if let Poll::Ready(answered) = at_once {
            return Ok(Some(answered));
        }
        // Who has been answered need not wait for who has not.
        self.send(true).await?;
        let _holding = self.stream.holds();
        loop {
            tokio::select! {
                biased;
                answered = &mut answering => return Ok(Some(answered)),
                read = self.stream.read_buf(&mut self.input), if self.input.len() < AHEAD_MAX => {
                    if read? == 0 {
                        return Ok(None);
                    }
                    self.has_more = true;
                }
            }
        }
    }

    /// Sends what is to be sent. If there is a part of the next request then, also of what came meanwhile, its time begins.
    async fn send(&mut self, has_part: bool) -> io::Result<()> {
        if self.output.is_empty() {
            return Ok(());
        }
        self.stream.write_all(&self.output).await?;
        // Under TLS, what is written is not yet on its way.
        self.stream.flush().await?;
        if has_part || !self.input.is_empty() {
            self.stream.next_has_begun();
        }
        self.turn_bytes += self.output.len();
        self.output.clear();
        self.output.shrink_to(OUTPUT_KEPT);
        if self.turn_bytes >= TURN_BYTES {
            self.turn_bytes = 0;
            tokio::task::yield_now().await;
        }
        Ok(())
    }
}

/// Some clients end a body with a line of its own, which belongs to nothing (RFC 9112, 2.2).
fn empty_lines(bytes: &[u8]) -> usize {
    bytes.iter().take_while(|byte| matches!(byte, b'\r' | b'\n')).count()
}

/// As hyper writes it: the fields, how long the body is, and what time it is.
fn write(output: &mut Vec<u8>, answered: &Answered, date: &Date, is_last: bool) {
    let status = answered.status();
    output.extend_from_slice(b"HTTP/1.1 ");
    output.extend_from_slice(status.as_str().as_bytes());
    output.push(b' ');
    output.extend_from_slice(status.canonical_reason().unwrap_or("<none>").as_bytes());
    output.extend_from_slice(b"\r\n");
    for (name, value) in answered.fields() {
        field(output, name.as_str(), value);
    }
    if is_last {
        field(output, "connection", b"close");
    }
    let has_body = !matches!(status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED);
    let body = if has_body { answered.body() } else { b"" };
    if has_body {
        field(output, "content-length", itoa::Buffer::new().format(body.len()).as_bytes());
    }
    field(output, "date", &date.text);
    output.extend_from_slice(b"\r\n");
    output.extend_from_slice(body);
}

fn field(output: &mut Vec<u8>, name: &str, value: &[u8]) {
    output.extend_from_slice(name.as_bytes());
    output.extend_from_slice(b": ");
    output.extend_from_slice(value);
    output.extend_from_slice(b"\r\n");
}

/// The last second of the year 9999, after which there are no such dates.
const DATE_SECONDS_MAX: u64 = 253_402_300_799;

/// The time as a field has it, written once a second.
#[derive(Default)]
struct Date {
    seconds: Option<u64>,
    text: Vec<u8>,
}

impl Date {
    fn tell(&mut self, server: &Server) {
        let seconds = server.engine.clock().calendar_now().as_micros() / 1_000_000;
        let seconds = seconds.min(DATE_SECONDS_MAX);
        if self.seconds != Some(seconds) {
            let now = SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
            self.seconds = Some(seconds);
            self.text = httpdate::fmt_http_date(now).into_bytes();
        }
    }
}
