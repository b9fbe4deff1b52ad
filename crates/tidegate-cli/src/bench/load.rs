//! Runs the load: threads with connections, and a pacer per thread that wakes connections when a request is due.
//!
//! Always   The run ends by itself: when all requests are answered, or `--timeout` after the last one was due.
//! Always   Measuring starts when every connection is open.
//! Bound    A pacer wakes a connection some tens of microseconds late, as precisely as the kernel wakes a thread.
//!          tokio's own timers have a resolution of one millisecond.

use super::handle::{ConnectionHandle, LoadContext, Progress};
use super::schedule::{Rate, Schedule, Times, now_us};
use super::stats::LoadStats;
use super::target::Wire;
use super::{Plan, grpc, stream};
use crate::output::write_stderr;
use anyhow::{Context, anyhow};
use std::io::{IsTerminal, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Barrier, OnceLock};
use std::time::Duration;
use tidegate::SystemClock;
use tokio::runtime::Runtime;
use tokio::sync::{Notify, mpsc};

/// Time between two progress messages.
const PROGRESS_EVERY_TERMINAL: Duration = Duration::from_secs(1);
const PROGRESS_EVERY_FILE: Duration = Duration::from_secs(5);
/// Longest time until a pacer notices that the run is over.
const PACER_PARK_MAX: Duration = Duration::from_millis(50);

/// The result of a run.
#[derive(Debug)]
pub(super) struct LoadResult {
    pub(super) stats: LoadStats,
    /// Time until the last reply or until the last request was due, whichever is later.
    pub(super) elapsed: Duration,
    pub(super) is_interrupted: bool,
}

pub(super) fn run(plan: &Plan) -> anyhow::Result<LoadResult> {
    let runtime = runtime()?;
    runtime.block_on(probe(plan))?;
    let load = Arc::new(LoadContext {
        plan: plan.clone(),
        clock: SystemClock::new(),
        times: OnceLock::new(),
        progress: Progress::default(),
        has_failed: AtomicBool::new(false),
    });
    // Threads wait at it twice: until all connections are open, and until the start time is set.
    let barrier = Arc::new(Barrier::new(plan.threads + 1));
    let (done, ended) = mpsc::unbounded_channel();
    let threads: Vec<_> = (0..plan.threads)
        .map(|thread| {
            let (load, barrier, done) = (Arc::clone(&load), Arc::clone(&barrier), done.clone());
            std::thread::spawn(move || {
                let stats = run_thread(&load, thread, &barrier);
                // Fails only if the receiver is gone, and then the run is over.
                let _ = done.send(());
                stats
            })
        })
        .collect();
    drop(done);
    barrier.wait();
    let start_us = now_us(&load.clock);
    load.times.get_or_init(|| Times::new(start_us, plan.duration, plan.timeout));
    barrier.wait();
    let is_interrupted = runtime.block_on(watch(&load, ended));
    let mut stats = LoadStats::new();
    for thread in threads {
        stats.add(&thread.join().map_err(|_| anyhow!("a thread panicked"))??);
    }
    let until_us = load.times().end_us().max(stats.last_answer_us);
    let elapsed = Duration::from_micros(until_us.saturating_sub(start_us));
    Ok(LoadResult { stats, elapsed, is_interrupted })
}

fn runtime() -> anyhow::Result<Runtime> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("cannot start a runtime")
}

/// Sends one test request, so that a wrong address or flag is reported at once and not after the run.
async fn probe(plan: &Plan) -> anyhow::Result<()> {
    let probe = async {
        match plan.target.wire {
            Wire::Grpc => grpc::probe(plan).await,
            Wire::Resp | Wire::Http => stream::probe(plan).await,
        }
    };
    let late = || format!("{} does not answer within {:?}", plan.target, plan.timeout);
    tokio::time::timeout(plan.timeout, probe).await.with_context(late)?
}

/// The body of a load thread: opens its connections, runs them, and returns their statistics.
fn run_thread(
    load: &Arc<LoadContext>,
    thread: usize,
    barrier: &Barrier,
) -> anyhow::Result<LoadStats> {
    let runtime = runtime();
    let mine = (thread..load.plan.connections).step_by(load.plan.threads);
    let handles: Vec<ConnectionHandle> =
        mine.map(|number| ConnectionHandle::new(load, number as u64)).collect();
    let opened = runtime.and_then(|runtime| {
        let opened = runtime.block_on(open(load, &handles))?;
        Ok((runtime, opened))
    });
    if opened.is_err() {
        load.has_failed.store(true, Ordering::Relaxed);
    }
    barrier.wait();
    barrier.wait();
    let (runtime, opened) = opened?;
    if load.has_failed.load(Ordering::Relaxed) {
        return Ok(LoadStats::new());
    }
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| run_pacer(load, &handles, &is_over));
        let stats = runtime.block_on(opened.run());
        is_over.store(true, Ordering::Relaxed);
        stats
    })
}

enum Connections {
    Streams(Vec<stream::StreamConnection>),
    GrpcConnection(Vec<grpc::GrpcConnection>),
}

async fn open(load: &LoadContext, handles: &[ConnectionHandle]) -> anyhow::Result<Connections> {
    let timeout = load.plan.timeout;
    let number = |handle: &ConnectionHandle| {
        format!("connection {} of {}", handle.number + 1, load.plan.connections)
    };
    let (mut streams, mut calls) = (Vec::new(), Vec::new());
    for handle in handles {
        let opening = async {
            match load.plan.target.wire {
                Wire::Grpc => calls.push(grpc::GrpcConnection::open(handle.clone()).await?),
                Wire::Resp | Wire::Http => {
                    streams.push(stream::StreamConnection::open(handle.clone()).await?);
                }
            }
            anyhow::Ok(())
        };
        let late = || format!("timed out after {timeout:?}");
        let opened = tokio::time::timeout(timeout, opening).await.with_context(late);
        opened.and_then(|opened| opened).with_context(|| number(handle))?;
    }
    Ok(if calls.is_empty() {
        Connections::Streams(streams)
    } else {
        Connections::GrpcConnection(calls)
    })
}

impl Connections {
    async fn run(self) -> anyhow::Result<LoadStats> {
        let mut running = tokio::task::JoinSet::new();
        match self {
            Self::Streams(streams) => streams.into_iter().for_each(|stream| {
                running.spawn(stream.run());
            }),
            Self::GrpcConnection(calls) => calls.into_iter().for_each(|calls| {
                running.spawn(calls.run());
            }),
        }
        let mut all = LoadStats::new();
        while let Some(stats) = running.join_next().await {
            all.add(&stats.context("a connection panicked")?);
        }
        Ok(all)
    }
}

/// Wakes each connection when its next request is due, and all connections when the run is over.
fn run_pacer(load: &LoadContext, handles: &[ConnectionHandle], is_over: &AtomicBool) {
    let mut turns: Vec<(Schedule, &Notify)> =
        handles.iter().map(|handle| (load.schedule(handle.number), &*handle.wake)).collect();
    let is_open = matches!(load.plan.rate, Rate::PerSecond(_));
    let (times, mut next) = (load.times(), 0);
    while !is_over.load(Ordering::Relaxed) {
        let now_us = now_us(&load.clock);
        let mut wait = PACER_PARK_MAX;
        let (end_us, give_up_us) = (times.end_us(), times.give_up_us());
        if now_us >= end_us || !is_open {
            if now_us >= end_us {
                for handle in handles {
                    handle.wake.notify_one();
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

/// Prints progress until all threads have ended, and returns whether the user interrupted the run.
async fn watch(load: &LoadContext, mut ended: mpsc::UnboundedReceiver<()>) -> bool {
    let is_terminal = std::io::stderr().is_terminal();
    let every = if is_terminal { PROGRESS_EVERY_TERMINAL } else { PROGRESS_EVERY_FILE };
    let mut ticks = tokio::time::interval(every);
    ticks.tick().await;
    let (mut is_interrupted, mut before) = (false, 0);
    loop {
        tokio::select! {
            one = ended.recv() => if one.is_none() { break },
            stopped = tokio::signal::ctrl_c(), if !is_interrupted => {
                // If the handler could not be installed, Ctrl-C ends the process as usual.
                if stopped.is_ok() {
                    load.times().stop(now_us(&load.clock));
                }
                is_interrupted = true;
            }
            _ = ticks.tick() => before = print_progress(load, is_terminal, every, before),
        }
    }
    if is_terminal && before > 0 {
        write_stderr("");
    }
    is_interrupted
}

/// Prints the progress; on a terminal, over the previous line.
fn print_progress(load: &LoadContext, is_terminal: bool, every: Duration, before: u64) -> u64 {
    let answered = load.progress.answered.load(Ordering::Relaxed);
    let failed = load.progress.failed.load(Ordering::Relaxed);
    let since_us = now_us(&load.clock).saturating_sub(load.times().start_us);
    let text = format!(
        "{:>4} s: {answered} replies, {} per second, {failed} errors",
        since_us / 1_000_000,
        answered.saturating_sub(before) / every.as_secs().max(1)
    );
    if is_terminal {
        // A failure is ignored: there is no other place to report it.
        let _ = write!(std::io::stderr(), "\r\x1b[K{text}");
    } else {
        write_stderr(&text);
    }
    answered
}
