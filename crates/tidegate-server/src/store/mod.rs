//! Where the state of limits is: in this process's memory, or in Redis.
//!
//! Every decision goes through the contract of stores, [`LimitStore`]. This module adds what a server needs besides decisions: a
//! [`Backend`] opens limits and decides `CL.THROTTLE`, and [`Counters`] are one limit that it opened.
//!
//! Always   What only Redis has (health, findings, published rules) is reached through `shared`, what only memory has (snapshots)
//!          through `limiter`.

mod findings;
mod health;
mod memory;
mod redis;

pub(crate) use findings::ExaminationSchedule;
pub use health::ServerHealth;
pub use memory::MemoryBackend;
pub use redis::{RedisBackend, RedisCounters};
pub use tidegate::store::{IdempotencyKey, InvalidIdempotencyKey, StoreError};
pub(crate) use tidegate_config::THROTTLES_NAME;

use crate::clock::ServerClock;
use crate::config::LimitConfig;
use std::fmt;
use std::sync::Arc;
use tidegate::snapshot::Snapshot;
use tidegate::store::{LimitStore, Reply};
use tidegate::store::{Stats, Top};
use tidegate::throttle::{Throttle, Throttled, Throttles};
use tidegate::{Limiter, Rule};
use tidegate_redis::UnsupportedRule;

/// A store as the server opens it: it opens limits, and decides `CL.THROTTLE`, whose rates come with the requests.
pub trait Backend: fmt::Debug + Send + Sync {
    /// Opens a limit, with the state that the snapshot has for its name.
    ///
    /// # Errors
    /// If the store cannot represent the rule.
    fn open(
        &self,
        limit: &LimitConfig,
        restored: &Snapshot,
    ) -> Result<Arc<dyn Counters>, UnsupportedRule>;

    /// Returns the `CL.THROTTLE` keys in this process: all of them in memory; with Redis, the fallback for an outage.
    fn throttles(&self) -> &Throttles<ServerClock>;

    /// Decides one `CL.THROTTLE`.
    fn throttle<'a>(&'a self, key: &'a [u8], throttle: &'a Throttle) -> Reply<'a, Throttled>;

    /// Forgets what a `CL.THROTTLE` key has used. Returns whether it had used anything.
    fn reset_throttle<'a>(&'a self, key: &'a [u8]) -> Reply<'a, Result<bool, StoreError>>;

    /// Returns the counts of `CL.THROTTLE` decisions.
    fn throttle_stats(&self) -> Stats;

    /// Returns the store over the network that other servers may share, if this is one.
    fn shared(&self) -> Option<&RedisBackend> {
        None
    }
}

/// The state of one limit in a store.
pub trait Counters: fmt::Debug + Send + Sync {
    /// Returns the limit by the contract of stores, for decisions.
    fn store(&self) -> &dyn LimitStore;

    /// Changes the rule; what keys have used is converted. In Redis, the rule is in force when the engine has published it.
    fn set_rule(&self, rule: Rule);

    /// Returns whether the limit can be closed and opened again without a client noticing: no key owes anything, and no permit is
    /// held.
    fn is_idle(&self) -> bool;

    /// Returns the counts of decisions by this server.
    fn stats(&self) -> Stats;

    /// Returns the keys with the most requests and those with the most denials; empty with Redis, which does not count them.
    fn top(&self, _k: usize) -> Top {
        Top::default()
    }

    /// Returns the limiter whose state a snapshot has to keep; `None` with Redis, which keeps it itself.
    fn limiter(&self) -> Option<&Limiter<ServerClock>> {
        None
    }

    /// Returns the limit in Redis that other servers may share, if this is one.
    fn shared(&self) -> Option<&RedisCounters> {
        None
    }
}
