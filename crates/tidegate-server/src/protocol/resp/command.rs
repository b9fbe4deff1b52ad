//! The table of commands.
//!
//! To add a command: a variant of [`Command`], a row of [`COMMANDS`] at the same position, and an arm in the file of its
//! [`Group`].

/// A command. The variants are in the order of [`COMMANDS`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Command {
    Auth,
    ClThrottle,
    Client,
    /// `COMMAND`
    Describe,
    Config,
    Del,
    Discard,
    Echo,
    Exec,
    Hello,
    Info,
    Multi,
    Ping,
    Quit,
    Reset,
    Select,
    TideAcquire,
    TideCheck,
    TideCheckAll,
    TidePeek,
    TideRefund,
    TideRelease,
    TideReset,
    Time,
}

/// The file that runs a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Group {
    /// `connection.rs`
    Connection,
    /// `throttle.rs`
    Throttle,
    /// `tide.rs`
    Tide,
    /// `dispatch.rs`, which has their queue
    Transaction,
}

/// A row of the table.
#[derive(Debug)]
pub(super) struct CommandSpec {
    pub(super) name: &'static str,
    pub(super) command: Command,
    group: Group,
    /// Number of words with the name; a negative number is a minimum.
    pub(super) arity: i64,
    /// Positions of the first and the last key, and the step between keys; zeros for a command without keys.
    pub(super) keys: (i64, i64, i64),
}

const fn row(
    name: &'static str,
    command: Command,
    group: Group,
    arity: i64,
    keys: (i64, i64, i64),
) -> CommandSpec {
    CommandSpec { name, command, group, arity, keys }
}

const NO_KEYS: (i64, i64, i64) = (0, 0, 0);

/// All commands, sorted by name.
pub(super) const COMMANDS: &[CommandSpec] = &[
    row("auth", Command::Auth, Group::Connection, -2, NO_KEYS),
    row("cl.throttle", Command::ClThrottle, Group::Throttle, -1, (1, 1, 1)),
    row("client", Command::Client, Group::Connection, -2, NO_KEYS),
    row("command", Command::Describe, Group::Connection, -1, NO_KEYS),
    row("config", Command::Config, Group::Connection, -2, NO_KEYS),
    row("del", Command::Del, Group::Throttle, -2, (1, -1, 1)),
    row("discard", Command::Discard, Group::Transaction, 1, NO_KEYS),
    row("echo", Command::Echo, Group::Connection, 2, NO_KEYS),
    row("exec", Command::Exec, Group::Transaction, 1, NO_KEYS),
    row("hello", Command::Hello, Group::Connection, -1, NO_KEYS),
    row("info", Command::Info, Group::Connection, -1, NO_KEYS),
    row("multi", Command::Multi, Group::Transaction, 1, NO_KEYS),
    row("ping", Command::Ping, Group::Connection, -1, NO_KEYS),
    row("quit", Command::Quit, Group::Connection, -1, NO_KEYS),
    row("reset", Command::Reset, Group::Connection, 1, NO_KEYS),
    row("select", Command::Select, Group::Connection, 2, NO_KEYS),
    row("tide.acquire", Command::TideAcquire, Group::Tide, -3, (2, 2, 1)),
    row("tide.check", Command::TideCheck, Group::Tide, -3, (2, 2, 1)),
    row("tide.checkall", Command::TideCheckAll, Group::Tide, -4, (2, -2, 3)),
    row("tide.peek", Command::TidePeek, Group::Tide, -3, (2, 2, 1)),
    row("tide.refund", Command::TideRefund, Group::Tide, -3, (2, 2, 1)),
    row("tide.release", Command::TideRelease, Group::Tide, 2, NO_KEYS),
    row("tide.reset", Command::TideReset, Group::Tide, 3, (2, 2, 1)),
    row("time", Command::Time, Group::Connection, 1, NO_KEYS),
];

/// A command with too few or too many words.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("ERR wrong number of arguments for '{0}' command")]
pub(super) struct WrongArity(&'static str);

impl Command {
    /// Returns the command of this name, in any case.
    pub(super) fn named(name: &[u8]) -> Option<Self> {
        find(name).map(|row| row.command)
    }

    fn row(self) -> &'static CommandSpec {
        &COMMANDS[self as usize]
    }

    pub(super) fn group(self) -> Group {
        self.row().group
    }

    /// Returns whether a client may send it before it has authenticated.
    pub(super) fn is_before_authentication(self) -> bool {
        matches!(self, Self::Auth | Self::Hello | Self::Quit | Self::Reset)
    }

    /// Returns whether it runs at once in a transaction, instead of being queued.
    pub(super) fn is_never_queued(self) -> bool {
        self.group() == Group::Transaction || matches!(self, Self::Quit | Self::Reset)
    }

    /// Fails if a command cannot have this number of words.
    pub(super) fn check_arity(self, words: usize) -> Result<(), WrongArity> {
        let CommandSpec { name, arity, .. } = *self.row();
        let words = i64::try_from(words).unwrap_or(i64::MAX);
        let is_right = if arity < 0 { words >= -arity } else { words == arity };
        if is_right { Ok(()) } else { Err(WrongArity(name)) }
    }

    /// Returns the error for a number of words that this command cannot have.
    pub(super) fn wrong_arity(self) -> WrongArity {
        WrongArity(self.row().name)
    }
}

/// Returns the row of a command's name, in any case.
pub(super) fn find(name: &[u8]) -> Option<&'static CommandSpec> {
    COMMANDS.iter().find(|row| name.eq_ignore_ascii_case(row.name.as_bytes()))
}

/// Returns whether a word begins an HTTP request or is one of its headers. A browser can be made to send Redis commands in the
/// body of a request (T53).
pub(super) fn is_http(word: &[u8]) -> bool {
    const HTTP: &[&[u8]] =
        &[b"GET", b"POST", b"PUT", b"HEAD", b"DELETE", b"OPTIONS", b"PATCH", b"HOST:"];
    HTTP.iter().any(|http| word.eq_ignore_ascii_case(http))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_a_name_in_any_case() {
        assert_eq!(Command::named(b"cl.throttle"), Some(Command::ClThrottle));
        assert_eq!(Command::named(b"Tide.Check"), Some(Command::TideCheck));
        assert_eq!(Command::named(b"post"), None);
        assert!(is_http(b"post") && !is_http(b"GETS"));
        assert_eq!(Command::named(b"GETS"), None);
        assert_eq!(Command::named(b""), None);
    }

    #[test]
    fn the_table_is_sorted_and_in_the_order_of_the_variants() {
        assert!(COMMANDS.is_sorted_by(|a, b| a.name < b.name));
        for (position, row) in COMMANDS.iter().enumerate() {
            assert_eq!(row.command as usize, position, "{}", row.name);
        }
    }
}
