//! A connection over which Envoy's rate limit service is asked: each question is a stream of HTTP/2.

use super::Plan;
use super::connect::connect;
use super::load::{Line, Shared};
use super::schedule::Schedule;
use super::tally::{Answer, Tally};
use super::template::Keys;
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
/// No answer is longer.
const ANSWER_BYTES_MAX: usize = 1 << 20;
/// Between two attempts to connect again, and for one.
const AGAIN: Duration = Duration::from_millis(100);
/// So much may be on its way to us: answers are small, and nobody is to wait for us to say that we have read them.
const WINDOW_BYTES: u32 = 16 << 20;

/// Asks once.
pub(super) async fn ask(plan: &Plan) -> anyhow::Result<()> {
    let send = shake_hands(plan).await?;
    let mut send = send.ready().await.with_context(|| no_http2(plan))?;
    let mut body = Vec::new();
    plan.question.request.write(0, &mut body);
    let response = begin(&mut send, request(plan)?, body.into()).with_context(|| no_http2(plan))?;
    match answer(response)
        .await
        .map_err(|broken| anyhow!(broken))
        .with_context(|| no_http2(plan))?
    {
        Answer::Refused(why) => Err(anyhow!("{} answers with an error: {why}", plan.target)),
        _ => Ok(()),
    }
}

fn no_http2(plan: &Plan) -> String {
    format!("{} does not answer gRPC", plan.target)
}

async fn shake_hands(plan: &Plan) -> anyhow::Result<SendRequest<Bytes>> {
    let socket = connect(&plan.target, plan.tls.as_ref()).await?;
    let (send, connection) = h2::client::Builder::new()
        .initial_window_size(WINDOW_BYTES)
        .initial_connection_window_size(WINDOW_BYTES)
        .handshake(socket)
        .await
        .with_context(|| no_http2(plan))?;
    // Whoever waits for an answer hears what is wrong with it.
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
    let request = match &plan.question.authorization {
        Some(token) => request.header(header::AUTHORIZATION, token),
        None => request,
    };
    request.body(()).context("this cannot be asked over HTTP/2")
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

async fn answer(response: ResponseFuture) -> Result<Answer, String> {
    let told = |error: h2::Error| error.to_string();
    let response = response.await.map_err(told)?;
    if response.status() != http::StatusCode::OK {
        return Ok(Answer::Refused(format!("status {}", response.status().as_u16())));
    }
    if let Some(refused) = refused(response.headers()) {
        return Ok(refused);
    }
    let mut body = response.into_body();
    let mut message = BytesMut::new();
    while let Some(piece) = body.data().await {
        let piece = piece.map_err(told)?;
        // Frees what is left of the window, for what comes after.
        body.flow_control().release_capacity(piece.len()).map_err(told)?;
        message.extend_from_slice(&piece);
        if message.len() > ANSWER_BYTES_MAX {
            return Err(format!("an answer of more than {ANSWER_BYTES_MAX} bytes"));
        }
    }
    let trailers = body.trailers().await.map_err(told)?;
    if let Some(refused) = trailers.as_ref().and_then(refused) {
        return Ok(refused);
    }
    let message = message.get(5..).ok_or("an answer without a message")?;
    let read = RateLimitResponse::decode(message).map_err(|error| error.to_string())?;
    Ok(match read.overall_code {
        OK => Answer::Allow,
        OVER_LIMIT => Answer::Deny,
        _ => Answer::Other,
    })
}

/// What gRPC says of a call that failed.
fn refused(headers: &HeaderMap) -> Option<Answer> {
    let status = headers.get("grpc-status")?;
    let text = |value: &HeaderValue| String::from_utf8_lossy(value.as_bytes()).into_owned();
    let message = headers.get("grpc-message").map(text).unwrap_or_default();
    (status != "0").then(|| Answer::Refused(format!("grpc-status {}: {message}", text(status))))
}

/// A connection and what is asked on it.
pub(super) struct Calls {
    line: Line,
    schedule: Schedule,
    keys: Keys,
    send: SendRequest<Bytes>,
    request: Request<()>,
    unanswered: JoinSet<(u64, Result<Answer, String>)>,
    /// When each of these was due.
    dues_us: Vec<u64>,
    /// Since when there is room for another.
    room_us: u64,
    /// Whether a stream can be opened now.
    is_ready: bool,
    tally: Tally,
}

impl Calls {
    pub(super) async fn open(line: Line) -> anyhow::Result<Self> {
        let plan = &line.shared.plan;
        Ok(Self {
            send: shake_hands(plan).await?,
            request: request(plan)?,
            schedule: line.shared.schedule(line.number),
            keys: Keys::new(plan.keys, line.number + 1),
            unanswered: JoinSet::new(),
            dues_us: Vec::new(),
            room_us: 0,
            is_ready: false,
            tally: Tally::new(),
            line,
        })
    }

    pub(super) async fn run(mut self) -> Tally {
        while !self.is_over() {
            self.turn().await;
        }
        self.lose_all();
        self.line.end(self.schedule, &mut self.tally);
        self.tally
    }

    fn is_over(&self) -> bool {
        self.line.is_over(&self.schedule, self.unanswered.is_empty())
    }

    async fn turn(&mut self) {
        if let Err(error) = self.fill().await {
            self.tally.complain(error.to_string());
            self.reopen().await;
            return;
        }
        let is_blocked = !self.is_ready;
        tokio::select! {
            biased;
            Some(answered) = self.unanswered.join_next() => self.take(answered),
            () = self.line.wake.notified() => {}
            ready = poll_fn(|context| self.send.poll_ready(context)), if is_blocked => {
                self.is_ready = ready.is_ok();
            }
        }
        // Whatever else has come meanwhile.
        while let Some(answered) = self.unanswered.try_join_next() {
            self.take(answered);
        }
    }

    async fn fill(&mut self) -> Result<(), h2::Error> {
        let Shared { plan, .. } = &*self.line.shared;
        let (times, now_us) = (self.line.shared.times(), self.line.now_us());
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
            plan.question.request.write(self.keys.next(), &mut body);
            let response = begin(&mut self.send, self.request.clone(), body.into())?;
            self.tally.send(now_us - due_us.max(self.room_us).min(now_us));
            self.schedule.advance();
            self.dues_us.push(due_us);
            self.unanswered.spawn(async move { (due_us, answer(response).await) });
        }
        Ok(())
    }

    fn take(&mut self, answered: Result<(u64, Result<Answer, String>), tokio::task::JoinError>) {
        // None of them panics, and none is ended but by `lose_all`.
        let Ok((due_us, answer)) = answered else { return };
        if let Some(place) = self.dues_us.iter().position(|other| *other == due_us) {
            self.dues_us.swap_remove(place);
        }
        let (now_us, progress) = (self.line.now_us(), &self.line.shared.progress);
        self.room_us = now_us;
        match answer {
            Ok(answer) => {
                let is_refused = matches!(answer, Answer::Refused(_));
                progress.answered.fetch_add(1, Ordering::Relaxed);
                progress.failed.fetch_add(u64::from(is_refused), Ordering::Relaxed);
                self.tally.answer(answer, due_us, now_us);
            }
            Err(broken) => {
                progress.failed.fetch_add(1, Ordering::Relaxed);
                let never_us = now_us.max(self.line.shared.times().give_up_us());
                self.tally.lose(due_us, never_us);
                self.tally.complain(broken);
            }
        }
    }

    fn lose_all(&mut self) {
        self.unanswered = JoinSet::new();
        let never_us = self.line.now_us().max(self.line.shared.times().give_up_us());
        let lost = self.dues_us.len() as u64;
        self.line.shared.progress.failed.fetch_add(lost, Ordering::Relaxed);
        for due_us in self.dues_us.drain(..) {
            self.tally.lose(due_us, never_us);
        }
    }

    /// Tries once, and again when the next turn fails too.
    async fn reopen(&mut self) {
        self.lose_all();
        match tokio::time::timeout(AGAIN, shake_hands(&self.line.shared.plan)).await {
            Ok(Ok(send)) => self.send = send,
            Ok(Err(error)) => self.tally.complain(format!("{error:#}")),
            Err(_) => return,
        }
        // Also after a handshake: it does not wait for the server, which may close at once again.
        tokio::time::sleep(AGAIN).await;
    }
}
