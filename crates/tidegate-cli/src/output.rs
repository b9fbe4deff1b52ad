//! Exit codes, and output to standard error.
//!
//! Always   No control character of a file, a peer or an argument reaches the terminal, except line breaks.
//! Always   Exit code 0 means success, 1 that the command ran and found problems, 2 that it could not run. A
//!          closed pipe (`tidegate check F | head`) is not an error.

use anyhow::anyhow;
use serde::Serialize;
use std::io::{ErrorKind, Write};
use std::process::ExitCode;
use std::sync::mpsc;
use std::time::Duration;
use tidegate_server::config::ConfigErrors;
use tidegate_server::escape::Escaped;

/// Longest time that the process waits at its end for standard error to take the last message.
const STDERR_TIMEOUT: Duration = Duration::from_secs(1);

/// The result of a command that could run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CommandStatus {
    /// It found no problem.
    Success,
    /// It found problems and has printed them.
    Problems,
}

/// Prints the error of a command that could not run, and returns the exit code.
pub(crate) fn end(result: anyhow::Result<CommandStatus>) -> ExitCode {
    match result {
        Ok(CommandStatus::Success) => ExitCode::SUCCESS,
        Ok(CommandStatus::Problems) => ExitCode::from(1),
        Err(error) if is_closed_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            write_last_error(format!("{}\n", visible(&format!("tidegate: {error:#}"))));
            ExitCode::from(2)
        }
    }
}

/// Writes the last message of the process, and gives up after [`STDERR_TIMEOUT`]: a server must be able to exit
/// although no process reads its log.
fn write_last_error(text: String) {
    let (written, is_written) = mpsc::channel();
    let write = move || {
        let _ = std::io::stderr().write_all(text.as_bytes());
        let _ = written.send(());
    };
    if std::thread::Builder::new().spawn(write).is_ok() {
        let _ = is_written.recv_timeout(STDERR_TIMEOUT);
    }
}

fn is_closed_pipe(error: &anyhow::Error) -> bool {
    let io: Option<&std::io::Error> = error.downcast_ref();
    io.is_some_and(|io| io.kind() == ErrorKind::BrokenPipe)
}

/// Returns an error if the file could not be read at all, which keeps every command from running. A file that was
/// read and is invalid is left to the caller.
pub(crate) fn refuse_unreadable(errors: &ConfigErrors) -> anyhow::Result<()> {
    if errors.is_unreadable { Err(anyhow!("{errors}")) } else { Ok(()) }
}

/// Writes a line to standard error. A failure is ignored: there is no other place to report it.
pub(crate) fn write_stderr(text: &str) {
    let _ = writeln!(std::io::stderr(), "{}", visible(text));
}

/// Escapes all control characters except line breaks, which are the command's own. Text from a peer is escaped where it is quoted, so
/// that it cannot look like another line.
pub(crate) fn visible(text: &str) -> Escaped<'_> {
    Escaped::new(text.as_bytes()).line_break("\n")
}

/// Writes JSON whose strings contain no control characters either: JSON itself permits some of them unescaped.
pub(crate) fn write_json(value: &impl Serialize, out: &mut impl Write) -> std::io::Result<()> {
    let text = serde_json::to_string_pretty(value).map_err(std::io::Error::from)?;
    writeln!(out, "{}", visible(&text))
}
