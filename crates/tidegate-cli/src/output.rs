//! How a command ends: what it prints where, and what its exit code says.
//!
//! Always   0: all is well. 1: it ran, and found something wrong. 2: it could not run. A reader that has seen
//!          enough (`tidegate check F | head`) is no error.

use anyhow::anyhow;
use std::io::{ErrorKind, Write};
use std::process::ExitCode;
use std::sync::mpsc;
use std::time::Duration;
use tidegate_server::config::ConfigErrors;

/// How long the end of the process waits until its error is written.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// What a command found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Found {
    /// Nothing wrong.
    Fine,
    /// Something wrong, which has been printed.
    Wrong,
}

/// Tells what kept a command from running, and gives the exit code.
pub(crate) fn end(result: anyhow::Result<Found>) -> ExitCode {
    match result {
        Ok(Found::Fine) => ExitCode::SUCCESS,
        Ok(Found::Wrong) => ExitCode::from(1),
        Err(error) if is_closed_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            say_last(format!("tidegate: {error:#}\n"));
            ExitCode::from(2)
        }
    }
}

/// Writes why the process ends, and gives up after [`LAST_WORDS`]: a server whose log nobody reads must end, too.
fn say_last(text: String) {
    let (written, is_written) = mpsc::channel();
    let write = move || {
        let _ = std::io::stderr().write_all(text.as_bytes());
        let _ = written.send(());
    };
    if std::thread::Builder::new().spawn(write).is_ok() {
        let _ = is_written.recv_timeout(LAST_WORDS);
    }
}

fn is_closed_pipe(error: &anyhow::Error) -> bool {
    let io: Option<&std::io::Error> = error.downcast_ref();
    io.is_some_and(|io| io.kind() == ErrorKind::BrokenPipe)
}

/// Why a configuration cannot be read at all, which keeps every command from running; if it can be and is wrong, nothing.
pub(crate) fn refuse_unreadable(errors: &ConfigErrors) -> anyhow::Result<()> {
    if errors.is_unreadable { Err(anyhow!("{errors}")) } else { Ok(()) }
}

/// Writes a line to standard error. There is nowhere to tell that it cannot be written.
pub(crate) fn complain(text: &str) {
    let _ = writeln!(std::io::stderr(), "{text}");
}
