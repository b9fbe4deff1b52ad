//! Why Redis did not decide, and whether the request may have been charged.
//!
//! Invariant  A request that Redis refused was not charged. A request whose answer was lost may have been charged, and is not
//!            sent again.

use redis::{ErrorKind, RedisError};
use std::time::Duration;

/// Why Redis did not decide a request.
///
/// A caller of the contract of all stores, [`LimitStore`](tidegate::store::LimitStore), gets it inside a
/// [`tidegate::store::StoreError`]: as `Unavailable`, or as `ReleasePending` if it concerns a permit.
///
/// ```no_run
/// # async fn example(limiter: tidegate_redis::RedisLimiter) {
/// use tidegate_redis::RedisStoreError;
///
/// match limiter.try_check("alice", 1).await {
///     Ok(decision) => println!("{:?}", decision.verdict),
///     Err(RedisStoreError::Overloaded { max, .. }) => eprintln!("{max} requests wait already"),
///     Err(error) => eprintln!("{error}; charged: {}", error.may_have_charged()),
/// }
/// # }
/// ```
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RedisStoreError {
    /// No answer within the deadline. The cost may have been charged.
    #[error("no answer from {address} within {waited:?}")]
    TimedOut {
        /// The address of the server.
        address: String,
        /// The deadline.
        waited: Duration,
    },
    /// The connection broke. The cost may have been charged.
    #[error("the connection to {address} broke: {reason}")]
    Lost {
        /// The address of the server.
        address: String,
        /// The reason that the operating system gives.
        reason: String,
    },
    /// There is no connection. Nothing was charged.
    #[error("no connection to {address}: {reason}")]
    Down {
        /// The address of the server.
        address: String,
        /// Why there is none.
        reason: String,
    },
    /// Too many requests wait for an answer. Nothing was charged.
    #[error("{max} requests already wait for an answer from {address}, which is the maximum")]
    Overloaded {
        /// The address of the server.
        address: String,
        /// The maximum number of waiting requests.
        max: usize,
    },
    /// Redis answered with an error. Nothing was charged.
    #[error("{address} refused: {code} {message}")]
    Refused {
        /// The address of the server.
        address: String,
        /// The first word of the error, such as `OOM`.
        code: String,
        /// The rest of the error.
        message: String,
    },
    /// The answer is none that the scripts of this crate give: a bug, or another program uses the key.
    #[error("unexpected answer from {address}: {what}")]
    Malformed {
        /// The address of the server.
        address: String,
        /// The answer.
        what: String,
    },
}

/// What can be done about an error that Redis answered with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Remedy {
    /// Send the text of the script.
    SendScript,
    /// Find the primary: this server is none.
    FindPrimary,
    /// Send the request, and all later ones, to the server at this address.
    Moved { host: String, port: u16 },
    /// Send only this request to the server at this address.
    Ask { host: String, port: u16 },
    /// Send the request again after a short pause.
    TryAgain,
    /// Open the circuit breaker: the server cannot decide any request now. The limit's policy decides.
    OpenBreaker,
    /// None: the limit's policy decides. Other requests may succeed.
    None,
}

impl Remedy {
    /// Returns the remedy for an error. Redis has not run a script that it refuses, so sending it again charges once.
    pub(crate) fn of(error: &RedisError) -> Self {
        let redirect = error.redirect_node().map(|(address, _slot)| split(address));
        match (error.code().unwrap_or_default(), redirect) {
            ("NOSCRIPT", _) => Self::SendScript,
            ("READONLY", _) => Self::FindPrimary,
            ("MOVED", Some((host, port))) => Self::Moved { host, port },
            ("ASK", Some((host, port))) => Self::Ask { host, port },
            ("TRYAGAIN", _) => Self::TryAgain,
            (
                "LOADING" | "CLUSTERDOWN" | "MASTERDOWN" | "BUSY" | "MISCONF" | "OOM"
                | "NOREPLICAS",
                _,
            ) => Self::OpenBreaker,
            _ => Self::None,
        }
    }
}

/// Returns Redis's own error message, which users can look up, if there is one.
pub(super) fn redis_message(error: &RedisError) -> String {
    match (error.code(), error.detail()) {
        (Some(code), Some(detail)) => format!("{code} {detail}"),
        _ => error.to_string(),
    }
}

/// Splits `host:port`. The host is empty in a redirection to the server that sent it.
fn split(address: &str) -> (String, u16) {
    let (host, port) = address.rsplit_once(':').unwrap_or((address, ""));
    (host.trim_matches(['[', ']']).to_owned(), port.parse().unwrap_or(0))
}

impl RedisStoreError {
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

    /// Returns whether the cost may have been charged although there is no decision.
    pub fn may_have_charged(&self) -> bool {
        matches!(self, Self::TimedOut { .. } | Self::Lost { .. } | Self::Malformed { .. })
    }

    /// Returns whether the script needs several keys of a slot that is being moved, and neither node has all of them. Scripts
    /// with one key work.
    pub(crate) fn is_slot_moving(&self) -> bool {
        matches!(self, Self::Refused { code, .. } if code == "TRYAGAIN")
    }

    /// Returns the label of this error in metrics.
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

    /// T32.
    #[test]
    fn every_error_of_redis_has_its_remedy() {
        let there = |host: &str| (host.to_owned(), 7001);
        let (host, port) = there("10.0.0.7");
        let cases = [
            ("NOSCRIPT No matching script. Please use EVAL.", Remedy::SendScript),
            ("READONLY You can't write against a read only replica.", Remedy::FindPrimary),
            ("LOADING Redis is loading the dataset in memory", Remedy::OpenBreaker),
            ("MOVED 866 10.0.0.7:7001", Remedy::Moved { host: host.clone(), port }),
            ("ASK 866 10.0.0.7:7001", Remedy::Ask { host, port }),
            ("TRYAGAIN Multiple keys request during rehashing of slot", Remedy::TryAgain),
            ("CLUSTERDOWN The cluster is down", Remedy::OpenBreaker),
            ("CROSSSLOT Keys in request don't hash to the same slot", Remedy::None),
            ("OOM command not allowed when used memory > 'maxmemory'.", Remedy::OpenBreaker),
            ("BUSY Redis is busy running a script.", Remedy::OpenBreaker),
            ("MISCONF Redis is configured to save RDB snapshots", Remedy::OpenBreaker),
            ("NOREPLICAS Not enough good replicas to write.", Remedy::OpenBreaker),
            ("WRONGTYPE Operation against a key holding the wrong kind", Remedy::None),
            ("NOPERM this user has no permissions", Remedy::None),
            ("NOAUTH Authentication required.", Remedy::None),
            ("ERR something else", Remedy::None),
        ];
        for (line, expected) in cases {
            assert_eq!(remedy(line), expected, "{line}");
        }
    }

    #[test]
    fn a_refused_request_was_not_charged_and_a_lost_one_may_have_been() {
        let address = || "h:1".to_owned();
        let refused = RedisStoreError::Refused {
            address: address(),
            code: "OOM".into(),
            message: "no".into(),
        };
        assert!(!refused.may_have_charged());
        assert!(
            RedisStoreError::Lost { address: address(), reason: "reset".into() }.may_have_charged()
        );
        let waited = Duration::from_millis(20);
        assert!(RedisStoreError::TimedOut { address: address(), waited }.may_have_charged());
    }
}
