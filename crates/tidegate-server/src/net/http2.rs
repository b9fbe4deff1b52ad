//! HTTP/2 connections, which carry gRPC: hyper with bounds on streams, resets and headers.

use super::shutdown;
use super::stream::{MonitoredStream, STREAMS_MAX};
use http::{Request, Response};
use hyper::body::{Body, Incoming};
use hyper::server::conn::http2;
use hyper::service::Service;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use std::convert::Infallible;
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::watch;

/// Streams that a peer may reset before the server has looked at them (rapid reset).
const PENDING_RESETS_MAX: usize = 64;
/// Streams that the server may have to reset because of what the peer does with them, over the whole life of a connection
/// (CVE-2025-8671), including those beyond [`STREAMS_MAX`]. Each costs as much as a call, and a thousand of them in one piece of
/// input would delay the worker's other connections for too long.
const LOCAL_RESETS_MAX: usize = 256;
const HEADER_LIST_BYTES_MAX: u32 = 16 * 1024;
/// Interval of pings that check whether an idle connection is alive.
const PING_EVERY: Duration = Duration::from_secs(30);
/// During a drain, time for a peer without open requests to close its connection.
const GOODBYE: Duration = Duration::from_secs(1);

/// Serves one HTTP/2 connection.
pub(super) async fn serve<S, V, B>(
    stream: MonitoredStream<S>,
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
        .max_pending_accept_reset_streams(PENDING_RESETS_MAX)
        .max_local_error_reset_streams(LOCAL_RESETS_MAX)
        .max_header_list_size(HEADER_LIST_BYTES_MAX);
    let state = Arc::clone(stream.state());
    state.set_shuts_down_itself();
    let mut connection = pin!(builder.serve_connection(TokioIo::new(stream), service));
    let ended = tokio::select! {
        ended = connection.as_mut() => ended,
        () = shutdown(&mut closing) => {
            connection.as_mut().graceful_shutdown();
            loop {
                match tokio::time::timeout(GOODBYE, connection.as_mut()).await {
                    Ok(ended) => break ended,
                    Err(_) if state.is_answering() => {}
                    Err(_) => break Ok(()),
                }
            }
        }
    };
    ended.map_err(io::Error::other)
}
