//! How a store is spoken to, with the reasons for the defaults.

use std::time::Duration;

/// How a store is spoken to.
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
    /// The longest a decision waits for Redis: 20 ms, ten times a slow round trip within a data centre. A limit
    /// may have its own.
    pub deadline: Duration,
    /// Connections to each primary: 2, so that a large answer on one does not hold up all.
    pub connections: usize,
    /// How many decisions may wait for one primary: 10 000. More are answered by the limits' policies at once.
    pub in_flight_max: usize,
    /// What every key in Redis begins with: `tg:`.
    pub prefix: String,
}

impl Settings {
    /// With this [`deadline`](Self::deadline).
    ///
    /// ```
    /// use tidegate_redis::Settings;
    ///
    /// let soon = std::time::Duration::from_millis(5);
    /// assert_eq!(Settings::default().deadline(soon).deadline, soon);
    /// ```
    #[must_use]
    pub fn deadline(self, deadline: Duration) -> Self {
        Self { deadline, ..self }
    }

    /// With so many [`connections`](Self::connections), one at least.
    ///
    /// ```
    /// use tidegate_redis::Settings;
    ///
    /// assert_eq!(Settings::default().connections(0).connections, 1);
    /// ```
    #[must_use]
    pub fn connections(self, connections: usize) -> Self {
        Self { connections: connections.max(1), ..self }
    }

    /// With this [`in_flight_max`](Self::in_flight_max), one at least.
    ///
    /// ```
    /// use tidegate_redis::Settings;
    ///
    /// assert_eq!(Settings::default().in_flight_max(500).in_flight_max, 500);
    /// ```
    #[must_use]
    pub fn in_flight_max(self, in_flight_max: usize) -> Self {
        Self { in_flight_max: in_flight_max.max(1), ..self }
    }

    /// With this [`prefix`](Self::prefix).
    ///
    /// ```
    /// use tidegate_redis::Settings;
    ///
    /// assert_eq!(Settings::default().prefix("shop:").prefix, "shop:");
    /// ```
    #[must_use]
    pub fn prefix(self, prefix: &str) -> Self {
        Self { prefix: prefix.to_owned(), ..self }
    }
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            deadline: Duration::from_millis(20),
            connections: 2,
            in_flight_max: 10_000,
            prefix: "tg:".to_owned(),
        }
    }
}
