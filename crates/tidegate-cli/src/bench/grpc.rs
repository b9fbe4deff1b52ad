//! A gRPC connection to the rate limit service of Envoy: each request is an HTTP/2 stream.

use super::Plan;
use super::connect::connect;
use super::handle::{ConnectionHandle, LoadContext};
use super::schedule::Schedule;
use super::stats::{LoadStats, Reply, error_reply};
use super::template::RandomKeys;
use anyhow::{Context, anyhow};
use bytes::{Bytes, BytesMut};
use h2::client::{ResponseFuture, SendRequest};
use http::{HeaderMap, HeaderValue, Method, Request, header};
use prost::Message;
use std::future::poll_fn;
use std::sync::atomic::Ordering;
use std::task::Poll;
use std::time::Duration;
use tidegate_server::protocol::grpc::proto::RateLimitResponse;
use tokio::task::JoinSet;

/// `RateLimitResponse.Code`.
const OK: i32 = 1;
const OVER_LIMIT: i32 = 2;
/// Maximum length of a reply.
const REPLY_BYTES_MAX: usize = 1 << 20;
/// Time between two attempts to reconnect, and the time limit of each attempt.
const RECONNECT_DELAY: Duration = Duration::from_millis(100);
/// The flow-control window. Replies are small, and the server should never wait for a window update.
const WINDOW_BYTES: u32 = 16 << 20;

/// Sends one request, and returns an error unless the reply is a decision.
pub(super) async fn probe(plan: &Plan) -> anyhow::Result<()> {
    let send = handshake(plan).await?;
    let mut send = send.ready().await.with_context(|| no_http2(plan))?;
    let mut body = Vec::new();
    plan.request.template.write(0, &mut body);
    let response = begin(&mut send, request(plan)?, body.into()).with_context(|| no_http2(plan))?;
    match answer(response)
        .await
        .map_err(|broken| anyhow!(broken))
        .with_context(|| no_http2(plan))?
    {
        Reply::Error(why) => Err(error_reply(&plan.target, &why)),
        _ => Ok(()),
    }
}

fn no_http2(plan: &Plan) -> String {
    format!("{} does not answer gRPC", plan.target)
}

async fn handshake(plan: &Plan) -> anyhow::Result<SendRequest<Bytes>> {
    let socket = connect(&plan.target, plan.tls.as_ref()).await?;
    let (send, connection) = h2::client::Builder::new()
        .initial_window_size(WINDOW_BYTES)
        .initial_connection_window_size(WINDOW_BYTES)
        .handshake(socket)
        .await
        .with_context(|| no_http2(plan))?;
    // An error of the connection is also the error of every call on it.
    tokio::spawn(async { drop(connection.await) });
    Ok(send)
}

fn request(plan: &Plan) -> anyhow::Result<Request<()>> {
    let scheme = if plan.target.has_tls { "https" } else { "http" };
    let uri =
        format!("{scheme}://{}{}", plan.target.authority, tidegate_server::protocol::grpc::PATH);
    let request = Request::builder()
        .method(Method::POST)
        .uri(uri)
        .header(header::CONTENT_TYPE, "application/grpc")
        .header(header::TE, "trailers");
    let request = match &plan.request.authorization {
        Some(token) => request.header(header::AUTHORIZATION, token),
        None => request,
    };
    request.body(()).context("the target or the token is not valid in an HTTP/2 request")
}

fn begin(
    send: &mut SendRequest<Bytes>,
    request: Request<()>,
    body: Bytes,
) -> Result<ResponseFuture, h2::Error> {
    let (response, mut stream) = send.send_request(request, false)?;
    stream.send_data(body, true)?;
    Ok(response)
}

async fn answer(response: ResponseFuture) -> Result<Reply, String> {
    let told = |error: h2::Error| error.to_string();
    let response = response.await.map_err(told)?;
    if response.status() != http::StatusCode::OK {
        return Ok(Reply::Error(format!("status {}", response.status().as_u16())));
    }
    if let Some(error) = grpc_error(response.headers()) {
        return Ok(error);
    }
    let mut body = response.into_body();
    let mut message = BytesMut::new();
    while let Some(piece) = body.data().await {
        let piece = piece.map_err(told)?;
        // Returns the bytes to the flow-control window.
        body.flow_control().release_capacity(piece.len()).map_err(told)?;
        message.extend_from_slice(&piece);
        if message.len() > REPLY_BYTES_MAX {
            return Err(format!("a reply is longer than {REPLY_BYTES_MAX} bytes"));
        }
    }
    let trailers = body.trailers().await.map_err(told)?;
    if let Some(error) = trailers.as_ref().and_then(grpc_error) {
        return Ok(error);
    }
    let message = message.get(5..).ok_or("a reply has no message")?;
    let read = RateLimitResponse::decode(message).map_err(|error| error.to_string())?;
    Ok(match read.overall_code {
        OK => Reply::Allow,
        OVER_LIMIT => Reply::Deny,
        _ => Reply::Other,
    })
}

/// Returns the gRPC error in the headers or trailers, if the call failed.
fn grpc_error(headers: &HeaderMap) -> Option<Reply> {
    let status = headers.get("grpc-status")?;
    let text = |value: &HeaderValue| String::from_utf8_lossy(value.as_bytes()).into_owned();
    let message = headers.get("grpc-message").map(text).unwrap_or_default();
    (status != "0").then(|| Reply::Error(format!("grpc-status {}: {message}", text(status))))
}

/// A connection, with its calls in progress and its statistics.
pub(super) struct GrpcConnection {
    handle: ConnectionHandle,
    schedule: Schedule,
    keys: RandomKeys,
    send: SendRequest<Bytes>,
    request: Request<()>,
    unanswered: JoinSet<(u64, Result<Reply, String>)>,
    /// The due time of each unanswered call.
    dues_us: Vec<u64>,
    /// Since when the pipeline has had a free slot.
    capacity_since_us: u64,
    /// Whether a stream can be opened now.
    is_ready: bool,
    stats: LoadStats,
}

impl GrpcConnection {
    pub(super) async fn open(handle: ConnectionHandle) -> anyhow::Result<Self> {
        let plan = &handle.load.plan;
        Ok(Self {
            send: handshake(plan).await?,
            request: request(plan)?,
            schedule: handle.load.schedule(handle.number),
            keys: RandomKeys::new(plan.keys, handle.number + 1),
            unanswered: JoinSet::new(),
            dues_us: Vec::new(),
            capacity_since_us: 0,
            is_ready: false,
            stats: LoadStats::new(),
            handle,
        })
    }

    pub(super) async fn run(mut self) -> LoadStats {
        while !self.is_over() {
            self.step().await;
        }
        self.record_all_lost();
        self.handle.end(self.schedule, &mut self.stats);
        self.stats
    }

    fn is_over(&self) -> bool {
        self.handle.is_over(&self.schedule, self.unanswered.is_empty())
    }

    async fn step(&mut self) {
        if let Err(error) = self.send_due().await {
            self.stats.record_error(error.to_string());
            self.reopen().await;
            return;
        }
        let is_blocked = !self.is_ready;
        tokio::select! {
            biased;
            Some(answered) = self.unanswered.join_next() => self.record_call(answered),
            () = self.handle.wake.notified() => {}
            ready = poll_fn(|context| self.send.poll_ready(context)), if is_blocked => {
                self.is_ready = ready.is_ok();
            }
        }
        // Other calls may have ended meanwhile.
        while let Some(answered) = self.unanswered.try_join_next() {
            self.record_call(answered);
        }
    }

    async fn send_due(&mut self) -> Result<(), h2::Error> {
        let LoadContext { plan, .. } = &*self.handle.load;
        let (times, now_us) = (self.handle.load.times(), self.handle.now_us());
        while self.unanswered.len() < plan.pipeline {
            let Some(due_us) = self.schedule.next_due_us(times, now_us) else { break };
            if due_us > now_us {
                break;
            }
            let ready = poll_fn(|context| Poll::Ready(self.send.poll_ready(context))).await;
            self.is_ready = match ready {
                Poll::Ready(ready) => ready.map(|()| true)?,
                Poll::Pending => false,
            };
            if !self.is_ready {
                break;
            }
            let mut body = Vec::new();
            plan.request.template.write(self.keys.next(), &mut body);
            let response = begin(&mut self.send, self.request.clone(), body.into())?;
            self.stats.record_sent(now_us - due_us.max(self.capacity_since_us).min(now_us));
            self.schedule.advance();
            self.dues_us.push(due_us);
            self.unanswered.spawn(async move { (due_us, answer(response).await) });
        }
        Ok(())
    }

    fn record_call(
        &mut self,
        answered: Result<(u64, Result<Reply, String>), tokio::task::JoinError>,
    ) {
        // No task panics, and only `record_all_lost` aborts them.
        let Ok((due_us, answer)) = answered else { return };
        if let Some(place) = self.dues_us.iter().position(|other| *other == due_us) {
            self.dues_us.swap_remove(place);
        }
        let (now_us, progress) = (self.handle.now_us(), &self.handle.load.progress);
        self.capacity_since_us = now_us;
        match answer {
            Ok(answer) => {
                let is_error = matches!(answer, Reply::Error(_));
                progress.answered.fetch_add(1, Ordering::Relaxed);
                progress.failed.fetch_add(u64::from(is_error), Ordering::Relaxed);
                self.stats.record_reply(answer, due_us, now_us);
            }
            Err(broken) => {
                progress.failed.fetch_add(1, Ordering::Relaxed);
                let never_us = now_us.max(self.handle.load.times().give_up_us());
                self.stats.record_lost(due_us, never_us);
                self.stats.record_error(broken);
            }
        }
    }

    fn record_all_lost(&mut self) {
        self.unanswered = JoinSet::new();
        let never_us = self.handle.now_us().max(self.handle.load.times().give_up_us());
        let lost = self.dues_us.len() as u64;
        self.handle.load.progress.failed.fetch_add(lost, Ordering::Relaxed);
        for due_us in self.dues_us.drain(..) {
            self.stats.record_lost(due_us, never_us);
        }
    }

    /// Tries once to reconnect. The next step tries again if the connection still fails.
    async fn reopen(&mut self) {
        self.record_all_lost();
        match tokio::time::timeout(RECONNECT_DELAY, handshake(&self.handle.load.plan)).await {
            Ok(Ok(send)) => self.send = send,
            Ok(Err(error)) => self.stats.record_error(format!("{error:#}")),
            Err(_) => return,
        }
        // Waits after a successful handshake too: a handshake does not wait for the server, which may close at once.
        tokio::time::sleep(RECONNECT_DELAY).await;
    }
}
