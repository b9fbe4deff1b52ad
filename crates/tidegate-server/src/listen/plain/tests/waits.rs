//! Who waits, who leaves, and what is on its way.

use super::*;
use crate::http::{JSON, Page};
use std::pin::Pin;
use std::task::{Context, ready};
use tokio::io::ReadBuf;

#[test]
fn what_has_no_body_is_sent_without_one() {
    for status in [StatusCode::NO_CONTENT, StatusCode::NOT_MODIFIED] {
        let answered = Page::new(status).body(JSON, |out| out.extend_from_slice(b"a body"));
        let mut output = Vec::new();
        write(&mut output, &answered, &Date::default(), false);
        assert!(output.ends_with(b"\r\n\r\n"), "{}", String::from_utf8_lossy(&output));
        assert!(!output.windows(14).any(|bytes| bytes == b"content-length"));
    }
}

#[tokio::test]
async fn who_has_been_answered_does_not_wait_for_who_waits() {
    let bench = bench();
    let (mut client, serving, _open) = connect(&bench);
    let said = [authorize("/slow"), authorize("/slow"), check("alice")].concat();
    client.write_all(said.as_bytes()).await.unwrap();
    let first = answer_of(&mut client).await;
    assert!(first.starts_with("HTTP/1.1 204 "), "{first}");
    assert_eq!(bench.clock.sleepers(), 1, "the second waits for its turn");
    client.write_all(check("bob").as_bytes()).await.unwrap();
    for _ in 0..4 {
        tokio::task::yield_now().await;
    }
    bench.clock.advance(Span::from_millis(100));
    let second = answer_of(&mut client).await;
    assert!(second.starts_with("HTTP/1.1 204 "), "{second}");
    let rest = rest(client, serving).await;
    assert_eq!(rest.matches("HTTP/1.1 200 ").count(), 2, "also what came in the meantime: {rest}");
}

/// T44: its time begins when nothing stands before it, also if it came while something did.
#[tokio::test]
async fn a_part_that_came_while_another_waited_is_no_idle_connection() {
    let bench = bench();
    let (mut client, server) = duplex(1 << 20);
    let peers = Arc::new(Peers::new(Arc::new(Wakeful::new(Span::ZERO))));
    let (number, activity) = peers.enter(Wire::Http, &Caps::default());
    let (_open, closing) = watch::channel(false);
    let shared = Arc::clone(&bench.server);
    let stream = Watched::http1(server, activity);
    let serving = tokio::spawn(async move { serve(stream, &shared, PEER, closing).await });
    peers.handle(number, serving.abort_handle());
    client.write_all(authorize("/slow").repeat(2).as_bytes()).await.unwrap();
    answer_of(&mut client).await;
    client.write_all(&check("bob").as_bytes()[..20]).await.unwrap();
    for _ in 0..4 {
        tokio::task::yield_now().await;
    }
    bench.clock.advance(Span::from_millis(100));
    answer_of(&mut client).await;
    for _ in 0..4 {
        tokio::task::yield_now().await;
    }
    peers.end_idle();
    client.write_all(&check("bob").as_bytes()[20..]).await.unwrap();
    let third = answer_of(&mut client).await;
    assert!(third.starts_with("HTTP/1.1 200 "), "{third}");
}

#[tokio::test]
async fn who_leaves_while_it_waits_gives_up_its_turn() {
    let bench = bench();
    let (mut client, serving, _open) = connect(&bench);
    client.write_all(authorize("/slow").repeat(2).as_bytes()).await.unwrap();
    answer_of(&mut client).await;
    assert_eq!(bench.clock.sleepers(), 1);
    drop(client);
    // There is nobody to say goodbye to.
    let _ = serving.await.unwrap();
    assert_eq!(bench.clock.sleepers(), 0);
}

#[tokio::test]
async fn what_is_not_plain_is_answered_also_when_it_is_time_to_go() {
    let bench = Bench::new();
    let chunked = "POST /v1/check HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n\
                   Transfer-Encoding: chunked\r\n\r\n19\r\n{\"limit\":\"api\",\"key\":\"a\"}\r\n0\r\n\r\n";
    // Whoever asks in what order has an even chance to be wrong.
    for _ in 0..40 {
        let (mut client, serving, open) = connect(&bench);
        client.write_all(&chunked.as_bytes()[..20]).await.unwrap();
        tokio::task::yield_now().await;
        open.send_replace(true);
        client.write_all(&chunked.as_bytes()[20..]).await.unwrap();
        let mut heard = String::new();
        client.read_to_string(&mut heard).await.unwrap();
        assert!(heard.starts_with("HTTP/1.1 "), "{heard}");
        serving.await.unwrap().unwrap();
    }
}

#[tokio::test]
async fn an_empty_line_after_a_body_is_nothing() {
    let bench = Bench::new();
    let said = format!("{}\r\n{}\r\n", check("a"), check("a"));
    let heard = heard(&bench, &[said.as_bytes()]).await;
    assert_eq!(heard.matches("HTTP/1.1 200 ").count(), 2, "{heard}");
    assert_eq!(empty_lines(b"\r\n\r\nGET"), 4);
}

/// Says nothing before it is flushed, as TLS may.
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
async fn what_is_written_is_sent_on_its_way() {
    let bench = Bench::new();
    let (mut client, stream) = duplex(100);
    let (shared, (_open, closing)) = (Arc::clone(&bench.server), watch::channel(false));
    let lazy = watched(Lazy { stream, written: Vec::new() });
    tokio::spawn(async move { serve(lazy, &shared, PEER, closing).await });
    client.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").await.unwrap();
    assert!(answer_of(&mut client).await.starts_with("HTTP/1.1 200 "));
}
