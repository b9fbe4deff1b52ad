//! Settings of a store, with the reasons for the defaults.

use super::deadline::DEADLINE_DEFAULT;
use std::time::Duration;

/// Settings of a store.
///
/// ```
/// use std::time::Duration;
/// use tidegate_redis::Settings;
///
/// let patient = Settings::default().deadline(Duration::from_millis(50));
/// assert_eq!(patient.connections, 2);
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Settings {
    /// The maximum time that a decision waits for Redis: 20 ms, ten times a slow round trip within a data centre. One limit
    /// can have another deadline: [`Builder::deadline`](crate::Builder::deadline).
    pub deadline: Duration,
    /// Connections to each primary: 2, so that a large answer on one does not delay all requests.
    pub connections: usize,
    /// How many requests may wait for an answer from one primary: 10 000. The limit's [`OnError`](crate::OnError) decides
    /// further requests at once.
    pub in_flight_max: usize,
    /// The prefix of every key in Redis: `tg:`.
    pub prefix: String,
}

impl Settings {
    /// Sets the [`deadline`](Self::deadline).
    #[must_use]
    pub fn deadline(self, deadline: Duration) -> Self {
        Self { deadline, ..self }
    }

    /// Sets the number of [`connections`](Self::connections), at least one.
    #[must_use]
    pub fn connections(self, connections: usize) -> Self {
        Self { connections: connections.max(1), ..self }
    }

    /// Sets [`in_flight_max`](Self::in_flight_max), at least one.
    #[must_use]
    pub fn in_flight_max(self, in_flight_max: usize) -> Self {
        Self { in_flight_max: in_flight_max.max(1), ..self }
    }

    /// Sets the [`prefix`](Self::prefix).
    #[must_use]
    pub fn prefix(self, prefix: &str) -> Self {
        Self { prefix: prefix.to_owned(), ..self }
    }
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            deadline: DEADLINE_DEFAULT,
            connections: 2,
            in_flight_max: 10_000,
            prefix: "tg:".to_owned(),
        }
    }
}
