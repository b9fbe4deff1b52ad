//! The process around the server: start, signals, reloads, snapshots, and an orderly end.
//!
//! Always   Whatever happens while it runs (HUP, a changed file, a full disk), the server continues with what it has and logs what
//!          is wrong. It ends only on a signal, and then it writes a snapshot.

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

/// The options of the command line, which override the configuration.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// The configuration file.
    pub config: Option<PathBuf>,
    /// Settings of `[server]`.
    pub server: CommandLine,
    /// The format of the log.
    pub log: LogFormat,
}

/// Serves until a signal ends the process. Writes the banner to `out`; a reader of `out` that has gone or has stopped reading
/// delays nothing.
///
/// # Errors
/// If the configuration is invalid, a listener cannot be opened, or the last snapshot cannot be written.
pub fn run(options: &Options, out: impl Write + Send + 'static) -> anyhow::Result<()> {
    // Dropped last: it writes the lines that are left.
    let log = Log::start(options.log)?;
    // A pipe can be read once: a configuration from one cannot be reloaded.
    let file = options.config.clone().filter(|file| file.is_file());
    let config = config::for_start(options.config.as_deref(), &options.server)?;
    let clock = ServerClock::system();
    config::log_warnings(&config, clock.calendar_now());
    #[cfg(unix)]
    let ceiling = descriptors::take_all(config.server.caps.connections_max);
    let snapshot = config.server.snapshot.clone().filter(|_| config.store.is_none());
    let (server, store) = create_server(config, file, clock, snapshot.as_ref())?;
    #[cfg(unix)]
    server.set_connections_ceiling(ceiling);
    // Before the listeners: a client may send a signal, or take all descriptors, as soon as it can connect.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let signals = runtime.block_on(async { Signals::register() })?;
    let _ = server.status.log.set(Arc::clone(&log.drops));
    let running = net::start(server)?;
    print_banner(&running, out);
    notify_system(&[NotifyState::Ready]);
    runtime.block_on(signals::run_until_terminated(&running, signals, snapshot.as_ref()));
    notify_system(&[NotifyState::Stopping]);
    let ended = end(running, snapshot.as_ref());
    // Does not wait for a reload, which may hang on a disk that does not answer.
    runtime.shutdown_background();
    // After the last request was answered.
    drop(store);
    ended
}

/// Prints the banner from its own thread: the reader of a pipe may have stopped reading, and the server must still handle
/// signals. If the banner cannot be written, the addresses are logged.
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

/// Creates the server, and the runtime of its store's connections.
fn create_server(
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
        tracing::info!("no snapshot is written or read: the store keeps the state of limits");
    }
    let (server, runtime) = store::serve(config, file, clock)?;
    Ok((server, Some(runtime)))
}

/// Answers the requests in progress, then writes the last snapshot.
fn end(running: Running, snapshot: Option<&config::SnapshotConfig>) -> anyhow::Result<()> {
    let server = Arc::clone(&running.server);
    let stopped = running.stop();
    if let Some(snapshot) = snapshot {
        state::save(&server, snapshot).context("the last snapshot could not be written")?;
    }
    tracing::info!("stopped");
    stopped
}

/// Notifies systemd, if it started the process with a notification socket.
fn notify_system(states: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(states) {
        tracing::warn!("cannot notify the service manager: {error}");
    }
}
