//! The commands there are.

/// A command, by its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Command {
    ClThrottle,
    TideCheck,
    TideCheckAll,
    TidePeek,
    TideReset,
    TideRefund,
    TideAcquire,
    TideRelease,
    Auth,
    Client,
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
    Time,
    /// No command at all: the first word of an HTTP request, or one of its headers.
    Http,
}

/// A command as `COMMAND` tells of it: its arity (below zero: at least), and where its keys are.
pub(super) struct Known {
    pub(super) name: &'static str,
    pub(super) command: Command,
    pub(super) arity: i64,
    pub(super) is_write: bool,
    pub(super) keys: (i64, i64, i64),
}

const fn known(name: &'static str, command: Command, arity: i64) -> Known {
    Known { name, command, arity, is_write: false, keys: (0, 0, 0) }
}

const fn keyed(name: &'static str, command: Command, arity: i64, keys: (i64, i64, i64)) -> Known {
    Known { name, command, arity, is_write: true, keys }
}

/// All of them, in the order of their names.
pub(super) const COMMANDS: &[Known] = &[
    known("auth", Command::Auth, -2),
    keyed("cl.throttle", Command::ClThrottle, -1, (1, 1, 1)),
    known("client", Command::Client, -2),
    known("command", Command::Describe, -1),
    known("config", Command::Config, -2),
    keyed("del", Command::Del, -2, (1, -1, 1)),
    known("discard", Command::Discard, 1),
    known("echo", Command::Echo, 2),
    known("exec", Command::Exec, 1),
    known("hello", Command::Hello, -1),
    known("info", Command::Info, -1),
    known("multi", Command::Multi, 1),
    known("ping", Command::Ping, -1),
    known("quit", Command::Quit, -1),
    known("reset", Command::Reset, 1),
    known("select", Command::Select, 2),
    keyed("tide.acquire", Command::TideAcquire, -3, (2, 2, 1)),
    keyed("tide.check", Command::TideCheck, -3, (2, 2, 1)),
    keyed("tide.checkall", Command::TideCheckAll, -4, (2, -2, 3)),
    keyed("tide.peek", Command::TidePeek, -3, (2, 2, 1)),
    keyed("tide.refund", Command::TideRefund, -3, (2, 2, 1)),
    known("tide.release", Command::TideRelease, 2),
    keyed("tide.reset", Command::TideReset, 3, (2, 2, 1)),
    known("time", Command::Time, 1),
];

impl Command {
    /// The command of this name, whatever the case of its letters.
    #[inline]
    pub(super) fn of(name: &[u8]) -> Option<Self> {
        if name.eq_ignore_ascii_case(b"CL.THROTTLE") {
            return Some(Self::ClThrottle);
        }
        Self::of_others(name)
    }

    fn of_others(name: &[u8]) -> Option<Self> {
        const HTTP: &[&[u8]] =
            &[b"GET", b"POST", b"PUT", b"HEAD", b"DELETE", b"OPTIONS", b"PATCH", b"HOST:"];
        let is = |other: &[u8]| name.eq_ignore_ascii_case(other);
        match COMMANDS.iter().find(|known| is(known.name.as_bytes())) {
            Some(known) => Some(known.command),
            None => HTTP.iter().any(|word| is(word)).then_some(Self::Http),
        }
    }

    /// What one may say before one has said who one is.
    pub(super) fn is_before_authentication(self) -> bool {
        matches!(self, Self::Auth | Self::Hello | Self::Quit | Self::Reset)
    }

    pub(super) fn ends_transaction(self) -> bool {
        matches!(self, Self::Exec | Self::Discard | Self::Multi | Self::Quit | Self::Reset)
    }

    pub(super) fn is_tide(self) -> bool {
        matches!(
            self,
            Self::TideCheck
                | Self::TideCheckAll
                | Self::TidePeek
                | Self::TideReset
                | Self::TideRefund
                | Self::TideAcquire
                | Self::TideRelease
        )
    }

    /// Whether so many words are a right number for it.
    pub(super) fn takes(self, words: usize) -> bool {
        let arity = COMMANDS.iter().find(|known| known.command == self).map_or(-1, |it| it.arity);
        let words = i64::try_from(words).unwrap_or(i64::MAX);
        if arity < 0 { words >= -arity } else { words == arity }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_a_name_in_any_case() {
        assert_eq!(Command::of(b"cl.throttle"), Some(Command::ClThrottle));
        assert_eq!(Command::of(b"Tide.Check"), Some(Command::TideCheck));
        assert_eq!(Command::of(b"post"), Some(Command::Http));
        assert_eq!(Command::of(b"GETS"), None);
        assert_eq!(Command::of(b""), None);
    }

    #[test]
    fn the_list_is_in_order_and_without_doubles() {
        assert!(COMMANDS.is_sorted_by(|a, b| a.name < b.name));
    }
}
