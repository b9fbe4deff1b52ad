//! Signals and timers: reloads, snapshots and the end of the process.

use super::{notify_system, state};
use crate::config::{SnapshotConfig, Sources};
use crate::net::Running;
use crate::server::Server;
use sd_notify::NotifyState;
use std::sync::Arc;
use std::time::Duration;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::task::JoinHandle;
use tokio::time::{Interval, MissedTickBehavior};

const WATCH_EVERY: Duration = Duration::from_secs(1);

/// The signals that the process handles.
pub(super) struct Signals {
    hang_up: Signal,
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    /// Registers the handlers, in the runtime that this is called in.
    pub(super) fn register() -> std::io::Result<Self> {
        Ok(Self {
            hang_up: signal(SignalKind::hangup())?,
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
        })
    }
}

/// Reloads the configuration and writes snapshots until a signal ends the process.
pub(super) async fn run_until_terminated(
    running: &Running,
    mut signals: Signals,
    snapshot: Option<&SnapshotConfig>,
) {
    let server = &running.server;
    let config = server.config();
    let mut save = every(snapshot.map(|snapshot| snapshot.every));
    let mut watch = every(config.server.is_watching.then_some(WATCH_EVERY));
    let mut alive = every(sd_notify::watchdog_enabled().map(|timeout| timeout / 2));
    let mut saving = None;
    // The files of the last reload, if it failed: they are read again when they change.
    let mut failed: Option<Sources> = None;
    let (mut reloading, mut next): (Option<Reloading>, Option<ReloadReason>) = (None, None);
    loop {
        // One at a time: a signal that arrives meanwhile is handled afterwards.
        if reloading.is_none()
            && let Some(reason) = next.take()
        {
            reloading = Some(begin_reload(Arc::clone(server), reason, failed.take()));
        }
        tokio::select! {
            _ = signals.terminate.recv() => break,
            _ = signals.interrupt.recv() => break,
            _ = signals.hang_up.recv() => next = Some(ReloadReason::Signal),
            () = tick(&mut watch), if reloading.is_none() => next = next.or(Some(ReloadReason::Watch)),
            done = reloaded(&mut reloading) => failed = done,
            () = tick(&mut save) => {
                if let (None, Some(snapshot)) = (&saving, snapshot.cloned()) {
                    saving = Some(begin_save(Arc::clone(server), snapshot));
                }
            }
            () = saved(&mut saving) => {}
            () = tick(&mut alive) => notify_system(&[NotifyState::Watchdog]),
        }
    }
    // The last snapshot is written after the last request, and not while this one is.
    if saving.is_some() {
        saved(&mut saving).await;
    }
    tracing::info!(
        "shutting down: no new connections are accepted, and requests in progress are answered"
    );
}

fn every(interval: Option<Duration>) -> Option<Interval> {
    let mut interval = tokio::time::interval(interval.filter(|interval| !interval.is_zero())?);
    interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
    interval.reset();
    Some(interval)
}

async fn tick(interval: &mut Option<Interval>) {
    match interval {
        Some(interval) => {
            interval.tick().await;
        }
        None => std::future::pending().await,
    }
}

/// Why the configuration is read.
#[derive(Clone, Copy, Debug)]
enum ReloadReason {
    /// A signal.
    Signal,
    /// The files are watched for changes.
    Watch,
}

/// Returns the files of the last reload, if it failed.
type Reloading = JoinHandle<Option<Sources>>;

/// Starts a reload in its own thread: a file may be on a disk that does not answer, and signals must be handled meanwhile.
fn begin_reload(server: Arc<Server>, reason: ReloadReason, failed: Option<Sources>) -> Reloading {
    tokio::task::spawn_blocking(move || match reason {
        ReloadReason::Signal => reload(&server),
        ReloadReason::Watch => {
            let in_force = server.config();
            let read = failed.as_ref().unwrap_or(&in_force.sources);
            if server.file().is_some() && read.have_changed() { reload(&server) } else { failed }
        }
    })
}

async fn reloaded(reloading: &mut Option<Reloading>) -> Option<Sources> {
    let Some(handle) = reloading else { return std::future::pending().await };
    let done = handle.await;
    *reloading = None;
    done.unwrap_or_else(|error| {
        tracing::error!("not reloaded, the old configuration stays: {error}");
        None
    })
}

/// Reloads the configuration. Returns the files that were read if they are not in force.
fn reload(server: &Server) -> Option<Sources> {
    if let Ok(monotonic) = NotifyState::monotonic_usec_now() {
        notify_system(&[NotifyState::Reloading, monotonic]);
    }
    let reloaded = server.reload();
    match &reloaded {
        Ok(_) if server.file().is_none() => {
            tracing::warn!("there is no configuration to reload, or it came from a pipe");
        }
        Ok(_) => tracing::info!("reloaded: {} limits", server.config().limits.len()),
        Err(errors) => tracing::error!("not reloaded, the old configuration stays:\n{errors}"),
    }
    notify_system(&[NotifyState::Ready]);
    reloaded.err().map(|errors| errors.sources)
}

type Saving = JoinHandle<std::io::Result<()>>;

/// Starts to write a snapshot in its own thread, so that signals are handled meanwhile.
fn begin_save(server: Arc<Server>, config: SnapshotConfig) -> Saving {
    tokio::task::spawn_blocking(move || state::save(&server, &config))
}

/// Waits until the snapshot is written, and logs a failure.
async fn saved(saving: &mut Option<Saving>) {
    let Some(handle) = saving else { return std::future::pending().await };
    let done = handle.await;
    *saving = None;
    match done {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::error!("the snapshot could not be written: {error}"),
        Err(error) => tracing::error!("the snapshot could not be written: {error}"),
    }
}
