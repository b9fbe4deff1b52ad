//! The log: lines on standard error, for people or for machines.
//!
//! Always   Logging never waits, fails or panics: not if the reader of standard error has gone or stopped reading, not if
//!          its disk is full. A thread writes; what it cannot write is dropped and counted ([`LogDrops`]).
//! Always   Panics are events of the log like others.
//! Bound    Memory as in `queue.rs`; events of one kind as in `repeats.rs`.

mod queue;
mod repeats;

use crate::server::status::LogDrops;
use anyhow::Context;
use queue::Queue;
use repeats::{LOG_TARGET, LimitRepeats, REPORT_EVERY, Repeats};
use std::backtrace::{Backtrace, BacktraceStatus};
use std::env::VarError;
use std::sync::Arc;
use std::time::Duration;
use tidegate::SystemClock;
use tracing::Subscriber;
use tracing::subscriber::set_global_default;
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::layer::SubscriberExt;

/// The format of log lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LogFormat {
    /// Text for people.
    #[default]
    Text,
    /// One JSON object a line.
    Json,
}

/// The environment variable that sets how much is logged.
const LEVEL_VARIABLE: &str = "TIDEGATE_LOG";
/// How long the end of the process waits until all lines are written.
const CLOSE_PATIENCE: Duration = Duration::from_secs(1);

/// The log of the process. When it is dropped, it writes the lines that are left, for at most [`CLOSE_PATIENCE`].
#[derive(Debug)]
pub(super) struct Log {
    queue: Arc<Queue>,
    repeats: Arc<Repeats>,
    pub(super) drops: Arc<LogDrops>,
}

impl Log {
    /// Starts logging, once in a process: a second server in it shares the log of the first.
    pub(super) fn start(format: LogFormat) -> anyhow::Result<Self> {
        let level = level(std::env::var(LEVEL_VARIABLE))?;
        let drops = Arc::new(LogDrops::default());
        let queue = Arc::new(Queue::new(Arc::clone(&drops)));
        let repeats = Arc::new(Repeats::new(SystemClock::new(), Arc::clone(&drops)));
        let log = Self { queue, repeats, drops };
        if log.subscribe(format, level) {
            log.start_writing().context("the log's thread cannot start")?;
            std::panic::set_hook(Box::new(log_panic));
        }
        Ok(log)
    }

    /// Returns whether this is the first log of the process.
    fn subscribe(&self, format: LogFormat, level: LevelFilter) -> bool {
        let builder = tracing_subscriber::fmt()
            .with_max_level(level)
            .with_writer(Arc::clone(&self.queue))
            .with_target(false)
            .with_ansi(false)
            // The queue escapes every line.
            .with_ansi_sanitization(false)
            // The subscriber would print them to standard error, and panic if that cannot be written.
            .log_internal_errors(false);
        match format {
            LogFormat::Text => self.set_global(builder.finish()),
            LogFormat::Json => self.set_global(builder.json().finish()),
        }
    }

    fn set_global(&self, subscriber: impl Subscriber + Send + Sync) -> bool {
        let limited = subscriber.with(LimitRepeats(Arc::clone(&self.repeats)));
        set_global_default(limited).is_ok()
    }

    fn start_writing(&self) -> std::io::Result<()> {
        let (queue, repeats) = (Arc::clone(&self.queue), Arc::clone(&self.repeats));
        let (drops, mut reported) = (Arc::clone(&self.drops), 0);
        let every = Duration::from_micros(REPORT_EVERY.as_micros());
        let write = move || {
            queue.drain_to(std::io::stderr(), every, |is_writable| {
                // Not while writing fails: that would lose one more line.
                let lost = drops.lost();
                if repeats.report_if_due() && is_writable && lost > reported {
                    let number = lost - std::mem::replace(&mut reported, lost);
                    tracing::warn!(target: LOG_TARGET, "{number} log lines could not be written");
                }
            });
        };
        std::thread::Builder::new().name("log".to_owned()).spawn(write).map(drop)
    }
}

impl Drop for Log {
    fn drop(&mut self) {
        self.repeats.report();
        self.queue.close(CLOSE_PATIENCE);
    }
}

/// Parses the level of the log; an empty text is the default.
fn level(variable: Result<String, VarError>) -> anyhow::Result<LevelFilter> {
    match variable {
        Ok(level) if level.is_empty() => Ok(LevelFilter::INFO),
        Ok(level) => level.parse().ok().with_context(|| unknown_level(&level)),
        Err(VarError::NotPresent) => Ok(LevelFilter::INFO),
        Err(VarError::NotUnicode(level)) => anyhow::bail!(unknown_level(&level.to_string_lossy())),
    }
}

fn unknown_level(level: &str) -> String {
    let level = level.escape_debug();
    format!("{LEVEL_VARIABLE} is `{level}`, but must be off, error, warn, info, debug or trace")
}

/// Logs a panic. The standard library would print it to standard error, and wait until it is written.
fn log_panic(panic: &std::panic::PanicHookInfo<'_>) {
    let thread = std::thread::current();
    let thread = thread.name().unwrap_or("without a name");
    let backtrace = Backtrace::capture();
    if backtrace.status() == BacktraceStatus::Captured {
        tracing::error!("thread {thread} {panic}\n{backtrace}");
    } else {
        tracing::error!("thread {thread} {panic}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_level_is_parsed_or_refused() {
        for (variable, expected) in [
            (Err(VarError::NotPresent), LevelFilter::INFO),
            (Ok(""), LevelFilter::INFO),
            (Ok("off"), LevelFilter::OFF),
            (Ok("WARN"), LevelFilter::WARN),
            (Ok("trace"), LevelFilter::TRACE),
        ] {
            assert_eq!(level(variable.map(str::to_owned)).unwrap(), expected);
        }
        let error = level(Ok("verbose".to_owned())).unwrap_err().to_string();
        let expected =
            "TIDEGATE_LOG is `verbose`, but must be off, error, warn, info, debug or trace";
        assert_eq!(error, expected);
    }
}
