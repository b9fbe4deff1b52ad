//! How the store's servers are, and since when.
//!
//! Always   Who looks finds out: what has changed since the last look is said in the log, once. So the daemon looks every
//!          second, and the times are right to the second. Of a server that comes and goes it is said once in ten seconds.

use crate::clock::ServerClock;
use std::collections::HashMap;
use std::sync::Mutex;
use tidegate::{Clock, Span, Timestamp};
use tidegate_redis::Health;

/// How one of the store's servers is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerHealth {
    /// Where it is.
    pub address: String,
    /// Why it is not asked; none if it is.
    pub why_down: Option<String>,
    /// For how long this has been so.
    pub since: Span,
}

/// Between two lines about one server.
const SAID_EVERY: Span = Span::from_secs(10);

/// What was seen at the last look.
#[derive(Debug)]
pub(super) struct Seen {
    clock: ServerClock,
    servers: Mutex<HashMap<String, Known>>,
}

/// How a server was.
#[derive(Clone, Copy, Debug)]
struct Known {
    is_up: bool,
    since: Timestamp,
    /// What the log says of it; at first sight, what nobody needs to be told.
    said_up: bool,
    said: Option<Timestamp>,
}

impl Known {
    fn new(is_up: bool, now: Timestamp) -> Self {
        Self { is_up, since: now, said_up: is_up, said: None }
    }

    /// It is like this now. Whether that is to be said.
    fn look(&mut self, is_up: bool, now: Timestamp) -> bool {
        if self.is_up != is_up {
            (self.is_up, self.since) = (is_up, now);
        }
        let is_time = self.said.is_none_or(|said| now.since(said) >= SAID_EVERY);
        let is_said = self.said_up != is_up && is_time;
        if is_said {
            (self.said_up, self.said) = (is_up, Some(now));
        }
        is_said
    }
}

impl Seen {
    pub(super) fn new(clock: ServerClock) -> Self {
        Self { clock, servers: Mutex::default() }
    }

    /// Looks again.
    pub(super) fn look(&self, health: Vec<Health>) -> Vec<ServerHealth> {
        let now = self.clock.now();
        let mut seen = self.servers.lock().expect("nobody panics with it");
        let before = std::mem::take(&mut *seen);
        let look = |health: Health| {
            let known = before.get(&health.address).copied();
            let mut known = known.unwrap_or_else(|| Known::new(health.is_up, now));
            if known.look(health.is_up, now) {
                say(&health);
            }
            seen.insert(health.address.clone(), known);
            let why_down = (!health.is_up).then_some(health.why_down);
            ServerHealth { address: health.address, why_down, since: now.since(known.since) }
        };
        health.into_iter().map(look).collect()
    }
}

fn say(health: &Health) {
    let Health { address, why_down, .. } = health;
    if health.is_up {
        tracing::info!("the store at {address} answers again");
    } else {
        tracing::warn!(
            "the store at {address} does not answer, its limits' on_error does: {why_down}"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn second(number: u64) -> Timestamp {
        Timestamp::from_micros(number * 1_000_000)
    }

    #[test]
    fn what_has_changed_is_said_once_and_at_once() {
        let mut known = Known::new(true, second(0));
        let said: Vec<u64> =
            (1..100).filter(|now| known.look(!(20..50).contains(now), second(*now))).collect();
        assert_eq!(said, [20, 50]);
        assert_eq!(known.since, second(50));
    }

    #[test]
    fn of_a_server_that_comes_and_goes_it_is_said_once_in_ten_seconds() {
        let mut known = Known::new(true, second(0));
        let flaps = |now: u64| now >= 60 || now.is_multiple_of(3);
        let said: Vec<u64> = (1..100).filter(|now| known.look(flaps(*now), second(*now))).collect();
        assert!(said.windows(2).all(|two| two[1] - two[0] >= 10), "{said:?}");
        assert!((4..=8).contains(&said.len()), "{said:?}");
        assert!(known.said_up, "how it is in the end is said");
    }
}
