//! Which of the store's servers answer, and since when.
//!
//! Always   A change is logged once, by the first health check that sees it: the daemon makes one a second. A server that flaps
//!          is logged at most once in ten seconds.

use crate::clock::ServerClock;
use crate::sync::lock;
use std::collections::HashMap;
use std::sync::Mutex;
use tidegate::{Clock, Span, Timestamp};
use tidegate_redis::ServerHealth as RedisServerHealth;

/// The state of one of the store's servers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerHealth {
    /// Its address.
    pub address: String,
    /// Why it gets no requests; `None` while it does.
    pub why_down: Option<String>,
    /// How long it has been in this state.
    pub since: Span,
}

/// The minimum between two log lines about one server.
const LOG_INTERVAL: Span = Span::from_secs(10);

/// The state of every server at the last health check.
#[derive(Debug)]
pub(super) struct HealthHistory {
    clock: ServerClock,
    servers: Mutex<HashMap<String, ServerState>>,
}

#[derive(Clone, Copy, Debug)]
struct ServerState {
    is_up: bool,
    since: Timestamp,
    /// The state that the log shows. A server's first state needs no line.
    logged_up: bool,
    logged_at: Option<Timestamp>,
}

impl ServerState {
    fn new(is_up: bool, now: Timestamp) -> Self {
        Self { is_up, since: now, logged_up: is_up, logged_at: None }
    }

    /// Records the result of a health check. Returns whether it is to be logged.
    fn update(&mut self, is_up: bool, now: Timestamp) -> bool {
        if self.is_up != is_up {
            (self.is_up, self.since) = (is_up, now);
        }
        let is_time = self.logged_at.is_none_or(|logged| now.since(logged) >= LOG_INTERVAL);
        let is_logged = self.logged_up != is_up && is_time;
        if is_logged {
            (self.logged_up, self.logged_at) = (is_up, Some(now));
        }
        is_logged
    }
}

impl HealthHistory {
    pub(super) fn new(clock: ServerClock) -> Self {
        Self { clock, servers: Mutex::default() }
    }

    /// Records a health check, logs what changed, and returns the state of every server.
    pub(super) fn update(&self, health: Vec<RedisServerHealth>) -> Vec<ServerHealth> {
        let now = self.clock.now();
        let mut servers = lock(&self.servers);
        let before = std::mem::take(&mut *servers);
        let update = |health: RedisServerHealth| {
            let state = before.get(&health.address).copied();
            let mut state = state.unwrap_or_else(|| ServerState::new(health.is_up, now));
            if state.update(health.is_up, now) {
                log(&health);
            }
            servers.insert(health.address.clone(), state);
            let why_down = (!health.is_up).then_some(health.why_down);
            ServerHealth { address: health.address, why_down, since: now.since(state.since) }
        };
        health.into_iter().map(update).collect()
    }
}

fn log(health: &RedisServerHealth) {
    let RedisServerHealth { address, why_down, .. } = health;
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
    fn a_change_is_logged_once_and_at_once() {
        let mut state = ServerState::new(true, second(0));
        let logged: Vec<u64> =
            (1..100).filter(|now| state.update(!(20..50).contains(now), second(*now))).collect();
        assert_eq!(logged, [20, 50]);
        assert_eq!(state.since, second(50));
    }

    #[test]
    fn a_server_that_flaps_is_logged_once_in_ten_seconds() {
        let mut state = ServerState::new(true, second(0));
        let flaps = |now: u64| now >= 60 || now.is_multiple_of(3);
        let logged: Vec<u64> =
            (1..100).filter(|now| state.update(flaps(*now), second(*now))).collect();
        assert!(logged.windows(2).all(|two| two[1] - two[0] >= 10), "{logged:?}");
        assert!((4..=8).contains(&logged.len()), "{logged:?}");
        assert!(state.logged_up, "the last state is logged");
    }
}
