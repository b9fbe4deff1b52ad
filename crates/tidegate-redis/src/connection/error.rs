//! Why there is no answer, and what that means for the request.
//!
//! Always   Whether the request may have been charged is known for each of them: what was refused was not, what
//!          was lost may have been, and is not sent again.

use redis::{ErrorKind, RedisError};
use std::time::Duration;

/// Why Redis did not decide.
///
/// ```
/// use tidegate_redis::StoreError;
///
/// let maybe_charged = |error: &StoreError| {
///     matches!(error, StoreError::TimedOut { .. } | StoreError::Lost { .. })
/// };
/// ```
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// No answer in time. The cost may or may not have been charged.
    #[error("no answer from {address} within {waited:?}")]
    TimedOut {
        /// Who was asked.
        address: String,
        /// How long.
        waited: Duration,
    },
    /// The connection broke. The cost may or may not have been charged.
    #[error("the connection to {address} broke: {reason}")]
    Lost {
        /// Who was asked.
        address: String,
        /// What the system says.
        reason: String,
    },
    /// There is no connection. Nothing was charged.
    #[error("no connection to {address}: {reason}")]
    Down {
        /// Who would have been asked.
        address: String,
        /// Why there is none.
        reason: String,
    },
    /// So many answers are waited for that no more are. Nothing was charged.
    #[error("{max} requests wait for an answer from {address}, and no more may")]
    Overloaded {
        /// Who would have been asked.
        address: String,
        /// How many may wait.
        max: usize,
    },
    /// Redis answered with an error. Nothing was charged.
    #[error("{address} refused: {code} {message}")]
    Refused {
        /// Who was asked.
        address: String,
        /// The first word of the error.
        code: String,
        /// The others.
        message: String,
    },
    /// The answer was none that our scripts give: a bug, or somebody else's key.
    #[error("{address} gave no answer of ours: {what}")]
    Malformed {
        /// Who was asked.
        address: String,
        /// What it said.
        what: String,
    },
}

/// What can be done about an error that Redis answered with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Remedy {
    /// Send the script along.
    SendScript,
    /// This server is no primary: find out who is, and ask that.
    FindPrimary,
    /// Ask the server at this address, from now on.
    Moved { host: String, port: u16 },
    /// Ask the server at this address, this once.
    Ask { host: String, port: u16 },
    /// In a moment it may be possible.
    AskAgain,
    /// Nothing, now: the limit's policy decides, and the server is left alone for a while.
    Rest,
    /// Nothing: the limit's policy decides. Other requests may fare better.
    Nothing,
}

impl Remedy {
    /// What each error means. Whatever Redis refuses it has not done, so one more try charges nothing twice.
    pub(crate) fn of(error: &RedisError) -> Self {
        let redirect = error.redirect_node().map(|(address, _slot)| split(address));
        match (error.code().unwrap_or_default(), redirect) {
            ("NOSCRIPT", _) => Self::SendScript,
            ("READONLY", _) => Self::FindPrimary,
            ("MOVED", Some((host, port))) => Self::Moved { host, port },
            ("ASK", Some((host, port))) => Self::Ask { host, port },
            ("TRYAGAIN", _) => Self::AskAgain,
            (
                "LOADING" | "CLUSTERDOWN" | "MASTERDOWN" | "BUSY" | "MISCONF" | "OOM"
                | "NOREPLICAS",
                _,
            ) => Self::Rest,
            _ => Self::Nothing,
        }
    }
}

/// In Redis's own words, where it has any: those can be looked up.
pub(super) fn words(error: &RedisError) -> String {
    match (error.code(), error.detail()) {
        (Some(code), Some(detail)) => format!("{code} {detail}"),
        _ => error.to_string(),
    }
}

/// An address without a host is that of who said it.
fn split(address: &str) -> (String, u16) {
    let (host, port) = address.rsplit_once(':').unwrap_or((address, ""));
    (host.trim_matches(['[', ']']).to_owned(), port.parse().unwrap_or(0))
}

impl StoreError {
    pub(crate) fn of(error: &RedisError, address: &str) -> Self {
        let address = address.to_owned();
        match error.kind() {
            ErrorKind::Server(_) | ErrorKind::Extension | ErrorKind::AuthenticationFailed => {
                Self::Refused {
                    address,
                    code: error.code().unwrap_or("ERR").to_owned(),
                    message: error.detail().unwrap_or_default().to_owned(),
                }
            }
            ErrorKind::Parse | ErrorKind::UnexpectedReturnType => {
                Self::Malformed { address, what: error.to_string() }
            }
            _ => Self::Lost { address, reason: error.to_string() },
        }
    }

    /// Whether the cost may have been charged all the same.
    ///
    /// ```
    /// use tidegate_redis::StoreError;
    ///
    /// let down = StoreError::Down { address: "h:1".into(), reason: "refused".into() };
    /// assert!(!down.may_have_charged());
    /// ```
    pub fn may_have_charged(&self) -> bool {
        matches!(self, Self::TimedOut { .. } | Self::Lost { .. } | Self::Malformed { .. })
    }

    /// Whether several keys of one slot were asked for while the slot moves, and neither node has all of them: each by
    /// itself can be asked for.
    pub(crate) fn is_slot_moving(&self) -> bool {
        matches!(self, Self::Refused { code, .. } if code == "TRYAGAIN")
    }

    /// One word for it, for metrics.
    ///
    /// ```
    /// use tidegate_redis::StoreError;
    ///
    /// let down = StoreError::Down { address: "h:1".into(), reason: "refused".into() };
    /// assert_eq!(down.label(), "down");
    /// ```
    pub fn label(&self) -> &'static str {
        match self {
            Self::TimedOut { .. } => "timed_out",
            Self::Lost { .. } => "lost",
            Self::Down { .. } => "down",
            Self::Overloaded { .. } => "overloaded",
            Self::Refused { .. } => "refused",
            Self::Malformed { .. } => "malformed",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn remedy(line: &str) -> Remedy {
        let reply = format!("-{line}\r\n");
        let value = redis::parse_redis_value(reply.as_bytes()).expect("it is a reply");
        let error = value.extract_error().expect_err("it is an error");
        Remedy::of(&error)
    }

    #[test]
    fn t32_every_error_of_redis_has_its_remedy() {
        let there = |host: &str| (host.to_owned(), 7001);
        let (host, port) = there("10.0.0.7");
        let cases = [
            ("NOSCRIPT No matching script. Please use EVAL.", Remedy::SendScript),
            ("READONLY You can't write against a read only replica.", Remedy::FindPrimary),
            ("LOADING Redis is loading the dataset in memory", Remedy::Rest),
            ("MOVED 866 10.0.0.7:7001", Remedy::Moved { host: host.clone(), port }),
            ("ASK 866 10.0.0.7:7001", Remedy::Ask { host, port }),
            ("TRYAGAIN Multiple keys request during rehashing of slot", Remedy::AskAgain),
            ("CLUSTERDOWN The cluster is down", Remedy::Rest),
            ("CROSSSLOT Keys in request don't hash to the same slot", Remedy::Nothing),
            ("OOM command not allowed when used memory > 'maxmemory'.", Remedy::Rest),
            ("BUSY Redis is busy running a script.", Remedy::Rest),
            ("MISCONF Redis is configured to save RDB snapshots", Remedy::Rest),
            ("NOREPLICAS Not enough good replicas to write.", Remedy::Rest),
            ("WRONGTYPE Operation against a key holding the wrong kind", Remedy::Nothing),
            ("NOPERM this user has no permissions", Remedy::Nothing),
            ("NOAUTH Authentication required.", Remedy::Nothing),
            ("ERR something else", Remedy::Nothing),
        ];
        for (line, expected) in cases {
            assert_eq!(remedy(line), expected, "{line}");
        }
    }

    #[test]
    fn what_was_refused_was_not_charged_and_what_was_lost_may_have_been() {
        let address = || "h:1".to_owned();
        let refused =
            StoreError::Refused { address: address(), code: "OOM".into(), message: "no".into() };
        assert!(!refused.may_have_charged());
        assert!(StoreError::Lost { address: address(), reason: "reset".into() }.may_have_charged());
        let waited = Duration::from_millis(20);
        assert!(StoreError::TimedOut { address: address(), waited }.may_have_charged());
    }
}
