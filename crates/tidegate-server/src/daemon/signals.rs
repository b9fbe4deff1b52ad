//! What the process is told while it runs.

use super::{state, tell_system};
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

/// What it listens to from the start.
pub(super) struct Signals {
    hang_up: Signal,
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    /// From now on, in the runtime that this is called in.
    pub(super) fn hear() -> std::io::Result<Self> {
        Ok(Self {
            hang_up: signal(SignalKind::hangup())?,
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
        })
    }
}

/// Reloads, watches and saves until it is asked to end.
pub(super) async fn tend(
    running: &Running,
    mut signals: Signals,
    snapshot: Option<&SnapshotConfig>,
) {
    let server = &running.server;
    let config = server.config();
    let mut save = every(snapshot.map(|snapshot| snapshot.every));
    let mut look = every(config.server.is_watching.then_some(WATCH_EVERY));
    let mut alive = every(sd_notify::watchdog_enabled().map(|timeout| timeout / 2));
    let mut saving = None;
    // What the last reload read, if it failed: it is tried again when that has changed.
    let mut failed: Option<Sources> = None;
    let (mut reloading, mut asked): (Option<Reloading>, Option<Ask>) = (None, None);
    loop {
        // One at a time: what is asked meanwhile is done after it.
        if reloading.is_none()
            && let Some(ask) = asked.take()
        {
            reloading = Some(begin(Arc::clone(server), ask, failed.take()));
        }
        tokio::select! {
            _ = signals.terminate.recv() => break,
            _ = signals.interrupt.recv() => break,
            _ = signals.hang_up.recv() => asked = Some(Ask::Reload),
            () = tick(&mut look), if reloading.is_none() => asked = asked.or(Some(Ask::Look)),
            done = reloaded(&mut reloading) => failed = done,
            () = tick(&mut save) => {
                if let (None, Some(snapshot)) = (&saving, snapshot.cloned()) {
                    saving = Some(keep(Arc::clone(server), snapshot));
                }
            }
            () = saved(&mut saving) => {}
            () = tick(&mut alive) => tell_system(&[NotifyState::Watchdog]),
        }
    }
    // The last one is written when all have been answered; it must not meet this one.
    if saving.is_some() {
        saved(&mut saving).await;
    }
    tracing::info!("asked to end: no more connections, and those that are there are answered");
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
enum Ask {
    /// A signal asks for it.
    Reload,
    /// To see whether it has changed.
    Look,
}

/// What it ends with is what the last reload read, if it failed.
type Reloading = JoinHandle<Option<Sources>>;

/// In a thread of its own: a file may be on a disk that does not answer, and signals are heard meanwhile.
fn begin(server: Arc<Server>, ask: Ask, failed: Option<Sources>) -> Reloading {
    tokio::task::spawn_blocking(move || match ask {
        Ask::Reload => reload(&server),
        Ask::Look => {
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

/// What was read, if that is not in force now.
fn reload(server: &Server) -> Option<Sources> {
    if let Ok(monotonic) = NotifyState::monotonic_usec_now() {
        tell_system(&[NotifyState::Reloading, monotonic]);
    }
    let reloaded = server.reload();
    match &reloaded {
        Ok(_) if server.file().is_none() => {
            tracing::warn!("there is no configuration to reload, or it came from a pipe");
        }
        Ok(_) => tracing::info!("reloaded: {} limits", server.config().limits.len()),
        Err(errors) => tracing::error!("not reloaded, the old configuration stays:\n{errors}"),
    }
    tell_system(&[NotifyState::Ready]);
    reloaded.err().map(|errors| errors.sources)
}

type Saving = JoinHandle<std::io::Result<()>>;

/// In a thread of its own, so that signals are heard meanwhile; one at a time.
fn keep(server: Arc<Server>, config: SnapshotConfig) -> Saving {
    tokio::task::spawn_blocking(move || state::save(&server, &config))
}

/// Waits until it is done, and says if it went wrong.
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
