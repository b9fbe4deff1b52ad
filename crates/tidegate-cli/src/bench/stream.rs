//! A connection over which RESP or HTTP/1.1 is spoken: answers come in the order of the questions.
//!
//! Always   A connection that breaks is opened again, and what was on it is lost; what falls due meanwhile is late.

use super::Plan;
use super::connect::{Socket, connect};
use super::load::{Line, Shared};
use super::question::Meaning;
use super::schedule::Schedule;
use super::tally::{Answer, Tally};
use super::template::Keys;
use super::wire::{Broken, Reader};
use anyhow::{Context, anyhow, bail};
use std::collections::VecDeque;
use std::io;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt, ReadHalf, WriteHalf};

const READ_BYTES: usize = 64 << 10;
/// Between two attempts to connect again.
const AGAIN: Duration = Duration::from_millis(100);

/// Asks once.
pub(super) async fn ask(plan: &Plan) -> anyhow::Result<()> {
    let mut socket = greeted(plan).await?;
    let mut request = Vec::new();
    plan.question.request.write(0, &mut request);
    let reader = Reader::new(&plan.target, &plan.question);
    match exchange(&mut socket, &request, reader).await? {
        Answer::Refused(why) => Err(anyhow!("{} answers with an error: {why}", plan.target)),
        _ => Ok(()),
    }
}

/// A connection on which the token, if there is one, has been taken.
async fn greeted(plan: &Plan) -> anyhow::Result<Socket> {
    let mut socket = connect(&plan.target, plan.tls.as_ref()).await?;
    if let Some(greeting) = &plan.question.greeting
        && let Answer::Refused(why) =
            exchange(&mut socket, greeting, Reader::Resp(Meaning::Unknown)).await?
    {
        bail!("{} does not take the token: {why}", plan.target);
    }
    Ok(socket)
}

async fn exchange(socket: &mut Socket, request: &[u8], reader: Reader) -> anyhow::Result<Answer> {
    let broken = "the connection broke";
    socket.write_all(request).await.context(broken)?;
    socket.flush().await.context(broken)?;
    let mut incoming = Vec::with_capacity(READ_BYTES);
    loop {
        if socket.read_buf(&mut incoming).await.context(broken)? == 0 {
            bail!("the server closed the connection without an answer");
        }
        if let Some((_, answer)) = reader.read(&incoming).map_err(|broken| anyhow!(broken))? {
            return Ok(answer);
        }
    }
}

/// Sends some of these bytes, or what was written of others before and is not on its way yet.
async fn send(writer: &mut WriteHalf<Socket>, bytes: &[u8]) -> io::Result<usize> {
    if bytes.is_empty() { writer.flush().await.map(|()| 0) } else { writer.write(bytes).await }
}

/// A connection and what is on it.
pub(super) struct Stream {
    line: Line,
    schedule: Schedule,
    keys: Keys,
    reader: Reader,
    sender: WriteHalf<Socket>,
    receiver: ReadHalf<Socket>,
    outgoing: Vec<u8>,
    /// Whether something was written since the last flush.
    is_unflushed: bool,
    incoming: Vec<u8>,
    /// When each request that is not answered was due.
    unanswered: VecDeque<u64>,
    /// Since when there is room for another.
    room_us: u64,
    tally: Tally,
}

impl Stream {
    pub(super) async fn open(line: Line) -> anyhow::Result<Self> {
        let plan = &line.shared.plan;
        let (receiver, sender) = tokio::io::split(greeted(plan).await?);
        Ok(Self {
            sender,
            receiver,
            is_unflushed: false,
            schedule: line.shared.schedule(line.number),
            keys: Keys::new(plan.keys, line.number + 1),
            reader: Reader::new(&plan.target, &plan.question),
            outgoing: Vec::new(),
            incoming: Vec::with_capacity(READ_BYTES),
            unanswered: VecDeque::new(),
            room_us: 0,
            tally: Tally::new(),
            line,
        })
    }

    pub(super) async fn run(mut self) -> Tally {
        while !self.is_over() {
            if let Err(broken) = self.turn().await {
                self.lose_all();
                self.tally.complain(broken);
                self.reopen().await;
            }
        }
        self.lose_all();
        self.line.end(self.schedule, &mut self.tally);
        self.tally
    }

    fn is_over(&self) -> bool {
        self.line.is_over(&self.schedule, self.unanswered.is_empty())
    }

    /// Sends what may be sent, and waits until something can be read, or sent.
    async fn turn(&mut self) -> Result<(), Broken> {
        self.fill();
        tokio::select! {
            biased;
            sent = send(&mut self.sender, &self.outgoing), if self.is_unflushed => {
                let sent = sent.map_err(|error| error.to_string())?;
                self.is_unflushed = sent > 0;
                self.outgoing.drain(..sent);
            }
            // Knows when it has read all there was, and saves the attempt that would find nothing.
            read = self.receiver.read_buf(&mut self.incoming) => {
                if read.map_err(|error| error.to_string())? == 0 {
                    return Err("the server closed the connection".to_owned());
                }
                self.take()?;
            }
            () = self.line.wake.notified() => {}
        }
        Ok(())
    }

    fn fill(&mut self) {
        let Shared { plan, .. } = &*self.line.shared;
        let (times, now_us) = (self.line.shared.times(), self.line.now_us());
        while self.unanswered.len() < plan.pipeline {
            match self.schedule.next_due_us(times, now_us) {
                Some(due_us) if due_us <= now_us => {
                    plan.question.request.write(self.keys.next(), &mut self.outgoing);
                    self.tally.send(now_us - due_us.max(self.room_us).min(now_us));
                    self.unanswered.push_back(due_us);
                    self.is_unflushed = true;
                    self.schedule.advance();
                }
                _ => return,
            }
        }
    }

    /// Takes the answers that have come.
    fn take(&mut self) -> Result<(), Broken> {
        let now_us = self.line.now_us();
        let (mut taken, mut answered, refused) = (0, 0, self.tally.refused);
        while taken < self.incoming.len() {
            let Some((length, answer)) = self.reader.read(&self.incoming[taken..])? else { break };
            let Some(due_us) = self.unanswered.pop_front() else {
                return Err("the server answers what nobody has asked".to_owned());
            };
            taken += length;
            answered += 1;
            self.tally.answer(answer, due_us, now_us);
        }
        self.incoming.drain(..taken);
        self.room_us = now_us;
        let progress = &self.line.shared.progress;
        progress.answered.fetch_add(answered, Ordering::Relaxed);
        progress.failed.fetch_add(self.tally.refused - refused, Ordering::Relaxed);
        Ok(())
    }

    fn lose_all(&mut self) {
        let never_us = self.line.now_us().max(self.line.shared.times().give_up_us());
        let lost = self.unanswered.len() as u64;
        self.line.shared.progress.failed.fetch_add(lost, Ordering::Relaxed);
        for due_us in self.unanswered.drain(..) {
            self.tally.lose(due_us, never_us);
        }
    }

    /// Tries until it is over.
    async fn reopen(&mut self) {
        self.outgoing.clear();
        self.is_unflushed = false;
        self.incoming.clear();
        while !self.is_over() {
            let left_us = self.line.shared.times().give_up_us();
            let left_us = left_us.saturating_sub(self.line.now_us());
            let limit = Duration::from_micros(left_us);
            match tokio::time::timeout(limit, greeted(&self.line.shared.plan)).await {
                Ok(Ok(socket)) => {
                    (self.receiver, self.sender) = tokio::io::split(socket);
                    self.room_us = self.line.now_us();
                    return;
                }
                Ok(Err(error)) => self.tally.complain(format!("{error:#}")),
                Err(_) => return,
            }
            tokio::time::sleep(AGAIN.min(limit)).await;
        }
    }
}
