//! Plain HTTP/1 requests: read whole and answered in one write, without hyper.
//!
//! hyper handles bodies of any length, upgrades, trailers and many ways for a connection to end. A check is a head and a few bytes
//! that arrive in one piece.
//!
//! Gain      A `POST /v1/check` takes about 0.7 of the CPU time that it takes with hyper: without this module, the server would not
//!           reach 1.1 times throttlecrab's requests per second (`cargo xtask bench-serve --only http`, decision 0029).
//! Invariant A request that is not plain goes to hyper with all that has been read of it, and its connection stays with hyper: an
//!           unusual client loses speed and nothing else.
//! Invariant Heads are parsed by hyper's parser, and requests are answered by the function that answers hyper's; tests compare the
//!           bytes of both ways, with the input cut into arbitrary pieces.
//! Bound     Unwritten answers take at most [`OUTPUT_STEP`] and one answer, and no answer waits for a later one. A client that
//!           disconnects while its request waits gives up its place in the queue.

mod head;
#[cfg(test)]
mod tests;

use super::super::shutdown;
use super::super::stream::MonitoredStream;
use crate::protocol::http::{RawResponse, answer, is_authenticated, service as http_service};
use crate::server::Server;
use bytes::Bytes;
use head::Parsed;
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

/// Maximum number of reads in which a plain request arrives: each read parses it from the beginning.
const READS_MAX: u32 = 4;
/// Bytes read at once. An empty buffer that has grown beyond this is shrunk to it.
const INPUT_STEP: usize = 8 * 1024;
/// Maximum number of bytes read ahead while an earlier request waits for its answer.
const READ_AHEAD_MAX: usize = 2 * INPUT_STEP;
/// Length of the answers at which they are written.
const OUTPUT_STEP: usize = 64 * 1024;
/// Bytes of one connection's requests and answers before other tasks of the worker run: about seventy checks. tokio itself would
/// allow 128 reads and writes, and one busy client would delay the others for that long.
const TURN_BYTES: usize = 32 * 1024;
/// An output buffer that has grown beyond this is shrunk to it.
const OUTPUT_KEPT: usize = 8 * 1024;

/// How a sequence of plain requests ends.
enum End {
    /// The connection is over.
    Closed,
    /// hyper continues, with this input.
    NotPlain(Bytes),
}

/// Serves one connection of a client.
pub(in super::super) async fn serve_plain<S>(
    stream: MonitoredStream<S>,
    server: &Arc<Server>,
    peer: SocketAddr,
    closing: watch::Receiver<bool>,
) -> io::Result<()>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let mut plain = PlainConnection {
        stream,
        server,
        peer,
        is_closing: closing.clone(),
        input: Vec::with_capacity(INPUT_STEP),
        output: Vec::new(),
        date: DateField::default(),
        has_unseen_input: false,
        reads: 0,
        turn_bytes: 0,
    };
    match plain.serve(closing.clone()).await? {
        End::Closed => plain.stream.shutdown().await,
        End::NotPlain(unread) => {
            let service = hyper_service(&plain.stream, server, peer);
            super::serve(plain.stream.with_unread(unread), service, closing).await
        }
    }
}

/// Returns the service for hyper: a head with a token authenticates the peer, and a complete request suspends the deadline.
fn hyper_service<S>(
    stream: &MonitoredStream<S>,
    server: &Arc<Server>,
    peer: SocketAddr,
) -> impl hyper::service::Service<
    http::Request<hyper::body::Incoming>,
    Response = http::Response<http_body_util::Full<Bytes>>,
    Error = std::convert::Infallible,
    Future: Send,
> + use<S> {
    let (state, shared) = (Arc::clone(stream.state()), Arc::clone(server));
    let authenticate = stream.authenticate_by(move |head: &Parts| is_authenticated(&shared, head));
    let on_request = move |head: &Parts| {
        authenticate(head);
        state.suspend_deadline()
    };
    http_service(Arc::clone(server), peer, on_request)
}

/// A connection whose requests have all been plain.
struct PlainConnection<'a, S> {
    stream: MonitoredStream<S>,
    server: &'a Server,
    peer: SocketAddr,
    is_closing: watch::Receiver<bool>,
    /// Input that has not been answered.
    input: Vec<u8>,
    /// Answers that have not been written.
    output: Vec<u8>,
    date: DateField,
    /// Whether input arrived that has not been parsed, while a request waited for its answer.
    has_unseen_input: bool,
    /// Number of reads since the present request began.
    reads: u32,
    /// Bytes read and written since other tasks last ran.
    turn_bytes: usize,
}

impl<S: AsyncRead + AsyncWrite + Unpin> PlainConnection<'_, S> {
    async fn serve(&mut self, mut closing: watch::Receiver<bool>) -> io::Result<End> {
        let mut shutdown = pin!(shutdown(&mut closing));
        loop {
            self.input.reserve(INPUT_STEP);
            let read = tokio::select! {
                biased;
                read = self.stream.read_buf(&mut self.input) => read?,
                () = &mut shutdown, if self.input.is_empty() => return Ok(End::Closed),
            };
            if read == 0 {
                return Ok(End::Closed);
            }
            self.turn_bytes += read;
            self.reads += 1;
            self.has_unseen_input = true;
            while std::mem::take(&mut self.has_unseen_input) {
                if let Some(end) = self.answer_all().await? {
                    return Ok(end);
                }
            }
            if self.input.is_empty() {
                self.input.shrink_to(INPUT_STEP);
            }
        }
    }

    /// Answers all complete requests and keeps the rest of the input. Input that arrives meanwhile goes to `self.input`.
    async fn answer_all(&mut self) -> io::Result<Option<End>> {
        let mut input = std::mem::take(&mut self.input);
        let mut done = 0;
        loop {
            match head::parse(&input[done..]) {
                Parsed::Plain(request, lengths) => {
                    let body_start = done + lengths.head;
                    done = body_start + lengths.body;
                    let body = &input[body_start..done];
                    done += empty_lines(&input[done..]);
                    self.reads = 0;
                    let has_part = done < input.len();
                    if let Some(end) = self.answer_and_write(&request, body, has_part).await? {
                        return Ok(Some(end));
                    }
                }
                Parsed::Partial if self.reads < READS_MAX => break,
                Parsed::Partial | Parsed::NotPlain => {
                    self.flush(done < input.len()).await?;
                    return Ok(Some(End::NotPlain([&input[done..], &self.input].concat().into())));
                }
            }
        }
        self.flush(done < input.len()).await?;
        input.drain(..done);
        input.append(&mut self.input);
        self.input = input;
        Ok(None)
    }

    /// Answers one request. Returns the end of the connection if the client has gone or the server is shutting down.
    async fn answer_and_write(
        &mut self,
        request: &Parts,
        body: &[u8],
        has_part: bool,
    ) -> io::Result<Option<End>> {
        let Some(answered) = self.answer(request, body).await? else {
            return Ok(Some(End::Closed));
        };
        let is_last = *self.is_closing.borrow();
        self.date.update(self.server);
        write(&mut self.output, &answered, &self.date, is_last);
        if is_last || self.output.len() >= OUTPUT_STEP {
            self.flush(has_part).await?;
        }
        Ok(is_last.then_some(End::Closed))
    }

    /// Returns the answer to one request; `None` if the client disconnects before it is there, which cancels the request.
    async fn answer(&mut self, request: &Parts, body: &[u8]) -> io::Result<Option<RawResponse>> {
        self.stream.authenticate_if(|| is_authenticated(self.server, request));
        let mut answering = pin!(answer(self.server, request, body, self.peer));
        let at_once = poll_fn(|context| Poll::Ready(answering.as_mut().poll(context))).await;
        if let Poll::Ready(answered) = at_once {
            return Ok(Some(answered));
        }
        // Earlier answers are sent before this one is waited for.
        self.flush(true).await?;
        let _suspended = self.stream.suspend_deadline();
        loop {
            tokio::select! {
                biased;
                answered = &mut answering => return Ok(Some(answered)),
                read = self.stream.read_buf(&mut self.input), if self.input.len() < READ_AHEAD_MAX => {
                    if read? == 0 {
                        return Ok(None);
                    }
                    self.has_unseen_input = true;
                }
            }
        }
    }

    /// Writes the answers. If a part of the next request is there by then, read earlier or meanwhile, its time begins.
    async fn flush(&mut self, has_part: bool) -> io::Result<()> {
        if self.output.is_empty() {
            return Ok(());
        }
        self.stream.write_all(&self.output).await?;
        // TLS may keep what is written until it is flushed.
        self.stream.flush().await?;
        if has_part || !self.input.is_empty() {
            self.stream.begin_next_request();
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

/// Returns the length of the line breaks at the beginning: some clients send one after a body, and it is ignored (RFC 9112, 2.2).
fn empty_lines(bytes: &[u8]) -> usize {
    bytes.iter().take_while(|byte| matches!(byte, b'\r' | b'\n')).count()
}

/// Writes an answer as hyper does, with `content-length` and `date` after the other fields.
fn write(output: &mut Vec<u8>, answered: &RawResponse, date: &DateField, is_last: bool) {
    let status = answered.status();
    output.extend_from_slice(b"HTTP/1.1 ");
    output.extend_from_slice(status.as_str().as_bytes());
    output.push(b' ');
    output.extend_from_slice(status.canonical_reason().unwrap_or("<none>").as_bytes());
    output.extend_from_slice(b"\r\n");
    for (name, value) in answered.fields() {
        write_field(output, name.as_str(), value);
    }
    if is_last {
        write_field(output, "connection", b"close");
    }
    let has_body = !matches!(status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED);
    let body = if has_body { answered.body() } else { b"" };
    if has_body {
        write_field(output, "content-length", itoa::Buffer::new().format(body.len()).as_bytes());
    }
    write_field(output, "date", &date.text);
    output.extend_from_slice(b"\r\n");
    output.extend_from_slice(body);
}

fn write_field(output: &mut Vec<u8>, name: &str, value: &[u8]) {
    output.extend_from_slice(name.as_bytes());
    output.extend_from_slice(b": ");
    output.extend_from_slice(value);
    output.extend_from_slice(b"\r\n");
}

/// The last second of the year 9999, the last that the field can express.
const DATE_SECONDS_MAX: u64 = 253_402_300_799;

/// The value of the `date` field, formatted once a second.
#[derive(Default)]
struct DateField {
    seconds: Option<u64>,
    text: Vec<u8>,
}

impl DateField {
    fn update(&mut self, server: &Server) {
        let seconds = server.engine.clock().calendar_now().as_micros() / 1_000_000;
        let seconds = seconds.min(DATE_SECONDS_MAX);
        if self.seconds != Some(seconds) {
            let now = SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
            self.seconds = Some(seconds);
            self.text = httpdate::fmt_http_date(now).into_bytes();
        }
    }
}
