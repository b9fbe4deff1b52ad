//! HTTP connections: hyper speaks, and we say for how long.
//!
//! Always   From a request's first byte to its answer's first byte passes no more than [`Caps::request`](crate::config::Caps::request), however
//!          slowly it drips in; and an answer is taken as soon (T44). hyper's own timer would begin anew with
//!          every header.
//! Always   On HTTP/2 the same holds from frame to frame: what has begun must be finished in time, and what is about
//!          the connection only (settings, pings) neither is a request nor stands for one. Who says nothing else, and a
//!          lot of it, is sent away (T46).

use super::Activity;
use super::activity::Holding;
use super::frames::Frames;
use bytes::Bytes;
use http::request::Parts;
use http::{Request, Response};
use hyper::body::{Body, Incoming};
use hyper::server::conn::{http1, http2};
use hyper::service::Service;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use std::convert::Infallible;
use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::watch;

/// So much of a request may be in its head.
const HEAD_BYTES_MAX: usize = 64 * 1024;
const HEADERS_MAX: usize = 100;
/// So many requests may be under way on one HTTP/2 connection.
const STREAMS_MAX: u32 = 1_024;
/// So many may be taken back before anybody has looked at them (rapid reset).
const RESETS_MAX: usize = 64;
/// So many we may have to end because of what the peer does with them, over the whole life of a connection (CVE-2025-8671);
/// those beyond [`STREAMS_MAX`] are among them. Each costs as much as a call, and a thousand in one piece would keep others
/// waiting for longer than they should.
const ERRORS_MAX: usize = 256;
const H2_HEAD_BYTES_MAX: u32 = 16 * 1024;
/// A connection on which nothing happens is asked whether it still is one.
const PING_EVERY: Duration = Duration::from_secs(30);

/// So much of one HTTP/2 connection is read before others have their turn: some two thousand of the shortest frames. tokio itself
/// would let it go on for 128 reads, and whoever shares a worker with who floods it with settings would wait that long.
const TURN_BYTES: usize = 16 * 1024;

/// So many frames of no request (settings, pings) may come in a second with no request among them. Each has to be answered, h2
/// lets a peer that listens go on for ever, and one such peer had a core to itself. Who waits for the answer to one before it
/// says the next may: of those that come together, all but the first are counted. And who gives up all that it has asked, because
/// its time is up, may: these are [`STREAMS_MAX`] frames.
const OTHERS_MAX: usize = 2 * STREAMS_MAX as usize;

/// When it is time to go, so long is waited for who is not being answered and does not leave.
const GOODBYE: Duration = Duration::from_secs(1);

/// Serves one HTTP/1 connection.
pub(super) async fn serve_http1<S, V, B>(
    stream: Watched<S>,
    service: V,
    mut closing: watch::Receiver<bool>,
) -> io::Result<()>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    V: Service<Request<Incoming>, Response = Response<B>, Error = Infallible>,
    B: Body + 'static,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let mut builder = http1::Builder::new();
    builder.max_buf_size(HEAD_BYTES_MAX).max_headers(HEADERS_MAX).half_close(false);
    let mut connection = pin!(builder.serve_connection(TokioIo::new(stream), service));
    let ended = tokio::select! {
        // First, so that what has been read before is heard: who says goodbye to a connection that has heard nothing
        // ends it without an answer.
        biased;
        ended = connection.as_mut() => ended,
        () = closed(&mut closing) => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    ended.map_err(io::Error::other)
}

/// Serves one HTTP/2 connection.
pub(super) async fn serve_http2<S, V, B>(
    stream: Watched<S>,
    service: V,
    mut closing: watch::Receiver<bool>,
) -> io::Result<()>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    V: Service<Request<Incoming>, Response = Response<B>, Error = Infallible>,
    V::Future: Send + 'static,
    B: Body + Send + 'static,
    B::Data: Send,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let mut builder = http2::Builder::new(TokioExecutor::new());
    builder
        .timer(TokioTimer::new())
        .keep_alive_interval(PING_EVERY)
        .max_concurrent_streams(STREAMS_MAX)
        .max_pending_accept_reset_streams(RESETS_MAX)
        .max_local_error_reset_streams(ERRORS_MAX)
        .max_header_list_size(H2_HEAD_BYTES_MAX);
    let activity = Arc::clone(&stream.activity);
    activity.leaves_by_itself();
    let mut connection = pin!(builder.serve_connection(TokioIo::new(stream), service));
    let ended = tokio::select! {
        ended = connection.as_mut() => ended,
        () = closed(&mut closing) => {
            connection.as_mut().graceful_shutdown();
            loop {
                match tokio::time::timeout(GOODBYE, connection.as_mut()).await {
                    Ok(ended) => break ended,
                    Err(_) if activity.is_answering() => {}
                    Err(_) => break Ok(()),
                }
            }
        }
    };
    ended.map_err(io::Error::other)
}

/// Waits until it is time to go.
pub(super) async fn closed(closing: &mut watch::Receiver<bool>) {
    // The other end is kept until all workers are done.
    let _ = closing.wait_for(|is_closing| *is_closing).await;
}

/// A stream that says what its peer does.
#[derive(Debug)]
pub(super) struct Watched<S> {
    stream: S,
    /// What somebody has read already who does not go on with it.
    read: Bytes,
    activity: Arc<Activity>,
    /// Whether what was written is on its way.
    is_flushing: bool,
    /// On HTTP/2, where the peer is.
    framed: Option<Framed>,
}

#[derive(Debug, Default)]
struct Framed {
    frames: Frames,
    /// How much has been read since others had their turn.
    turn_bytes: usize,
    has_begun: bool,
    has_part: bool,
    is_stalled: bool,
    /// Frames of no request since the last of one that came with others, in this second of its worker.
    others: usize,
    second: u32,
}

impl<S> Watched<S> {
    pub(super) fn http1(stream: S, activity: Arc<Activity>) -> Self {
        Self { stream, read: Bytes::new(), activity, is_flushing: false, framed: None }
    }

    pub(super) fn http2(stream: S, activity: Arc<Activity>) -> Self {
        let framed = Some(Framed::default());
        Self { stream, read: Bytes::new(), activity, is_flushing: false, framed }
    }

    /// The same, with what has been read of it put back.
    pub(super) fn with_read(self, read: Bytes) -> Self {
        Self { read, ..self }
    }

    /// A request has come whole: until this is dropped, it waits for us.
    pub(super) fn holds(&self) -> Holding {
        self.activity.holds()
    }

    /// The same, for who asks later.
    pub(super) fn holder(&self) -> impl Fn() -> Holding + Clone + Send + use<S> {
        let activity = Arc::clone(&self.activity);
        move || activity.holds()
    }

    /// A request has come, and may show who the peer is.
    pub(super) fn is_known_by(&self, is_known: impl FnOnce() -> bool) {
        if self.activity.is_unknown() && is_known() {
            self.activity.is_known();
        }
    }

    /// For who sees the heads of requests: the first that shows who the peer is makes it known.
    pub(super) fn knows<F: Fn(&Parts) -> bool + Clone + Send>(
        &self,
        is_known: F,
    ) -> impl Fn(&Parts) + Clone + Send + use<S, F> {
        let activity = Arc::clone(&self.activity);
        move |head| {
            if activity.is_unknown() && is_known(head) {
                activity.is_known();
            }
        }
    }

    /// The time of the next request begins: a part of it came with the last one.
    pub(super) fn next_has_begun(&self) {
        self.activity.is_reading(true);
    }

    fn has_read(&mut self, bytes: &[u8]) {
        match &mut self.framed {
            None => self.activity.has_read(),
            Some(framed) => {
                self.activity.count_read();
                framed.has_read(bytes, &self.activity);
            }
        }
    }

    fn has_written(&mut self, is_taken: bool) {
        match &mut self.framed {
            None => self.activity.has_written(is_taken),
            Some(framed) => framed.has_written(is_taken, &self.activity),
        }
    }
}

impl Framed {
    fn has_read(&mut self, bytes: &[u8], activity: &Activity) {
        self.turn_bytes += bytes.len();
        let come = self.frames.follow(bytes);
        let second = activity.second();
        if come.is_request || second != self.second {
            (self.others, self.second) = (0, second);
        }
        self.others += come.others.saturating_sub(1);
        // What goes on coming has no more time than it had, and a ping gives none to who asks nothing.
        let is_news = if come.has_part {
            come.is_whole || !self.has_part
        } else {
            self.has_part || come.is_request
        };
        if (is_news || !self.has_begun) && !self.is_stalled {
            activity.is_reading(come.has_part);
        }
        (self.has_begun, self.has_part) = (true, come.has_part);
    }

    /// We speak first, and much that we say is no answer: only what is not taken counts.
    fn has_written(&mut self, is_taken: bool, activity: &Activity) {
        match (self.is_stalled, is_taken) {
            (false, false) if self.has_begun => activity.is_stalled(),
            (true, true) => activity.is_reading(self.has_part),
            _ => return,
        }
        self.is_stalled = !is_taken;
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Watched<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if !self.read.is_empty() {
            let some = self.read.len().min(buffer.remaining());
            buffer.put_slice(&self.read.split_to(some));
            return Poll::Ready(Ok(()));
        }
        if let Some(framed) = &mut self.framed
            && framed.turn_bytes >= TURN_BYTES
        {
            framed.turn_bytes = 0;
            // It wakes us when others have been looked at.
            return pin!(tokio::task::yield_now()).poll(context).map(Ok);
        }
        let before = buffer.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(context, buffer);
        if read.is_ready() && buffer.filled().len() > before {
            self.has_read(&buffer.filled()[before..]);
            if self.framed.as_ref().is_some_and(|framed| framed.others > OTHERS_MAX) {
                return Poll::Ready(Err(io::Error::other("too many frames that ask nothing")));
            }
        }
        if read.is_pending()
            && let Some(framed) = &mut self.framed
        {
            framed.turn_bytes = 0;
        }
        read
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Watched<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.has_written(matches!(written, Poll::Ready(Ok(_))));
        written
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(context, bytes);
        self.has_written(matches!(written, Poll::Ready(Ok(_))));
        written
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.stream).poll_flush(context);
        // Under TLS, what was written may not have been taken yet.
        if flushed.is_pending() || self.is_flushing {
            self.is_flushing = flushed.is_pending();
            self.has_written(flushed.is_ready());
        }
        flushed
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use super::super::activity::Peers;
    use super::super::wakeful::Wakeful;
    use super::*;
    use crate::config::Caps;
    use crate::listen::Wire;
    use std::cell::Cell;
    use std::future::poll_fn;
    use tidegate::Span;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, duplex};

    const TURNS: usize = 4;

    /// How often others have their turn while all of this is read, which has come already.
    async fn turns(
        watched: impl FnOnce(DuplexStream, Arc<Activity>) -> Watched<DuplexStream>,
    ) -> u32 {
        let (mut client, server) = duplex(TURNS * TURN_BYTES);
        client.write_all(&vec![0; TURNS * TURN_BYTES]).await.unwrap();
        let peers = Peers::new(Arc::new(Wakeful::new(Span::ZERO)));
        let mut stream = watched(server, peers.enter(Wire::Grpc, &Caps::default()).1);
        let (is_over, turns) = (Cell::new(false), Cell::new(0));
        let reads = async {
            let mut piece = [0; TURN_BYTES / 4];
            for _ in 0..4 * TURNS {
                stream.read_exact(&mut piece).await.unwrap();
            }
            is_over.set(true);
        };
        let others = poll_fn(|_| {
            turns.set(turns.get() + 1);
            if is_over.get() { Poll::Ready(()) } else { Poll::Pending }
        });
        tokio::join!(biased; reads, others);
        turns.get() - 1
    }

    #[tokio::test]
    async fn t46_who_says_much_over_http2_lets_others_have_their_turn() {
        assert_eq!(turns(Watched::http2).await, 3);
        assert_eq!(turns(Watched::http1).await, 0, "what is read there is answered first");
    }

    /// Whether all of this may be said, of which each piece is read at once.
    async fn may_say(pieces: &[Vec<u8>]) -> bool {
        let (mut client, server) = duplex(4 * TURN_BYTES);
        let peers = Peers::new(Arc::new(Wakeful::new(Span::ZERO)));
        let mut stream = Watched::http2(server, peers.enter(Wire::Grpc, &Caps::default()).1);
        for piece in pieces {
            client.write_all(piece).await.unwrap();
            if stream.read_exact(&mut vec![0; piece.len()]).await.is_err() {
                return false;
            }
        }
        true
    }

    #[tokio::test]
    async fn t46_so_many_frames_that_ask_nothing_may_come_together_and_no_more() {
        let preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
        let settings = |number: usize| [0, 0, 0, 4, 0, 0, 0, 0, 0].repeat(number);
        let request = [0, 0, 0, 1, 5, 0, 0, 0, 1].to_vec();
        let resets = [0, 0, 4, 3, 0, 0, 0, 0, 1, 0, 0, 0, 8].repeat(STREAMS_MAX as usize);
        assert!(may_say(&[preface.clone(), resets]).await, "all calls are given up");
        let most = settings(OTHERS_MAX + 1);
        assert!(may_say(&[preface.clone(), most.clone()]).await, "the first is not counted");
        assert!(!may_say(&[preface.clone(), settings(OTHERS_MAX + 2)]).await);
        assert!(!may_say(&[preface.clone(), most.clone(), settings(2)]).await);
        assert!(may_say(&[preface.clone(), most.clone(), request, most]).await, "one asks");
        let one_by_one = vec![settings(1); 3 * OTHERS_MAX];
        assert!(may_say(&[vec![preface], one_by_one].concat()).await, "one waits for answers");
    }
}
