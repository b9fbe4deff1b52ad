//! T46: incomplete gRPC messages.

use crate::harness::{
    PATIENCE, TestServer, assert_grew_less, eventually, rss_bytes, secs, start_exclusive,
};
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::{Body, Frame, Incoming};
use hyper::client::conn::http2::{SendRequest, handshake};
use hyper_util::rt::{TokioExecutor, TokioIo};
use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};
use tidegate_server::protocol::grpc::PATH;
use tokio::task::JoinHandle;

const CONNECTIONS: usize = 8;
const STREAMS: usize = 250;
/// Length of the incomplete messages: each is short, but all of them are 120 MB.
const HALF_BYTES: usize = 60_000;
const MEMORY_BYTES_MAX: usize = 64 << 20;

/// A request body that sends pieces, and then ends or stays open without sending more.
struct Pieces {
    left: std::vec::IntoIter<Bytes>,
    ends: bool,
}

impl Pieces {
    fn of(pieces: Vec<Bytes>, ends: bool) -> Self {
        Self { left: pieces.into_iter(), ends }
    }
}

impl Body for Pieces {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        match self.left.next() {
            Some(piece) => Poll::Ready(Some(Ok(Frame::data(piece)))),
            None if self.ends => Poll::Ready(None),
            None => Poll::Pending,
        }
    }
}

async fn connect<B>(running: &TestServer) -> SendRequest<B>
where
    B: Body<Data = Bytes, Error = Infallible> + Send + Unpin + 'static,
{
    let address = running.addresses.grpc.expect("it listens");
    let stream = tokio::net::TcpStream::connect(address).await.expect("it accepts");
    let (sender, connection) = handshake(TokioExecutor::new(), TokioIo::new(stream))
        .await
        .expect("the server accepts HTTP/2");
    tokio::spawn(connection);
    sender
}

fn call<B>(body: B) -> http::Request<B> {
    let request = http::Request::post(format!("http://tests{PATH}"));
    request.header("content-type", "application/grpc").body(body).expect("it is a request")
}

/// Sends the message at once and returns the gRPC status of the answer.
async fn status(running: &TestServer, message: Vec<u8>) -> String {
    let mut sender = connect(running).await;
    answered(sender.send_request(call(Full::new(message.into()))).await.expect("it answers")).await
}

async fn answered(answer: http::Response<Incoming>) -> String {
    let (head, body) = answer.into_parts();
    let collected = body.collect().await.expect("the body is complete");
    let trailers = collected.trailers().cloned().unwrap_or_default();
    let status = head.headers.get("grpc-status").or_else(|| trailers.get("grpc-status"));
    status.expect("the answer has a status").to_str().expect("it is a number").to_owned()
}

/// Sends the message byte by byte and returns the gRPC status of the answer.
async fn status_of_pieces(running: &TestServer, message: Vec<u8>) -> String {
    let mut sender = connect(running).await;
    let bytes = message.into_iter().map(|byte| Bytes::copy_from_slice(&[byte])).collect();
    answered(sender.send_request(call(Pieces::of(bytes, true))).await.expect("it answers")).await
}

/// Returns a message of this length that is not a valid request.
fn nonsense(bytes: usize) -> Vec<u8> {
    let length = u32::try_from(bytes).expect("it is short").to_be_bytes();
    [&[0][..], &length, &vec![0xff; bytes]].concat()
}

/// Begins many messages and leaves them incomplete. Each task ends when its call is answered.
async fn begin_many(running: &TestServer) -> Vec<JoinHandle<hyper::Result<()>>> {
    let half = Bytes::from(nonsense(HALF_BYTES)).slice(..HALF_BYTES);
    let mut begun = Vec::new();
    for _ in 0..CONNECTIONS {
        let mut sender = connect(running).await;
        for _ in 0..STREAMS {
            let answer = sender.send_request(call(Pieces::of(vec![half.clone()], false)));
            begun.push(tokio::spawn(async { answer.await.map(drop) }));
        }
    }
    begun
}

// T46
#[test]
fn incomplete_messages_take_little_memory() {
    const INVALID: &str = "3";
    const EXHAUSTED: &str = "8";
    let running = start_exclusive(|config| config.server.caps.request = secs(60));
    let (brief, long) = (nonsense(100), nonsense(1 << 20));
    let runtime = || {
        let mut builder = tokio::runtime::Builder::new_multi_thread();
        builder.worker_threads(1).enable_all().build().unwrap()
    };
    let (honest, other) = (runtime(), runtime());
    let status = |message: &[u8]| honest.block_on(status(&running, message.to_vec()));
    assert_eq!(status(&long), INVALID, "memory is available");
    let before = rss_bytes();
    let begun = other.block_on(begin_many(&running));
    eventually("the server refuses some calls", PATIENCE, || {
        begun.iter().any(JoinHandle::is_finished)
    });
    assert_eq!(status(&brief), INVALID, "a short message is answered");
    assert_eq!(
        honest.block_on(status_of_pieces(&running, brief.clone())),
        INVALID,
        "a short message in pieces is answered"
    );
    // The server frees the memory of a refused call, and the messages that are still arriving use it up again.
    eventually("a long message is refused", PATIENCE, || status(&long) == EXHAUSTED);
    assert_grew_less(before, MEMORY_BYTES_MAX);
    // This closes all connections of the runtime.
    other.shutdown_background();
    eventually("a long message is accepted again", PATIENCE, || status(&long) == INVALID);
    running.stop().unwrap();
}
