//! How the store's servers are, and since when.
//!
//! Always   Who looks finds out: what has changed since the last look is said in the log, once. So the daemon looks every
//!          second, and the times are right to the second.

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

/// What was seen at the last look.
#[derive(Debug)]
pub(super) struct Seen {
    clock: ServerClock,
    /// Whether each was up, and since when.
    servers: Mutex<HashMap<String, (bool, Timestamp)>>,
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
            let since = match before.get(&health.address) {
                Some((was_up, since)) if *was_up == health.is_up => *since,
                changed => {
                    if changed.is_some() {
                        say(&health);
                    }
                    now
                }
            };
            seen.insert(health.address.clone(), (health.is_up, since));
            let why_down = (!health.is_up).then_some(health.why_down);
            ServerHealth { address: health.address, why_down, since: now.since(since) }
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
