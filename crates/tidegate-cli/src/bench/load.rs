//! The load: connections on threads, a pacer that wakes those with something to send, and the end.
//!
//! Always   It ends by itself: when all is answered, or `--timeout` after the last request was due.
//! Always   Nothing is measured before every connection stands.
//! Bound    A pacer wakes a connection some tens of microseconds late, as exact as the kernel wakes a thread.
//!          tokio's own timers are a millisecond coarse.

use super::schedule::{Rate, Schedule, Times, now_us};
use super::tally::Tally;
use super::target::Wire;
use super::{Plan, grpc, stream};
use crate::output::complain;
use anyhow::{Context, anyhow};
use std::io::{IsTerminal, Write};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Barrier, OnceLock};
use std::time::Duration;
use tidegate::SystemClock;
use tokio::runtime::Runtime;
use tokio::sync::{Notify, mpsc};

/// How often somebody who watches is told.
const TOLD_TERMINAL: Duration = Duration::from_secs(1);
const TOLD_FILE: Duration = Duration::from_secs(5);
/// A pacer looks this often whether it is all over.
const LOOK: Duration = Duration::from_millis(50);

/// What came of it.
#[derive(Debug)]
pub(super) struct Measured {
    pub(super) tally: Tally,
    /// Until the last answer, or until nothing was due any more, whichever is later.
    pub(super) elapsed: Duration,
    pub(super) is_interrupted: bool,
}

/// What all connections share.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) plan: Plan,
    pub(super) clock: SystemClock,
    pub(super) times: OnceLock<Times>,
    pub(super) progress: Progress,
    has_failed: AtomicBool,
}

/// For whoever watches.
#[derive(Debug, Default)]
pub(super) struct Progress {
    pub(super) answered: AtomicU64,
    pub(super) failed: AtomicU64,
}

impl Shared {
    pub(super) fn times(&self) -> &Times {
        self.times.get().expect("connections run after the start")
    }

    pub(super) fn schedule(&self, connection: u64) -> Schedule {
        let Plan { rate, duration, connections, .. } = self.plan;
        Schedule::new(rate, duration, connections as u64, connection)
    }
}

pub(super) fn run(plan: &Plan) -> anyhow::Result<Measured> {
    let runtime = runtime()?;
    runtime.block_on(probe(plan))?;
    let shared = Arc::new(Shared {
        plan: plan.clone(),
        clock: SystemClock::new(),
        times: OnceLock::new(),
        progress: Progress::default(),
        has_failed: AtomicBool::new(false),
    });
    // Twice: once when all connections stand, and once when the time of the start is known.
    let barrier = Arc::new(Barrier::new(plan.threads + 1));
    let (done, ended) = mpsc::unbounded_channel();
    let threads: Vec<_> = (0..plan.threads)
        .map(|thread| {
            let (shared, barrier, done) = (Arc::clone(&shared), Arc::clone(&barrier), done.clone());
            std::thread::spawn(move || {
                let tally = carry(&shared, thread, &barrier);
                // Who listens waits for it; if nobody does, it is over already.
                let _ = done.send(());
                tally
            })
        })
        .collect();
    drop(done);
    barrier.wait();
    let start_us = now_us(&shared.clock);
    shared.times.get_or_init(|| Times::new(start_us, plan.duration, plan.patience));
    barrier.wait();
    let is_interrupted = runtime.block_on(watch(&shared, ended));
    let mut tally = Tally::new();
    for thread in threads {
        tally.add(&thread.join().map_err(|_| anyhow!("a thread panicked"))??);
    }
    let until_us = shared.times().end_us().max(tally.last_answer_us);
    let elapsed = Duration::from_micros(until_us.saturating_sub(start_us));
    Ok(Measured { tally, elapsed, is_interrupted })
}

fn runtime() -> anyhow::Result<Runtime> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("cannot start a runtime")
}

/// One question, so that whatever is wrong is told at once and not after the run.
async fn probe(plan: &Plan) -> anyhow::Result<()> {
    let asked = async {
        match plan.target.wire {
            Wire::Grpc => grpc::ask(plan).await,
            Wire::Resp | Wire::Http => stream::ask(plan).await,
        }
    };
    let late = || format!("{} does not answer within {:?}", plan.target, plan.patience);
    tokio::time::timeout(plan.patience, asked).await.with_context(late)?
}

/// Everything that one thread does.
fn carry(shared: &Arc<Shared>, thread: usize, barrier: &Barrier) -> anyhow::Result<Tally> {
    let runtime = runtime();
    let mine = (thread..shared.plan.connections).step_by(shared.plan.threads);
    let lines: Vec<Line> = mine.map(|number| Line::new(shared, number as u64)).collect();
    let opened = runtime.and_then(|runtime| {
        let opened = runtime.block_on(open(shared, &lines))?;
        Ok((runtime, opened))
    });
    if opened.is_err() {
        shared.has_failed.store(true, Ordering::Relaxed);
    }
    barrier.wait();
    barrier.wait();
    let (runtime, opened) = opened?;
    if shared.has_failed.load(Ordering::Relaxed) {
        return Ok(Tally::new());
    }
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| pace(shared, &lines, &is_over));
        let tally = runtime.block_on(opened.run());
        is_over.store(true, Ordering::Relaxed);
        tally
    })
}

/// A connection's part in the load, as its pacer sees it.
#[derive(Clone, Debug)]
pub(super) struct Line {
    pub(super) shared: Arc<Shared>,
    pub(super) number: u64,
    /// Something is due, or it is over.
    pub(super) wake: Arc<Notify>,
}

impl Line {
    fn new(shared: &Arc<Shared>, number: u64) -> Self {
        Self { shared: Arc::clone(shared), number, wake: Arc::new(Notify::new()) }
    }

    pub(super) fn now_us(&self) -> u64 {
        now_us(&self.shared.clock)
    }

    /// Whether a connection with this before it has nothing left to do.
    pub(super) fn is_over(&self, schedule: &Schedule, is_idle: bool) -> bool {
        let (times, now_us) = (self.shared.times(), self.now_us());
        let has_more = || schedule.next_due_us(times, now_us).is_some();
        now_us >= times.give_up_us() || (is_idle && !has_more())
    }

    /// Counts what was due and could not be sent.
    pub(super) fn end(&self, mut schedule: Schedule, tally: &mut Tally) {
        let now_us = self.now_us();
        if self.shared.plan.rate == Rate::Max {
            return;
        }
        while let Some(due_us) = schedule.next_due_us(self.shared.times(), now_us) {
            schedule.advance();
            tally.leave_unsent(due_us, now_us);
        }
    }
}

enum Opened {
    Streams(Vec<stream::Stream>),
    Calls(Vec<grpc::Calls>),
}

async fn open(shared: &Shared, lines: &[Line]) -> anyhow::Result<Opened> {
    let patience = shared.plan.patience;
    let number =
        |line: &Line| format!("connection {} of {}", line.number + 1, shared.plan.connections);
    let (mut streams, mut calls) = (Vec::new(), Vec::new());
    for line in lines {
        let opening = async {
            match shared.plan.target.wire {
                Wire::Grpc => calls.push(grpc::Calls::open(line.clone()).await?),
                Wire::Resp | Wire::Http => streams.push(stream::Stream::open(line.clone()).await?),
            }
            anyhow::Ok(())
        };
        let late = || format!("not within {patience:?}");
        let opened = tokio::time::timeout(patience, opening).await.with_context(late);
        opened.and_then(|opened| opened).with_context(|| number(line))?;
    }
    Ok(if calls.is_empty() { Opened::Streams(streams) } else { Opened::Calls(calls) })
}

impl Opened {
    async fn run(self) -> anyhow::Result<Tally> {
        let mut running = tokio::task::JoinSet::new();
        match self {
            Self::Streams(streams) => streams.into_iter().for_each(|stream| {
                running.spawn(stream.run());
            }),
            Self::Calls(calls) => calls.into_iter().for_each(|calls| {
                running.spawn(calls.run());
            }),
        }
        let mut all = Tally::new();
        while let Some(tally) = running.join_next().await {
            all.add(&tally.context("a connection panicked")?);
        }
        Ok(all)
    }
}

/// Wakes the connections that have something to send when it is due, and all of them when it is over.
fn pace(shared: &Shared, lines: &[Line], is_over: &AtomicBool) {
    let mut turns: Vec<(Schedule, &Notify)> =
        lines.iter().map(|line| (shared.schedule(line.number), &*line.wake)).collect();
    let is_open = matches!(shared.plan.rate, Rate::PerSecond(_));
    let (times, mut next) = (shared.times(), 0);
    while !is_over.load(Ordering::Relaxed) {
        let now_us = now_us(&shared.clock);
        let mut wait = LOOK;
        let (end_us, give_up_us) = (times.end_us(), times.give_up_us());
        if now_us >= end_us || !is_open {
            if now_us >= end_us {
                for line in lines {
                    line.wake.notify_one();
                }
            }
            let ahead = if now_us < end_us { end_us } else { give_up_us };
            wait = wait.min(Duration::from_micros(ahead.saturating_sub(now_us).max(1_000)));
        } else if let Some(due_us) = turns[next].0.next_due_us(times, now_us) {
            if due_us <= now_us {
                turns[next].0.advance();
                turns[next].1.notify_one();
                next = (next + 1) % turns.len();
                continue;
            }
            wait = wait.min(Duration::from_micros(due_us - now_us));
        } else {
            wait = wait.min(Duration::from_micros(end_us - now_us));
        }
        std::thread::park_timeout(wait);
    }
}

/// Tells how it goes until all threads have ended, and whether somebody has stopped it.
async fn watch(shared: &Shared, mut ended: mpsc::UnboundedReceiver<()>) -> bool {
    let is_terminal = std::io::stderr().is_terminal();
    let every = if is_terminal { TOLD_TERMINAL } else { TOLD_FILE };
    let mut told = tokio::time::interval(every);
    told.tick().await;
    let (mut is_interrupted, mut before) = (false, 0);
    loop {
        tokio::select! {
            one = ended.recv() => if one.is_none() { break },
            stopped = tokio::signal::ctrl_c(), if !is_interrupted => {
                // Without a handler for it, it ends as any program does.
                if stopped.is_ok() {
                    shared.times().stop(now_us(&shared.clock));
                }
                is_interrupted = true;
            }
            _ = told.tick() => before = tell(shared, is_terminal, every, before),
        }
    }
    if is_terminal && before > 0 {
        complain("");
    }
    is_interrupted
}

/// A line for whoever watches; over the last one where that is possible.
fn tell(shared: &Shared, is_terminal: bool, every: Duration, before: u64) -> u64 {
    let answered = shared.progress.answered.load(Ordering::Relaxed);
    let failed = shared.progress.failed.load(Ordering::Relaxed);
    let since_us = now_us(&shared.clock).saturating_sub(shared.times().start_us);
    let text = format!(
        "{:>4} s: {answered} answers, {} a second, {failed} errors",
        since_us / 1_000_000,
        answered.saturating_sub(before) / every.as_secs().max(1)
    );
    if is_terminal {
        // There is nowhere to tell that it cannot be written.
        let _ = write!(std::io::stderr(), "\r\x1b[K{text}");
    } else {
        complain(&text);
    }
    answered
}
