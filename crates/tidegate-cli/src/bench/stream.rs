//! A RESP or HTTP/1.1 connection: replies come in the order of the requests.
//!
//! Always   A broken connection is opened again. Its unanswered requests are lost, and requests that become due
//!          meanwhile are sent late.

use super::Plan;
use super::connect::{Socket, connect};
use super::handle::{ConnectionHandle, LoadContext};
use super::request::ReplyMeaning;
use super::schedule::Schedule;
use super::stats::{LoadStats, Reply, error_reply};
use super::template::RandomKeys;
use super::wire::{ConnectionError, Reader};
use anyhow::{Context, anyhow, bail};
use std::collections::VecDeque;
use std::io;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tidegate_server::escape::Escaped;
use tokio::io::{AsyncReadExt, AsyncWriteExt, ReadHalf, WriteHalf};

const READ_BYTES: usize = 64 << 10;
/// Time between two attempts to reconnect.
const RECONNECT_DELAY: Duration = Duration::from_millis(100);

/// Sends one request, and returns an error unless the reply is a decision.
pub(super) async fn probe(plan: &Plan) -> anyhow::Result<()> {
    let mut socket = connect_authenticated(plan).await?;
    let mut request = Vec::new();
    plan.request.template.write(0, &mut request);
    let reader = Reader::new(&plan.target, &plan.request);
    match exchange(&mut socket, &request, reader).await? {
        Reply::Error(why) => Err(error_reply(&plan.target, &why)),
        _ => Ok(()),
    }
}

/// Connects and, if there is a token, authenticates.
async fn connect_authenticated(plan: &Plan) -> anyhow::Result<Socket> {
    let mut socket = connect(&plan.target, plan.tls.as_ref()).await?;
    if let Some(greeting) = &plan.request.greeting
        && let Reply::Error(why) =
            exchange(&mut socket, greeting, Reader::Resp(ReplyMeaning::Unknown)).await?
    {
        bail!("{} rejects the token: {}", plan.target, Escaped::new(why.as_bytes()));
    }
    Ok(socket)
}

async fn exchange(socket: &mut Socket, request: &[u8], reader: Reader) -> anyhow::Result<Reply> {
    let broken = "the connection broke";
    socket.write_all(request).await.context(broken)?;
    socket.flush().await.context(broken)?;
    let mut incoming = Vec::with_capacity(READ_BYTES);
    loop {
        if socket.read_buf(&mut incoming).await.context(broken)? == 0 {
            bail!("the server closed the connection without a reply");
        }
        if let Some((_, answer)) = reader.read(&incoming).map_err(|broken| anyhow!(broken))? {
            return Ok(answer);
        }
    }
}

/// Writes some of `bytes`; without any, flushes the bytes that were written before.
async fn send(writer: &mut WriteHalf<Socket>, bytes: &[u8]) -> io::Result<usize> {
    if bytes.is_empty() { writer.flush().await.map(|()| 0) } else { writer.write(bytes).await }
}

/// A connection, with its unanswered requests and its statistics.
pub(super) struct StreamConnection {
    handle: ConnectionHandle,
    schedule: Schedule,
    keys: RandomKeys,
    reader: Reader,
    sender: WriteHalf<Socket>,
    receiver: ReadHalf<Socket>,
    outgoing: Vec<u8>,
    /// Whether there are bytes to write or to flush.
    is_unflushed: bool,
    incoming: Vec<u8>,
    /// The due time of each unanswered request, in microseconds.
    unanswered: VecDeque<u64>,
    /// Since when the pipeline has had a free slot.
    capacity_since_us: u64,
    stats: LoadStats,
}

impl StreamConnection {
    pub(super) async fn open(handle: ConnectionHandle) -> anyhow::Result<Self> {
        let plan = &handle.load.plan;
        let (receiver, sender) = tokio::io::split(connect_authenticated(plan).await?);
        Ok(Self {
            sender,
            receiver,
            is_unflushed: false,
            schedule: handle.load.schedule(handle.number),
            keys: RandomKeys::new(plan.keys, handle.number + 1),
            reader: Reader::new(&plan.target, &plan.request),
            outgoing: Vec::new(),
            incoming: Vec::with_capacity(READ_BYTES),
            unanswered: VecDeque::new(),
            capacity_since_us: 0,
            stats: LoadStats::new(),
            handle,
        })
    }

    pub(super) async fn run(mut self) -> LoadStats {
        while !self.is_over() {
            if let Err(broken) = self.step().await {
                self.record_all_lost();
                self.stats.record_error(broken);
                self.reopen().await;
            }
        }
        self.record_all_lost();
        self.handle.end(self.schedule, &mut self.stats);
        self.stats
    }

    fn is_over(&self) -> bool {
        self.handle.is_over(&self.schedule, self.unanswered.is_empty())
    }

    /// Queues the requests that are due, then waits until the socket makes progress or the pacer wakes it.
    async fn step(&mut self) -> Result<(), ConnectionError> {
        self.send_due();
        tokio::select! {
            biased;
            sent = send(&mut self.sender, &self.outgoing), if self.is_unflushed => {
                let sent = sent.map_err(|error| error.to_string())?;
                self.is_unflushed = sent > 0;
                self.outgoing.drain(..sent);
            }
            // tokio knows from a short read that the socket is empty, and saves the system call that would find nothing.
            read = self.receiver.read_buf(&mut self.incoming) => {
                if read.map_err(|error| error.to_string())? == 0 {
                    return Err("the server closed the connection".to_owned());
                }
                self.read_replies()?;
            }
            () = self.handle.wake.notified() => {}
        }
        Ok(())
    }

    fn send_due(&mut self) {
        let LoadContext { plan, .. } = &*self.handle.load;
        let (times, now_us) = (self.handle.load.times(), self.handle.now_us());
        while self.unanswered.len() < plan.pipeline {
            match self.schedule.next_due_us(times, now_us) {
                Some(due_us) if due_us <= now_us => {
                    plan.request.template.write(self.keys.next(), &mut self.outgoing);
                    self.stats.record_sent(now_us - due_us.max(self.capacity_since_us).min(now_us));
                    self.unanswered.push_back(due_us);
                    self.is_unflushed = true;
                    self.schedule.advance();
                }
                _ => return,
            }
        }
    }

    /// Parses the replies that have arrived.
    fn read_replies(&mut self) -> Result<(), ConnectionError> {
        let now_us = self.handle.now_us();
        let (mut taken, mut answered, errors) = (0, 0, self.stats.errors);
        while taken < self.incoming.len() {
            let Some((length, answer)) = self.reader.read(&self.incoming[taken..])? else { break };
            let Some(due_us) = self.unanswered.pop_front() else {
                return Err("the server sent a reply without a request".to_owned());
            };
            taken += length;
            answered += 1;
            self.stats.record_reply(answer, due_us, now_us);
        }
        self.incoming.drain(..taken);
        self.capacity_since_us = now_us;
        let progress = &self.handle.load.progress;
        progress.answered.fetch_add(answered, Ordering::Relaxed);
        progress.failed.fetch_add(self.stats.errors - errors, Ordering::Relaxed);
        Ok(())
    }

    fn record_all_lost(&mut self) {
        let never_us = self.handle.now_us().max(self.handle.load.times().give_up_us());
        let lost = self.unanswered.len() as u64;
        self.handle.load.progress.failed.fetch_add(lost, Ordering::Relaxed);
        for due_us in self.unanswered.drain(..) {
            self.stats.record_lost(due_us, never_us);
        }
    }

    /// Reconnects; tries until the run is over.
    async fn reopen(&mut self) {
        self.outgoing.clear();
        self.is_unflushed = false;
        self.incoming.clear();
        while !self.is_over() {
            let left_us = self.handle.load.times().give_up_us();
            let left_us = left_us.saturating_sub(self.handle.now_us());
            let limit = Duration::from_micros(left_us);
            match tokio::time::timeout(limit, connect_authenticated(&self.handle.load.plan)).await {
                Ok(Ok(socket)) => {
                    (self.receiver, self.sender) = tokio::io::split(socket);
                    self.capacity_since_us = self.handle.now_us();
                    return;
                }
                Ok(Err(error)) => self.stats.record_error(format!("{error:#}")),
                Err(_) => return,
            }
            tokio::time::sleep(RECONNECT_DELAY.min(limit)).await;
        }
    }
}
