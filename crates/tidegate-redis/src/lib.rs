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

mod all;
mod builder;
mod clock;
mod counter;
mod denied;
mod exact;
mod fallback;
mod health;
mod joint;
mod key;
mod latencies;
mod lease;
mod left;
mod limiter;
mod link;
mod permit;
mod policy;
mod random;
mod recovery;
mod registry;
mod returns;
mod script;
mod settings;
mod shared;
mod store;
mod tally;
mod throttle;
mod value;

pub use all::{check_all, decide_all};
pub use builder::{Builder, Unsuited};
pub use exact::ONCE_SPAN;
pub use health::{LimitHealth, LimitState};
pub use joint::JointAsk;
pub use latencies::Latencies;
pub use limiter::RedisLimiter;
pub use link::{Address, AddressError, Concern, Finding, StoreError};
pub use permit::RedisPermit;
pub use policy::{OnError, Source, Told};
pub use settings::Settings;
pub use store::{Health, RedisStore};
pub use tally::Stats;
pub use throttle::RedisThrottles;

#[cfg(doctest)]
mod pages {
    #[doc = include_str!("../../../docs/guide/redis.md")]
    struct Redis;
}
