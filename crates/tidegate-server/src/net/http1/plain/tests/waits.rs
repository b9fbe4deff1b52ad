//! Requests that wait, clients that disconnect, and answers that are not flushed.

use super::*;
use crate::protocol::http::{JSON, ResponseBuilder};
use std::pin::Pin;
use std::task::{Context, ready};
use tokio::io::ReadBuf;

#[test]
fn statuses_without_a_body_have_no_content_length() {
    for status in [StatusCode::NO_CONTENT, StatusCode::NOT_MODIFIED] {
        let answered =
            ResponseBuilder::new(status).body(JSON, |out| out.extend_from_slice(b"a body"));
        let mut output = Vec::new();
        write(&mut output, &answered, &DateField::default(), false);
        assert!(output.ends_with(b"\r\n\r\n"), "{}", String::from_utf8_lossy(&output));
        assert!(!output.windows(14).any(|bytes| bytes == b"content-length"));
    }
}

#[tokio::test]
async fn an_answer_is_sent_while_a_later_request_waits() {
    let harness = harness();
    let (mut client, serving, _open) = connect(&harness);
    let input = [authorize("/slow"), authorize("/slow"), check("alice")].concat();
    client.write_all(input.as_bytes()).await.unwrap();
    let first = read_head(&mut client).await;
    assert!(first.starts_with("HTTP/1.1 204 "), "{first}");
    assert_eq!(harness.clock.sleepers(), 1, "the second waits in the queue");
    client.write_all(check("bob").as_bytes()).await.unwrap();
    for _ in 0..4 {
        tokio::task::yield_now().await;
    }
    harness.clock.advance(Span::from_millis(100));
    let second = read_head(&mut client).await;
    assert!(second.starts_with("HTTP/1.1 204 "), "{second}");
    let rest = read_rest(client, serving).await;
    assert_eq!(
        rest.matches("HTTP/1.1 200 ").count(),
        2,
        "including the request that arrived meanwhile: {rest}"
    );
}

// T44
#[tokio::test]
async fn the_time_of_a_partial_request_begins_when_the_request_before_it_is_answered() {
    let harness = harness();
    let (mut client, server) = duplex(1 << 20);
    let connections = Connections::default();
    let (id, state) = connections.add(Wire::Http, &Caps::default());
    let (_open, closing) = watch::channel(false);
    let shared = Arc::clone(&harness.server);
    let stream = MonitoredStream::http1(server, state);
    let serving = tokio::spawn(async move { serve_plain(stream, &shared, PEER, closing).await });
    connections.set_abort_handle(id, serving.abort_handle());
    client.write_all(authorize("/slow").repeat(2).as_bytes()).await.unwrap();
    read_head(&mut client).await;
    client.write_all(&check("bob").as_bytes()[..20]).await.unwrap();
    for _ in 0..4 {
        tokio::task::yield_now().await;
    }
    harness.clock.advance(Span::from_millis(100));
    read_head(&mut client).await;
    for _ in 0..4 {
        tokio::task::yield_now().await;
    }
    connections.close_idle();
    client.write_all(&check("bob").as_bytes()[20..]).await.unwrap();
    let third = read_head(&mut client).await;
    assert!(third.starts_with("HTTP/1.1 200 "), "{third}");
}

#[tokio::test]
async fn a_client_that_disconnects_while_it_waits_leaves_the_queue() {
    let harness = harness();
    let (mut client, serving, _open) = connect(&harness);
    client.write_all(authorize("/slow").repeat(2).as_bytes()).await.unwrap();
    read_head(&mut client).await;
    assert_eq!(harness.clock.sleepers(), 1);
    drop(client);
    // The shutdown of a closed socket may fail.
    let _ = serving.await.unwrap();
    assert_eq!(harness.clock.sleepers(), 0);
}

#[tokio::test]
async fn a_request_for_hyper_is_answered_during_shutdown() {
    let harness = Harness::new();
    let chunked = "POST /v1/check HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n\
                   Transfer-Encoding: chunked\r\n\r\n19\r\n{\"limit\":\"api\",\"key\":\"a\"}\r\n0\r\n\r\n";
    // An unbiased `select` would fail every other time.
    for _ in 0..40 {
        let (mut client, serving, open) = connect(&harness);
        client.write_all(&chunked.as_bytes()[..20]).await.unwrap();
        tokio::task::yield_now().await;
        open.send_replace(true);
        client.write_all(&chunked.as_bytes()[20..]).await.unwrap();
        let mut answers = String::new();
        client.read_to_string(&mut answers).await.unwrap();
        assert!(answers.starts_with("HTTP/1.1 "), "{answers}");
        serving.await.unwrap().unwrap();
    }
}

#[tokio::test]
async fn an_empty_line_after_a_body_is_ignored() {
    let harness = Harness::new();
    let input = format!("{}\r\n{}\r\n", check("a"), check("a"));
    let answers = plain_answers(&harness, &[input.as_bytes()]).await;
    assert_eq!(answers.matches("HTTP/1.1 200 ").count(), 2, "{answers}");
    assert_eq!(empty_lines(b"\r\n\r\nGET"), 4);
}

/// Sends nothing until it is flushed, as TLS may.
struct Lazy {
    stream: DuplexStream,
    written: Vec<u8>,
}

impl AsyncRead for Lazy {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl AsyncWrite for Lazy {
    fn poll_write(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.written.extend_from_slice(bytes);
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        while !this.written.is_empty() {
            let written = ready!(Pin::new(&mut this.stream).poll_write(context, &this.written))?;
            this.written.drain(..written);
        }
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[tokio::test]
async fn answers_are_flushed() {
    let harness = Harness::new();
    let (mut client, stream) = duplex(100);
    let (shared, (_open, closing)) = (Arc::clone(&harness.server), watch::channel(false));
    let lazy = monitored(Lazy { stream, written: Vec::new() });
    tokio::spawn(async move { serve_plain(lazy, &shared, PEER, closing).await });
    client.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").await.unwrap();
    assert!(read_head(&mut client).await.starts_with("HTTP/1.1 200 "));
}
