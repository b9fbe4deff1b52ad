//! A socket, plain or TLS, that reports what its peer does, so that deadlines can be applied.
//!
//! Invariant From the first byte of a request to the first byte of its answer at most
//!           [`Caps::request`](crate::config::Caps::request) passes, however slowly the request arrives, and the peer has as long to
//!           read the answer (T44). hyper's own timer would begin anew with every header.
//! Invariant On HTTP/2 the same holds for each frame: a frame that has begun must be finished in time. Frames about the connection
//!           (settings, pings) are no requests, and a peer that sends too many of them is disconnected (T46).

mod frames;
mod http2_monitor;

pub(super) use http2_monitor::STREAMS_MAX;

use super::deadlines::{ConnectionState, SuspendedDeadline};
use bytes::Bytes;
use http::request::Parts;
use http2_monitor::Http2Monitor;
use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// A stream that updates its [`ConnectionState`] with each read and write.
#[derive(Debug)]
pub(super) struct MonitoredStream<S> {
    stream: S,
    /// Input that was read before and put back.
    unread: Bytes,
    state: Arc<ConnectionState>,
    /// Whether written bytes may still be on their way.
    is_flushing: bool,
    /// `None` on HTTP/1.
    http2: Option<Http2Monitor>,
}

impl<S> MonitoredStream<S> {
    pub(super) fn http1(stream: S, state: Arc<ConnectionState>) -> Self {
        Self { stream, unread: Bytes::new(), state, is_flushing: false, http2: None }
    }

    pub(super) fn http2(stream: S, state: Arc<ConnectionState>) -> Self {
        let http2 = Some(Http2Monitor::default());
        Self { stream, unread: Bytes::new(), state, is_flushing: false, http2 }
    }

    /// Puts back bytes that have been read, to be read again.
    pub(super) fn with_unread(self, unread: Bytes) -> Self {
        Self { unread, ..self }
    }

    pub(super) fn state(&self) -> &Arc<ConnectionState> {
        &self.state
    }

    /// Suspends the deadline: a request has arrived completely and waits for the server.
    pub(super) fn suspend_deadline(&self) -> SuspendedDeadline {
        self.state.suspend_deadline()
    }

    /// Marks the peer as authenticated if its request proves it; the proof is only checked while it is needed.
    pub(super) fn authenticate_if(&self, is_authenticated: impl FnOnce() -> bool) {
        if self.state.is_unauthenticated() && is_authenticated() {
            self.state.set_authenticated();
        }
    }

    /// Returns a function that marks the peer as authenticated when a request's head proves it.
    pub(super) fn authenticate_by<F: Fn(&Parts) -> bool + Clone + Send>(
        &self,
        is_authenticated: F,
    ) -> impl Fn(&Parts) + Clone + Send + use<S, F> {
        let state = Arc::clone(&self.state);
        move |head| {
            if state.is_unauthenticated() && is_authenticated(head) {
                state.set_authenticated();
            }
        }
    }

    /// Begins the time of the next request: a part of it arrived with the last one.
    pub(super) fn begin_next_request(&self) {
        self.state.await_input(true);
    }

    fn on_read(&mut self, bytes: &[u8]) {
        match &mut self.http2 {
            None => self.state.on_read(),
            Some(http2) => http2.on_read(bytes, &self.state),
        }
    }

    fn on_write(&mut self, is_accepted: bool) {
        match &mut self.http2 {
            None => self.state.on_write(is_accepted),
            Some(http2) => http2.on_write(is_accepted, &self.state),
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for MonitoredStream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if !self.unread.is_empty() {
            let length = self.unread.len().min(buffer.remaining());
            buffer.put_slice(&self.unread.split_to(length));
            return Poll::Ready(Ok(()));
        }
        if self.http2.as_mut().is_some_and(Http2Monitor::ends_turn) {
            // The yield wakes this task after the others have run.
            return pin!(tokio::task::yield_now()).poll(context).map(Ok);
        }
        let before = buffer.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(context, buffer);
        if read.is_ready() && buffer.filled().len() > before {
            self.on_read(&buffer.filled()[before..]);
            if self.http2.as_ref().is_some_and(Http2Monitor::is_flooded) {
                return Poll::Ready(Err(io::Error::other("too many HTTP/2 control frames")));
            }
        }
        if read.is_pending()
            && let Some(http2) = &mut self.http2
        {
            http2.begin_turn();
        }
        read
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for MonitoredStream<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.on_write(matches!(written, Poll::Ready(Ok(_))));
        written
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(context, bytes);
        self.on_write(matches!(written, Poll::Ready(Ok(_))));
        written
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.stream).poll_flush(context);
        // Under TLS, the peer may not have accepted what was written.
        if flushed.is_pending() || self.is_flushing {
            self.is_flushing = flushed.is_pending();
            self.on_write(flushed.is_ready());
        }
        flushed
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use super::super::Wire;
    use super::super::deadlines::Connections;
    use super::http2_monitor::{CONTROL_FRAMES_MAX, TURN_BYTES};
    use super::*;
    use crate::config::Caps;
    use std::cell::Cell;
    use std::future::poll_fn;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, duplex};

    const TURNS: usize = 4;

    fn state() -> Arc<ConnectionState> {
        Connections::default().add(Wire::Grpc, &Caps::default()).1
    }

    /// Returns how often another task runs while input is read that has already arrived.
    async fn turns_of_others(
        mut stream: MonitoredStream<DuplexStream>,
        mut client: DuplexStream,
    ) -> u32 {
        client.write_all(&vec![0; TURNS * TURN_BYTES]).await.unwrap();
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

    // T46
    #[tokio::test]
    async fn a_peer_that_sends_much_over_http2_lets_others_run() {
        let (client, server) = duplex(TURNS * TURN_BYTES);
        assert_eq!(turns_of_others(MonitoredStream::http2(server, state()), client).await, 3);
        let (client, server) = duplex(TURNS * TURN_BYTES);
        let turns = turns_of_others(MonitoredStream::http1(server, state()), client).await;
        assert_eq!(turns, 0, "HTTP/1 answers what it has read first");
    }

    /// Returns whether a peer may send all these pieces, each of which is read at once.
    async fn may_send(pieces: &[Vec<u8>]) -> bool {
        let (mut client, server) = duplex(4 * TURN_BYTES);
        let mut stream = MonitoredStream::http2(server, state());
        for piece in pieces {
            client.write_all(piece).await.unwrap();
            if stream.read_exact(&mut vec![0; piece.len()]).await.is_err() {
                return false;
            }
        }
        true
    }

    // T46
    #[tokio::test]
    async fn control_frames_that_arrive_together_are_bounded() {
        let preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
        let settings = |number: usize| [0, 0, 0, 4, 0, 0, 0, 0, 0].repeat(number);
        let request = [0, 0, 0, 1, 5, 0, 0, 0, 1].to_vec();
        let resets = [0, 0, 4, 3, 0, 0, 0, 0, 1, 0, 0, 0, 8].repeat(STREAMS_MAX as usize);
        assert!(may_send(&[preface.clone(), resets]).await, "all calls are cancelled");
        let most = settings(CONTROL_FRAMES_MAX + 1);
        assert!(may_send(&[preface.clone(), most.clone()]).await, "the first is not counted");
        assert!(!may_send(&[preface.clone(), settings(CONTROL_FRAMES_MAX + 2)]).await);
        assert!(!may_send(&[preface.clone(), most.clone(), settings(2)]).await);
        let with_request = [preface.clone(), most.clone(), request, most];
        assert!(may_send(&with_request).await, "a request begins the count anew");
        let one_by_one = vec![settings(1); 3 * CONTROL_FRAMES_MAX];
        assert!(may_send(&[vec![preface], one_by_one].concat()).await, "the peer awaits answers");
    }
}
