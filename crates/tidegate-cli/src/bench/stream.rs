//! A connection over which RESP or HTTP/1.1 is spoken: answers come in the order of the questions.
//!
//! Always   A connection that breaks is opened again, and what was on it is lost; what falls due meanwhile is late.

use super::Plan;
use super::load::{Line, Shared, connect};
use super::question::Meaning;
use super::schedule::Schedule;
use super::tally::{Answer, Tally};
use super::template::Keys;
use super::wire::{Broken, Reader};
use anyhow::{Context, anyhow, bail};
use std::collections::VecDeque;
use std::io::ErrorKind;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::io::{AsyncReadExt, Interest};
use tokio::net::TcpStream;

const READ_BYTES: usize = 64 << 10;
/// Between two attempts to connect again.
const AGAIN: Duration = Duration::from_millis(100);

/// Asks once.
pub(super) async fn ask(plan: &Plan) -> anyhow::Result<()> {
    let socket = greeted(plan).await?;
    let mut request = Vec::new();
    plan.question.request.write(0, &mut request);
    let reader = Reader::new(&plan.target, &plan.question);
    match exchange(&socket, &request, reader).await? {
        Answer::Refused(why) => Err(anyhow!("{} answers with an error: {why}", plan.target)),
        _ => Ok(()),
    }
}

/// A connection on which the token, if there is one, has been taken.
async fn greeted(plan: &Plan) -> anyhow::Result<TcpStream> {
    let socket = connect(plan).await?;
    if let Some(greeting) = &plan.question.greeting
        && let Answer::Refused(why) =
            exchange(&socket, greeting, Reader::Resp(Meaning::Unknown)).await?
    {
        bail!("{} does not take the token: {why}", plan.target);
    }
    Ok(socket)
}

async fn exchange(socket: &TcpStream, request: &[u8], reader: Reader) -> anyhow::Result<Answer> {
    let mut rest = request;
    while !rest.is_empty() {
        socket.writable().await?;
        match socket.try_write(rest) {
            Ok(written) => rest = &rest[written..],
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(error) => return Err(error).context("the connection broke"),
        }
    }
    let mut incoming = Vec::with_capacity(READ_BYTES);
    loop {
        socket.readable().await?;
        match socket.try_read_buf(&mut incoming) {
            Ok(0) => bail!("the server closed the connection without an answer"),
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => continue,
            Err(error) => return Err(error).context("the connection broke"),
        }
        if let Some((_, answer)) = reader.read(&incoming).map_err(|broken| anyhow!(broken))? {
            return Ok(answer);
        }
    }
}

/// A connection and what is on it.
#[derive(Debug)]
pub(super) struct Stream {
    line: Line,
    schedule: Schedule,
    keys: Keys,
    reader: Reader,
    socket: TcpStream,
    outgoing: Vec<u8>,
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
        Ok(Self {
            socket: greeted(plan).await?,
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
        self.flush()?;
        if !self.outgoing.is_empty() {
            let stuck = self.socket.ready(Interest::READABLE | Interest::WRITABLE);
            tokio::select! {
                ready = stuck => drop(ready.map_err(|error| error.to_string())?),
                () = self.line.wake.notified() => return Ok(()),
            }
        }
        tokio::select! {
            biased;
            // Knows when it has read all there was, and saves the attempt that would find nothing.
            read = self.socket.read_buf(&mut self.incoming) => {
                if read.map_err(|error| error.to_string())? == 0 {
                    return Err("the server closed the connection".to_owned());
                }
                self.take()?;
            }
            () = self.line.wake.notified() => {}
            // Not readable after all, so there is room to write.
            () = std::future::ready(()), if !self.outgoing.is_empty() => {}
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
                    self.schedule.advance();
                }
                _ => return,
            }
        }
    }

    fn flush(&mut self) -> Result<(), Broken> {
        let mut written = 0;
        while written < self.outgoing.len() {
            match self.socket.try_write(&self.outgoing[written..]) {
                Ok(more) => written += more,
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) => return Err(error.to_string()),
            }
        }
        self.outgoing.drain(..written);
        Ok(())
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
        self.incoming.clear();
        while !self.is_over() {
            let left_us = self.line.shared.times().give_up_us();
            let left_us = left_us.saturating_sub(self.line.now_us());
            let limit = Duration::from_micros(left_us);
            match tokio::time::timeout(limit, greeted(&self.line.shared.plan)).await {
                Ok(Ok(socket)) => {
                    self.socket = socket;
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
