//! The process around the server: start, signals, reloads, snapshots, and an orderly end.
//!
//! Always   Whatever it is told while it runs (HUP, a changed file, a full disk), the server goes on with what
//!          it has and says what is wrong. It ends only when it is asked to, and then it keeps its debts.

mod banner;
#[cfg(unix)]
mod descriptors;
mod log;
mod signals;
mod state;
mod store;

use log::Log;
pub use log::LogFormat;
pub use store::examine_store;

use crate::clock::ServerClock;
use crate::config::{self, CommandLine, Config};
use crate::net::{self, Addresses, Running};
use crate::server::Server;
use anyhow::Context;
use sd_notify::NotifyState;
use signals::Signals;
use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;
use tidegate::Clock as _;
use tokio::runtime::Runtime;

/// What the command line says. It comes before the configuration.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// The configuration.
    pub config: Option<PathBuf>,
    /// What it says about `[server]`.
    pub server: CommandLine,
    /// How it logs.
    pub log: LogFormat,
}

/// Serves until it is asked to end. Writes to `out` where it listens and what to try; a reader of `out` that has gone or has
/// stopped reading delays nothing.
pub fn run(options: &Options, out: impl Write + Send + 'static) -> anyhow::Result<()> {
    // Dropped last: it writes what is left.
    let log = Log::start(options.log)?;
    // A pipe can be read once: who was configured by one cannot be told to read it again.
    let file = options.config.clone().filter(|file| file.is_file());
    let config = config::for_start(options.config.as_deref(), &options.server)?;
    let clock = ServerClock::system();
    config::log_warnings(&config, clock.calendar_now());
    #[cfg(unix)]
    let ceiling = descriptors::take_all(config.server.caps.connections_max);
    let snapshot = config.server.snapshot.clone().filter(|_| config.store.is_none());
    let (server, store) = opened(config, file, clock, snapshot.as_ref())?;
    #[cfg(unix)]
    server.set_connections_ceiling(ceiling);
    // Whoever is told that it listens may send a signal at once, or take all descriptors.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let signals = runtime.block_on(async { Signals::hear() })?;
    let _ = server.status.log.set(Arc::clone(&log.drops));
    let running = net::start(server)?;
    print_banner(&running, out);
    tell_system(&[NotifyState::Ready]);
    runtime.block_on(signals::tend(&running, signals, snapshot.as_ref()));
    tell_system(&[NotifyState::Stopping]);
    let ended = end(running, snapshot.as_ref());
    // A reload may wait for a disk that does not answer: nobody waits for it.
    runtime.shutdown_background();
    // Not before everybody has been answered.
    drop(store);
    ended
}

/// Prints the banner from a thread of its own: the reader of a pipe may have stopped reading, and the server must go on to hear
/// signals. What cannot be written is in the log.
fn print_banner(running: &Running, mut out: impl Write + Send + 'static) {
    let (text, addresses) = (banner::text(running), running.addresses);
    let print = move || {
        if let Err(error) = out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
            let Addresses { resp, http, grpc, admin } = addresses;
            tracing::warn!(
                ?resp,
                ?http,
                ?grpc,
                ?admin,
                "standard output cannot be written: {error}"
            );
        }
    };
    if let Err(error) = std::thread::Builder::new().name("banner".to_owned()).spawn(print) {
        tracing::warn!("the thread that prints the addresses cannot start: {error}");
    }
}

/// The server, with what its store lives in.
fn opened(
    config: Config,
    file: Option<PathBuf>,
    clock: ServerClock,
    snapshot: Option<&config::SnapshotConfig>,
) -> anyhow::Result<(Arc<Server>, Option<Runtime>)> {
    if config.store.is_none() {
        let (restored, result) = snapshot.map(state::restore).unzip();
        let restored = restored.unwrap_or_default();
        let server = Server::new(config, file, clock, restored);
        if let Some(result) = result {
            server.status.snapshot.begin(result, server.engine.clock().now());
        }
        return Ok((server, None));
    }
    if config.server.snapshot.is_some() {
        tracing::info!("no snapshot is written or read: the store keeps what is counted");
    }
    let (server, runtime) = store::serve(config, file, clock)?;
    Ok((server, Some(runtime)))
}

/// Everybody who is being answered is answered; then what they owe is kept.
fn end(running: Running, snapshot: Option<&config::SnapshotConfig>) -> anyhow::Result<()> {
    let server = Arc::clone(&running.server);
    let stopped = running.stop();
    if let Some(snapshot) = snapshot {
        state::save(&server, snapshot).context("the last snapshot could not be written")?;
    }
    tracing::info!("stopped");
    stopped
}

/// Tells systemd, if it asked to be told.
fn tell_system(states: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(states) {
        tracing::warn!("cannot tell the service manager: {error}");
    }
}
