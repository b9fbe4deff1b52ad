//! Limits that several processes share through Redis or Valkey, with the rules and decisions of `tidegate`.
//!
//! ```no_run
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! use tidegate_redis::RedisStore;
//!
//! let store = RedisStore::connect("redis://127.0.0.1:6379").await?;
//! let limiter = store.limiter("api", "100/s burst 20".parse()?)?;
//! if limiter.check("alice").await.is_deny() {
//!     println!("too fast");
//! }
//! # Ok(())
//! # }
//! ```
//!
//! - [`RedisStore`] connects to one server, to sentinels or to a cluster, with or without TLS ([`Address`]).
//! - [`RedisLimiter`] is a limit. Every decision is one script, atomic, by Redis's clock.
//! - [`Settings::deadline`] and [`Builder::deadline`] bound how long a decision waits for Redis. [`OnError`] decides when that
//!   has passed: this node's share of the limit, or all pass, or none.
//! - [`RedisLimiter::acquire`] waits for a rate or a permit. [`check_all`] decides several limits as one.
//! - [`Builder::lease`] decides requests about busy keys in memory, from quota reserved in Redis.
//!
//! The guide describes the bounds through failovers and outages, and the differences from memory.

mod cache;
mod connection;
mod deferred_release;
mod fallback;
mod joint;
mod lease;
mod limit_store;
mod limiter;
mod monitor;
mod random;
mod remote;
mod script;
mod store;
mod sync;
mod throttle;

pub use connection::{
    Address, AddressError, Latencies, ProblemKind, RedisStoreError, ServerProblem, Settings,
};
pub use fallback::{DecisionSource, OnError, SourcedDecision};
pub use joint::{check_all, try_check_all};
pub use limiter::{Builder, RedisLimiter, RedisPermit, RedisRequest, UnsupportedRule};
pub use monitor::{LimitHealth, LimitState, RedisStats};
pub use store::{RedisStore, ServerHealth};
pub use throttle::RedisThrottles;

#[cfg(doctest)]
mod pages {
    #[doc = include_str!("../../../docs/guide/redis.md")]
    struct Redis;
}
