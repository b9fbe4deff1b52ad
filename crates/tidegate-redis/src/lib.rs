//! Limits that ten replicas share, through Redis or Valkey: the same rules, the same answers.
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
//! - [`RedisStore`] is the way to Redis: one server, TLS, sentinels or a cluster ([`Address`]).
//! - [`RedisLimiter`] is a limit that is asked with an `await`: `check` always answers, and what only Redis can do may fail.
//!   Every algorithm is one script: atomic, by Redis's clock, with the numbers that memory would give.
//! - [`OnError`] says what happens when Redis does not answer: this node's share decides, or all pass, or none.
//! - [`Builder::lease`] decides hot keys here, out of what was taken ahead of use, and never admits one too many.
//! - [`check_all`] decides several limits as one; [`RedisLimiter::try_acquire`] takes a place among those in flight.
//!
//! Which bounds hold through failovers and outages, and what is different from memory, is in the guide.

mod cache;
mod connection;
mod counter;
mod deferred_release;
mod fallback;
mod joint;
mod lease;
mod limit_context;
mod limiter;
mod random;
mod remote;
mod script;
mod store;
mod throttle;

pub use connection::{Address, AddressError, Concern, Finding, Latencies, Settings, StoreError};
pub use fallback::{OnError, Source, Told};
pub use joint::{JointAsk, check_all, decide_all};
pub use limit_context::{LimitHealth, LimitState, Stats};
pub use limiter::{Builder, RedisLimiter, RedisPermit, Unsuited};
pub use remote::ONCE_SPAN;
pub use store::{Health, RedisStore};
pub use throttle::RedisThrottles;

#[cfg(doctest)]
mod pages {
    #[doc = include_str!("../../../docs/guide/redis.md")]
    struct Redis;
}
