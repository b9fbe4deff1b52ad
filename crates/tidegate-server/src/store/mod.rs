//! Where counters live. The engine knows what is here, and not how it is done.
//!
//! Always   One verb: `decide`. It is atomic for one request, and all-or-nothing for several together.
//!          A decision is always made, by the limit's `on_error` if the store does not answer. Whatever else is
//!          asked may fail ([`StoreError`]): memory never does, a store over a network will.
//! Fast     Memory answers at once. What waits for a network is boxed, so that nobody carries its state along
//!          who does not wait.

mod counters;
mod findings;
mod health;
mod memory;
mod redis;

pub use counters::{Counters, Permit};
pub(crate) use findings::Examination;
pub use health::ServerHealth;
pub(crate) use memory::THROTTLES_NAME;
pub use memory::{Memory, MemoryCounters};
pub use redis::{Redis, RedisCounters};
pub use tidegate::store::{IdempotencyKey, InvalidIdempotencyKey};

use crate::clock::ServerClock;
use crate::config::{Config, LimitConfig};
use tidegate::snapshot::Snapshot;
use tidegate::store::ClientId;
use tidegate::store::Stats;
use tidegate::throttle::{Throttle, Throttled, Throttles};
use tidegate::{Decision, Joint};
use tidegate_redis::{Finding, Latencies, LimitHealth, RedisStore, Unsuited};
use tokio::runtime::Handle;

/// A store, of the kinds there are.
#[derive(Debug)]
pub enum Store {
    /// In this process.
    Memory(Memory),
    /// In Redis, which several servers share.
    Redis(Box<Redis>),
}

/// One request of a store: how much, for whom, of which counters.
#[derive(Clone, Copy, Debug)]
pub struct Ask<'a> {
    /// Whose counters.
    pub counters: &'a Counters,
    /// Whom they count. Any bytes.
    pub key: Key<'a>,
    /// How much.
    pub cost: u64,
}

/// A key as it came over a wire: any bytes, and the same bytes are the same key on every wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Key<'a>(pub &'a [u8]);

/// Why there is no decision.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// The store did not answer.
    #[error(transparent)]
    Unavailable(#[from] tidegate_redis::StoreError),
    /// The store did not answer who gives a place back.
    #[error("the place is given back as soon as the store answers: {0}")]
    GivenBackLater(tidegate_redis::StoreError),
    /// Places under concurrency limits are held by too many.
    #[error(
        "there is room to remember {max} places, of which one peer gets three quarters at most, and it is taken: release some, or give \
         the rule a lease"
    )]
    TooManyLeases {
        /// How many there can be.
        max: usize,
    },
    /// The store in this process could not do it.
    #[error(transparent)]
    Memory(#[from] tidegate::store::StoreError),
}

impl std::hash::Hash for Key<'_> {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        // As the contract of stores hashes keys, so that a key is the same through either.
        self.0.hash(state);
    }
}

impl Store {
    /// Counters in this process.
    pub fn memory(clock: ServerClock, throttle_max_keys: usize, restored: &Snapshot) -> Self {
        Self::Memory(Memory::new(clock, throttle_max_keys, restored))
    }

    /// Counters in Redis. What it does in the background, it does in the runtime that this is called in.
    pub fn redis(redis: RedisStore, config: &Config, clock: ServerClock) -> Self {
        let max_keys = config.server.throttle_max_keys;
        Self::Redis(Box::new(Redis::new(redis, config.store.as_ref(), clock, max_keys)))
    }

    /// Keys whose rate comes with each request, as far as they are in this process.
    pub fn throttles(&self) -> &Throttles<ServerClock> {
        match self {
            Self::Memory(memory) => memory.throttles(),
            Self::Redis(redis) => redis.throttles(),
        }
    }

    /// Decides about a key whose rate comes with the request.
    pub async fn throttle(&self, key: Key<'_>, throttle: &Throttle) -> Throttled {
        match self {
            Self::Memory(memory) => memory.throttles().check(&key, throttle),
            Self::Redis(redis) => redis.throttle(key, throttle).await,
        }
    }

    /// Forgets what such a key owes. Tells whether it owed anything.
    pub async fn forget_throttled(&self, key: Key<'_>) -> Result<bool, StoreError> {
        match self {
            Self::Memory(memory) => Ok(memory.throttles().reset(&key)),
            Self::Redis(redis) => redis.forget_throttled(key).await,
        }
    }

    /// How often the store did not decide about such keys, by kind.
    pub fn throttles_failed(&self) -> Vec<(&'static str, u64)> {
        match self {
            Self::Memory(_) => Vec::new(),
            Self::Redis(redis) => redis.throttles_failed(),
        }
    }

    /// Whether the store decides about such keys; none if it is in this process.
    pub fn throttles_health(&self) -> Option<LimitHealth> {
        match self {
            Self::Memory(_) => None,
            Self::Redis(redis) => Some(redis.throttles_health()),
        }
    }

    /// What was decided about such keys.
    pub fn throttled(&self) -> Stats {
        match self {
            Self::Memory(memory) => memory.throttles().limiter().stats(),
            Self::Redis(redis) => redis.throttled(),
        }
    }

    /// Whether others may share what is counted: then every answer takes a while.
    pub fn is_shared(&self) -> bool {
        matches!(self, Self::Redis(_))
    }

    /// How the store's servers are, as far as they are known; none if it is in this process.
    pub fn health(&self) -> Option<Vec<ServerHealth>> {
        match self {
            Self::Memory(_) => None,
            Self::Redis(redis) => Some(redis.health()),
        }
    }

    /// Finds out what an operator should know about the store's servers. It takes a few round trips: not for who waits.
    pub async fn examine(&self) {
        match self {
            Self::Memory(_) => {}
            Self::Redis(redis) => redis.examine().await,
        }
    }

    /// What was found when it was last [examined](Self::examine).
    pub fn findings(&self) -> Vec<Finding> {
        match self {
            Self::Memory(_) => Vec::new(),
            Self::Redis(redis) => redis.findings(),
        }
    }

    /// How long the store's answers took; none if it is in this process.
    pub fn round_trips(&self) -> Option<&Latencies> {
        match self {
            Self::Memory(_) => None,
            Self::Redis(redis) => Some(redis.round_trips()),
        }
    }

    /// Where something can be done in the background for a store that takes a while.
    pub(crate) fn background(&self) -> Option<&Handle> {
        match self {
            Self::Memory(_) => None,
            Self::Redis(redis) => Some(redis.runtime()),
        }
    }

    /// Counters for a limit; what a snapshot knows of it comes back. An error, if the store cannot count so far.
    pub fn open(&self, limit: &LimitConfig, restored: &Snapshot) -> Result<Counters, Unsuited> {
        match self {
            Self::Memory(memory) => Ok(Counters::Memory(memory.open(limit, restored))),
            Self::Redis(redis) => redis.open(limit).map(Counters::Redis),
        }
    }

    /// Decides one request.
    #[inline]
    pub async fn decide(&self, ask: &Ask<'_>) -> Result<Decision, StoreError> {
        match ask.counters {
            Counters::Memory(counters) => Ok(counters.check(ask.key, ask.cost)),
            Counters::Redis(counters) => Ok(counters.check(ask.key, ask.cost).await),
        }
    }

    /// The same for a request that may be sent twice: charged once, and told the same.
    pub async fn decide_once(
        &self,
        ask: &Ask<'_>,
        id: IdempotencyKey<'_>,
        peer: ClientId,
    ) -> Result<Decision, StoreError> {
        match ask.counters {
            Counters::Memory(counters) => counters.check_once((ask.key, ask.cost), id, peer),
            Counters::Redis(counters) => Ok(counters.check_once(ask.key, ask.cost, id).await),
        }
    }

    /// Decides several requests as one: all are charged, or none.
    pub async fn decide_all(&self, asks: &[Ask<'_>]) -> Result<Joint, StoreError> {
        match self {
            Self::Memory(_) => Ok(memory::check_all(asks)),
            Self::Redis(_) => Ok(redis::check_all(asks).await),
        }
    }

    /// What [`decide`](Self::decide) would say, without charging.
    pub async fn peek(&self, ask: &Ask<'_>) -> Result<Decision, StoreError> {
        match ask.counters {
            Counters::Memory(counters) => Ok(counters.peek(ask.key, ask.cost)),
            Counters::Redis(counters) => counters.peek(ask.key, ask.cost).await,
        }
    }

    /// What [`decide`](Self::decide) would say if the store did not answer, without charging.
    pub fn peek_without(&self, ask: &Ask<'_>) -> Decision {
        match ask.counters {
            Counters::Memory(counters) => counters.peek(ask.key, ask.cost),
            Counters::Redis(counters) => counters.peek_without(ask.key, ask.cost),
        }
    }

    /// Forgets a key.
    pub async fn reset(&self, counters: &Counters, key: Key<'_>) -> Result<(), StoreError> {
        match counters {
            Counters::Memory(counters) => counters.reset(key),
            Counters::Redis(counters) => counters.reset(key).await?,
        }
        Ok(())
    }

    /// Gives back what was charged.
    pub async fn refund(&self, ask: &Ask<'_>) -> Result<(), StoreError> {
        match ask.counters {
            Counters::Memory(counters) => counters.refund(ask.key, ask.cost),
            Counters::Redis(counters) => counters.refund(ask.key, ask.cost).await?,
        }
        Ok(())
    }

    /// Takes a place under a concurrency limit, or says why not.
    pub async fn acquire(&self, ask: &Ask<'_>) -> Result<Result<Permit, Decision>, StoreError> {
        Ok(match ask.counters {
            Counters::Memory(counters) => counters.acquire(ask.key, ask.cost).map(Permit::Memory),
            Counters::Redis(counters) => {
                let acquired = counters.acquire(ask.key, ask.cost).await;
                acquired.map(|permit| Permit::Redis(Box::new(permit)))
            }
        })
    }
}
