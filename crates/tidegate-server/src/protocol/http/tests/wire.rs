//! Tests of the services over in-memory connections.

use super::{Harness, PEER};
use crate::protocol::http::body::BODY_BYTES_MAX;
use hyper::server::conn::http1;
use hyper_util::rt::TokioIo;
use std::sync::Arc;
use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};

/// Returns all responses until the connection ends.
async fn converse(harness: &Harness, is_admin: bool, said: &[u8]) -> String {
    let (mut client, server) = duplex(1 << 20);
    let (io, shared) = (TokioIo::new(server), Arc::clone(&harness.server));
    let serving = tokio::spawn(async move {
        let mut http = http1::Builder::new();
        // The client sends everything and then reads.
        http.half_close(true);
        if is_admin {
            http.serve_connection(io, crate::protocol::admin::service(shared, |_: &_| ())).await
        } else {
            http.serve_connection(io, crate::protocol::http::service(shared, PEER, |_: &_| ()))
                .await
        }
    });
    client.write_all(said).await.unwrap();
    client.shutdown().await.unwrap();
    let mut heard = Vec::new();
    client.read_to_end(&mut heard).await.unwrap();
    serving.await.unwrap().unwrap();
    String::from_utf8(heard).unwrap()
}

fn post(body: &str) -> String {
    format!(
        "POST /v1/check HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n\
         Content-Length: {}\r\n\r\n{body}",
        body.len()
    )
}

#[tokio::test]
async fn a_connection_serves_many_requests() {
    let ask = post(r#"{"limit":"api","key":"alice"}"#);
    let heard = converse(&Harness::new(), false, ask.repeat(11).as_bytes()).await;
    assert_eq!(heard.matches("HTTP/1.1 200 OK\r\n").count(), 10);
    assert_eq!(heard.matches("HTTP/1.1 429 Too Many Requests\r\n").count(), 1);
    assert!(heard.contains("content-length: 82\r\n"), "{heard}");
}

#[tokio::test]
async fn a_body_that_is_too_long_is_refused_before_it_is_read() {
    let said = post(&"x".repeat(BODY_BYTES_MAX + 1));
    let heard = converse(&Harness::new(), false, said.as_bytes()).await;
    assert!(heard.starts_with("HTTP/1.1 413 Payload Too Large\r\n"), "{heard}");
}

#[tokio::test]
async fn the_admin_listener_answers_too() {
    let said = b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n";
    let heard = converse(&Harness::new(), true, said).await;
    assert!(heard.starts_with("HTTP/1.1 200 OK\r\n") && heard.ends_with("ok\n"), "{heard}");
}
