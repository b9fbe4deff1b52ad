//! HTTP/1 connections: plain requests without hyper ([`plain`]), all others with it.

mod plain;

pub(super) use plain::serve_plain;

use super::shutdown;
use super::stream::MonitoredStream;
use http::{Request, Response};
use hyper::body::{Body, Incoming};
use hyper::server::conn::http1;
use hyper::service::Service;
use hyper_util::rt::TokioIo;
use std::convert::Infallible;
use std::io;
use std::pin::pin;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::watch;

/// Maximum length of a request's head.
const HEAD_BYTES_MAX: usize = 64 * 1024;
const HEADERS_MAX: usize = 100;

/// Serves one connection with hyper.
pub(super) async fn serve<S, V, B>(
    stream: MonitoredStream<S>,
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
        // Input that has arrived is served first: hyper ends a connection that has received nothing without an answer.
        biased;
        ended = connection.as_mut() => ended,
        () = shutdown(&mut closing) => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    ended.map_err(io::Error::other)
}
